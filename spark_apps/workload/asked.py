"""Queries of a table, each as one line, and many of them merged into a workload of bounded size.

A line says what a query wanted and what it cost, and nothing of the rows that it gave. What is personal in it are the
literals of its predicate: they are in :attr:`AskedQuery.predicate` alone, which a log without literals leaves out.
Lines that differ in literals only are one group of a :class:`Workload`, which keeps a few of their predicates.

Lines are input: whoever may write to a table's folder may write any. :func:`from_document` checks them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.printing import Grid, Printed, View, counted, size, span
from spark_apps.timeline.field_types import Bytes, Count, Seconds
from spark_apps.workload.limits import (
    MAX_ADDRESS_CHARACTERS,
    MAX_GROUP_CHARACTERS,
    MAX_GROUPS,
    MAX_INDEXES,
    MAX_LABEL_CHARACTERS,
    MAX_LABELS,
    MAX_LINE_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_NAMES,
    MAX_PREDICATE_CHARACTERS,
    MAX_PREDICATES,
    MAX_SHAPE_CHARACTERS,
    MAX_WORKLOAD_CHARACTERS,
)

UNKNOWN_SHAPE = "?"
"""The shape of a predicate of which nothing is known but that there is one."""

_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=MAX_NAMES)]
_Address = Annotated[str, Meta(min_length=1, max_length=MAX_ADDRESS_CHARACTERS)]
_Code = Annotated[str, Meta(max_length=64)]
_Label = Annotated[str, Meta(max_length=MAX_LABEL_CHARACTERS)]
# What is written down has a zone; what is older than Spark or in the year 9999 is no time of a query.
_Asked = Annotated[datetime, Meta(tz=True)]
_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuery:
    """A query of one table, or several that were counted by one line; a query of more tables has a line of each.

    :param table: the address of the table; from other engines' logs the address or name that they give it.
    :param asked: when it was asked, in UTC.
    :param seconds: what it took; of a query whose rows are read as they are needed, what its planning took.
    :param columns: what it read of each row; ``None`` for all columns.
    :param predicate: with its literals, as ``read(where=…)`` takes it; ``None`` for all rows, and where literals
        are left out (there is a shape then).
    :param shape: the predicate with ``?`` for each literal, in one canonical text; ``None`` for all rows.
    :param join_keys: columns of this table that it was joined by, where that is known; ``group_keys`` those that it was
        grouped by, ``order`` ordered by.
    :param used: indexes that were used: name and kind.
    :param unused: indexes that were not: name, kind, and the code of the reason (as of ``explain``).
    :param bytes_skipped: of the table's files, those that were not read.
    :param spared: index -> bytes that it saved the query, its own cost taken off; partitions save for nothing.
    :param asked_by: of Airflow ``dag.task``; else a user's name for it, or nothing.
    :param weight: how many queries the line counts for; figures of bytes and files are of one.
    """

    table: _Address
    asked: _Asked
    seconds: Seconds = 0.0
    columns: _Names | None = None
    predicate: Annotated[str, Meta(max_length=MAX_PREDICATE_CHARACTERS)] | None = None
    shape: Annotated[str, Meta(min_length=1, max_length=MAX_SHAPE_CHARACTERS)] | None = None
    join_keys: _Names = ()
    group_keys: _Names = ()
    order: _Names = ()
    used: Annotated[tuple[tuple[_Name, _Code], ...], Meta(max_length=MAX_INDEXES)] = ()
    unused: Annotated[tuple[tuple[_Name, _Code, _Code], ...], Meta(max_length=MAX_INDEXES)] = ()
    files_read: Count = 0
    files_skipped: Count = 0
    bytes_read: Bytes = 0
    bytes_skipped: Bytes = 0
    spared: dict[_Name, Bytes] = field(default_factory=dict)
    asked_by: _Label = ""
    weight: Annotated[float, Meta(gt=0, le=1e12)] = 1.0

    def __post_init__(self) -> None:
        if self.asked.tzinfo is None or not _FIRST <= self.asked < _LAST:
            raise ValueError(f"{self.asked} is no time of a query with its zone")
        if self.shape is None and self.predicate is not None:
            raise ValueError("there is a predicate without its shape")
        if len(self.spared) > MAX_INDEXES:
            raise ValueError(f"more than {MAX_INDEXES:,} indexes saved something")

    def to_document(self) -> bytes:
        """Return the line as JSON, without a line break."""
        return msgspec.json.encode(self)


prepare(AskedQuery)


def from_document(line: bytes, what: str = "A line of asked queries") -> AskedQuery:
    """Return the query of a line.

    :param what: names the line, for the error.
    :raises LogDamaged: if it is none, naming the field.
    """
    return decode(line[: MAX_LINE_BYTES + 1], AskedQuery, what)


# --- a workload -------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """The part of a query that all of its group have in common."""

    table: str
    columns: tuple[str, ...] | None
    shape: str | None
    join_keys: tuple[str, ...] = ()
    group_keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def characters(self) -> int:
        """The characters that a group with this shape takes at most, about."""
        names = (*(self.columns or ()), *self.join_keys, *self.group_keys, *self.order)
        return len(self.table) + len(self.shape or "") + sum(map(len, names)) + MAX_GROUP_CHARACTERS


class QueryGroup:
    """Queries of a table that differ in their literals only. All sums count a line as often as its weight says.

    :ivar shape: what they have in common.
    :ivar weight: how many queries there were; :attr:`lines`: in how many lines.
    :ivar predicates: some of the predicates, drawn evenly; empty where literals are left out.
    :ivar used: (index, kind) -> queries; :ivar unused: (index, kind, code) -> queries.
    :ivar spared: index -> bytes saved.
    """

    __slots__ = (
        "asked_by", "bytes_read", "bytes_skipped", "files_read", "files_skipped", "first", "last", "lines",
        "predicates", "seconds", "shape", "spared", "unused", "used", "weight",
    )  # fmt: skip

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.weight = self.seconds = 0.0
        self.lines = 0
        self.files_read = self.files_skipped = self.bytes_read = self.bytes_skipped = 0.0
        self.first, self.last = _LAST, _FIRST
        self.predicates: list[str] = []
        self.used: dict[tuple[str, str], float] = {}
        self.unused: dict[tuple[str, str, str], float] = {}
        self.spared: dict[str, float] = {}
        self.asked_by: dict[str, float] = {}

    def add(self, query: AskedQuery, draw: random.Random) -> None:
        """Count a query in."""
        weight = query.weight
        self.weight += weight
        self.lines += 1
        self.seconds += weight * query.seconds
        self.files_read += weight * query.files_read
        self.files_skipped += weight * query.files_skipped
        self.bytes_read += weight * query.bytes_read
        self.bytes_skipped += weight * query.bytes_skipped
        self.first, self.last = min(self.first, query.asked), max(self.last, query.asked)
        _count(self.used, query.used, weight)
        _count(self.unused, query.unused, weight)
        for name, spared in query.spared.items():
            if name in self.spared or len(self.spared) < MAX_INDEXES:
                self.spared[name] = self.spared.get(name, 0.0) + weight * spared
        if query.asked_by:
            _count(self.asked_by, (query.asked_by,), weight, MAX_LABELS)
        if query.predicate is not None:
            self._sample(query.predicate, draw)

    def absorb(self, other: QueryGroup, draw: random.Random) -> None:
        """Count the queries of another group in."""
        for name in ("weight", "lines", "seconds", "files_read", "files_skipped", "bytes_read", "bytes_skipped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        for name in ("used", "unused", "spared", "asked_by"):
            counts = getattr(self, name)
            for key, count in getattr(other, name).items():
                counts[key] = counts.get(key, 0.0) + count
        for predicate in other.predicates:
            self._sample(predicate, draw)

    def _sample(self, predicate: str, draw: random.Random) -> None:
        if predicate in self.predicates:
            return
        if len(self.predicates) < MAX_PREDICATES:
            if not self.predicates or sum(map(len, self.predicates)) + len(predicate) <= MAX_GROUP_CHARACTERS:
                self.predicates.append(predicate)
        elif (position := draw.randrange(self.lines)) < MAX_PREDICATES:
            others = sum(map(len, self.predicates)) - len(self.predicates[position])
            if others + len(predicate) <= MAX_GROUP_CHARACTERS:
                self.predicates[position] = predicate

    def queries(self) -> Iterator[AskedQuery]:
        """Yield the group as lines, one for each predicate that is kept, each with its part of the weight.

        They name the indexes that at least half of the queries used, or did not.
        """
        each: list[str | None] = [*self.predicates] or [None]
        one = self.weight or 1.0
        table, columns, shape, join_keys, group_keys, order = self.shape
        for predicate in each:
            yield AskedQuery(
                table=table, asked=self.last, seconds=self.seconds / one, columns=columns, predicate=predicate,
                shape=shape, join_keys=join_keys, group_keys=group_keys, order=order,
                used=tuple(key for key, count in self.used.items() if 2 * count >= one),
                unused=tuple(key for key, count in self.unused.items() if 2 * count >= one),
                files_read=round(self.files_read / one), files_skipped=round(self.files_skipped / one),
                bytes_read=round(self.bytes_read / one), bytes_skipped=round(self.bytes_skipped / one),
                spared={name: round(spared / one) for name, spared in self.spared.items()},
                asked_by=max(self.asked_by, key=self.asked_by.__getitem__, default=""), weight=one / len(each),
            )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        return {
            **self.shape._asdict(),
            "queries": self.weight,
            "lines": self.lines,
            "seconds": self.seconds,
            "files_read": self.files_read,
            "files_skipped": self.files_skipped,
            "bytes_read": self.bytes_read,
            "bytes_skipped": self.bytes_skipped,
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
            "predicates": list(self.predicates),
            "used": [{"index": name, "kind": kind, "queries": count} for (name, kind), count in self.used.items()],
            "unused": [
                {"index": name, "kind": kind, "code": code, "queries": count}
                for (name, kind, code), count in self.unused.items()
            ],
            "spared": dict(self.spared),
            "asked_by": dict(self.asked_by),
        }


def _count(counts: dict[Any, float], names: Iterable[Any], weight: float, most: int = MAX_INDEXES) -> None:
    for name in names:
        if name in counts or len(counts) < most:
            counts[name] = counts.get(name, 0.0) + weight


class Workload(Printed):
    """Many queries, merged into groups; it takes bounded memory however many lines are added.

    Iterating yields the groups, those asked most first. It is falsy while nothing was added.

    :param most: groups that are kept.
    """

    def __init__(self, queries: Iterable[AskedQuery] = (), most: int = MAX_GROUPS) -> None:
        self._most = most
        self._groups: dict[Shape, QueryGroup] = {}
        self._characters = 0
        # Seeded, so that the same lines give the same workload.
        self._draw = random.Random(0)
        self.lines = 0
        self.weight = 0.0
        self.left_out = 0.0
        """Queries of groups that were asked too seldom to be kept."""
        self.refused: dict[str, int] = {}
        """Why lines could not be used -> how many."""
        for query in queries:
            self.add(query)

    def add(self, query: AskedQuery) -> None:
        """Count a query in."""
        shape = Shape(query.table, query.columns, query.shape, query.join_keys, query.group_keys, query.order)
        group = self._groups.get(shape)
        if group is None:
            group = self._new_group(shape)
        group.add(query, self._draw)
        self.lines += 1
        self.weight += query.weight

    def _new_group(self, shape: Shape) -> QueryGroup:
        self._characters += shape.characters
        if len(self._groups) >= 2 * self._most or self._characters > 2 * MAX_WORKLOAD_CHARACTERS:
            self._shrink()
            self._characters += shape.characters
        group = self._groups[shape] = QueryGroup(shape)
        return group

    def refuse(self, reason: str, lines: int = 1) -> None:
        """Count lines that could not be used.

        :param reason: a short one, the same for all such lines.
        """
        if reason in self.refused or len(self.refused) < MAX_LABELS:
            self.refused[reason] = self.refused.get(reason, 0) + lines

    def _shrink(self) -> None:
        groups = sorted(self._groups.values(), key=lambda group: (-group.weight, -group.last.timestamp()))
        self._groups, self._characters = {}, 0
        for group in groups:
            characters = group.shape.characters
            if len(self._groups) < self._most and self._characters + characters <= MAX_WORKLOAD_CHARACTERS:
                self._groups[group.shape] = group
                self._characters += characters
            else:
                self.left_out += group.weight

    def __iter__(self) -> Iterator[QueryGroup]:
        if len(self._groups) > self._most:
            self._shrink()
        return iter(sorted(self._groups.values(), key=lambda group: (-group.weight, str(group.shape))))

    def __len__(self) -> int:
        return min(len(self._groups), self._most)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def queries(self) -> Iterator[AskedQuery]:
        """Yield each group as lines with literals, as far as these are known; see :meth:`QueryGroup.queries`."""
        for group in self:
            yield from group.queries()

    def of_table(self, *names: str) -> Workload:
        """Return what was asked of one table.

        :param names: its address and other names of it; of names the last part is enough, as Spark's logs may have
            it with a catalog or without. Lines of the result have the first of them.
        """
        wanted = {tail(name) for name in names}
        part = Workload(most=self._most)
        for group in self:
            if group.shape.table in names or tail(group.shape.table) in wanted:
                shape = group.shape._replace(table=names[0])
                (part._groups.get(shape) or part._new_group(shape)).absorb(group, part._draw)
                part.lines += group.lines
                part.weight += group.weight
        part.refused = dict(self.refused)
        return part

    def indexes(self) -> Mapping[str, IndexWorth]:
        """Return of each index how often it was asked for, used, and not used and why, and the bytes that it saved."""
        worth: dict[str, IndexWorth] = {}
        for group in self:
            for (name, kind), count in group.used.items():
                worth.setdefault(name, IndexWorth(name, kind)).used += count
            for (name, kind, code), count in group.unused.items():
                one = worth.setdefault(name, IndexWorth(name, kind))
                one.unused[code] = one.unused.get(code, 0.0) + count
            for name, spared in group.spared.items():
                if name in worth:
                    worth[name].bytes_spared += spared
        return dict(sorted(worth.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        return {
            "queries": self.weight,
            "lines": self.lines,
            "left_out": self.left_out,
            "refused": dict(self.refused),
            "groups": [group.to_dict() for group in self],
            "indexes": [one.to_dict() for one in self.indexes().values()],
        }

    def view(self) -> View:
        rows = [
            (
                round(group.weight), "(all rows)" if group.shape.shape is None else group.shape.shape,
                "all" if group.shape.columns is None else group.shape.columns, size(group.bytes_read),
                size(group.bytes_skipped), span(group.seconds), [name for name, _ in group.used],
                f"{group.last.astimezone(UTC):%Y-%m-%d %H:%M}",
            )
            for group in self
        ]  # fmt: skip
        columns = ("queries", "predicate", "columns", "read", "skipped", "time", "used", "last (UTC)")
        worth = [
            (
                one.name, one.kind, round(one.used), round(sum(one.unused.values())),
                {code: round(count) for code, count in one.unused.items()}, size(one.bytes_spared),
            )
            for one in self.indexes().values()
        ]  # fmt: skip
        facts = [
            ("asked too seldom to be kept", round(self.left_out) or None),
            *((f"lines not used: {reason}", count) for reason, count in self.refused.items()),
        ]
        names = ("index", "kind", "used", "not used", "why not", "saved")
        return View(counted(round(self.weight), "query", "queries"), facts, [Grid(columns, rows), Grid(names, worth)])


@dataclass(slots=True)
class IndexWorth:
    """The worth of an index to queries: how many used it, how many did not (by the reason's code), bytes saved."""

    name: str
    kind: str
    used: float = 0.0
    unused: dict[str, float] = field(default_factory=dict)
    bytes_spared: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        return {
            "index": self.name,
            "kind": self.kind,
            "used": self.used,
            "unused": dict(self.unused),
            "bytes_spared": self.bytes_spared,
        }


def tail(name: str) -> str:
    """Return the last part of a table's address or name, as all names of it have it."""
    return name.rstrip("/").replace("`", "").replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower()
