"""Queries from Spark's event logs: the scans of each plan, with what was pushed to them. No Spark is needed.

Logs are read as Spark 3.5 and 4 write them: one file an application, or a folder of rolled ones, plain or compressed by
zstd, lz4 or snappy, cut off wherever they end. Of their events only those of SQL queries and the application's name are
looked at, and of these the fields below: settings, which hold secrets, are never read.

A plan has no SQL. It has texts without quotation marks, so a filter that could be two things is left out; what is left
is true of every row that the query took.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import IO, Annotated, Any

from msgspec import Meta, ValidationError

from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import InvalidInput, LogDamaged
from spark_apps.workload.asked import UNKNOWN_SHAPE, AskedQuery, Workload
from spark_apps.workload.limits import (
    MAX_ADDRESS_CHARACTERS,
    MAX_COUNTS,
    MAX_EVENT_BYTES,
    MAX_EVENT_OBJECTS,
    MAX_FILTERS,
    MAX_LABEL_CHARACTERS,
    MAX_LOG_BLOCK_BYTES,
    MAX_LOG_BYTES,
    MAX_LOG_FILES,
    MAX_LOG_RATIO,
    MAX_NAMES,
    MAX_NODE_CHARACTERS,
    MAX_PLAN_DEPTH,
    MAX_PLAN_SCANS,
    MAX_PREDICATE_CHARACTERS,
    MAX_RUNNING_BYTES,
    MAX_RUNNING_QUERIES,
    MAX_SHAPE_CHARACTERS,
    SMALL_LOG_BYTES,
)
from spark_apps.workload.shapes import UNPREPARED, shape_of

_OBJECT_BYTES = 256
"""Bytes of an object of an event in memory, about."""

_SQL = b'{"Event":"org.apache.spark.sql.execution.ui.SparkListener'
_APPLICATION = b'{"Event":"SparkListenerApplicationStart"'
_ROLLED = re.compile(r"events_([0-9]{1,9})_")


# --- events -----------------------------------------------------------------------------------------------------------

_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str = ""
    accumulatorId: int = -1


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a plan."""

    nodeName: str = ""
    simpleString: str = ""
    children: list[_Node] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    metrics: list[_Metric] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of a query, as far as it is of concern."""

    Event: str
    executionId: _Number = 0
    time: _Number = 0
    sparkPlanInfo: _Node | None = None
    accumUpdates: list[tuple[int, int]] = field(default_factory=list)


prepare(_Event)


@dataclass
class _Execution:
    """A query that has begun."""

    started: int
    plan: _Node
    bytes: int
    values: dict[int, int] = field(default_factory=dict)


def read_event_logs(folder: str | Path, asked: Workload | None = None) -> Workload:
    """Return the queries in the event logs of a folder, or of one log.

    What cannot be read is counted by :attr:`~spark_apps.workload.asked.Workload.refused`. The address of a table is the
    location that the plan names, or its name in a catalog.

    :param asked: what they are added to.
    :raises InvalidInput: if there is no such folder, or no log in it.
    """
    workload = Workload() if asked is None else asked
    root = Path(folder)
    if not root.exists():
        raise InvalidInput(f"There is no folder of event logs {folder}.", hint="Give that of spark.eventLog.dir.")
    files = sorted(_logs(root), key=_in_order)[: MAX_LOG_FILES + 1]
    if len(files) > MAX_LOG_FILES:
        workload.refuse("event logs beyond what is read", 1)
    budget, found = MAX_LOG_BYTES, False
    # Files of one application, which follow one another, are one log.
    for _, rolled in groupby(files[:MAX_LOG_FILES], lambda path: path.parent if _ROLLED.match(path.name) else path):
        reader = _Reader(workload)
        for path in rolled:
            budget = reader.read(path, budget)
        reader.end()
        found |= reader.seen
    if not found:
        raise InvalidInput(
            f"{folder} holds no event log of Spark's that can be read"
            + (f" ({', '.join(workload.refused)})." if workload.refused else "."),
            hint="Give the folder of spark.eventLog.dir, or one of its files.",
        )
    return workload


def _logs(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.name.startswith((".", "appstatus_", "_")):
            yield path


def _in_order(path: Path) -> tuple[str, int, str]:
    rolled = _ROLLED.match(path.name)
    return str(path.parent), int(rolled[1]) if rolled else 0, path.name


class _BeyondLimit(Exception):
    """More was read than may be."""


class _Reader:
    """The log of one application, while it is read."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._running: dict[int, _Execution] = {}
        self._held = 0
        self._name = ""
        self.seen = False

    def read(self, path: Path, budget: int) -> int:
        """Read a file of the log; return what is left of the bytes that may be read."""
        refuse, most = self._workload.refuse, budget

        def within(source: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal budget, most
            for piece in source:
                budget, most = budget - len(piece), most - len(piece)
                if most < 0:
                    raise _BeyondLimit
                yield piece

        try:
            # More than JSON can be packed into is made to take time.
            most = min(budget, SMALL_LOG_BYTES + MAX_LOG_RATIO * path.stat().st_size)
            with path.open("rb") as file:
                source = _decompressed(path.name, file)
                if source is None:
                    refuse(f"a log compressed by {path.name.removesuffix('.inprogress').rpartition('.')[2][:20]}")
                    return budget
                for line in _lines(within(source)):
                    if len(line) >= MAX_EVENT_BYTES:
                        refuse("an event that is too long")
                    else:
                        self._take(line)
        except _BeyondLimit:
            refuse("events beyond what is read")
        except (OSError, ValueError, EOFError, struct.error):  # pyarrow's errors of damaged streams are among them
            refuse("the rest of a log that is cut off or damaged")
        return budget

    def _take(self, line: bytes) -> None:
        if line.startswith(_SQL):
            self.seen = True
            objects = line.count(b"{") + line.count(b"[")
            if objects > MAX_EVENT_OBJECTS:
                self._workload.refuse("an event that is too long")
                return
            try:
                self._note(decode(line, _Event, "An event"), len(line) + _OBJECT_BYTES * objects)
            except LogDamaged:
                self._workload.refuse("a damaged event")
        elif line.startswith(_APPLICATION):
            self.seen = True
            named = re.search(rb'"App Name":"((?:[^"\\]|\\.){0,500})"', line)
            self._name = named[1].decode("utf-8", "replace") if named else ""
        elif line.startswith(b'{"Event":"'):
            self.seen = True

    def _note(self, event: _Event, size: int) -> None:
        """Note an event. :param size: bytes that it takes in memory, about."""
        kind = event.Event.rpartition(".")[2]
        if kind == "SparkListenerSQLExecutionStart" and event.sparkPlanInfo is not None:
            replaced = self._running.pop(event.executionId, None)
            self._held -= 0 if replaced is None else replaced.bytes
            while self._running and (
                len(self._running) >= MAX_RUNNING_QUERIES or self._held + size > MAX_RUNNING_BYTES
            ):
                self._ended(next(iter(self._running)), None)
            self._running[event.executionId] = _Execution(event.time, event.sparkPlanInfo, size)
            self._held += size
        elif kind == "SparkListenerDriverAccumUpdates" and event.executionId in self._running:
            execution = self._running[event.executionId]
            if len(execution.values) < MAX_COUNTS and self._held + size <= MAX_RUNNING_BYTES:
                execution.values.update(event.accumUpdates)
                execution.bytes += size
                self._held += size
        elif kind == "SparkListenerSQLExecutionEnd" and event.executionId in self._running:
            self._ended(event.executionId, event.time)

    def _ended(self, number: int, ended: int | None) -> None:
        execution = self._running.pop(number)
        self._held -= execution.bytes
        seconds = 0.0 if ended is None else max(0.0, (ended - execution.started) / 1000)
        for scan in scans_of(execution.plan, execution.values):
            try:
                asked = datetime.fromtimestamp(execution.started / 1000, UTC)
                self._workload.add(scan.query(asked, seconds, self._name))
            except (ValueError, OverflowError, OSError, ValidationError):
                self._workload.refuse("a query at no time, or of no table")

    def end(self) -> None:
        """Take the queries that had not ended where the log does."""
        for number in list(self._running):
            self._ended(number, None)


# --- files ------------------------------------------------------------------------------------------------------------


_IS_EVENT = re.compile(rb'\{"Event":"').match


def _lines(source: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines, at least those that are events; of one that is too long its first :data:`MAX_EVENT_BYTES`, or more.

    The last may be a part of one.
    """
    rest: list[bytes] = []
    held = 0
    for piece in source:
        first, *others = piece.split(b"\n")
        rest.append(first if held < MAX_EVENT_BYTES else b"")
        held += len(rest[-1])
        if others:
            yield b"".join(rest)
            yield from filter(_IS_EVENT, others[:-1])  # which are short, and may be millions
            rest, held = [others[-1]], len(others[-1])
    if held:
        yield b"".join(rest)


def _decompressed(name: str, file: IO[bytes]) -> Iterator[bytes] | None:
    """Return the bytes of a log, ``None`` if it is compressed in a way that is not read here."""
    ending = name.removesuffix(".inprogress").rpartition(".")[2].lower() if "." in name else ""
    reader = _BY_ENDING.get(ending)
    if reader is not None:
        return reader(file)
    beginning = file.read(1)
    file.seek(0)
    return _pieces(file) if beginning in (b"{", b"") else None


def _pieces(file: Any, size: int = 1 << 20) -> Iterator[bytes]:
    while piece := file.read(size):
        yield bytes(piece)


def _zstd(file: IO[bytes]) -> Iterator[bytes]:
    import pyarrow as pa

    # Of a stream that is cut off, the piece is lost in which its end is found.
    return _pieces(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"), 4_096)


_BLOCK = struct.Struct("<8sBiii")


def _lz4(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks of Spark's own form of lz4: each with its sizes before it."""
    import pyarrow as pa

    codec = pa.Codec("lz4_raw")
    while len(head := file.read(_BLOCK.size)) == _BLOCK.size:
        magic, token, stored, size, _ = _BLOCK.unpack(head)
        if magic != b"LZ4Block" or not 0 <= stored <= MAX_LOG_BLOCK_BYTES or not 0 <= size <= MAX_LOG_BLOCK_BYTES:
            raise ValueError("no block of lz4")
        if not size:
            continue
        body = file.read(stored)
        if len(body) < stored:
            raise EOFError
        yield body if token & 0xF0 == 0x10 else codec.decompress(body, size).to_pybytes()


def _snappy(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks of the form of snappy that Java writes: each with its size before it."""
    import pyarrow as pa

    codec = pa.Codec("snappy")
    if file.read(16)[:8] != b"\x82SNAPPY\x00":
        raise ValueError("no snappy")
    while len(head := file.read(4)) == 4:
        if head == b"\x82SNA":  # another stream follows
            file.read(12)
            continue
        (stored,) = struct.unpack(">i", head)
        body = file.read(stored) if 0 <= stored <= MAX_LOG_BLOCK_BYTES else b""
        if len(body) < stored or stored < 0:
            raise EOFError
        size, shift = 0, 0
        for number in body[:5]:
            size |= (number & 127) << shift
            shift += 7
            if number < 128:
                break
        if size > MAX_LOG_BLOCK_BYTES:
            raise ValueError("a block that is too large")
        yield codec.decompress(body, size).to_pybytes()


_BY_ENDING: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    "zstd": _zstd, "zst": _zstd, "lz4": _lz4, "snappy": _snappy
}  # fmt: skip


# --- plans ------------------------------------------------------------------------------------------------------------

_COLUMN = re.compile(r"(?<![^\s,\[\]()])([^\s,\[\]()]+)#([0-9]+)L?")
_LOCATION = re.compile(r"\[(.*?)(?:, .*)?\]\Z", re.DOTALL)
_PARTITION = re.compile(r"(?:/[^/=]+=[^/]*)+/?\Z")
_JOIN = re.compile(r"\w*Join \[(.*?)\], \[(.*?)\],")
_KEYS = re.compile(r"\w*Aggregate\(keys=\[(.*?)\], functions=")
_ORDER = re.compile(r"(?:orderBy=|Sort )\[(.{0,5000}?)\]")
_BATCH = re.compile(r"BatchScan ([^\s\[]+)\[")


@dataclass
class Scan:
    """A scan of a plan.

    :param columns: that it reads, each with its type where the plan tells. :param ids: of columns in the plan.
    """

    table: str
    columns: dict[str, str]
    ids: dict[str, str]
    where: str | None
    partial: bool
    files: int = 0
    bytes: int = 0
    join_keys: dict[str, None] = field(default_factory=dict)
    group_keys: dict[str, None] = field(default_factory=dict)
    order: dict[str, None] = field(default_factory=dict)

    def query(self, asked: datetime, seconds: float, name: str) -> AskedQuery:
        """Return the scan as a query of its table."""
        where = self.where
        shape = None if where is None else shape_of(where)
        if self.partial:
            shape = UNKNOWN_SHAPE if shape in (None, UNKNOWN_SHAPE) else f"({shape}) AND ?"
        return AskedQuery(
            table=self.table[:MAX_ADDRESS_CHARACTERS], asked=asked, seconds=seconds,
            columns=tuple(self.columns)[:MAX_NAMES],
            predicate=where if where is not None and len(where) <= MAX_PREDICATE_CHARACTERS else None,
            shape=shape if shape is None or len(shape) <= MAX_SHAPE_CHARACTERS else UNKNOWN_SHAPE,
            join_keys=tuple(self.join_keys)[:MAX_NAMES], group_keys=tuple(self.group_keys)[:MAX_NAMES],
            order=tuple(self.order)[:MAX_NAMES], files_read=self.files, bytes_read=self.bytes,
            asked_by=name[:MAX_LABEL_CHARACTERS],
        )  # fmt: skip


def scans_of(plan: _Node, values: Mapping[int, int]) -> list[Scan]:
    """Return the scans of a plan, with what the plan does with their columns.

    :param values: accumulator -> value, of what the driver counted for the query.
    """
    scans: list[Scan] = []
    others: list[_Node] = []
    stack = [(plan, False, 0)]
    while stack:
        node, cached, depth = stack.pop()
        scan = _scan(node, values) if len(scans) < MAX_PLAN_SCANS else None
        if scan is not None:
            # A cached answer is in the plan with all that it was made of, and is made once.
            if not cached or any(metric.accumulatorId in values for metric in node.metrics):
                scans.append(scan)
        elif any(word in node.nodeName for word in ("Join", "Aggregate", "TakeOrdered", "Sort")):
            others.append(node)
        inside = cached or node.nodeName.startswith("InMemoryTableScan")
        if depth < MAX_PLAN_DEPTH:
            stack.extend((child, inside, depth + 1) for child in node.children)
    for node in others:
        _note_use(node, scans)
    return scans


def _note_use(node: _Node, scans: list[Scan]) -> None:
    """Note which columns of scans a node joins, groups or orders by."""
    text = node.simpleString[:MAX_NODE_CHARACTERS]
    if "Join" in node.nodeName:
        found = _JOIN.match(text)
        keys, what = f"{found[1]}, {found[2]}" if found else "", "join_keys"
    elif "Aggregate" in node.nodeName:
        found = _KEYS.match(text)
        keys, what = found[1] if found else "", "group_keys"
    else:
        found = _ORDER.search(text)
        ordered = "TakeOrdered" in node.nodeName or text.endswith("true, 0")
        keys, what = found[1] if found and ordered else "", "order"
    for key in keys.split(", "):
        column = _COLUMN.match(key)
        if column is None:
            continue
        for scan in scans:
            name = scan.ids.get(column[2])
            if name is not None:
                getattr(scan, what)[name] = None


def _scan(node: _Node, values: Mapping[int, int]) -> Scan | None:
    if node.nodeName.startswith("BatchScan"):
        return _batch_scan(node)
    said = node.metadata
    if not node.nodeName.startswith("Scan ") or "ReadSchema" not in said or "Location" not in said:
        return None
    table = _address(said["Location"]) or node.nodeName.rpartition(" ")[2]
    if not table:
        return None
    columns = _fields(said["ReadSchema"])
    output = node.simpleString[:MAX_NODE_CHARACTERS].partition("[")[2].partition("]")[0]
    ids = {number: name for name, number in _COLUMN.findall(output)}
    for name in ids.values():
        columns.setdefault(name, "")
    conditions, whole = _pushed(said.get("PushedFilters", "[]"), columns)
    of_partitions, known = _compared(said.get("PartitionFilters", "[]"), columns)
    conditions += of_partitions
    texts, compared = _compared(said.get("DataFilters", "[]"), columns)
    # What was pushed says the same of plain columns; the rest are expressions.
    conditions += [text for text in texts if "(" in text.partition(" ")[0]]
    counted = {metric.name: values.get(metric.accumulatorId, 0) for metric in node.metrics}
    where = " AND ".join(dict.fromkeys(conditions)) or None
    return Scan(
        table, columns, ids, where, not (whole and known and compared), max(0, counted.get("number of files read", 0)),
        min(max(0, counted.get("size of files read", 0)), 10**15),
    )  # fmt: skip


def _batch_scan(node: _Node) -> Scan | None:
    """Return the scan of a table of another catalog, such as Iceberg's, which shows its filters as SQL."""
    text = node.simpleString[:MAX_NODE_CHARACTERS]
    found = _BATCH.match(text)
    output, _, rest = text[found.end() :].partition("] ") if found else ("", "", "")
    shown, bracket, _ = rest.partition("[filters=")[2].partition("]")
    if found is None or not bracket:
        return None
    ids = {number: name for name, number in _COLUMN.findall(output)}
    filters = shown.partition(", groupedBy=")[0].strip()
    import sqlglot

    try:
        parsed: Any = sqlglot.parse_one(f"SELECT ({filters}, 1)", dialect="spark") if filters else None
        texts = [] if parsed is None else [part.sql("spark") for part in parsed.selects[0].expressions[:-1]]
    except (sqlglot.errors.SqlglotError, RecursionError, *UNPREPARED):
        return Scan(found[1], dict.fromkeys(ids.values(), ""), ids, None, True)
    kept = [text for text in texts if not text.endswith("IS NULL") or not text.startswith("NOT ")]
    where = " AND ".join(f"({text})" for text in kept) or None
    return Scan(found[1], dict.fromkeys(ids.values(), ""), ids, where, False)


def _address(location: str) -> str:
    """Return the address of a table, without who signs in there, and without a partition's own folders."""
    found = _LOCATION.search(location) if location.endswith("]") else None
    if found is None or found[1].endswith("...") or len(found[1]) > MAX_ADDRESS_CHARACTERS:
        return ""
    address = re.sub(r"\A([a-z0-9+.-]+://)[^/@]*@", r"\1", found[1])
    address = _PARTITION.sub("", re.sub(r"\Afile:/+", "/", address))
    return re.sub(r"\As3[an]://", "s3://", address)


def _fields(schema: str) -> dict[str, str]:
    """Return the columns of ``struct<id:bigint,…>`` with their types; text of others, read by its brackets alone."""
    inner = schema[7:-1] if schema.startswith("struct<") and schema.endswith(">") else ""
    columns: dict[str, str] = {}
    depth, begin = 0, 0
    for number, sign in enumerate(f"{inner},"):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            name, _, kind = inner[begin:number].partition(":")
            if name and len(columns) < MAX_NAMES:
                columns[name] = kind
            begin = number + 1
    return columns


# --- filters ----------------------------------------------------------------------------------------------------------

_FORMS = {"EqualTo": "=", "EqualNullSafe": "<=>", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<",
          "LessThanOrEqual": "<="}  # fmt: skip
_TEXTS = {"StringStartsWith": "startswith", "StringEndsWith": "endswith", "StringContains": "contains",
          "StartsWith": "startswith", "EndsWith": "endswith", "Contains": "contains"}  # fmt: skip
_NAMES = "|".join((*_FORMS, *list(_TEXTS)[:3], "IsNotNull", "IsNull", "In", "And", "Or", "Not", "AlwaysTrue"))
_BETWEEN = re.compile(rf", (?=(?:{_NAMES})\()")
_INNER = re.compile(rf",(?=(?:{_NAMES})\()")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|\+[0-9:]+)?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]{1,3})?")


