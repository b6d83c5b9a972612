"""Sources that are followed by their own logs: what that finds is what their lists of all files show. Without Spark."""

from __future__ import annotations

import json
import random
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Theirs
from msgspec.structs import replace
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from spark_apps.actions.indexing import RefreshIndex, RepairIndexes
from spark_apps.actions.source_diff import by_commits, difference, first_actions, folded_in, observe
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources.delta import DeltaTable
from spark_apps.sources.iceberg import IcebergTable
from spark_apps.sources.logs.commits import Gap, Place, write_mark
from spark_apps.sources.logs.delta import DeltaLog as CommitsOfDelta
from spark_apps.sources.logs.hudi import Slice, effect, group_of
from spark_apps.sources.logs.watching import watched_log
from spark_apps.sources.source_files import Changes
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import name_together
from spark_apps.timeline.model import DATA_TREE, FORMAT_VERSION, Commit, PutTable, SourceDefinition, TableDefinition
from spark_apps.timeline.state import State
from tests.spark_apps.sources.delta_logs import DeltaLog, column
from tests.spark_apps.sources.iceberg_deletes import delete_positions

FIELDS = [column("id", "long"), column("p", "string"), column("d", "date")]


class Lake:
    """A Delta table whose log is written by hand, and what a log of indexes has of it; no data file is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = DeltaLog(folder, FIELDS, ["deletionVectors"], {}, partition_by=["p", "d"])

    @staticmethod
    def add(
        name: str, size: int = 10, p: str | None = "a", d: str = "2024-01-01", rows: int | None = 3
    ) -> dict[str, Any]:
        stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
        return {"add": {"path": name, "partitionValues": {"p": p, "d": d}, "size": size, **stats,
                        "modificationTime": 1_700_000_000_123, "dataChange": True}}  # fmt: skip

    @staticmethod
    def remove(name: str) -> dict[str, Any]:
        return {"remove": {"path": name, "deletionTimestamp": 1, "dataChange": True}}

    def source(self) -> DeltaTable:
        return DeltaTable(str(self.folder))

    def registered(self) -> State:
        """The state of a log of indexes that has the table as it is now."""
        found = self.source().listing()
        source = SourceDefinition(
            "delta", str(self.folder), version=found.version, identity=found.identity, mark=found.mark
        )
        assert found.fields is not None and found.partition_by is not None
        table = TableDefinition("t", found.fields, (), found.partition_by, bucketed=False, source=source)
        state = State()
        actions = (PutTable(table), *first_actions(table, found, None))
        state.apply(Commit(FORMAT_VERSION, 0, "0", "x", "t", 1, -1, actions=actions))
        return state


def described(state: State) -> list[tuple[Any, ...]]:
    files = sorted(state.files(DATA_TREE), key=lambda file: file.path)
    return [(one.path, one.partition, one.group, one.rows, one.bytes, one.extra) for one in files]


def followed(lake: Lake, state: State) -> State:
    """The state as the table's commits show it, held against its list."""
    found = lake.source().changes(state)
    assert isinstance(found, Changes), found
    shown = folded_in(state, by_commits(state, found))
    listed = folded_in(state, difference(state, lake.source().listing()))
    assert described(shown) == described(listed)
    assert shown.partitions.keys() == listed.partitions.keys()
    return shown


def test_given_commits_of_all_kinds_then_following_them_finds_what_the_list_shows(tmp_path: Path) -> None:
    draw, lake = random.Random(7), Lake(tmp_path / "a b%")
    there: dict[str, dict[str, Any]] = {}

    def added(n: int) -> dict[str, Any]:
        p = draw.choice(["a", "x y%", "é/=[1]", None, ""])
        action = lake.add(f"p=%20%25{n}/f{n}.parquet", n + 1, p, f"2024-01-{n % 3 + 1:02d}", draw.choice([3, None]))
        there[action["add"]["path"]] = action
        return action

    lake.log.commit(*(added(n) for n in range(8)))
    state, went = lake.registered(), list[dict[str, Any]]()
    for n in range(8, 34):
        actions = [lake.remove(name) for name in draw.sample(sorted(there), min(len(there), draw.randint(0, 3)))]
        back = went.pop() if went and draw.random() < 0.3 else None  # as by RESTORE
        went += [there.pop(action["remove"]["path"]) for action in actions]
        actions += [added(100 * n + m) for m in range(draw.randint(0, 2))]
        if back is not None:
            there[back["add"]["path"]] = back
            actions.append(back)
        lake.log.commit(*actions, {"commitInfo": {"timestamp": n * 1000, "operation": "WRITE"}})
        if draw.random() < 0.7:
            state = followed(lake, state)
    found = CommitsOfDelta(Store(str(lake.folder))).since("24")
    assert not isinstance(found, Gap)
    assert [(one.version, one.time, one.operation) for one in found.commits][:1] == [("25", 32.0, "WRITE")]


