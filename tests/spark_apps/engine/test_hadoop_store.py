"""A table behind a mount of ``viewfs``: its log by Hadoop's own Java, its rows by Spark.

``python -m tests.hadoop`` asks more, on a file system that is like HDFS too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.engine.hadoop_store import reach
from spark_apps.storage import store as stores
from spark_apps.storage.errors import InvalidInput, InvalidName, LeadsOutside, ObjectExists, ObjectNotFound
from spark_apps.storage.store import Store
from tests.spark_apps.storage import test_store as calls

pytestmark = pytest.mark.spark


@pytest.fixture
def mount(spark: Any, tmp_path: Path) -> Iterator[str]:
    """The address of a mount that leads to a folder of the test."""
    name = f"m{abs(hash(tmp_path)) % 10**8}"
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    link = f"fs.viewfs.mounttable.{name}.link./lake"
    conf.set(link, f"file://{tmp_path}")
    reach(spark, f"viewfs://{name}/lake")
    yield f"viewfs://{name}/lake"
    conf.unset(link)
    stores._FOR_HADOOP.clear()


def test_given_a_mount_then_the_calls_do_what_they_do_on_other_stores(mount: str, tmp_path: Path) -> None:
    calls.test_what_was_written_is_read(Store(f"{mount}/a"))
    calls.test_of_two_creations_the_first_wins(Store(f"{mount}/b"))
    calls.test_what_is_not_there_is_told(Store(f"{mount}/c"))
    calls.test_a_listing_is_sorted_complete_and_of_the_folder_only(Store(f"{mount}/d"))
    store = Store(f"{mount}/e")
    store.create("p=a b/ü%20#.x", b"abc")

    assert (tmp_path / "e" / "p=a b" / "ü%20#.x").read_bytes() == b"abc"
    assert store.folders() == ["p=a b"] and store.below("p=a b").get("ü%20#.x") == b"abc"
    assert [path.name for path in (tmp_path / "e" / "p=a b").iterdir()] == ["ü%20#.x"]
    with pytest.raises(LeadsOutside):
        store.get("../a/b")
    with pytest.raises(InvalidInput, match="takes none: region"):
        Store(mount, {"region": "x"}).get("e")
    with pytest.raises(ObjectNotFound, match="e/p=a b does not exist"):
        store.get("p=a b")


@pytest.mark.by_turn(8)
def test_given_creations_at_once_then_one_wins_and_nobody_sees_a_part(mount: str) -> None:
    store, winners, parts = Store(mount), [], []

    def race(body: bytes) -> None:
        for number in range(10):
            try:
                store.create(f"race/{number}", body)
                winners.append(number)
            except ObjectExists:
                seen = store.get(f"race/{number}")
                if len(set(seen)) != 1 or len(seen) != 200_000:
                    parts.append(len(seen))

    threads = [threading.Thread(target=race, args=(bytes([65 + number]) * 200_000,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(winners) == list(range(10)) and parts == []


# Hadoop starts a process for the permissions of each file on a disk, which takes most of the time.
@pytest.mark.by_turn(16)
def test_given_a_table_there_then_it_lives_as_elsewhere(spark: Any, mount: str) -> None:
    table = IndexedTable.create(spark, f"{mount}/db/t", "id bigint, city string, n int", ["id"], ["city"], buckets=2)
    table.create_index("by_n", "secondary", ["n"])
    rows = spark.range(40).selectExpr("id", "concat('a b/', id % 3) AS city", "cast(id AS int) AS n")
    table.upsert(rows)
    table.upsert(rows.where("id < 10").selectExpr("id", "city", "n + 100 AS n"))

    assert [tuple(row) for row in table.read("n = 105", ["id", "city"]).collect()] == [(5, "a b/2")]
    table.compact()
    again = IndexedTable.load(spark, f"{mount}/db/t")
    assert again.verify("by_n").ok and again.read("n = 5").count() == 0 and again.read().count() == 40


def test_given_no_session_that_opened_it_then_the_location_is_refused_with_the_reason() -> None:
    assert stores._FOR_HADOOP == []
    for uri in ("hdfs://names/lake", "viewfs://lake/x"):
        with pytest.raises(InvalidName, match=r"Hadoop.s Java alone reaches.*Airflow task"):
            Store(uri)
