"""A small table in memory, and a job to work on it."""

from __future__ import annotations

import pytest

from spark_apps.timeline import log
from spark_apps.timeline.log import Timeline
from tests.simulation import work
from tests.simulation.store import SimulatedStore

A, B = work.PARTITIONS


def new_job(world: work.World) -> work.Job:
    """Another process on the same table."""
    store = SimulatedStore(world.objects)
    timeline = Timeline(store, lambda: world.objects.now)
    timeline.sleep = lambda seconds: setattr(world.objects, "now", world.objects.now + seconds)
    return work.Job(world, store, timeline)


def upsert(job: work.Job, txn: str, partition: str = A, maintain: bool = True, **changes: int | None) -> int:
    """Commits ``k0=1`` as key 0 with value 1; returns the version."""
    named = {key.removeprefix("k"): value for key, value in changes.items()}
    job.world.effects[txn] = work.changing(partition, named)
    version = work.upsert(job, txn, partition, named, maintain=maintain).version
    assert version is not None
    return version


def write_checkpoint(job: work.Job, tells_of_drops: bool) -> None:
    """A checkpoint of the newest version, or one as it was written before it recorded drops."""
    state = job.timeline.refresh().copy()
    if not tells_of_drops:
        state.last_drop = None
    log.write_checkpoint(job.store, state)


@pytest.fixture
def world() -> work.World:
    return work.World()


@pytest.fixture
def job(world: work.World) -> work.Job:
    return new_job(world)
