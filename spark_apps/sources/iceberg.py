"""Iceberg tables as a source: the data files of a snapshot, planned by ``pyiceberg`` from its metadata.

Spark is given the Parquet files by their column names. Where those are not enough (columns renamed, types
widened, other formats), and where rows of a file are deleted by position, the rows come through ``pyiceberg``; deletes
by equality are refused.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spark_apps.layout.partitions import canonical_string, partition_path
from spark_apps.layout.types import date_or_time, parse_type
from spark_apps.mergetree.schema import quote
from spark_apps.sources.iceberg_catalog import io_properties, load_at, load_named
from spark_apps.sources.iceberg_tables import iceberg_of
from spark_apps.sources.logs.commits import Gap, read_mark, write_mark
from spark_apps.sources.logs.iceberg import IcebergLog, absolute_path, effect
from spark_apps.sources.source_files import STATE, Changes, Listing, SourceFile, cast_to_schema, check_distinct
from spark_apps.storage.errors import (
    EnvironmentMismatch,
    InvalidInput,
    LakeIndexError,
    ObjectNotFound,
    StorageUnavailable,
    TableNotFound,
    UnsupportedSource,
    VersionNotFound,
)
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER, READER, check_files
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.locations import Location, locate
from spark_apps.timeline.model import DATA_TREE, Field, SourceDefinition, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_apps.mergetree.tree import ConnectorRows

logger = logging.getLogger(__name__)

ENCRYPTION_KEY = "encryption.key-id"
ENCRYPTED = f"the table's files are encrypted (its property {ENCRYPTION_KEY!r})"

_SIMPLE = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}


def fields_of(schema: Any, location: str) -> tuple[Field, ...]:
    """Return the columns of an Iceberg schema.

    :raises UnsupportedSource: naming a column of a type that Spark has not.
    """
    return tuple(
        Field(field.name, _spark_type(field.field_type, field.name, location), True) for field in schema.fields
    )


def _spark_type(kind: Any, name: str, location: str) -> str:
    from pyiceberg import types as I

    if isinstance(kind, I.StructType):
        inner = ",".join(
            f"{quote(f.name)}:{_spark_type(f.field_type, f'{name}.{f.name}', location)}" for f in kind.fields
        )
        return f"struct<{inner}>"
    if isinstance(kind, I.ListType):
        return f"array<{_spark_type(kind.element_type, name, location)}>"
    if isinstance(kind, I.MapType):
        return f"map<{_spark_type(kind.key_type, name, location)},{_spark_type(kind.value_type, name, location)}>"
    if isinstance(kind, I.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, I.FixedType):
        return "binary"
    text = str(kind)
    if text not in _SIMPLE:
        raise UnsupportedSource(
            f"The column {name!r} of {location} is of the Iceberg type {text}, which Spark has not.",
            hint="It cannot be registered.",
        )
    return _SIMPLE[text]


def same_names_and_types(table: Any, schema: Any) -> str | None:
    """Return why the files cannot be read by the names of columns, or ``None``.

    They can if, in every schema that the table had, each column of ``schema`` went by its name and type, and nothing
    else went by that name.
    """
    now = {field_id: (name, _type(schema, field_id)) for name, field_id in _field_ids(schema)}
    by_name = {name: field_id for field_id, (name, _) in now.items()}
    for other in table.schemas().values():
        for name, field_id in _field_ids(other):
            if field_id in now and now[field_id][0] != name:
                return f"column {name!r} was renamed to {now[field_id][0]!r}"
            if field_id in now and now[field_id][1] != _type(other, field_id):
                return f"column {name!r} was of another type"
            if by_name.get(name, field_id) != field_id:
                return f"column {name!r} was dropped and added again"
    if any(getattr(field, "initial_default", None) is not None for field in schema.fields):
        return "columns with a default value"
    mapping = table.name_mapping()
    if mapping is not None and any(len(field.names) > 1 for field in mapping.root):
        return "a name mapping with several names for a column"
    return None


def redefined_columns(table: Any, schema: Any) -> str:
    """Return what :func:`redefined_lines` does of a schema of a table that ``pyiceberg`` has loaded."""
    schemas = [
        (one.schema_id, {name: f"{field_id}, {_type(one, field_id)}" for name, field_id in _field_ids(one)})
        for one in table.schemas().values()
    ]
    return redefined_lines(schema.schema_id, schemas)


def redefined_lines(schema_id: int, schemas: Sequence[tuple[int, Mapping[str, str]]]) -> str:
    """Return the columns of a schema whose names were those of others earlier, a line each by id and type; "" if none.

    What indexes hold of files then says nothing of these columns. Later schemas do not count, so that of a snapshot of
    the past the same is said as was then.

    :param schemas: the id of each schema that the table had, and its columns: name -> ``"<id>, <type>"``.
    """
    now = dict(schemas)[schema_id]
    names = {column.partition(",")[0]: name for name, column in now.items()}
    names_changed: set[str] = set()
    for other_id, columns in schemas:
        if other_id >= schema_id:
            continue
        for name, column in columns.items():
            if now.get(name, column) != column:
                names_changed.add(name)
            now_called = names.get(column.partition(",")[0], name)
            if now_called != name:
                names_changed.add(now_called)
    return "\n".join(f"{name!r}: {now[name]}" for name in sorted(names_changed))


def _field_ids(schema: Any) -> list[tuple[str, int]]:
    from pyiceberg.schema import index_by_name

    return [(name, field_id) for name, field_id in index_by_name(schema).items()]


def _type(schema: Any, field_id: int) -> str:
    kind = schema.find_field(field_id).field_type
    return str(kind) if kind.is_primitive else type(kind).__name__


# --- Iceberg tables as a source -------------------------------------------------------------------------------------


ENGINE = "pyiceberg"
_DELETES = "delete files"
_AS_PARTITION = {"tinyint", "smallint", "int", "bigint", "string", "boolean", "date"}


class IcebergTable:
    """An Iceberg table: at an address, or by its name in a catalog that ``pyiceberg`` is configured for.

    :param options: ``catalog`` and ``identifier``, and ``catalog.*`` for the catalog's own properties.
    """

    def __init__(
        self, location: str, options: Mapping[str, str], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._location = locate(location) if location else None
        self._options = dict(options)
        self._storage_options = storage_options
        self._log = ""
        self._partition_by: tuple[str, ...] | None = None
        self._version: str | None = None
        self._tasks: dict[str, dict[str, Any]] = {}

    @classmethod
    def of(cls, table: TableDefinition, storage_options: Mapping[str, Any] | None, log: str = "") -> IcebergTable:
        assert table.source is not None
        source = cls(table.source.location, table.source.options, storage_options)
        source._log = log
        source._partition_by = table.partition_by
        source._version = table.source.version
        return source

    @property
    def location(self) -> Location:
        """The table's folder, also where it was named by a catalog."""
        if self._location is None:
            table = self._open()
            claimed = table.location().rstrip("/")
            # Whoever writes the metadata says where the table is: a folder above it would hold the files of others.
            folder = table.metadata_location.rpartition("/")[0].removesuffix("/metadata")
            check_files((claimed,), SourceDefinition("iceberg", folder), self._storage_options, self._log)
            self._location = locate(claimed)
        return self._location

    def why_protected(self) -> str | None:
        """Return by what not everybody who may read the table's index could read its rows; ``None`` if by nothing."""
        return ENCRYPTED if ENCRYPTION_KEY in self._open().properties else None

    # --- listing ----------------------------------------------------------------------------------------------

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the data files of a snapshot, the current one by default.

        :raises VersionNotFound: if there is no such version.
        :raises TableNotFound: if there is no table.
        :raises UnsupportedSource: if it cannot be read.
        """
        table = self._open()
        snapshot = self._snapshot(table, version)
        fields, identity = self.columns(table, snapshot)
        # Where a session's catalog named it, the other reader tells by this id whether it is the same table.
        own_id = str(table.metadata.table_uuid) if READER in self._options else None
        if snapshot is None:
            return Listing((), None, fields, identity, own_id)
        schema = _schema_of(table, snapshot)
        why, columns = same_names_and_types(table, schema), redefined_columns(table, schema)
        self._version = str(snapshot.snapshot_id)
        files = [
            self._file(
                table, task.file, [str(one.file_path) for one in task.delete_files], identity, fields, why, columns
            )
            for task in self._plan(table, snapshot).values()
        ]
        check_distinct(self.location.uri, files)
        mark = write_mark(_known(table, why, columns))
        return Listing(tuple(files), self._version, fields, identity, own_id, mark)

    def changes(self, state: State) -> Changes | Gap:
        """Return what came and went since the snapshot that a state of a log of indexes names."""
        source = state.table.source
        assert source is not None and source.version is not None and source.mark is not None
        table, since = self._open(), source.version
        current = table.current_snapshot()
        schema = _schema_of(table, current)
        why, columns = same_names_and_types(table, schema), redefined_columns(table, schema)
        if read_mark(source.mark) != _known(table, why, columns):
            return Gap(since, None, "another reader listed it, or its columns were redefined, or it was made anew")
        log = IcebergLog(table, self._check_files)
        said = log.since(since)
        if isinstance(said, Gap):
            return said
        fields, identity = self.columns(table, current)
        if not said.commits:
            return Changes((), (), since, source.mark, 0, fields)
        found = effect(said.commits, log.start(since), log.has_deletes(), ListedDeletes(state))
        if found.why is None and any(
            not deletes and path not in found.added for path, deletes in found.deletes.items()
        ):
            found.why = "deletes were taken away"
        if found.why is not None:
            return Gap(since, said.version, found.why)
        self._version = said.version
        files = []
        for path, deletes in found.deletes.items():
            if path in found.added:
                data = found.added[path].format_file
                files.append(self._file(table, data, deletes, identity, fields, why, columns))
            else:
                files.append(_with_deletes(state, path, deletes, columns))
        return Changes(tuple(files), tuple(sorted(found.removed)), said.version, source.mark, len(said.commits), fields)

    def columns(self, table: Any = None, snapshot: Any = None) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        """Return the fields, and the columns that the table is partitioned by as they are.

        Not those of which buckets, days and the like are the partitions.
        """
        table = self._open() if table is None else table
        current, schema = table.current_snapshot(), _schema_of(table, snapshot)
        fields = fields_of(schema, self.location.uri)
        if self._partition_by is not None:
            return fields, self._partition_by
        types = {field.name: field.type for field in fields}
        names = [
            schema.find_column_name(part.source_id) for part in table.spec().fields if str(part.transform) == "identity"
        ]
        usable = [name for name in names if name is not None and types.get(name) in _AS_PARTITION]
        specs = {task.file.spec_id for task in self._plan(table, current).values()} if current is not None else set()
        return fields, tuple(usable) if specs <= {table.spec().spec_id} else ()

    def _file(
        self,
        table: Any,
        data: Any,
        deletes: Sequence[str],
        identity: Sequence[str],
        fields: Sequence[Field],
        why: str | None,
        columns: str,
    ) -> SourceFile:
        types = {field.name: field.type for field in fields}
        spec = table.specs()[data.spec_id]
        partition_values = {
            table.schema().find_column_name(part.source_id): data.partition[n]
            for n, part in enumerate(spec.fields)
            if str(part.transform) == "identity"
        }
        if not set(identity) <= partition_values.keys():
            raise UnsupportedSource(
                f"{data.file_path} is not partitioned by ({', '.join(identity)}) any more: the partition spec of "
                f"{self.location.uri} has changed since it was registered.",
                hint="Drop the registration and register the table again.",
            )
        values = [_plain_value(partition_values[name], types[name]) for name in identity]
        kinds = [types[name] for name in identity]
        beside = sorted(str(name) for name in partition_values.keys() - set(identity))
        if deletes:
            why = _DELETES
        elif why is None and beside:
            # Such a column may be in the metadata only.
            why = f"partition column {beside[0]!r}, by which the table was not partitioned when it was registered"
        elif why is None and str(data.file_format).rpartition(".")[2].upper() != "PARQUET":
            why = f"data files of format {str(data.file_format).rpartition('.')[2]}"
        return SourceFile(
            path=absolute_path(data.file_path),
            bytes=int(data.file_size_in_bytes),
            rows=int(data.record_count) if not deletes else -1,
            partition=partition_path(identity, values, kinds),
            partition_values=tuple(canonical_string(v, parse_type(k)) for v, k in zip(values, kinds, strict=True)),
            state=_state(deletes, columns),
            through=ENGINE if why is not None else None,
            why=why,
        )

    def _plan(self, table: Any, snapshot: Any) -> dict[str, Any]:
        """Return the tasks of a snapshot's data files, by path."""
        key = str(snapshot.snapshot_id)
        if key not in self._tasks:
            try:
                self._check_files(snapshot.manifest_list)
                self._check_files(*(manifest.manifest_path for manifest in snapshot.manifests(table.io)))
                tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
            except LakeIndexError:
                raise
            except (ValueError, NotImplementedError) as error:
                raise UnsupportedSource(
                    f"The files of snapshot {key} of {self.location.uri} cannot be planned: {error}.",
                    hint="Compact the table (rewrite its data files), which removes delete files.",
                ) from error
            except OSError as error:
                raise StorageUnavailable(f"The metadata of {self.location.uri} cannot be read: {error}.") from error
            self._check_files(*(file.file_path for task in tasks for file in (task.file, *task.delete_files)))
            self._tasks[key] = {absolute_path(task.file.file_path): task for task in tasks}
        return self._tasks[key]

    def _snapshot(self, table: Any, version: str | int | None) -> Any:
        if version is None:
            return table.current_snapshot()
        snapshot = (
            table.snapshot_by_id(int(version)) if str(version).isdigit() else table.snapshot_by_name(str(version))
        )
        if snapshot is None:
            known = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-5:])
            raise VersionNotFound(
                f"{self.location.uri} has no snapshot {version!r}.", hint=f"Its newest are: {known or 'none'}."
            )
        return snapshot

    # --- opening ----------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        try:
            from pyiceberg.exceptions import NoSuchTableError
        except ImportError as error:
            raise EnvironmentMismatch(
                "Iceberg tables are read by the package pyiceberg, which is not installed.",
                hint="pip install 'lakeindex[lake]'.",
            ) from error
        try:
            if CATALOG in self._options:
                return self._checked(load_named(self._options, io_properties(self._storage_options)))
            assert self._location is not None
            return load_at(self._location.uri, self._storage_options)
        except (NoSuchTableError, FileNotFoundError, TableNotFound) as error:
            raise self._missing(error) from error
        except LakeIndexError:
            raise
        except (ValueError, KeyError, OSError) as error:
            raise StorageUnavailable(f"The Iceberg table {self._where()} cannot be loaded: {error}.") from error

    def _missing(self, error: Exception) -> TableNotFound:
        return TableNotFound(
            f"There is no Iceberg table at {self._where()}: {str(error).rstrip('.')}.",
            hint="A folder without version-hint.text does not name its newest metadata, for only the catalog knows "
            "what was committed: give options={'catalog': …, 'identifier': …}, or the metadata file itself.",
        )

    def _checked(self, table: Any) -> Any:
        """Return a table that a catalog gave by the name in a log, if it is the one that was registered.

        :raises SourceNotAllowed: if the location of the table is another one.
        """
        if self._location is not None:
            self._check_files(table.location().rstrip("/"))
        return table

    def _check_files(self, *paths: str) -> None:
        """Check the places of files that the metadata names, as ``pyiceberg`` is given them."""
        source = SourceDefinition("iceberg", self.location.uri, self._options)
        check_files(paths, source, self._storage_options, self._log)

    def _where(self) -> str:
        return self._options.get(IDENTIFIER) or (self._location.uri if self._location else "?")

    # --- rows -------------------------------------------------------------------------------------------------

    def check(self, files: Sequence[DataFile]) -> None:
        """Check nothing: data files of Iceberg are never rewritten, and Spark says if one is gone."""

    def connector_rows(
        self, spark: SparkSession, files: Sequence[DataFile], columns: Sequence[str]
    ) -> ConnectorRows | None:
        """Return the rows of files as Spark's own connector reads them by the table's metadata file.

        :return: ``None`` where the session cannot read them.
        """
        session = iceberg_of(spark)
        if session is None:
            return None
        table = self._open()
        current = table.current_snapshot()
        # Of the current snapshot the columns are those of now, which may be of no snapshot yet.
        is_current = current is not None and str(current.snapshot_id) == self._version
        deletes = {file.path: deletes_of(file) for file in files}
        try:
            return session.rows(table.metadata_location, None if is_current else self._version, deletes, columns)
        except StorageUnavailable as error:
            logger.warning("Files of %s are read through %s: %s", self.location.uri, ENGINE, error)
            return None

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Return the rows of a data file, without those that its delete files name, as Arrow.

        :raises UnsupportedSource: if ``pyiceberg`` cannot read it either.
        """
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._open()
        snapshot = self._snapshot(table, self._version)
        task = self._plan(table, snapshot).get(file.path)
        if task is None:
            raise ObjectNotFound(
                f"{file.path} is not among the files of snapshot {self._version} of {self.location.uri}.",
                outcome="Nothing was changed.",
                hint="Load the table again, which lists the source again.",
            )
        projected = _schema_of(table, snapshot).select(*schema.names)
        try:
            rows = ArrowScan(table.metadata, table.io, projected, AlwaysTrue()).to_table([task])
        except (ValueError, NotImplementedError) as error:
            raise UnsupportedSource(f"{file.path} cannot be read through {ENGINE}: {error}.") from error
        return cast_to_schema(rows, schema)


def _known(table: Any, why: str | None, columns: str) -> dict[str, Any]:
    """Return what of a table must be as it was, for the files that are listed to stay as they are."""
    return {"reader": ENGINE, "id": str(table.metadata.table_uuid), "why": why, "columns": digest(columns)}


def digest(text: str) -> str:
    """Return a text's digest, for a mark."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _state(deletes: Sequence[str], columns: str) -> str:
    lines = sorted(deletes)
    return "\n".join([*lines, columns] if columns else lines)


