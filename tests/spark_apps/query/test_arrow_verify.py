"""Indexes compared with rows without Spark: the same report as Spark's, of whole indexes and of faulty ones."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_apps
from spark_apps import IndexedTable
from spark_apps.indexes.lineage import entry_files
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.parquet.seals import FOOTER, PAGE_INDEX, seal
from spark_apps.storage.store import RangedFile, Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import AddFile, RemoveFile, Write, definition_scope
from spark_apps.timeline.transactions import begin
from tests.compatibility.lake import unpack
from tests.spark_apps.conftest import Prepared

pytestmark = pytest.mark.by_turn(8)

INDEXES = [
    ("trips", "by_city"), ("trips", "by_fare"), ("trips", "by_id"), ("trips", "by_note"), ("trips", "by_ts"),
    ("whole", "by_m"), ("whole", "by_t"), ("groups", "by_v"), ("groups", "record"), ("marked", "by_v"),
]  # fmt: skip
PLANTED = {
    ("trips", "by_id"): ("__index_partition", ({"missing": 1}, {"too_many": 1}, {"wrong_partition": 1}, {})),
    ("trips", "by_city"): ("__index_partition", ({"missing": 1}, {"too_many": 1}, {"missing": 1, "too_many": 1}, {})),
    ("whole", "by_t"): ("__index_rows", ({"missing": 1}, {"too_many": 1}, {"wrong_values": 1}, {"wrong_values": 1})),
    ("marked", "by_v"): ("v", ({"missing": 1}, {"too_many": 1}, {"wrong_values": 1}, {"too_many": 1})),
}
"""Index -> a column of what its entries say; what is counted if one is missing, invented, says something else, and is
there twice: an entry of a merge tree that is there twice reads as one."""
INVENTED = {"by_id": "id", "by_city": "city", "by_t": "__index_block", "by_v": "id"}
FAULTS = ("missing", "too_many", "wrong_partition", "wrong_values", "wrong_shard")
OF_FILES = [("whole", "by_t"), ("trips", "by_ts"), ("marked", "by_v")]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return unpack(tmp_path)


def changed(lake: Path, table: str, index: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Puts another file in place of each file of entries that changes, as a faulty refresh would."""
    timeline = Timeline.load(Store(lake / table))
    tree, actions = timeline.head.index(index).definition.tree, []
    for number, file in enumerate(entry_files(timeline.head.files(tree))):
        stored = pq.read_table(lake / table / file.path, partitioning=None, coerce_int96_timestamp_unit="us")
        schema = [f.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f for f in stored.schema]
        entries = change(before := stored.cast(pa.schema(schema)))
        if entries is before:
            continue
        sink = io.BytesIO()
        pq.write_table(entries, sink, write_page_index=True, write_page_checksum=True)
        path = f"{file.path.rpartition('/')[0]}/faulty-{number}.parquet"
        timeline.store.put(path, sink.getvalue())
        sealed = seal(RangedFile.of(sink.getvalue()))
        extra = {name: value for name, value in (file.extra or {}).items() if name not in (FOOTER, PAGE_INDEX)}
        actions += [
            RemoveFile(tree, file.path),
            AddFile(tree, file.partition, file.group, path, "base", entries.num_rows, len(sink.getvalue()),
                    file.sequence_number, 0, file.lineage + 1, {**extra, **sealed}),
        ]  # fmt: skip
    begin(timeline, operation="refresh_index").commit(actions, writes=[Write(definition_scope(index), "fold")])


def plant(lake: Path, table: str, index: str, number: int) -> None:
    """Has an index lack one entry (0), hold another one (1), one that says something else (2), or one twice (3)."""
    said, _ = PLANTED[table, index]
    planted = []

    def change(entries: pa.Table) -> pa.Table:
        # The last of the first file: no later delta holds its key.
        if planted or "__index_deleted" in entries.column_names:
            return entries
        planted.append(entries)
        rest, one = entries.slice(0, entries.num_rows - 1), entries.slice(entries.num_rows - 1)
        of = said if number == 2 else INVENTED[index]
        at = entries.column_names.index(of)
        value = other(one[of][0].as_py())
        if of == "__index_partition":
            value = next(path for path in ("dt=2024-11-10", "dt=2024-11-11") if path != one[of][0].as_py())
        altered = one.set_column(at, entries.schema.field(at), pa.array([value], entries.schema.field(at).type))
        return pa.concat_tables([rest, *((), (one, altered), (altered,), (one, one))[number]])

    changed(lake, table, index, change)


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + "x" if isinstance(value, str) else value + type(value)(1) if isinstance(value, int) else value


@pytest.mark.parametrize(("table", "index"), PLANTED)
def test_given_one_entry_that_is_missing_invented_other_or_twice_then_it_is_counted_as_that(
    tmp_path: Path, table: str, index: str
) -> None:
    for number, expected in enumerate(PLANTED[table, index][1]):
        lake = unpack(tmp_path / str(number))
        plant(lake, table, index, number)
        report = spark_apps.open_table(lake / table).verify(index)
        assert {fault: n for fault in FAULTS if (n := getattr(report, fault))} == expected, report
        assert {one.fault.replace(" ", "_") for one in report.differences} == expected.keys()
        assert report.ok == (not expected)


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(("table", "index"), OF_FILES)
def test_given_entries_that_are_lost_then_each_is_counted(lake: Path, table: str, index: str) -> None:
    whole = spark_apps.open_table(lake / table).verify(index)
    assert whole.ok and whole.entries > 0

    changed(lake, table, index, lambda entries: entries.slice(0, 0))
    lost = spark_apps.open_table(lake / table).verify(index)
    assert not lost.ok and lost.missing == whole.entries and lost.entries == 0
    assert {one.fault for one in lost.differences} == {"missing"}


