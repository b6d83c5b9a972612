"""Turns the use of indexes by plain queries on and off for a session, and explains what queries read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.spark_utils import over_connect, session_id
from spark_apps.mergetree.schema import struct_type
from spark_apps.optimizer.rewriting import Rewriter, ScanDecision
from spark_apps.optimizer.rule import InstalledRule
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput
from spark_apps.storage.printing import Grid, Printed, View, counted, size
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.reader_roots import is_below

if TYPE_CHECKING:
    from spark_apps.actions.template import TableHandle
    from spark_apps.timeline.locations import Warehouse
    from spark_apps.timeline.state import State

logger = logging.getLogger(__name__)

_TURNED_ON = (
    "spark.sql.bucketing.coalesceBucketsInJoin.enabled",
    "spark.sql.legacy.bucketedTableScan.outputOrdering",
)
"""Turned on where nobody has set them: Spark then joins buckets whose counts are multiples without a shuffle, and sorts
no bucket again that is one file, which was written sorted."""

_ENABLED: dict[str, tuple[Rewriter, InstalledRule]] = {}
_LOCK = RLock()


def enable(
    spark: SparkSession,
    warehouse: str | os.PathLike[str] | None = None,
    sources: Iterable[str | os.PathLike[str]] = (),
    options: Mapping[str, Any] | None = None,
) -> None:
    """Let every query of a session use indexes: SQL, DataFrames, views, subqueries, writes.

    From now on, a scan of a registered source anywhere in a query is planned as by ``IndexedTable.read``, and reads
    exactly the files that Spark would read. If it is called again, the new arguments apply. If it fails, the session
    is as it was before.

    :param warehouse: a folder of tables. They get names in SQL: ``lake.trips`` is the table ``trips`` in the folder
        ``lake``, at its newest version when a query is analyzed, or with ``VERSION AS OF`` or ``TIMESTAMP AS OF``.
        Sources registered below the folder are also known by their own address.
    :param sources: addresses of registered sources elsewhere, or of their logs. A source on a local disk whose log is
        beside it need not be named, if no more users may write to the log than to the source.
    :param options: options of the stores; see :class:`~spark_apps.storage.store.Store`. They are never written down.
    :raises EnvironmentMismatch: over Spark Connect, where no rule can run.
    :raises InvalidInput: if the session was stopped.
    :raises TableNotFound: if there is no log of one of the sources.
    :raises StorageError: if the warehouse cannot be listed.
    """
    _check_session(spark)
    for location in (warehouse, *sources):
        reach(spark, location)
    with _LOCK:
        rewriter = Rewriter(
            spark, None if warehouse is None else os.fspath(warehouse), [os.fspath(one) for one in sources], options
        )
        databases = rewriter.databases()
        known = _ENABLED.get(_key(spark))
        if known is not None:
            rewriter.has_set += known[0].has_set
        with ExitStack() as undo:
            rule = _install(spark, rewriter, databases, undo)
            undo.pop_all()
        _ENABLED[_key(spark)] = (rewriter, rule)
        if known is not None:
            known[1].remove()


def _install(spark: SparkSession, rewriter: Rewriter, databases: Sequence[str], undo: ExitStack) -> InstalledRule:
    """Put a rule into a session, with settings and names, and return it; ``undo`` takes all of them out again."""
    rule = rewriter.rule = InstalledRule(spark, rewriter.decide, rewriter.files)
    undo.callback(rule.undo)
    for name in databases:
        if not rule.catalog(name, rewriter.find):
            logger.warning(
                "The session has a catalog or database %s of its own, so tables of the warehouse's folder %s have "
                "no names in its SQL.",
                name,
                name,
            )
    for name in _TURNED_ON:
        # What is not set has a default.
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, "true")
            undo.callback(spark.conf.unset, name)
            rewriter.has_set.append(name)
    return rule


def disable(spark: SparkSession) -> None:
    """Let Spark plan the queries of a session as before; DataFrames of keyed tables can then no longer be read."""
    with _LOCK:
        known = _ENABLED.pop(_key(spark), None)
        if known is not None:
            known[1].remove()
            for name in known[0].has_set:
                spark.conf.unset(name)


def frame_of(handle: TableHandle, state: State) -> DataFrame:
    """Return a version of a table as a frame that is planned when it is used; the rule is put into its session."""
    spark = handle.spark
    _check_session(spark)
    with _LOCK:
        if _key(spark) not in _ENABLED:
            enable(spark)
        rewriter, rule = _ENABLED[_key(spark)]
    rewriter.adopt(handle)
    schema = struct_type(state.table.fields).json()
    size = sum(file.bytes for file in state.files(DATA_TREE))
    rows = rule.keyed_relation(schema, handle.timeline.store.uri, state.version, state.table.table_id, size)
    return DataFrame(rows, spark)


def enabled_warehouse(spark: SparkSession) -> Warehouse | None:
    """Return the warehouse that a session is enabled with, ``None`` if there is none."""
    known = _ENABLED.get(_key(spark))
    return None if known is None or known[0].warehouse.root is None else known[0].warehouse


def know(handle: TableHandle) -> None:
    """Let the queries of a session use the log that it has registered a source by, if that is in its warehouse."""
    warehouse = enabled_warehouse(handle.spark)
    root = None if warehouse is None else warehouse.root_store()
    if root is not None and is_below(handle.timeline.store.uri, root.uri):
        rewriter, rule = _ENABLED[_key(handle.spark)]
        rewriter.know(handle.timeline)
        rule.forget()


@contextmanager
def indexes_in_use(spark: SparkSession, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Let the queries of a session use indexes within the block; where they do already, or cannot, nothing changes."""
    if over_connect(spark) or _key(spark) in _ENABLED:
        yield
        return
    enable(spark, options=options)
    try:
        yield
    finally:
        disable(spark)


