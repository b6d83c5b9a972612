"""An index that is asked for again, known as the one that is there, whatever its rows have decided since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_apps.actions import indexing
from spark_apps.actions.indexing import CreateIndex
from spark_apps.mergetree.tree import NO_SPARK, Snapshot
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import Field, HashingConfig, PutHashingConfig, TableDefinition
from spark_apps.timeline.state import IndexEntry

FIELDS = (Field("id", "bigint"), Field("city", "string"), Field("price", "double"))


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    hashing = PutHashingConfig(HashingConfig("", 1))
    timeline, _ = create_table(Store(tmp_path / "t"), TableDefinition("t", FIELDS, ("id",), ()), (hashing,))
    return Snapshot(NO_SPARK, timeline.store, timeline.head.copy())


def index(**arguments: Any) -> CreateIndex:
    return CreateIndex("by_city", columns=["city"], **arguments)


def make(snapshot: Snapshot, create: CreateIndex, **found: str) -> None:
    """Put the index into the state, with the properties that its rows gave it."""
    definition = create.definition(snapshot)
    definition = replace(definition, properties={**definition.properties, **found})
    snapshot.state.indexes["by_city"] = IndexEntry(definition, "active", {}, {})


COVERING = {"kind": "covering", "included": ["price"], "deferred": True}


@pytest.mark.parametrize("asked", [{"kind": "secondary"}, COVERING], ids=["keyed", "covering"])
def test_given_more_rows_when_the_same_index_is_asked_for_then_it_is_there_with_the_shards_it_has(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    make(snapshot, index(**asked))

    monkeypatch.setattr(indexing, "default_shards", lambda rows: 5)

    assert index(**asked).is_made(snapshot)
    said = {"shards" if asked["kind"] == "secondary" else "buckets": "4"}
    assert not index(**asked, properties=said).is_made(snapshot)


def test_given_an_index_by_ranges_that_was_filled_when_it_is_asked_for_again_then_it_is_there(
    snapshot: Snapshot,
) -> None:
    asked = {**COVERING, "properties": {"layout": "ranges"}}
    make(snapshot, index(**asked), bounds='ranges:["m"]')

    assert index(**asked).is_made(snapshot)
    assert not index(**COVERING).is_made(snapshot)
