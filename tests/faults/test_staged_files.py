"""What Spark wrote is damaged, lost or cut short: between staging and commit, and after the commit.

A commit of such files is refused, or the damage is found by whoever reads them; nobody ever sees fewer rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark_apps import IndexedTable
from spark_apps.actions.template import Attempt, StagedChanges, run
from spark_apps.actions.write import Upsert
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.storage.errors import ObjectNotFound, StageMismatch, StorageError
from spark_apps.storage.parquet.files import footer_bytes
from spark_apps.timeline.model import DATA_TREE, AddFile
from tests.spark_apps.small_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, Damage] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "cut by a byte": lambda data: data[:-1],
}


def flipped(data: bytes, place: int) -> bytes:
    """The data with one bit turned over."""
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


@contextmanager
def damaged(path: Path, damage: Damage, *, with_checksum: bool = False) -> Iterator[None]:
    """The file damaged, and mended at the end.

    :param with_checksum: leave Hadoop's checksum of the whole file beside it, which only local disks have.
    """
    checksum = path.with_name(f".{path.name}.crc")
    whole, kept = path.read_bytes(), checksum.read_bytes()
    if not with_checksum:
        checksum.unlink()
    harmed = damage(whole)
    path.unlink() if harmed is None else path.write_bytes(harmed)
    try:
        yield
    finally:
        path.write_bytes(whole)
        checksum.write_bytes(kept)


class Hooked(Upsert):
    """An upsert that something happens to between its staging and its commit."""

    def __init__(self, rows: DataFrame, staged: Callable[[Attempt, StagedChanges], None]) -> None:
        super().__init__(rows)
        self.staged = staged

    def work(self, attempt: Attempt) -> StagedChanges | None:
        work = super().work(attempt)
        assert work is not None
        self.staged(attempt, work)
        return work


def batch(spark: Any, first: int, last: int, city: str) -> DataFrame:
    return spark.sql(f"SELECT id, concat('{city}', id % 5) city FROM range({first}, {last})")


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> IndexedTable:
    """100 rows with an index of either kind."""
    table = IndexedTable.create(spark, tmp_path / "table", "id bigint, city string", ["id"], buckets=2)
    table.upsert(batch(spark, 0, 100, "a"))
    table.create_index("rec", "record")
    table.create_index("city", "secondary", ["city"])
    return table


def test_given_a_staged_file_of_rows_or_index_missing_or_cut_then_the_commit_is_refused_and_names_it(
    spark: Any, table: IndexedTable
) -> None:
    version, tried = table.version, []

    def try_all(attempt: Attempt, work: StagedChanges) -> None:
        for action in work.actions:
            if isinstance(action, AddFile):
                for name, damage in DAMAGES.items():
                    with (
                        damaged(Path(table.uri) / action.path, damage),
                        pytest.raises(StageMismatch, match=rf"{action.path}.*Nothing was changed"),
                    ):
                        attempt.transaction.commit(work.actions, reads=work.reads, writes=work.writes)
                    tried.append((action.tree, name))

    run(table._handle, Hooked(batch(spark, 50, 150, "b"), try_all))

    assert {name for _, name in tried} == set(DAMAGES) and len({tree for tree, _ in tried}) == 3
    table = IndexedTable.load(spark, table.uri)
    assert table.version == version + 1  # by the commit at the end, when all files were whole again
    assert len(rows_of(table)) == 150
    assert table.verify("rec").ok and table.verify("city").ok


def test_given_a_commit_refused_for_a_damaged_file_then_its_attempt_is_over_and_a_retry_writes_anew(
    spark: Any, table: IndexedTable
) -> None:
    before, version = rows_of(table), table.version

    def cut(_attempt: Attempt, work: StagedChanges) -> None:
        path = Path(table.uri) / next(action.path for action in work.actions if isinstance(action, AddFile))
        path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(StageMismatch, match=r"1 of .* staged files"):
        run(table._handle, Hooked(batch(spark, 50, 150, "b"), cut), txn_id="load")
    refused = IndexedTable.load(spark, table.uri)
    assert rows_of(refused) == before
    assert [entry.operation for entry in refused.history()[version + 1 :]] == ["abort"]

    receipt = table.upsert(batch(spark, 50, 150, "b"), txn_id="load")
    assert (receipt.txn_id, receipt.attempt) == ("load", 2)
    assert len(rows_of(table)) == 150


def test_given_a_bit_turned_over_before_the_commit_then_readers_find_it_and_indexes_give_way_to_a_scan(
    spark: Any, table: IndexedTable
) -> None:
    files: list[AddFile] = []
    run(table._handle, Hooked(batch(spark, 50, 150, "b"), lambda _, work: files.extend(_added(work))))
    table = IndexedTable.load(spark, table.uri)
    whole = rows_of(table)
    asked = {"city = 'b3'": [row for row in whole if row[1] == "b3"], "id = 77": [(77, "b2")]}
    rng = random.Random(7)
    for file in {file.tree: file for file in files}.values():
        path, of_rows = Path(table.uri) / file.path, file.tree == DATA_TREE
        pages = len(path.read_bytes()) - len(footer_bytes(path))
        for number in range(4 if of_rows else 20):
            # Pages have checksums of their own; the footer of an index file is known to the log, that of a file of rows
            # is covered by the checksum of the whole file.
            with_checksum = of_rows and number % 2 == 1
            place = rng.randrange(pages if of_rows and not with_checksum else file.bytes)
            with damaged(path, lambda data, place=place: flipped(data, place), with_checksum=with_checksum):
                again = IndexedTable.load(spark, table.uri)
                for where, expected in asked.items() if of_rows or number < 4 else ():
                    try:
                        rows = rows_of(again, where)
                    except spark_errors() as error:
                        assert of_rows and path.name in str(error)
                        continue
                    assert rows == expected, (file.tree, place)
                if not of_rows and place >= pages:
                    assert any(again.explain(where).warnings for where in asked), (file.tree, place)


def _added(work: StagedChanges) -> list[AddFile]:
    return [action for action in work.actions if isinstance(action, AddFile)]


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("name", DAMAGES)
def test_given_a_committed_file_of_rows_damaged_then_reading_and_compaction_are_refused_and_name_file_and_table(
    spark: Any, table: IndexedTable, name: str
) -> None:
    table.upsert(batch(spark, 50, 150, "b"))
    whole, version = rows_of(table), table.version
    file = table.snapshot.state.files(DATA_TREE)[-1]
    error = ObjectNotFound if name == "gone" else StorageError
    with damaged(Path(table.uri) / file.path, DAMAGES[name]):
        harmed = IndexedTable.load(spark, table.uri)
        for use in (harmed.read, harmed.compact, lambda: harmed.read("id >= 0")):
            with pytest.raises(error, match=rf"{file.path}.*{table.uri}.*Nothing was changed"):
                use()
    mended = IndexedTable.load(spark, table.uri)
    assert rows_of(mended) == whole
    assert {entry.operation for entry in mended.history()[version + 1 :]} <= {"abort"}


def test_given_bytes_altered_in_a_committed_file_of_rows_then_a_compaction_is_refused_and_names_it(
    spark: Any, table: IndexedTable
) -> None:
    table.upsert(batch(spark, 50, 150, "b"))
    whole, version = rows_of(table), table.version
    file = table.snapshot.state.files(DATA_TREE)[-1]
    with damaged(Path(table.uri) / file.path, lambda data: flipped(data, 40), with_checksum=True):
        harmed = IndexedTable.load(spark, table.uri)
        what = "(is damaged|holds bytes that do not have the checksum).*Nothing was changed"
        with pytest.raises(StorageError, match=rf"{table.uri}/{file.path}: it {what}"):
            harmed.compact()
    mended = IndexedTable.load(spark, table.uri)
    assert rows_of(mended) == whole
    assert [entry.operation for entry in mended.history()[version + 1 :]] == ["abort"]
