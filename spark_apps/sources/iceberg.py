"""Iceberg tables as a source: the data files of a snapshot, planned by ``pyiceberg`` from the table's metadata, without
its jars.

Spark is given the Parquet files by their column names. Where those do not tell the truth (columns renamed, types
widened, other formats), and where rows of a file are deleted by position, the rows come through ``pyiceberg``; deletes
by equality are refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_apps.layout.partitions import canonical_string, partition_path
from spark_apps.layout.types import parse_type
from spark_apps.sources.arrow import shaped
from spark_apps.sources.files import Listing, SourceFile, check_distinct
from spark_apps.sources.iceberg_catalog import CATALOG, IDENTIFIER, io_properties, load_at, load_named
from spark_apps.sources.iceberg_types import become, fields_of, same_names_and_types
from spark_apps.sources.locations import Location, locate
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
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition
from spark_apps.timeline.sources import check_file

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ENGINE = "pyiceberg"
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
        found = cls(table.source.location, table.source.options, storage_options)
        found._log = log
        found._partition_by = table.partition_by
        found._version = table.source.version
        return found

    @property
    def location(self) -> Location:
        """The table's folder, also where it was named by a catalog."""
        if self._location is None:
            self._location = locate(self._open().location())
        return self._location

    # --- listing ----------------------------------------------------------------------------------------------

    def listing(self, version: str | int | None = None) -> Listing:
        """The data files of a snapshot, the current one by default.

        :raises VersionNotFound: :raises TableNotFound: :raises UnsupportedSource:
        """
        table = self._open()
        snapshot = self._snapshot(table, version)
        fields, identity = self.columns(table, snapshot)
        if snapshot is None:
            return Listing((), None, fields, identity)
        schema = _schema_of(table, snapshot) if version is not None else table.schema()
        why, columns = same_names_and_types(table, schema), become(table, schema)
        self._version = str(snapshot.snapshot_id)
        files = [
            self._file(table, task, identity, fields, why, columns) for task in self._plan(table, snapshot).values()
        ]
        check_distinct(self.location.uri, files)
        return Listing(tuple(files), self._version, fields, identity)

    def columns(self, table: Any = None, snapshot: Any = None) -> tuple[tuple[Field, ...], tuple[str, ...]]:
        """Fields, and the columns that the table is partitioned by as they are (not by buckets, days and the like)."""
        table = self._open() if table is None else table
        current = table.current_snapshot()
        at_past = snapshot is not None and current is not None and snapshot.snapshot_id != current.snapshot_id
        schema = _schema_of(table, snapshot) if at_past else table.schema()
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
        self, table: Any, task: Any, identity: Sequence[str], fields: Sequence[Field], why: str | None, columns: str
    ) -> SourceFile:
        data = task.file
        types = {field.name: field.type for field in fields}
        spec = table.specs()[data.spec_id]
        told = {
            table.schema().find_column_name(part.source_id): data.partition[n]
            for n, part in enumerate(spec.fields)
            if str(part.transform) == "identity"
        }
        if not set(identity) <= told.keys():
            raise UnsupportedSource(
                f"{data.file_path} is not partitioned by ({', '.join(identity)}) any more: the partition spec of "
                f"{self.location.uri} has changed since it was registered.",
                hint="Drop the registration and register the table again.",
            )
        values = [_plain_value(told[name], types[name]) for name in identity]
        kinds = [types[name] for name in identity]
        beside = sorted(str(name) for name in told.keys() - set(identity))
        deletes = sorted(str(delete.file_path) for delete in task.delete_files)
        if deletes:
            why = "delete files"
        elif why is None and beside:
            # Such a column may stand in the metadata only.
            why = f"partition column {beside[0]!r}, by which the table was not partitioned when it was registered"
        elif why is None and str(data.file_format).rpartition(".")[2].upper() != "PARQUET":
            why = f"data files of format {str(data.file_format).rpartition('.')[2]}"
        return SourceFile(
            path=_absolute(data.file_path),
            bytes=int(data.file_size_in_bytes),
            rows=int(data.record_count) if not deletes else -1,
            partition=partition_path(identity, values, kinds),
            partition_values=tuple(canonical_string(v, parse_type(k)) for v, k in zip(values, kinds, strict=True)),
            state="\n".join([*deletes, columns] if columns else deletes),
            through=ENGINE if why is not None else None,
            why=why,
        )

    def _plan(self, table: Any, snapshot: Any) -> dict[str, Any]:
        """Path -> task, of a snapshot's data files."""
        key = str(snapshot.snapshot_id)
        if key not in self._tasks:
            try:
                self._check_file(snapshot.manifest_list)
                for manifest in snapshot.manifests(table.io):
                    self._check_file(manifest.manifest_path)
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
            for task in tasks:
                for file in (task.file, *task.delete_files):
                    self._check_file(file.file_path)
            self._tasks[key] = {_absolute(task.file.file_path): task for task in tasks}
        return self._tasks[key]

    def _snapshot(self, table: Any, version: str | int | None) -> Any:
        if version is None:
            return table.current_snapshot()
        found = table.snapshot_by_id(int(version)) if str(version).isdigit() else table.snapshot_by_name(str(version))
        if found is None:
            known = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-5:])
            raise VersionNotFound(
                f"{self.location.uri} has no snapshot {version!r}.", hint=f"Its newest are: {known or 'none'}."
            )
        return found

    # --- opening ----------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        try:
            from pyiceberg.exceptions import NoSuchTableError
        except ImportError as error:
            raise EnvironmentMismatch(
                "Iceberg tables are read by the package pyiceberg, which is not installed.",
                hint="pip install 'airflow-provider-index[lake]'.",
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
            hint="A folder without version-hint.text does not tell its newest metadata, for only the catalog knows "
            "what was committed: give options={'catalog': …, 'identifier': …}, or the metadata file itself.",
        )

    def _checked(self, table: Any) -> Any:
        """A table that a catalog gave by the name in a log: it has to be the one that was registered.

        :raises SourceNotAllowed:
        """
        if self._location is not None:
            self._check_file(table.location().rstrip("/"))
        return table

    def _check_file(self, path: str) -> None:
        source = SourceDefinition("iceberg", self.location.uri, self._options)
        check_file(_absolute(path), source, self._storage_options, self._log)

    def _where(self) -> str:
        return self._options.get(IDENTIFIER) or (self._location.uri if self._location else "?")

    # --- rows -------------------------------------------------------------------------------------------------

    def check(self, files: Sequence[DataFile]) -> None:
        """Data files of Iceberg are never rewritten; Spark says if one is gone."""

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """The rows of a data file, without those that its delete files name, as Arrow.

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
                hint="Load the table again, which lists the source anew.",
            )
        current = table.current_snapshot()
        past = current is None or snapshot.snapshot_id != current.snapshot_id
        projected = (_schema_of(table, snapshot) if past else table.schema()).select(*schema.names)
        try:
            rows = ArrowScan(table.metadata, table.io, projected, AlwaysTrue()).to_table([task])
        except (ValueError, NotImplementedError) as error:
            raise UnsupportedSource(f"{file.path} cannot be read through {ENGINE}: {error}.") from error
        return shaped(rows, schema)


def _schema_of(table: Any, snapshot: Any) -> Any:
    return table.schemas()[snapshot.schema_id] if snapshot.schema_id is not None else table.schema()


def _absolute(path: str) -> str:
    if path.startswith("file:"):
        return "file:///" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else f"file://{path}"


def _plain_value(value: Any, kind: str) -> Any:
    """A partition value as Python has it; dates come as days since 1970."""
    if kind == "date" and isinstance(value, int):
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return value


def name_of_catalog(options: Mapping[str, str], uri: str) -> dict[str, str]:
    """The options completed with the identifier, where a table is named by a catalog.

    :raises InvalidInput: for options of a catalog without its name.
    """
    if CATALOG not in options:
        stray: Iterator[str] = (name for name in options if name == IDENTIFIER or name.startswith(f"{CATALOG}."))
        found = next(stray, None)
        if found is not None:
            raise InvalidInput(f"The option {found!r} goes with 'catalog', which is missing.", hint="Name the catalog.")
        return dict(options)
    return {IDENTIFIER: uri, **options}
