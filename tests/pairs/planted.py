"""Faults to plant in a running process, each with the meeting that must find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spark_apps.actions import evolve_schema, indexing, write
from spark_apps.actions.indexing import CreateIndex, RefreshIndex
from spark_apps.indexes.block import compact
from spark_apps.indexes.block.compact import entries_of_files
from spark_apps.timeline import commit, restore
from spark_apps.timeline.model import DATA_TREE, SCHEMA_SCOPE, MarkCovered
from spark_apps.timeline.state import State


@dataclasses.dataclass(frozen=True)
class Planted:
    """A fault.

    :param names: the actions that meet, on tables of ``shape``. :param anew: those whose work the fault changes.
    :param further: shows when the table is worked on further.
    """

    names: tuple[str, ...]
    plant: Callable[[pytest.MonkeyPatch], None]
    anew: tuple[str, ...] = ()
    shape: str = "buckets"
    further: bool = False


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _all_commute(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit, "check_conflict", _nothing)


def _work_changed(patch: pytest.MonkeyPatch, change: Callable[[Any], None], action: type = CreateIndex) -> None:
    """Changes what an action, such as the making of an index, would commit."""
    whole = action.work  # type: ignore[attr-defined]

    def work(self: Any, attempt: Any) -> Any:
        done = whole(self, attempt)
        change(done)
        return done

    patch.setattr(action, "work", work)


def _cover_all(work: Any) -> None:
    work.actions = [replace(one, through=None) if isinstance(one, MarkCovered) else one for one in work.actions]


def _index_not_held_to(patch: pytest.MonkeyPatch) -> None:
    """A write goes on whose index of unique keys was dropped."""
    patch.setattr(write.WriteRows, "relies_on_keys", False)


def _committed_behind(patch: pytest.MonkeyPatch) -> None:
    """An index of unique keys becomes active though rows have landed since the last round of its build."""

    def built(_: CreateIndex, building: Any, empty: Any, cost: Any) -> Any:
        return indexing._built(building, empty, cost)

    patch.setattr(CreateIndex, "_covering_all_rows", built)


def _dead_entries_dropped(patch: pytest.MonkeyPatch) -> None:
    """A compact index folds only entries of files that are there, and goes on covering the others."""
    whole = compact.read_files

    def read(snapshot: Any, *given: Any, **named: Any) -> Any:
        live = {file.lineage for file in snapshot.state.files(DATA_TREE)}
        return entries_of_files(snapshot, whole(snapshot, *given, **named), live)

    patch.setattr(compact, "read_files", read)


def _drops_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Commits on a table count for the one that was made where it was dropped."""
    whole = State.is_in_effect

    def is_in_effect(self: State, version: int) -> bool:
        last_drop, self.last_drop = self.last_drop, None
        try:
            return whole(self, version)
        finally:
            self.last_drop = last_drop

    patch.setattr(commit, "drop_since", _nothing)
    patch.setattr(State, "is_in_effect", is_in_effect)


PLANTED = {
    "what another removed is compacted": Planted(("compact table full", "drop partition"), _all_commute),
    "a key is inserted that came meanwhile": Planted(("insert", "upsert"), _all_commute),
    "a row is deleted that matches no more": Planted(("delete where", "transaction"), _all_commute),
    "windows are not asked": Planted(
        ("upsert", "open window"), lambda patch: patch.setattr(commit, "check_windows", _nothing)
    ),
    "keys are not looked for in a new index": Planted(
        ("upsert elsewhere", "create record"),
        lambda patch: patch.setattr(write, "keep_unique", _nothing),
        ("upsert elsewhere",),
    ),
    "a build covers what landed while it ran": Planted(
        ("create lazy", "upsert"), lambda patch: _work_changed(patch, _cover_all), ("create lazy",)
    ),
    "an index forgets which columns it read": Planted(
        ("create covering", "drop column"),
        lambda patch: _work_changed(patch, lambda work: work.reads.clear()),
        ("create covering",),
    ),
    "a change of columns forgets which indexes it read": Planted(
        ("drop column", "create covering"),
        lambda patch: patch.setattr(evolve_schema.ChangeColumns, "reads", (SCHEMA_SCOPE,)),
        ("drop column",),
    ),
    "new columns of an index forget which columns the table had": Planted(
        ("refresh cov including v", "drop column"),
        lambda patch: _work_changed(patch, lambda work: work.reads.clear(), RefreshIndex),
        ("refresh cov including v",),
    ),
    "an index of unique keys does not tell of what landed last": Planted(
        ("create record", "upsert elsewhere"), _committed_behind, ("create record",)
    ),
    "a write moves rows by an index that is gone": Planted(
        ("upsert elsewhere", "drop record"), _index_not_held_to, ("upsert elsewhere",), "unique"
    ),
    "entries of files that may come back are dropped": Planted(
        ("a file comes back", "compact blocks quick"),
        _dead_entries_dropped,
        ("compact blocks quick",),
        "source",
        further=True,
    ),
    "a restore goes back beyond a drop": Planted(
        ("upsert", "drop and create (buckets)"),
        lambda patch: patch.setattr(restore, "_check_same_table", _nothing),
        further=True,
    ),
    "a receipt counts beyond a drop": Planted(("upsert", "drop and create (buckets)"), _drops_forgotten, further=True),
}
