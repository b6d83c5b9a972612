"""Sets of files and checkpoints: the columns of a checkpoint with changes on top answer as a plain set would."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_apps.storage.errors import LogDamaged
from spark_apps.storage.store import Store
from spark_apps.timeline import files, log
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.files import DataFile, FileSet, RowCount, is_merged, lowest_files, merge_order, row_count
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition
from spark_apps.timeline.state import State
from tests.simulation import work
from tests.simulation.reading import check_all
from tests.simulation.store import ERROR_BEFORE, OK
from tests.spark_apps.timeline.conftest import A, upsert


def file(number: int, tree: str = "data") -> DataFile:
    extra = {"columns": [number]} if number % 3 == 0 else None
    return DataFile(
        tree, f"p={number % 5}", str(number % 7), f"data/a.1/work/f{number}", "delta", number, 1, number, extra=extra
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_set_with_columns_and_changes_answers_as_a_plain_one(seed: int) -> None:
    chance = random.Random(seed)
    plain: dict[tuple[str, str], DataFile] = {}
    held = FileSet()
    for step in range(400):
        tree = chance.choice(("data", "index/i@1"))
        if chance.random() < 0.6 or not plain:
            new = file(step, tree)
            plain[tree, new.path] = new
            held.add(new)
        else:
            key = chance.choice(sorted(plain))
            assert held.remove(*key) == plain.pop(key)
            assert held.remove(*key) is None
        if chance.random() < 0.1:
            listed = [item.path for item in held.files("data")]
            assert sorted(listed) == sorted(path for name, path in plain if name == "data")
            assert sorted(item.path for each in held.groups("data").values() for item in each) == sorted(listed)
        if chance.random() < 0.03:
            held = FileSet(held.flattened())
        if chance.random() < 0.05:
            copy, before = held.copy(), len(plain)
            copy.add(file(10_000 + step))
            copy.remove_tree("index/i@1")
            assert held.size() == before
    assert set(held.paths()) == {path for _, path in plain}
    assert {(item.tree, item.path): item for item in held} == plain
    assert held.size() == len(plain)
    for tree in ("data", "index/i@1"):
        wanted = [item for (name, _), item in plain.items() if name == tree]
        groups: dict[tuple[str, str], list[DataFile]] = {}
        for item in sorted(wanted, key=lambda item: item.sequence_number):
            groups.setdefault(item.group_key, []).append(item)
        assert held.groups(tree) == groups
        assert set(map(repr, held.files(tree, "p=1"))) == {repr(item) for item in wanted if item.partition == "p=1"}
        assert {item.path for item in held.files(tree, "p=1", "3")} == {
            item.path for item in groups.get(("p=1", "3"), [])
        }
        assert held.has_files(tree, "p=1", "3") == (("p=1", "3") in groups) and not held.has_files(tree, "p=9", "3")
        assert list(held.files(tree, "p=9", "3")) == []
        # A set that was just loaded looks at each row for the first few groups, and puts the rows in order for more.
        fresh = FileSet(held.flattened())
        for partition, group in [("p=1", None), ("p=2", "3"), ("p=3", "9"), ("p=9", None), ("p=1", None), ("p=2", "3")]:
            found = [item.path for item in fresh.files(tree, partition, group)]
            assert sorted(found) == sorted(
                item.path for item in wanted if item.partition == partition and group in (None, item.group)
            )
            of_groups = [item.group for item in fresh.files(tree, partition)]
            assert of_groups == sorted(of_groups, key=of_groups.index)
        every_path = [file(step, tree).path for step in range(400)]
        assert [held.has(tree, path) for path in every_path] == [(tree, path) in plain for path in every_path]
    held.remove_tree("data")
    assert held.trees() == (["index/i@1"] if any(tree != "data" for tree, _ in plain) else [])


def test_a_checkpoint_of_a_state_gives_it_back(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, maintain=False, k1=1)
    state = job.timeline.refresh()
    back = log.decode_checkpoint(log.encode_checkpoint(state))
    assert isinstance(back, State)
    assert sorted(back.file_set, key=repr) == sorted(state.file_set, key=repr)
    left, right = dict(vars(back)), dict(vars(state))
    del left["file_set"], right["file_set"]
    assert left == right


@pytest.mark.parametrize("passes", [0, 1, 4, 1000])
def test_given_a_large_checkpoint_then_rows_read_from_it_as_it_stands_are_those_of_a_plain_set(
    job: work.Job, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    for name, value in {"MAX_UNPACKED_FILES": 10, "_BATCH_ROWS": 16, "_MAX_PASSES": passes}.items():
        monkeypatch.setattr(files, name, value)
    monkeypatch.setattr(log, "_FILES_A_ROW_GROUP", 50)
    state = job.timeline.refresh().copy()
    state.version = 1000
    plain = {(tree, item.path): item for tree in ("data", "index/i@1") for n in range(400) for item in [file(n, tree)]}
    # Those of a group lie far apart, and not in the order of their paths.
    for item in sorted(plain.values(), key=lambda item: (files.path_hash(item.path), item.tree)):
        state.file_set.add(item)
    body = log.encode_checkpoint(state)
    loaded = log.decode_checkpoint(body)
    assert loaded is not None
    held = loaded.file_set
    assert held.trees() == ["data", "index/i@1"] and held.size() == len(plain)
    for tree, partition, group in [
        ("data", "p=1", "3"), ("index/i@1", "p=4", None), ("data", "p=9", None), ("data", "p=2", "6"),
        ("no", "p=1", "3"), *(("data", f"p={n % 5}", str(n % 7)) for n in range(12)),
    ]:  # fmt: skip
        wanted = {
            key: item for key, item in plain.items()
            if key[0] == tree and item.partition == partition and group in (None, item.group)
        }  # fmt: skip
        assert {(item.tree, item.path): item for item in held.files(tree, partition, group)} == wanted
    for number in (0, 399, 400, 77):
        sought = file(number, "index/i@1")
        assert held.get(sought.tree, sought.path) == plain.get((sought.tree, sought.path))
        assert held.has("data", sought.path) == (number < 400) and not held.has("no", sought.path)
    copy = held.copy()
    gone = file(7)
    assert copy.remove("data", gone.path) == gone and copy.remove("data", gone.path) is None
    copy.add(file(1000))
    expected = {key: item for key, item in plain.items() if item != gone} | {("data", file(1000).path): file(1000)}
    assert sorted(copy.paths()) == sorted(path for _, path in expected)
    again = log.decode_checkpoint(log.encode_checkpoint(replace_files(loaded, copy)))
    assert again is not None and {(item.tree, item.path): item for item in again.file_set} == expected
    assert {(item.tree, item.path): item for item in held} == plain


def replace_files(state: State, held: FileSet) -> State:
    other = state.copy()
    other.file_set = held
    return other


@pytest.mark.parametrize("wrong", [{"path": "file:///etc/passwd"}, {"rows": -7}, {"sequence_number": 10**9}])
def test_given_a_large_checkpoint_with_a_row_that_cannot_be_when_read_then_refused_by_name(
    job: work.Job, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED_FILES", 10)
    state = job.timeline.refresh().copy()
    for number in range(100):
        state.file_set.add(replace(file(number), sequence_number=0))
    state.file_set.add(replace(file(100), **{"sequence_number": 0, **wrong}))
    loaded = log.decode_checkpoint(log.encode_checkpoint(state), "The checkpoint here")
    assert loaded is not None
    sound = file(1)
    assert [item.path for item in loaded.file_set.files("data", sound.partition, sound.group)]
    column = next(iter(wrong)).replace("sequence_number", "place")
    for read in (lambda: list(loaded.file_set.files("data", "p=0", "2")), lambda: list(loaded.file_set)):
        with pytest.raises(LogDamaged, match=f"The checkpoint here cannot be read: its column '{column}'"):
            read()


def test_a_checkpoint_of_an_empty_table_gives_it_back(job: work.Job) -> None:
    back = log.decode_checkpoint(log.encode_checkpoint(job.timeline.refresh()))
    assert back is not None
    assert list(back.file_set) == []
    assert back.groups("data") == {}
    assert back.files("data", A, "0") == []


@pytest.mark.parametrize("damage", ["truncated", "changed", "gone", "of another format", "not ours", "no Parquet"])
def test_a_checkpoint_that_cannot_be_used_is_passed_over(job: work.Job, world: work.World, damage: str) -> None:
    upsert(job, "one", A, k0=1)
    first = log.write_checkpoint(job.store, job.timeline.refresh())
    upsert(job, "two", A, k0=2)
    key = log.write_checkpoint(job.store, job.timeline.refresh())
    body = world.objects.bodies[key][0]
    if damage == "truncated":
        world.objects.bodies[key] = (body[:-9], 0.0)
    elif damage == "changed":
        world.objects.bodies[key] = (body[:50] + b"x" + body[51:], 0.0)
    elif damage == "gone":
        del world.objects.bodies[key]
        del world.objects.bodies[first]
    elif damage == "of another format":
        newer = body.replace(b'"format":1', b'"format":9')
        assert newer != body
        put_as(world, newer)
        del world.objects.bodies[key]
    elif damage == "no Parquet":
        put_as(world, b"not Parquet at all")
    else:
        world.objects.bodies[f"{log.CHECKPOINTS}/readme.txt"] = (b"", 0.0)
    assert Timeline.load(job.store).head.version == 2
    check_all(world.checker)


def put_as(world: work.World, body: bytes) -> None:
    import xxhash

    name = f"{log.CHECKPOINTS}/{2:020d}.{xxhash.xxh3_64_hexdigest(body)}.parquet"
    world.objects.bodies[name] = (body, 0.0)


def test_a_checkpoint_that_cannot_be_written_does_no_harm(job: work.Job, world: work.World) -> None:
    job.store.gate = lambda _verb, key: ERROR_BEFORE if "checkpoints" in key else OK
    for number in range(21):
        upsert(job, f"w{number}", A, maintain=False, k0=number)
    assert not any("checkpoints" in key for key in world.objects.bodies)
    check_all(world.checker)


def test_three_checkpoints_are_kept_and_the_newest_is_used(job: work.Job, world: work.World) -> None:
    for number in range(5):
        upsert(job, f"w{number}", A, k0=number)
        log.write_checkpoint(job.store, job.timeline.refresh())
    names = [key.rpartition("/")[2][:20] for key in world.objects.bodies if "checkpoints" in key]
    assert [int(name) for name in names] == [3, 4, 5]
    newest = log.newest_checkpoint(job.store)
    older = log.newest_checkpoint(job.store, until=4)
    assert newest is not None
    assert older is not None
    assert (newest.version, older.version) == (5, 4)


def test_reading_a_checkpoint_brings_in_neither_pandas_nor_datasets(tmp_path: Path) -> None:
    definition = TableDefinition("t", (Field("k", "string"),), ("k",))
    timeline, _ = create_table(Store(tmp_path), definition)
    state = timeline.head.copy()
    for number in range(200):
        state.file_set.add(replace(file(number), sequence_number=0))
    log.write_checkpoint(timeline.store, state)
    code = f"""
