"""Decides which file groups a query must read: by partition values, by the bucket layout, and by indexes.

Every means narrows the file groups down and may be wrong in one direction only: it names too many. What an index does
not cover is read; an index that cannot be read, or whose code is not here, is left out with a warning. The predicate is
applied to the rows in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from spark_apps.indexes.handler import CannotPrune, IndexContext, IndexHandler, Key, Question, Substitute
from spark_apps.indexes.registry import available
from spark_apps.layout.hashing import is_known
from spark_apps.layout.partitions import value_of
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.buckets import buckets_of, computable
from spark_apps.mergetree.meanings import differing, unknown
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.checking import check_predicate
from spark_apps.query.costs import is_read_sooner, scan_is_cheaper
from spark_apps.query.predicates import (
    And,
    NothingMatches,
    Opaque,
    Or,
    Predicate,
    columns_of,
    keys_for,
    may_match,
    parse_predicate,
)
from spark_apps.query.question import PredicateQuestion
from spark_apps.storage.errors import InvalidInput, LakeIndexError, LogDamaged, StorageError
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.state import IndexEntry

if TYPE_CHECKING:
    from pyspark.sql.conf import RuntimeConfig

logger = logging.getLogger(__name__)

UNREADABLE = (StorageError, LookupError, ValueError, TypeError, ArithmeticError, RecursionError)
"""What handlers meet in damaged files of an index, and in a definition that nobody who builds indexes has written: the
log is input, and a property that is missing or no number makes a query slower."""

_MOST_BUCKET_KEYS = 10_000
BUCKETS = "bucket layout"
"""Stands for the table's own layout where a plan names the indexes it used."""

Keys = frozenset[Key] | None


@dataclass(frozen=True)
class Narrowed:
    """What is left of a table to read.

    :param groups: file groups that can hold matching rows, each with the record keys that these can have (``None``:
        any).
    :param blocks: lineage of a data file -> the blocks of it that can hold such rows; of files not in it, all.
    """

    groups: dict[GroupKey, Keys]
    blocks: dict[int, frozenset[int]] = field(default_factory=dict)

    def __and__(self, other: Narrowed) -> Narrowed:
        met: dict[GroupKey, Keys] = {}
        for group in self.groups.keys() & other.groups.keys():
            mine, theirs = self.groups[group], other.groups[group]
            keys = theirs if mine is None else mine if theirs is None else mine & theirs
            if keys is None or keys:
                met[group] = keys
        blocks = dict(self.blocks)
        for lineage, numbers in other.blocks.items():
            blocks[lineage] = blocks.get(lineage, numbers) & numbers
        return Narrowed(dict(sorted(met.items())), blocks)

    def __or__(self, other: Narrowed) -> Narrowed:
        joined = dict(self.groups)
        for group, keys in other.groups.items():
            there = joined.get(group, frozenset())
            joined[group] = None if keys is None or there is None else there | keys
        blocks = {
            lineage: self.blocks[lineage] | other.blocks[lineage] for lineage in self.blocks.keys() & other.blocks
        }
        return Narrowed(joined, blocks)


@dataclass(frozen=True)
class IndexUse:
    """An index that was asked: files read of it, bytes read, and file groups of the data that were left.

    :param replaces: data files whose rows are read from the index instead; ``files`` and ``bytes`` are then what the
        query itself reads of it, by estimate, and ``instead_of`` the bytes that it would read of those files.
    """

    name: str
    files: int
    bytes: int
    groups: int
    replaces: int = 0
    instead_of: int = 0


@dataclass(frozen=True)
class NotUsed:
    """Why an index was not used. ``code`` is one of: ``no_keys`` (the predicate does not bound its columns),
    ``not_active``, ``covers_nothing``, ``unreadable``, ``no_handler``, ``too_many_keys``, ``too_many_values``,
    ``scan_is_cheaper``, ``cannot_prune``; of an index that holds rows also: ``lacks_columns``, ``too_much_appended``,
    ``too_much_deleted``, ``merged_rows``, ``no_lineage``, ``costs_more``, ``nothing_left``; of a source's
    ``session_differs``, ``session_unknown``; where there is no Spark session ``no_session``."""

    code: str
    reason: str


