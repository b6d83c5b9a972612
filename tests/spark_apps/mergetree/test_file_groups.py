"""File groups below any table: written, read merged, folded; and what is said of files that are not as they
should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.mergetree.buckets import single_target
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.schema import table_fields
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.mergetree.write import count_rows, fold, lineage, list_staged, plan_fold, stage_rows
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile, merge_order
from spark_apps.timeline.state import State
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order

DDL = "k string, n int"


class Groups:
    """A tree without a table: files are staged, and given a sequence number by hand."""

    def __init__(self, spark: Any, path: Path) -> None:
        self.tree = Tree("data", table_fields(DDL, ()), ("k",), ("k",))
        self.snapshot = Snapshot(spark, Store(path), State())
        self.files: list[DataFile] = []

    def add(self, sequence_number: int, rows: list[tuple[Any, ...]], kind: Any = "delta") -> None:
        ddl = DDL if kind == "base" else f"{DDL}, {DELETED} boolean"
        given = rows if kind == "base" else [(*row, None)[:3] for row in rows]
        staged = stage_rows(
            self.snapshot.store, self.tree, frame(self.snapshot.spark, given, ddl),
            f"data/txn.{len(self.files)}/rows", single_target(1), kind=kind,
        )  # fmt: skip
        self.files += [DataFile.of(action, sequence_number) for action in staged]

    @property
    def groups(self) -> dict[tuple[str, str], list[DataFile]]:
        return {("", "0"): sorted(self.files, key=merge_order)}

    def rows(self, **options: Any) -> list[tuple[Any, ...]]:
        return in_order(scan(self.snapshot, self.tree, self.groups, **options).collect())


@pytest.fixture
def groups(spark: Any, tmp_path: Path) -> Groups:
    return Groups(spark, tmp_path)


@pytest.mark.spark
def test_the_highest_place_says_what_a_key_is_also_for_files_that_came_late_under_a_base(groups: Groups) -> None:
    groups.add(5, [("a", 5), ("b", 5)], kind="base")
    groups.add(7, [("b", 7)])
    assert groups.rows() == [("a", 5), ("b", 7)]

    groups.add(3, [("a", 3), ("late", 3)])  # entries of version 3, written after the base of version 5 was made

    assert groups.rows() == [("a", 5), ("b", 7), ("late", 3)]


@pytest.mark.spark
def test_tombstones_hide_rows_and_can_be_asked_for(groups: Groups) -> None:
    groups.add(1, [("a", 1), ("b", 1), ("c", 1)], kind="base")
    groups.add(2, [("a", None, True), ("b", None, True), ("d", 2)])
    groups.add(3, [("b", 3)])

    assert groups.rows() == [("b", 3), ("c", 1), ("d", 2)]
    assert groups.rows(columns=["k"], tombstones=True) == [("a", True), ("b", None), ("c", None), ("d", None)]
    assert [file.tombstones for file in groups.files] == [0, 2, 0]


@pytest.mark.spark
def test_deltas_folded_alone_keep_their_tombstones_and_the_place_of_the_newest(groups: Groups) -> None:
    groups.add(1, [("a", 1), ("b", 1)], kind="base")
    groups.add(2, [("a", None, True), ("c", 2)])
    groups.add(4, [("c", 4)])

    plan = plan_fold(groups.groups, "quick")
    actions, metrics = fold(groups.snapshot, groups.tree, plan, "data/fold.1/folded", single_target(1))

    (added,) = [action for action in actions if hasattr(action, "rows")]
    assert (added.kind, added.sequence_number, added.rows, added.tombstones) == ("delta", 4, 2, 1)
    assert (metrics["files_before"], metrics["files_after"]) == (2, 1)
    groups.files = [groups.files[0], DataFile.of(added, 9)]
    assert groups.rows() == [("b", 1), ("c", 4)]


@pytest.mark.spark
def test_rows_that_hash_to_other_groups_than_they_were_read_from_are_refused(groups: Groups) -> None:
    groups.add(1, [(f"k{n}", n) for n in range(20)], kind="base")
    groups.add(2, [("k1", 0)])

    with pytest.raises(StorageError, match="hash to others"):
        fold(groups.snapshot, groups.tree, plan_fold(groups.groups), "data/fold.2/folded", single_target(3))


def test_the_footer_of_a_damaged_file_is_not_taken_for_a_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pq.write_table(pa.table({"k": ["a", "b"], DELETED: [True, None]}), tmp_path / "good.parquet")
    good = (tmp_path / "good.parquet").read_bytes()
    assert count_rows(store, "good.parquet", len(good), "delta") == (2, 1)

    for name, body in (
        ("cut", good[:-20]),
        ("empty", b""),
        ("other", b"x" * 100),
        ("flipped", good[:-60] + b"\0" * 52 + good[-8:]),
    ):
        (tmp_path / f"{name}.parquet").write_bytes(body)
        with pytest.raises(StorageError, match="Nothing was changed"):
            count_rows(store, f"{name}.parquet", len(body), "delta")


def test_two_files_for_one_group_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data/txn.1/rows/__index_part=0/__index_bucket=0"
    folder.mkdir(parents=True)
    for name in ("part-0.parquet", "part-1.parquet", "_SUCCESS", ".part-0.parquet.crc"):
        pq.write_table(pa.table({"k": ["a"]}), folder / name)
    tree = Tree("data", (), ("k",), ("k",))

    with pytest.raises(StorageError, match="more files for a file group"):
        list_staged(Store(tmp_path), tree, "data/txn.1/rows", single_target(1), "base", None)


def test_lineages_of_attempts_differ_and_fit_a_signed_long() -> None:
    ids = {lineage(f"data/txn.{attempt}/rows/part-0.parquet") for attempt in range(1000)}

    assert len(ids) == 1000
    assert all(0 <= one < 2**63 for one in ids)


@pytest.mark.spark
def test_a_file_that_is_lost_before_it_is_found_is_missed(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_one(self: Store, prefix: str, after: str | None = None) -> list[Any]:
        infos = listing(self, prefix, after)
        return [info for info in infos if not info.key.endswith(".parquet")]

    listing = Store.list
    monkeypatch.setattr(Store, "list", without_one)
    with pytest.raises(StorageError, match=r"wrote 2 rows .* hold 0.*Nothing was changed.*share"):
        groups.add(1, [("a", 1), ("b", 1), ("b", 2)])
