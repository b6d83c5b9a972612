"""Advice on indexes: what it predicts, and whether it chooses what is best.

Two tables of TPC-H in many files, one registered and one keyed, are asked at random: what each hypothetical index is
said to spare each query is held against what the planner spares with the index built. Then each of the larger tables
as the generator writes it, one Parquet file, is advised for the 22 queries within half of its bytes. Every candidate is
built, and all sets of up to four within the budget are compared by what the queries read with the indexes there.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.report import Report
from benchmarks.tpch import QUERIES, TABLES, query
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.advisor.pricing import Pricing
    from spark_apps.advisor.questions import Question
    from spark_apps.mergetree.tree import Snapshot

SCALE, FULL_SCALE = 0.1, 1.0
FILES = 96
"""More than advice takes into its sample."""
ASKED = 80
CLOSE = 0.25
LEAST_SHARE = 0.01
"""Tables with less than this part of all bytes are not advised."""
MOST = 4

TRIED: dict[str, list[dict[str, Any]]] = {
    "lineitem": [
        {"kind": "secondary", "columns": ["l_partkey"]},
        {"kind": "secondary", "columns": ["l_orderkey"]},
        {"kind": "compact", "columns": ["l_shipdate"]},
        {"kind": "compact", "columns": ["l_orderkey"]},
        {"kind": "skipping", "columns": ["minmax(l_shipdate)", "minmax(l_receiptdate)"]},
        {"kind": "skipping", "columns": ["bloom(l_partkey)", "bloom(l_orderkey)", "values(l_shipmode)"]},
        {"kind": "skipping", "columns": ["ngrams(l_comment)"]},
        {"kind": "covering", "columns": ["l_shipdate"], "properties": {"layout": "ranges"},
         "included": ["l_quantity", "l_extendedprice", "l_discount", "l_shipmode", "l_orderkey"]},
        {"kind": "covering", "columns": ["l_partkey"], "included": ["l_quantity", "l_extendedprice", "l_shipdate"]},
        {"kind": "covering", "columns": ["l_orderkey"], "properties": {"layout": "ranges"},
         "included": ["l_quantity", "l_extendedprice", "l_shipdate", "l_partkey"]},
    ],
    "orders": [
        {"kind": "secondary", "columns": ["o_custkey"]},
        {"kind": "secondary", "columns": ["o_clerk"]},
        {"kind": "compact", "columns": ["o_orderdate"]},
        {"kind": "compact", "columns": ["o_custkey"]},
        {"kind": "skipping", "columns": ["minmax(o_orderdate)", "bloom(o_custkey)", "bloom(o_clerk)"]},
        {"kind": "skipping", "columns": ["ngrams(o_comment)"]},
        {"kind": "covering", "columns": ["o_orderdate"], "properties": {"layout": "ranges"},
         "included": ["o_custkey", "o_totalprice", "o_orderpriority"]},
        {"kind": "covering", "columns": ["o_custkey"], "included": ["o_orderdate", "o_totalprice", "o_clerk"]},
    ],
}  # fmt: skip
ASKED_BY = {
    "lineitem": ("l_partkey", "l_orderkey", "l_shipdate", "l_receiptdate", "l_shipmode", "l_comment"),
    "orders": ("o_custkey", "o_clerk", "o_orderdate", "o_comment"),
}
RANGES = ("l_orderkey", "l_shipdate", "l_receiptdate", "o_orderdate")
TEXTS = ("l_comment", "o_comment")


def run(report: Report, arguments: Namespace) -> None:
    """Print how far predictions are from what is measured, and each choice beside the best."""
    scale = FULL_SCALE if arguments.full else SCALE
    with workplace() as (spark, folder):
        _predicting(report, spark, folder, scale)
        _choosing(report, spark, folder, scale)


# --- predictions ------------------------------------------------------------------------------------------------------


def _predicting(report: Report, spark: SparkSession, folder: Path, scale: float) -> None:
    rows: list[tuple[str, ...]] = []
    counted, missed, misses = Counter[tuple[str, str]](), Counter[tuple[str, str]](), []
    for name, table in (("lineitem", _in_files(spark, folder, scale)), ("orders", _keyed(spark, folder, scale))):
        questions = _questions(table, name, scale)
        given = [{**one, "name": f"i{number}"} for number, one in enumerate(TRIED[name])]
        predicted, measured = _pricings(table, questions, given)
        for number, one in enumerate(given):
            for at, question in enumerate(questions):
                told, found = predicted.saves(at, {number}), measured.saves(at, {number})
                if not told and not found:
                    continue
                key = name, one["kind"]
                counted[key] += 1
                if abs(told - found) > CLOSE * found:
                    missed[key] += 1
                    read = measured.reads(at, ())
                    misses.append(
                        (name, one["kind"], ", ".join(one["columns"]), question.where or "", told, found, read)
                    )
    for key, count in counted.items():
        rows.append((*key, f"{count:,}", f"{count - missed[key]:,}", f"{1 - missed[key] / count:.0%}"))
    headings = ("table", "kind", "pairs of query and index", f"within {CLOSE:.0%}", "")
    report.table("What an index is said to spare a query, beside what it spares", headings, rows)
    if misses:
        shown = [(*map(str, one[:4]), *(f"{size / 1e3:,.0f}" for size in one[4:])) for one in misses[:40]]
        report.table(
            f"Predictions that were further off, {len(shown)} of {len(misses)}",
            ("table", "kind", "columns", "query", "said to spare, KB", "spares, KB", "read without, KB"),
            shown,
        )
    report.verdict(22, "missed", len(misses) / sum(counted.values()))


def _in_files(spark: SparkSession, folder: Path, scale: float) -> Any:
    """Lineitem in files by the time of shipping, as they would arrive, each of four row groups."""
    import pyarrow.parquet as pq

    from spark_apps import IndexedTable

    lines = _rows("lineitem", scale).sort_by("l_shipdate")
    (folder / "in_files").mkdir()
    each = -(-lines.num_rows // FILES)
    for number in range(FILES):
        rows = lines.slice(number * each, each)
        pq.write_table(rows, folder / "in_files" / f"{number:03d}.parquet", row_group_size=-(-each // 4))
    return IndexedTable.register(spark, folder / "in_files", format="parquet")


def _rows(name: str, scale: float, columns: Sequence[str] | None = None) -> Any:
    """Return rows of a table. The generator's texts are views, of which Arrow takes none out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(data.whole_tpch(scale) / f"{name}.parquet", columns=columns and list(columns))
    views = pa.string_view()
    return rows.cast(pa.schema([one.with_type(pa.string()) if one.type == views else one for one in rows.schema]))