@dataclass
class ReadPlan:
    """Which file groups a query reads.

    :param groups: file groups to read, with the record keys to look for in them where they are known and few.
    :param blocks: the blocks to read of data files (by lineage) of which that is known.
    :param substitutes: rows that come from indexes in place of files; no two stand for one file.
    :param nothing_matches: the predicate is false or null for every row whatever.
    :param partitions: how many partitions are left, by their values alone.
    """

    snapshot: Snapshot
    where: str | None
    predicate: Predicate | None
    groups: dict[GroupKey, Keys]
    blocks: dict[int, frozenset[int]] = field(default_factory=dict)
    substitutes: list[Substitute] = field(default_factory=list)
    nothing_matches: bool = False
    partitions: int = 0
    used: list[IndexUse] = field(default_factory=list)
    not_used: dict[str, NotUsed] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def files(self) -> dict[GroupKey, list[DataFile]]:
        """The files to read, by file group. Where an index holds the rows of a file, those over it are left."""
        groups, replaced = self.snapshot.groups(), self.replaced
        left = {key: [file for file in groups[key] if file.lineage not in replaced] for key in self.groups}
        return {key: files for key, files in left.items() if files}

    @property
    def replaced(self) -> frozenset[int]:
        """The data files whose rows come from an index, by lineage."""
        return frozenset[int]().union(*(found.lineages for found in self.substitutes))

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the predicate needs."""
        return frozenset() if self.predicate is None else columns_of(self.predicate)


def plan_read(snapshot: Snapshot, where: str | None = None) -> ReadPlan:
    """The file groups that can hold rows which satisfy a predicate.

    :raises InvalidPredicate: :raises UnknownColumn:
    """
    if where is None:
        everything: dict[GroupKey, Keys] = dict.fromkeys(snapshot.groups(), None)
        plan = ReadPlan(snapshot, None, None, everything, partitions=len(snapshot.state.partitions))
        for name in snapshot.state.indexes:
            plan.not_used[name] = NotUsed("no_keys", "there is no predicate")
        return plan
    if is_read_sooner(snapshot, where):
        plan = ReadPlan(snapshot, where, _unread(snapshot, where), dict.fromkeys(snapshot.groups(), None))
        plan.partitions = len(snapshot.state.partitions)
        why = "the table is scanned sooner than a predicate of this length is parsed"
        plan.not_used = {name: NotUsed("scan_is_cheaper", why) for name in snapshot.state.indexes}
        return plan
    return plan_predicate(snapshot, where, parsed(snapshot, where))


def parsed(snapshot: Snapshot, where: str) -> Predicate:
    """The predicate, as the session reads it.

    :raises InvalidPredicate: :raises UnknownColumn:
    """
    conf = snapshot.spark.conf
    names = frozenset(field.name for field in snapshot.table.fields)
    if "`" in where and _is_on(conf, "spark.sql.parser.quotedRegexColumnNames"):
        return Opaque(where, names, "a name in backquotes is a pattern in this session", whole=True)
    return parse_predicate(
        where,
        {field.name: field.type for field in snapshot.table.fields},
        time_zone=conf.get("spark.sql.session.timeZone", None),
        timestamps=_timestamps(str(conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ"))),
        case_sensitive=_is_on(conf, "spark.sql.caseSensitive"),
        ask_spark=partial(check_predicate, snapshot),
    )


def _is_on(conf: RuntimeConfig, name: str) -> bool:
    return str(conf.get(name, "false")).lower() == "true"


def _timestamps(setting: str) -> str | None:
    return {"TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}.get(setting.upper())


def _unread(snapshot: Snapshot, where: str) -> Predicate:
    names = frozenset(field.name for field in snapshot.table.fields)
    return Opaque(f"{where[:60]} …", names, "it is long, and the table small", whole="*" in where)


def plan_predicate(snapshot: Snapshot, where: str, predicate: Predicate) -> ReadPlan:
    """As :func:`plan_read`, for a predicate that was read already; needs no Spark session.

    :param where: the predicate for people.
    """
    plan = ReadPlan(snapshot, where, predicate, dict.fromkeys(snapshot.groups(), None))
    if isinstance(keys_for(predicate, snapshot.table.record_key), NothingMatches):
        plan.groups, plan.nothing_matches = {}, True
        return plan
    kept = _matching_partitions(snapshot, predicate)
    plan.partitions = len(kept)
    plan.groups = {group: None for group in plan.groups if group[0] in kept}
    found = _Narrowing(plan, _sources(plan)).narrow(predicate)
    if found is not None:
        found = Narrowed(plan.groups) & found
        plan.groups, plan.blocks = found.groups, found.blocks
    return plan


def _matching_partitions(snapshot: Snapshot, predicate: Predicate) -> set[str]:
    table = snapshot.table
    types = {field.name: parse_type(field.type) for field in table.fields}
    kept = set()
    for path, entry in snapshot.state.partitions.items():
        if len(entry.values) != len(table.partition_by):
            raise LogDamaged(
                f"The log of {snapshot.store.uri} cannot be read: the partition {path!r} has "
                f"{len(entry.values)} values for {len(table.partition_by)} columns (field 'values').",
                hint="Restore the log from a backup, or find out who wrote to it.",
            )
        if may_match(predicate, _known(dict(zip(table.partition_by, entry.values, strict=True)), types)):
            kept.add(path)
    return kept


def _known(texts: Mapping[str, str | None], types: Mapping[str, ColumnType]) -> dict[str, Any]:
    """The values of a partition, but for those that Python does not know, such as a day of the year 10000."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = None if text is None else value_of(text, types[name], name)
        except InvalidInput:
            logger.debug("The partition value %s=%s is left to the rows.", name, text)
    return values


