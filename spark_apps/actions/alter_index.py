"""The settings of an index beside what it holds: where it is kept, how it is called, and properties that change.

Follows Hive's Index Design: its clauses ``PARTITIONED BY``, ``IN TABLE`` and ``LOCATION``, and ``ALTER
INDEX … SET IDXPROPERTIES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from spark_apps.actions.template import Action, Attempt, StagedChanges
from spark_apps.indexes.handler import IndexHandler
from spark_apps.indexes.registry import find
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.names import check_table_name
from spark_apps.storage.secrets import UNWRITTEN_HINT, check_unwritten
from spark_apps.storage.store import Store
from spark_apps.timeline.model import SCHEMA_SCOPE, IndexDefinition, PutIndex, Write, definition_scope
from spark_apps.timeline.operations import ALTER_INDEX, Operation


@dataclass(frozen=True)
class IndexStorage:
    """The storage of an index, as far as its creator chooses it.

    :param partition_by: partition columns that entries are kept apart by; ``()`` for none, ``None`` as the kind does.
    :param index_table: a name for what stores the index, unique in its database for those who list it.
    :param location: URI or path of the storage of a kind that has it outside of the table.
    """

    partition_by: Sequence[str] | None = None
    index_table: str | None = None
    location: str | None = None

    def of(self, snapshot: Snapshot, definition: IndexDefinition, handler: IndexHandler) -> IndexDefinition:
        """Return the definition with this storage.

        :raises InvalidInput: if the kind cannot be kept there.
        """
        if self.index_table is not None:
            check_table_name(self.index_table)
        if not handler.own_storage:
            if self.index_table is not None:
                raise InvalidInput(
                    f"An index of kind {definition.kind!r} is stored outside of the table and has no index table.",
                    hint="Leave IN TABLE (index_table) out.",
                )
        elif self.location is not None:
            _check_own(snapshot, definition, self.location)
        return replace(
            definition,
            partition_by=self._columns(snapshot, definition, handler),
            index_table=self.index_table,
            location=None if handler.own_storage else self.location,
        )

    def _columns(
        self, snapshot: Snapshot, definition: IndexDefinition, handler: IndexHandler
    ) -> tuple[str, ...] | None:
        if self.partition_by is None:
            return None
        names = resolve(self.partition_by, snapshot.table.partition_by, f"PARTITIONED BY of {definition.name!r}")
        if names and not handler.partitioned:
            raise InvalidInput(
                f"Entries of an index of kind {definition.kind!r} are kept together for all partitions, so that one "
                "lookup reads one place.",
                hint="Leave PARTITIONED BY out, or leave it empty: PARTITIONED BY ().",
            )
        return names


def home_of(snapshot: Snapshot, name: str) -> str:
    """Return the URI of the folder that holds an index's files."""
    return f"{snapshot.store.uri.rstrip('/')}/_index/indexes/{name}"


def _check_own(snapshot: Snapshot, definition: IndexDefinition, location: str) -> None:
    home = home_of(snapshot, definition.name)
    if Store(location).uri != home:
        raise InvalidInput(
            f"An index of kind {definition.kind!r} is kept with the log of its table, at {home!r}, and not at "
            f"{location!r}: one commit publishes both, and one cleaning looks after both.",
            hint="Leave LOCATION out. Indexes of a source lie with its log, wherever its registration put that.",
        )


class AlterIndex(Action):
    """Change of properties that only decide what is done from now on; the index's handler knows which they are."""

    operation: ClassVar[Operation] = ALTER_INDEX
    on_sources = "blind"

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = {key: str(value) for key, value in properties.items()}

    def validate(self, snapshot: Snapshot) -> None:
        check_unwritten("property", self.properties, UNWRITTEN_HINT)
        self._changed(snapshot)

    def _changed(self, snapshot: Snapshot) -> IndexDefinition:
        definition = snapshot.state.index(self.name).definition
        return find(definition.kind).alter(snapshot.table, definition, self.properties)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        entry = attempt.snapshot.state.index(self.name)
        changed = self._changed(attempt.snapshot)
        if changed == entry.definition:
            return None
        return StagedChanges(
            actions=[PutIndex(changed, state=entry.state)],
            reads=[SCHEMA_SCOPE],
            writes=[Write(definition_scope(self.name), "replace")],
            metrics={"properties": len(self.properties)},
        )