@pytest.mark.parametrize(("table", "index"), OF_FILES)
def test_given_entries_twice_then_they_are_too_many_or_wrong(lake: Path, table: str, index: str) -> None:
    whole = spark_apps.open_table(lake / table).verify(index)
    changed(lake, table, index, lambda entries: pa.concat_tables([entries, entries]))
    twice = spark_apps.open_table(lake / table).verify(index)
    assert not twice.ok and twice.entries == 2 * whole.entries
    assert twice.too_many + twice.wrong_values == whole.entries and twice.missing == 0


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(("table", "index"), OF_FILES)
def test_given_entries_of_other_values_then_rows_miss_theirs(lake: Path, table: str, index: str) -> None:
    whole = spark_apps.open_table(lake / table).verify(index)
    seen = []

    def change(entries: pa.Table) -> pa.Table:
        name = next(n for n in entries.column_names if pa.types.is_integer(entries.schema.field(n).type)
                    or pa.types.is_string(entries.schema.field(n).type))  # fmt: skip
        seen.append(name)
        at = entries.column_names.index(name)
        values = [None if value is None else other(value) for value in entries[name].to_pylist()]
        return entries.set_column(at, entries.schema.field(at), pa.array(values, entries.schema.field(at).type))

    changed(lake, table, index, change)
    report = spark_apps.open_table(lake / table).verify(index)
    assert seen and not report.ok
    assert report.missing + report.wrong_values > 0 and report.rows == whole.rows


@pytest.mark.parametrize(("table", "index"), OF_FILES)
def test_given_a_file_of_entries_that_was_changed_in_its_place_then_it_is_named(
    lake: Path, table: str, index: str
) -> None:
    timeline = Timeline.load(Store(lake / table))
    file = entry_files(timeline.head.files(timeline.head.index(index).definition.tree))[0]
    path = lake / table / file.path
    body = bytearray(path.read_bytes())
    body[-20] ^= 1
    path.write_bytes(bytes(body))
    report = spark_apps.open_table(lake / table).verify(index)
    assert not report.ok and {one.fault for one in report.differences} == {"unreadable"}
    assert {"file": file.path} in [one.key for one in report.differences]


def test_given_an_index_of_keys_of_a_source_then_it_is_left_to_spark_by_name(lake: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'by_n' of a registered source is compared with the rows by Spark alone"):
        spark_apps.open_table(lake / "raw" / "rides").verify("by_n")


@pytest.mark.spark
@pytest.mark.by_turn(16)
@pytest.mark.parametrize(("table", "index"), INDEXES)
def test_given_an_index_then_spark_s_report_is_the_same(spark: Any, lake: Path, table: str, index: str) -> None:
    def both() -> tuple[Any, Any]:
        ours = spark_apps.open_table(lake / table).verify(index).to_dict()
        theirs = IndexedTable.load(spark, lake / table).verify(index).to_dict()
        for told in (ours, theirs):
            del told["differences"]
        return ours, theirs

    ours, theirs = both()
    assert ours == theirs and ours["ok"]
    if (table, index) in OF_FILES:
        changed(lake, table, index, lambda entries: pa.concat_tables([entries, entries.slice(1, 1)]))
        ours, theirs = both()
        assert ours == theirs and not ours["ok"]


@pytest.mark.spark
@pytest.mark.by_turn(16)
@pytest.mark.parametrize(("table", "index"), PLANTED)
def test_given_one_faulty_entry_then_spark_s_report_and_examples_are_the_same(
    spark: Any, tmp_path: Path, table: str, index: str
) -> None:
    for number in range(4):
        lake = unpack(tmp_path / str(number))
        plant(lake, table, index, number)
        ours = spark_apps.open_table(lake / table).verify(index)
        theirs = IndexedTable.load(spark, lake / table).verify(index)
        shown, expected = (sorted(map(_without_zone, report.differences)) for report in (ours, theirs))
        assert (replace(ours, differences=theirs.differences), shown) == (theirs, expected)


def _without_zone(difference: Any) -> str:
    """Show an example, in which Spark has times of its zone without saying so."""
    return re.sub(r", tzinfo=(<UTC>|zoneinfo\.ZoneInfo\(key='UTC'\))", "", repr(difference))


def nullable_values(spark: SparkSession, folder: Path) -> None:
    """Entries of nulls, of one column and of one of two, each replaced by a later delta."""
    table = IndexedTable.create(spark, folder, "id bigint, v string, w int", ["id"], buckets=2)
    table.create_index("by_v", "secondary", ["v"])
    table.create_index("by_both", "secondary", ["w", "v"])
    rows = [(1, None, None), (2, None, 1), (3, "x", None), (4, "y", 2), (5, None, 0)]
    table.upsert(spark.createDataFrame(rows, "id bigint, v string, w int"))
    later = [(1, "z", None), (2, None, None), (3, None, 3), (4, None, 2)]
    table.upsert(spark.createDataFrame(later, "id bigint, v string, w int"))
    table.delete("id = 5")


def test_given_entries_of_nulls_that_a_later_delta_replaces_then_the_index_is_found_right(prepared: Prepared) -> None:
    opened = spark_apps.open_table(prepared(nullable_values).uri)
    for index in ("by_v", "by_both"):
        report = opened.verify(index)
        assert report.ok and report.entries == report.rows == 4, report
    assert {row["id"] for row in opened.read("v is null").to_pylist()} == {2, 3, 4}
    assert {row["id"] for row in opened.read("v is null and w is null").to_pylist()} == {2}
