"""The end of the demo: advice on indexes from what was asked of the table, followed, and what it saved.

The table keeps a log of its queries since it was made. Some more are asked now, of which no index knows anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console
from rich.table import Table

from dags_examples.demo.report import Verdicts, only_in_one
from spark_apps import IndexedTable, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AIRPORTS = ("ANC", "LEX", "HDN")
"""Destinations of few flights, each in some months only."""


def follow_advice(console: Console, spark: SparkSession, table: IndexedTable, flights: pd.DataFrame) -> bool:
    """Ask for some destinations, follow the advice that comes of it, and ask again; return whether it helped.

    :param table: that keeps a query log. :param flights: what is in it, by the raw data.
    """
    verdicts = Verdicts()
    before = {airport: _asked(table, airport, flights) for airport in AIRPORTS}
    half = sum(part.bytes for part in table.partitions.values()) // 2
    advice = table.advise(budget={"bytes": half})
    console.print(f"  Asked so far: {advice.queries:,.0f} queries. Advice within half of the table's bytes:")
    for proposal in advice.proposals:
        console.print(f"  {proposal.action} {proposal.index} ({proposal.kind}): {proposal.reason}", markup=False)
    creates = [proposal for proposal in advice.proposals if proposal.action == "create" and proposal.statement]
    if not creates:
        console.print(f"  No index is advised: {verdicts.mark(False)}.")
        return False
    best = max(creates, key=lambda proposal: proposal.spared_a_day)
    console.print("  What saves most is done; the rest is a person's to decide.")
    console.print(f"  [green]→[/] {best.statement};", soft_wrap=True)
    sql.run(spark, best.statement or "")
    followed = IndexedTable.load(spark, table.uri)

    grid = Table("where", "index", "files read", "KB read", "rows", "the raw data")
    for airport, (files, size, _, right, wanted) in before.items():
        files_now, size_now, used, same, _ = _asked(followed, airport, flights)
        grid.add_row(
            _where(airport), used, f"{files} → {files_now}", f"{size / 1e3:,.0f} → {size_now / 1e3:,.0f}",
            f"{wanted:,}",
            verdicts.mark(right and same and best.index in used and files_now < files and size_now < size),
        )  # fmt: skip
    console.print(grid)
    return bool(verdicts)


def _where(airport: str) -> str:
    return f"dest = '{airport}'"


def _asked(table: IndexedTable, airport: str, flights: pd.DataFrame) -> tuple[int, int, str, bool, int]:
    """Ask for a destination; return files and bytes read, the index, whether rows are right, and how many they are."""
    plan = table.explain(_where(airport))
    answer = table.read(_where(airport)).toArrow().to_pandas()
    wanted = flights[flights["dest"] == airport]
    right = len(wanted) > 0 and only_in_one(answer, wanted[list(answer.columns)]) == 0
    return plan.files_read, plan.bytes_read, plan.index_used or "none", right, len(wanted)