class _Ambiguous(Exception):
    """A filter that could mean two things."""


def _pushed(text: str, columns: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return filters that were pushed as SQL, and whether these are all of them."""
    conditions, whole = [], True
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else ""
    for part in _BETWEEN.split(inner)[:MAX_FILTERS] if inner else ():
        if part.startswith("IsNotNull("):
            continue
        try:
            conditions.append(_sql(part.removeprefix("*"), columns, 0))
        except _Ambiguous:
            whole = False
    return conditions, whole


def _sql(text: str, columns: Mapping[str, str], depth: int) -> str:
    name, bracket, inner = text.partition("(")
    if not bracket or not inner.endswith(")") or depth > 50:
        raise _Ambiguous
    inner = inner[:-1]
    if name in ("And", "Or"):
        splits = [found.start() for found in _INNER.finditer(inner)]
        for at in splits[:20]:
            left = inner[:at]
            if left.count("(") == left.count(")"):
                parts = (_sql(left, columns, depth + 1), _sql(inner[at + 1 :], columns, depth + 1))
                return f"({parts[0]} {name.upper()} {parts[1]})"
        raise _Ambiguous
    if name == "Not":
        return f"NOT ({_sql(inner, columns, depth + 1)})"
    if name in ("IsNull", "IsNotNull"):
        return f"{_quoted(inner, columns)} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    column, comma, value = inner.partition(",")
    if not comma:
        raise _Ambiguous
    if name == "In":
        if not value.startswith(" [") or not value.endswith("]"):
            raise _Ambiguous
        return _in_list(column, value[2:-1], columns)
    if name in _TEXTS:
        return f"{_TEXTS[name]}({_quoted(column, columns)}, {_literal(value, 'string')})"
    if name not in _FORMS:
        raise _Ambiguous
    return f"{_quoted(column, columns)} {_FORMS[name]} {_literal(value, columns.get(column, ''))}"


def _in_list(column: str, values: str, columns: Mapping[str, str]) -> str:
    kind = columns.get(column, "")
    if kind in ("", "string") and ", " in values:
        raise _Ambiguous  # a comma of a text, perhaps
    literals = [_literal(value, kind) for value in values.split(",")]
    return f"{_quoted(column, columns)} IN ({', '.join(literals)})"


def _quoted(column: str, columns: Mapping[str, str]) -> str:
    if column not in columns:
        raise _Ambiguous
    return column if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column) else f"`{column.replace('`', '``')}`"


def _literal(text: str, kind: str) -> str:
    """Return a literal of a plan as one of SQL; of columns of which no type is known as it looks."""
    base = kind.partition("(")[0]
    if base in ("string", "varchar") or (not base and not _NUMBER.fullmatch(text)):
        if "'" in text or "\\" in text or text in ("null", "true", "false"):
            raise _Ambiguous
        return f"'{text}'"
    if base == "date" and _DATE.fullmatch(text):
        return f"DATE'{text}'"
    if base in ("timestamp", "timestamp_ntz") and _MOMENT.fullmatch(text):
        return f"{'TIMESTAMP_NTZ' if base == 'timestamp_ntz' else 'TIMESTAMP'}'{text.replace('T', ' ')}'"
    if base == "boolean" and text in ("true", "false"):
        return text
    if base in ("", "tinyint", "smallint", "int", "bigint", "decimal") and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return text
    if base in ("float", "double") and _NUMBER.fullmatch(text):
        return f"{text}D"
    raise _Ambiguous


_COMPARISON = re.compile(r"\((.{1,2000}?) (=|<=>|<=|>=|<|>) (.*)\)\Z", re.DOTALL)
_CALLED = re.compile(r"(Contains|StartsWith|EndsWith)\(([^,]+#[0-9]+), (.*)\)\Z", re.DOTALL)
_LISTED = re.compile(r"([^\s()]+#[0-9]+L?) IN \((.*)\)\Z", re.DOTALL)
_FUNCTION = re.compile(r"\b(?!isnull\(|isnotnull\()[a-z_]+\(")
_FILTER = re.compile(r", (?=\(|NOT |[a-zA-Z_]+\(|[^\s,()]+#[0-9]+L?(?:,|\]| IN \(|\Z))")


def _compared(text: str, columns: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return filters as Spark prints expressions, if they are one comparison, and whether the others were pushed.

    Columns have numbers there, and literals have not.
    """
    conditions, whole = [], True
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else ""
    for part in _FILTER.split(inner)[:MAX_FILTERS] if inner else ():
        if part.startswith(("isnotnull(", "dynamicpruning")):
            continue
        try:
            conditions.append(_comparison(part, columns))
        except _Ambiguous:
            # Of plain columns it was pushed; otherwise it is a filter of partitions, or not understood.
            whole = whole and not _FUNCTION.search(part)
    return conditions, whole


def _comparison(text: str, columns: Mapping[str, str]) -> str:
    called, listed, compared = _CALLED.match(text), _LISTED.match(text), _COMPARISON.match(text)
    if called:
        return f"{called[1].lower()}({_plain(called[2], columns)}, {_literal(called[3], 'string')})"
    if listed:
        return _in_list(_COLUMN.sub(r"\1", listed[1]), listed[2], columns)
    if compared is None or _COLUMN.search(compared[3]) or " AND " in text or " OR " in text:
        raise _Ambiguous
    left = _plain(compared[1], columns)
    return f"{left} {compared[2]} {_literal(compared[3], columns.get(left, ''))}"


def _plain(text: str, columns: Mapping[str, str]) -> str:
    """Return a column, or a function of columns alone, as SQL."""
    plain = _COLUMN.sub(r"\1", text)
    named = [name for name, _ in _COLUMN.findall(text)]
    if not named or any(name not in columns for name in named) or plain.count("(") != plain.count(")"):
        raise _Ambiguous
    if plain in columns:
        return _quoted(plain, columns)
    if not re.fullmatch(r"[a-z_]+\([A-Za-z0-9_, ()]*\)", plain):
        raise _Ambiguous
    return plain
