"""Tables that version 0.1.0 wrote are read, kept and changed by this one.

What their rows are stands in ``lake_of_0_1_0.json``, which was made without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType

from spark_apps import IndexedTable
from spark_apps.actions.staging import Stage
from spark_apps.engine.spark_versions import from_arrow, to_arrow
from spark_apps.storage.errors import TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import TOMBSTONES_TREE
from spark_apps.timeline.transactions import resume
from tests.compatibility.lake import EXPECTED, unpack
from tests.compatibility.values import plain

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

TABLES: dict[str, Any] = EXPECTED["tables"]


@dataclass(frozen=True)
class Change:
    """What is done to a table: a row gets other values and is there once more under a new key, and a row goes."""

    key: tuple[str, ...]
    changed: dict[str, Any]
    values: dict[str, Any]
    new: dict[str, Any]
    gone: dict[str, Any]
    compacted: tuple[str | None, ...] = ()
    rescaled: frozenset[int] | None = None
    """The bucket counts of its partitions after a rescale to five, which older rules may overrule."""


CHANGES = {
    "trips": Change(
        ("dt", "id"),
        {"id": 3},
        {"city": "now", "ts": 9999},
        {"id": 77},
        {"id": 14},
        (None, "by_city"),
        frozenset({1, 3, 5}),
    ),
    "groups": Change(("id",), {"id": "k0"}, {"v": "now"}, {"id": "k77"}, {"id": "k8"}),
    "marked": Change(("id",), {"id": 5}, {"v": "now"}, {"id": 77}, {"id": 4}, (None, "by_v")),
    "whole": Change(("d", "a", "b"), {"a": 6}, {"ok": True}, {"a": 77}, {"a": 4}, (), frozenset({3, 5})),
}
ANSWERING = {"trips": {"by_id", "by_city", "by_note"}, "groups": {"record", "by_v"}}
"""The indexes that are worth it even for so few rows."""
NAMES_IN_EXTRAS = {
    "blocks", "bytes", "columns", "covers", "dropped", "footer", "hidden", "kept", "lacks", "lineages", "new_keys",
    "ordered", "over", "page_index", "positions", "replaced", "stage", "stages",
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake, changed by one test after the other; each changes a table of its own."""
    return unpack(tmp_path_factory.mktemp("lake"))


def rows(table: IndexedTable, where: str | None = None) -> list[Any]:
    return in_order(plain(row) for row in to_arrow(table.read(where)).to_pylist())


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


@pytest.mark.by_turn(16)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_before_shows_its_rows_and_its_indexes_answer(spark: SparkSession, lake: Path, name: str) -> None:
    expected = TABLES[name]
    table = IndexedTable.load(spark, lake / name)
    assert table.version == expected["version"]
    assert [entry.operation for entry in table.history()] == expected["operations"]
    assert {index: info.kind for index, info in table.indexes.items()} == expected["indexes"]
    assert {path: info.buckets for path, info in table.partitions.items()} == expected["buckets"]
    assert rows(table) == in_order(expected["rows"])
    oldest = min(expected["versions"], key=int)
    if int(oldest) < table.version:
        assert rows(IndexedTable.load(spark, lake / name, version=int(oldest))) == in_order(
            expected["versions"][oldest]
        )
    for query in expected["queries"]:
        assert rows(table, query["where"]) == in_order(query["rows"]), query["where"]
        if query["index"] in ANSWERING.get(name, ()):
            assert query["index"] in str(table.explain(query["where"]).index_used).split(", ")


