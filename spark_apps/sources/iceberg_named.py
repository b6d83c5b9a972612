"""Iceberg tables as a source by their names in a session's catalogs: listed, and read, by the session's own connector.

Such a table is known by the id that its format gives it, so one that was dropped and made anew is another. What its
connector opens is the session's right; this package opens none of its files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_apps.mergetree.schema import table_fields
from spark_apps.sources.iceberg import ENCRYPTED, ListedDeletes, deletes_of, digest, redefined_lines
from spark_apps.sources.iceberg_tables import IcebergSession, NamedTable, iceberg_of
from spark_apps.sources.logs.commits import Gap, LoggedDelete, LoggedFile, TableCommit, read_mark, write_mark
from spark_apps.sources.logs.iceberg import EXPIRED, NO_ANCESTOR, TOO_MANY, Start, absolute_path, effect
from spark_apps.sources.source_files import Changes, Listing, SourceFile, check_distinct
from spark_apps.storage.errors import EnvironmentMismatch, SourceNotAllowed, TableNotFound, UnsupportedSource
from spark_apps.storage.names import check_source_column_name
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER, READER
from spark_apps.timeline.catalog_names import join
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.locations import Location, locate
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_apps.mergetree.tree import ConnectorRows

CONNECTOR = "Iceberg's connector"
_WHY = "it is a table of a catalog"


def options_of(table: NamedTable) -> dict[str, str]:
    """Return what a registration writes down of a table: the catalog, and the name in it."""
    return {CATALOG: table.name.parts[0], IDENTIFIER: table.name.identifier, READER: "spark"}


def is_named(options: Mapping[str, str]) -> bool:
    """Test whether a registration names a table of a session's catalogs."""
    return READER in options


class NamedIcebergTable:
    """An Iceberg table that a session's catalog names."""

    def __init__(self, spark: SparkSession, location: str, options: Mapping[str, str], version: str | None) -> None:
        self._spark = spark
        self._location = locate(location)
        self._options = options
        self._version = version
        self._name = f"{join((options[CATALOG],))}.{options[IDENTIFIER]}"
        self._pinned = True
        self._is_placed = False

    @classmethod
    def of(cls, table: TableDefinition, spark: SparkSession) -> NamedIcebergTable:
        """Return the source of a registered table."""
        assert table.source is not None
        return cls(spark, table.source.location, table.source.options, table.source.version)

    @property
    def location(self) -> Location:
        return self._location

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the data files of a snapshot, the current one by default.

        :raises VersionNotFound: if there is no such version.
        :raises TableNotFound: if the catalog has no table of this name.
        """
        said = self._session().listing(self._name, None if version is None else str(version))
        if said is None:
            raise self._missing()
        self._check_place(said["location"])
        self._version = said["version"]
        self._pinned = said["pinned"]
        columns = redefined_lines(said["schema_id"], said["schemas"])
        files = [_file(each, columns) for each in said["files"]]
        check_distinct(self._location.uri, files)
        mark = None if said["version"] is None else write_mark(_known(said))
        return Listing(tuple(files), said["version"], _fields(said), (), said["id"], mark)

    def changes(self, state: State) -> Changes | Gap:
        """Return what came and went since the snapshot that a state of a log of indexes names.

        :raises TableNotFound: if the catalog has no table of this name.
        """
        source = state.table.source
        assert source is not None and source.version is not None and source.mark is not None
        said = self._session().changes(self._name, source.version)
        if said is None:
            raise self._missing()
        self._check_place(said["location"])
        newest = said["version"]
        if read_mark(source.mark) != _known(said):
            return Gap(source.version, newest, "another reader listed it, or its columns were redefined")
        if said["gap"] is not None:
            return Gap(source.version, newest, _GAPS[said["gap"]])
        commits = [_commit(each) for each in reversed(said["commits"])]
        start = Start(said["start"], said["start_deletes"])
        found = effect(commits, start, said["has_deletes"], ListedDeletes(state))
        if found.why is not None:
            return Gap(source.version, newest, found.why)
        self._version, self._pinned = newest, said["pinned"]
        columns, files = redefined_lines(said["schema_id"], said["schemas"]), []
        for path, deletes in found.deletes.items():
            file = found.added.get(path) or state.file_set.get(DATA_TREE, path)
            assert file is not None
            files.append(_file((path, file.bytes, file.rows, deletes), columns))
        removed = tuple(sorted(found.removed))
        return Changes(tuple(files), removed, newest, source.mark, len(commits), _fields(said))

    def check(self, files: Sequence[DataFile]) -> None:
        """Check nothing: data files of Iceberg are never rewritten, and Spark says if one is gone."""

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Refuse: the session's connector reads the rows. :raises UnsupportedSource: always."""
        raise UnsupportedSource(
            f"{file.path} is read by {CONNECTOR} in Spark alone.", hint="Use a session that has the connector."
        )

    def connector_rows(self, spark: SparkSession, files: Sequence[DataFile], columns: Sequence[str]) -> ConnectorRows:
        """Return the rows of files. :raises SourceNotAllowed: if the catalog's table is at another place."""
        session = self._session()
        if not self._is_placed:
            found = session.find(self._name)
            if found is None:
                raise self._missing()
            self._check_place(found.location)
        deletes = {file.path: deletes_of(file) for file in files}
        # The columns of now may be of no snapshot yet.
        version = self._version if self._pinned else None
        return session.rows(self._name, version, deletes, columns)

    def why_protected(self) -> str | None:
        """Return by what not everybody who may read the table's index could read its rows; ``None`` if by nothing."""
        found = self._session().find(self._name)
        if found is not None and found.encrypted:
            return ENCRYPTED
        if found is not None and found.given_out:
            return f"the catalog lends the rights to read its files ({', '.join(found.given_out)})"
        return None

    def _missing(self) -> TableNotFound:
        return TableNotFound(f"The session's catalogs have no Iceberg table {self._name}.")

    def _check_place(self, location: str) -> None:
        """Check that the name is of the table at the registered place: whoever may write a log there names any other.

        :raises SourceNotAllowed: if it is of another one.
        """
        if locate(location).uri != self._location.uri:
            raise SourceNotAllowed(
                f"The log of {self._location.uri} names the table {self._name}, which the session's catalog has at "
                f"{locate(location).uri}.",
                outcome="Nothing was read of it, and nothing was changed.",
                hint="If the table was moved, drop the registration, which leaves the table alone, and register it "
                "again; else find out who wrote to the log.",
            )
        self._is_placed = True

    def _session(self) -> IcebergSession:
        session = iceberg_of(self._spark)
        if session is None:
            raise EnvironmentMismatch(
                f"{self._name} is read by {CONNECTOR} of Spark, which this session has not.",
                hint="Start the session with spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-…, and with "
                f"the catalog {self._options[CATALOG]}.",
            )
        return session