def _keyed(spark: SparkSession, folder: Path, scale: float) -> Any:
    """Orders by their key, in partitions of a priority, of some rows two versions."""
    from spark_apps import IndexedTable

    orders = spark.read.parquet(str(data.whole_tpch(scale) / "orders.parquet"))
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in orders.schema)
    table = IndexedTable.create(
        spark, folder / "keyed", ddl, ["o_orderkey"], partition_by=["o_orderpriority"], buckets=8
    )
    table.upsert(orders)
    table.upsert(orders.where("o_orderpriority = '1-URGENT' AND o_orderkey % 50 = 0"))
    return table


def _questions(table: Any, name: str, scale: float) -> list[Question]:
    """Return queries that are drawn: one value, some, a range, a word, or two of these, of some columns."""
    from spark_apps.advisor.questions import Question
    from spark_apps.query.parsing import parse_predicate
    from spark_apps.query.predicates import Filter, columns_of

    dice, snapshot = random.Random(20), table.snapshot
    types = {field.name: field.type for field in snapshot.table.fields}
    known = _rows(name, scale, ASKED_BY[name])
    some = known.take(sorted(dice.sample(range(known.num_rows), 2_000)))
    values = {column: some.column(column).to_pylist() for column in ASKED_BY[name]}

    def literal(value: Any) -> str:
        return str(value) if isinstance(value, int) else f"DATE '{value}'" if hasattr(value, "year") else f"'{value}'"

    def condition(column: str) -> str:
        if column in TEXTS:
            return f"{column} LIKE '%{dice.choice(dice.choice(values[column]).split(' '))}%'"
        if column in RANGES and dice.random() < 0.6:
            ordered = sorted(values[column])
            start = dice.randrange(len(ordered))
            end = min(len(ordered) - 1, start + round(len(ordered) * 10 ** dice.uniform(-3, -0.5)))
            return f"{column} BETWEEN {literal(ordered[start])} AND {literal(ordered[end])}"
        drawn = [literal(dice.choice(values[column])) for _ in range(dice.choice((1, 1, 1, 3, 10)))]
        return f"{column} = {drawn[0]}" if len(drawn) == 1 else f"{column} IN ({', '.join(drawn)})"

    held = [(*one["columns"], *one["included"]) for one in TRIED[name] if one["kind"] == "covering"]
    questions = []
    for number in range(ASKED):
        chosen = dice.sample(ASKED_BY[name], 2 if dice.random() < 0.25 else 1)
        where = " AND ".join(map(condition, chosen))
        predicate = parse_predicate(where, types, time_zone="UTC", timestamps="timestamp", expressions={})
        # Half of the queries ask for what some covering index holds.
        wanted = dice.choice(held) if dice.random() < 0.5 else snapshot.data.columns
        needed = {*dice.sample(wanted, dice.randint(1, min(6, len(wanted)))), *columns_of(predicate)}
        columns = tuple(column for column in snapshot.data.columns if column in needed)
        questions.append(Question(number, Filter(predicate, where), columns, 1.0))
    return questions


