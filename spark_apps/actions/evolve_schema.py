"""Changes of a table's columns: added, widened, renamed, dropped. No file is written anew.

A column keeps, for its life, the name that it was first stored under; a renamed one is read under its new name, and a
dropped one is no longer read. A file that lacks a column holds nulls in it. Versions before the change keep the columns
that they had; a restore brings back rows and not columns.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from pyspark.sql import types as T

from spark_apps.actions.template import Action, Attempt, StagedChanges
from spark_apps.engine.spark_versions import reads_as
from spark_apps.indexes.registry import available, held_by
from spark_apps.mergetree.schema import parse_ddl, resolve, struct_type, table_fields
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, InvalidSchema
from spark_apps.storage.names import check_column_name
from spark_apps.storage.unwritten import UNWRITTEN_HINT, check_unwritten
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.model import (
    DEFINITIONS_SCOPE,
    SCHEMA_SCOPE,
    Field,
    IndexDefinition,
    PutIndex,
    PutTable,
    Scope,
    TableDefinition,
    Write,
    definition_scope,
)
from spark_apps.timeline.operations import CHANGE_COLUMNS, Operation
from spark_apps.timeline.tombstones import DAYS, tombstone_days
from spark_apps.workload.query_log import PROPERTIES as QUERY_LOG_PROPERTIES
from spark_apps.workload.query_log import log_settings

_NAMELESS_HASHES = ("xxhash64", "java")
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
"""Each one's values are values of those behind it."""


class ChangeColumns(Action):
    """The common part of all changes of columns."""

    operation: ClassVar[Operation] = CHANGE_COLUMNS

    reads: ClassVar[tuple[Scope, ...]] = (SCHEMA_SCOPE, DEFINITIONS_SCOPE)
    """What must stay as it is until the commit: the columns, and that no index is over one that changes."""

    @abstractmethod
    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        """Return the table's new definition, and those of indexes that change with it.

        :raises InvalidInput: (or a subclass) if the change cannot be made, with the reason.
        """

    @abstractmethod
    def metrics(self) -> dict[str, str]:
        """Return the change's figures for the receipt."""

    def validate(self, snapshot: Snapshot) -> None:
        if snapshot.table.source is not None:
            raise InvalidInput(
                "The columns of a registered table are its source's.", hint="Change them there; a refresh notices it."
            )
        self.changed(snapshot)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        table, indexes = self.changed(attempt.snapshot)
        if table == attempt.snapshot.table:
            return None
        actions = [PutTable(table)]
        puts = [PutIndex(index, attempt.snapshot.state.index(index.name).state) for index in indexes]
        writes = [Write(SCHEMA_SCOPE, "replace"), *(Write(definition_scope(index.name), "fold") for index in indexes)]
        return StagedChanges(actions=[*actions, *puts], reads=list(self.reads), writes=writes, metrics=self.metrics())


class AddColumns(ChangeColumns):
    """New columns at the end; they are null in the rows that are there.

    :param columns: a DDL string as ``"fare double, tip double"``, or a StructType.
    :param properties: of the table, that go with them.
    """

    reads = (SCHEMA_SCOPE,)  # no index can be over a column that is new

    def __init__(self, columns: T.StructType | str, properties: Mapping[str, str] | None = None) -> None:
        self.columns = columns
        self.properties = dict(properties or {})

    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        check_unwritten("property", self.properties, UNWRITTEN_HINT)
        log_settings(self.properties)
        table = snapshot.table
        existing = {field.name.lower() for field in table.fields}
        stored_names = {name.lower() for name in (*table.retired, *(field.stored_name for field in table.fields))}
        added = []
        for field in table_fields(self.columns, ()):
            if field.name.lower() in existing:
                raise InvalidSchema(f"The table has a column {field.name!r} already.", hint="Choose another name.")
            if not field.nullable:
                raise InvalidSchema(
                    f"The new column {field.name!r} is declared NOT NULL, and the rows that are there have no value.",
                    hint="Leave NOT NULL out.",
                )
            stored = field.name
            while stored.lower() in stored_names:
                stored = f"{field.name}_{secrets.token_hex(3)}"
            stored_names.add(stored.lower())
            added.append(replace(field, stored=None if stored == field.name else stored))
        return replace(table, fields=(*table.fields, *added), properties={**table.properties, **self.properties}), []

    def metrics(self) -> dict[str, str]:
        names = self.columns if isinstance(self.columns, str) else ", ".join(self.columns.names)
        return {"added": names}


