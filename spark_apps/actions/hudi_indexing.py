"""Indexes that a Hudi table has of its own, under the actions of all: built, refreshed, folded, compared, dropped.

Hudi makes and keeps them in its metadata table; the log of indexes holds their definitions, so that one that a writer
has removed is missed, and one receipt a transaction. No file of theirs is this package's. What Hudi has done is looked
up in the table before and after each call, so a try that follows one that was killed finds what was done. Follows the
documents on the record-level index and RFC-77 (secondary index).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle
from spark_apps.engine.pyspark_names import Column, DataFrame, F
from spark_apps.indexes.handler import EXAMPLES, Difference, IndexPlan, VerificationReport
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources.hudi_calls import (
    KEPT_BY,
    LOCK_PROVIDER,
    HudiCalls,
    file_id,
    group_of_row,
)
from spark_apps.storage.errors import (
    IndexExists,
    IndexNotFound,
    InvalidInput,
    JobFailed,
    LakeIndexError,
    UnknownColumn,
)
from spark_apps.storage.names import check_name, quote
from spark_apps.storage.unwritten import UNWRITTEN_HINT, check_unwritten
from spark_apps.timeline.hudi_indexes import KINDS, NAME, NOT_COMPARED, HudiIndex, HudiIndexes, partition_of
from spark_apps.timeline.model import (
    DATA_TREE,
    HUDI,
    DropIndex,
    IndexDefinition,
    PutIndex,
    TableDefinition,
    Write,
    definition_scope,
)
from spark_apps.timeline.operations import (
    COMPACT_INDEX,
    CREATE_INDEX,
    DROP_INDEX,
    REFRESH_INDEX,
    REPAIR_INDEX,
    Operation,
)
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import attempts

if TYPE_CHECKING:
    from spark_apps.actions.indexing import RefreshMode

logger = logging.getLogger(__name__)

SETTING = "hoodie."
"""Properties that begin with it are settings of the session while Hudi builds; they are not written down."""

USING, FUNCTION = "using", "expr"
"""Properties of an expression index: what it keeps of the values, and the function."""

COMPACTED_AFTER = "hoodie.metadata.compact.max.delta.commits"
"""Hudi's setting of writers: after so many commits they compact the metadata table."""

IN_PROCESS = "InProcessLockProvider"


def is_hudi(table: TableDefinition) -> bool:
    """Return whether the rows are a Hudi table's."""
    return table.source is not None and table.source.format == HUDI


def own_index(handle: TableHandle, name: str) -> HudiIndex | None:
    """Return an index of the table's own by its name; ``None`` where the log has one of ours by that name, or none is.

    One that the log defines and the table does not have any more is returned with the state ``vanished``.
    """
    state = handle.timeline.head
    if state.definition is None or state.dropped or not is_hudi(state.table):
        return None
    entry = state.indexes.get(name)
    if entry is not None and entry.definition.engine != HUDI:
        return None
    there = HudiCalls(handle.spark, state.table, handle.source_options).state()
    if entry is None:
        return there.named(name)
    return there.of(entry.definition) or vanished(entry.definition)


def indexes_of_table(handle: TableHandle, state: State) -> HudiIndexes | None:
    """Return what a Hudi table says of its own indexes; ``None`` of another table, and where it cannot be read."""
    if not is_hudi(state.table):
        return None
    try:
        return HudiCalls(handle.spark, state.table, handle.source_options).state()
    except LakeIndexError as error:
        logger.warning("What %s has of its own indexes is not known: %s", handle.timeline.store.uri, error.message)
        return None


def check_not_given(kind: str, arguments: Mapping[str, Any]) -> None:
    """Check that nothing was given that Hudi has no word for.

    :param arguments: that have a value where they were given.
    :raises InvalidInput: naming the first one.
    """
    given = next((name for name, value in arguments.items() if value is not None), None)
    if given is not None:
        raise InvalidInput(f"An index of Hudi's own, {kind!r}, has no {given}.", hint="Leave it out.")


def vanished(definition: IndexDefinition) -> HudiIndex:
    """Return an index that the log defines, as it would be made again."""
    properties = dict(definition.properties)
    name = properties.pop(NAME, definition.name)
    using, function = properties.pop(USING, None), properties.pop(FUNCTION, None)
    partition = partition_of(definition.kind, name)
    return HudiIndex(
        name, definition.kind, partition, definition.columns, "vanished", function, using, properties
    )  # fmt: skip


