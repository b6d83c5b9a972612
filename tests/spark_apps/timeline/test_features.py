"""Features of a log: a reader that does not know one refuses the table, a writer that does not leaves it as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_apps.storage.errors import LogDamaged, NewerFormat, UnsupportedFeature
from spark_apps.timeline import features
from spark_apps.timeline.cleaning import clean
from spark_apps.timeline.log import (
    Timeline,
    commit_key,
    decode_checkpoint,
    encode_checkpoint,
    write_checkpoint,
)
from spark_apps.timeline.windows import open_window
from tests.simulation import work
from tests.spark_apps.timeline.conftest import new_job, upsert


def rewrite(world: work.World, version: int, **fields: Any) -> None:
    """Changes what stands in a commit, as a newer version of the package would have written it."""
    key = commit_key(version)
    body, at = world.objects.bodies[key]
    world.objects.bodies[key] = (json.dumps({**json.loads(body), **fields}).encode(), at)


def written(world: work.World, version: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(world.objects.bodies[commit_key(version)][0])
    return body


def test_given_a_table_without_features_then_its_commits_are_those_that_every_package_reads(
    job: work.Job, world: work.World
) -> None:
    upsert(job, "one", k0=1)
    commit = written(world, 1)
    assert commit["format"] == 1 and not {"reader_features", "writer_features"} & commit.keys()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_given_a_reader_feature_that_is_not_known_then_every_reading_is_refused_by_its_name(
    job: work.Job, world: work.World, version: int
) -> None:
    upsert(job, "one", k0=1)
    upsert(job, "two", k0=2)
    # What else such a commit has, this package may not even be able to read.
    rewrite(world, version, format=2, reader_features=["row-tracking"], actions=[{"action": "unheard of"}])

    for read in (
        lambda: Timeline.load(job.store),
        lambda: Timeline(job.store).refresh(),
        lambda: Timeline(job.store).read(version),
        lambda: upsert(new_job(world), "three", k0=3),
    ):
        with pytest.raises(UnsupportedFeature) as refused:
            read()
        assert f"Version {version} of {job.store.uri} has the reader feature 'row-tracking'" in refused.value.message
        assert "Install a newer lakeindex" in refused.value.hint
    assert isinstance(refused.value, NewerFormat)  # what caught a newer format before catches this


def test_given_a_writer_feature_that_is_not_known_then_reads_go_on_and_nothing_is_written(
    job: work.Job, world: work.World
) -> None:
    upsert(job, "one", k0=1)
    rewrite(world, 1, format=2, writer_features=["sorted-files", "v2-statistics"])
    timeline = Timeline.load(job.store)
    before = dict(world.objects.bodies)

    assert timeline.head.writer_features == ("sorted-files", "v2-statistics")
    assert timeline.at(0).version == 0 and len(timeline.head.files("data")) == 1
    for write in (
        lambda: upsert(new_job(world), "two", k0=2),
        lambda: open_window(timeline, "somebody"),
        lambda: clean(timeline, retain_versions=1, retain_seconds=0),
    ):
        with pytest.raises(UnsupportedFeature, match=r"writer features 'sorted-files', 'v2-statistics'.*Nothing was"):
            write()
    assert dict(world.objects.bodies) == before


def test_given_known_features_then_each_commit_and_checkpoint_carries_them_in_a_format_of_their_own(
    job: work.Job, world: work.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(world, 0, format=2, reader_features=["row-tracking"], writer_features=["sorted-files"])
    monkeypatch.setattr(features, "READER_FEATURES", frozenset({"row-tracking"}))
    monkeypatch.setattr(features, "WRITER_FEATURES", frozenset({"sorted-files"}))
    known = new_job(world)
    upsert(known, "one", k0=1)

    commit = written(world, 1)
    assert commit["format"] == 2
    assert (commit["reader_features"], commit["writer_features"]) == (["row-tracking"], ["sorted-files"])
    body = encode_checkpoint(known.timeline.head)
    header = decode_checkpoint(body)
    assert header is not None
    assert (header.reader_features, header.writer_features) == (("row-tracking",), ("sorted-files",))

    monkeypatch.setattr(features, "READER_FEATURES", frozenset())
    assert decode_checkpoint(body) is None  # and the log behind it is what refuses
    write_checkpoint(job.store, known.timeline.head)
    with pytest.raises(UnsupportedFeature, match="'row-tracking'"):
        Timeline.load(job.store)


@pytest.mark.parametrize("value", ["x", [1], ["Upper"], [""], ["a b"], ["\x1b[2J"], ["x" * 65], ["x"] * 1001, {"a": 1}])
@pytest.mark.parametrize("field", ["reader_features", "writer_features"])
def test_given_features_that_can_be_none_then_the_log_is_damaged(
    job: work.Job, world: work.World, field: str, value: Any
) -> None:
    rewrite(world, 0, format=2, **{field: value})
    with pytest.raises(LogDamaged, match=field) as refused:
        Timeline.load(job.store)
    assert not isinstance(refused.value, NewerFormat) and refused.value.message.isprintable()
