"""Utilities for Spark sessions: files handed over one by one, small tables made on the driver, frames used twice.

Paths are taken literally, by options that forgive nothing, and with a short way through Spark's planning.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from spark_apps.engine.pyspark_names import Column, DataFrame, DataFrameReader, F, SparkSession, T, spark_errors
from spark_apps.storage.credentials import missing_file_system
from spark_apps.storage.errors import EnvironmentMismatch

logger = logging.getLogger(__name__)

_DEFAULT_CORES = 2
_CORES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def over_connect(spark: SparkSession) -> bool:
    """Test whether the session is one of Spark Connect: no JVM beside it and no Spark context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores(spark: SparkSession) -> int:
    """Return how many tasks run side by side, as Spark itself counts them; at least 1.

    Computed once a session.
    """
    count = _CORES.get(spark)
    if count is None:
        count = _CORES[spark] = max(1, _ask_cores(spark))
    return count


# --- Settings of a session, and readers with options ------------------------------------------------------------------


_REMEMBERED = threading.local()

_EXPECTED = threading.local()
_LOGGERS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Those by which pyspark 4 writes each error of Spark, with its whole trace, beside raising it."""

_STATED_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+(?:E\+\d+)?) ([KMGTPE]?i?B)")
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

SettingAsked = tuple[int, str, tuple[str | None, ...]]
"""The id of a session, the name of a setting and, if one was given, its default."""


@contextmanager
def remembered_settings() -> Iterator[dict[SettingAsked, str | None]]:
    """Ask a session once for each of its settings within the block, in this thread: each question takes a call.

    Yields what is known so far, which the block may add to.
    """
    outer = getattr(_REMEMBERED, "values", None)
    values = _REMEMBERED.values = {} if outer is None else outer
    try:
        yield values
    finally:
        _REMEMBERED.values = outer


def setting(spark: SparkSession, name: str, *default: str | None) -> str | None:
    """Return a setting of the session, as ``spark.conf.get`` does."""
    values: dict[SettingAsked, str | None] | None = getattr(_REMEMBERED, "values", None)
    if values is None:
        return spark.conf.get(name, *default)
    key = (id(spark), name, default)
    if key not in values:
        values[key] = spark.conf.get(name, *default)
    return values[key]


def has_parquet_keys(spark: SparkSession) -> bool:
    """Test whether the session encrypts and decrypts Parquet files."""
    return any(setting(spark, f"{prefix}parquet.crypto.factory.class", "") for prefix in ("", "spark.hadoop."))


@contextmanager
def errors_expected() -> Iterator[None]:
    """Let pyspark write no error that it raises within the block, in this thread: who asks Spark knows that it may be.

    Else the log of a query that is right would have ten kilobytes of errors.
    """
    before = getattr(_EXPECTED, "here", False)
    _let_errors_be_expected()
    _EXPECTED.here = True
    try:
        yield
    finally:
        _EXPECTED.here = before


@cache
def _let_errors_be_expected() -> None:
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 writes none
        return
    for name in _LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(name).addFilter(lambda _: not getattr(_EXPECTED, "here", False))


def is_built_in(spark: SparkSession, name: str) -> bool:
    """Test whether a function is Spark's own: a session may put one of a user's in its place."""
    try:
        with errors_expected():
            return bool(spark.catalog.getFunction(name).className.startswith("org.apache.spark.sql.catalyst."))
    except spark_errors(AttributeError):
        return False


_READERS: WeakKeyDictionary[SparkSession, dict[tuple[Any, ...], DataFrameReader]] = WeakKeyDictionary()
_MAX_READERS = 1_000
"""Readers that are kept of a session; beyond it all are forgotten."""

_RELATIONS: WeakKeyDictionary[SparkSession, OrderedDict[tuple[Any, ...], Any]] = WeakKeyDictionary()
_MAX_RELATIONS = 128
"""Relations that are kept of a session, those that were used last."""
_MAX_PATHS = 256
"""Files of a relation that is kept: it holds what the file system says of each."""


def load_files(
    spark: SparkSession,
    form: str,
    schema: T.StructType,
    options: Mapping[str, str],
    paths: list[str],
    described: Mapping[str, Any],
    *,
    written_once: bool = False,
) -> DataFrame:
    """Return the rows of files as a frame.

    Readers are kept for the same arguments: to make one takes a call to the JVM for each option, and a query may need
    several. So is what Spark's reader makes of files that never change: it looks each of them up, every time.

    ::

        load_files(spark, "parquet", schema, READ_OPTIONS, ["file:/lake/t/data/a.parquet"], {"name": ["t"]})

    :raises EnvironmentMismatch: if Spark lacks the class of the files' store.
    :param described: what the rule in the optimizer gives Spark about this scan: its ``name``, ``share`` of the files'
        bytes, ``rows`` where they are known, and, where Spark is to take the files for buckets, ``buckets``, and the
        columns that they are dealt ``by`` and ``sorted`` by.
    :param written_once: no other file is ever written at one of these paths.
    """
    readers = _READERS.setdefault(spark, {})
    key = (form, schema.json(), tuple(sorted(options.items())))
    description = json.dumps(described)
    kept = written_once and len(paths) <= _MAX_PATHS and not over_connect(spark)
    files_key = (*key, description, tuple(paths))
    relations: OrderedDict[tuple[Any, ...], Any] = (
        _RELATIONS.setdefault(spark, OrderedDict()) if kept else OrderedDict()
    )
    if (relation := relations.pop(files_key, None)) is not None:
        relations[files_key] = relation
        # With columns of ids of their own, so that one query may read the same files twice.
        session: Any = spark
        return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), spark)
    # Taken out while it is used: another thread that finds none makes its own.
    reader = readers.pop(key, None) or spark.read.schema(schema).options(**options).format(form)
    try:
        rows = reader.option(OWN_SCAN, description).load(paths)
        if kept:
            relations[files_key] = _java_frame(rows).queryExecution().analyzed().relation()
            while len(relations) > _MAX_RELATIONS:
                relations.popitem(last=False)
        return rows
    except Exception as error:
        if (missing := missing_file_system(str(error))) is None:
            raise
        raise EnvironmentMismatch(
            missing[0],
            hint=f"{missing[1]} What the log, the indexes' lookups and the data source indexed read needs none.",
        ) from error
    finally:
        if len(readers) >= _MAX_READERS:
            readers.clear()
        readers[key] = reader


def _java_frame(rows: Any) -> Any:
    return rows._jdf


def frame_of_plan(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the rows of a plan of the session's JVM; not over Connect."""
    session: Any = spark._jsparkSession
    package: Any = spark.sparkContext._jvm
    # From Spark 4 on the session's kind of frames is in another package.
    for part in session.getClass().getPackage().getName().split("."):
        package = getattr(package, part)
    return DataFrame(package.Dataset.ofRows(session, plan), spark)