class SetPublished(ChangeColumns):
    """The formats change in which a table is published; none ends it."""

    reads = (SCHEMA_SCOPE,)

    def __init__(self, formats: Sequence[str]) -> None:
        self.properties = publishing.check_formats(formats)

    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        others = {k: v for k, v in snapshot.table.properties.items() if k != publishing.PROPERTY}
        table = replace(snapshot.table, properties={**others, **self.properties})
        publishing.check_definition(table)
        return table, []

    def metrics(self) -> dict[str, str]:
        return {"published": self.properties.get(publishing.PROPERTY, "")}


class SetProperties(ChangeColumns):
    """Properties of a table change that only decide what is done from now on.

    Those are the ones of its query log, and for how long the orderings of deletes are kept.
    """

    reads = (SCHEMA_SCOPE,)
    on_sources = "blind"

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)

    def validate(self, snapshot: Snapshot) -> None:
        self.changed(snapshot)  # of a registered source too

    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        known = (*QUERY_LOG_PROPERTIES, DAYS)
        other = sorted(self.properties.keys() - set(known))
        if other:
            raise InvalidInput(
                f"The property {other[0]!r} of a table cannot be changed by itself.",
                hint=f"There are: {', '.join(known)}.",
            )
        table = replace(snapshot.table, properties={**snapshot.table.properties, **self.properties})
        log_settings(table.properties)
        tombstone_days(table.properties)
        return table, []

    def metrics(self) -> dict[str, str]:
        return dict(self.properties)


class WidenColumn(ChangeColumns):
    """A column gets a type that holds all values of its present one; files are read as that type."""

    def __init__(self, name: str, type: str) -> None:
        self.name = name
        self.type = type

    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        table = snapshot.table
        name = _spelled_as_in_table(table, self.name)
        wanted = parse_ddl(self.type)
        now = struct_type(table.fields)[name].dataType
        if wanted == now:
            return table, []
        _refuse_role(
            table, name, "widened", ("record key", table.record_key), ("partition columns", table.partition_by)
        )
        _refuse_indexed(snapshot, name, "widened")
        if not _widens(now, wanted):
            raise InvalidSchema(
                f"The column {name!r} is {now.simpleString()}; not each of its values is a value of "
                f"{wanted.simpleString()}.",
                hint="Integers become longer ones, float becomes double, a decimal gets more digits before its point.",
            )
        if not reads_as(snapshot.spark, now, wanted):
            raise EnvironmentMismatch(
                f"Spark {snapshot.spark.version} cannot read files in which {name!r} is {now.simpleString()} as "
                f"{wanted.simpleString()}; 4.0 brought that.",
                hint="Widen the column, and compact the table, by a Spark 4; or add a column and fill it.",
            )
        return _with_field(table, name, lambda field: replace(field, type=wanted.simpleString())), []

    def metrics(self) -> dict[str, str]:
        return {"widened": self.name, "type": self.type}