_GAPS = {"ancestor": NO_ANCESTOR, "expired": EXPIRED, "many": TOO_MANY}


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a table must be as it was, for the files that are listed to stay as they are."""
    columns = digest(redefined_lines(said["schema_id"], said["schemas"]))
    return {"reader": CONNECTOR, "id": said["id"], "columns": columns}


def _commit(said: Mapping[str, Any]) -> TableCommit:
    added = [
        LoggedFile(absolute_path(path), int(size), int(rows), sequence=number)
        for path, size, rows, number in said["added"]
    ]
    came, went = ([_delete(*each) for each in said[name]] for name in ("deletes_added", "deletes_removed"))
    return TableCommit(
        said["version"],
        said["time"] / 1000,
        said["operation"] or "",
        tuple(added),
        tuple(map(absolute_path, said["removed"])),
        deletes_added=tuple(came),
        deletes_removed=tuple(went),
        sequence=said["sequence"],
    )


def _delete(path: str, of: str | None, is_vector: bool) -> LoggedDelete:
    return LoggedDelete(path, None if of is None else absolute_path(of), is_vector)


def _file(said: Sequence[Any], columns: str) -> SourceFile:
    location, size, rows, deletes = said
    return SourceFile(
        path=absolute_path(location),
        bytes=int(size),
        rows=-1 if deletes else int(rows),
        state="\n".join([*deletes, columns] if columns else deletes),
        through=CONNECTOR,
        why=_WHY,
    )


def _fields(said: Mapping[str, Any]) -> tuple[Field, ...]:
    from msgspec.structs import replace
    from pyspark.sql.types import StructType

    struct = StructType.fromJson(json.loads(said["schema"]))
    fields = table_fields(struct, (), check_source_column_name)
    stored = said["stored"]
    return tuple(
        replace(field, stored=None if stored[field.name] == field.name else stored[field.name], nullable=True)
        for field in fields
    )
