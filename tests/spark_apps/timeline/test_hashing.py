"""The hashing files against the state they are copies of: read back by the libraries that other engines would use."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest

from spark_apps.storage.errors import (
    BucketCountMismatch,
    CommitStateUnknown,
    ConcurrentWrite,
    InvalidRule,
    LogDamaged,
    TableNotFound,
)
from spark_apps.storage.store import Store
from spark_apps.timeline import hashing_config
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline, seconds_of
from spark_apps.timeline.model import (
    CONFIG_SCOPE,
    DropHashingConfig,
    DropPartition,
    DropTable,
    Field,
    HashingConfig,
    PutHashingConfig,
    PutPartition,
    TableDefinition,
    Write,
    group_scope,
    partition_scope,
    table_scope,
)
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import Transaction
from tests.simulation import work
from tests.simulation.store import ERROR_AFTER, ERROR_BEFORE, OK, SimulatedStore
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert

FOLDER = "_index/hashing/"
FIRST = hashing_config.FIRST_INSTANT


def files(world: work.World, folder: str) -> list[str]:
    return sorted(key for key in world.objects.bodies if key.startswith(f"{FOLDER}{folder}/"))


def meta(job: work.Job, path: str) -> dict[str, Any]:
    """As another engine reads it: by the schema in the file."""
    (record,) = fastavro.reader(io.BytesIO(job.store.get(path)))
    return record


def config(job: work.Job, path: str) -> dict[str, Any]:
    return json.loads(job.store.get(path))


def configure(job: work.Job, txn: str, default: int, expressions: str | None = None) -> str:
    action = PutHashingConfig(HashingConfig("", default, "regex", expressions))
    writes = (Write(CONFIG_SCOPE, "replace"),)
    instant = job.begin("rescale", txn).commit((action,), writes=writes).instant
    job.world.objects.now += 60
    return instant


def partition(transaction: Transaction, path: str, count: int) -> Any:
    return transaction.commit(
        (PutPartition(path, count),), reads=(CONFIG_SCOPE,), writes=(Write(group_scope(path, "0")),)
    )


def counts(job: work.Job) -> dict[str, int]:
    return {path: entry.buckets for path, entry in job.timeline.refresh().partitions.items()}


def test_a_meta_is_written_when_a_partition_is_new_and_only_then(job: work.Job, world: work.World) -> None:
    upsert(job, "one", A, k0=1)
    (first,) = files(world, "meta")
    upsert(job, "two", A, k0=2)
    assert files(world, "meta") == [first]
    upsert(job, "three", B, k0=3)
    newest = files(world, "meta")[-1]

    instants = {commit.txn_id: commit.instant for commit in job.timeline.commits()}
    assert newest == f"_index/hashing/meta/{instants['three']}.hashing_meta"
    assert job.timeline.refresh().meta_paths == [first, newest]
    assert meta(job, newest) == {
        "version": 1,
        "partitionMeta": {
            A: {"bucketNumber": work.BUCKETS, "instant": instants["one"]},
            B: {"bucketNumber": work.BUCKETS, "instant": instants["three"]},
        },
    }
    assert hashing_config.read_meta(job.store.get(newest)) == {
        A: (work.BUCKETS, instants["one"]),
        B: (work.BUCKETS, instants["three"]),
    }


def test_the_schema_is_the_document_s(job: work.Job, world: work.World) -> None:
    upsert(job, "one", A, k0=1)
    schema = fastavro.reader(io.BytesIO(job.store.get(files(world, "meta")[0]))).writer_schema
    info = schema["fields"][1]["type"][1]["values"]
    assert (schema["name"], schema["fields"][0]["type"]) == (
        "org.apache.hudi.avro.model.SimpleHashMeta",
        ["int", "null"],
    )
    assert [(field["name"], field["type"]) for field in info["fields"]] == [
        ("bucketNumber", ["null", "int"]),
        ("instant", ["null", "string"]),
    ]


def test_a_rescale_a_drop_and_a_restore_tell_the_counts_that_they_leave(job: work.Job, world: work.World) -> None:
    upsert(job, "one", A, k0=1, k1=1)
    partition(job.begin("upsert", "two"), B, 2)
    work.rescale(job, "more", A, 3)
    assert hashing_config.read_meta(job.store.get(files(world, "meta")[-1]))[A][0] == 3
    job.begin("drop", "drop").commit((DropPartition(B),), writes=(Write(partition_scope(B), "replace"),))
    assert hashing_config.read_meta(job.store.get(files(world, "meta")[-1])).keys() == {A}
    restore(job.timeline, 2, txn_id="back")
    recorded = hashing_config.read_meta(job.store.get(files(world, "meta")[-1]))
    assert {path: count for path, (count, _) in recorded.items()} == counts(job) == {A: 2, B: 2}


def test_configs_hold_all_history_under_the_instants_of_their_commits(job: work.Job, world: work.World) -> None:
    one = configure(job, "one", 8, r"\d{1,2},16")
    two = configure(job, "two", 4)
    path = f"_index/hashing/config/{two}.hashing_config"
    assert list(job.timeline.refresh().config_paths) == [FIRST, one, two]
    assert config(job, path) == {
        FIRST: {"expression": "", "rule": "regex", "default": work.BUCKETS},
        one: {"expression": r"\d{1,2},16", "rule": "regex", "default": 8},
        two: {"expression": "", "rule": "regex", "default": 4},
    }
    assert list(config(job, path)) == [two, one, FIRST]
    assert hashing_config.read_config(job.store.get(path)) == tuple(job.timeline.head.configs)


def test_rules_taken_back_are_gone_from_the_state_and_from_the_next_config(job: work.Job, world: work.World) -> None:
    one, two = configure(job, "one", 8), configure(job, "two", 4)
    back = job.begin("rescale", "back").commit((DropHashingConfig(two),), writes=(Write(CONFIG_SCOPE, "replace"),))
    assert [entry.instant for entry in Timeline.load(job.store).head.configs] == [FIRST, one]
    assert config(job, f"_index/hashing/config/{back.instant}.hashing_config").keys() == {FIRST, one}


def test_two_writers_with_different_rules_for_one_partition_the_second_hears_both_counts(job: work.Job) -> None:
    slow = job.begin("upsert", "slow")
    configure(job, "rules", 16)
    partition(job.begin("upsert", "quick"), A, 16)
    with pytest.raises(
        BucketCountMismatch, match=r"quick.* 16 buckets in version 2; .*slow.* with 8.*Nothing was"
    ) as e:
        partition(slow, A, 8)
    assert "Run it again" in str(e.value)
    assert counts(job) == {A: 16}


def test_a_rescale_that_a_writer_overtook_hears_of_the_writer_and_not_of_counts(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    slow = job.begin("rescale", "slow")
    upsert(job, "two", A, k0=2)
    with pytest.raises(ConcurrentWrite, match=r"two.*has changed"):
        slow.commit((PutPartition(A, 5),), writes=(Write(partition_scope(A), "replace"),))


def test_an_overwrite_that_would_create_a_partition_with_another_count_hears_both(job: work.Job) -> None:
    slow = job.begin("insert_overwrite", "slow")
    partition(job.begin("upsert", "quick"), A, 16)
    with pytest.raises(BucketCountMismatch, match=r"with 16 buckets in version 1; .*slow.* with 8"):
        slow.commit((PutPartition(A, 8),), reads=(CONFIG_SCOPE,), writes=(Write(partition_scope(A), "replace"),))


def test_a_commit_that_was_overtaken_names_a_meta_with_the_partitions_of_both(job: work.Job, world: work.World) -> None:
    other = new_job(world)
    overtaken: list[str] = []

    def gate(verb: str, key: str) -> str:
        if verb == "create" and "/timeline/" in key and not overtaken:
            overtaken.append(key)
            partition(other.begin("upsert", "quick"), B, 5)
        return OK

    job.store = SimulatedStore(world.objects, gate)
    job.timeline = Timeline.load(job.store, lambda: world.objects.now)
    receipt = partition(job.begin("upsert", "slow"), A, 7)

    assert receipt.version == 2
    own = f"_index/hashing/meta/{receipt.instant}.hashing_meta"
    assert job.timeline.refresh().meta_paths[-1] == own
    assert hashing_config.read_meta(job.store.get(own)) == {
        A: (7, receipt.instant),
        B: (5, job.timeline.read(1).instant),
    }
    # What the overtaken try had written is named by nobody; the cleaner takes it.
    assert len(files(world, "meta")) == 3
    work.clean(job, "clean", 99, 0.0, 1e9)
    assert files(world, "meta") == job.timeline.refresh().meta_paths


def test_a_file_of_one_who_may_still_name_it_is_not_cleaned_away(job: work.Job, world: work.World) -> None:
    upsert(job, "one", A, k0=1)
    later = "_index/hashing/meta/20990101000000000.hashing_meta"
    job.store.put(later, b"of a commit that is about to be made")
    work.clean(job, "clean", 99, 0.0, 1e9)
    assert later in files(world, "meta")


@pytest.mark.parametrize("fault", [ERROR_BEFORE, ERROR_AFTER])
def test_errors_while_the_files_are_written_leave_a_commit_with_them(
    job: work.Job, world: work.World, fault: str
) -> None:
    faults = [fault, fault]
    gate = lambda verb, key: faults.pop() if verb == "create" and FOLDER in key and faults else OK  # noqa: E731
    job.store = SimulatedStore(world.objects, gate)
    job.timeline = Timeline.load(job.store, lambda: world.objects.now)
    job.timeline.sleep = lambda seconds: None
    partition(job.begin("upsert", "w"), A, 7)
    assert hashing_config.read_meta(job.store.get(job.timeline.refresh().meta_paths[-1]))[A][0] == 7


def test_older_configs_and_metas_are_archived_and_counts_of_their_time_stay_readable(
    job: work.Job, world: work.World
) -> None:
    versions = {}
    for number in range(14):
        configure(job, f"c{number}", number + 1)
        receipt = partition(job.begin("upsert", f"w{number}"), f"p={number}", number + 1)
        versions[receipt.version] = number
    state = job.timeline.refresh()
    assert files(world, "config") == list(state.config_paths.values())
    assert files(world, "meta") == state.meta_paths
    assert [len(files(world, name)) for name in ("config", "meta", "archive/config", "archive/meta")] == [5, 10, 10, 4]
    for version, number in versions.items():
        then = job.timeline.at(version)
        assert {path: entry.buckets for path, entry in then.partitions.items()} == {
            f"p={n}": n + 1 for n in range(number + 1)
        }
        assert then.configs[-1].default == number + 1
        path = then.meta_paths[-1]
        kept = path if path in world.objects.bodies else hashing_config.archived(path)
        assert {path: count for path, (count, _) in hashing_config.read_meta(job.store.get(kept)).items()} == {
            path: entry.buckets for path, entry in then.partitions.items()
        }


def test_what_could_not_be_archived_is_archived_by_the_cleaner(job: work.Job, world: work.World) -> None:
    gate = lambda verb, key: ERROR_BEFORE if verb == "put" and "archive" in key else OK  # noqa: E731
    job.store = SimulatedStore(world.objects, gate)
    job.timeline = Timeline.load(job.store, lambda: world.objects.now)
    for number in range(7):
        configure(job, f"c{number}", number + 1)
    assert len(files(world, "config")) == 8
    work.clean(new_job(world), "clean", 99, 0.0, 1e9)
    assert (len(files(world, "config")), len(files(world, "archive/config"))) == (5, 3)


# --- creation -------------------------------------------------------------------------------------------------------

DEFINITION = TableDefinition("t", (Field("k", "string"),), ("k",))


def make(store: Any, default: int, txn: str) -> Timeline:
    return create_table(store, DEFINITION, [PutHashingConfig(HashingConfig("", default))], txn_id=txn)[0]


def test_the_first_config_is_named_by_zeros_and_stands_before_the_table_does() -> None:
    world = work.World(created=False)
    gate = lambda verb, key: ERROR_BEFORE if "/timeline/" in key and verb == "create" else OK  # noqa: E731
    down = Timeline(SimulatedStore(world.objects, gate))
    down.sleep = lambda seconds: None
    with pytest.raises(CommitStateUnknown):
        create_table(down.store, DEFINITION, [PutHashingConfig(HashingConfig("", 8))], txn_id="crashed", timeline=down)
    assert files(world, "config") == [f"_index/hashing/config/{'0' * 17}.hashing_config"]
    with pytest.raises(TableNotFound):  # what a crashed creation leaves is no table that lost its log
        Timeline.load(SimulatedStore(world.objects))

    timeline = make(SimulatedStore(world.objects), 8, "again")
    assert timeline.head.config_paths == {"0" * 17: f"_index/hashing/config/{'0' * 17}.hashing_config"}


def test_of_two_creators_the_table_names_the_config_of_the_one_that_made_it() -> None:
    world = work.World(created=False)
    raced: list[Timeline] = []

    def gate(verb: str, key: str) -> str:
        if verb == "create" and "/timeline/" in key and not raced:
            raced.append(make(SimulatedStore(world.objects), 9, "quick"))
        return OK

    with pytest.raises(Exception, match="There is a table"):
        make(SimulatedStore(world.objects, gate), 8, "slow")
    timeline = Timeline.load(SimulatedStore(world.objects))
    (path,) = timeline.head.config_paths.values()
    assert [entry.default for entry in hashing_config.read_config(timeline.store.get(path))] == [9]


def test_a_table_made_where_one_was_dropped_begins_with_its_own_rules(tmp_path: Any) -> None:
    store = Store(tmp_path)
    timeline = make(store, 8, "first")
    work.Job(work.World(), store, timeline).begin("drop", "drop").commit(
        (DropTable(),), writes=(Write(table_scope(), "replace"),)
    )
    again = make(store, 3, "second")
    (entry,) = again.head.configs
    assert (entry.default, entry.instant) == (3, again.head.instant)
    assert hashing_config.read_config(store.get(list(again.head.config_paths.values())[-1])) == (entry,)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"1": {}}', b'{"1": 5}', pytest.param(b"[" * 100_000, id="deep")])
def test_what_is_no_config_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRule, match="not a hashing config"):
        hashing_config.read_config(body)


def test_what_is_no_meta_is_refused() -> None:
    for body in (b"", b"Obj", b"PAR1", hashing_config.meta_body({})[:-20]):
        with pytest.raises(LogDamaged, match="not a hashing meta"):
            hashing_config.read_meta(body)


def test_a_name_that_is_taken_in_the_last_millisecond_of_a_minute_is_given_up_for_the_next_minute(
    job: work.Job, world: work.World
) -> None:
    world.objects.now = datetime(2026, 11, 20, 23, 59, 59, 999000, UTC).timestamp()
    for kind in ("config", "meta"):
        job.store.put(f"_index/hashing/{kind}/20261120235959999.hashing_{kind}", b"of a writer that was overtaken")

    upsert(job, "one", k0=1)

    assert job.timeline.head.instant == "20261121000000000"
    assert job.timeline.head.meta_paths == ["_index/hashing/meta/20261121000000000.hashing_meta"]
    assert seconds_of(job.timeline.head.instant) > 0