def at_version(state: State, version: str, mark: str | None) -> State:
    """A state whose source is known up to a version; its files are of no concern to who reads the commits since."""
    source = state.table.source
    assert source is not None
    later = state.copy()
    later.definition = replace(state.table, source=replace(source, version=version, mark=mark))
    return later


@pytest.mark.by_turn(4)
def test_given_one_file_more_then_learning_of_it_costs_the_same_whatever_the_table_holds(
    tmp_path: Path, asked: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    costs, quiet = [], []
    for files in (100, 100_000):
        lake = Lake(tmp_path / f"{files}")
        lake.log.commit(lake.add("first.parquet"))
        state = lake.registered()
        lake.log.commit(*(lake.add(f"{n}.parquet") for n in range(files)))
        Theirs(str(lake.folder)).create_checkpoint()
        log = CommitsOfDelta(Store(str(lake.folder)))
        state = at_version(state, "1", write_mark({"reader": "deltalake", "commit": log.mark(1)}))
        place = log.after(Place("0")).place
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "deltalake", None)
            asked.clear()
            assert lake.source().changes(state).added == ()  # type: ignore[union-attr]
            assert log.after(place).seen == ()
            quiet.append([*asked])
            lake.log.commit(lake.add("one.parquet"))
            asked.clear()
            found, look = lake.source().changes(state), log.after(place)
            costs.append([*asked])
        assert isinstance(found, Changes) and [one.path.rpartition("/")[2] for one in found.added] == ["one.parquet"]
        assert [(one.version, one.counts["files_added"]) for one in look.seen] == [("2", 1)]  # type: ignore[union-attr]
    assert costs[0] == costs[1] and [call[0] for call in costs[0]] == ["list", "get"] * 2
    assert quiet[0] == quiet[1] and [call[0] for call in quiet[0]] == ["list"] * 2, "one request where nothing is new"


def cleaned(lake: Lake) -> None:
    Theirs(str(lake.folder)).create_checkpoint()
    (lake.folder / "_delta_log" / f"{0:020d}.json").unlink()


def made_anew(lake: Lake) -> None:
    shutil.rmtree(lake.folder)
    again = Lake(lake.folder)
    again.log.commit(again.add("other.parquet"))
    again.log.commit(again.add("another.parquet"))


def other_columns(lake: Lake) -> None:
    lake.log.commit({"metaData": {"id": DeltaLog.ID, "format": {"provider": "parquet", "options": {}},
                     "schemaString": json.dumps({"type": "struct", "fields": [*FIELDS, column("more", "long")]}),
                     "partitionColumns": ["p", "d"], "configuration": {}, "createdTime": 1}})  # fmt: skip


def one_is_missing(lake: Lake) -> None:
    lake.log.commit(lake.add("b.parquet"))
    lake.log.commit(lake.add("c.parquet"))
    (lake.folder / "_delta_log" / f"{1:020d}.json").unlink()


def added_and_removed(lake: Lake) -> None:
    lake.log.commit(lake.remove("a.parquet"), lake.add("a.parquet", 11))


def damaged(line: str) -> Callable[[Lake], None]:
    def commit(lake: Lake) -> None:
        (lake.folder / "_delta_log" / f"{1:020d}.json").write_text(f"{json.dumps(lake.add('b.parquet'))}\n{line}\n")

    return commit


