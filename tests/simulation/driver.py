"""A driver in a process of its own, to be killed: ``python -m tests.simulation.driver <table> <work> <txn id>``.

It says ``ready``, waits for a line, does the work and says ``done``. With ``PYSPARK_GATEWAY_PORT`` in its environment
it works in the JVM that listens there, which then outlives it; else it starts one. The line it waits for tells at which
of its calls to the store it kills itself, if it is to.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from spark_apps import IndexedTable
from spark_apps.storage.store import Store
from tests.spark.local import local_session

COLUMNS = "id bigint, p string, city string, n int"
CALLS = ("get", "get_range", "head", "put", "create", "list", "delete")


def prepare(spark: Any, path: Any) -> IndexedTable:
    """Rows in three partitions, some merged from deltas, with an index of either kind."""
    table = IndexedTable.create(spark, path, COLUMNS, ["id"], partition_by=["p"], buckets=2, txn_id="create")
    table.upsert(rows(spark, "id", "0, 120"))
    table.create_index("rec", "record")
    table.create_index("city", "secondary", ["city"])
    table.upsert(rows(spark, "id + 1", "100, 140"))
    table.delete(spark.range(0, 10))
    return table


def rows(spark: Any, n: str, ids: str) -> Any:
    return spark.sql(f"SELECT id, concat('p', id % 3) p, concat('c', {n} % 7) city, int({n}) n FROM range({ids})")


def _upsert(table: IndexedTable, txn_id: str) -> None:
    # New rows, others with another value, and some that move to another partition.
    changed = rows(table._handle.spark, "id * 3", "60, 200")
    table.upsert(changed.selectExpr("id", "if(id % 10 = 0, 'p9', p) p", "city", "n"), txn_id=txn_id)


WORK: dict[str, Callable[[IndexedTable, str], object]] = {
    "upsert": _upsert,
    "build": lambda table, txn_id: table.create_index("n", "secondary", ["n"], txn_id=txn_id),
    "compact": lambda table, txn_id: table.compact(txn_id=txn_id),
    "rescale": lambda table, txn_id: table.rescale(3, txn_id=txn_id),
}


def session() -> Any:
    """A session in the JVM that is there already, or in one of its own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return local_session(quiet="OFF")
    gateway = launch_gateway()
    there = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    conf = SparkConf(_jvm=gateway.jvm, _jconf=there.conf())
    context = SparkContext(conf=conf, gateway=gateway, jsc=gateway.jvm.JavaSparkContext(there))
    return SparkSession(context).newSession()


class Calls:
    """Counts the calls to the store, and ends the process by -9 before or after one of them."""

    def __init__(self, at: int | None, after: bool) -> None:
        self.made = 0
        self.at, self.after = at, after

    def count(self) -> None:
        for verb in CALLS:
            setattr(Store, verb, self._counting(getattr(Store, verb)))

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.made += 1
            here = self.made == self.at
            if here and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **kwargs)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def main() -> None:
    uri, work, txn_id = sys.argv[1:]
    table = IndexedTable.load(session(), uri)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    command = sys.stdin.readline().split()
    calls = Calls(int(command[0]) if command else None, command[1:] == ["after"])
    calls.count()
    WORK[work](table, txn_id)
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
