"""Positions of the rows that deltas replace: who writes them, who reads by them, and what happens where they are of no
use."""

from __future__ import annotations

import datetime as dt
import decimal
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from spark_apps.actions.template import Attempt, StagedChanges, run
from spark_apps.actions.write import Upsert
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.mergetree import read
from spark_apps.mergetree.read import encode_positions
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile, Positions, positions_path
from spark_apps.timeline.model import DATA_TREE
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared, locating_by_spark, rows_of, within

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "id bigint, v int"
Rows = list[tuple[int, int]]


def build(spark: Any, folder: Path) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], buckets=1, positions=True)
    upsert(made, [(n, 0) for n in range(200)])
    upsert(made, [(0, 0)])
    made.compact()


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    """Keys 0 to 199 in one file group, compacted."""
    return prepared(build)


@pytest.fixture
def by_positions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of file groups read by positions, of each scan that had some."""
    asked: list[int] = []
    without_hidden_rows = read.without_hidden_rows

    def counted(snapshot: Any, rows: Any, groups: Any) -> Any:
        asked.append(len(groups))
        return without_hidden_rows(snapshot, rows, groups)

    monkeypatch.setattr(read, "without_hidden_rows", counted)
    return asked


def upsert(table: IndexedTable, rows: Rows) -> Any:
    return table.upsert(frame(table._handle.spark, rows, DDL))


def deltas(table: IndexedTable) -> list[DataFile]:
    files = [file for file in table.snapshot.state.files(DATA_TREE) if file.kind == "delta"]
    return sorted(files, key=lambda file: file.sequence_number)


def hidden_rows(table: IndexedTable) -> list[int | None]:
    """How many rows each delta's positions hide, in the order of commits; ``None`` of a delta that has none."""
    positions = [Positions.of(file) for file in deltas(table)]
    return [None if one is None else one.hidden for one in positions]


def file_of(table: IndexedTable, delta: DataFile) -> Path:
    return Path(table.uri, positions_path(delta.path))


def test_reads_leave_out_the_rows_that_deltas_replace_or_delete(table: IndexedTable, by_positions: list[int]) -> None:
    upsert(table, [(n, 1) for n in (0, 63, 64, 199, 500)])
    table.delete(frame(table._handle.spark, [(1,), (63,), (700,)], "id bigint"))
    table.insert(frame(table._handle.spark, [(1, 3), (800, 3)], DDL))
    upsert(table, [(n, 4) for n in (1, 2, 500)])
    # What the file under the deltas holds of a key counts, whatever deltas say of it already.
    assert hidden_rows(table) == [4, 2, 0, 2]
    expected = dict.fromkeys(range(200), 0) | {0: 1, 64: 1, 199: 1, 500: 1, 800: 3} | {1: 4, 2: 4, 500: 4}
    del expected[63]
    assert rows_of(table) == sorted(expected.items())
    assert by_positions == [1]
    assert table.read("v = 0").count() == 194
    assert table.read(columns=["v"]).where("v > 0").count() == 7


def test_a_file_without_replaced_rows_is_read_as_it_is_and_one_without_others_not_at_all(
    table: IndexedTable, by_positions: list[int]
) -> None:
    upsert(table, [(1000, 1)])
    assert hidden_rows(table) == [0]
    assert not file_of(table, deltas(table)[0]).exists()
    assert len(rows_of(table)) == 201
    upsert(table, [(n, 2) for n in range(200)])
    assert hidden_rows(table) == [0, 200]
    assert rows_of(table) == [*((n, 2) for n in range(200)), (1000, 1)]
    assert not by_positions


def test_given_a_column_whose_name_has_a_dot_then_rows_under_a_delta_are_read_by_positions(
    spark: Any, tmp_path: Path, by_positions: list[int]
) -> None:
    ddl = "id bigint, `a.b` int, a struct<b:int>"
    made = IndexedTable.create(spark, tmp_path / "table", ddl, ["id"], buckets=1, positions=True)
    made.upsert(frame(spark, [(n, n, (-n,)) for n in range(4)], ddl))
    made.upsert(frame(spark, [(2, 20, (-20,))], ddl))

    found = made.read()

    assert sorted(map(tuple, found.collect())) == [(0, 0, (0,)), (1, 1, (-1,)), (2, 20, (-20,)), (3, 3, (-3,))]
    assert by_positions == [1]