class OnHudi(Action):
    """Common part of the actions: the table's calls, and the build of an index, which is there then or not at all.

    :param options: of the store with the table.
    """

    on_sources = "blind"
    settings: Mapping[str, str] = {}

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        self.options = options

    def calls(self, snapshot: Snapshot) -> HudiCalls:
        """Return the calls on the table. :raises InvalidInput: if it is none of Hudi's."""
        if not is_hudi(snapshot.table):
            what = "a keyed table of this package" if snapshot.table.source is None else snapshot.table.source.format
            raise InvalidInput(
                f"Indexes of Hudi's own are for registered Hudi tables, and this one is {what}.",
                hint="Choose one of this package's kinds: record, secondary, compact, covering, skipping.",
            )
        calls = HudiCalls(snapshot.spark, snapshot.table, self.options)
        calls.check()
        return calls

    def checked_lock(self, calls: HudiCalls) -> str:
        """Return the lock provider of the writers. :raises InvalidInput: if none is named."""
        provider = self.settings.get(LOCK_PROVIDER) or calls.setting(LOCK_PROVIDER)
        if not provider:
            raise InvalidInput(
                f"Hudi works on an index beside its writers and needs a lock provider; {LOCK_PROVIDER} is not set, "
                f"neither in this session nor in the properties of {calls.uri}.",
                hint=f"Set it for this job and for every writer of the table; spark-submit takes it as "
                f"spark.{LOCK_PROVIDER}=org.apache.hudi.client.transaction.lock.StorageBasedLockProvider.",
            )
        if provider.endswith(IN_PROCESS):
            logger.warning(
                "%s is %s: writers of other processes are not kept out while Hudi works on %s.",
                LOCK_PROVIDER, IN_PROCESS, calls.uri,
            )  # fmt: skip
        return provider

    def build(self, attempt: Attempt, calls: HudiCalls, index: HudiIndex) -> dict[str, Any]:
        """Let Hudi build an index, and return the figures; what a refused build leaves is dropped.

        :raises JobFailed: with Hudi's words, if it has not made the index.
        """
        started, before = time.monotonic(), calls.state()
        if index.partition in before.indexes:  # what a build that was killed or refused has left
            attempt.phase(f"drop what is left of {index.name}")
            self._drop_leftover(calls, before.indexes[index.partition])
        attempt.phase(f"build index {index.name} by Hudi")
        # Whoever writes without them removes these: this call too.
        kept = {KEPT_BY[one.kind]: "true" for one in before.indexes.values() if one.kind in KEPT_BY}
        if index.kind in KEPT_BY:
            kept[KEPT_BY[index.kind]] = "true"
        refused: JobFailed | None = None
        with calls.settings({**kept, **self.settings}):
            try:
                calls.create(index)
            except JobFailed as error:
                refused = error
            after = calls.state()
            there = after.indexes.get(index.partition)
            if there is None or there.state != "active":
                left = "" if there is None else self._drop_leftover(calls, there)
                raise JobFailed(
                    refused.message
                    if refused
                    else f"Hudi answered, and {index.partition} is no partition of its metadata.",
                    outcome=f"No index was made.{left}",
                    hint=_hint(index, refused),
                ) from refused
        if refused is not None:
            logger.warning("Hudi has made %s and said: %s", index.partition, refused.message)
        lost = [
            one.name
            for one in before.indexes.values()
            if one.state == "active" and one.partition not in after.partitions
        ]
        return {
            "engine": HUDI,
            "partition": index.partition,
            "instant": max(calls.instants("indexing"), default=None),
            "seconds": round(time.monotonic() - started, 3),
            **calls.files(index.partition),
            **({"lost": lost} if lost else {}),
            **({"kept_by": f"{KEPT_BY[index.kind]}=true"} if index.kind in KEPT_BY else {}),
        }

    def _drop_leftover(self, calls: HudiCalls, index: HudiIndex) -> str:
        """Drop what stands in the way of every later write, and say so; or say how."""
        try:
            calls.drop(index)
        except JobFailed as error:
            logger.warning("%s", error.message)
        if index.partition in calls.state().indexes:
            return f" Hudi's definition {index.partition} is left: writes fail until DROP INDEX {index.name}."
        return f" The definition that Hudi had left, {index.partition}, was dropped, so later writes go on."