def usable(frame: DataFrame) -> DataFrame:
    """Return a frame of keyed tables whose session was not, or not any more, enabled when it was made."""
    spark = frame.sparkSession
    if not over_connect(spark) and _key(spark) not in _ENABLED:
        enable(spark)
    return frame


@dataclass(frozen=True, repr=False)
class QueryExplanation(Printed):
    """The explanation of a query: what it reads of each table that has indexes.

    :param scans: the scans of tables and registered sources, in the order in which they were decided.
    """

    scans: tuple[ScanDecision, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return {"scans": [scan.to_dict() for scan in self.scans]}

    def view(self) -> View:
        if not self.scans:
            return View("No scan of this query is of a registered source or a keyed table.")
        rows, unused, remarks = [], [], []
        for scan in self.scans:
            read = scan.explanation
            figures = (None,) * 5 if read is None else (
                read.index_used or "none", read.files_read, read.files_skipped,
                size(read.bytes_read), size(read.bytes_skipped),
            )  # fmt: skip
            rows.append((scan.address, "this plan" if scan.replaced else "left to Spark", *figures))
            if read is not None:
                unused += [(scan.address, name, why.code, why.reason) for name, why in read.not_used.items()]
            keys = scan.keys and f"keys of joins: {scan.keys}"
            kept = (
                scan.scanned
                and f"{scan.scanned[1]:,} of {scan.scanned[0]:,} files of its connector's own plan are read"
            )
            if kept and scan.held:
                kept += f" by it; the rows of {scan.held:,} come from indexes"
            remarks += [f"{scan.address}: {text}" for text in (scan.reason, scan.shuffle, keys, kept) if text]
        columns = ("scan", "read by", "index", "files read", "skipped", "bytes read", "skipped")
        grids = [Grid(columns, rows), Grid(("scan", "not used", "code", "why"), unused)]
        return View(counted(len(rows), "scan"), grids=grids, remarks=remarks)


def explain(query: DataFrame | str, spark: SparkSession | None = None) -> QueryExplanation:
    """Return what a query reads: for each scan its index, files and bytes, and why other indexes are not used.

    The query is planned, but not run.

    :param query: a DataFrame, or SQL.
    :param spark: the session for SQL; by default the active one.
    :raises InvalidInput: if indexes are not enabled in the session.
    """
    if isinstance(query, str):
        spark = spark or SparkSession.active()
        query = spark.sql(query)
    session: Any = query.sparkSession
    known = _ENABLED.get(_key(session))
    if known is None:
        raise InvalidInput("Queries of this session do not use indexes.", hint="Call spark_apps.enable(spark) first.")
    rewriter, rule = known
    frame: Any = query
    logical = frame._jdf.queryExecution().analyzed()
    skip = session.sparkContext._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    execution = session._jsparkSession.sessionState().executePlan(logical, skip)
    with rewriter.explained(rule.number_of(execution)) as decisions:
        execution.optimizedPlan()
    return QueryExplanation(tuple(decisions))


def _key(spark: SparkSession) -> str:
    return session_id(spark)


def _check_session(spark: SparkSession) -> None:
    if over_connect(spark):
        raise EnvironmentMismatch(
            "Spark Connect has no optimizer beside Python that a rule could be put into, so plain queries go on "
            "without indexes.",
            hint="Use spark_apps.sql.run, which gives a query the rows that indexes find, or IndexedTable.read(where).",
        )
    context: Any = getattr(spark, "_sc", None)
    if context is None or context._jsc is None or context._jsc.sc().isStopped():
        raise InvalidInput("The Spark session was stopped.", hint="Make a new one and enable it.")


__all__ = ["QueryExplanation", "ScanDecision", "disable", "enable", "explain", "frame_of", "indexes_in_use", "usable"]
