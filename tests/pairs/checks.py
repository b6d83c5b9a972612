"""Whether a table holds what it should, by its rows, its indexes, and the answers that it gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from spark_apps import IndexedTable
from spark_apps.datasource import IndexedReader
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.indexes.registry import asked_by
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.arrow_reading import arrow_plan
from spark_apps.query.planning import plan_read
from spark_apps.storage.errors import TableNotFound
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.state import State
from tests.pairs import entries
from tests.pairs.expected import Expected, PredicateProbe, questions
from tests.pairs.shapes import AGAIN, FIRST, LATE, NAMES, OVER, SECOND, Ground

EVER = [dict(zip(NAMES, row, strict=True)) for row in (*FIRST, *SECOND, *OVER, *AGAIN, *LATE)]


def rows_of(ground: Ground, expected: Expected) -> list[dict[str, Any]]:
    """What the table should hold: of a source, what its files hold by themselves."""
    if not ground.source:
        return expected.rows.dictionaries()
    rows = []
    for path in sorted(ground.uri.glob("p=*/*.parquet")):
        p = path.parent.name.removeprefix("p=")
        rows += [{**row, "p": p} for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


FEW = 14
"""So many questions are asked of one of many tables: others of each."""


def differences(ground: Ground, expected: Expected, few: bool = False) -> Iterator[str]:
    """What is not as it should be, worked out without Spark.

    :param few: ask some of the questions, drawn by what the table holds.
    """
    try:
        snapshot = IndexedTable.load(NO_SPARK, ground.uri).snapshot
    except TableNotFound:
        if not expected.dropped:
            yield "the table is gone"
        return
    if expected.dropped:
        yield "the table is there, and was dropped"
        return
    state = snapshot.state
    wrong = list(_definitions(state, expected))
    if wrong:
        yield from wrong  # which may keep rows from being read
        return
    rows = rows_of(ground, expected)
    held = rows_by_group(snapshot)
    difference = _differ([row for some in held.values() for row in some], rows)
    if difference:
        yield f"rows: {difference}"
        return
    yield from entries.differences(snapshot, held)
    probes = asked(state, rows)
    if few:
        probes = random.Random(repr(sorted(state.indexes)) + repr(rows)).sample(probes, min(FEW, len(probes)))
    for number, question in enumerate(probes):
        yield from _left_out(snapshot, question, held, read=number % 8 == 0)


def rows_by_group(snapshot: Snapshot) -> dict[GroupKey, list[dict[str, Any]]]:
    """All rows, read by Arrow, by the file group that holds them."""
    whole = arrow_plan(plan_read(snapshot), snapshot.data.columns, None)
    groups: dict[GroupKey, list[dict[str, Any]]] = {key: [] for key in snapshot.groups()}
    for part in whole.parts:
        groups[part.files[0].file.group_key] += [row for batch in whole.read(part) for row in batch.to_pylist()]
    return groups


def _left_out(
    snapshot: Snapshot, question: PredicateProbe, held: Mapping[GroupKey, Sequence[dict[str, Any]]], read: bool
) -> Iterator[str]:
    """Rows that a predicate matches and that the plan for it would not read.

    :param read: follow the plan; else only look at which file groups, and which keys in them, it asks for.
    """
    key = snapshot.table.record_key
    plan = IndexedReader(snapshot, snapshot.data.schema, question.where).plan()
    matching = [(group, row) for group, rows in held.items() for row in rows if question.matches(row)]
    if read or plan.blocks:
        difference = _differ(answer(snapshot, question.where), [row for _, row in matching])
        if difference:
            yield f"{question.where}: {difference}"
        return
    for group, row in matching:
        keys = plan.groups.get(group, frozenset())
        if keys is not None and tuple(row[name] for name in key) not in keys:
            yield f"{question.where}: {row} of {group} is not read, by {[use.name for use in plan.used]}"


def asked(state: State, rows: Sequence[dict[str, Any]]) -> list[PredicateProbe]:
    names = [field.name for field in state.table.fields]
    ever = [{name: row[name] for name in names if name in row} for row in EVER]
    return questions(names, [*rows, *ever])


def answer(snapshot: Snapshot, where: str | None) -> list[dict[str, Any]]:
    """Rows by the plan that Spark would follow, read by Arrow."""
    reader = IndexedReader(snapshot, snapshot.data.schema, where)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def _differ(actual: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]]) -> str:
    here, there = (Counter(tuple(sorted(row.items(), key=str)) for row in rows) for rows in (actual, wanted))
    missing, more = [dict(one) for one in (there - here)], [dict(one) for one in (here - there)]
    return f"missing {missing[:2]}, too many {more[:2]}" if missing or more else ""


def _definitions(state: State, expected: Expected) -> Iterator[str]:
    """Columns, indexes and bucket counts."""
    if state.table.source is None:
        columns = [(field.name, field.type) for field in state.table.fields]
        if columns != list(zip(expected.rows.names, expected.rows.types, strict=True)):
            yield f"columns: {columns}"
    if state.indexes.keys() != expected.indexes.keys():
        yield f"indexes: {sorted(state.indexes)} and not {sorted(expected.indexes)}"
        return
    for name, entry in state.indexes.items():
        definition = entry.definition
        columns = asked_by(state.table, definition)
        if definition.kind != "record" and columns != expected.indexes[name]:
            yield f"columns of {name}: {columns}"
        if definition.included != expected.included.get(name, ()):
            yield f"included columns of {name}: {definition.included}"
        for key, value in expected.properties.get(name, {}).items():
            if definition.properties.get(key) != value:
                yield f"property {key} of {name}: {definition.properties.get(key)}"
    for file in state.files(DATA_TREE):
        if file.partition not in state.partitions:
            yield f"a file in {file.partition}, which is not there"
        elif state.table.bucketed and int(file.group) >= (state.partitions[file.partition].buckets or 1):
            yield f"a file of bucket {file.group} in {file.partition}, which has fewer"


# --- with Spark ---------------------------------------------------------------------------------------------------


def spark_differences(ground: Ground, expected: Expected) -> Iterator[str]:
    """What comparisons of indexes with full scans find, and answers that Spark gives otherwise."""
    table = ground.table()
    for name in table.indexes:
        report = table.verify(name)
        if not report.ok:
            yield f"verify of {name}: {report.differences[:3]} {report.to_dict()}"
    yield from answers(table, rows_of(ground, expected))


def answers(table: IndexedTable, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Asks many questions in one query, of all columns that an index is over."""
    from pyspark.sql import functions as F

    probes = [one for one in asked(table._state, rows) if " = " in one.where or " IS NULL" in one.where]
    held = {name for info in table.indexes.values() for name in info.columns} or {"id"}
    probes = [one for one in probes if one.where.split("`")[1] in held]
    whole = None
    for number, question in enumerate(probes):
        frame = table.read(question.where).select(F.lit(number).alias("__number"), *map(_quoted, table.schema.names))
        whole = frame if whole is None else whole.unionAll(frame)
    rows_by_number: dict[int, list[dict[str, Any]]] = {}
    for row in whole.collect() if whole is not None else []:
        values = row.asDict()
        rows_by_number.setdefault(values.pop("__number"), []).append(values)
    for number, question in enumerate(probes):
        differ = _differ(rows_by_number.get(number, []), [row for row in rows if question.matches(row)])
        if differ:
            yield f"{question.where}, by Spark: {differ}"


def _quoted(name: str) -> str:
    return f"`{name}`"