# --- what narrows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """Something that tells file groups by the values of some columns."""

    name: str
    narrow: Callable[[Question], Narrowed | NotUsed]
    cannot: Callable[[Question], CannotPrune | None]
    """Why it would be of no use, told without reading anything."""


def _sources(plan: ReadPlan) -> list[_Source]:
    snapshot = plan.snapshot
    table = snapshot.table
    sources = [_Source(BUCKETS, partial(_by_bucket, plan), partial(_no_bucket, plan))] if table.bucketed else []
    differs = differing(snapshot) if snapshot.state.indexes else None
    for name, entry in sorted(snapshot.state.indexes.items()):
        handler = available(entry.definition.kind)
        if not entry.active:
            plan.not_used[name] = NotUsed("not_active", f"its state is {entry.state!r}")
        elif (why := not_meant(snapshot, entry, differs)) is not None:
            plan.not_used[name] = why
        elif handler is None:
            plan.not_used[name] = NotUsed("no_handler", f"the code of kind {entry.definition.kind!r} is not here")
        elif not entry.by_file and plan.groups and not any(entry.covers(group) for group in plan.groups):
            plan.not_used[name] = NotUsed("covers_nothing", "it covers no file group that the query could read")
        else:
            sources.append(_Source(name, partial(_by_index, plan, entry), partial(_no_index, plan, entry, handler)))
    return sources


def not_meant(snapshot: Snapshot, entry: IndexEntry, differs: str | None) -> NotUsed | None:
    """Why an index of a source may say something else than this session would read of the files.

    :param differs: how the session differs, see :func:`~spark_apps.mergetree.meanings.differing`.
    """
    if differs is not None:
        return NotUsed("session_differs", differs)
    definition = entry.definition
    why = unknown(snapshot.table, [*definition.columns, *definition.included])
    return None if why is None else NotUsed("session_unknown", why)


def _bucket_keys(plan: ReadPlan, question: Question) -> Collection[Key] | CannotPrune:
    table = plan.snapshot.table
    return question.keys(table.hash_fields or table.record_key, _MOST_BUCKET_KEYS)


def _no_bucket(plan: ReadPlan, question: Question) -> CannotPrune | None:
    keys = _bucket_keys(plan, question)
    return keys if isinstance(keys, CannotPrune) else None


def _by_bucket(plan: ReadPlan, question: Question) -> Narrowed | NotUsed:
    keys = _bucket_keys(plan, question)
    if isinstance(keys, CannotPrune):
        return NotUsed("no_keys", keys.reason)
    table = plan.snapshot.table
    if not is_known(table.hash_function):
        return NotUsed("no_handler", f"the code of hash function {table.hash_function!r} is not here")
    if not plan.snapshot.has_spark and not computable(table.hash_function, keys):
        return NotUsed("no_session", f"only Spark computes the hash function {table.hash_function!r}")
    types = {field.name: field.type for field in table.fields}
    fields = {name: types[name] for name in table.hash_fields or table.record_key}
    buckets: dict[int, set[str]] = {}
    for entry in plan.snapshot.state.partitions.values():
        count = entry.buckets or 1
        if count not in buckets:
            found = buckets_of(plan.snapshot.spark, fields, list(keys), count, table.hash_function)
            buckets[count] = {str(bucket) for bucket in found}
    partitions = plan.snapshot.state.partitions
    return Narrowed({group: None for group in plan.groups if group[1] in buckets[partitions[group[0]].buckets or 1]})


