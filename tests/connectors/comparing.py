"""Queries that are run with indexes and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.actions.source_diff import difference
from spark_apps.optimizer.rewriting import Rewriter, ScanDecision
from spark_apps.sources.registry import open_source
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.spark_apps.small_tables import in_order


def compared(spark: Any, query: Any, *sources: str) -> list[tuple[int, int] | None]:
    """Run a query with indexes and without, and return how many files each scan has and keeps.

    ``None`` for a scan that all files are left to.
    """
    return [scan.scanned for scan in decided(spark, query, *sources)]


def compared_held(spark: Any, query: Any, *sources: str) -> list[tuple[int, int, int] | None]:
    """Do as :func:`compared`, and return of how many files the rows come from an index, too."""
    return [scan.scanned and (*scan.scanned, scan.held) for scan in decided(spark, query, *sources)]


def decided(spark: Any, query: Any, *sources: str) -> list[ScanDecision]:
    """Run a query with indexes and without, and return what was decided on its scans."""
    frame = (lambda: spark.sql(query)) if isinstance(query, str) else query
    spark_apps.disable(spark)
    expected = in_order(frame().collect())
    spark_apps.enable(spark, sources=sources)
    try:
        scans = spark_apps.explain(frame()).scans
        assert in_order(frame().collect()) == expected
    finally:
        spark_apps.disable(spark)
    for scan in scans:  # shown where a test fails
        unused = {} if scan.plan is None else {name: why.reason for name, why in scan.plan.not_used.items()}
        print(scan.scanned, scan.held, scan.reason, scan.keys, unused)  # noqa: T201
    assert not any(scan.failed for scan in scans), [scan.reason for scan in scans]
    return list(scans)


def compared_joins(spark: Any, name: str, key: Callable[[int], int], *sources: str) -> list[tuple[int, int] | None]:
    """Do as :func:`compared` for two joins of a table, each with other keys: if their scans were equal, Spark would
    take the exchange of one for the other's."""
    sides = [", ".join(f"({key(row)}L)" for row in rows) for rows in ((17, 1517), (907, 1107))]
    query = " UNION ALL ".join(
        f"SELECT t.id, t.n FROM {name} t JOIN (VALUES {side}) k(key) ON t.key = k.key" for side in sides
    )
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        return compared(spark, query, *sources)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def unlike_its_list(spark: Any, address: str) -> list[Any]:
    """Return how the files that a log of indexes has of its source differ from the source's list of all files."""
    log = IndexedTable.load(spark, address).uri
    state = Timeline.load(Store(log)).head
    return difference(state, open_source(state.table, None, log, spark).listing())


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is decided on scans from now on."""
    seen: list[Any] = []
    settle = Rewriter._settle

    def settled(self: Any, request: Any, number: int, scan: Any, query: Any, keys: Any) -> None:
        before = len(query.decisions)
        settle(self, request, number, scan, query, keys)
        seen.extend(query.decisions[before:])

    monkeypatch.setattr(Rewriter, "_settle", settled)
    return seen


@dataclass(frozen=True)
class Learned:
    """What it took to learn of a change: calls and bytes, beside the bytes of a list of all files.

    :param added: how many files came.
    """

    added: int
    calls: int
    bytes: int
    of_list: int


def learning(spark: Any, table: IndexedTable, followed: Callable[[Any], None] = lambda source: None) -> Learned:
    """Return what the log of a source says, and what that took.

    :param followed: is given the source when it has said it, and before all files are listed.
    """
    state = Timeline.load(Store(table.uri)).head
    source = open_source(state.table, None, table.uri, spark)
    files = spark.sparkContext._jvm.org.apache.hadoop.fs.FileSystem

    def read() -> tuple[int, int]:
        each = [one for one in files.getAllStatistics() if one.getScheme() == "file"]
        return sum(one.getReadOps() for one in each), sum(one.getBytesRead() for one in each)

    before = read()
    found = source.changes(state)  # type: ignore[attr-defined]
    after = read()
    followed(source)
    source.listing()
    return Learned(len(found.added), after[0] - before[0], after[1] - before[1], read()[1] - after[1])
