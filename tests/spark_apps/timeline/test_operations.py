"""Operations are told apart in one place, and every action is one of them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import spark_apps.actions
from spark_apps.actions.template import Action
from spark_apps.timeline.operations import COMPACT, INSERT_OVERWRITE, OPERATIONS, RESCALE, UPSERT, operation_of


def actions(of: type[Action] = Action) -> Iterator[type[Action]]:
    for kind in of.__subclasses__():
        if kind.__module__.startswith("spark_apps."):
            yield kind
        yield from actions(kind)


def test_every_action_is_an_operation_that_is_listed() -> None:
    for module in pkgutil.iter_modules(spark_apps.actions.__path__):
        import_module(f"spark_apps.actions.{module.name}")
    names = {kind.operation.name for kind in actions() if hasattr(kind, "operation")}
    assert {"upsert", "insert_overwrite", "rescale", "drop_table", "repair_index"} <= names
    assert names <= OPERATIONS.keys()


def test_upkeep_changes_files_and_no_row() -> None:
    assert "rows" in UPSERT.changes
    assert not {"rows", "indexes"} & (COMPACT.changes | RESCALE.changes)
    upkeep = [one.name for one in OPERATIONS.values() if one.category == "maintenance"]
    assert upkeep == ["compact", "compact_index", "maintain_source"]


@pytest.mark.parametrize(("name", "operation"), [("upsert", UPSERT), ("overwrite", INSERT_OVERWRITE)])
def test_an_operation_is_found_by_its_name_in_the_log(name: str, operation: object) -> None:
    assert operation_of(name) is operation


def test_an_operation_of_a_later_version_may_have_changed_anything() -> None:
    assert operation_of("split_shards").category == "log"
    assert operation_of("split_shards").changes >= {"rows", "indexes", "files", "layout", "schema"}