@pytest.mark.by_turn(16)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_before_is_written_refreshed_compacted_and_rescaled(
    spark: SparkSession, lake: Path, name: str
) -> None:
    table, change = IndexedTable.load(spark, lake / name), CHANGES[name]
    expected = {key_of(name, row): {**row} for row in TABLES[name]["rows"]}
    if name == "groups":
        table = with_what_was_staged(spark, table)
        expected["k3",]["v"] = "staged"
    if name == "whole":
        [epoch] = Timeline.load(Store(lake / name)).head.windows
        table.close_window(epoch)
    before = columns_on_disk(table)

    known = to_arrow(table.read())
    [old] = [row for row in known.to_pylist() if holds(row, change.changed)]
    [gone] = [row for row in known.to_pylist() if holds(row, change.gone)]
    batch = [{**old, **change.values}, {**old, **change.values, **change.new}]
    expected |= {key_of(name, row): row for row in map(plain, batch)}
    del expected[key_of(name, plain(gone))]
    written = [{**row, "gone": row is gone} for row in (*batch, gone)]
    arrow = pa.Table.from_pylist(written, schema=known.schema.append(pa.field("gone", pa.bool_())))
    with_gone = StructType([*table.schema, StructField("gone", BooleanType())])
    table.upsert(from_arrow(spark, arrow, with_gone), deleted="gone")
    new = names_in_extras(table, TABLES[name]["version"])
    assert new <= NAMES_IN_EXTRAS and (name != "marked" or "positions" in new)
    for what in change.compacted:
        table.compact(what)
    if change.rescaled is not None:
        table.rescale(buckets=5)
        assert {info.buckets for info in table.partitions.values()} == change.rescaled
    for index, info in table.indexes.items():
        if info.deferred:
            table.refresh_index(index)
    after = columns_on_disk(table)
    # What a delete with an ordering leaves of itself, where its table is merged by one.
    assert after.keys() - before.keys() <= {TOMBSTONES_TREE} and all(after[tree] <= before[tree] for tree in before)
    assert rows(table) == in_order(expected.values())
    for index in table.indexes:
        report = table.verify(index)
        assert report.ok and report.rows, index


def with_what_was_staged(spark: SparkSession, table: IndexedTable) -> IndexedTable:
    """Go on with the transaction that was left open: stage what it lacks, and commit it."""
    stage = Stage("open", 1, "refresh", after=("write",))
    IndexedTable.load(spark, table.uri).in_stage(stage).refresh_index("by_v")
    resume(Timeline.load(Store(table.uri)), "open", 1).commit()
    return IndexedTable.load(spark, table.uri)


def holds(row: dict[str, Any], values: dict[str, Any]) -> bool:
    return all(row[name] == value for name, value in values.items())


def key_of(name: str, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in CHANGES[name].key)


def names_in_extras(table: IndexedTable, after: int) -> set[str]:
    """Return the names by which the commits after a version tell more of files."""
    names: set[str] = set()
    for commit in Timeline.load(Store(table.uri)).commits(after):
        for extra in (getattr(action, "extra", None) or {} for action in commit.actions):
            parts = [*extra.get("covers", ()), extra.get("positions", {})]
            names |= extra.keys() | {name for part in parts for name in part}
    return names


def columns_on_disk(table: IndexedTable) -> dict[str, set[str]]:
    """Return the names of columns in the Parquet files of each tree of a table."""
    columns: dict[str, set[str]] = {}
    for file in Timeline.load(Store(table.uri)).head.file_set:
        columns.setdefault(file.tree, set())
        if file.path.endswith(".parquet"):
            columns[file.tree].update(pq.read_schema(Path(table.uri, file.path)).names)
    return columns


@pytest.mark.by_turn(16)
@pytest.mark.parametrize("name", EXPECTED["sources"])
def test_a_source_registered_before_is_read_and_its_indexes_are_brought_up_to_date(
    spark: SparkSession, lake: Path, name: str
) -> None:
    """A copied file is another one to a source, so that its indexes lag until they are refreshed."""
    expected = EXPECTED["sources"][name]
    table = IndexedTable.load(spark, lake / "raw" / name)
    assert rows(table) == in_order(expected["rows"])
    assert table.indexes.keys() == {query["index"] for query in expected["queries"]}
    trees = {file.tree.partition("@")[0] for file in Timeline.load(Store(table.uri)).head.file_set}
    for query in expected["queries"]:
        assert f"index/{query['index']}" in trees
        table.refresh_index(query["index"])
        assert rows(table, query["where"]) == in_order(query["rows"]), query["where"]
        report = table.verify(query["index"])
        assert report.ok and report.rows and not report.uncovered


def test_a_table_dropped_before_is_not_there(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(TableNotFound):
        IndexedTable.load(spark, lake / "dropped")