ELSEWHERE = json.dumps(Lake.add("../../etc/passwd"))
_PLACE = {"storageType": "p", "pathOrInlineDv": "file:///etc/passwd", "sizeInBytes": 9, "cardinality": 1}
VECTOR = json.dumps({"add": {**Lake.add("c.parquet")["add"], "deletionVector": _PLACE}})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(cleaned, "no commit 0 any more", id="cleaned"),
        pytest.param(made_anew, "another one", id="made anew"),
        pytest.param(other_columns, "changed columns or properties", id="columns"),
        pytest.param(one_is_missing, "no commit 1", id="missing"),
        pytest.param(added_and_removed, "adds and removes the same file", id="both"),
        pytest.param(damaged('{"add": {"path": 7}}'), "cannot be read", id="damaged"),
        pytest.param(damaged("{" * 100_000), "cannot be read", id="deep"),
        pytest.param(damaged(ELSEWHERE), "outside of the table", id="elsewhere"),
        pytest.param(damaged(VECTOR), "outside of the table", id="vector elsewhere"),
        pytest.param(lambda lake: shutil.rmtree(lake.folder), "no commit 0 any more", id="gone"),
    ],
)
def test_given_commits_that_cannot_be_followed_then_that_is_said_and_the_list_decides(
    tmp_path: Path, change: Callable[[Lake], None], why: str
) -> None:
    lake = Lake(tmp_path / "t")
    lake.log.commit(lake.add("a.parquet"))
    state = lake.registered()
    change(lake)
    found = lake.source().changes(state)
    assert isinstance(found, Gap) and why in found.why
    if change in (cleaned, other_columns, added_and_removed):
        assert len(lake.source().listing().files) == (change is not added_and_removed)
    elif change is made_anew:
        assert len(lake.source().listing().files) == 2
    else:
        with pytest.raises(LakeIndexError):
            lake.source().listing()