def _pricings(table: Any, questions: Sequence[Question], given: Sequence[dict[str, Any]]) -> tuple[Pricing, Pricing]:
    """Return what indexes are predicted to spare, and what they spare once they are built; both by their numbers."""
    before = table.snapshot
    for one in given:
        more = {key: one[key] for key in ("included", "properties") if key in one}
        table.create_index(one["name"], one["kind"], one["columns"], **more)
    return pricings(before, table.snapshot, questions, given)


def pricings(
    before: Snapshot, after: Snapshot, questions: Sequence[Question], given: Sequence[dict[str, Any]]
) -> tuple[Pricing, Pricing]:
    """Return what indexes are predicted to spare by a table without them, and what they spare one that has them."""
    from spark_apps.advisor.hypothetical import columns_to_sample, definition_of, trial_of
    from spark_apps.advisor.pricing import Priced, Pricing
    from spark_apps.advisor.sample import read_sample

    definitions = [definition_of(before, one) for one in given]
    sample = read_sample(before, columns_to_sample(before, definitions))
    trials = [trial_of(before, definition, sample) for definition in definitions]
    tried = [Priced(one.name, one.definition.kind, one, one.bytes, 0.0, 0.0) for one in trials]
    predicted = Pricing(before, questions, tried, sample)
    built = [Priced(one.name, one.kind, None, _held(after, one.name), 0.0, 0.0) for one in tried]
    return predicted, Pricing(after, questions, built, sample)


def _held(snapshot: Snapshot, index: str) -> int:
    return sum(file.bytes for file in snapshot.state.files(snapshot.state.index(index).definition.tree))


# --- choices ----------------------------------------------------------------------------------------------------------


def _choosing(report: Report, spark: SparkSession, folder: Path, scale: float) -> None:
    from spark_apps import IndexedTable
    from spark_apps.advisor.candidates import candidates
    from spark_apps.advisor.questions import questions_of
    from spark_apps.workload.sql_files import read_sql_files

    files = {name: data.whole_tpch(scale) / f"{name}.parquet" for name in TABLES}
    of_all = sum(path.stat().st_size for path in files.values())
    tables = {}
    for name, path in files.items():
        if path.stat().st_size >= LEAST_SHARE * of_all:
            (folder / name).mkdir()
            (folder / name / path.name).hardlink_to(path)
            tables[name] = IndexedTable.register(spark, folder / name, format="parquet")
    texts = folder / "tpch.sql"
    texts.write_text(";\n".join(query(number, scale) for number in QUERIES))
    columns = {name: spark.read.parquet(str(path)).columns for name, path in files.items()}
    workload = read_sql_files(texts, columns)
    rows, sums = [], Counter[str]()
    for name, table in tables.items():
        budget = sum(file.bytes for file in table.snapshot.state.files("data")) // 2
        advice = table.advise(workload, budget={"bytes": budget})
        questions = questions_of(table.snapshot, workload.of_table(table.uri, str(folder / name)))
        given = candidates(table.snapshot, questions)
        predicted, measured = _pricings(table, questions.all, given)
        names = [one["name"] for one in given]
        chosen = frozenset(names.index(proposal.index) for proposal in advice.proposals)
        held = [table.index_status(one).bytes for one in names]
        alone = [
            [one.a_day * measured.saves(at, {number}) for number in range(len(names))]
            for at, one in enumerate(questions.all)
        ]
        best = max(
            _sets(held, budget),
            key=lambda members: sum(max((gains[number] for number in members), default=0) for gains in alone),
        )
        read = {key: measured.read - measured.saved(members)
                for key, members in {"none": (), "chosen": chosen, "best": best}.items()}  # fmt: skip
        sums.update(read)
        shown = [", ".join(sorted(names[number] for number in members)) or "none" for members in (chosen, best)]
        rows.append(
            (name, f"{len(names)}", *shown, *(f"{size / 1e6:,.1f}" for size in read.values()),
             f"{(measured.read - predicted.saved(chosen)) / 1e6:,.1f}",
             f"{sum(held[number] for number in chosen) / budget:.0%}")
        )  # fmt: skip
        report.console.print(f"{name}: {read}, of {len(questions.all)} queries")
    report.table(
        f"TPC-H at scale {scale:g}, half of each table's bytes as its budget: MB that the 22 queries read",
        ("table", "candidates", "chosen", "best of up to four", "without", "with the chosen", "with the best",
         "predicted with the chosen", "of the budget"),
        rows,
    )  # fmt: skip
    report.say(
        "Read are the bytes that the planner has Spark read of the columns asked for, with the indexes there, and of "
        "the indexes. The best set is searched for by what each index spares each query alone, as a table is "
        "one file, which one index stands for; then the queries are planned with the whole set."
    )
    report.verdict(22, "chosen", sums["chosen"] / sums["best"])


def _sets(held: Sequence[int], budget: float) -> Iterator[Collection[int]]:
    """Yield all sets of up to four within a budget."""
    for count in range(MOST + 1):
        for members in combinations(range(len(held)), count):
            if sum(held[number] for number in members) <= budget:
                yield members
