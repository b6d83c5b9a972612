"""The words of a Delta log: columns, statistics, deletion vectors and actions, by the published protocol of Delta.

This module knows how things are written down there; which files a commit of it names is for
:mod:`spark_apps.timeline.delta.publishing`. A log of ours has a writer feature that no other writer knows, so that
others read it and do not write.
"""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import re
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from spark_apps.storage.errors import CannotPublish
from spark_apps.storage.parquet.statistics import column_bounds, column_name, flat_columns
from spark_apps.timeline.model import Field, TableDefinition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

FOLDER = "_delta_log"
VECTORS = "_deletion_vectors"
"""Folder of deletion vectors; Delta's own cleaning passes over names that begin so."""

FENCE = "airflowProviderIndex"
"""The writer feature by which other writers stay away."""

APP_ID = "airflow-provider-index"

_encode = msgspec.json.Encoder(decimal_format="number").encode


def commit_key(version: int) -> str:
    """Return the key of a commit of the log."""
    return f"{FOLDER}/{version:020d}.json"


# --- columns ----------------------------------------------------------------------------------------------------------

_SIMPLE = {
    "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "float": "float", "double": "double",
    "string": "string", "binary": "binary", "boolean": "boolean", "date": "date", "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_SIZED = re.compile(r"(varchar|char)\(\d+\)")
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


class _ColumnIds:
    """Ids that columns keep, whatever their later names: each is a hash of the column's path in files."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def of(self, path: str) -> int:
        """Return the id of a column, which no other has: of two paths with one hash, the second has another."""
        number = 0
        while True:
            text = path if number == 0 else f"{path}\0{number}"
            found = zlib.crc32(text.encode()) & 0x7FFFFFFF
            if found and found not in self._taken:
                self._taken.add(found)
                return found
            number += 1


def _step(name: str) -> str:
    """Return a name as a part of a path: the column ``a.b`` is not the field ``b`` of ``a``."""
    return f"`{name}`" if "." in name else name


def type_of(text: str, path: str = "", ids: _ColumnIds | None = None) -> Any:
    """Return a type of Spark's, as its text, in Delta's JSON.

    :param path: of the column, for messages and ids.
    :param ids: columns within have their names in files, and ids.
    :raises CannotPublish: for a type that Delta has not.
    """
    text = text.strip()
    if text in _SIMPLE:
        return _SIMPLE[text]
    if _SIZED.fullmatch(text):
        return "string"
    if _DECIMAL.fullmatch(text):
        return text
    head, mark, rest = text.partition("<")
    if mark and rest.endswith(">"):
        parts = _parts(rest[:-1])
        if head == "array" and len(parts) == 1:
            element = type_of(parts[0], f"{path}.element", ids)
            return {"type": "array", "elementType": element, "containsNull": True}
        if head == "map" and len(parts) == 2:
            key, value = (type_of(p, f"{path}.{n}", ids) for p, n in zip(parts, ("key", "value"), strict=True))
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if head == "struct":
            members = [part.partition(":") for part in parts]
            fields = [_field(name, name, kind, True, f"{path}.{_step(name)}", ids) for name, _, kind in members]
            return {"type": "struct", "fields": fields}
    raise CannotPublish(f"The column {path!r} is of type {text}, for which there is no form in a Delta log.")


def _parts(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]] if text else []


def _field(name: str, stored: str, kind: str, nullable: bool, path: str, ids: _ColumnIds | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if ids is not None:
        metadata = {"delta.columnMapping.id": ids.of(path), "delta.columnMapping.physicalName": stored}
    return {"name": name, "type": type_of(kind, path, ids), "nullable": nullable, "metadata": metadata}


def is_renamed(table: TableDefinition) -> bool:
    """Test whether columns have other names than in the files."""
    return any(field.stored_name != field.name for field in table.fields)


def metadata(table: TableDefinition, mapped: bool, retention_hours: int) -> dict[str, Any]:
    """Return the action that describes the columns.

    :param mapped: columns are found by their names in files.
    :raises CannotPublish: naming a column that a Delta log cannot describe.
    """
    # A tombstone has nothing but the key, and readers look at the rows of a file before they leave some out.
    nullable = {f.name: f.nullable or f.name not in table.record_key for f in table.fields}
    ids = _ColumnIds() if mapped else None
    fields = [_field(f.name, f.stored_name, f.type, nullable[f.name], _step(f.stored_name), ids) for f in table.fields]
    configuration = {"delta.deletedFileRetentionDuration": f"interval {retention_hours} hours"}
    if mapped:
        if table.partition_by:
            raise CannotPublish(
                "A column was renamed, and the table is partitioned: readers of Delta are known that then take every "
                "partition value for null."
            )
        most = 0x7FFFFFFF  # ids are drawn from names, so that the next one is not the next number
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(most)}
    if table.positions:
        configuration["delta.enableDeletionVectors"] = "true"
    digest = hashlib.sha256(table.table_id.encode()).digest()[:16]
    return {
        "metaData": {
            "id": str(uuid.UUID(bytes=digest, version=4)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _encode({"type": "struct", "fields": fields}).decode(),
            "partitionColumns": list(table.partition_by),
            "configuration": configuration,
        }
    }


def protocol(table: TableDefinition, mapped: bool) -> dict[str, Any]:
    """Return the action that says what readers and writers must know."""
    reader = []
    if table.positions:
        reader.append("deletionVectors")
    if any("timestamp_ntz" in field.type for field in table.fields):
        reader.append("timestampNtz")
    if mapped and reader:
        reader.append("columnMapping")
    writer = sorted({*reader, *(["columnMapping"] if mapped else []), FENCE})
    versions = {"minReaderVersion": 3 if reader else 2 if mapped else 1, "minWriterVersion": 7}
    features: dict[str, Any] = {"readerFeatures": sorted(reader)} if reader else {}
    return {"protocol": {**versions, **features, "writerFeatures": writer}}


# --- files ------------------------------------------------------------------------------------------------------------

_MAX_TEXT = 128
"""Characters of a text that can be a minimum or maximum."""


def path_of(key: str) -> str:
    """Return a file's key as the log names it."""
    return quote(key, safe="/=:@+,!$&'()*;~")


def statistics(footer: Any, table: TableDefinition, exact: bool) -> str:
    """Return the statistics of a file, as JSON, from its footer.

    :param footer: ``pyarrow.parquet.FileMetaData``.
    :param exact: all rows count; else some are deleted.
    :raises CannotPublish: naming a column that is written otherwise today.
    """
    check_form(footer, table)
    names = footer.schema.to_arrow_schema().names
    leaves = flat_columns(footer.schema)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in table.fields:
        name = field.stored_name
        if name not in names:
            nulls[name] = footer.num_rows
            continue
        leaf = leaves.get(name)
        bounds = None if leaf is None or field.name in table.partition_by else column_bounds(footer, leaf)
        if bounds is None or bounds.nulls is None:
            continue
        nulls[name] = bounds.nulls
        low, high = _bound(bounds.low, field.type, False), _bound(bounds.high, field.type, True)
        if low is not None:
            least[name] = low
        if high is not None:
            most[name] = high
    found = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return _encode(found if exact else {**found, "tightBounds": False}).decode()


def _bound(value: Any, kind: str, upper: bool) -> Any:
    """Return a bound in the form of the log; ``None`` where it has none that all readers take alike.

    Floating point numbers have none, for the footer leaves NaN out, which some readers take for the largest.
    """
    if kind in ("timestamp", "timestamp_ntz"):
        if not isinstance(value, dt.datetime) or (value.tzinfo is None) != (kind == "timestamp_ntz"):
            return None
        # Readers know milliseconds; a bound may be rounded outwards, never inwards.
        rest = dt.timedelta(microseconds=value.microsecond % 1000)
        try:
            moved = value - rest + dt.timedelta(milliseconds=1 if upper and rest else 0)
        except OverflowError:
            return None
        text = moved.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if kind == "date":
        return value.isoformat() if isinstance(value, dt.date) else None
    if kind == "string":
        return value if isinstance(value, str) and len(value) <= _MAX_TEXT else None
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    return value if isinstance(value, decimal.Decimal) and _DECIMAL.fullmatch(kind) else None


def _check_times(footer: Any) -> None:
    """Refuse a file with times as Spark wrote them before: readers of Delta take those of distant years for others."""
    leaves = (footer.schema.column(number) for number in range(footer.num_columns))
    held = next((leaf for leaf in leaves if leaf.physical_type == "INT96"), None)
    if held is not None:
        raise CannotPublish(
            f"The column {column_name(held)!r} has its times as INT96, which readers of Delta take for others outside "
            "of the years 1677 to 2262: they are published once a full compaction has written them anew."
        )


def check_form(footer: Any, table: TableDefinition, *, types: bool = True) -> None:
    """Check that a file is as files are written today.

    :param types: also that its columns have the types of the table's.
    :raises CannotPublish: naming the column.
    """
    _check_times(footer)
    if types:
        schema = footer.schema.to_arrow_schema()
        for field in table.fields:
            if field.stored_name in schema.names:
                _check_type(schema.field(field.stored_name).type, field)


def _check_type(found: pa.DataType, field: Field) -> None:
    """Refuse a file from before a column was widened: readers of Delta take the types of columns for those of files."""
    import pyarrow as pa

    simple = {
        "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32(),
    }  # fmt: skip
    expected = simple.get(field.type)
    if _DECIMAL.fullmatch(field.type):
        digits, scale = (int(n) for n in field.type[8:-1].split(","))
        expected = pa.decimal128(digits, scale)
    if expected is not None and found != expected:
        raise CannotPublish(
            f"The column {field.name!r} is {field.type}, and {found} in files from before it was widened: these are "
            "published once a full compaction has written them anew."
        )


# --- deletion vectors -------------------------------------------------------------------------------------------------

_MAGIC = 1681511377
_NO_RUNS = 12346
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def vector_name(path: str, above: Iterable[str]) -> uuid.UUID:
    """Return the name of the deletion vector of a file under others: the same whenever it is asked for."""
    return uuid.UUID(bytes=hashlib.sha256("\0".join([path, *above]).encode()).digest()[:16])


def vector_key(name: uuid.UUID) -> str:
    """Return the key of a deletion vector's file."""
    return f"{VECTORS}/deletion_vector_{name}.bin"


def encode_vector(rows: npt.NDArray[np.int64]) -> bytes:
    """Return the file of a deletion vector.

    :param rows: numbers of the rows that are not to be read, from 0, each once and in order.
    """
    import numpy as np

    parts = [struct.pack("<I", _MAGIC)]
    high = rows >> 32
    buckets = np.unique(high)
    parts.append(struct.pack("<Q", len(buckets)))
    for bucket in buckets:
        low = rows[high == bucket] & 0xFFFFFFFF
        parts += [struct.pack("<I", int(bucket)), _bitmap(low)]
    body = b"".join(parts)
    return b"\x01" + struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _bitmap(rows: npt.NDArray[np.int64]) -> bytes:
    """Return numbers below 2^32 as a roaring bitmap without runs, in its portable form."""
    import numpy as np

    keys, starts = np.unique(rows >> 16, return_index=True)
    pieces = np.split((rows & 0xFFFF).astype("<u2"), starts[1:])
    header = struct.pack("<II", _NO_RUNS, len(keys))
    descriptions = b"".join(struct.pack("<HH", int(k), len(p) - 1) for k, p in zip(keys, pieces, strict=True))
    containers = []
    for piece in pieces:
        if len(piece) <= 4096:
            containers.append(piece.tobytes())
        else:
            bits = np.zeros(1 << 16, np.uint8)
            bits[piece] = 1
            containers.append(np.packbits(bits, bitorder="little").tobytes())
    offset, offsets = len(header) + len(descriptions) + 4 * len(keys), b""
    for container in containers:
        offsets += struct.pack("<I", offset)
        offset += len(container)
    return header + descriptions + offsets + b"".join(containers)


def vector_cardinality(file: bytes) -> int:
    """Return how many rows a deletion vector of ours holds. :raises CannotPublish: for what is none."""
    try:
        (size,) = struct.unpack_from(">I", file, 1)
        magic, buckets = struct.unpack_from("<IQ", file, 5)
        if (
            magic != _MAGIC
            or size + 9 != len(file)
            or struct.unpack_from(">I", file, 5 + size)[0] != zlib.crc32(file[5 : 5 + size])
        ):
            raise struct.error
        at, count = 17, 0
        for _ in range(buckets):
            _, _, containers = struct.unpack_from("<III", file, at)
            at += 12
            sizes = [struct.unpack_from("<HH", file, at + 4 * n)[1] + 1 for n in range(containers)]
            count += sum(sizes)
            at += 8 * containers + sum(2 * n if n <= 4096 else 8192 for n in sizes)
        return count
    except struct.error as error:
        raise CannotPublish("A deletion vector is damaged.", hint="Restore it, or publish anew.") from error


def vector_descriptor(name: uuid.UUID, file: bytes) -> dict[str, Any]:
    """Return what an action says of a deletion vector."""
    return {
        "storageType": "u",
        "pathOrInlineDv": VECTORS + _z85(name.bytes),
        "offset": 1,
        "sizeInBytes": len(file) - 9,
        "cardinality": vector_cardinality(file),
    }


def _z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        value, piece = int.from_bytes(data[start : start + 4], "big"), ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            piece = _DIGITS[digit] + piece
        text += piece
    return text


# --- commits ----------------------------------------------------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True):
    """The origin of a commit of ours: the log and version that it shows, and whether columns are mapped."""

    log: str
    version: int
    mapped: bool = False


class _CommitInfo(msgspec.Struct):
    airflowProviderIndex: Origin | None = None


class _Line(msgspec.Struct):
    commitInfo: _CommitInfo | None = None


def commit_info(origin: Origin, operation: str, timestamp: int, engine: str) -> dict[str, Any]:
    """Return the line by which a commit is known as ours; it comes first."""
    info = {"timestamp": timestamp, "operation": operation, "operationParameters": {}, "engineInfo": engine}
    return {"commitInfo": {**info, FENCE: origin}}


def origin_of(beginning: bytes) -> Origin | None:
    """Return what a commit says of itself; ``None`` if another writer wrote it."""
    try:
        line = msgspec.json.decode(beginning.partition(b"\n")[0], type=_Line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    origin = None if line.commitInfo is None else line.commitInfo.airflowProviderIndex
    return None if origin is None or origin.version < 0 else origin


def lines(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the body of a commit."""
    return b"".join(_encode(action) + b"\n" for action in actions)
