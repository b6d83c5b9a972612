"""Hudi tables as a source: listed, and read, by Hudi's own reader in a Spark session that has it.

Such a table is files by slices: a base file, with the log files that change its rows. A slice stands in the log of
indexes by its base file, with its log files as its state, so one whose log has grown is another. A table is known by
the instant of its first commit, for Hudi gives it no id. No module of this package knows Hudi without a session.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.java_part import compiled, new, with_sequences
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.pyspark_names import DataFrame, F, T, spark_errors
from spark_apps.engine.spark_utils import OWN_SCAN, over_connect
from spark_apps.engine.spark_versions import message_of
from spark_apps.mergetree.external_files import metadata_paths
from spark_apps.mergetree.schema import column, table_fields
from spark_apps.mergetree.tree import ConnectorRows
from spark_apps.sources.logs.commits import MAX_COMMITS, Gap, read_mark, write_mark
from spark_apps.sources.logs.hudi import FIRST_VERSION, Slice, effect, group_of
from spark_apps.sources.source_files import STATE, Changes, Listing, SourceFile, check_distinct
from spark_apps.storage.errors import (
    EnvironmentMismatch,
    StorageError,
    StorageUnavailable,
    TableNotFound,
    UnsupportedSource,
    VersionNotFound,
)
from spark_apps.storage.names import check_source_column_name
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import Folder
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

CONNECTOR = "Hudi's reader"
CONNECTOR_CLASS = "org.apache.hudi.HoodieFileIndex"
"""The class without which the connector is not there."""
_WHY = "it is a slice of a Hudi table"
_FILE = "__index_file_of_row"


def java_source() -> str:
    """Return the Java that knows Hudi's tables and scans."""
    return importlib.resources.files(__package__).joinpath("hudi_tables.java").read_text(encoding="utf-8")


def has_hudi(spark: SparkSession | None) -> bool:
    """Return whether a session has Hudi's reader."""
    if spark is None or spark is NO_SPARK or over_connect(spark):
        return False
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(CONNECTOR_CLASS)
    except spark_errors():
        return False
    except Exception:  # noqa: BLE001 - py4j's error of a class that is not there
        return False
    return True


@dataclass(frozen=True)
class _Version:
    """A version of a table: what its timeline says, and ``table``, a ``HudiTable`` of ``hudi_tables.java``."""

    table: Any
    said: Mapping[str, Any]


