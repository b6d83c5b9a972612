"""The compact index on keyed tables: built, left behind by writes, refreshed, rebuilt in parts, and what goes when."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from spark_apps import IndexedTable
from spark_apps.actions.indexing import verify
from spark_apps.indexes import file_kinds, registry
from spark_apps.indexes.lineage import entry_files
from spark_apps.storage import errors
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files, local
from tests.spark_apps.small_tables import Prepared, in_order, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(12)]

DDL = "id bigint, p string, q int, city string, n int"
PARTITIONS = ("a", "b/c", "d", None)
Row = tuple[Any, ...]


def _rows(ids: range, city: str | None = None) -> list[Row]:
    return [(i, PARTITIONS[i % 4], i % 2, city or f"c{i % 4}-{i % 3}", i % 5) for i in ids]


def _table(spark: Any, path: Path, rows: list[Row]) -> IndexedTable:
    table = IndexedTable.create(spark, path, DDL, ["id"], partition_by=["p", "q"], buckets=1)
    table.upsert(frame(spark, rows, DDL))
    return table


def _where(rows: list[Row], *cities: str) -> list[Row]:
    return in_order(row for row in rows if row[3] in cities)


def build(spark: Any, folder: Path) -> None:
    _table(spark, folder, _rows(range(80)))


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"columns": []}, errors.InvalidInput, "no columns"),
        ({"columns": ["nope"]}, errors.UnknownColumn, "nope"),
        ({"properties": {"most_value": "3"}}, errors.InvalidInput, "most_values"),
        ({"properties": {"most_values": "none"}}, errors.InvalidInput, "above 0"),
        ({"partition_by": ["city"]}, errors.UnknownColumn, "city"),
    ],
)
def test_given_a_bad_definition_then_it_is_refused(
    table: IndexedTable, arguments: dict[str, Any], error: type[errors.LakeIndexError], text: str
) -> None:
    with pytest.raises(error, match=text):
        table.create_index("i", "compact", **{"columns": ["city"], **arguments})
    assert table.indexes == {}


def test_given_writes_then_the_index_lags_and_answers_stay_right_until_and_after_refresh_and_compaction(
    spark: Any, table: IndexedTable
) -> None:
    rows = {row[0]: row for row in _rows(range(80))}
    table.create_index("by_city", "compact", ["CITY"], properties={"team.owner": "x"}, comment="for reports",
                       index_table="t_city")  # fmt: skip
    shown = table.indexes["by_city"]
    assert (shown.columns, shown.properties["team.owner"], shown.lagging) == (("city",), "x", 0)
    assert (shown.definition.comment, shown.definition.index_table) == ("for reports", "t_city")
    # As its document has it: kept apart as the table is, unless that is said otherwise.
    assert shown.definition.partition_by == ("p", "q")
    asked = "city IN ('c1-0', 'new')"

    def check() -> Any:
        assert rows_of(table, asked) == _where(list(rows.values()), "c1-0", "new")
        return table.explain(asked)

    assert check().files_read == 1

    changed = [(1, "b/c", 1, "new", 0), (4, "a", 0, "c1-0", 0), (200, "e", 1, "new", 0)]
    table.upsert(frame(spark, changed, DDL))
    rows.update({row[0]: row for row in changed})
    table.delete("id IN (13, 26)")
    del rows[13], rows[26]
    assert check().files_read > 1 and table.indexes["by_city"].lagging > 0

    receipt = table.refresh_index("by_city")
    assert receipt.metrics["files"] == 1  # the one group that is new; over the others lie deltas
    check()
    assert table.refresh_index("by_city").version is None
    table.compact()
    table.refresh_index("by_city")
    assert check().files_read == 3 and table.indexes["by_city"].lagging == 0

    before = [file.path for file in index_files(table, "by_city")]
    assert table.compact("by_city").metrics["dropped"] > 0
    assert {file.path for file in index_files(table, "by_city")}.isdisjoint(before)
    assert check().files_read == 3 and verify(table.snapshot, "by_city").ok
    assert table.compact("by_city").version is None


def test_given_a_deferred_index_then_it_is_there_empty_and_unused_until_it_is_rebuilt(table: IndexedTable) -> None:
    table.create_index("i", "compact", ["city"], deferred=True)
    assert index_files(table, "i") == [] and table.indexes["i"].state == "active"
    explanation = table.explain("city = 'c1-0'")
    assert explanation.index_used is None and explanation.not_used["i"].code == "covers_nothing"
    table.refresh_index("i", mode="full", partitions=["p=a/q=0"])
    part = table.explain("city = 'c1-0'")
    assert part.index_used == "i" and part.files_read == 3 and table.indexes["i"].lagging == 3
    table.refresh_index("i", mode="full")
    assert table.explain("city = 'c1-0'").files_read == 1 and table.indexes["i"].lagging == 0


def test_given_a_rebuild_that_fails_on_its_way_then_the_stale_index_stays_as_it_was(
    spark: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_index("i", "compact", ["city"])
    table.upsert(frame(spark, _rows(range(80, 90), "late"), DDL))
    before, version = index_files(table, "i"), table.version

    def fail(*_: Any) -> Any:
        raise errors.StorageUnavailable("The store is gone.")

    for partitions in (None, ["p=a/q=0"]):
        with monkeypatch.context() as patch:
            patch.setattr(file_kinds, "carrier", fail)  # when the entries are written already
            with pytest.raises(errors.StorageUnavailable):
                table.refresh_index("i", mode="full", partitions=partitions)
        later = IndexedTable.load(spark, table.uri)
        assert index_files(later, "i") == before
        assert later.version >= version and later.indexes["i"].lagging == table.indexes["i"].lagging
        assert rows_of(later, "city = 'late'") == _where(_rows(range(80, 90), "late"), "late")


@pytest.mark.parametrize("partition_by", [("p", "q"), ("p",), ()], ids=str)
@pytest.mark.by_turn(12)
def test_given_damage_then_a_rebuild_of_some_partitions_replaces_just_their_entries(
    spark: Any, table: IndexedTable, partition_by: tuple[str, ...]
) -> None:
    table.create_index("i", "compact", ["city"], partition_by=partition_by)
    files = {file.partition: file for file in entry_files(index_files(table, "i"))}
    assert len(files) == {2: 4, 1: 4, 0: 1}[len(partition_by)]
    assert all(path.count("=") == len(partition_by) for path in files)
    table.refresh_index("i", mode="full", partitions=["p=b%2Fc/q=1"])
    after = {file.partition: file for file in entry_files(index_files(table, "i"))}
    assert files.keys() == after.keys()
    swapped = {path for path in files if files[path].path != after[path].path}
    assert len(swapped) == 1 and (not partition_by or next(iter(swapped)).startswith("p=b%2Fc"))
    report = verify(table.snapshot, "i")
    assert report.ok and report.rows == 80 and report.stale == 0
    assert rows_of(table, "city = 'c1-0'") == _where(_rows(range(80)), "c1-0")

    broken = after[next(iter(swapped))]
    local(table, broken).write_bytes(b"")
    assert verify(table.snapshot, "i").differences[0].fault == "unreadable"
    assert rows_of(table, "city = 'c1-0'") == _where(_rows(range(80)), "c1-0")
    assert table.explain("city = 'c1-0'").not_used["i"].code == "unreadable"
    if partition_by:
        assert table.explain("city = 'c0-0' AND p = 'a'").index_used == "i"  # that partition is none of its affair


def test_given_an_entry_that_is_missing_or_too_many_then_verify_finds_it(table: IndexedTable) -> None:
    table.create_index("i", "compact", ["city"], partition_by=[])
    file = entry_files(index_files(table, "i"))[0]
    entries = pq.read_table(local(table, file), partitioning=None)
    cities = entries.column("city").take([1, 1, *range(2, len(entries))])
    # Under another name: Hadoop keeps a checksum beside each local file.
    altered = replace(file, path=f"{file.path.rpartition('/')[0]}/altered.parquet", extra=None)
    path = local(table, altered)
    pq.write_table(entries.set_column(entries.column_names.index("city"), "city", cities), path)
    state = table.snapshot.state.copy()
    state.file_set.remove(file.tree, file.path)
    state.file_set.add(replace(altered, bytes=path.stat().st_size))
    report = verify(changed(table.snapshot, state=state), "i")
    assert not report.ok and report.missing == 1 and report.too_many + report.wrong_values == 1


def test_given_a_partition_or_the_table_dropped_then_the_index_goes_with_it_even_if_its_code_is_gone(
    spark: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_index("i", "compact", ["city"])
    table.create_index("together", "compact", ["n"], partition_by=[])
    table.drop_partition("p=d/q=0")
    assert {file.partition for file in entry_files(index_files(table, "i"))} == {
        "p=a/q=0", "p=b%2Fc/q=1", "p=__HIVE_DEFAULT_PARTITION__/q=1"}  # fmt: skip
    assert table.read("city = 'c2-0'").count() == 0 and table.read("n = 3").count() == 12
    table.compact("together")
    assert verify(table.snapshot, "together").ok and verify(table.snapshot, "i").ok
    monkeypatch.setattr(registry._KINDS, "_built_in", {})
    monkeypatch.setattr(registry._KINDS, "_loaded", {})
    assert table.explain("city = 'c1-0'").not_used["i"].code == "no_handler"
    table.drop_index("together")
    table.drop()
    with pytest.raises(errors.TableNotFound):
        IndexedTable.load(spark, table.uri)