KEYS: dict[str, list[Any]] = {
    "id string": [(f"k{n:0{n % 7}}",) for n in range(300)],
    "id int, p string": [(n // 2, "äb"[n % 2] * (n % 5)) for n in range(300)],
    "id date": [(dt.date(1969, 6, 1) + dt.timedelta(n),) for n in range(300)],
    "id timestamp": [(dt.datetime(1969, 12, 31, 12, tzinfo=dt.UTC) + dt.timedelta(hours=n),) for n in range(300)],
    "id decimal(9,1)": [(decimal.Decimal(n - 150) / 2,) for n in range(300)],
}


@pytest.mark.parametrize("here", [True, False], ids=["on the driver", "by Spark"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.by_turn(24)
def test_positions_are_found_of_keys_of_any_type(
    spark: Any, tmp_path: Path, key: str, here: bool, by_positions: list[int]
) -> None:
    names = [part.split()[0] for part in key.split(", ")]
    ddl = f"{key}, v int"
    made = IndexedTable.create(spark, tmp_path / "table", ddl, names, buckets=2, positions=True)
    if not here:
        locating_by_spark(made)
    for v, some in ((0, KEYS[key][:200]), (1, KEYS[key][100:150]), (2, KEYS[key][140:300:2])):
        made.upsert(frame(spark, [(*one, v) for one in some], ddl))
    expected = dict.fromkeys(KEYS[key][:200], 0)
    expected |= dict.fromkeys(KEYS[key][100:150], 1) | dict.fromkeys(KEYS[key][140:300:2], 2)
    assert sum(filter(None, hidden_rows(made))) == 50 + 30
    answer = made.read().collect()
    assert len(answer) == len(expected)
    assert {(*_given(row[:-1]), row[-1]) for row in answer} == {(*one, v) for one, v in expected.items()}
    assert by_positions == [2]


def _given(key: Any) -> list[Any]:
    """Values as they were given: Spark tells moments without their zone."""
    return [one.astimezone(dt.UTC) if isinstance(one, dt.datetime) else one for one in key]


def test_a_quick_compaction_finds_the_positions_of_what_it_folds(table: IndexedTable, by_positions: list[int]) -> None:
    upsert(table, [(n, 1) for n in range(10)])
    table.delete(frame(table._handle.spark, [(5,), (6,)], "id bigint"))
    table.insert(frame(table._handle.spark, [(5, 3)], DDL))
    before = rows_of(table)
    table.compact(mode="quick")
    assert hidden_rows(table) == [10]
    assert rows_of(table) == before
    assert by_positions == [1, 1]
    table.compact()
    assert hidden_rows(table) == []
    assert rows_of(table) == before


@pytest.mark.by_turn(4)
def test_keys_decide_where_the_file_under_a_delta_was_replaced_meanwhile(
    spark: Any, table: IndexedTable, by_positions: list[int]
) -> None:
    upsert(table, [(0, 1)])

    class Raced(Upsert):
        def work(self, attempt: Attempt) -> StagedChanges | None:
            work = super().work(attempt)
            IndexedTable.load(spark, table.uri).compact()
            return work

    by_positions.clear()
    run(table._handle, Raced(frame(spark, [(n, 2) for n in range(3)], DDL)))
    assert by_positions == [1]  # the compaction's own read
    after = IndexedTable.load(spark, table.uri)
    assert hidden_rows(after) == [3]
    assert rows_of(after)[:4] == [(0, 2), (1, 2), (2, 2), (3, 0)]
    assert by_positions == [1]
    # Until the file under it is another one again, further deltas need none.
    upsert(after, [(3, 3)])
    assert hidden_rows(after) == [3, None]
    after.compact()
    upsert(after, [(4, 4)])
    by_positions.clear()
    assert rows_of(after)[:6] == [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4), (5, 0)]
    assert by_positions == [1]


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_keys_decide_where_positions_are_lost(
    spark: Any, table: IndexedTable, by_positions: list[int], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(table, [(n, 1) for n in range(10)])
    place = file_of(table, deltas(table)[0])
    before = rows_of(table)
    if damage == "gone":
        place.unlink()
    else:
        place.write_bytes(place.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert rows_of(IndexedTable.load(spark, table.uri)) == before
    assert "merged by key" in caplog.text
    assert by_positions == [1]


def test_positions_that_were_altered_fail_the_read_and_may_be_taken_away(spark: Any, table: IndexedTable) -> None:
    upsert(table, [(n, 1) for n in range(10)])
    before = rows_of(table)
    place = file_of(table, deltas(table)[0])
    words = pq.ParquetFile(place).metadata.row_group(0).column(1)
    body = bytearray(place.read_bytes())
    body[words.data_page_offset + words.total_compressed_size - 1] ^= 1
    place.write_bytes(bytes(body))
    with pytest.raises(Exception, match=place.name):
        rows_of(IndexedTable.load(spark, table.uri))
    place.unlink()
    assert rows_of(IndexedTable.load(spark, table.uri)) == before


def test_positions_that_do_not_speak_of_all_rows_fail_the_read(table: IndexedTable) -> None:
    upsert(table, [(n, 1) for n in range(10)])
    delta = deltas(table)[0]
    positions = Positions.of(delta)
    assert positions is not None
    file_of(table, delta).write_bytes(encode_positions(positions.over, 64, np.arange(10)))
    snapshot = table.snapshot
    snapshot.intact.add(positions_path(delta.path))  # as if their size had not given them away
    with pytest.raises(spark_errors(), match="do not speak of all rows"):
        read.scan(snapshot, snapshot.data, snapshot.groups()).collect()


def test_cleaning_keeps_positions_as_long_as_their_deltas(table: IndexedTable) -> None:
    upsert(table, [(n, 1) for n in range(10)])
    first = file_of(table, deltas(table)[0])
    table.clean(retain_versions=1, retain_seconds=0)
    assert first.exists()
    table.compact()
    upsert(table, [(n, 2) for n in range(10)])
    table.clean(retain_versions=1, retain_seconds=0)
    assert not first.exists()
    assert file_of(table, deltas(table)[0]).exists()


def test_a_batch_of_more_keys_than_are_broadcast_has_no_positions(table: IndexedTable, by_positions: list[int]) -> None:
    within(table, broadcast_keys=5)
    upsert(table, [(n, 1) for n in range(10)])
    upsert(table, [(n, 2) for n in range(3)])
    # A reader would have no use for those of the second delta.
    assert hidden_rows(table) == [None, None]
    assert rows_of(table)[:4] == [(0, 2), (1, 2), (2, 2), (3, 1)]
    assert not by_positions


@pytest.mark.parametrize("more", [{"merge_by": "ordering", "ordering_column": "v"}, {"write_mode": "copy_on_write"}])
def test_positions_are_refused_where_they_mean_nothing(spark: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="Positions"):
        IndexedTable.create(spark, tmp_path / "table", DDL, ["id"], positions=True, **more)
