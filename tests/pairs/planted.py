"""Faults to plant in a running process, each with the meeting that must find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spark_apps.actions import schema, write
from spark_apps.actions.indexing import CreateIndex
from spark_apps.timeline import publish
from spark_apps.timeline.model import SCHEMA_SCOPE, Cover


@dataclasses.dataclass(frozen=True)
class Planted:
    """A fault.

    :param names: the actions that meet, all on tables with buckets. :param anew: those whose work the fault changes.
    """

    names: tuple[str, ...]
    plant: Callable[[pytest.MonkeyPatch], None]
    anew: tuple[str, ...] = ()


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _all_commute(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "check_conflict", _nothing)


def _work_changed(patch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """Changes what the making of an index would commit."""
    whole = CreateIndex.work

    def work(self: CreateIndex, attempt: Any) -> Any:
        done = whole(self, attempt)
        change(done)
        return done

    patch.setattr(CreateIndex, "work", work)


def _cover_all(work: Any) -> None:
    work.actions = [replace(one, through=None) if isinstance(one, Cover) else one for one in work.actions]


PLANTED = {
    "what another removed is compacted": Planted(("compact table full", "drop partition"), _all_commute),
    "a key is inserted that came meanwhile": Planted(("insert", "upsert"), _all_commute),
    "a row is deleted that matches no more": Planted(("delete where", "transaction"), _all_commute),
    "windows are not asked": Planted(
        ("upsert", "open window"), lambda patch: patch.setattr(publish, "check_windows", _nothing)
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
        lambda patch: patch.setattr(schema.ChangeColumns, "reads", (SCHEMA_SCOPE,)),
        ("drop column",),
    ),
}
