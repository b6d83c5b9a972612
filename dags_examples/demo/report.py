"""What the demo holds against the raw data in the end, and the tables it prints of that.

What is right is counted with pandas from the raw flights, without anything of the table's code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console
from rich.table import Table

from dags_examples.demo import data
from dags_examples.demo.data import Expected
from dags_examples.demo.story import Story, files_of
from spark_apps import IndexedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Lookup:
    """A question to the table, the index that answers it, and the same question to the raw data."""

    name: str
    where: str
    index: str
    raw: Callable[[pd.DataFrame], pd.Series]
    columns: tuple[str, ...] | None = None


LOOKUPS = (
    Lookup("one plane", f"tailnum = '{data.PLANE}'", "by_tailnum", lambda rows: rows["tailnum"] == data.PLANE),
    Lookup(
        "one flight",
        "time_hour = TIMESTAMP '2013-12-30T10:00:00Z' AND carrier = 'UA' AND flight = 1102",
        "by_key",
        lambda rows: (
            (rows["time_hour"] == pd.Timestamp("2013-12-30T10:00:00Z"))
            & (rows["carrier"] == "UA")
            & (rows["flight"] == 1102)
        ),
    ),
    Lookup(
        "one route",
        "origin = 'JFK' AND dest = 'MVY'",
        "by_route",
        lambda rows: (rows["origin"] == "JFK") & (rows["dest"] == "MVY"),
        ("arr_delay", "air_time"),
    ),
    Lookup("very late", "dep_delay > 1000", "by_delay", lambda rows: rows["dep_delay"] > 1000),
)
SOURCES = ("delta", "iceberg")
RESCALED = {"month=7", "month=8", "month=10"}


class Verdicts:
    """Whether each thing that was looked at is as it should be."""

    def __init__(self) -> None:
        self._all: list[bool] = []

    def mark(self, good: bool) -> str:
        """Take note of one, and return how it is printed."""
        self._all.append(good)
        return "[green]agrees[/]" if good else "[red]DIFFERS[/]"

    def __bool__(self) -> bool:
        return bool(self._all) and all(self._all)


def check_table(console: Console, story: Story, expected: Expected, flights: pd.DataFrame) -> bool:
    """Compare the table that the DAGs left with the raw data; return whether all of it agrees."""
    table, verdicts = story.table(), Verdicts()
    made = Counter(entry.operation for entry in table.history())
    console.print(
        f"  demo.flights, version {table.version}: {', '.join(f'{count} {name}' for name, count in made.items())}"
    )
    left = data.left(flights)

    grid = Table("", "in the table", "in the raw data", "")
    for name, (in_table, in_raw) in _counted(table.read(), expected, left).items():
        grid.add_row(name, f"{in_table:,}", f"{in_raw:,}", verdicts.mark(in_table == in_raw))
    console.print(grid)

    grid = Table("", "where", "index", "files read", "skipped", "rows", "in the raw data", "")
    for lookup in LOOKUPS:
        _ask(grid, verdicts, table, lookup, left)
    console.print(grid)

    delivered, kept, rescaled = (story.table(f"flights_{name}") for name in ("december", "nightly", "rescale"))
    fewer = files_of(kept) < files_of(delivered) and files_of(kept) == sum(
        one.buckets or 0 for one in kept.partitions.values()
    )
    changed = {path for path, one in rescaled.partitions.items() if one.buckets != kept.partitions[path].buckets}
    console.print(f"  One file a bucket after the compaction: {verdicts.mark(fewer)}.", end="")
    console.print(f" Other bucket counts for {', '.join(sorted(changed))} alone: {verdicts.mark(changed == RESCALED)}.")
    refused = bool(story.refusal) and story.tries > 1
    console.print(
        f"  The writer at its first try: {story.refusal or '(was not refused)'}", soft_wrap=True, markup=False
    )
    console.print(f"  It succeeded at try {story.tries}: {verdicts.mark(refused)}.")
    report = table.verify("by_tailnum")
    console.print(
        f"  by_tailnum against a full scan: {report.entries:,} entries of {report.rows:,} rows, {report.missing} "
        f"missing, {report.too_many} too many: {verdicts.mark(report.ok)}."
    )
    return bool(verdicts)


def check_copies(console: Console, spark: SparkSession, copies: Path, flights: pd.DataFrame) -> bool:
    """Ask the Delta and the Iceberg copy for a plane; return whether its flights are those of the raw data."""
    verdicts = Verdicts()
    grid = Table("", "where", "index", "files read", "skipped", "rows", "in the raw data", "")
    # The log of the Iceberg copy names its catalog; a reader follows it only to where it is allowed to.
    options = {"source_roots": [data.catalog_address(copies)]}
    for form in SOURCES:
        lookup = Lookup(form, LOOKUPS[0].where, "by_tailnum", LOOKUPS[0].raw)
        _ask(grid, verdicts, IndexedTable.load(spark, copies / form, options=options), lookup, flights)
    console.print(grid)
    return bool(verdicts)


def _ask(grid: Table, verdicts: Verdicts, table: IndexedTable, lookup: Lookup, raw: pd.DataFrame) -> None:
    columns = list(lookup.columns or ()) or None
    plan = table.explain(lookup.where, columns)
    answer = table.read(lookup.where, columns).toArrow().to_pandas()
    wanted = raw.loc[lookup.raw(raw).fillna(False).astype(bool), list(answer.columns)]
    good = lookup.index in (plan.index_used or "") and len(wanted) > 0 and only_in_one(answer, wanted) == 0
    grid.add_row(
        lookup.name, lookup.where, plan.index_used or "none", str(plan.files_read), str(plan.files_skipped),
        f"{len(answer):,}", f"{len(wanted):,}", verdicts.mark(good),
    )  # fmt: skip


def _counted(rows: DataFrame, expected: Expected, left: pd.DataFrame) -> Mapping[str, tuple[int, int]]:
    """Figure -> (in the table, in the raw data)."""
    answer = rows.toArrow().to_pandas()
    december = answer[answer["month"] == 12]
    cancelled = f"cancelled in December, of {expected.cancelled_in_december:,} delivered"
    return {
        "rows": (len(answer), expected.rows),
        "rows of December": (len(december), expected.rows_of_december),
        cancelled: (int(december["dep_time"].isna().sum()), 0),
        "sum of arr_delay": (int(answer["arr_delay"].sum()), expected.sum_of_arr_delay),
        "sum of air_time": (int(answer["air_time"].sum()), expected.sum_of_air_time),
        "planes": (int(answer["tailnum"].nunique()), expected.planes),
        "rows that are on one side only, all columns compared": (only_in_one(answer, left), 0),
    }


def only_in_one(answer: pd.DataFrame, wanted: pd.DataFrame) -> int:
    """Return how many rows are in one of two frames only; repeated rows count."""
    columns = list(wanted.columns)
    both = [frame[columns].astype(wanted.dtypes.to_dict()) for frame in (answer, wanted)]
    numbered = [frame.assign(repeated=frame.groupby(columns, dropna=False).cumcount()) for frame in both]
    return len(pd.concat(numbered).drop_duplicates(keep=False))