def test_given_an_action_then_it_follows_the_commits_or_says_why_it_compares_lists(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t")
    lake.log.commit(lake.add("a.parquet"))
    state = lake.registered()
    lake.log.commit(lake.add("b.parquet"))
    assert state.table.source is not None
    log = Store(str(tmp_path / "log"))
    name_together(log.uri, state.table.source)
    snapshot = Snapshot(NO_SPARK, log, state)
    followed = observe(snapshot)
    assert followed.metrics == {"source.files_added": 1, "source.files_removed": 0, "source.commits": 1}
    by_list = observe(snapshot, by_list=True)
    assert by_list.metrics == {"source.files_added": 1, "source.files_removed": 0}
    assert by_list.actions == followed.actions
    cleaned(lake)
    compared = observe(snapshot).metrics
    assert "no commit 0" in compared["source.compared"] and compared["source.files_compared"] == 1 + 2
    refreshes = (RefreshIndex("i"), RefreshIndex("i", "quick"), RefreshIndex("i", "full"), RepairIndexes([]))
    assert [action.compares_lists for action in refreshes] == [False, False, True, True]


def test_given_deletes_or_another_reader_then_deltalake_lists_the_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t")
    lake.log.commit(lake.add("a.parquet"))
    state = lake.registered()
    source = state.table.source
    assert source is not None and source.mark is not None
    other = state.copy()
    mark = source.mark.replace("deltalake", "delta-spark")
    other.definition = replace(state.table, source=replace(source, mark=mark))
    found = lake.source().changes(other)
    assert isinstance(found, Gap) and "another reader" in found.why
    lake.log.file("b.parquet", pa.table({"id": [1, 2, 3]}))
    lake.log.commit(lake.log.add("b.parquet", deleted=[1]))
    found = lake.source().changes(state)
    assert isinstance(found, Gap) and "only a list" in found.why


# --- Iceberg, by pyiceberg --------------------------------------------------------------------------------------------


class Snapshots:
    """An Iceberg table of a catalog of its own, and what a log of indexes has of it."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.options = {"catalog": "test", "catalog.type": "sql", "catalog.uri": f"sqlite:///{home}/catalog.db",
                        "catalog.warehouse": f"file://{home}/lake", "identifier": "db.t"}  # fmt: skip
        catalog = load_catalog("test", type="sql", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/lake")
        catalog.create_namespace("db")
        self.table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64()), ("p", pa.string())]))
        with self.table.update_spec() as update:
            update.add_field("p", IdentityTransform())

    def source(self, state: State | None = None) -> IcebergTable:
        if state is None:
            return IcebergTable("", self.options)
        return IcebergTable.of(state.table, {"source_roots": [self.table.location()]})

    def listed(self, state: State) -> State:
        return folded_in(state, difference(state, self.source(state).listing()))

    def registered(self) -> State:
        found = self.source().listing()
        source = SourceDefinition("iceberg", self.table.location(), self.options, found.version, mark=found.mark)
        assert found.fields is not None and found.partition_by is not None
        state = State()
        table = TableDefinition("t", found.fields, (), found.partition_by, bucketed=False, source=source)
        actions = (PutTable(table), *first_actions(table, found, None))
        state.apply(Commit(FORMAT_VERSION, 0, "0", "x", "t", 1, -1, actions=actions))
        return state

    def hint(self) -> None:
        """Leaves beside the metadata what Hadoop's catalog does."""
        folder = Path(self.table.location().removeprefix("file://"))
        (folder / "metadata/version-hint.text").write_text(self.table.metadata_location.rpartition("/")[2])

    def append(self, first: int, rows: int, p: str = "a") -> None:
        self.table.append(pa.table({"id": range(first, first + rows), "p": [p] * rows}))

    def append_names(self, files: int) -> None:
        """Commits files that are not there."""
        named = [
            DataFile.from_args(
                content=DataFileContent.DATA, file_path=f"{self.table.location()}/data/{n:08d}-{uuid.uuid4()}.parquet",
                file_format=FileFormat.PARQUET, partition=Record("a"), record_count=3, file_size_in_bytes=10,
                column_sizes={}, value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={},
                upper_bounds={}, split_offsets=None, equality_ids=None, key_metadata=None, sort_order_id=None,
            )
            for n in range(files)
        ]  # fmt: skip
        with self.table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in named:
                file.spec_id = self.table.spec().spec_id
                append.append_data_file(file)

    def paths(self) -> list[str]:
        return [task.file.file_path for task in self.table.scan().plan_files()]


def followed_snapshots(lake: Snapshots, state: State) -> State:
    found = lake.source(state).changes(state)
    assert isinstance(found, Changes), found
    shown, listed = folded_in(state, by_commits(state, found)), lake.listed(state)
    assert described(shown) == described(listed) and shown.partitions.keys() == listed.partitions.keys()
    assert shown.table.fields == listed.table.fields
    return shown


def test_given_snapshots_of_each_kind_then_following_them_finds_what_the_list_shows(tmp_path: Path) -> None:
    lake = Snapshots(tmp_path / "home")
    for n, p in enumerate("aab"):
        lake.append(10 * n, 5, p)
    state = lake.registered()
    assert followed_snapshots(lake, state) is state
    lake.append(30, 5, "c")
    state = followed_snapshots(lake, state)
    victim = lake.paths()[0]
    delete_positions(lake.table, victim, [1], Record(lake.table.scan().to_arrow()["p"][0].as_py()), bounds=True)
    state = followed_snapshots(lake, state)
    assert [one.path for one in state.files(DATA_TREE) if one.extra] == [victim]
    lake.table.delete("p = 'b'")
    lake.table.overwrite(pa.table({"id": [100], "p": ["c"]}), "p = 'c'")
    state = followed_snapshots(lake, state)
    with lake.table.update_schema() as update:
        update.add_column("more", LongType())
    state = followed_snapshots(lake, state)
    lake.append(60, 5)
    followed_snapshots(lake, state)


def deletes_of_several(lake: Snapshots) -> None:
    delete_positions(lake.table, lake.paths()[0], [1], Record("a"))


def rolled_back(lake: Snapshots) -> None:
    lake.table.manage_snapshots().rollback_to_snapshot(lake.table.snapshots()[0].snapshot_id).commit()
    lake.append(70, 2)


def expired(lake: Snapshots) -> None:
    for n in range(3):
        lake.append(80 + n, 1)
    between = [one.snapshot_id for one in lake.table.snapshots()[-3:-1]]
    lake.table.maintenance.expire_snapshots().by_ids(between).commit()


def renamed(lake: Snapshots) -> None:
    with lake.table.update_schema() as update:
        update.rename_column("id", "number")
    lake.append_names(1)


def moved_manifest(lake: Snapshots) -> None:
    """Lets a snapshot name a data file elsewhere."""
    location = lake.table.location
    lake.table.location = lambda: "file:///etc"  # type: ignore[method-assign]
    lake.append_names(1)
    lake.table.location = location  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (deletes_of_several, "several files"),
        (rolled_back, "none of those"),
        (expired, "none of those"),
        (renamed, "redefined"),
        (moved_manifest, "outside"),
    ],
)
def test_given_snapshots_that_cannot_be_followed_then_that_is_said_and_the_list_decides(
    tmp_path: Path, change: Callable[[Snapshots], None], why: str
) -> None:
    lake = Snapshots(tmp_path / "home")
    lake.append(0, 5)
    lake.append(10, 5)
    state = lake.registered()
    change(lake)
    found = lake.source(state).changes(state)
    assert isinstance(found, Gap) and why in found.why, found
    if change is moved_manifest:
        with pytest.raises(LakeIndexError):
            lake.listed(state)
    else:
        assert {one.path for one in lake.listed(state).files(DATA_TREE)} == set(lake.paths())