import sys
from spark_apps.storage.errors import LogDamaged
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
head = Timeline.load(Store({str(tmp_path)!r})).head
print(len(head.files("data")), len(head.files("data", "p=1", "3")))
print(sorted({{"pandas", "pyarrow.dataset"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["200 5", "[]"]


@pytest.mark.parametrize(
    ("files", "below", "merged"),
    [
        ([], 0, False),
        ([("base", 1, 0)], 1, True),
        ([("delta", 1, 0)], 1, True),
        ([("delta", 1, 1)], 1, False),
        ([("base", 1, 0), ("base", 1, 0)], 2, True),
        ([("base", 1, 0), ("base", 1, 0), ("delta", 1, 0)], 2, False),
        ([("base", 1, 0), ("base", 2, 0)], 1, False),
        ([("delta", 1, 0), ("base", 2, 0), ("base", 2, 0)], 1, False),
    ],
)
def test_parts_of_one_base_lie_lowest_together(files: list[tuple[str, int, int]], below: int, merged: bool) -> None:
    group = [
        DataFile("i", "", "0", f"{n}", kind, 9, 9, place, tombstones)  # type: ignore[arg-type]
        for n, (kind, place, tombstones) in enumerate(files)
    ]
    assert sorted(group, key=merge_order) == group
    assert len(lowest_files(group)) == below
    assert is_merged(group) is merged


# --- how many rows a file group has -----------------------------------------------------------------------------------


def counted(kind: str, rows: int, at: int, tombstones: int = 0, **extra: Any) -> DataFile:
    return DataFile(DATA_TREE, "p=1", "0", f"data/{at}-{rows}.parquet", kind, rows, 9, at, tombstones, at, extra)  # type: ignore[arg-type]


def over(hidden: int, lineage: int = 1) -> dict[str, int]:
    return {"over": lineage, "hidden": hidden, "bytes": 9}


@pytest.mark.parametrize(
    ("files", "least", "most"),
    [
        ([], 0, 0),
        ([counted("base", 100, 1)], 100, 100),
        ([counted("base", 60, 1), counted("base", 40, 1)], 100, 100),  # parts of one base
        ([counted("delta", 10, 1, tombstones=4)], 6, 6),  # tombstones of nothing
        ([counted("base", 100, 1), counted("delta", 10, 2)], 100, 110),  # nobody has counted
        ([counted("base", 100, 1), counted("delta", 10, 2, tombstones=4)], 96, 106),
        ([counted("base", 100, 1), counted("delta", 10, 2, replaced=7)], 103, 103),
        ([counted("base", 100, 1), counted("delta", 10, 2, tombstones=4, replaced=9)], 97, 97),
        ([counted("base", 100, 1), counted("delta", 10, 2, new_keys=True)], 110, 110),
        ([counted("base", 100, 1), counted("delta", 10, 2, replaced=7), counted("delta", 5, 3, replaced=5)], 103, 103),
        ([counted("base", 100, 1), counted("delta", 10, 2), counted("delta", 5, 3, replaced=5)], 100, 115),
        ([counted("base", 100, 1), counted("delta", 10, 2, replaced=1), counted("delta", 5, 2, replaced=1)], 100, 115),
        ([counted("base", 100, 1), counted("delta", 10, 2, positions=over(7))], 103, 103),
        ([counted("base", 100, 1), counted("delta", 10, 2, positions=over(7, lineage=9))], 100, 110),
        # Positions of a second delta say what it hides of the lowest file, and not of the delta between.
        (
            [counted("base", 100, 1), counted("delta", 9, 2, replaced=9), counted("delta", 9, 3, positions=over(1))],
            100,
            118,
        ),
        # A log is input: what cannot be is no count.
        ([counted("base", 100, 1), counted("delta", 10, 2, replaced=900)], 100, 110),
        ([counted("base", -1, 1), counted("delta", 10, 2)], 0, None),
    ],
)
def test_given_the_files_of_a_group_then_its_rows_are_known_or_bounded(
    files: list[DataFile], least: int, most: int | None
) -> None:
    assert row_count(files, "commit") == RowCount(least, most)


def test_given_a_column_that_decides_between_rows_then_only_merged_groups_are_counted() -> None:
    base, delta = counted("base", 100, 1), counted("delta", 10, 2, tombstones=3, replaced=7)
    assert row_count([base], "ordering") == RowCount(100, 100)
    assert row_count([base, delta], "ordering") == RowCount(97, 107)
    assert row_count([delta], "ordering") == RowCount(4, 7)


def test_given_counts_then_they_add_up_and_read_as_people_write_them() -> None:
    exact, bound, unknown = RowCount(1200, 1200), RowCount(10, 20), RowCount(0, None)
    assert (exact + exact, exact + bound) == (RowCount(2400, 2400), RowCount(1210, 1220))
    assert [count.text for count in (exact, exact + bound, unknown, exact + unknown)] == [
        "1,200", "≤ 1,220", "not known", "≥ 1,200",
    ]  # fmt: skip
    assert exact.why == "" and "Between 10 and 20" in bound.why and "no count" in unknown.why
