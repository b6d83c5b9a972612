"""Micro-batches of a stream: each is committed once, also where the driver dies before Spark notes that it was."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable
from spark_apps.storage.errors import EnvironmentMismatch, InvalidName, StopWriteWindowOpen
from spark_apps.timeline.model import Receipt

pytestmark = pytest.mark.by_turn(12)

_DRIVER = """
import os, signal, sys
from tests.spark.local import local_session
from tests.spark_apps.test_streaming import write_stream
from spark_apps import IndexedTable

folder = sys.argv[1]
spark = local_session(memory="1g")
upsert = IndexedTable.load(spark, folder + "/t").upsert_batch("orders")

def write(rows, batch_id):
    upsert(rows, batch_id)
    if batch_id == 1:
        os.kill(os.getpid(), signal.SIGKILL)

write_stream(spark, folder, write)
"""


def write_stream(spark: SparkSession, folder: Any, write: Any) -> None:
    read = spark.readStream.schema("id bigint, n int").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    stream = read.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    IndexedTable.create(spark, tmp_path / "t", "id bigint, n int", ["id"], buckets=1)
    land(spark, tmp_path, 0, [(1, 0), (2, 0)])
    return tmp_path


def land(spark: SparkSession, folder: Path, number: int, rows: list[tuple[int, int]]) -> None:
    frame = spark.createDataFrame(rows, "id bigint, n int").coalesce(1)
    frame.write.parquet(str(folder / "landing" / str(number)))
    [part] = (folder / "landing" / str(number)).glob("part-*")
    (folder / "in").mkdir(exist_ok=True)
    part.rename(folder / "in" / f"{number}.parquet")


def batches(folder: Path, spark: SparkSession) -> list[str]:
    history = IndexedTable.load(spark, folder / "t").history()
    return [entry.txn_id for entry in history if entry.operation == "upsert"]


def test_given_a_driver_killed_between_commit_and_checkpoint_then_its_batch_is_not_written_again(
    spark: SparkSession, folder: Path
) -> None:
    land(spark, folder, 1, [(2, 1), (3, 1)])
    driver = subprocess.run([sys.executable, "-c", _DRIVER, str(folder)], capture_output=True, timeout=120, check=False)
    assert driver.returncode == -signal.SIGKILL, driver.stderr[-3000:]
    assert sorted(path.name for path in (folder / "checkpoint/commits").glob("[0-9]*")) == ["0"]
    first, second = batches(folder, spark)

    written: list[Receipt] = []
    land(spark, folder, 2, [(3, 2)])
    upsert = IndexedTable.load(spark, folder / "t").upsert_batch("orders")
    write_stream(spark, folder, lambda rows, batch_id: written.append(upsert(rows, batch_id)))

    query = first.split(".")[1]
    assert [first, second] == [f"orders.{query}.{number}" for number in (0, 1)]
    assert batches(folder, spark) == [first, second, f"orders.{query}.2"]
    assert [receipt.txn_id for receipt in written] == [second, f"orders.{query}.2"]
    rows = IndexedTable.load(spark, folder / "t").read().collect()
    assert sorted(map(tuple, rows)) == [(1, 0), (2, 1), (3, 2)]


def test_given_a_batch_that_is_refused_then_the_query_ends_and_the_next_start_writes_it(
    spark: SparkSession, folder: Path
) -> None:
    table = IndexedTable.load(spark, folder / "t")
    window = table.open_window("nightly")
    refused: list[Exception] = []

    def write(rows: Any, batch_id: int) -> None:
        try:
            table.upsert_batch("orders")(rows, batch_id)
        except Exception as error:
            refused.append(error)
            raise

    with pytest.raises(Exception, match="StopWriteWindowOpen"):
        write_stream(spark, folder, write)
    assert isinstance(refused[0], StopWriteWindowOpen)
    table.close_window(window.epoch)
    write_stream(spark, folder, write)

    assert len(batches(folder, spark)) == 1
    assert IndexedTable.load(spark, folder / "t").read().count() == 2


@pytest.mark.by_turn(1)
def test_given_no_query_then_its_id_is_asked_for(spark: SparkSession, folder: Path) -> None:
    table = IndexedTable.load(spark, folder / "t")
    rows = spark.createDataFrame([(7, 7)], "id bigint, n int")
    with pytest.raises(EnvironmentMismatch, match="query_id"):
        table.upsert_batch("orders")(rows, 0)
    with pytest.raises(InvalidName, match="transaction id"):
        table.upsert_batch("my orders")

    first = table.upsert_batch("orders", query_id="by-hand")(rows, 0)
    assert table.upsert_batch("orders", query_id="by-hand")(rows, 0) == first
    assert first.txn_id == "orders.by-hand.0"