def _with_deletes(state: State, path: str, deletes: Sequence[str], columns: str) -> SourceFile:
    """Return a file of a state with other deletes."""
    file = state.file_set.get(DATA_TREE, path)
    assert file is not None
    return SourceFile(
        path=path,
        bytes=file.bytes,
        partition=file.partition,
        partition_values=state.partitions[file.partition].values if file.partition in state.partitions else (),
        state=_state(deletes, columns),
        through=ENGINE,
        why=_DELETES,
    )


class ListedDeletes:
    """The deletes of files as a state has them."""

    def __init__(self, state: State) -> None:
        self._state = state

    def of(self, path: str) -> list[str] | None:
        """Return the locations of a file's deletes; ``None`` if the state has not the file."""
        file = self._state.file_set.get(DATA_TREE, path)
        return None if file is None else deletes_of(file)

    def holding(self, location: str) -> list[str]:
        """Return the paths of the files that a file of deletes is on."""
        return self._holders.get(location, [])

    @cached_property
    def _holders(self) -> dict[str, list[str]]:
        holders: dict[str, list[str]] = {}
        for file in self._state.files(DATA_TREE):
            for location in deletes_of(file):
                holders.setdefault(location, []).append(file.path)
        return holders


def deletes_of(file: DataFile) -> list[str]:
    """Return the locations of the deletes that a file was recorded with: its state also has lines of columns."""
    lines = str((file.extra or {}).get(STATE) or "").split("\n")
    return [line for line in lines if line and not line.startswith("'")]


def _schema_of(table: Any, snapshot: Any) -> Any:
    """Return the schema by which a snapshot is read: the table's own for the current one, else that of its time."""
    current = table.current_snapshot()
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    is_current = current is not None and snapshot.snapshot_id == current.snapshot_id
    return table.schema() if is_current else table.schemas()[snapshot.schema_id]


def _plain_value(value: Any, kind: str) -> Any:
    """Return a partition value as Python has it; dates come as days since 1970."""
    if kind == "date" and isinstance(value, int):
        return date_or_time(value, kind)
    return value


def name_of_catalog(options: Mapping[str, str], uri: str) -> dict[str, str]:
    """Return the options completed with the identifier, where a table is named by a catalog.

    :raises InvalidInput: for options of a catalog without its name.
    """
    if CATALOG not in options:
        stray: Iterator[str] = (name for name in options if name == IDENTIFIER or name.startswith(f"{CATALOG}."))
        option = next(stray, None)
        if option is not None:
            raise InvalidInput(
                f"The option {option!r} goes with 'catalog', which is missing.", hint="Name the catalog."
            )
        return dict(options)
    return {IDENTIFIER: uri, **options}
