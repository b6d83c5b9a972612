"""Reading a simulated table through the timeline's own state, and comparing it with what the checker folded itself."""

from __future__ import annotations

import json

from spark_apps.storage.errors import TableNotFound
from spark_apps.timeline import hashing_config
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.state import State
from tests.simulation.checker import INDEX_TREE, Checker, Rows, Violation
from tests.simulation.store import SimulatedStore


def rows_of(store: SimulatedStore, state: State, tree: str, partition: str, group: str) -> dict[str, object]:
    """Rows of one file group, merged in the order of sequence numbers."""
    rows: dict[str, object] = {}
    files = sorted(
        state.files(tree, partition, group), key=lambda file: (file.sequence_number, file.kind == "delta", file.path)
    )
    for file in files:
        rows |= json.loads(store.get(file.path))
    return rows


def table_of(store: SimulatedStore, state: State) -> Rows:
    """All rows of the table."""
    return {
        (partition, key): value
        for partition, group in state.groups(DATA_TREE)
        for key, value in rows_of(store, state, DATA_TREE, partition, group).items()
        if value is not None
    }


def check_all(checker: Checker) -> None:
    """Every version that is kept reads as it must: loaded anew, from a checkpoint, and folded from the first commit."""
    store = SimulatedStore(checker.objects)
    try:
        timeline = Timeline.load(store)
    except TableNotFound:
        return check_dropped(checker)
    head = checker.head
    if timeline.head.version != head.version:
        raise Violation(f"A new reader sees version {timeline.head.version} of {head.version}.")
    for version in range(head.expired_below, head.version + 1):
        check_state(checker, store, timeline.at(version))
    folded = State()
    for commit in timeline.commits():
        folded.apply(commit)
        for path in hashing_config.paths_of(commit.actions):
            check_hashing_file(checker, path, folded)
    check_state(checker, store, folded)


def check_dropped(checker: Checker) -> None:
    """A table that nobody can load was dropped, and not made anew."""
    last = [commit for commit in checker.commits if commit["operation"] in ("create", "drop_table")][-1]
    if last["operation"] != "drop_table":
        raise Violation("The table cannot be loaded, and nobody dropped it.")


def check_hashing_file(checker: Checker, path: str, then: State) -> None:
    """A hashing file that a commit names is there, or in the archive, and tells what the state of then tells."""
    bodies = checker.objects.bodies
    body = bodies.get(path) or bodies.get(hashing_config.archived(path))
    if body is None:
        raise Violation(f"Version {then.version} names {path}, which is gone.")
    counts = {partition: (entry.buckets, entry.since) for partition, entry in then.partitions.items()}
    is_meta = path.endswith(".hashing_meta")
    content = hashing_config.read_meta(body[0]) if is_meta else hashing_config.read_config(body[0])
    if content != (counts if is_meta else tuple(then.configs)):
        raise Violation(f"{path}, named by version {then.version}, tells {content}.")


def check_state(checker: Checker, store: SimulatedStore, state: State) -> None:
    """One state of the code under test against the checker's own."""
    expected = checker.versions[state.version]
    seen = {(file.tree, file.path): (file.sequence_number, file.partition, file.group) for file in state.file_set}
    known = {
        key: (file["place"], file["partition"], file["group"]) for key, file in expected.files.items()
        if key[0] in (DATA_TREE, INDEX_TREE)
    }  # fmt: skip
    rows = table_of(store, state)
    if rows != expected.rows:
        raise Violation(f"Version {state.version} reads as {rows}; it should read as {expected.rows}.")
    if seen != known:
        raise Violation(f"Version {state.version} lists {seen}; the log says {known}.")
    counts = {path: entry.buckets for path, entry in state.partitions.items()}
    if counts != expected.counts or set(state.windows) != set(expected.windows):
        raise Violation(f"Version {state.version}: counts {counts}, windows {sorted(state.windows)}.")
    _check_index(store, state, rows)


def _check_index(store: SimulatedStore, state: State, rows: Rows) -> None:
    for entry in state.indexes.values():
        shards = {group for _, group in state.groups(entry.definition.tree)}
        entries: dict[str, object] = {}
        for shard in shards:
            entries |= rows_of(store, state, entry.definition.tree, "", shard)
        for partition, group in state.groups(DATA_TREE):
            if not entry.covers((partition, group)):
                continue
            for key in rows_of(store, state, DATA_TREE, partition, group):
                if (partition, key) in rows and entries.get(f"{partition}|{key}") is None:
                    raise Violation(
                        f"Version {state.version}: the index covers group {group} of {partition} and lacks key {key}."
                    )
