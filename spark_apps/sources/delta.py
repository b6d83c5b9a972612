"""Delta tables as a source: the file list of a version, read by ``deltalake`` from the table's log, without its jars.

Files with deletion vectors, and tables with column mapping or widened types, are not what Spark would take their files
for: their rows come through ``deltalake``. Reader features that it does not know are refused.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spark_apps.layout.partitions import canonical_string, partition_path, value_of
from spark_apps.layout.types import parse_type
from spark_apps.sources.delta_places import read_checked
from spark_apps.sources.logs.commits import Gap, LoggedFile, TableLog, net, read_mark, write_mark
from spark_apps.sources.logs.delta import DeltaLog
from spark_apps.sources.source_files import (
    STATE,
    Changes,
    Listing,
    SourceFile,
    cast_to_schema,
    check_distinct,
    filter_rows,
    read_parquet,
)
from spark_apps.storage.errors import (
    EnvironmentMismatch,
    LakeIndexError,
    ObjectNotFound,
    StorageError,
    StorageUnavailable,
    TableNotFound,
    UnsupportedSource,
    VersionNotFound,
)
from spark_apps.storage.names import check_source_column_name
from spark_apps.storage.printing import printable
from spark_apps.storage.store import Store, store_options
from spark_apps.timeline.allowed_sources import Folder
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import UNKNOWN_ROWS, Field, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

ENGINE = "deltalake"
# Features that say nothing of how a data file is read.
_HARMLESS = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}
_WHOLE = {"typeWidening": "type widening", "typeWidening-preview": "type widening"}
_KEY = "key below the table's folder"
AS_PARTITION = {"tinyint", "smallint", "int", "bigint", "string", "boolean", "date"}


@dataclass(frozen=True)
class _Opened:
    """A version of a table as ``deltalake`` has loaded it, and its files, which are all in the table's folder."""

    table: Any
    added: list[dict[str, Any]]


