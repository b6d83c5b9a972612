"""What a state says of an index over a source, held against a model of what the index covers; without Spark.

Several refreshes look at a source that changes all the while, each starts from whatever version and listing it has, and
they commit in any order that the log allows. Whatever happens, an index must never count as covering a file whose
rows it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from spark_apps.actions.source_diff import Observation, _writes, by_commits, difference, folded_in
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources.source_files import Changes, Listing, SourceFile
from spark_apps.timeline.commit import Intent, conflict, with_sound_marks
from spark_apps.timeline.model import (
    DATA_TREE,
    FORMAT_VERSION,
    AnyAction,
    Commit,
    Field,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    PutTable,
    SourceDefinition,
    TableDefinition,
    Write,
    definition_scope,
    shard_scope,
)
from spark_apps.timeline.state import State

TABLE = TableDefinition("t", (Field("a", "int"),), (), ("p",), bucketed=False, source=SourceDefinition("csv", "/s"))
INDEXES = {name: IndexDefinition(name, "secondary", ("a",), f"id-{name}") for name in ("one", "two")}

# A listing: what stands under each of five names, by a number that says which contents; 0 is no file.
LISTINGS = st.tuples(*[st.integers(0, 2)] * 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("source"), LISTINGS),
        st.tuples(st.just("begin"), st.sampled_from(["one", "two"]), st.sampled_from(["refresh", "quick", "in p=0"])),
        st.tuples(st.just("commit"), st.integers(0, 5)),
    ),
    max_size=25,
)


def since(history: list[tuple[int, ...]], version: int) -> Changes:
    """What a log of the source says of the listings after one of them."""
    before, now = ({file.path: file for file in listing(history[at]).files} for at in (version, -1))
    newest = str(len(history) - 1)
    added = tuple(file for path, file in now.items() if before.get(path) != file)
    return Changes(added, tuple(path for path in before if path not in now), newest, newest, len(history) - 1 - version)


def listing(contents: tuple[int, ...], version: str | None = None) -> Listing:
    files = [
        SourceFile(f"file:///s/{n}", 10 * n + kind, float(kind), partition=f"p={n % 2}", partition_values=(str(n % 2),))
        for n, kind in enumerate(contents)
        if kind
    ]
    return Listing(tuple(files), version, mark=version)


@dataclass
class Lake:
    """The log of one source as a list of commits, and what each index really holds."""

    commits: list[Commit] = field(default_factory=list)
    recorded: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in INDEXES})

    def state(self) -> State:
        state = State()
        for commit in self.commits:
            state.apply(commit)
        return state

    def add(self, base: int, actions: list[AnyAction], writes: list[Write], maintained: list[str]) -> bool:
        """Commits, unless what landed since the base forbids it."""
        intent = Intent("x", f"t{len(self.commits)}", 1, base, tuple(actions), writes=tuple(writes))
        if any(conflict(intent, other) for other in self.commits[base + 1 :]):
            return False
        number = len(self.commits)
        overtaken = any(isinstance(one, PutTable) for other in self.commits[base + 1 :] for one in other.actions)
        self.commits.append(
            Commit(
                FORMAT_VERSION,
                number,
                f"{number:017d}",
                "x",
                f"t{number}",
                1,
                base,
                (),
                tuple(writes),
                None,
                tuple(maintained),
                with_sound_marks(actions, overtaken),
            )
        )
        return True


class Refresh:
    """A refresh as the template does it: look, work on the state with the difference folded in, commit both."""

    def __init__(self, lake: Lake, name: str, mode: str, history: list[tuple[int, ...]], marked: bool) -> None:
        self.name, self.mode = name, mode
        base = lake.state()
        self.base = base.version
        only = {"p=0"} if mode == "in p=0" else None
        source = base.table.source
        assert source is not None
        if only is None and source.mark is not None:
            changes = by_commits(base, since(history, int(source.mark)))
        else:
            changes = difference(base, listing(history[-1], str(len(history) - 1) if marked else None), only)
        folded = folded_in(base, changes)
        self.observation = Observation(Snapshot(None, None, folded), tuple(changes), _writes(base, changes))  # type: ignore[arg-type]
        tree = INDEXES[name].tree
        lag = {group for group in folded.indexes[name].lag if only is None or group[0] in only}
        live = {file.group_key for file in folded.files(DATA_TREE)}
        self.adds = {group[1] for group in lag & live}
        self.drops = {group[1] for group in lag - live}
        self.own: list[AnyAction] = []
        if mode != "quick" and lag:
            self.own = [MarkCovered(tree, self.base, None if only is None else tuple(only))]

    def commit(self, lake: Lake) -> None:
        if not self.own and not self.observation.actions:
            return
        writes = [*self.observation.writes]
        if self.own:
            tree = INDEXES[self.name].tree
            writes += [Write(shard_scope(tree, "0"), "backdated"), Write(definition_scope(self.name), "fold")]
        if (
            lake.add(self.base, self.observation.beside(self.own), writes, self.observation.covered_trees(self.own))
            and self.own
        ):
            lake.recorded[self.name] = (lake.recorded[self.name] | self.adds) - self.drops


# A file comes and goes while two refreshes look: each finds what is there, and both together a file that is gone.
AT_ONCE: list[tuple[object, ...]] = [
    ("source", (1, 1, 0, 0, 0)), ("begin", "one", "quick"), ("source", (1, 0, 1, 0, 0)), ("begin", "two", "quick"),
    ("commit", 0), ("commit", 0),
]  # fmt: skip


@given(LISTINGS, STEPS, st.booleans())
@example((1, 0, 0, 0, 0), AT_ONCE, True)
def test_an_index_never_counts_as_covering_a_file_that_it_was_not_told_of(
    first: tuple[int, ...], steps: list[tuple[object, ...]], marked: bool
) -> None:
    lake, now, open_ones, seen, history = Lake(), first, list[Refresh](), {first}, [first]
    begun = [PutTable(TABLE), *difference(empty_state(), listing(first, "0" if marked else None))]
    lake.add(-1, begun, [Write(definition_scope("*"), "replace")], [])
    for name, index in INDEXES.items():
        files = lake.state().files(DATA_TREE)
        lake.add(lake.state().version, [PutIndex(index), MarkCovered(index.tree, lake.state().version)], [], [])
        lake.recorded[name] = {file.group for file in files}
    for step in steps:
        if step[0] == "source":
            now = step[1]  # type: ignore[assignment]
            seen.add(now)
            history.append(now)
        elif step[0] == "begin":
            open_ones.append(Refresh(lake, str(step[1]), str(step[2]), [*history], marked))
        elif open_ones:
            open_ones.pop(int(step[1]) % len(open_ones)).commit(lake)  # type: ignore[call-overload]
        state = lake.state()
        for contents in seen:
            shown = folded_in(state, difference(state, listing(contents)))
            there = {file.group for file in shown.files(DATA_TREE)}
            assert there == {str(file.lineage) for file in listing(contents).files}
            for name in INDEXES:
                covered = {
                    group
                    for partition, group in shown.groups(DATA_TREE)
                    if shown.indexes[name].covers((partition, group))
                }
                assert covered <= lake.recorded[name]
    # Left alone, one refresh covers all, and the next finds nothing to do.
    for name in INDEXES:
        Refresh(lake, name, "refresh", [*history], marked).commit(lake)
        again = Refresh(lake, name, "refresh", [*history], marked)
        assert not again.own and not again.observation.actions
        assert not again.observation.snapshot.state.indexes[name].lag
    assert {file.group for file in lake.state().files(DATA_TREE)} == {str(f.lineage) for f in listing(now).files}


def empty_state() -> State:
    """A state that knows its table and nothing else."""
    state = State()
    state.apply(Commit(FORMAT_VERSION, 0, "0", "x", "t", 1, -1, actions=(PutTable(TABLE),)))
    return state
