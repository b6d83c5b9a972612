"""What an index that addresses files knows of them, and when it lags: no Spark is needed for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps.indexes.covering.covering import remaining_coverage
from spark_apps.indexes.lineage import Coverage, carrier, carriers
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Commit,
    Field,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    PutTable,
    RemoveFile,
    TableDefinition,
    Write,
    group_scope,
)
from spark_apps.timeline.state import State

TABLE = TableDefinition("t", (Field("id", "bigint"),), ("id",))
BY_FILE = IndexDefinition("files", "covering", ("id",), "f", addresses="file")
BY_KEY = IndexDefinition("keys", "record", ("id",), "k")
GROUP = ("", "0")


def _file(lineage: int, size: int = 10) -> DataFile:
    return DataFile(DATA_TREE, *GROUP, f"f{lineage}", "base", 1, size, 1, 0, lineage)


def _add(lineage: int, kind: Any = "base", sequence_number: int | None = None) -> AddFile:
    return AddFile(DATA_TREE, *GROUP, f"data/a.1/f{lineage}", kind, 1, 10, sequence_number, 0, lineage)


class _Log:
    def __init__(self) -> None:
        self.state = State()
        self.commit(PutTable(TABLE))

    def commit(self, *actions: AnyAction, mode: Any = "append", maintained: tuple[str, ...] = ()) -> None:
        version = self.state.version + 1
        writes = (Write(group_scope(*GROUP), mode),)
        self.state.apply(
            Commit(
                1,
                version,
                f"{version:017d}",
                "op",
                f"t{version}",
                1,
                version - 1,
                (),
                writes,
                None,
                maintained,
                actions,
            )
        )

    def lags(self) -> tuple[bool, bool]:
        """(by file, by key)."""
        return GROUP in self.state.index("files").lag, GROUP in self.state.index("keys").lag


def _covering(store: Store, *lineages: int, sequence_number: int = 1) -> AddFile:
    known = Coverage.single("s", ["id"], None, map(_file, lineages))
    folder = f"_index/indexes/files/{'-'.join(map(str, lineages))}"
    return carrier(store, BY_FILE.tree, folder, known, sequence_number)


def test_given_coverage_written_to_a_carrier_then_it_reads_back(tmp_path: Path) -> None:
    first = Coverage.single("s1", ["c0", "C1"], ["c3"], [_file(1, 10), _file(2, 20)])
    second = Coverage.single("s2", ["c0"], None, [_file(3)])
    action = carrier(Store(tmp_path), "index/i@1", "a/b", first.voiding([2]) | second, 7)
    [known] = carriers([DataFile.of(action, 9)])
    read = Coverage.of([known])
    assert read.lineages == {1, 3} and read.dropped == {2}
    assert read.columns(1) == ("c0", "C1") and read.bytes(1) == 10 and read.stages == {"s1", "s2"}
    assert read.without([1, 2]).lineages == {3} and not read.without([1, 2]).dropped


@pytest.mark.parametrize(
    ("lineage", "column", "answered"),
    [(1, "c1", True), (1, "c3", True), (1, "C2", False), (3, "c0", True), (3, "c1", False), (4, "c0", False)],
)
def test_an_index_answers_for_what_it_holds_and_for_what_the_file_lacks(
    lineage: int, column: str, answered: bool
) -> None:
    held = Coverage.single("s1", ["c0", "C1"], ["c3"], [_file(1)])
    unknown = Coverage.single("s2", ["c0"], None, [_file(3)])
    assert (held | unknown).answers(lineage, column) is answered


def test_given_a_compaction_then_an_index_by_file_lags_and_one_by_key_does_not(tmp_path: Path) -> None:
    log, store = _Log(), Store(tmp_path)
    log.commit(_add(1))
    log.commit(PutIndex(BY_FILE), _covering(store, 1), MarkCovered(BY_FILE.tree, 1))
    log.commit(PutIndex(BY_KEY), MarkCovered(BY_KEY.tree, 1))
    assert log.lags() == (False, False)
    log.commit(_add(2, "delta"), maintained=(BY_KEY.tree,))
    assert log.lags() == (True, False)
    log.commit(MarkCovered(BY_FILE.tree, 4))
    assert log.lags() == (False, False), "of a group with deltas it tells of the lowest file"
    log.commit(
        RemoveFile(DATA_TREE, "data/a.1/f1"),
        RemoveFile(DATA_TREE, "data/a.1/f2"),
        _add(3, sequence_number=4),
        mode="fold",
    )
    assert log.lags() == (True, False)
    log.commit(_covering(store, 3, sequence_number=6), MarkCovered(BY_FILE.tree, 6))
    assert log.lags() == (False, False)
    log.commit(RemoveFile(DATA_TREE, "data/a.1/f3"), mode="replace", maintained=(BY_KEY.tree,))
    assert log.lags() == (False, False) and not log.state.groups(DATA_TREE)


def test_given_a_compaction_during_the_build_then_the_index_is_not_taken_to_tell_of_its_file(tmp_path: Path) -> None:
    log = _Log()
    log.commit(_add(1))
    log.commit(_add(2, "delta"))
    built = _covering(Store(tmp_path), 1, sequence_number=2)
    log.commit(
        RemoveFile(DATA_TREE, "data/a.1/f1"),
        RemoveFile(DATA_TREE, "data/a.1/f2"),
        _add(3, sequence_number=2),
        mode="fold",
    )
    log.commit(PutIndex(BY_FILE), built, MarkCovered(BY_FILE.tree, 2))
    assert GROUP in log.state.index("files").lag


def test_given_a_compaction_that_drops_rows_of_gone_files_then_those_that_lie_elsewhere_are_remembered() -> None:
    known = Coverage.single("s1", ["c0"], None, [_file(1), _file(2)]) | Coverage.single("s2", ["c0"], None, [_file(3)])
    untouched = DataFile("index/i@1", "", "1", "e", "base", 9, 9, 1, 0, 9, {"columns": ["c0"], "stages": ["s1"]})
    left = remaining_coverage(known, [2, 3], [untouched])
    assert left.lineages == {1}
    assert left.dropped == {2}, "entries of 2 can lie in the file that was not merged; of 3 there are none any more"
    assert not remaining_coverage(left, [], []).dropped
