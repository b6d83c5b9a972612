"""The one record of an Avro file, as plain Python values, by the schema that the file has in it.

Hudi writes what it says of an instant as such a file. Schema and values are input: depth and number of the values are
bounded, whatever the counts in the file claim, which ``fastavro`` does not do. The format is that of Apache Avro 1.12,
object container files.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from spark_apps.storage.errors import LogDamaged

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MAX_VALUES = 200_000
"""Values of one file, of all depths: an instant that wrote a thousand files has some fifty thousand."""

_MAX_DEPTH = 32
_MAX_UNPACKED_BYTES = 16 << 20
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def first_record(body: bytes, what: str) -> Any:
    """Return the first record of an Avro file; maps and records are dictionaries.

    :param what: names the file, for errors.
    :raises LogDamaged: if it is none, or larger than an instant is.
    """
    try:
        reading = _Reading(body)
        if reading.take(len(_MAGIC)) != _MAGIC:
            raise ValueError("it is no Avro file")
        metadata = {name: reading.take(reading.long()) for name in reading.names()}
        schema = msgspec.json.decode(metadata["avro.schema"])
        reading.take(_SYNC_BYTES)
        if reading.long() < 1:
            raise ValueError("it has no record")
        block = reading.take(reading.long())
        return _Reading(_unpacked(block, metadata.get("avro.codec", b"null"))).value(schema, {}, 0)
    except RecursionError as error:
        raise LogDamaged(f"{what} cannot be read: it is nested too deep.") from error
    except (ValueError, KeyError, TypeError, IndexError, struct.error, zlib.error) as error:
        raise LogDamaged(f"{what} cannot be read: {error}.") from error


def _unpacked(block: bytes, codec: bytes) -> bytes:
    if codec == b"null":
        return block
    if codec != b"deflate":
        raise ValueError(f"its codec is {codec[:20]!r}")
    unpacking = zlib.decompressobj(wbits=-15)
    whole = unpacking.decompress(block, _MAX_UNPACKED_BYTES)
    if unpacking.unconsumed_tail:
        raise ValueError(f"it has more than {_MAX_UNPACKED_BYTES:,} bytes, unpacked")
    return whole


class _Reading:
    """The bytes of a file, and how far they are read."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._values = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes. :raises ValueError: if there are not so many."""
        if not 0 <= size <= len(self._body) - self._at:
            raise ValueError("it is cut off")
        self._at += size
        return self._body[self._at - size : self._at]

    def long(self) -> int:
        """Return the next number, of 64 bits at most."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise ValueError("it has a number of more than 64 bits")

    def names(self) -> Iterator[str]:
        """Yield the names in a map; whoever takes one reads its value."""
        for _ in self._items():
            yield self.take(self.long()).decode(errors="replace")

    def value(self, schema: Any, named: dict[str, Any], depth: int) -> Any:
        """Return the next value.

        :param named: types that were defined before, by name.
        """
        self._count()
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deep")
        if isinstance(schema, list):
            return self.value(schema[self._choice(len(schema))], named, depth + 1)
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self.value(kind, named, depth + 1)
        if kind in _PRIMITIVES:
            return self._primitive(kind)
        if isinstance(schema, str):
            return self.value(named[kind], named, depth + 1)
        if kind in ("record", "enum", "fixed"):
            named[schema["name"]] = schema
            named[f"{schema.get('namespace', '')}.{schema['name']}"] = schema
        match kind:
            case "record":
                return {field["name"]: self.value(field["type"], named, depth + 1) for field in schema["fields"]}
            case "map":
                return {key: self.value(schema["values"], named, depth + 1) for key in self.names()}
            case "array":
                return [self.value(schema["items"], named, depth + 1) for _ in self._items()]
            case "enum":
                return schema["symbols"][self._choice(len(schema["symbols"]))]
            case "fixed":
                return self.take(schema["size"])
            case _:
                raise ValueError(f"it has the type {kind[:40]!r}")

    def _primitive(self, kind: str) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) == b"\x01"
            case "int" | "long":
                return self.long()
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "string":
                return self.take(self.long()).decode(errors="replace")
            case _:
                return self.take(self.long())

    def _choice(self, many: int) -> int:
        number = self.long()
        if not 0 <= number < many:
            raise ValueError("it chooses a type that its schema has not")
        return number

    def _items(self) -> Iterator[None]:
        """Yield once for each item of an array or a map."""
        while (many := self.long()) != 0:
            if many < 0:
                self.long()  # bytes of the block
            for _ in range(abs(many)):
                self._count()
                yield None

    def _count(self) -> None:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise ValueError(f"it has more than {_MAX_VALUES:,} values")