class BuildHudiIndex(OnHudi):
    """Builds an index of Hudi's own.

    :param properties: ``using`` and ``expr`` of an expression index, and its options; settings of Hudi (``hoodie.…``)
        that hold while it is built.
    """

    operation: ClassVar[Operation] = CREATE_INDEX

    def __init__(
        self,
        name: str,
        kind: str,
        columns: Sequence[str],
        properties: Mapping[str, str] | None,
        if_not_exists: bool,
        comment: str | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(options)
        self.name, self.kind, self.columns = name, kind, tuple(columns)
        given = {key: str(value) for key, value in (properties or {}).items()}
        self.settings = {key: value for key, value in given.items() if key.startswith(SETTING)}
        self.properties = {key: value for key, value in given.items() if not key.startswith(SETTING)}
        self.if_not_exists, self.comment = if_not_exists, comment

    def validate(self, snapshot: Snapshot) -> None:
        check_name("index", self.name)
        if self.kind not in KINDS:
            raise InvalidInput(f"Hudi has no index of kind {self.kind!r} here.", hint=f"There are: {', '.join(KINDS)}.")
        check_unwritten("property", self.properties, UNWRITTEN_HINT)
        calls = self.calls(snapshot)
        state = calls.state()
        self.index(snapshot.table, state)
        self._check_new(snapshot)
        self._check_unbroken(state)
        self.checked_lock(calls)

    def index(self, table: TableDefinition, state: HudiIndexes) -> HudiIndex:
        """Return the index as Hudi will have it.

        :raises InvalidInput: (or a subclass) for a definition that Hudi would refuse.
        """
        there = {field.name for field in table.fields}
        unknown = next((name for name in self.columns if name not in there), None)
        if unknown is not None:
            raise UnknownColumn(f"The table has no column {unknown!r}.", hint=f"It has: {', '.join(sorted(there))}.")
        properties = dict(self.properties)
        using, function = properties.pop(USING, None), properties.pop(FUNCTION, None)
        name, columns = self.name, self.columns
        if self.kind == "hudi:record":
            name = partition_of(self.kind, name)
            if columns and set(columns) != set(state.record_key):
                raise InvalidInput(
                    f"Hudi's record index is over the record key ({', '.join(state.record_key)}), not "
                    f"({', '.join(columns)}).",
                    hint="Leave columns out, or build hudi:secondary over another column.",
                )
            columns = state.record_key
        elif self.kind in ("hudi:secondary", "hudi:expression"):
            if len(columns) != 1:
                raise InvalidInput(f"An index of kind {self.kind} is over one column, not {len(columns)}.")
            if self.kind == "hudi:secondary" and set(columns) & set(state.record_key):
                raise InvalidInput(f"{columns[0]!r} is of the record key.", hint="Build hudi:record for it.")
            if self.kind == "hudi:secondary" and not _has_record(state):
                raise InvalidInput(
                    "Hudi's secondary index finds files through its record index, which this table does not have.",
                    hint="Build one of kind hudi:record first.",
                )
        else:
            name = partition_of(self.kind, name)
        if self.kind == "hudi:expression":
            if using not in ("column_stats", "bloom_filters") or not function:
                raise InvalidInput(
                    "An expression index needs what it keeps of the values, and the function.",
                    hint="Give properties={'using': 'column_stats', 'expr': 'lower'}; or 'bloom_filters'.",
                )
        elif using is not None or function is not None or properties:
            extra = next(iter(self.properties))
            raise InvalidInput(f"An index of kind {self.kind} has no property {extra!r}.", hint="Leave it out.")
        partition = partition_of(self.kind, name)
        return HudiIndex(name, self.kind, partition, columns, "active", function, using, properties)

    def plan(self, snapshot: Snapshot) -> IndexPlan:
        """Return what Hudi would read: all of the table's files."""
        calls = self.calls(snapshot)
        index = self.index(snapshot.table, calls.state())
        files = snapshot.state.files(DATA_TREE)
        there = calls.state().indexes.get(index.partition)
        why = f"Hudi builds {index.partition}" if there is None else f"Hudi has {index.partition}: {there.state}"
        groups = tuple(dict.fromkeys(file.group_key for file in files)) if there is None else ()
        read = files if there is None else []
        return IndexPlan(self.name, "full", groups, len(read), sum(file.bytes for file in read), why)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        snapshot = attempt.snapshot
        calls = self.calls(snapshot)
        state = calls.state()
        index = self.index(snapshot.table, state)
        known = self._check_new(snapshot)
        there = state.indexes.get(index.partition)
        metrics: dict[str, Any] = {"kind": self.kind, "lock_provider": self.checked_lock(calls)}
        if there is not None and there.state == "active":
            self._check_adoptable(attempt, index, there)
            found = {**metrics, "engine": HUDI, "partition": index.partition, "found": True}
            if known:
                return StagedChanges(idle=True, metrics=found)
            return self._put(index, {**found, **calls.files(index.partition)})
        return self._put(index, {**metrics, **self.build(attempt, calls, index)})

    def _put(self, index: HudiIndex, metrics: Mapping[str, Any]) -> StagedChanges:
        properties = {**index.options}
        for name, value in ((USING, index.using), (FUNCTION, index.function)):
            if value is not None:
                properties[name] = value
        if index.name != self.name:
            properties[NAME] = index.name
        definition = IndexDefinition(
            name=self.name, kind=self.kind, columns=index.columns, index_id=secrets.token_hex(6),
            properties=properties, comment=self.comment, addresses="file",
        )  # fmt: skip
        return StagedChanges(
            actions=[PutIndex(definition, covered=True)],
            writes=[Write(definition_scope(self.name), "replace")],
            metrics=dict(metrics),
        )

    def _check_new(self, snapshot: Snapshot) -> bool:
        """Return whether the log has the index already. :raises IndexExists: if it may not, or has another."""
        entry = next((e for n, e in snapshot.state.indexes.items() if n.lower() == self.name.lower()), None)
        if entry is None:
            return False
        there = entry.definition
        if self.if_not_exists and there.name == self.name and there.kind == self.kind:
            return True
        raise IndexExists(
            f"The table has an index {there.name!r} already, of kind {there.kind!r}.",
            hint="Choose another name, drop that one first, or pass if_not_exists=True.",
        )

    def _check_adoptable(self, attempt: Attempt, index: HudiIndex, there: HudiIndex) -> None:
        """Check that an index that Hudi has may be taken for the one that is asked for."""
        same = not there.columns or set(there.columns) == set(index.columns)
        if index.kind == "hudi:expression":
            same = same and (there.using, there.function) == (index.using, index.function)
        tried = [one for _, one in attempts(attempt.transaction.timeline, attempt.transaction.txn_id)]
        own = any(one < attempt.transaction.attempt for one in tried)
        if same and (own or self.if_not_exists):
            return
        raise IndexExists(
            f"The Hudi table has {there.partition} already, over ({', '.join(there.columns) or 'its key'}).",
            hint="It is in table.indexes, to be verified or dropped; with if_not_exists=True it is looked after, too."
            if same
            else "Choose another name, or drop it first.",
        )

    def _check_unbroken(self, state: HudiIndexes) -> None:
        """Refuse to work where each write fails because of an index that was refused."""
        for one in state.indexes.values():
            if one.state == "refused" and one.name != self.name:
                raise InvalidInput(
                    f"A CREATE INDEX that was refused has left the definition {one.partition}, and every write of "
                    "this table fails until it is dropped, this build too.",
                    hint=f"Drop it: drop_index({one.name!r}).",
                )


def _has_record(state: HudiIndexes) -> bool:
    return any(one.kind == "hudi:record" and one.state == "active" for one in state.indexes.values())


def _hint(index: HudiIndex, refused: JobFailed | None) -> str:
    if index.kind == "hudi:expression" and index.using == "bloom_filters":
        return "On a merge-on-read table with log files Hudi cannot build these: compact it first, or use column_stats."
    return "See Hudi's words above and the driver's log." if refused else "Build it again; see the driver's log."


class _OnOne(OnHudi):
    """An action on an index that the log or the table has."""

    def __init__(self, name: str, options: Mapping[str, Any] | None) -> None:
        super().__init__(options)
        self.name = name

    def found(self, snapshot: Snapshot, calls: HudiCalls) -> HudiIndex:
        """Return the index. :raises IndexNotFound: naming those that there are."""
        there, entry = calls.state(), snapshot.state.indexes.get(self.name)
        index = there.named(self.name) if entry is None else there.of(entry.definition) or vanished(entry.definition)
        if index is None:
            known = (
                ", ".join(sorted({*snapshot.state.indexes, *(one.name for one in there.indexes.values())})) or "none"
            )
            raise IndexNotFound(f"There is no index {self.name!r}; the table has: {known}.", hint="Check the name.")
        return index


class RefreshHudiIndex(_OnOne):
    """Brings an index of Hudi's own back where it is gone; Hudi keeps one that is there with each write.

    ``REFRESH INDEX`` of Hudi does nothing, so it is never called.

    :param mode: ``incremental``: only one that is not there any more. ``full``: dropped and built from the rows.
        ``quick``: nothing is built; the receipt says what is there.
    """

    operation: ClassVar[Operation] = REFRESH_INDEX

    def __init__(self, name: str, mode: RefreshMode, options: Mapping[str, Any] | None) -> None:
        super().__init__(name, options)
        self.mode = mode

    def validate(self, snapshot: Snapshot) -> None:
        calls = self.calls(snapshot)
        self.found(snapshot, calls)

    def plan(self, snapshot: Snapshot) -> IndexPlan:
        """Return what Hudi would read: nothing for an index that is there."""
        index = self.found(snapshot, self.calls(snapshot))
        due = self.mode == "full" or (self.mode == "incremental" and index.state != "active")
        files = snapshot.state.files(DATA_TREE) if due else []
        groups = tuple(dict.fromkeys(file.group_key for file in files))
        why = f"{index.partition} is {index.state}" + ("" if due else ": Hudi keeps it with each write")
        return IndexPlan(self.name, self.mode, groups, len(files), sum(file.bytes for file in files), why)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        calls = self.calls(attempt.snapshot)
        index = self.found(attempt.snapshot, calls)
        metrics: dict[str, Any] = {"mode": self.mode, "engine": HUDI, "partition": index.partition, "was": index.state}
        if self.mode == "quick" or (self.mode == "incremental" and index.state == "active"):
            return StagedChanges(idle=True, metrics=metrics)
        metrics["lock_provider"] = self.checked_lock(calls)
        metrics |= self.build(attempt, calls, index)
        return StagedChanges(writes=[Write(definition_scope(self.name), "replace")], metrics=metrics)


class CompactHudiIndexes(_OnOne):
    """Says what an index of Hudi's own is read from; Hudi compacts its metadata table with its writes.

    Its procedure fails on that table: in 1.2.0 it plans the compaction, and then asks for the metadata of the metadata,
    which leaves the plan behind. So it is never called.
    """

    operation: ClassVar[Operation] = COMPACT_INDEX

    def validate(self, snapshot: Snapshot) -> None:
        index = self.found(snapshot, self.calls(snapshot))
        if index.state != "active":
            raise InvalidInput(f"The index {self.name!r} is {index.state}.", hint="Refresh it, which builds it again.")

    def work(self, attempt: Attempt) -> StagedChanges | None:
        calls = self.calls(attempt.snapshot)
        index = self.found(attempt.snapshot, calls)
        said = {"engine": HUDI, "partition": index.partition, "compacted_by": f"Hudi, by {COMPACTED_AFTER}"}
        return StagedChanges(idle=True, metrics={**said, **calls.files(index.partition)})


class DropHudiIndex(_OnOne):
    """Drops an index of Hudi's own, by Hudi, or what a refused build of one has left."""

    operation: ClassVar[Operation] = DROP_INDEX

    def validate(self, snapshot: Snapshot) -> None:
        calls = self.calls(snapshot)
        index = self.found(snapshot, calls)
        others = [one.name for one in calls.state().indexes.values() if one.kind == "hudi:secondary"]
        if index.kind == "hudi:record" and index.state == "active" and others:
            raise InvalidInput(
                f"Hudi's secondary indexes find files through the record index: {', '.join(others)}.",
                hint="Drop them first.",
            )
        if index.state != "vanished":
            self.checked_lock(calls)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        calls = self.calls(attempt.snapshot)
        index = self.found(attempt.snapshot, calls)
        metrics: dict[str, Any] = {"kind": index.kind, "engine": HUDI, "partition": index.partition, "was": index.state}
        if index.state != "vanished":
            attempt.phase(f"drop index {index.name} by Hudi")
            kept = {
                KEPT_BY[one.kind]: "true"
                for one in calls.state().indexes.values()
                if one.kind in KEPT_BY and one.partition != index.partition
            }
            with calls.settings(kept):
                calls.drop(index)
            if index.partition in calls.state().indexes:
                raise JobFailed(
                    f"Hudi answered, and still has {index.partition}.",
                    outcome="It is not dropped.",
                    hint="Try again; see the driver's log.",
                )
        named = self.name in attempt.snapshot.state.indexes
        return StagedChanges(
            actions=[DropIndex(self.name)] if named else [],
            writes=[Write(definition_scope(self.name), "replace")],
            metrics=metrics,
        )


# --- compared with the rows -------------------------------------------------------------------------------------------


def verify(snapshot: Snapshot, name: str, options: Mapping[str, Any] | None) -> VerificationReport:
    """Compare an index of Hudi's own with the rows, both read by Hudi in Spark.

    ``record`` and ``secondary`` are compared entry by entry, several secondary indexes together; ``column_stats`` by
    the file groups that it has statistics of; the others are not compared.

    An index that is not there any more differs in all of its entries: the report has one difference, which says so.

    :raises InvalidInput: for one that cannot be compared.
    """
    action = _OnOneToVerify(name, options)
    calls = action.calls(snapshot)
    index = action.found(snapshot, calls)
    if index.state != "active":
        return VerificationReport(
            name, snapshot.state.version, 0, 0, 0, 0, 0, 0, 0,
            differences=(Difference("missing", {"partition": index.partition}, expected=f"it is {index.state}"),),
        )  # fmt: skip
    compare = {"hudi:record": _records, "hudi:secondary": _secondary}.get(index.kind, _files)
    return compare(calls, index, name, snapshot.state.version)


class _OnOneToVerify(_OnOne):
    operation: ClassVar[Operation] = REPAIR_INDEX

    def work(self, attempt: Attempt) -> StagedChanges | None:
        raise NotImplementedError


def _records(calls: HudiCalls, index: HudiIndex, name: str, version: int) -> VerificationReport:
    rows = calls.rows(()).select(
        F.col("_hoodie_record_key").alias("key"), F.col("_hoodie_partition_path").alias("p"), group_of_row().alias("g")
    )
    entries = calls.entries(index.kind).select(
        "key", F.col("recordIndexMetadata.partitionName").alias("p"), file_id().alias("g")
    )
    both = rows.alias("r").join(entries.alias("e"), F.col("r.key") == F.col("e.key"), "full_outer")
    there, known = F.col("r.key").isNotNull(), F.col("e.key").isNotNull()
    same = F.col("r.p").eqNullSafe(F.col("e.p"))
    faults = {
        "missing": there & ~known,
        "too many": known & ~there,
        "wrong partition": there & known & ~same,
        "wrong values": there & known & same & ~F.col("r.g").eqNullSafe(F.col("e.g")),
    }
    row, entry = there.cast("int"), known.cast("int")
    key = F.coalesce(F.col("r.key"), F.col("e.key"))
    expected = F.concat_ws(" ", F.col("r.p"), F.col("r.g"))
    return _report(both, faults, row, entry, {"record key": key}, expected, name, version)


def _secondary(calls: HudiCalls, index: HudiIndex, name: str, version: int) -> VerificationReport:
    """Compare the pairs of value and record key; of several secondary indexes all, for nothing tells theirs apart."""
    others = [one for one in calls.state().indexes.values() if one.kind == index.kind and one.state == "active"]
    columns = [column for one in others for column in one.columns]
    rows = calls.rows(columns)
    key = _escaped(F.col("_hoodie_record_key"))
    pairs = [F.concat(_escaped(F.col(quote(column)).cast("string")), F.lit("$"), key) for column in columns]
    expected = rows.select(F.explode(F.array(*pairs)).alias("pair")).groupBy("pair").agg(F.count("*").alias("n"))
    found = calls.entries(index.kind).where(~F.coalesce(F.col("SecondaryIndexMetadata.isDeleted"), F.lit(False)))
    entries = found.groupBy(F.col("key").alias("pair")).agg(F.count("*").alias("n"))
    both = expected.alias("r").join(entries.alias("e"), F.col("r.pair") == F.col("e.pair"), "full_outer")
    row, entry = (F.coalesce(F.col(f"{side}.n"), F.lit(0)) for side in ("r", "e"))
    faults = {"missing": row > entry, "too many": entry > row}
    keys = {"entry": F.coalesce(F.col("r.pair"), F.col("e.pair"))}
    return _report(both, faults, row, entry, keys, F.lit(None).cast("string"), name, version)


def _escaped(text: Column) -> Column:
    r"""Return a part of an entry's key as Hudi writes it: ``\`` and ``$`` have a ``\`` before them, null is ``\0``."""
    escaped = F.regexp_replace(F.regexp_replace(text, r"\\", r"\\\\"), r"\$", r"\\\$")
    return F.coalesce(escaped, F.lit("\0"))


def _files(calls: HudiCalls, index: HudiIndex, name: str, version: int) -> VerificationReport:
    """Compare the file groups of rows with those that statistics are of.

    :raises InvalidInput: for what is known of files by hashes of their names alone.
    """
    if index.kind in NOT_COMPARED:
        raise InvalidInput(
            f"{index.partition} knows files by hashes of their names alone, so it is not compared with the rows.",
            hint="refresh_index(name, mode='full') builds it again.",
        )
    told = "ColumnStatsMetadata"
    rows = calls.rows(()).groupBy(group_of_row().alias("g")).agg(F.count("*").alias("n"))
    found = calls.entries(index.kind).where(~F.coalesce(F.col(f"{told}.isDeleted"), F.lit(False)))
    if index.columns:
        found = found.where(F.col(f"{told}.columnName").isin(*index.columns))
    group = F.split(F.regexp_replace(F.col(f"{told}.fileName"), "^[.]", ""), "_").getItem(0)
    entries = found.groupBy(group.alias("g")).agg(F.count("*").alias("n"))
    both = rows.alias("r").join(entries.alias("e"), F.col("r.g") == F.col("e.g"), "full_outer")
    row, entry = (F.coalesce(F.col(f"{side}.n"), F.lit(0)) for side in ("r", "e"))
    # Statistics of files that no row is in any more go when these are cleaned.
    faults = {"missing": (row > 0) & (entry == 0)}
    return _report(both, faults, row, entry, {"file group": F.col("r.g")}, F.lit(None).cast("string"), name, version)


def _report(
    both: DataFrame,
    faults: Mapping[str, Column],
    row: Column,
    entry: Column,
    key: Mapping[str, Column],
    expected: Column,
    name: str,
    version: int,
) -> VerificationReport:
    """Count faults in a join of rows and entries, and take examples; no row but these reaches the driver.

    :param row: and ``entry``: how many of each a row of the join stands for.
    """
    fault = F.coalesce(*(F.when(test, F.lit(what)) for what, test in faults.items()))
    judged = both.select(fault.alias("fault"), row.alias("row"), entry.alias("entry"), *(
        one.cast("string").alias(f"key {what}") for what, one in key.items()
    ), expected.alias("expected"))  # fmt: skip
    counted = judged.agg(
        F.sum("row").alias("rows"), F.sum("entry").alias("entries"),
        *(F.count(F.when(F.col("fault") == what, 1)).alias(what) for what in faults),
    ).head()  # fmt: skip
    assert counted is not None
    counts = {what: int(counted[what]) for what in faults}
    examples = judged.where(F.col("fault").isNotNull()).limit(EXAMPLES).collect() if any(counts.values()) else []
    return VerificationReport(
        name, version, int(counted["rows"] or 0), int(counted["entries"] or 0), counts["missing"],
        counts.get("too many", 0), counts.get("wrong partition", 0), 0, 0,
        tuple(
            Difference(one["fault"], {what: one[f"key {what}"] for what in key}, expected=one["expected"])
            for one in examples
        ),
        counts.get("wrong values", 0),
    )  # fmt: skip