def with_columns(rows: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Add columns to rows.

    Spark Connect takes no empty set of them.
    """
    return rows.withColumns(dict(columns)) if columns else rows


def estimated_bytes(rows: DataFrame) -> int | None:
    """Return how many bytes Spark's optimizer takes rows for; ``None`` if it does not say.

    In a classic session what is computed for it is used when the very same frame is run.
    """
    if over_connect(rows.sparkSession):
        frame: Any = rows
        return size_of_plan(frame._explain_string(mode="cost"))
    plan = _java_frame(rows).queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


def size_of_plan(explained: str) -> int | None:
    """Return the bytes that ``explain(mode="cost")`` states of all that a query returns; ``None`` if it states none."""
    _, _, optimized = explained.partition("== Optimized Logical Plan ==\n")
    stated = _STATED_SIZE.findall(optimized.partition("\n")[0])
    if not stated:
        return None
    number, unit = stated[-1]
    return int(float(number) * 1024 ** _SIZE_UNITS.index(unit))


def _ask_cores(spark: SparkSession) -> int:
    if not over_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    try:
        # A range of many rows is cut into as many pieces as Spark would by itself.
        pieces = spark.range(1 << 20).select(F.spark_partition_id().alias("piece")).agg(F.max("piece"))
        return int(pieces.collect()[0][0]) + 1
    except spark_errors() as error:
        logger.warning("Spark Connect did not say how many tasks it runs at once: %s", error)
        return _DEFAULT_CORES


# --- Files handed to Spark one by one ---------------------------------------------------------------------------------


OWN_SCAN = "lakeindex.scan"
"""Option by which a scan is known as one of this package, which no rule is to replace once more.

Its value may describe the scan; see :func:`load_files`.
"""

READ_OPTIONS = {
    OWN_SCAN: "true",
    "mergeSchema": "false",
    # A session that forgives missing or broken files would lose rows in silence.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Not on by default; without it an altered page can read as other values.
    "parquet.page.verify-checksum.enabled": "true",
}

_TIMES = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",  # else a footer says that its times are by the old one
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_WRITING = threading.Lock()
_WRITERS: dict[str, tuple[int, dict[str, str | None]]] = {}
"""Sessions that write now: by how many threads, and the settings that they had before."""

# A location may hold what Hadoop takes for a pattern.
_GLOB = re.compile(r"([\[\]{}*?\\])")

_LISTING = threading.Lock()
_LISTING_SETTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MAX_LISTED_BY_JOB = 32
"""Files that Spark lists without a job by default; reading and changing that setting would take as long."""


def escape_globs(paths: Iterable[str]) -> list[str]:
    """Return paths in which Hadoop finds no pattern."""
    return [_GLOB.sub(r"\\\1", path) for path in paths]


@contextmanager
def list_on_driver(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Let Spark list local files itself while it plans, not in a job with one task per file, which takes far longer.

    On an object store, where every look is a call of many milliseconds, the job is worth its while.
    """
    if len(paths) <= _MAX_LISTED_BY_JOB or not paths[0].startswith("file:"):
        yield
        return
    conf = spark.conf
    with _LISTING:
        before = conf.get(_LISTING_SETTING, None)
        conf.set(_LISTING_SETTING, str(len(paths) + 1))
        try:
            yield
        finally:
            if before is None:
                conf.unset(_LISTING_SETTING)
            else:
                conf.set(_LISTING_SETTING, before)


@contextmanager
def portable_times(spark: SparkSession) -> Iterator[None]:
    """Let Spark write days and times in the form that all readers share: today's calendar, and microseconds.

    A session may be set to write them by the old calendar, in which drivers, data sources and other engines would find
    another day. By default it writes times as INT96, which has no bounds in a footer, and which others read as
    nanoseconds: 9999 becomes 1816.

    What other threads of the session write meanwhile is written so, too.
    """
    with _WRITING:
        key, conf = session_id(spark), spark.conf
        count, before = _WRITERS.get(key, (0, {}))
        if not count:
            # What is as it should be is left alone; None where the session has no value of its own.
            before = {name: conf.get(name, None) for name, value in _TIMES.items() if conf.get(name) != value}
            for name in before:
                conf.set(name, _TIMES[name])
        _WRITERS[key] = count + 1, before
    try:
        yield
    finally:
        with _WRITING:
            count, before = _WRITERS.pop(key)
            if count > 1:  # the last one that writes puts the session's values back
                _WRITERS[key] = count - 1, before
            else:
                _put_back(spark, before)


def _put_back(spark: SparkSession, before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if spark.conf.get(name, None) != _TIMES[name]:
            continue  # it was set meanwhile
        if value:
            spark.conf.set(name, value)
        else:
            spark.conf.unset(name)


def session_id(spark: SparkSession) -> str:
    """Return a session's id, which all its Python objects share: those of a stream's batches, say, are made anew."""
    session: Any = spark
    return str(session.session_id if over_connect(spark) else session._jsparkSession.sessionUUID())


# --- Tables made on the driver ----------------------------------------------------------------------------------------


def inline(spark: SparkSession, rows: Iterable[Sequence[Any]], ddl: str) -> DataFrame:
    """Return rows of strings, numbers and nulls as a DataFrame with the columns of ``ddl``.

    For instance ``"path string, n int"``.
    """
    names = [part.split()[0] for part in ddl.split(",")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{_struct(ddl)}>>")))


def _struct(ddl: str) -> str:
    return ", ".join("`{}`: {}".format(*part.split(maxsplit=1)) for part in ddl.split(","))


# --- Frames that are used twice ---------------------------------------------------------------------------------------


_SETTING = threading.Lock()
# Off by default, which leaves a kept frame in as many pieces as the session has shuffle partitions, however few rows.
_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows for the block, in pieces that fit their number, whatever the session's settings."""
    conf = rows.sparkSession.conf
    with _SETTING:
        before = conf.get(_ADAPTIVE, None)
        conf.set(_ADAPTIVE, "true")
        try:
            persisted = rows.persist()
        finally:
            if before is None:
                conf.unset(_ADAPTIVE)
            else:
                conf.set(_ADAPTIVE, before)
    try:
        yield persisted
    finally:
        persisted.unpersist()