class RenameColumn(ChangeColumns):
    """A column gets another name, in the table and in the indexes over it."""

    def __init__(self, name: str, to: str) -> None:
        self.name = name
        self.to = to

    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        table = snapshot.table
        name = _spelled_as_in_table(table, self.name)
        if name == self.to:
            return table, []
        check_column_name(self.to)
        if any(field.name.lower() == self.to.lower() for field in table.fields if field.name != name):
            raise InvalidSchema(f"The table has a column {self.to!r} already.", hint="Choose another name.")
        # The name is a part of partition paths, which rules are matched with.
        _refuse_role(table, name, "renamed", ("partition columns", table.partition_by))
        if name in table.hash_fields and table.hash_function not in _NAMELESS_HASHES:
            raise InvalidInput(
                f"The column {name!r} is hashed by {table.hash_function!r}, which may name it.",
                hint="Keep its name.",
            )

        def renamed(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(self.to if each == name else each for each in names)

        def renamed_comment(properties: Mapping[str, str]) -> dict[str, str]:
            return {comment_of(self.to) if key == comment_of(name) else key: v for key, v in properties.items()}

        indexes = []
        for entry in snapshot.state.indexes.values():
            definition = entry.definition
            if name not in held_by(table, definition):
                continue
            handler = available(definition.kind)
            if handler is None or not handler.follows_renames or handler.expressions(table, definition):
                raise _indexed(definition, name, "renamed")
            indexes.append(replace(definition, columns=renamed(definition.columns)))
        table = _with_field(table, name, lambda field: replace(field, name=self.to, stored=field.stored_name))
        ordering = self.to if table.ordering_column == name else table.ordering_column
        return (
            replace(
                table,
                record_key=renamed(table.record_key),
                hash_fields=renamed(table.hash_fields),
                ordering_column=ordering,
                properties=renamed_comment(table.properties),
            ),
            indexes,
        )

    def metrics(self) -> dict[str, str]:
        return {"renamed": self.name, "to": self.to}


class DropColumns(ChangeColumns):
    """Columns are no longer read; their values stay in the files until they are compacted."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def changed(self, snapshot: Snapshot) -> tuple[TableDefinition, list[IndexDefinition]]:
        table = snapshot.table
        names = resolve(self.names, [field.name for field in table.fields], "The table")
        ordering = () if table.ordering_column is None else (table.ordering_column,)
        for name in names:
            _refuse_role(
                table, name, "dropped",
                ("record key", table.record_key), ("partition columns", table.partition_by),
                ("ordering column", ordering),
            )  # fmt: skip
            _refuse_indexed(snapshot, name, "dropped")
        dropped = tuple(field.stored_name for field in table.fields if field.name in names)
        kept = tuple(field for field in table.fields if field.name not in names)
        if {field.name for field in kept} <= set(table.partition_by):
            raise InvalidSchema("Only partition columns would be left.", hint="Keep at least one column for the rows.")
        comments = {comment_of(name) for name in names}
        properties = {key: value for key, value in table.properties.items() if key not in comments}
        return replace(table, fields=kept, retired=(*table.retired, *dropped), properties=properties), []

    def metrics(self) -> dict[str, str]:
        return {"dropped": ", ".join(self.names)}


def comment_of(column: str) -> str:
    """Return the name of the table property that keeps the comment of a column."""
    return f"comment.{column}"


def _spelled_as_in_table(table: TableDefinition, name: str) -> str:
    return resolve([name], [field.name for field in table.fields], "The table")[0]


def _with_field(table: TableDefinition, name: str, change: Callable[[Field], Field]) -> TableDefinition:
    fields: list[Field] = [change(field) if field.name == name else field for field in table.fields]
    return replace(table, fields=tuple(fields))


def _refuse_role(table: TableDefinition, name: str, what: str, *roles: tuple[str, Sequence[str]]) -> None:
    for role, names in roles:
        if name in names:
            raise InvalidInput(
                f"The column {name!r} belongs to the {role}, so it cannot be {what}.",
                hint="Write the rows into a new table.",
            )


def _refuse_indexed(snapshot: Snapshot, name: str, what: str) -> None:
    for entry in snapshot.state.indexes.values():
        if name in held_by(snapshot.table, entry.definition):
            raise _indexed(entry.definition, name, what)


def _indexed(definition: IndexDefinition, name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"The index {definition.name!r} of kind {definition.kind!r} holds the column {name!r}, so it cannot be {what}.",
        hint="Drop that index first, and create it again after; if only older entries have the column, a full refresh "
        "rids it of them.",
    )


def _widens(now: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(now, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(now)) < _INTEGERS.index(type(wanted))
    if isinstance(now, T.DecimalType) and isinstance(wanted, T.DecimalType):
        return wanted.scale == now.scale and wanted.precision > now.precision
    return isinstance(now, T.FloatType) and isinstance(wanted, T.DoubleType)
