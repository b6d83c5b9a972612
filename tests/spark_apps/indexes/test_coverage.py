"""What an index counts as covering, folded from the log alone: never a file group of which it holds stale entries."""

from __future__ import annotations

from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Commit,
    DropPartition,
    Field,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    PutPartition,
    PutTable,
    TableDefinition,
    Write,
    WriteMode,
    group_scope,
    partition_scope,
)
from spark_apps.timeline.state import NEVER, State

INDEX = IndexDefinition("i", "secondary", ("c",), "1")


def commit(state: State, *actions: AnyAction, mode: WriteMode = "append", maintained: tuple[str, ...] = ()) -> None:
    scopes = [
        group_scope(action.partition, action.group) if isinstance(action, AddFile) else partition_scope("p=a")
        for action in actions
    ]
    version = state.version + 1
    writes = tuple(Write(scope, mode) for scope in scopes)
    state.apply(
        Commit(
            1, version, f"{version:017d}", "test", f"t{version}", 1, version - 1, (), writes, None, maintained, actions
        )
    )


def rows(group: str, name: str) -> AddFile:
    return AddFile(DATA_TREE, "p=a", group, f"data/{name}", "delta", 1, 1)


def start() -> State:
    state = State()
    commit(state, PutTable(TableDefinition("t", (Field("id", "int"),), ("id",))))
    commit(state, PutPartition("p=a", 2), rows("0", "a"), rows("1", "b"))
    commit(state, PutIndex(INDEX), MarkCovered(INDEX.tree, 1))
    assert state.index("i").lag == {}
    return state


def test_given_a_partition_dropped_behind_the_back_of_an_index_then_it_is_not_covered_when_it_comes_again() -> None:
    state = start()
    commit(state, DropPartition("p=a"), mode="replace")
    # With other buckets, and by a writer that keeps the index in step.
    commit(state, PutPartition("p=a", 3), rows("2", "c"), maintained=(INDEX.tree,))

    assert state.index("i").lag == dict.fromkeys([("p=a", "0"), ("p=a", "1"), ("p=a", "2")], NEVER)
    commit(state, MarkCovered(INDEX.tree, state.version))
    assert state.index("i").lag == {}


def test_given_a_partition_dropped_by_a_commit_that_told_the_index_then_all_is_covered() -> None:
    state = start()
    commit(state, DropPartition("p=a"), mode="replace", maintained=(INDEX.tree,))
    commit(state, PutPartition("p=a", 3), rows("2", "c"), maintained=(INDEX.tree,))

    assert state.index("i").lag == {}


def test_given_a_cover_from_before_the_drop_then_the_file_groups_still_lag() -> None:
    state = start()
    commit(state, DropPartition("p=a"), mode="replace")
    commit(state, MarkCovered(INDEX.tree, 2))

    assert set(state.index("i").lag) == {("p=a", "0"), ("p=a", "1")}