class HudiTable:
    """A Hudi table at its address.

    :param spark: the session whose reader is asked; without one the table is known, and its files are not.
    """

    def __init__(
        self, location: str, storage_options: Mapping[str, Any] | None, spark: SparkSession | None, version: str | None
    ) -> None:
        self._location = locate(location)
        self._storage_options = storage_options
        self._spark = spark
        self._version = version
        self._last: _Version | None = None

    @classmethod
    def of(
        cls, table: TableDefinition, storage_options: Mapping[str, Any] | None, spark: SparkSession | None
    ) -> HudiTable:
        """Return the source of a registered table."""
        assert table.source is not None
        return cls(table.source.location, storage_options, spark, table.source.version)

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the slices as of an instant of the table's timeline, the newest by default.

        :raises VersionNotFound: if the timeline has no such commit.
        :raises TableNotFound: if there is no table.
        :raises UnsupportedSource: if the rows are in files that are none of the table's own.
        """
        at = self._at(None if version is None else str(version), listed=True)
        if at is None:
            return Listing((), identity=None)
        self._version = at.said["version"]
        folder, columns = Folder(self._location.uri), _redefined(at.said["stored"])
        files = []
        for path, size, state in at.said["files"]:
            self._check_inside(folder, path)
            files.append(SourceFile(_absolute(path), int(size), etag=columns, state=state, through=CONNECTOR, why=_WHY))
        check_distinct(self._location.uri, files)
        followed = version is None and self._version is not None and at.said["table_version"] >= FIRST_VERSION
        mark = write_mark(_mark(at.said)) if followed else None
        return Listing(tuple(files), self._version, _fields(at.said), (), at.said["id"], mark)

    def changes(self, state: State) -> Changes | Gap:
        """Return what came and went since the instant that a state of a log of indexes names.

        :raises TableNotFound: if there is no table.
        """
        source = state.table.source
        assert source is not None and source.version is not None and source.mark is not None
        before = read_mark(source.mark)
        at = self._at(None, listed=False)
        if at is None or before.keys() != _mark(at.said).keys():
            return Gap(source.version, None, "it has no commit any more, or another reader listed it")
        newest, now = at.said["version"], _mark(at.said)
        if any(before[name] != now[name] for name in ("reader", "id", "columns", "settings")):
            return Gap(source.version, newest, "its columns, or what the session reads them by, are others")
        said = json.loads(at.table.changes(str(before["latest"]), str(before["oldest"]), MAX_COMMITS))
        if said["gap"] is not None:
            return Gap(source.version, newest, said["gap"])
        groups = {group: file for file in state.files(DATA_TREE) if (group := group_of(file.path)) is not None}

        def known(group: str) -> Slice | None:
            file = groups.get(group)
            return None if file is None else Slice.known(file.path, file.bytes, (file.extra or {}).get(STATE, ""))

        found = effect(said["commits"], said["completed"], known)
        if found.why is not None:
            return Gap(source.version, newest, found.why)
        folder, columns = Folder(self._location.uri), _redefined(said["stored"])
        files, gone = [], []
        for group, slice_ in found.slices.items():
            if slice_ is not None:
                self._check_inside(folder, slice_.path)
                lines, path = slice_.lines(said["settings"]), _absolute(slice_.path)
                files.append(SourceFile(path, slice_.size, etag=columns, state=lines, through=CONNECTOR, why=_WHY))
            if group in groups and (slice_ is None or groups[group].path != _absolute(slice_.path)):
                gone.append(groups[group].path)
        self._version = newest
        mark = write_mark(_mark(said))
        return Changes(tuple(files), tuple(gone), newest, mark, len(said["commits"]), _fields(said))

    def _check_inside(self, folder: Folder, path: str) -> None:
        if not folder.holds(path):
            raise UnsupportedSource(
                f"The Hudi table {self._location.uri} has the file {path}, which is outside of it.",
                hint="Register the table that it belongs to.",
            )

    def columns(self) -> tuple[Field, ...]:
        """Return the table's own columns. :raises UnsupportedSource: if it has no commit yet."""
        return _fields(self._newest().said)

    def table_id(self) -> str:
        """Return the instant of the table's first commit. :raises UnsupportedSource: if it has none yet."""
        return str(self._newest().said["id"])

    def _newest(self) -> _Version:
        at = self._at(None, listed=False)
        if at is None or at.said["id"] is None:
            raise UnsupportedSource(
                f"The Hudi table {self._location.uri} has no commit yet.", hint="Write rows into it first."
            )
        return at

    def check(self, files: Sequence[DataFile]) -> None:
        """Check nothing: base files and log files of Hudi are never rewritten, and Spark says if one is gone."""

    def rows(self, file: DataFile, schema: T.StructType) -> Any:
        """Refuse: a session's reader reads the rows. :raises EnvironmentMismatch: always."""
        raise self._without_reader()

    def connector_rows(
        self, spark: SparkSession, files: Sequence[DataFile], columns: Sequence[str]
    ) -> ConnectorRows | None:
        """Return the rows of slices. :raises StorageError: if the table has one no more as it was listed."""
        at = self._at(self._version, listed=False)
        asked = json.dumps({file.path: (file.extra or {}).get(STATE, "") for file in files})
        try:
            assert at is not None
            relation = at.table.read(asked)
        except Exception as error:
            said = message_of(error)
            if "gone: " not in said:
                raise self._unreadable(error) from error
            raise StorageError(
                f"The table {self._location.uri} was changed while it was read: {said.rpartition('gone: ')[2]} has "
                "other log files by now, or is no file of it any more.",
                outcome="Nothing was changed.",
                hint="Try again, which lists the table again.",
            ) from error
        session: Any = spark
        frame = DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), spark)
        # Hudi's scans have no _metadata.
        located = frame.select(*map(column, columns), F.input_file_name().alias(_FILE))
        store = Store(self._location.uri, self._storage_options)
        return ConnectorRows(located, _FILE, lambda path: metadata_paths(store.spark_path(path)))

    def _at(self, version: str | None, listed: bool) -> _Version | None:
        """Load the table as of an instant, the newest by default; ``None`` if it has no commit.

        :param listed: with its slices.
        """
        if version is not None and not version.isdigit():
            raise VersionNotFound(f"{version!r} is no instant of a Hudi table.", hint="Give a number.")
        last = self._last
        if last is not None and last.said["version"] == version and (not listed or "files" in last.said):
            return last
        if self._spark is None or not has_hudi(self._spark):
            raise self._without_reader()
        spark: Any = self._spark
        reach(spark, self._location.uri)
        reader = spark.read.format("hudi")
        try:
            frame = (reader if version is None else reader.option("as.of.instant", version)).load(self._address())
            jvm = spark.sparkContext._jvm
            classes = compiled(jvm, with_sequences(jvm, java_source()))
            plan = frame._jdf.queryExecution().analyzed()
            table = new(jvm, classes, "lakeindex.hudi.HudiTable", (plan, OWN_SCAN))
            if version is not None and not table.has(version):
                raise VersionNotFound(
                    f"The timeline of the Hudi table {self._location.uri} has no commit {version}.",
                    hint="Choose an instant that it still holds.",
                )
            text = table.describe() if listed else table.describeColumns()
        except VersionNotFound:
            raise
        except Exception as error:
            raise self._unreadable(error) from error
        if text is None:
            return None
        said = json.loads(text)
        self._last = _Version(table, said if version is None else {**said, "version": version})
        return self._last

    def _address(self) -> str:
        return Store(self._location.uri, self._storage_options).spark_path("").rstrip("/")

    def _unreadable(self, error: Exception) -> Exception:
        said = message_of(error)
        if "TableNotFoundException" in said or "hoodie.properties" in said or "PATH_NOT_FOUND" in said:
            return TableNotFound(f"There is no Hudi table at {self._location.uri}.", hint="Check the location.")
        if "bootstrapped: " in said:
            return UnsupportedSource(
                f"The Hudi table {self._location.uri} was bootstrapped: its rows are in files that are not its own.",
                hint="It can be registered when Hudi has written them anew, by clustering.",
            )
        return StorageUnavailable(
            f"The Hudi table {self._location.uri} cannot be read by Spark: {said}.",
            outcome="Nothing was changed.",
            hint="See whether a query of the same session reads it, without indexes.",
        )

    def _without_reader(self) -> EnvironmentMismatch:
        return EnvironmentMismatch(
            f"The Hudi table {self._location.uri} is read by {CONNECTOR} in Spark alone, which is not there.",
            outcome="Nothing was changed.",
            hint="Use a session that was started with "
            "spark.jars.packages=org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0 or the one for its Spark.",
        )


def _absolute(path: str) -> str:
    if path.startswith("file:"):
        return "file:///" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else f"file://{path}"


def _mark(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be known again of a version: what must be as it was, and how far the timeline is."""
    known = {"reader": CONNECTOR, "id": said["id"], "columns": _redefined(said["stored"])}
    settings = hashlib.blake2b(said["settings"].encode(), digest_size=16).hexdigest()
    return {**known, "settings": settings, "latest": said["latest"], "oldest": said["oldest"]}


def _fields(said: Mapping[str, Any]) -> tuple[Field, ...]:
    from msgspec.structs import replace

    struct = T.StructType.fromJson(json.loads(said["schema"]))
    plain = T.StructType([T.StructField(one.name, one.dataType, True) for one in struct.fields])
    stored = said["stored"]
    return tuple(
        replace(field, stored=None if stored[field.name] == field.name else stored[field.name])
        for field in table_fields(plain, (), check_source_column_name)
    )


def _redefined(stored: Mapping[str, str]) -> str | None:
    """Return what tells columns that are known by ids from others of their names; ``None`` where names are known."""
    known = sorted((name, by) for name, by in stored.items() if name != by)
    return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest() if known else None
