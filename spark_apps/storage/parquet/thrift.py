"""Thrift's compact protocol, read and written, as far as Parquet needs it.

Parquet keeps its footer, its page index and the headers of its pages in it. What is read is input: a struct is read by
a :class:`Struct`, which says of each field what it may be, so that no field has another type than its reader expects,
and no list or text is longer than the bytes that are there. Fields that are not known, or of another type than is known
of them, are passed over, as all readers do: writers have used numbers that were given to other fields later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spark_apps.storage.limits import MAX_SKIPPED_DEPTH

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a position; returns it, and where its bytes end."""

Kind = tuple[tuple[int, ...], Read]
"""The compact protocol's types that a field may have, and what reads it."""


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and where its bytes end.

    :raises IndexError: if they do not.
    """
    number = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
    raise IndexError("a number of more than 64 bits")


def _integer(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    number, position = varint(data, position)
    if number >> 64:
        raise IndexError("a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), position


def _integer32(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    number, position = varint(data, position)
    if number >> 32:
        raise IndexError("a number of more than 32 bits")  # Arrow would cut it off
    return (number >> 1) ^ -(number & 1), position


def _integer16(data: bytes, position: int) -> tuple[int, int]:
    number, position = varint(data, position)
    if number >> 16:
        raise IndexError("a number of more than 16 bits")
    return (number >> 1) ^ -(number & 1), position


def _byte(data: bytes, position: int) -> tuple[int, int]:
    return data[position], position + 1


def _end_of(data: bytes, position: int, size: int) -> int:
    if size > len(data) - position:
        raise IndexError("more bytes than there are")
    return position + size


def _binary(data: bytes, position: int) -> tuple[bytes, int]:
    length = data[position]
    if length < 0x80:
        position += 1
    else:
        length, position = varint(data, position)
    end = position + length
    if end > len(data):
        raise IndexError("more bytes than there are")
    return data[position:end], end


def _boolean_in_list(data: bytes, position: int) -> tuple[bool, int]:
    return data[position] == 1, position + 1


I8: Kind = ((3,), _byte)
I16: Kind = ((4,), _integer16)
I32: Kind = ((5,), _integer32)
I64: Kind = ((6,), _integer)
BINARY: Kind = ((8,), _binary)
BOOL: Kind = ((1, 2), _boolean_in_list)
"""In a list; of a field the type is the value."""


def list_head(data: bytes, position: int, types: tuple[int, ...], most: int | None = None) -> tuple[int, int]:
    """Return how many elements a list has, and where they begin.

    :raises IndexError: or ``KeyError`` if there are more than can be, or they are of another type.
    """
    head = data[position]
    position += 1
    size, type_ = head >> 4, head & 0x0F
    if size == 15:
        size, position = varint(data, position)
    if size > len(data) - position or (most is not None and size > most):
        raise IndexError("a list of too many elements")
    if type_ not in types and size:
        raise KeyError("a list of other elements")
    return size, position


def list_of(kind: Kind, most: int | None = None) -> Kind:
    """Return the kind of a list.

    :param most: elements, beside that each takes a byte at least.
    """
    types, read = kind

    def values(data: bytes, position: int) -> tuple[list[Any], int]:
        size, position = list_head(data, position, types, most)
        found = []
        for _ in range(size):
            value, position = read(data, position)
            found.append(value)
        return found, position

    return (9,), values


def count_of(kind: Kind, most: int | None = None) -> Kind:
    """Return the kind of a list of which only the number of elements is kept; each is read nevertheless."""
    types, read = kind

    def counted(data: bytes, position: int) -> tuple[int, int]:
        size, position = list_head(data, position, types, most)
        for _ in range(size):
            position = read(data, position)[1]
        return size, position

    return (9,), counted


class Struct:
    """A struct, of which some fields are known.

    :param fields: id of a field -> its kind. :param required: fields without which it is none.
    """

    def __init__(self, fields: Mapping[int, Kind], required: Iterable[int] = ()) -> None:
        self._required = frozenset(required)
        self._known = {field << 4 | type_: kind[1] for field, kind in fields.items() for type_ in kind[0]}
        self.kind: Kind = ((12,), self._fields)

    def read(self, data: bytes, position: int = 0, what: str = "the header of a page") -> tuple[dict[int, Any], int]:
        """Return field id -> value, and where the bytes of the struct end.

        :param what: names it, for the error.
        :raises OSError: if this is no such struct.
        """
        try:
            return self._fields(data, position)
        except (IndexError, KeyError, RecursionError) as error:
            raise OSError(f"{what} cannot be read") from error

    def _fields(self, data: bytes, position: int) -> tuple[dict[int, Any], int]:
        fields: dict[int, Any] = {}
        known, field = self._known, 0
        while head := data[position]:
            position += 1
            if head > 0x0F:
                field += head >> 4
            else:
                field, position = _integer16(data, position)
            if field > 0x7FFF:
                raise KeyError("a field beyond the last")  # Arrow would begin anew at the first
            type_ = head & 0x0F
            read = known.get(field << 4 | type_)
            if read is None:
                position = skip(data, position, type_)
            elif field in fields:
                raise KeyError("a field that is there twice")
            elif type_ < 3:
                fields[field] = type_ == 1
            else:
                fields[field], position = read(data, position)
        if not self._required <= fields.keys():
            raise KeyError("a field that each has is not there")
        return fields, position + 1


_FIXED = {1: 0, 2: 0, 3: 1, 7: 8, 13: 16}
"""Type -> bytes of its value, in a field: booleans, bytes, floating point numbers, UUIDs."""


def skip(data: bytes, position: int, type_: int, depth: int = 0) -> int:
    """Return where the bytes of a value end that is not of interest.

    :raises IndexError: or ``KeyError`` if it is none.
    """
    if depth > MAX_SKIPPED_DEPTH:
        raise IndexError("structs in structs, too many")
    if type_ in (4, 5, 6):
        return varint(data, position)[1]
    if type_ in _FIXED:
        return _end_of(data, position, _FIXED[type_])
    if type_ == 8:
        length, position = varint(data, position)
        return _end_of(data, position, length)
    if type_ in (9, 10):
        head = data[position]
        size, element = head >> 4, head & 0x0F
        position += 1
        if size == 15:
            size, position = varint(data, position)
        return _skip_many(data, position, [element], size, depth)
    if type_ == 11:
        size, position = varint(data, position)
        if not size:
            return position
        kinds = data[position]
        return _skip_many(data, position + 1, [kinds >> 4, kinds & 0x0F], size, depth)
    if type_ != 12:
        raise KeyError("a type that there is not")
    while head := data[position]:
        position += 1
        if head <= 0x0F:
            position = varint(data, position)[1]
        position = skip(data, position, head & 0x0F, depth + 1)
    return position + 1


def _skip_many(data: bytes, position: int, types: Sequence[int], size: int, depth: int) -> int:
    if size > len(data) - position:
        raise IndexError("a list of too many elements")
    for _ in range(size):
        for type_ in types:
            # A boolean takes a byte in a list, and none in a field.
            position = _end_of(data, position, 1) if type_ < 3 else skip(data, position, type_, depth + 1)
    return position


# --- written ----------------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _zigzag(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _text(value: bytes) -> bytes:
    return _varint(len(value)) + value


WrittenKind = tuple[int, Callable[[Any], bytes]]
"""The compact protocol's type of a value, and what writes it."""

TO_I32: WrittenKind = (5, _zigzag)
TO_I64: WrittenKind = (6, _zigzag)
TO_BINARY: WrittenKind = (8, _text)
TO_RAW_STRUCT: WrittenKind = (12, bytes)


def to_list(kind: WrittenKind) -> WrittenKind:
    """Return what writes a list."""
    type_, write = kind

    def written(values: Sequence[Any]) -> bytes:
        size = len(values)
        head = bytes([size << 4 | type_]) if size < 15 else bytes([0xF0 | type_]) + _varint(size)
        return head + b"".join(map(write, values))

    return 9, written


def to_struct(fields: Mapping[int, Any], kinds: Mapping[int, WrittenKind]) -> bytes:
    """Return the bytes of a struct.

    :param kinds: how each field is written.
    """
    written, last = bytearray(), 0
    for field in sorted(fields):
        kind, write = kinds[field]
        written.append((field - last) << 4 | kind)
        written += write(fields[field])
        last = field
    return bytes(written + b"\x00")
