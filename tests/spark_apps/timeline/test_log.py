"""Reading the log: versions, instants, holes, damage, formats, and a log that vanished."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_apps.storage.errors import (
    LogDamaged,
    LogVanished,
    NewerFormat,
    SnapshotExpired,
    TableExists,
    TableNotFound,
    VersionNotFound,
)
from spark_apps.storage.store import Store
from spark_apps.timeline import log
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline, commit_key, format_instant, parse_instant
from spark_apps.timeline.model import DropTable, Field, TableDefinition, Write, table_scope
from spark_apps.timeline.transactions import begin
from tests.simulation import work
from tests.simulation.reading import table_of
from tests.simulation.store import OK, SimulatedStore
from tests.spark_apps.timeline.conftest import A, new_job, upsert

DEFINITION = TableDefinition("t", (Field("k", "string"),), ("k",))


def test_a_version_and_an_instant_read_what_was_there_then(job: work.Job, world: work.World) -> None:
    first = upsert(job, "one", k0=1)
    then = datetime.fromtimestamp(world.objects.now + 1, UTC)
    world.objects.now += 60
    upsert(job, "two", k0=2)
    timeline = Timeline.load(job.store)
    assert table_of(job.store, timeline.at(first)) == {(A, "0"): 1}
    assert timeline.at(as_of=then).version == first
    assert timeline.at(as_of=then.isoformat()).version == first
    assert table_of(job.store, timeline.at()) == {(A, "0"): 2}


def test_a_version_that_is_not_there_is_named_with_those_that_are(job: work.Job) -> None:
    with pytest.raises(VersionNotFound, match="has no version 7; its versions are 0 to 0"):
        Timeline.load(job.store).at(7)
    with pytest.raises(VersionNotFound, match="nothing as early"):
        Timeline.load(job.store).at(as_of="2001-01-01")
    with pytest.raises(VersionNotFound, match="is no instant"):
        Timeline.load(job.store).at(as_of="yesterday")


def test_an_expired_version_is_refused(job: work.Job, world: work.World) -> None:
    upsert(job, "one", k0=1)
    world.objects.now += 60
    work.clean(job, "clean", 1, 0.0, 1000.0)
    with pytest.raises(SnapshotExpired, match="the oldest that can be read is 1"):
        Timeline.load(job.store).at(0)


def test_instants_grow_though_the_clock_goes_back(job: work.Job, world: work.World) -> None:
    upsert(job, "one", k0=1)
    world.objects.now -= 3600
    upsert(job, "two", k0=2)
    instants = [commit.instant for commit in job.timeline.commits()]
    assert instants == sorted(set(instants))


def test_instants_have_one_form() -> None:
    assert parse_instant("2026-11-20T00:00Z") == "20261120000000000" == parse_instant("20261120000000000")
    assert format_instant(0.0015) == "19700101000000002"


def test_a_hole_and_a_damaged_file_are_named(job: work.Job, world: work.World) -> None:
    upsert(job, "one", k0=1)
    upsert(job, "two", k0=2)
    body, at = world.objects.bodies.pop(commit_key(1))
    with pytest.raises(LogDamaged, match="Version 1 is missing"):
        Timeline.load(job.store)
    world.objects.bodies[commit_key(1)] = (body[:40], at)
    with pytest.raises(LogDamaged, match=r"Version 1 .* cannot be read"):
        Timeline.load(job.store)


def test_a_log_of_a_newer_format_is_refused_and_says_what_to_install(job: work.Job, world: work.World) -> None:
    newer = json.dumps({"format": 3, "version": 1, "news": "unheard of"}).encode()
    world.objects.bodies[commit_key(1)] = (newer, world.objects.now)
    with pytest.raises(NewerFormat, match=r"format 3; this package reads up to format 2.*Install a newer"):
        Timeline.load(job.store)
    with pytest.raises(NewerFormat):
        upsert(job, "one", k0=1)


def test_a_log_that_vanished_is_an_error_and_never_a_new_table(job: work.Job, world: work.World) -> None:
    upsert(job, "one", k0=1)
    for key in [key for key in world.objects.bodies if key.startswith("_index/timeline/")]:
        del world.objects.bodies[key]
    with pytest.raises(LogVanished, match=r"its log .* is gone"):
        Timeline.load(job.store)
    with pytest.raises(LogVanished, match="Put the log back"):
        create_table(job.store, DEFINITION)
    with pytest.raises(LogVanished, match="was there and is gone"):
        upsert(job, "two", k0=2)
    assert commit_key(2) not in world.objects.bodies


def test_a_log_of_which_only_a_checkpoint_is_left_has_vanished(job: work.Job, world: work.World) -> None:
    upsert(job, "one", k0=1)
    log.write_checkpoint(job.store, job.timeline.refresh())
    for version in range(2):
        del world.objects.bodies[commit_key(version)]
    with pytest.raises(LogVanished):
        Timeline.load(job.store)


def test_no_table_is_told_from_a_lost_one(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="There is no table"):
        Timeline.load(Store(tmp_path / "nothing"))


def test_a_table_is_made_once_and_a_retry_finds_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _, receipt = create_table(store, DEFINITION, txn_id="mine")
    assert create_table(store, DEFINITION, txn_id="mine")[1] == receipt
    with pytest.raises(TableExists):
        create_table(store, DEFINITION)


def test_a_dropped_table_can_be_made_again_in_the_same_log(job: work.Job) -> None:
    upsert(job, "one", k0=1)
    transaction = begin(job.timeline, operation="drop")
    late = begin(job.timeline, operation="upsert")
    transaction.commit((DropTable(),), writes=(Write(table_scope(), "replace"),))
    with pytest.raises(TableNotFound, match="dropped in version 2"):
        Timeline.load(job.store)
    with pytest.raises(TableNotFound, match="was dropped"):
        late.commit((), writes=())
    timeline, receipt = create_table(SimulatedStore(job.world.objects), DEFINITION)
    assert receipt.version == 3
    assert timeline.head.table == DEFINITION
    assert list(timeline.head.file_set) == []


def test_a_commit_with_many_actions_keeps_them_beside_the_log(
    job: work.Job, world: work.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_apps.timeline.log.INLINE_ACTIONS", 1)
    upsert(job, "one", k0=1, k1=2)
    [sidecar] = [key for key in world.objects.bodies if key.startswith("_index/sidecars/")]
    assert table_of(job.store, Timeline.load(job.store).head) == {(A, "0"): 1, (A, "1"): 2}
    world.objects.bodies[sidecar] = (b"something else", 0.0)
    with pytest.raises(LogDamaged, match="is not what was written"):
        Timeline.load(job.store)
    del world.objects.bodies[sidecar]
    with pytest.raises(LogDamaged, match="which is gone"):
        Timeline.load(job.store)


def test_a_long_log_is_read_whole(job: work.Job) -> None:
    for number in range(45):
        upsert(job, f"w{number}", maintain=False, k0=number)
    for info in job.store.list(log.CHECKPOINTS):
        job.store.delete([info.key])
    assert table_of(job.store, Timeline.load(new_job(job.world).store).head) == {(A, "0"): 44}


def test_files_of_another_system_are_not_taken_for_a_table_whose_log_has_vanished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in ("data/00000-0-87154177.parquet", "data/price=1.5/00000-1.parquet", "metadata/v1.metadata.json"):
        store.put(key, b"iceberg's")
    with pytest.raises(TableNotFound):
        Timeline.load(store)


@pytest.mark.parametrize("who", ["another creation", "a reader"])
def test_a_creation_that_lands_while_leftovers_are_looked_for_is_no_vanished_log(who: str) -> None:
    world = work.World(created=False)
    slow, fast = new_job(world), new_job(world)

    def landing(verb: str, key: str) -> str:
        if (verb, key) == ("list", "_index"):
            slow.store.gate = lambda *_: OK
            create_table(fast.store, DEFINITION, txn_id="first", timeline=fast.timeline)
        return OK

    slow.store.gate = landing
    if who == "a reader":
        assert Timeline.load(slow.store).head.version == 0
    else:
        with pytest.raises(TableExists):
            create_table(slow.store, DEFINITION, txn_id="second", timeline=slow.timeline)


def test_a_table_folder_without_its_log_is_still_told_as_vanished() -> None:
    world = work.World()
    store = new_job(world).store
    for key in [key for key in world.objects.bodies if key.startswith("_index/timeline/")]:
        del world.objects.bodies[key]
    for call in (lambda: Timeline.load(store), lambda: create_table(store, DEFINITION)):
        with pytest.raises(LogVanished):
            call()
