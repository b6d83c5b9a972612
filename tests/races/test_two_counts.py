"""Two processes whose rules say different counts make the same partitions at the same moment: of each pair one gets in,
the other hears both counts, and the files for other engines say what the log says."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import fastavro
import pytest

from spark_apps.storage.errors import BucketCountMismatch, ConcurrentWrite
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import CONFIG_SCOPE, Field, PutPartition, TableDefinition, Write, group_scope
from spark_apps.timeline.transactions import begin

ROUNDS = 15
COUNTS = (4, 16)


def writer(uri: str, count: int, barrier: Any, queue: Any) -> None:
    """Makes one partition a round, all of them with its own count."""
    timeline = Timeline.load(Store(uri))
    for number in range(ROUNDS):
        transaction = begin(timeline, operation="upsert", txn_id=f"writer{count}.{number}")
        path = f"p={number}"
        barrier.wait(60)
        try:
            transaction.commit(
                (PutPartition(path, count),), reads=(CONFIG_SCOPE,), writes=(Write(group_scope(path, "0")),)
            )
            queue.put((number, count, ""))
        except (BucketCountMismatch, ConcurrentWrite) as error:
            queue.put((number, count, str(error)))


@pytest.mark.timeout(120)
def test_of_two_counts_for_a_partition_one_gets_in_and_the_other_hears_both(tmp_path: Path) -> None:
    store = Store(tmp_path / "table")
    create_table(store, TableDefinition("t", (Field("k", "string"),), ("k",)))
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    racers = [context.Process(target=writer, args=(store.uri, count, barrier, queue)) for count in COUNTS]
    for racer in racers:
        racer.start()
    try:
        answers = [queue.get(timeout=60) for _ in range(2 * ROUNDS)]
    finally:
        for racer in racers:
            racer.join(10)
            racer.kill()
    state = Timeline.load(store).head
    for number in range(ROUNDS):
        errors = {count: error for partition, count, error in answers if partition == number}
        (winner,) = (count for count in COUNTS if not errors[count])
        (loser,) = set(COUNTS) - {winner}
        assert state.partitions[f"p={number}"].buckets == winner
        assert f"with {winner} buckets" in errors[loser]
        assert f"with {loser}." in errors[loser]
        assert "Nothing was changed" in errors[loser]
    with (tmp_path / "table" / state.meta_paths[-1]).open("rb") as opened:
        (record,) = fastavro.reader(opened)
    counts = {path: info["bucketNumber"] for path, info in record["partitionMeta"].items()}
    assert counts == {path: entry.buckets for path, entry in state.partitions.items()}