class DeltaTable:
    """A Delta table at its address."""

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._location = locate(location)
        self._storage_options = storage_options
        self._options = {key: str(value) for key, value in store_options(storage_options).items()}
        self._version: str | None = None
        self._masks: dict[int, dict[str, Any]] = {}

    @classmethod
    def of(cls, table: TableDefinition, storage_options: Mapping[str, Any] | None) -> DeltaTable:
        assert table.source is not None
        source = cls(table.source.location, storage_options)
        source._version = table.source.version
        return source

    # --- listing ----------------------------------------------------------------------------------------------

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the files of a version, the newest by default.

        :raises VersionNotFound: if there is no such version.
        :raises TableNotFound: if there is no table.
        :raises UnsupportedSource: if it cannot be read.
        """
        opened = self._open(version)
        table = opened.table
        number = int(table.version())
        self._version = str(number)
        fields, partition_by = self.columns(opened)
        whole = self._not_by_file(table)
        if whole is not None:
            file = SourceFile(
                self._uri(""), max(1, _bytes(table)), state=f"version {number}", through=ENGINE, why=whole
            )
            return Listing((file,), str(number), fields, (), str(table.metadata().id))
        files = [self._file(row, partition_by, fields) for row in opened.added]
        masks = self._deleted(table)
        files = [self._without_deleted(file, masks) for file in files]
        check_distinct(self._location.uri, files)
        mark = self._mark(number, {"reader": ENGINE})
        return Listing(tuple(files), str(number), fields, partition_by, str(table.metadata().id), mark)

    def changes(self, state: State) -> Changes | Gap:
        """Return what came and went since the version that a state of a log of indexes names."""
        return self._changes(state.table, ENGINE, self._of_commit)

    def _changes(
        self,
        table: TableDefinition,
        reader: str,
        file_of: Callable[[LoggedFile, TableDefinition, Mapping[str, Any]], SourceFile | None],
    ) -> Changes | Gap:
        """Return what came and went.

        :param reader: must have listed the files of before. :param file_of: a file as a listing has it, from what the
            mark says; ``None`` where only a listing can say.
        """
        source = table.source
        assert source is not None and source.version is not None and source.mark is not None
        said = read_mark(source.mark)
        if said.get("reader") != reader:
            return Gap(source.version, None, "another reader listed it")
        try:
            log: TableLog = DeltaLog(Store(self._location.uri, self._storage_options))
            found = log.since(source.version, said.get("commit"))
        except StorageError as error:  # a session's own connector may have other rights
            return Gap(source.version, None, f"its log cannot be read: {error.message.rstrip('.')}")
        if isinstance(found, Gap):
            return found
        changed = next((commit.version for commit in found.commits if commit.schema_changed), None)
        if changed is not None:
            return Gap(source.version, found.version, f"its commit {changed} changed columns or properties")
        added, removed = net(found.commits)
        files: list[SourceFile] = []
        for logged in added.values():
            file = file_of(logged, table, said)
            if file is None:
                return Gap(source.version, found.version, "its commits added files that only a list of all describes")
            files.append(file)
        self._version = found.version
        mark = write_mark({**said, "commit": found.mark})
        return Changes(tuple(files), tuple(map(self._uri, sorted(removed))), found.version, mark, len(found.commits))

    def _mark(self, version: int, said: Mapping[str, str | None]) -> str | None:
        """Return the mark of a version; ``None`` where its commit is not there by itself.

        :param said: what the next reader has to know beside.
        """
        try:
            commit = DeltaLog(Store(self._location.uri, self._storage_options)).mark(version)
        except StorageError as error:
            logger.info("The log of %s is not followed: %s", self._location.uri, error)
            return None
        return None if commit is None else write_mark({**said, "commit": commit})

    def _of_commit(self, file: LoggedFile, table: TableDefinition, said: Mapping[str, Any]) -> SourceFile | None:
        if file.deletes or set(file.partition) - set(table.partition_by):
            return None
        return self._logged(file, table.partition_by, {field.name: field for field in table.fields})

    def _logged(
        self,
        file: LoggedFile,
        partition_by: Sequence[str],
        stored: Mapping[str, Field],
        whole: str | None = None,
        columns: str | None = None,
        through: str = ENGINE,
    ) -> SourceFile:
        """Return a file as the log of a table has it.

        :param stored: name of a column in the log -> the column.
        :param whole: why Spark's Parquet reader would misread every file, if it would.
        :param columns: what distinguishes columns in files from others of their names.
        :param through: what reads files that Spark's reader would misread.
        """
        # The protocol takes an empty string for a null.
        texts = {stored[name].name: text or None for name, text in file.partition.items() if name in stored}
        types = {field.name: field.type for field in stored.values()}
        values = [
            None if (text := texts.get(name)) is None else value_of(text, parse_type(types[name]), name)
            for name in partition_by
        ]
        kinds = [types[name] for name in partition_by]
        why = whole or ("deletion vector" if file.deletes else None)
        return SourceFile(
            path=self._uri(file.path),
            bytes=file.bytes,
            modified=file.modified,
            etag=columns,
            rows=UNKNOWN_ROWS if file.rows < 0 else file.rows - file.deleted_rows,
            partition=partition_path(partition_by, values, kinds),
            partition_values=tuple(
                canonical_string(value, parse_type(kind)) for value, kind in zip(values, kinds, strict=True)
            ),
            state=file.deletes,
            through=through if why else None,
            why=why,
        )

    def table_id(self) -> str:
        """Return the id that the format gives the table, which one that is made anew does not have."""
        return str(self._open(None).table.metadata().id)

    def columns(self, opened: _Opened | None = None) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        """Return the fields, and those of the partition columns that a path can hold.

        Values of timestamps, decimals and floats are kept file by file.
        """
        from pyspark.sql import types as T

        from spark_apps.mergetree.schema import table_fields

        table = (self._open(None) if opened is None else opened).table
        struct = T.StructType.fromJson(json.loads(table.schema().to_json()))
        fields = table_fields(_plain(struct), (), check_source_column_name)
        if self._not_by_file(table) is not None:
            return fields, ()
        types = {field.name: field.type for field in fields}
        names = table.metadata().partition_columns
        binary = next((name for name in names if types[name] == "binary"), None)
        if binary is not None:
            raise UnsupportedSource(
                f"{self._location.uri} is partitioned by the binary column {binary!r}.", hint="It cannot be registered."
            )
        return fields, tuple(name for name in names if types[name] in AS_PARTITION)

    def _open(self, version: str | int | None) -> _Opened:
        """Load a version, and check the places of all files that it would make a reader open."""
        try:
            import deltalake
            from deltalake import exceptions
        except ImportError as error:
            raise EnvironmentMismatch(
                "Delta tables are read by the package deltalake, which is not installed.",
                hint="pip install 'lakeindex[lake]'.",
            ) from error
        if version is not None and not str(version).isdigit():
            raise VersionNotFound(f"{version!r} is no version of a Delta table.", hint="Give a number.")
        number = None if version is None else int(version)
        address = self._uri("").removeprefix("file://")
        try:
            store = Store(self._location.uri, self._storage_options)
            table = read_checked(store, number, lambda one: deltalake.DeltaTable(address, one, self._options or None))
        except exceptions.TableNotFoundError as error:
            raise TableNotFound(
                f"There is no Delta table at {self._location.uri}.", hint="Check the location."
            ) from error
        except (exceptions.DeltaError, OSError, ValueError) as error:
            if isinstance(error, LakeIndexError):
                raise
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            if number is not None:
                raise VersionNotFound(
                    f"Version {number} of the Delta table {self._location.uri} cannot be loaded: {text}",
                    hint="Choose a version that its log still holds.",
                ) from error
            raise StorageUnavailable(f"The log of {self._location.uri} cannot be read: {text}") from error
        self._check_features(table)
        return _Opened(table, self._added(table))

    def _check_features(self, table: Any) -> None:
        features = set(table.protocol().reader_features or ())
        unknown = sorted(features - _HARMLESS - _WHOLE.keys())
        if unknown:
            raise UnsupportedSource(
                f"{self._location.uri} uses the Delta reader feature {unknown[0]!r}, which this package does not know.",
                hint="Read it with an engine that knows the feature, or drop the feature from the table.",
            )

    def _not_by_file(self, table: Any) -> str | None:
        """Return why the table has to be read as a whole, or ``None``."""
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode != "none":
            return f"column mapping ({mode})"
        return next((_WHOLE[f] for f in table.protocol().reader_features or () if f in _WHOLE), None)

    def _uri(self, key: str) -> str:
        base = self._location.uri if not self._location.is_local else f"file://{self._location.uri}"
        return f"{base}/{key}" if key else base

    def _file(self, row: Mapping[str, Any], partition_by: Sequence[str], fields: Sequence[Field]) -> SourceFile:
        path = row[_KEY]
        types = {field.name: field.type for field in fields}
        # The protocol takes an empty string for a null.
        given = {name: None if value == "" else value for name, value in (row.get("partition") or {}).items()}
        values = {name: _utc(value, types[name]) for name, value in given.items()}
        texts = {name: canonical_string(value, parse_type(types[name])) for name, value in values.items()}
        modified = row.get("modification_time")
        rows = row.get("num_records")
        return SourceFile(
            path=self._uri(path),
            bytes=int(row["size_bytes"]),
            modified=None if modified is None else int(modified) / 1000,
            rows=UNKNOWN_ROWS if rows is None else int(rows),
            partition=partition_path(
                partition_by, [values[name] for name in partition_by], [types[name] for name in partition_by]
            ),
            partition_values=tuple(texts[name] for name in partition_by),
            values={name: text for name, text in texts.items() if name not in partition_by},
        )

    def _added(self, table: Any) -> list[dict[str, Any]]:
        """Return the files of a table as it was loaded; it reads no others, whatever its log holds by now.

        :raises UnsupportedSource: if one is outside of the table.
        """
        import pyarrow as pa

        rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        folder = Folder(self._location.uri)
        for row in rows:
            row[_KEY] = folder.key(row["path"])
            if row[_KEY] is None:
                raise self._outside(row["path"])
        return rows

    def _outside(self, path: str) -> UnsupportedSource:
        return UnsupportedSource(
            f"{self._location.uri} lists {printable(path[:300])}, which is outside of it (a shallow clone), or is "
            "written so that not all readers look for it in the same place.",
            hint="Register the table that it was cloned from.",
        )

    def _deleted(self, table: Any) -> dict[str, Any]:
        """Return which rows to keep, by path, of files with a deletion vector."""
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return {}
        number = int(table.version())
        if number not in self._masks:
            vectors = self._read(table.deletion_vectors).to_pylist()
            self._masks[number] = {self._as_listed(row["filepath"]): row["selection_vector"] for row in vectors}
        return self._masks[number]

    def _as_listed(self, path: str) -> str:
        """Return a path as ``deltalake`` gives it elsewhere in the form of :attr:`SourceFile.path`."""
        if path.startswith("file://"):
            return f"file://{unquote(path.removeprefix('file://'))}"
        return path if "://" in path else f"file://{path}"

    def _without_deleted(self, file: SourceFile, masks: Mapping[str, Any]) -> SourceFile:
        mask = masks.get(file.path)
        if mask is None:
            return file
        gone = sum(1 for kept in mask if not kept)
        rows = file.rows - gone if file.rows >= 0 else UNKNOWN_ROWS
        return replace(file, rows=rows, state=_digest(mask), through=ENGINE, why="deletion vector")

    # --- rows -------------------------------------------------------------------------------------------------

    def check(self, files: Sequence[DataFile]) -> None:
        """Check nothing: data files of Delta are never rewritten, and Spark says if one is gone."""

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Return the rows of a file that has a deletion vector, or of the whole table, as Arrow."""
        table = self._open(self._version).table
        if file.path == self._uri(""):
            return cast_to_schema(self._read(lambda: table.scan(columns=list(schema.names))), schema)
        mask = self._deleted(table).get(file.path)
        if mask is None or _digest(mask) != (file.extra or {}).get(STATE):
            raise ObjectNotFound(
                f"{file.path} has another deletion vector in version {self._version} of the Delta table than when it "
                "was listed.",
                outcome="Nothing was changed.",
                hint="Load the table again, which lists the source again.",
            )
        return cast_to_schema(filter_rows(read_parquet(file.path, self._options or None), mask), schema)

    def _read(self, what: Callable[[], Any]) -> Any:
        """Return what ``deltalake`` reads of files, as Arrow.

        :raises StorageError: if it cannot.
        """
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        try:
            return pa.table(what())
        except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StorageError(
                f"Files of the Delta table {self._location.uri} cannot be read: {printable(text[:500])}.",
                outcome="Nothing was changed.",
                hint="See whether its files are there, and readable; then load the table again.",
            ) from error


def _plain(struct: StructType) -> StructType:
    """Return the schema without Delta's own metadata of columns."""
    from pyspark.sql import types as T

    return T.StructType([T.StructField(field.name, field.dataType, field.nullable) for field in struct.fields])


def _bytes(table: Any) -> int:
    import pyarrow as pa

    return sum(pa.table(table.get_add_actions(flatten=True)).column("size_bytes").to_pylist())


def _utc(value: Any, kind: str) -> Any:
    if kind == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    return value


def _digest(mask: Sequence[bool]) -> str:
    return f"deleted {hashlib.blake2b(bytes(mask), digest_size=8).hexdigest()}"