def _no_index(plan: ReadPlan, entry: IndexEntry, handler: IndexHandler, question: Question) -> CannotPrune | None:
    try:
        return handler.can_prune(plan.snapshot.table, entry.definition, question)
    except UNREADABLE as error:
        told = unreadable(plan, entry.definition.name, error)
        return CannotPrune(told.reason, told.code)


def _by_index(plan: ReadPlan, entry: IndexEntry, question: Question) -> Narrowed | NotUsed:
    definition = entry.definition
    handler = available(definition.kind)
    assert handler is not None
    dear = scan_is_cheaper(plan.snapshot, entry, question, plan.groups)
    if dear is not None:
        return NotUsed("scan_is_cheaper", dear)
    try:
        found = handler.prune(IndexContext(plan.snapshot, definition, ""), question)
    except UNREADABLE as error:
        return unreadable(plan, definition.name, error)
    if isinstance(found, CannotPrune):
        return NotUsed(found.code, found.reason)
    groups: dict[GroupKey, Keys] = {}
    for group in plan.groups:
        if not entry.covers(group):
            groups[group] = None
        elif group in found.groups:
            groups[group] = None if found.keys is None else found.keys.get(group)
    plan.used.append(IndexUse(definition.name, found.files, found.bytes, len(groups)))
    return Narrowed(groups, dict(found.blocks or {}))


def unreadable(plan: ReadPlan, name: str, error: Exception) -> NotUsed:
    """Says that an index is damaged; the rows are scanned."""
    if not isinstance(error, LakeIndexError):
        error = StorageError(f"What the log says of it cannot be understood ({type(error).__name__}: {error}).")
    message = f"Index {name!r} is not used, the rows are scanned instead: {error}"
    logger.warning("%s: %s", plan.snapshot.store.uri, message)
    plan.warnings.append(message)
    return NotUsed("unreadable", error.message)


class _Narrowing:
    """Asks the sources about a predicate and its parts: AND is the intersection of what they say, OR the union."""

    def __init__(self, plan: ReadPlan, sources: Collection[_Source]) -> None:
        self._plan = plan
        self._sources = list(sources)

    def narrow(self, node: Predicate) -> Narrowed | None:
        """What can hold rows for which ``node`` is true, or ``None`` if nobody can tell."""
        found: list[Narrowed] = []
        question = PredicateQuestion(node)
        for source in list(self._sources):
            cannot = source.cannot(question)
            if cannot is not None:
                self._note(source, cannot.reason)
                continue
            told = self._ask(source, question)
            if told is not None:
                found.append(told)
        if isinstance(node, And):
            parts = [self.narrow(part) for part in node.parts if isinstance(part, Or)]
            found.extend(part for part in parts if part is not None)
        elif isinstance(node, Or) and not found and self._bounded(node):
            parts = [self.narrow(part) for part in node.parts]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                found.append(reduce(or_, known))
        return reduce(and_, found) if found else None

    def _bounded(self, node: Predicate) -> bool:
        """Whether some source can tell of a predicate; asks none, for an answer on half of an OR is of no use."""
        question = PredicateQuestion(node)
        if any(source.cannot(question) is None for source in self._sources):
            return True
        if isinstance(node, Or):
            return all(self._bounded(part) for part in node.parts)
        return isinstance(node, And) and any(self._bounded(part) for part in node.parts if isinstance(part, Or))

    def _ask(self, source: _Source, question: Question) -> Narrowed | None:
        told = source.narrow(question)
        if isinstance(told, NotUsed):
            # It will not answer another question of this query either.
            self._sources.remove(source)
            self._plan.not_used[source.name] = told
            return None
        self._plan.not_used.pop(source.name, None)
        if source.name == BUCKETS:
            self._plan.used = [use for use in self._plan.used if use.name != BUCKETS]
            self._plan.used.append(IndexUse(BUCKETS, 0, 0, len(told.groups)))
        return told

    def _note(self, source: _Source, reason: str) -> None:
        used = {use.name for use in self._plan.used}
        if source.name not in used and source.name != BUCKETS:
            code = "too_many_keys" if reason.startswith("more than") else "no_keys"
            self._plan.not_used.setdefault(source.name, NotUsed(code, reason))
