"""Hudi's own statements and procedures on a table, in a Spark session that has Hudi: indexes, compaction, buckets.

What they did is never believed by their answer: it is looked up in what the table says of itself
(:mod:`spark_apps.timeline.hudi_indexes`). No row passes the driver; when to call what, and what is written down of it,
is :mod:`spark_apps.actions.hudi_indexing`.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.pyspark_names import Column, DataFrame, F, spark_errors
from spark_apps.engine.spark_versions import message_of
from spark_apps.sources.hudi import has_hudi
from spark_apps.sources.logs.hudi_timeline import HudiTimeline
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, JobFailed, LakeIndexError
from spark_apps.storage.names import quote
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER
from spark_apps.timeline.catalog_names import CatalogName
from spark_apps.timeline.hudi_indexes import FOLDER, HudiIndex, HudiIndexes, read_indexes
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

LOCK_PROVIDER = "hoodie.write.lock.provider"
METADATA = f"{FOLDER}/metadata"
"""The metadata table, a Hudi table itself, whose partitions are the indexes."""

KEPT_BY = {
    "hudi:record": "hoodie.metadata.global.record.level.index.enable",
    "hudi:column_stats": "hoodie.metadata.index.column.stats.enable",
    "hudi:bloom_filters": "hoodie.metadata.index.bloom.filter.enable",
}
"""Kind of index -> the setting without which a writer may remove its partition."""

_SPARK = "spark."
THROUGH_SUBMIT = "spark.hoodie."
"""How settings of Hudi's are given to spark-submit, which leaves out all that are none of Spark's."""

_BASE_FILE = re.compile(r"(?P<group>[^.].*)_[^_]+_(?P<instant>\d{17,20})\.hfile")
_LOG_FILE = re.compile(r"\.(?P<group>[^.].*)_(?P<instant>\d{17,20})\.log\.\d+_[^.]+")

_RECORD_TYPE = {"hudi:record": 5, "hudi:secondary": 7, "hudi:column_stats": 3, "hudi:bloom_filters": 4}
"""Kind of index -> the type of its records in the metadata table."""

_SPARK_3 = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
_CAUSES = 8
_WORDS = 600
"""Characters of Hudi's words that an error of this package quotes."""