@pytest.mark.by_turn(16)
def test_given_one_data_file_more_then_learning_of_it_costs_the_same_whatever_the_table_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str, int]]
) -> None:
    opened: list[int] = []
    open_file = PyArrowFile.open

    def counted(self: PyArrowFile, *given: Any, **more: Any) -> Any:
        opened.append(len(self))
        return open_file(self, *given, **more)

    costs, quiet, watched = [], [], []
    for files in (100, 100_000):
        lake = Snapshots(tmp_path / f"{files}")
        lake.append_names(1)
        state = lake.registered()
        lake.append_names(files)
        source = state.table.source
        assert source is not None and lake.table.current_snapshot() is not None
        state = at_version(state, str(lake.table.current_snapshot().snapshot_id), source.mark)
        place = Place(state.table.source.version)  # type: ignore[union-attr]
        with monkeypatch.context() as counting:
            counting.setattr(PyArrowFile, "open", counted)
            opened.clear()
            assert lake.source(state).changes(state).added == ()  # type: ignore[union-attr]
            quiet.append([*opened])
        lake.append_names(1)
        with monkeypatch.context() as counting:
            counting.setattr(PyArrowFile, "open", counted)
            opened.clear()
            found = lake.source(state).changes(state)
            costs.append([*opened])
        assert isinstance(found, Changes) and len(found.added) == 1
        lake.hint()
        asked.clear()
        look = watched_log(SourceDefinition("iceberg", lake.table.location()), None, "").after(place)
        watched.append([*asked])
        assert [one.counts["files_added"] for one in look.seen] == [1]  # type: ignore[union-attr]
    assert [len(one) for one in quiet] == [1, 1], "the metadata alone, where nothing has changed"
    assert [len(one) for one in costs] == [3, 3], "the metadata, the list of manifests, and the new manifest"
    assert abs(sum(costs[0]) - sum(costs[1])) < 100, "but for the digits of its counts"
    assert [[call[0] for call in one] for one in watched] == [["get", "get"]] * 2, "the hint and the metadata"
    assert abs(watched[0][1][2] - watched[1][1][2]) < 100


# --- Hudi, whose reader is in Spark alone -----------------------------------------------------------------------------


def instant(version: int, *written: tuple[str, str, int, list[str]], replaced: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"version": f"{version}", "operation": "upsert", "written": written, "replaced": replaced}


def log_name(group: str, version: int) -> str:
    return f".{group}_{version}.log.1_0-1-2"


def test_given_instants_then_a_base_file_takes_over_the_logs_that_were_completed_after_it_was_requested() -> None:
    known = {group: Slice.known(f"/t/{group}_0_100.parquet", 17, f"'a=b\n{log_name(group, 110)} 7") for group in "abcd"}
    assert known["a"] == Slice("/t/a_0_100.parquet", 10, {log_name("a", 110): 7})
    assert group_of("/t/a_0_100.parquet") == "a" and group_of(f"/t/{log_name('a', 110)}") is None
    completed = {"110": "115", "120": "141", "130": "150", "160": "165"}
    instants = [
        instant(120, ("a", f"/t/{log_name('a', 120)}", 5, [log_name("a", 120)])),
        instant(130, ("a", "/t/a_0_130.parquet", 20, []), ("b", "/t/b_0_130.parquet", 21, [])),  # a compaction
        instant(160, ("e", f"/t/{log_name('e', 160)}", 3, [log_name("e", 160)]), ("e", "/t/e_0_160.parquet", 1, []),
                replaced=("c",)),
    ]  # fmt: skip
    found = effect(instants, completed, known.get)
    assert found.why is None
    assert found.slices == {
        "a": Slice("/t/a_0_130.parquet", 20, {log_name("a", 120): 5}),  # which was completed at 141
        "b": Slice("/t/b_0_130.parquet", 21),
        "c": None,
        "e": Slice("/t/e_0_160.parquet", 1, {log_name("e", 160): 3}),
    }
    shown = found.slices["a"]
    assert shown is not None and (shown.size, shown.lines("'a=b")) == (25, f"'a=b\n{log_name('a', 120)} 5")
    for unknown in (
        instant(170, ("f", f"/t/{log_name('f', 170)}", 3, [log_name("f", 170)])),
        instant(170, ("a", f"/t/{log_name('a', 170)}", 3, [log_name("a", 170), log_name("a", 171)])),
    ):
        assert "does not name" in str(effect([unknown], completed, known.get).why)
    over = instant(170, ("d", "/t/d_0_170.parquet", 3, []))
    assert "unknown instant" in str(effect([over], {}, known.get).why)
