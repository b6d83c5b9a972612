"""Thrift's compact protocol as a tree that can be changed and written again, whatever the values in it are.

It knows no schema and checks nothing, so that it can write what the product must refuse. A struct is a list of fields
``[id, type, value]``, a list is ``[type, values]``, a number is its varint without its sign taken out.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

NUMBERS = (0, 1, 2, 3, 5, 8, 14, 15, 16, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40,
           2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64)  # fmt: skip
_FIELDS = (*range(1, 18), 20, 200)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def read(data: bytes, at: int = 0, kind: int = 12) -> tuple[Any, int]:
    """The tree of a value, and where its bytes end."""
    if kind in (1, 2):
        return None, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _varint(data, at)
    if kind == 7:
        return data[at : at + 8], at + 8
    if kind == 8:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind == 9:
        size, element = data[at] >> 4, data[at] & 15
        at += 1
        if size == 15:
            size, at = _varint(data, at)
        values = []
        for _ in range(size):
            value, at = (data[at], at + 1) if element in (1, 2) else read(data, at, element)
            values.append(value)
        return [element, values], at
    fields: list[Any] = []
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            number, at = _varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        value, at = read(data, at, head & 15)
        fields.append([field, head & 15, value])
    return fields, at + 1


def _written_varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])


def write(value: Any, kind: int = 12) -> bytes:
    """The bytes of a tree."""
    if kind in (1, 2):
        return b""
    if kind == 3:
        return bytes([value & 255])
    if kind in (4, 5, 6):
        return _written_varint(value)
    if kind == 7:
        return bytes(value)
    if kind == 8:
        return _written_varint(len(value)) + value
    if kind == 9:
        element, values = value
        size = len(values)
        head = bytes([size << 4 | element]) if size < 15 else bytes([0xF0 | element]) + _written_varint(size)
        return head + b"".join(
            bytes([one & 255]) if element in (1, 2) and isinstance(one, int) else write(one, element) or b"\1"
            for one in values
        )
    written, last = bytearray(), 0
    for field, type_, inner in value:
        if 0 < field - last < 16:
            written.append((field - last) << 4 | type_)
        else:
            written.append(type_)
            written += _written_varint(field << 1 if field >= 0 else (-field << 1) - 1)
        written += write(inner, type_)
        last = field
    return bytes(written) + b"\0"


def get(struct: list[Any], field: int) -> Any:
    """The value of a field."""
    return next(value for number, _, value in struct if number == field)


def put(struct: list[Any], field: int, kind: int, value: Any) -> None:
    """Sets a field."""
    struct[:] = sorted([*(one for one in struct if one[0] != field), [field, kind, value]])


# --- files ------------------------------------------------------------------------------------------------------------


def footer_of(body: bytes) -> tuple[bytes, list[Any]]:
    """What is before the footer of a Parquet file, and its footer."""
    size = int.from_bytes(body[-8:-4], "little")
    return body[: -8 - size], read(body[-8 - size : -8])[0]


def with_footer(before: bytes, footer: list[Any] | bytes) -> bytes:
    """A Parquet file."""
    written = footer if isinstance(footer, bytes) else write(footer)
    return before + written + len(written).to_bytes(4, "little") + b"PAR1"


def column(footer: list[Any], number: int = 0, group: int = 0) -> list[Any]:
    """What the footer says of a column of a row group."""
    chunk: list[Any] = get(chunk_of(footer, number, group), 3)
    return chunk


def chunk_of(footer: list[Any], number: int = 0, group: int = 0) -> list[Any]:
    """A column of a row group, about which the footer says more than that."""
    found: list[Any] = get(get(footer, 4)[1][group], 1)[1][number]
    return found


# --- mutations --------------------------------------------------------------------------------------------------------


def _places(value: Any, kind: int = 12) -> Iterator[tuple[str, Any, int]]:
    if kind == 12:
        for number, (_, type_, inner) in enumerate(value):
            yield "field", value, number
            yield from _places(inner, type_)
    elif kind == 9:
        yield "list", value, 0
        for number, inner in enumerate(value[1]):
            yield "element", value, number
            yield from _places(inner, value[0])


def _some(kind: int, draw: random.Random) -> Any:
    if kind in (3, 4, 5, 6):
        return draw.choice(NUMBERS)
    if kind == 8:
        return draw.choice((b"", b"a", b"\xff\xfe", b"x" * 200, bytes(12)))
    return {7: bytes(8), 9: [draw.choice((5, 6, 8, 12)), []], 12: []}.get(kind)


def mutated(tree: list[Any], draw: random.Random) -> list[Any]:
    """A copy of a struct of which something is another: a field is gone, twice, of another type or value."""
    tree = copy.deepcopy(tree)
    kind, where, at = draw.choice(list(_places(tree)))
    if kind == "field":
        _change_field(where, at, draw)
    elif kind == "list":
        what = draw.randrange(4)
        if what == 0 and where[1]:
            where[1].pop(draw.randrange(len(where[1])))
        elif what == 1 and where[1]:
            where[1].append(copy.deepcopy(draw.choice(where[1])))
        elif what == 2:
            where[0] = draw.choice((5, 6, 8, 12))
            where[1] = [_some(where[0], draw) for _ in where[1][:5]]
        else:
            where[1].extend(_some(where[0], draw) for _ in range(draw.choice((1, 2, 20))))
    else:
        where[1][at] = _some(where[0], draw) if where[0] != 12 else where[1][at]
    return tree


def _change_field(struct: list[Any], at: int, draw: random.Random) -> None:
    field, what = struct[at], draw.randrange(7)
    if what == 0:
        del struct[at]
    elif what == 1:
        field[0] = draw.choice(_FIELDS)
    elif what == 2:
        field[1] = draw.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 12))
        field[2] = _some(field[1], draw)
    elif what == 3:
        type_ = draw.choice((1, 5, 6, 8, 9, 12))
        struct.insert(draw.randrange(len(struct) + 1), [draw.choice(_FIELDS), type_, _some(type_, draw)])
        if draw.random() < 0.7:
            struct.sort(key=lambda one: int(one[0]))
    elif field[1] in (4, 5, 6):
        field[2] = draw.choice(NUMBERS) if draw.random() < 0.7 else max(0, field[2] + draw.choice((-2, -1, 1, 2)))
    elif field[1] == 8:
        field[2] = draw.choice((b"", field[2][:-1], field[2][:2], field[2] * 2, b"\xff" * len(field[2])))
    elif field[1] in (1, 2):
        field[1] = 3 - field[1]
    elif field[1] == 12 and draw.random() < 0.3:
        field[2] = []
