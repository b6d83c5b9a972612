"""Delta tables as a source whose rows delta-spark reads: in a session that has it, no row passes the driver.

Of files that Spark's Parquet reader would misread (with a list of deleted rows, column mapping, widened types) the rows
come from the table's own connector, file by file as the log of indexes names them. All else is as in
:mod:`spark_apps.sources.delta`, which reads such tables where there is no session with delta-spark.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.java_part import compiled, new, with_sequences
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.pyspark_names import DataFrame, F, T, spark_errors
from spark_apps.engine.spark_utils import OWN_SCAN, over_connect, setting
from spark_apps.mergetree.external_files import THROUGH, metadata_paths
from spark_apps.mergetree.schema import column, table_fields
from spark_apps.mergetree.tree import ConnectorRows
from spark_apps.sources.delta import AS_PARTITION, DeltaTable
from spark_apps.sources.logs.commits import Gap, LoggedFile
from spark_apps.sources.source_files import Changes, Listing, SourceFile, check_distinct
from spark_apps.storage.errors import StorageError, TableNotFound, UnsupportedSource, VersionNotFound
from spark_apps.storage.names import check_source_column_name
from spark_apps.storage.printing import printable
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import Folder
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import UNKNOWN_ROWS, Field, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

CONNECTOR = "delta-spark"
_FILE = "__index_file_of_row"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_PHYSICAL = "delta.columnMapping.physicalName"
_WIDENED = ("typeWidening", "typeWidening-preview")
_FOLLOWED = {
    *_WIDENED, "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType",
    "variantType-preview", "variantShredding-preview",
}  # fmt: skip
"""Features with which all commits of a table are files in its log, and say of a file what they always did."""


def has_delta(spark: SparkSession | None) -> bool:
    """Return whether a session reads Delta tables by delta-spark."""
    if spark is None or spark is NO_SPARK or over_connect(spark):
        return False
    return _EXTENSION in str(setting(spark, "spark.sql.extensions", ""))


@cache
def _source() -> str:
    return importlib.resources.files(__package__).joinpath("delta_rows.java").read_text(encoding="utf-8")


@dataclass(frozen=True)
class _Version:
    """A version of a table as the connector has it: what its log says, and ``rows``, a ``DeltaRows``."""

    rows: Any
    said: Mapping[str, Any]

    @property
    def number(self) -> int:
        return int(self.said["version"])

    @property
    def schema(self) -> T.StructType:
        return T.StructType.fromJson(json.loads(self.said["schema"]))


class ConnectedDeltaTable(DeltaTable):
    """A Delta table at its address, read by delta-spark."""

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None, spark: SparkSession) -> None:
        super().__init__(location, storage_options)
        self._spark = spark
        self._versions: dict[int, _Version] = {}

    @classmethod
    def of_session(
        cls, table: TableDefinition, storage_options: Mapping[str, Any] | None, spark: SparkSession
    ) -> ConnectedDeltaTable:
        """Return the source of a registered table."""
        assert table.source is not None
        source = cls(table.source.location, storage_options, spark)
        source._version = table.source.version
        return source

    def listing(self, version: str | int | None = None) -> Listing:
        at = self._at(version)
        self._version = str(at.number)
        fields, partition_by = self._columns_at(at)
        stored = {field.stored_name: field for field in fields}
        whole = self._misread(at)
        columns = _mapped_columns(at.schema)
        folder = Folder(self._location.uri)
        files = []
        for row in json.loads(at.rows.files()):
            key = folder.key(row["path"])
            if key is None:
                raise self._outside(row["path"])
            files.append(self._logged(_of_row(row, key), partition_by, stored, whole, columns, CONNECTOR))
        check_distinct(self._location.uri, files)
        followed = set(at.said["features"]) <= _FOLLOWED and not at.said["coordinated"]
        said = {"reader": CONNECTOR, "whole": whole, "columns": columns}
        mark = self._mark(at.number, said) if followed else None
        return Listing(tuple(files), self._version, fields, partition_by, str(at.said["id"]), mark)

    def changes(self, state: State) -> Changes | Gap:
        return self._changes(state.table, CONNECTOR, self._of_commit)

    def _of_commit(self, file: LoggedFile, table: TableDefinition, said: Mapping[str, Any]) -> SourceFile:
        stored = {field.stored_name: field for field in table.fields}
        return self._logged(file, table.partition_by, stored, said.get("whole"), said.get("columns"), CONNECTOR)

    def table_id(self) -> str:
        return str(self._at(None).said["id"])

    def columns(self, opened: Any = None) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        return self._columns_at(self._at(None))

    def connector_rows(
        self, spark: SparkSession, files: Sequence[DataFile], columns: Sequence[str]
    ) -> ConnectorRows | None:
        """Return the rows of files as delta-spark reads them.

        :return: ``None`` if ``deltalake`` has listed them, whose states of files are others.
        :raises StorageError: if a file is not in the version that was listed.
        """
        if any((file.extra or {}).get(THROUGH) != CONNECTOR for file in files):
            return None
        folder, store = Folder(self._location.uri), Store(self._location.uri, self._storage_options)
        for file in files:
            if not folder.holds(file.path):
                raise self._outside(file.path)
        rows = self._at(self._version).rows
        try:
            relation = rows.read("\0".join(store.spark_path(file.path) for file in files))
        except spark_errors() as error:
            raise self._unreadable(error) from error
        frame = DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)
        located = frame.select(*map(column, columns), F.col("_metadata.file_path").alias(_FILE))
        return ConnectorRows(located, _FILE, lambda path: metadata_paths(store.spark_path(path)))

    def _at(self, version: str | int | None) -> _Version:
        """Load a version of the table.

        :raises TableNotFound: if there is no table. :raises VersionNotFound: if there is no such version.
        """
        if version is not None and not str(version).isdigit():
            raise VersionNotFound(f"{version!r} is no version of a Delta table.", hint="Give a number.")
        if version is not None and int(version) in self._versions:
            return self._versions[int(version)]
        reach(self._spark, self._location.uri)
        address = Store(self._location.uri, self._storage_options).spark_path("").rstrip("/")
        reader = self._spark.read.format("delta")
        try:
            frame = (reader if version is None else reader.option("versionAsOf", str(version))).load(address)
            jvm = self._spark.sparkContext._jvm
            classes = compiled(jvm, with_sequences(jvm, _source()))
            plan = frame._jdf.queryExecution().analyzed()
            rows = new(jvm, classes, "lakeindex.sources.DeltaRows", (plan, OWN_SCAN))
            at = _Version(rows, json.loads(rows.describe()))
        except spark_errors() as error:
            if "DELTA_TABLE_NOT_FOUND" in str(error) or "DELTA_MISSING_DELTA_TABLE" in str(error):
                raise TableNotFound(
                    f"There is no Delta table at {self._location.uri}.", hint="Check the location."
                ) from error
            if version is not None:
                raise VersionNotFound(
                    f"Version {version} of the Delta table {self._location.uri} cannot be loaded: {_first_line(error)}",
                    hint="Choose a version that its log still holds.",
                ) from error
            raise self._unreadable(error) from error
        self._versions = {at.number: at}
        return at

    def _unreadable(self, error: Exception) -> StorageError:
        return StorageError(
            f"The Delta table {self._location.uri} cannot be read by delta-spark: {_first_line(error)}",
            outcome="Nothing was changed.",
            hint="See whether a query of the same session reads it, by its address and without indexes.",
        )

    def _columns_at(self, at: _Version) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        plain = T.StructType([T.StructField(one.name, one.dataType, one.nullable) for one in at.schema.fields])
        stored = {one.name: (one.metadata or {}).get(_PHYSICAL, one.name) for one in at.schema.fields}
        fields = tuple(
            Field(one.name, one.type, one.nullable, None if stored[one.name] == one.name else stored[one.name])
            for one in table_fields(plain, (), check_source_column_name)
        )
        types = {field.name: field.type for field in fields}
        binary = next((name for name in at.said["partition_by"] if types[name] == "binary"), None)
        if binary is not None:
            raise UnsupportedSource(
                f"{self._location.uri} is partitioned by the binary column {binary!r}.", hint="It cannot be registered."
            )
        return fields, tuple(name for name in at.said["partition_by"] if types[name] in AS_PARTITION)

    def _misread(self, at: _Version) -> str | None:
        """Return why Spark's Parquet reader would misread every file, or ``None``."""
        if at.said["mapping"] != "none":
            return f"column mapping ({at.said['mapping']})"
        if any(feature in at.said["features"] for feature in _WIDENED):
            return "type widening"
        types = {field.name: field.dataType.simpleString() for field in at.schema.fields}
        other = next((name for name in at.said["partition_by"] if types[name] not in AS_PARTITION), None)
        return None if other is None else f"the partition column {other!r}"


def _of_row(row: Mapping[str, Any], key: str) -> LoggedFile:
    written = json.loads(row["statistics"] or "{}").get("numRecords")
    return LoggedFile(
        key,
        int(row["bytes"]),
        UNKNOWN_ROWS if written is None else int(written),
        int(row["modified"]) / 1000,
        row["partition"],
        row["deleted"],
        int(row["deleted_rows"]),
    )


def _mapped_columns(schema: T.StructType) -> str | None:
    """Return what distinguishes columns in files from others of the same names, made anew; ``None`` if nothing does."""
    names = [
        (field.name, (field.metadata or {}).get(_PHYSICAL), field.dataType.json())
        for field in schema.fields
        if (field.metadata or {}).get(_PHYSICAL, field.name) != field.name or _PHYSICAL in field.dataType.json()
    ]
    return hashlib.blake2b(repr(sorted(names)).encode(), digest_size=8).hexdigest() if names else None


def _first_line(error: Exception) -> str:
    text = str(error)
    return printable(text.splitlines()[0][:500] if text else type(error).__name__)
