"""Tables on file systems of Hadoop: ``python -m tests.hadoop``, a process whose Spark has them (``session.py``).

The store's calls on ``hdfs://`` and on both mounts of ``viewfs://``, the check of the storage, random histories of
tables (``HISTORIES``, 2 on each; ``SEEDS``), and processes that race on one log, each with a Java of its own
(``RACERS``, 3).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from spark_apps import IndexedTable
from spark_apps.engine.hadoop_store import reach
from spark_apps.jobs.job import Job
from spark_apps.programs.check_storage import check_storage
from spark_apps.storage.errors import InvalidInput, ObjectTooLarge, UnsupportedSource
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition
from tests.differential.keyed import Keyed
from tests.differential.session import small
from tests.differential.tally import Tally
from tests.hadoop.session import NAME_NODE, session
from tests.spark_apps.storage import test_store as calls

RACERS = int(os.environ.get("RACERS", "3"))
COMMITS = int(os.environ.get("COMMITS", "8"))
_CALLS: tuple[Callable[[Store], None], ...] = (
    calls.test_what_was_written_is_read,
    calls.test_of_two_creations_the_first_wins,
    calls.test_what_is_not_there_is_told,
    calls.test_a_listing_is_sorted_complete_and_of_the_folder_only,
    calls.test_a_store_can_be_handed_to_another_process,
)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def locations(folder: Path) -> dict[str, str]:
    """The three ways in which a table can be on a file system of Hadoop here."""
    return {
        "hdfs": f"{NAME_NODE}{folder}/names",
        "viewfs to hdfs": "viewfs://lake/hdfs",
        "viewfs to a disk": "viewfs://lake/disk",
    }


def check_calls(where: str, root: str) -> None:
    """What the tests of all stores hold, and what is of Hadoop alone."""
    for number, check in enumerate(_CALLS):
        check(Store(f"{root}/calls{number}"))
    store = Store(f"{root}/more")
    assert store.below("x").uri == f"{root}/more/x" and store.spark_path("a b") == f"{root}/more/a b"
    keys = ["p=a b/%20.parquet", "p=ü#?/[x]{y}*.parquet", "p=1/deep/er/file"]
    for key in keys:
        store.create(key, key.encode())
        assert store.get(key) == key.encode() and store.get_range(key, 1, 3) == key.encode()[1:3]
    assert [info.key for info in store.list("")] == sorted(keys)
    assert store.folders() == sorted({key.partition("/")[0] for key in keys})
    assert store.list("p=1/deep/er/file") == [] and store.head("p=1/deep") is None
    with pytest.raises(ObjectTooLarge):
        store.get(keys[0], most=3)
    store.put("empty", b"")
    assert store.get("empty") == b"" and store.get("empty", most=0) == b""
    store.delete(["p=1", "p=1/deep/er/file", "not/there"])
    assert store.head("p=1/deep/er/file") is None
    large = os.urandom(5_000_000)
    store.put("large", large)
    assert store.get("large") == large
    with pytest.raises(InvalidInput, match="takes none: region"):
        Store(root, {"region": "x"}).list("")
    say(f"{where}: {len(_CALLS)} tests of all stores, and names, ranges and sizes")


def check_both(spark: Any, where: str, root: str) -> None:
    """The log's side and Spark see what the other wrote."""
    reaches = list(check_storage(spark, Job("check_storage", f"{root}/check")).value)
    failed = [one for one in reaches if not one["ok"]]
    assert not failed and {one["stack"] for one in reaches} == {"Hadoop", "Spark"}, failed
    say(f"{where}: the check of the storage: {len(reaches)} of {len(reaches)} ok")


def check_histories(spark: Any, where: str, root: str, seeds: list[int], tally: Tally) -> None:
    """Random histories of tables, each answer compared with another engine's."""
    for seed in seeds:
        begun = time.monotonic()
        with small(spark, compiled=False, row_groups=seed % 2 and 5):
            Keyed(spark, f"{root}/{seed}/lake/table", seed, tally, steps=3, plain=0.5).run()
        say(f"{where}: seed {seed}: {time.monotonic() - begun:.1f} s")


def check_refusals(spark: Any, folder: Path, root: str) -> None:
    """What cannot be done there says so: Python workers, registered sources, and stores of unknown renames."""
    table = IndexedTable.create(spark, f"{root}/refusing/t", "id bigint, n int", ["id"])
    table.upsert(spark.sql("SELECT 1L AS id, 2 AS n"))
    assert [tuple(row) for row in table.read().collect()] == [(1, 2)]
    from spark_apps.datasource import IndexedDataSource

    spark.dataSource.register(IndexedDataSource)
    with pytest.raises(PySparkException, match="Hadoop's Java alone reaches"):
        spark.read.format("indexed").load(table.uri).collect()
    spark.range(3).write.parquet(f"{root}/refusing/rows")
    with pytest.raises(UnsupportedSource, match="file system of Hadoop"):
        IndexedTable.register(spark, f"{root}/refusing/rows")
    answer = subprocess.run(
        [sys.executable, "-c", f"from spark_apps.storage.store import Store; Store({table.uri!r})"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert answer.returncode and "this process has no Spark session" in answer.stderr
    say("refused: the data source in Python workers, a registered source, a process without Spark")


def check_race(where: str, root: str, folder: Path) -> None:
    """Processes commit to one log as fast as they can: no version is lost, none written twice."""
    store = Store(f"{root}/race")
    create_table(store, TableDefinition("t", (Field("k", "string"),), ("k",)), txn_id="create")
    command = [sys.executable, "-m", "tests.hadoop.racing", str(folder), store.uri]
    racers = [
        subprocess.Popen([*command, f"writer{number}", str(COMMITS)], stdout=subprocess.PIPE, text=True)
        for number in range(RACERS)
    ]
    end = time.monotonic() + 180
    while len(store.list("ready")) < RACERS:
        assert time.monotonic() < end and all(racer.poll() is None for racer in racers), "The processes do not start."
        time.sleep(0.1)
    store.put("go", b"")
    versions: dict[str, int] = {}
    for racer in racers:
        versions |= json.loads(racer.communicate(timeout=180)[0].splitlines()[-1])
    log = list(Timeline.load(store).commits())
    assert [commit.version for commit in log] == list(range(1 + RACERS * COMMITS))
    assert {commit.txn_id: commit.version for commit in log[1:]} == versions
    assert len(Timeline.load(store).head.files(DATA_TREE)) == RACERS * COMMITS
    say(f"{where}: {RACERS} processes x {COMMITS} commits: {len(log) - 1} versions, each once")


def main() -> int:
    given = os.environ.get("SEEDS")
    every = [seed for seed in range(1_000) if seed % 3 != 2][: int(os.environ.get("HISTORIES", "2"))]
    seeds = [int(text) for text in given.split(",")] if given else every
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="hadoop") as made:
        folder = Path(made)
        spark = session(folder)
        for where, root in locations(folder).items():
            reach(spark, root)
            check_calls(where, root)
            check_both(spark, where, root)
            check_histories(spark, where, root, seeds, tally)
            if where != "viewfs to hdfs":
                check_race(where, root, folder)
        check_refusals(spark, folder, locations(folder)["hdfs"])
        spark.stop()
    say(f"{tally}\n{3 * len(seeds)} histories agree on file systems of Hadoop, seeds {seeds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
