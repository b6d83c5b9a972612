"""Actions on indexes: create, alter, refresh, verify, repair, compact, drop.

What an index of some kind holds is its handler's affair.

A build goes on in rounds while writers write: the first covers the version it began from, each further one what has
landed since, and the commit makes the index active with what the last round covered; what lands still later is scanned
by queries until the next refresh. Follows Hive's Index Design (deferred and atomic rebuild; its clauses
``PARTITIONED BY``, ``IN TABLE`` and ``LOCATION``, and ``ALTER INDEX … SET IDXPROPERTIES``).
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from msgspec.structs import replace

from spark_apps.actions.compact_table import check_mode
from spark_apps.actions.hudi_indexing import RefreshHudiIndex, own_index
from spark_apps.actions.limits import MAX_LAST_ROUNDS, MAX_ROUNDS
from spark_apps.actions.plain_copies import check_plain_copy, takes_allowance
from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle, index_errors, run
from spark_apps.indexes import comparison
from spark_apps.indexes.handler import (
    REPEATED,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    VerificationReport,
    estimated_rows,
)
from spark_apps.indexes.included_columns import EXCLUDED, IncludedColumns, intersect_names
from spark_apps.indexes.keyed.entries import default_shards
from spark_apps.indexes.registry import available, check_columns, find
from spark_apps.mergetree.reader_settings import check_session
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import CompactMode
from spark_apps.storage.errors import ConcurrentWrite, IndexExists, InvalidInput, StorageError
from spark_apps.storage.names import check_name, check_table_name
from spark_apps.storage.store import Store
from spark_apps.storage.unwritten import UNWRITTEN_HINT, check_unwritten
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import (
    DATA_TREE,
    SCHEMA_SCOPE,
    AddFile,
    AnyAction,
    DropIndex,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    PutTable,
    Receipt,
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    definition_scope,
    table_scope,
)
from spark_apps.timeline.operations import (
    ALTER_INDEX,
    COMPACT_INDEX,
    CREATE_INDEX,
    DROP_INDEX,
    REFRESH_INDEX,
    REPAIR_INDEX,
    Operation,
)
from spark_apps.timeline.state import NEVER, IndexEntry, State

logger = logging.getLogger(__name__)

# --- altering ---------------------------------------------------------------------------------------------------------


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
            hint="Leave LOCATION out. Indexes of a source are kept with its log, whose place its registration chose.",
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


# --- building and keeping ---------------------------------------------------------------------------------------------


class Cost:
    """The cost of a build so far, beside its estimate; the time runs from when the object is made.

    :param plan: of the build, with the estimate.
    """

    def __init__(self, plan: IndexPlan) -> None:
        self._plan = plan
        self._begun = time.monotonic()

    def beside(self, actions: Iterable[AnyAction]) -> dict[str, Any]:
        """Return metrics: bytes written and seconds taken so far, each with its estimate."""
        return {
            "estimated_bytes": self._plan.estimated_bytes,
            "bytes": sum(action.bytes for action in actions if isinstance(action, AddFile)),
            "estimated_seconds": self._plan.estimated_seconds,
            "seconds": round(time.monotonic() - self._begun, 2),
        }


# --- An index while it is built -------------------------------------------------------------------------------------


class Building:
    """An index that is being built, or built anew."""

    def __init__(self, attempt: Attempt, handler: IndexHandler, definition: IndexDefinition) -> None:
        self._attempt = attempt
        self._handler = handler
        self.definition = definition
        self._state = attempt.snapshot.state.copy()
        # Where it exists already, it is built anew under its own name: what it holds so far does not count.
        self._state.file_set.remove_tree(definition.tree)
        lag = dict.fromkeys(self._state.groups(DATA_TREE), NEVER)
        self._state.indexes[definition.name] = IndexEntry(definition, "creating", lag, dict(lag))
        self._added: dict[str, AddFile] = {}
        self.writes: list[Write] = []
        self.metrics: dict[str, Any] = {}

    @property
    def added(self) -> list[AddFile]:
        """The files that make up the index."""
        return list(self._added.values())

    @property
    def covered(self) -> int:
        """The version that the rounds so far cover."""
        return self._state.version

    @property
    def snapshot(self) -> Snapshot:
        return replaced(self._attempt.snapshot, state=self._state)

    def round(self, number: int) -> None:
        """Stage what makes the index cover the newest version known: all rows first, then what has landed since."""
        lagging = len(self._state.index(self.definition.name).lag)
        self._attempt.phase(f"build index {self.definition.name}, round {number}", 0, lagging)
        folder = self._attempt.index_folder(self.definition.name, f"round-{number}")
        context = IndexContext(self.snapshot, self.definition, folder)
        with index_errors(context):
            work = self._handler.build(context) if number == 1 else self._handler.refresh(context)
        self.take(work)
        self.metrics["rounds"] = number
        self.metrics.update({name: work.metrics[name] for name in REPEATED if name in work.metrics})
        logger.info(
            "Index %s, round %s: version %s, %s file groups, %s",
            self.definition.name, number, self.covered, lagging, dict(work.metrics),
        )  # fmt: skip

    def take(self, work: IndexWork) -> None:
        """Put the files that a handler staged into the snapshot."""
        for action in work.actions:
            if isinstance(action, AddFile):
                self._added[action.path] = action
                self._state.file_set.add(DataFile.of(action, self._state.version))
            elif isinstance(action, RemoveFile):
                self._added.pop(action.path, None)
                self._state.file_set.remove(action.tree, action.path)
            elif isinstance(action, PutIndex):  # the rows have completed the definition
                self.definition = action.definition
        self.writes.extend(write for write in work.writes if write not in self.writes)
        entry = self._state.index(self.definition.name)
        self._state.indexes[self.definition.name] = replace(
            entry, definition=self.definition, lag={}, dirty={}, gone={}
        )

    def behind(self) -> bool:
        """Read on in the log, and return whether a commit has landed that concerns the index.

        :raises IndexExists: if another writer has made an index of this name meanwhile.
        :raises ConcurrentWrite: if the table was restored: rows that the index was built over were taken back, and no
            file group shows that.
        """
        timeline = self._attempt.transaction.timeline
        timeline.refresh()
        self._attempt.transaction.check_alive()
        for commit in timeline.commits(after=self._state.version):
            self._state.apply(commit)
        assert self._state.table  # or it was dropped meanwhile
        began = self._attempt.snapshot.state.version
        for at, to in self._state.restores:
            if at > began:
                raise ConcurrentWrite(
                    f"Version {at} restored version {to} while index {self.definition.name} was built over rows since.",
                    hint="Build it again, over the rows that there are now.",
                )
        for name, entry in self._state.indexes.items():
            if name.lower() == self.definition.name.lower() and entry.definition.tree != self.definition.tree:
                raise IndexExists(
                    f"Another index {name!r} was committed while {self.definition.name!r} was built.",
                    hint="Choose another name, or drop that one first.",
                )
        return bool(self._state.index(self.definition.name).lag)

    def check_counts(self) -> None:
        """Compare the index with the rows that it should cover, as its kind can.

        :raises VerificationFailed: with both figures; such an index does not become active.
        """
        self.metrics.update(self._handler.check_built(IndexContext(self.snapshot, self.definition, "")))


# --- Actions on indexes ---------------------------------------------------------------------------------------------


RefreshMode = Literal["incremental", "full", "quick"]


class CreateIndex(Action):
    """Builds an index over the rows that are there and makes it active.

    :param included: columns carried beside, for kinds that do.
    :param deferred: leave the index empty now, and its upkeep to refreshes.
    :param storage: where it is kept, for kinds that leave that open.
    :param after_round: called after each round of the build with its number and the version it covers.
    """

    operation: ClassVar[Operation] = CREATE_INDEX
    staging = "after"
    on_sources = "observing"

    def __init__(
        self,
        name: str,
        kind: str,
        columns: Sequence[str] = (),
        included: IncludedColumns | Sequence[str] | None = None,
        deferred: bool = False,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        comment: str | None = None,
        *,
        storage: IndexStorage | None = None,
        after_round: Callable[[int, int], None] | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise InvalidInput(f"The columns are the string {columns!r}.", hint="Give a list of names.")
        self.name = name
        self.kind = kind
        self.columns = tuple(columns)
        self.included = IncludedColumns.given(included)
        self.deferred = deferred
        self.properties = {key: str(value) for key, value in (properties or {}).items()}
        self.allows_plain_copy = takes_allowance(self.properties)
        self.if_not_exists = if_not_exists
        self.comment = comment
        self.storage = storage or IndexStorage()
        self.after_round = after_round
        self._overtaken: Callable[[], StagedChanges] | None = None
        self._checked: tuple[Snapshot, IndexDefinition] | None = None

    def validate(self, snapshot: Snapshot) -> None:
        check_name("index", self.name)
        check_session(snapshot)
        check_unwritten("property", self.properties, UNWRITTEN_HINT)
        check_unwritten("location", {"location": self.storage.location}, UNWRITTEN_HINT)
        if self._check_new(snapshot.state) and not self.allows_plain_copy:
            check_plain_copy(snapshot, self.name)
        self._checked = snapshot, self.definition(snapshot)
        self._check_only_one(snapshot.state)

    def definition(self, snapshot: Snapshot, shards: int | None = None) -> IndexDefinition:
        """Return the definition, completed and checked by the kind's handler.

        :param shards: where their number is not given; by default one that fits the table's rows.
        """
        handler, table = find(self.kind), snapshot.table
        if not handler.own_storage and not self.deferred:
            raise InvalidInput(
                f"An index of kind {self.kind!r} is stored outside of the table, so it cannot be in its commits.",
                hint="Create it with deferred=True.",
            )
        names = [field.name for field in table.fields]
        rows = sum(map(estimated_rows, snapshot.state.files(DATA_TREE)))
        given = IndexDefinition(
            name=self.name,
            kind=self.kind,
            columns=self.columns,
            index_id=secrets.token_hex(6),
            included=() if self.included is None else self.included.of(names, self.columns),
            deferred=self.deferred,
            shards=default_shards(rows) if shards is None else shards,
            properties=self._properties(table),
            comment=self.comment,
        )
        return handler.complete(snapshot, handler.validate(table, self.storage.of(snapshot, given, handler)))

    def is_made(self, snapshot: Snapshot) -> bool:
        """Return whether the table has the index as it would be made now, whatever its rows have decided."""
        entry = snapshot.state.indexes.get(self.name)
        if entry is None:
            return False
        there, found = entry.definition, find(self.kind).found
        asked = self.definition(snapshot, there.shards)
        properties = {name: value for name, value in asked.properties.items() if name not in found}
        properties.update({name: value for name, value in there.properties.items() if name in found})
        return replace(asked, index_id=there.index_id, properties=properties) == there

    def _properties(self, table: TableDefinition) -> dict[str, str]:
        """Return the given properties, and which partition columns an index leaves out that would hold them."""
        left_out = [] if self.included is None else intersect_names(table.partition_by, self.included.removed)
        return {**self.properties, EXCLUDED: json.dumps(left_out)} if left_out else self.properties

    def plan(self, snapshot: Snapshot) -> IndexPlan:
        """Return what the build would read."""
        definition = self.definition(snapshot)
        if self.deferred:
            return IndexPlan(self.name, "deferred", (), 0, 0, "a deferred index is empty until it is refreshed")
        return _plan(IndexContext(snapshot, definition, ""), "full", None)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        snapshot = attempt.snapshot
        if not self._check_new(snapshot.state):
            return None
        checked, self._checked = self._checked, None
        definition = checked[1] if checked is not None and checked[0] is snapshot else self.definition(snapshot)
        work = StagedChanges(
            reads=[SCHEMA_SCOPE],
            writes=[Write(definition_scope(self.name), "replace")],
            metrics={"kind": self.kind},
            # Of two that are made at once, too.
            guard=self._check_only_one if find(self.kind).unique_keys else None,
        )
        if self.deferred:
            work.actions.append(PutIndex(definition))
            return work
        cost = Cost(_plan(IndexContext(snapshot, definition, ""), "full", None))
        building = Building(attempt, find(self.kind), definition)
        self._rounds(building, 1 if attempt.stage else MAX_ROUNDS)
        building.check_counts()
        table = snapshot.table
        may_repeat = table.source is None and not set(table.partition_by) <= set(table.record_key)
        if not (find(self.kind).unique_keys and may_repeat):
            return _built(building, work, cost)
        if attempt.stage:
            work.reads.append(table_scope())
            return _built(building, work, cost)
        return self._covering_all_rows(building, work, cost)

    def _covering_all_rows(self, building: Building, empty: StagedChanges, cost: Cost) -> StagedChanges:
        """Return a build that is committed only where it covers all rows that the table has then."""

        def guard(head: State) -> None:
            self._check_only_one(head)
            if building.behind():
                self._overtaken = again
                raise ConcurrentWrite(
                    f"Rows landed while the index {self.name!r} was about to become active, and their keys may be in "
                    f"other partitions too; {MAX_LAST_ROUNDS} further rounds did not catch up with its writers.",
                    hint="Build it at a quieter time, or in a stop-write window.",
                )

        def again() -> StagedChanges:
            number = int(building.metrics["rounds"]) + 1
            building.round(number)
            if self.after_round is not None:
                self.after_round(number, building.covered)
            return _built(building, replaced(empty, guard=guard), cost)

        return _built(building, replaced(empty, guard=guard), cost)

    def still_possible(self, work: StagedChanges, state: State) -> StagedChanges | None:
        """Return the work with another round, if a commit was refused because rows have landed since the last one."""
        again, self._overtaken = self._overtaken, None
        most = MAX_ROUNDS + MAX_LAST_ROUNDS
        return None if again is None or work.metrics["rounds"] >= most else again()

    def _check_new(self, state: State) -> bool:
        """Return whether the name is new, compared without case, as SQL compares names.

        :raises IndexExists: if it is not, unless that is as good.
        """
        alike = [name for name in state.indexes if name.lower() == self.name.lower()]
        if alike and not (self.if_not_exists and self.name in alike):
            raise _exists(state, alike[0])
        return not alike

    def _check_only_one(self, state: State) -> None:
        """Refuse a second index of unique keys, which would hold the same at twice the cost.

        :raises IndexExists: if the table has one already.
        """
        if not find(self.kind).unique_keys:
            return
        for name, entry in state.indexes.items():
            there = available(entry.definition.kind)
            if name != self.name and there is not None and there.unique_keys:
                raise IndexExists(
                    f"The table has a record index already, {name!r}, and a second one would hold the same.",
                    hint=f"Use {name!r}; for another number of shards drop it first, then create {self.name!r}.",
                )

    def _rounds(self, building: Building, most: int) -> None:
        for number in range(1, most + 1):
            building.round(number)
            if self.after_round is not None:
                self.after_round(number, building.covered)
            if number == most or not building.behind():
                return


class RefreshIndex(Action):
    """Makes an index cover the table's newest version again.

    :param mode: ``incremental``: only file groups that it does not cover. ``full``: from the rows alone. ``quick``:
        writes nothing; the log knows already what is not covered, and queries scan that.
    :param partitions: paths to which it is confined.
    """

    operation: ClassVar[Operation] = REFRESH_INDEX
    staging = "after"
    on_sources = "observing"
    commits_observation = True

    def __init__(
        self,
        name: str,
        mode: RefreshMode = "incremental",
        partitions: Iterable[str] | None = None,
        included: IncludedColumns | Sequence[str] | None = None,
        schema: str | None = None,
    ) -> None:
        if mode not in get_args(RefreshMode):
            raise InvalidInput(
                f"There is no refresh mode {mode!r}.", hint=f"Use one of: {', '.join(get_args(RefreshMode))}."
            )
        self.name = name
        self.mode: RefreshMode = mode
        self.compares_lists = mode == "full"
        self.partitions = None if partitions is None else list(partitions)
        self.included = IncludedColumns.given(included)
        self.schema = schema

    def validate(self, snapshot: Snapshot) -> None:
        self._context(snapshot, "")
        check_session(snapshot)
        self.confined_to(snapshot.table)

    @property
    def indexes(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def _changes_columns(self) -> bool:
        return self.included is not None or self.schema is not None

    def not_staged_because(self) -> str | None:
        return "it changes the columns of the index" if self._changes_columns else super().not_staged_because()

    @property
    def confinable(self) -> bool:
        return self.mode == "incremental"

    def plan(self, snapshot: Snapshot) -> IndexPlan:
        """Return what the refresh would read."""
        context = self._context(snapshot, "")
        return _plan(context, self.mode, self.confined_to(snapshot.table))

    def _context(self, snapshot: Snapshot, directory: str) -> IndexContext:
        """Return the definition with its columns changed, and the table with the columns that the change adds."""
        definition = snapshot.state.index(self.name).definition
        handler = find(definition.kind)
        if not self._changes_columns:
            return IndexContext(snapshot, definition, directory)
        definition, table = handler.evolve(snapshot.table, definition, self.mode, self.included, self.schema)
        if table != snapshot.table:
            state = snapshot.state.copy()
            state.definition = table
            snapshot = replaced(snapshot, state=state)
        return IndexContext(snapshot, definition, directory)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        attempt.phase(f"refresh index {self.name}")
        context = self._context(attempt.snapshot, attempt.index_folder(self.name, "refresh"))
        handler, definition = find(context.definition.kind), context.definition
        cost = Cost(_plan(context, self.mode, attempt.partitions)) if self.mode == "full" else None
        with index_errors(context):
            done = handler.refresh(context, self.mode, attempt.partitions)
        if done.empty:
            return None
        work = _staged_changes(done, {"mode": self.mode, **({} if cost is None else cost.beside(done.actions))})
        if context.table != attempt.snapshot.table:
            work.actions.insert(0, PutTable(context.table))
            work.writes.append(Write(SCHEMA_SCOPE, "replace"))
        # Two refreshes at once would each write what the other does not know of; not so where both only add entries, of
        # partitions that they do not share.
        mode: WriteMode = "replace" if self._changes_columns else "fold"
        apart = None if handler.unique_keys or not _only_adds(work) else attempt.partitions
        work.writes += [Write(definition_scope(self.name, path), mode) for path in (apart or (None,))]
        if self._changes_columns:
            work.reads.append(SCHEMA_SCOPE)
        if self.mode == "full" and attempt.partitions is None:
            building = Building(attempt, handler, definition)
            building.take(done)
            building.check_counts()
        return work


def _only_adds(work: StagedChanges) -> bool:
    """Return whether work on an index puts entries beside those that are there, and takes none of them away."""
    return all(
        isinstance(action, MarkCovered) or (isinstance(action, AddFile) and not action.tombstones)
        for action in work.actions
    )


class CompactIndex(Action):
    """Folds the files of an index."""

    operation: ClassVar[Operation] = COMPACT_INDEX
    staging = "alone"
    on_sources = "observing"

    def __init__(self, name: str, mode: CompactMode = "quick") -> None:
        self.name = name
        self.mode = check_mode(mode)

    @property
    def indexes(self) -> tuple[str, ...]:
        return (self.name,)

    def validate(self, snapshot: Snapshot) -> None:
        find(snapshot.state.index(self.name).definition.kind)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        definition = attempt.snapshot.state.index(self.name).definition
        attempt.phase(f"compact index {self.name}")
        context = IndexContext(attempt.snapshot, definition, attempt.index_folder(self.name, "compact"))
        done = find(definition.kind).compact(context, self.mode)
        if done.empty:
            return None
        work = _staged_changes(done, {"mode": self.mode})
        work.reads.append(definition_scope(self.name))  # no index would own the files if it is dropped meanwhile
        return work


class DropIndexAction(Action):
    """Drops an index. Its files go when the table is cleaned."""

    operation: ClassVar[Operation] = DROP_INDEX
    on_sources = "blind"

    def __init__(self, name: str, if_exists: bool = False) -> None:
        self.name = name
        self.if_exists = if_exists

    def validate(self, snapshot: Snapshot) -> None:
        if self.if_exists and self.name not in snapshot.state.indexes:
            return
        handler = available(snapshot.state.index(self.name).definition.kind)
        finds_groups = handler is not None and handler.unique_keys and not snapshot.table.bucketed
        if finds_groups and snapshot.table.source is None:
            raise InvalidInput(
                f"The index {self.name!r} finds the file groups of a table without buckets, so it cannot be dropped.",
                hint="If it is damaged, rebuild it: refresh_index(name, mode='full').",
            )

    def work(self, attempt: Attempt) -> StagedChanges | None:
        state = attempt.snapshot.state
        if self.if_exists and self.name not in state.indexes:
            return None
        return StagedChanges(
            actions=[DropIndex(self.name)],
            writes=[Write(definition_scope(self.name), "replace")],
            metrics={"kind": state.index(self.name).definition.kind},
        )

    def committed(self, handle: TableHandle, receipt: Receipt) -> None:
        for error in left_behind(handle, receipt, [self.name]):
            raise StorageError(
                f"What the index {self.name!r} keeps outside of the table was not removed: {str(error).rstrip('. ')}.",
                outcome=f"The index is dropped, as version {receipt.version}.",
                hint=f"Run it again as transaction {receipt.txn_id!r}, which tries only that once more.",
            ) from error


def left_behind(handle: TableHandle, receipt: Receipt, names: Iterable[str] | None = None) -> list[Exception]:
    """Let the handlers of indexes that a commit dropped remove what they keep outside of the table.

    :param names: all that the table had by default.
    :returns: what failed; the drop is committed whatever does.
    """
    assert receipt.version is not None
    before = handle.timeline.rebuild(receipt.version - 1)
    snapshot = Snapshot(handle.spark, handle.timeline.store, before)
    failed: list[Exception] = []
    for name in before.indexes if names is None else names:
        entry = before.indexes.get(name)
        handler = None if entry is None else available(entry.definition.kind)
        if entry is None or handler is None:
            # An index whose code is not installed can be dropped all the same; what it owns elsewhere stays.
            logger.warning("The code of the index %r is not installed; only the table's own files go.", name)
            continue
        try:
            handler.drop(IndexContext(snapshot, entry.definition, ""))
        except Exception as error:  # noqa: BLE001, another package's code; the drop is committed already
            failed.append(error)
    return failed


def _built(building: Building, empty: StagedChanges, cost: Cost) -> StagedChanges:
    """Return what a build has staged so far, as one commit."""
    definition = building.definition
    return replaced(
        empty,
        actions=[PutIndex(definition), *building.added, MarkCovered(definition.tree, building.covered)],
        writes=[*empty.writes, *building.writes],
        metrics={**empty.metrics, **building.metrics, **cost.beside(building.added)},
    )


def _plan(context: IndexContext, mode: str, partitions: Sequence[str] | None) -> IndexPlan:
    """Return what a build or refresh would do, and what that would cost."""
    handler = find(context.definition.kind)
    return handler.priced(context, handler.plan(context, mode, partitions))


def _staged_changes(done: IndexWork, metrics: Mapping[str, Any]) -> StagedChanges:
    return StagedChanges(
        actions=list(done.actions),
        reads=list(done.reads),
        writes=list(done.writes),
        metrics={**metrics, **done.metrics},
        keys_conflict=done.keys_conflict,
    )


def _exists(state: State, name: str) -> IndexExists:
    there = state.indexes[name].definition
    return IndexExists(
        f"The table has an index {name!r} already: kind {there.kind!r}, columns ({', '.join(there.columns)}).",
        hint="Choose another name, drop that one first, or pass if_not_exists=True.",
    )


# --- indexes compared with the rows -----------------------------------------------------------------------------------


def verify(snapshot: Snapshot, name: str) -> VerificationReport:
    """Compare an index of a version with its rows, by a full scan of both.

    :raises IndexNotFound: if there is none of that name.
    :raises InvalidInput: if its kind cannot be compared, or a source's files mean something else in this session.
    :raises InvalidSchema: if it is over a column that the table does not have.
    """
    definition = snapshot.state.index(name).definition
    if snapshot.external is not None:
        snapshot.external.check(())
    check_columns(snapshot.table, definition)
    check_session(snapshot)
    context = IndexContext(snapshot, definition, "")
    with index_errors(context):
        report = comparison.verify(find(definition.kind), context)
    assert report is not None  # there is a session
    return report


def repair(
    handle: TableHandle, reports: Sequence[VerificationReport], *, txn_id: str | None = None, window: int | None = None
) -> tuple[list[VerificationReport], Receipt]:
    """Rebuild the indexes that comparisons found wrong, from the rows alone, all in one commit.

    :returns: the reports, those of rebuilt indexes with the version of that commit; and its receipt, without a version
        if every index agrees.
    """
    wrong = [report for report in reports if not report.ok]
    receipt = run(handle, RepairIndexes(wrong, partial(_rebuild, handle)), txn_id=txn_id, window=window)
    return [report if report.ok else replaced(report, repaired=receipt.version) for report in reports], receipt


def _rebuild(handle: TableHandle, name: str) -> Action:
    """Return the full refresh of an index, which Hudi does of one of its own."""
    if own_index(handle, name) is None:
        return RefreshIndex(name, "full")
    return RefreshHudiIndex(name, "full", handle.source_options)


class RepairIndexes(Action):
    """Rebuilds indexes, each as a full refresh of it would, in one commit.

    :param reports: of the indexes that are wrong; what was wrong goes into the receipt.
    :param rebuild: the full refresh of an index, by its name.
    """

    operation: ClassVar[Operation] = REPAIR_INDEX
    on_sources = "observing"
    compares_lists = True

    def __init__(self, reports: Sequence[VerificationReport], rebuild: Callable[[str], Action] | None = None) -> None:
        self.reports = {report.index: report for report in reports}
        self.refreshes = {name: (rebuild or partial(RefreshIndex, mode="full"))(name) for name in self.reports}

    @property
    def indexes(self) -> tuple[str, ...]:
        return tuple(self.reports)

    def validate(self, snapshot: Snapshot) -> None:
        for refresh in self.refreshes.values():
            refresh.validate(snapshot)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        whole = StagedChanges()
        done = []
        for name, refresh in self.refreshes.items():
            repaired = refresh.work(attempt)
            if repaired is None:
                continue
            done.append(name)
            whole.actions.extend(repaired.actions)
            whole.reads.extend(repaired.reads)
            whole.writes.extend(repaired.writes)
            whole.keys_conflict = whole.keys_conflict or repaired.keys_conflict  # of the one index of unique keys
            metrics = {**_counts(self.reports[name]), **repaired.metrics}
            whole.metrics.update({f"{name}.{key}": value for key, value in metrics.items()})
        if not done:
            return None
        whole.metrics["repaired"] = list(self.reports)
        return whole


def _counts(report: VerificationReport) -> dict[str, int]:
    """Return how many of each fault were found; of unreadable files, as many as the report names."""
    faults = ("missing", "too_many", "wrong_partition", "wrong_values", "wrong_shard")
    unreadable = sum(difference.fault == "unreadable" for difference in report.differences)
    return {**{name: getattr(report, name) for name in faults}, "unreadable": unreadable}