@dataclass(frozen=True)
class HudiCalls:
    """The calls on one registered table.

    :param options: of the store with the table.
    """

    spark: SparkSession
    table: TableDefinition
    options: Mapping[str, Any] | None = None

    @property
    def uri(self) -> str:
        """Address of the table."""
        assert self.table.source is not None
        return locate(self.table.source.location).uri

    @property
    def store(self) -> Store:
        """The store with the table's folder."""
        return Store(self.uri, self.options)

    def state(self) -> HudiIndexes:
        """Return what the table says of its indexes."""
        return read_indexes(self.store)

    def check(self) -> None:
        """Check that the session has Hudi, and give it Hudi's settings that came under Spark's prefix.

        :raises EnvironmentMismatch: naming what is missing, as on Spark 4, for which no bundle is on the registries.
        """
        if has_hudi(self.spark):
            given = self._of_session()
            for name, value in given.items():
                if name.startswith(THROUGH_SUBMIT) and name.removeprefix(_SPARK) not in given:
                    self.spark.conf.set(name.removeprefix(_SPARK), value)
            return
        release = self.spark.version
        hint = f"Start the session with spark.jars.packages={_SPARK_3}."
        if not release.startswith("3.5."):
            hint = f"Hudi has released no bundle for Spark {release}: run this on Spark 3.5, with {_SPARK_3}."
        raise EnvironmentMismatch(
            f"Indexes of Hudi's own are made by Hudi, which this session of Spark {release} does not have.",
            outcome="Nothing was changed.",
            hint=hint,
        )

    def setting(self, name: str) -> str | None:
        """Return a setting of Hudi as a writer of this session has it: the session's, else the table's."""
        given = self.spark.conf.get(name, None)
        return self.state().settings.get(name) if given is None else given

    @contextmanager
    def settings(self, given: Mapping[str, str]) -> Iterator[None]:
        """Give the session Hudi's settings for as long as the block runs."""
        conf = self.spark.conf
        before = {name: conf.get(name, None) for name in given}
        try:
            for name, value in given.items():
                conf.set(name, value)
            yield
        finally:
            for name, value in before.items():
                conf.unset(name)
                if value is not None:
                    conf.set(name, value)

    @contextmanager
    def named(self) -> Iterator[str]:
        """Yield the name of the table in SQL; one that has none gets one for as long as the block runs."""
        source = self.table.source
        assert source is not None
        reach(self.spark, self.uri)
        if IDENTIFIER in source.options:
            name = CatalogName.of(source.options[CATALOG], source.options[IDENTIFIER])
            yield ".".join(map(quote, name.parts[1:]))  # Hudi's procedures take no catalog
            return
        name_for_now = f"lakeindex_{hashlib.sha256(self.uri.encode()).hexdigest()[:16]}"
        self.sql(f"CREATE TABLE IF NOT EXISTS {name_for_now} USING hudi LOCATION {_text(self._address())}")
        try:
            yield name_for_now
        finally:
            with suppress(JobFailed):  # a name that is left over is used, or replaced, by the next call
                self.sql(f"DROP TABLE IF EXISTS {name_for_now}")

    def sql(self, statement: str) -> list[Any]:
        """Run a statement and return its rows. :raises JobFailed: with Hudi's words if it fails."""
        logger.info("%s: %s", self.uri, statement)
        try:
            return self.spark.sql(statement).collect()
        except spark_errors() as error:
            raise self._refused(statement, error) from error
        except Exception as error:  # py4j's, of a method that Spark does not translate
            raise self._refused(statement, error) from error

    def _refused(self, what: str, error: Exception) -> JobFailed:
        return JobFailed(f"Hudi refused {what[:300]!r} on {self.uri}: {words_of(error)}")

    def _address(self) -> str:
        return self.store.spark_path("").rstrip("/")

    # --- indexes ------------------------------------------------------------------------------------------------------

    def create(self, index: HudiIndex) -> None:
        """Let Hudi build an index. :raises JobFailed: if it fails; what is left of it must be looked at."""
        if index.kind in ("hudi:column_stats", "hudi:bloom_filters"):
            return self._build_partition(index)
        columns = ", ".join(map(quote, index.columns))
        with self.named() as table:
            if index.kind == "hudi:expression":
                options = {**({} if index.function is None else {"expr": index.function}), **index.options}
                given = ", ".join(f"{quote(name)} = {_text(value)}" for name, value in options.items())
                more = f" OPTIONS ({given})" if options else ""
                self.sql(f"CREATE INDEX {quote(index.name)} ON {table} USING {index.using} ({columns}){more}")
            else:
                self.sql(f"CREATE INDEX {quote(index.name)} ON {table} ({columns})")

    def _build_partition(self, index: HudiIndex) -> None:
        """Build a partition that has no statement, by the plan and the run of Hudi's indexing service."""
        spark: Any = self.spark
        jvm = spark.sparkContext._jvm
        given = {KEPT_BY[index.kind]: "true", "hoodie.metadata.enable": "true"}
        if index.columns and index.kind == "hudi:column_stats":
            given["hoodie.metadata.index.column.stats.column.list"] = ",".join(index.columns)
        if index.columns and index.kind == "hudi:bloom_filters":
            given["hoodie.metadata.index.bloom.filter.column.list"] = ",".join(index.columns)
        try:
            kind = jvm.org.apache.hudi.metadata.MetadataPartitionType.fromPartitionPath(index.partition)
            # What it has already stays, which a writer without their settings would remove.
            for other in self.state().indexes.values():
                if other.kind in KEPT_BY and other.state == "active":
                    given.setdefault(KEPT_BY[other.kind], "true")
            own = {name: value for name, value in self._of_session().items() if not name.startswith(_SPARK)}
            given = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control", **own, **given}
            options = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given)
            client = jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
                spark._jsparkSession, self._address(), options, jvm.scala.Option.empty()
            )
            try:
                instant = client.scheduleIndexing(
                    jvm.java.util.Collections.singletonList(kind), jvm.java.util.ArrayList()
                )
                if not instant.isPresent():
                    raise JobFailed(f"Hudi made no plan to build the partition {index.partition} of {self.uri}.")
                client.index(instant.get())
            finally:
                client.close()
        except LakeIndexError:
            raise
        except Exception as error:
            raise self._refused(f"to build the partition {index.partition}", error) from error

    def _of_session(self) -> dict[str, str]:
        """Return the settings of Hudi that the session has, those under Spark's prefix too."""
        session: Any = self.spark
        jvm = session.sparkContext._jvm
        known = dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(session._jsparkSession.conf().getAll()))
        return {name: value for name, value in known.items() if name.startswith(("hoodie.", THROUGH_SUBMIT))}

    def drop(self, index: HudiIndex) -> None:
        """Let Hudi drop an index, or the definition that a refused one has left. :raises JobFailed: if it fails."""
        name = index.name if index.kind in ("hudi:secondary", "hudi:expression") else index.partition
        with self.named() as table:
            self.sql(f"DROP INDEX {quote(name)} ON {table}")

    def files(self, partition: str) -> dict[str, int]:
        """Return what a partition of the metadata table is read from: base files, log files on them, and their bytes.

        Files of before a compaction stay until Hudi cleans them, and are not counted.
        """
        found = []
        for info in self.store.files(f"{METADATA}/{partition}"):
            match = _BASE_FILE.fullmatch(name := info.key.rpartition("/")[2]) or _LOG_FILE.fullmatch(name)
            if match is not None:
                found.append((match["group"], match["instant"], match.re is _BASE_FILE, info.size))
        newest = {group: instant for group, instant, is_base, _ in sorted(found) if is_base}
        live = [
            (is_base, size)
            for group, instant, is_base, size in found
            if (instant == newest.get(group) if is_base else instant > newest.get(group, ""))
        ]
        bases = sum(is_base for is_base, _ in live)
        return {"base_files": bases, "log_files": len(live) - bases, "bytes": sum(size for _, size in live)}

    def instants(self, *actions: str) -> list[str]:
        """Return the times of the completed instants of the table's timeline by these actions, oldest first."""
        return sorted(time for time, action in HudiTimeline(self.store).completed() if action in actions)

    def pending(self, *actions: str) -> list[tuple[str, str]]:
        """Return the time and the action of what is planned in the table's timeline and not completed."""
        return [(time, action) for time, action in HudiTimeline(self.store).pending() if action in actions]

    # --- rows and entries ---------------------------------------------------------------------------------------------

    def rows_as_read(self, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return the table as a query of this session reads it.

        :param options: that queries have from a catalog, as those of the bucket index.
        """
        return self.spark.read.format("hudi").options(**(options or {})).load(self._address())

    def asked_of_a_small_table(self, path: str, name: str) -> DataFrame:
        """Return a table of a few rows that has rules of partitions by this release of Hudi.

        :param path: of a folder for it. :param name: tells it from others.
        """
        options = {
            "hoodie.table.name": "question",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.metadata.enable": "false",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "1",
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.datasource.write.row.writer.enable": "true",
        }
        rows = self.spark.sql("SELECT id, 'one' AS v, 'x' AS p FROM range(4)")
        called = f"lakeindex_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        try:
            rows.write.format("hudi").options(**options).mode("overwrite").save(path)
            self.sql(f"CREATE TABLE IF NOT EXISTS {called} USING hudi LOCATION {_text(path)}")
            try:
                given = ",".join(f"{key}={value}" for key, value in options.items() if "index" in key)
                self.sql(
                    f"CALL partition_bucket_index_manager(table => '{called}', overwrite => 'p=x,2', "
                    f"bucket_number => 1, dry_run => false, options => {_text(given)})"
                )
            finally:
                with suppress(JobFailed):
                    self.sql(f"DROP TABLE IF EXISTS {called}")
        except LakeIndexError:
            raise
        except Exception as error:
            raise self._refused("to write a small table", error) from error
        of_index = {name: value for name, value in options.items() if "index" in name}
        return self.spark.read.format("hudi").options(**of_index).load(path)

    def table_properties(self) -> dict[str, str]:
        """Return what the table says of itself, with what a catalog's table says beside it."""
        with self.named() as table:
            said = {row[0]: row[1] for row in self.sql(f"SHOW TBLPROPERTIES {table}")}
        return {**self.state().settings, **said}

    def rows(self, columns: Sequence[str]) -> DataFrame:
        """Return the table's rows by Hudi's reader, with its own columns, as they are now."""
        frame = self.spark.read.format("hudi").load(self._address())
        own = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
        return frame.select(*own, *(quote(name) for name in columns))

    def entries(self, kind: str) -> DataFrame:
        """Return the records of a kind in the metadata table, by Hudi's reader."""
        frame = self.spark.read.format("hudi").load(f"{self._address()}/{METADATA}")
        return frame.where(F.col("type") == F.lit(_RECORD_TYPE[kind]))


def file_id() -> Column:
    """Return the id of the file group that an entry of the record index names, of its numbers or its text."""
    told = "recordIndexMetadata"
    high, low = (F.lpad(F.lower(F.hex(F.col(f"{told}.fileId{part}Bits"))), 16, "0") for part in ("High", "Low"))
    parts = [(high, 1, 8), (high, 9, 4), (high, 13, 4), (low, 1, 4), (low, 5, 12)]
    number = F.concat_ws("-", *(text.substr(begin, length) for text, begin, length in parts))
    of_numbers = F.concat(number, F.lit("-"), F.col(f"{told}.fileIndex").cast("string"))
    return F.when(F.col(f"{told}.fileIdEncoding") == 0, of_numbers).otherwise(F.col(f"{told}.fileId"))


def group_of_row() -> Column:
    """Return the id of the file group that a row is in, of the name of its base file or of its group."""
    return F.split(F.col("_hoodie_file_name"), "_").getItem(0)


def words_of(error: BaseException) -> str:
    """Return what Hudi says of an error: the words of its last causes, which Spark's message leaves out."""
    said: list[str] = []
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if cause is None:
            break
        text = (cause.toString() or "").strip().splitlines()
        if text and text[0] not in said:
            said.append(text[0])
        cause = cause.getCause()
    whole = "; ".join(said[-3:]) or message_of(error)
    return whole[:_WORDS]


def _text(value: str) -> str:
    """Return a text as a literal of Spark's SQL. :raises InvalidInput: for characters that no such text needs."""
    if any(ord(character) < 32 for character in value):
        raise InvalidInput(f"{value[:100]!r} cannot be an option of Hudi's.", hint="Use printable characters.")
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


__all__ = ["HudiCalls", "file_id", "group_of_row", "words_of"]
