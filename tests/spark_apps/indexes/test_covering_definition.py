"""The rules of the document on columns: each one that is broken is named, and nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.covering.definition import (
    complete_definition,
    evolve_definition,
    held_columns,
    schema_of,
    with_schema,
)
from spark_apps.storage.errors import InvalidInput, InvalidSchema, UnknownColumn
from spark_apps.timeline.model import Field, IndexDefinition, SourceDefinition, TableDefinition
from tests.spark_apps.indexes.evolving import Folder

pytestmark = pytest.mark.spark

_FIELDS = (*(Field(f"C{n}", "bigint") for n in range(5)), Field("dt", "date"), Field("id", "bigint", False))
KEYED = TableDefinition("t", _FIELDS, ("id",), ("dt",))
SOURCE = TableDefinition("s", KEYED.fields[:6], (), ("dt",), source=SourceDefinition("json", "file:///x"))


def _defined(table: TableDefinition = KEYED, **more: Any) -> IndexDefinition:
    given = {"columns": ("c0",), "included": ("c1", "C2"), **more}
    return complete_definition(table, IndexDefinition("ix", "covering", index_id="1", **given))


@pytest.mark.parametrize(
    ("given", "included"),
    [
        (IncludedColumns(include=["C1", "C2"]), ("C1", "C2")),
        (IncludedColumns(include=[]), ()),
        (IncludedColumns(exclude=["C1", "c2"]), ("C3", "C4")),
        (IncludedColumns(exclude=[]), ("C1", "C2", "C3", "C4")),
        (IncludedColumns(), ()),
    ],
)
def test_included_columns_of_a_new_index_as_the_document_has_them(
    given: IncludedColumns, included: tuple[str, ...]
) -> None:
    assert given.of(["C0", "C1", "C2", "C3", "C4"], ["c0"]) == included


def test_given_lineage_then_partition_columns_join_the_index_unless_excluded(spark: Any) -> None:
    assert held_columns(KEYED, _defined()) == ("C0", "C1", "C2", "dt", "id")
    assert held_columns(SOURCE, _defined(SOURCE)) == ("C0", "C1", "C2", "dt")
    assert held_columns(SOURCE, _defined(SOURCE, properties={"excluded": '["dt"]'})) == ("C0", "C1", "C2")
    assert held_columns(SOURCE, _defined(SOURCE, properties={"lineage": "false"})) == ("C0", "C1", "C2")
    changed, _ = evolve_definition(SOURCE, _defined(SOURCE), "incremental", IncludedColumns(exclude=["DT"]), None)
    assert held_columns(SOURCE, changed) == ("C0", "C1", "C2")
    back, _ = evolve_definition(SOURCE, changed, "incremental", IncludedColumns(include=["dt"]), None)
    assert "dt" in held_columns(SOURCE, back)


def test_given_a_held_column_that_the_table_has_no_more_then_it_is_named(spark: Any) -> None:
    renamed = replace(
        SOURCE, fields=tuple(replace(field, name="other") if field.name == "C2" else field for field in _FIELDS)
    )
    assert with_schema(SOURCE, _defined(SOURCE), anew=False).properties
    with pytest.raises(InvalidSchema, match=r"no column 'C2' any more, which the index 'ix' holds"):
        with_schema(renamed, _defined(SOURCE), anew=False)


@pytest.mark.parametrize(("rows", "layout", "buckets"), [(7, "buckets", 8), (2, "buckets", 2), (7, "hash", 7)])
def test_given_no_number_of_buckets_then_those_of_spark_are_a_power_of_two_so_that_one_tables_divide_anothers(
    spark: Any, rows: int, layout: str, buckets: int
) -> None:
    defined = _defined(properties={"layout": layout}, shards=rows)
    assert defined.shards == buckets
    again = complete_definition(KEYED, defined)
    assert again == defined


@pytest.mark.parametrize(
    ("changes", "schema", "mode", "error", "says"),
    [
        (IncludedColumns(include=["C0"]), None, "full", InvalidInput, "indexed column"),
        (IncludedColumns(exclude=["c0"]), None, "full", InvalidInput, "indexed column"),
        (IncludedColumns(exclude=["C4"]), None, "full", UnknownColumn, "'C4'"),
        (IncludedColumns(include=["C9"]), None, "full", UnknownColumn, "schema='C9 bigint'"),
        (IncludedColumns(include=["C3"]), None, "quick", InvalidInput, "mode='incremental'"),
        (None, "C3 bigint", "full", InvalidInput, "not a column to be included"),
        (IncludedColumns(include=["C3"]), "C3 string", "full", InvalidSchema, "two types"),
        (IncludedColumns(include=["C9"]), "C9 blob", "full", InvalidSchema, "C9 blob"),
    ],
)
def test_given_a_rule_of_the_document_broken_then_it_is_named(
    spark: Any, changes: IncludedColumns | None, schema: str | None, mode: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        evolve_definition(SOURCE, _defined(SOURCE), mode, changes, schema)


def test_given_one_name_with_two_types_then_only_a_full_refresh_takes_the_new_one(spark: Any) -> None:
    gone, _ = evolve_definition(SOURCE, _defined(SOURCE), "incremental", IncludedColumns(exclude=["C1"]), None)
    assert gone.included == ("C2",) and schema_of(gone).names == ["C0", "C1", "C2", "dt"]
    fields = tuple(Field(f.name, "string" if f.name == "C1" else f.type) for f in SOURCE.fields)
    table = TableDefinition("s", fields, (), ("dt",), source=SOURCE.source)
    with pytest.raises(InvalidSchema, match=r"one name cannot have two types.*Nothing was changed.*full refresh"):
        evolve_definition(table, gone, "incremental", IncludedColumns(include=["C1"]), None)
    anew, _ = evolve_definition(table, gone, "full", IncludedColumns(include=["C1"]), None)
    assert schema_of(anew)["C1"].dataType.simpleString() == "string"


@pytest.mark.parametrize(
    ("properties", "says"),
    [({"bukets": "3"}, "'bukets'"), ({"buckets": "0"}, "buckets"), ({"lineage": "maybe"}, "true, false"),
     ({"optimize_schema": "all"}, "merge, same"), ({"hybrid_appended_ratio": "2"}, "from 0 to 1"),
     ({"small_bytes": "-1"}, "whole number"), ({"layout": "range"}, "hash, ranges"),
     ({"layout": "ranges", "bounds": 'ranges:["2", "1"]'}, "that rise")],
)  # fmt: skip
def test_given_a_property_that_cannot_be_then_it_is_named(spark: Any, properties: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        _defined(properties=properties)
    with pytest.raises(InvalidInput, match=r"twice|indexed column"):
        _defined(included=("c0",))
    with pytest.raises(InvalidInput, match="both to be included and to be excluded"):
        IncludedColumns(include=["C1"], exclude=["c1"])


def test_given_partitions_of_a_source_then_a_query_by_them_is_answered_from_the_index(
    spark: Any, tmp_path: Path
) -> None:
    for day in (1, 2):
        Folder(tmp_path / "data" / f"dt=2026-01-0{day}", "parquet").write(
            "f", "c0 c1 c2", range(day * 20, day * 20 + 20)
        )
    table = IndexedTable.register(spark, tmp_path / "data", index_root=tmp_path / "log")
    table.create_index("cov", "covering", ["c0"], included=IncludedColumns(include=["c1"]), deferred=True)
    assert table.explain("dt = '2026-01-02'", ["c0", "dt"]).not_used["cov"].code == "covers_nothing"
    table.refresh_index("cov", partitions=["dt=2026-01-02"])
    explanation = table.explain("dt = '2026-01-02'", ["c0", "c1"])
    assert explanation.index_used is None and explanation.not_used["cov"].code == "too_much_appended"
    table.refresh_index("cov")
    explanation = table.explain("dt = '2026-01-02' AND c0 < 45", ["c0", "c1"])
    assert (explanation.index_used, explanation.files_read, explanation.indexes[0].replaces) == ("cov", 0, 1)
    assert {row[0] for row in table.read("dt = '2026-01-02' AND c0 < 45", ["c0"]).collect()} == set(range(40, 45))
    assert explanation.indexes[0].bytes < explanation.indexes[0].instead_of
    assert table.explain("dt = '2026-01-02'", ["c0", "c2"]).not_used["cov"].code == "lacks_columns"
