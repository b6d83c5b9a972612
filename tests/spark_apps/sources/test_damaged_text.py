"""Damaged lines of JSON and CSV: the rows that Spark alone reads, in every way, with any index and without."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IncludedColumns, IndexedTable, open_table
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.mergetree.reader_settings import keeps_damaged_records
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.planning import _damaged_records
from spark_apps.storage.errors import InvalidPredicate, UnsupportedSource
from spark_apps.storage.store import Store
from spark_apps.timeline.model import FORMAT_VERSION, Commit, Field, PutTable, SourceDefinition, TableDefinition
from spark_apps.timeline.operations import CREATE
from spark_apps.timeline.state import State

pytestmark = pytest.mark.by_turn(16)

DDL = "id int, a int, b int"
# Fields before the fault, a fault in a field, no fields at all; and arrays, lone and in lines.
JSON = [
    '{"id":1,"a":5,"b":', '{"id":2,"a":null,"b":1}', '{"a":6,"id":3,"b":"x"}', '{"id":"x","a":7,"b":1}',
    '{"id":5,"b":1}', "no json", '{"id":7,"a":8', '{"id":8,"a":"x","b":2}', '{"b":9,"id":9,"a":',
    '[{"id":10,"a":1},{"id":11}]',
]  # fmt: skip
CSV = ["1,5,1", "2,,1", "3,6,x", "x,7,1", "5", "6,8,1,9", ",,", '"8,1,2']
WHOLE = {"json": '{"id":20,"a":5,"b":3}\n{"id":21,"a":6,"b":null}\n', "csv": "20,5,3\n21,6,\n"}
ASKED = [
    "a IS NULL",
    "a = 5",
    "id IS NULL AND b IS NULL",
    "NOT (a = 5)",
    "a IS NULL OR b = 1",
    "a <=> NULL",
    "b * 2 = 6",
]
CORRUPT = ["_bad IS NULL AND a = 6", "_bad IS NOT NULL", "a IS NULL AND id = 8"]


def rows(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.fixture(params=["json", "csv", "json with damaged lines", "csv with damaged lines"])
def text(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> tuple[IndexedTable, Any]:
    """A source with an index of each kind, and Spark's own frame of its files."""
    form, _, column = request.param.partition(" ")
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / f"a.{form}").write_text("\n".join(JSON if form == "json" else CSV) + "\n")
    (folder / f"b.{form}").write_text(WHOLE[form])
    schema = f"{DDL}, _bad string" if column else DDL
    options = {"columnNameOfCorruptRecord": "_bad"} if column else {}
    table = IndexedTable.register(spark, folder, format=form, schema=schema, options=options)
    table.create_index("sec", "secondary", ["a"])
    table.create_index("skip", "skipping", ["minmax(id)", "values(b)", "values(b * 2)"])
    table.create_index("cov", "covering", ["a"], included=IncludedColumns(include=["id", "b"]),
                       properties={"hybrid_appended_ratio": "1"})  # fmt: skip
    if column:
        table.create_index("bad", "secondary", ["_bad"])
    return table, spark.read.schema(schema).options(**options).format(form).load(str(folder))


@pytest.mark.spark
def test_given_damaged_lines_then_rows_are_those_of_spark_alone_in_every_way(
    spark: Any, text: tuple[IndexedTable, Any]
) -> None:
    table, plain = text
    damaged, opened = "_bad" in table.schema.names, open_table(table.uri, options={"source_roots": ["/"]})
    asked = [*ASKED, *(CORRUPT if damaged else ())]
    wanted = [["id"], ["id", "a", "b"], *([["id", "_bad"]] if damaged else [])]
    expected = {(where, *columns): rows(plain.where(where).select(*columns)) for where in asked for columns in wanted}
    in_process = 0
    for (where, *columns), alone in expected.items():
        assert rows(table.read(where, columns)) == alone, (where, columns, table.explain(where, columns))
        assert rows(table.read(columns=table.schema.names).where(where).select(*columns)) == alone, where
        with contextlib.suppress(UnsupportedSource, InvalidPredicate):
            found = opened.read(where, columns).to_pylist()
            assert len(found) == len(alone), (where, columns)
            in_process += 1
    assert in_process or damaged, "an index leaves the damaged file out"
    spark_apps.enable(spark)
    try:
        for (where, *columns), alone in expected.items():
            assert rows(plain.where(where).select(*columns)) == alone, (where, columns)
    finally:
        spark_apps.disable(spark)
    if table.definition.source is not None and table.definition.source.format == "json":
        assert {why.code for why in table.explain("a IS NULL").not_used.values()} == {"damaged_records"}
    assert table.explain("a = 5 AND b = 3", ["id"]).indexes
    assert all(table.verify(name).ok for name in table.indexes)


@pytest.mark.parametrize(
    ("form", "options", "kept"),
    [("json", {}, True), ("json", {"mode": "permissive"}, True), ("json", {"Mode": "FailFast"}, False),
     ("csv", {}, False), ("parquet", {}, False)],
)  # fmt: skip
def test_given_a_format_and_its_mode_then_it_is_known_whether_damaged_records_give_rows(
    form: str, options: dict[str, str], kept: bool
) -> None:
    assert keeps_damaged_records(SourceDefinition(form, "/s", options)) is kept


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(
    ("where", "asked", "kept"),
    [("a = 5", ["a"], False), ("a IS NULL", ["a"], True), ("a = 5 AND b IS NULL", ["a"], False), (None, ["a"], True),
     ("a IS NULL OR b = 1", ["a"], True), ("NOT (a > 5)", ["a"], False), ("a <=> NULL", ["a"], True),
     ("a = 5", ["_bad"], True), ("_bad IS NOT NULL AND a = 5", ["a"], True), ("coalesce(a, 0) = 0", ["a"], True),
     ("a * 2 = 10", ["a"], False), ("a * 2 = 10 OR b IS NULL", ["a"], True), ("NOT (a * 2 > 10)", ["a"], False)],
)  # fmt: skip
def test_given_a_predicate_that_a_row_of_nulls_can_satisfy_then_no_index_of_json_answers_it(
    tmp_path: Path, where: str | None, asked: list[str], kept: bool
) -> None:
    kinds = {"a": "int", "b": "int", "_bad": "string"}
    source = SourceDefinition("json", str(tmp_path / "s"), {"columnNameOfCorruptRecord": "_bad"})
    table = TableDefinition("t", tuple(Field(name, kind) for name, kind in kinds.items()), (), source=source)
    state = State()
    state.apply(Commit(FORMAT_VERSION, 0, "0" * 17, CREATE.name, "t", 1, -1, actions=(PutTable(table),)))
    expressions = {"(`a` * 2)": "int", "coalesce(`a`, 0)": "int"}
    predicate = None if where is None else parse_predicate(where, kinds, expressions=expressions)

    refused = _damaged_records(Snapshot(NO_SPARK, Store(tmp_path), state), predicate, asked)
    assert (refused is not None) is kept
    assert refused is None or refused.code == "damaged_records"
