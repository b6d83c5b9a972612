"""The footer of a Parquet file, checked before Arrow is asked for what it says.

Arrow reads a footer that does not agree with itself, and ends the whole process when its columns are asked for: where a
histogram has another length than the levels of its column, a bound fewer bytes than its type, where a column is
encrypted and the footer is not. So this module reads a footer first, as the input that it is, and refuses one that
would crash Arrow. What concerns the values of a column alone (codecs, encodings, checksums) is left to whoever reads
them.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from spark_apps.storage.limits import (
    MAX_ACCEPTED_FOOTERS,
    MAX_CHUNKS,
    MAX_COLUMNS,
    MAX_FOOTER_BYTES,
    MAX_SCHEMA_DEPTH,
)
from spark_apps.storage.parquet.thrift import (
    BINARY,
    BOOL,
    I16,
    I32,
    I64,
    Kind,
    Struct,
    count_of,
    list_head,
    list_of,
    skip,
    varint,
)

MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
END_BYTES = 8
"""Of the length of a footer, and of the mark behind it."""


_TYPE_BYTES = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 0}
"""Physical type -> bytes that a bound has at least; of fixed texts (7) the schema says how many."""
_FIXED_TEXT, _TEXT = 7, 6
_REPEATED, _OPTIONAL = 2, 1
_LAST_CODEC = 7
"""Of none, Snappy, gzip, LZO, Brotli, LZ4, ZSTD, LZ4 raw."""


class FooterRefused(OSError):
    """A Parquet file whose footer must not reach Arrow."""


class FooterEncrypted(FooterRefused):
    """A Parquet file of which the footer, or some columns, are encrypted."""


class Leaf(NamedTuple):
    """A column of the file, as its schema says.

    :param repetition: and ``definition``: the highest levels. :param bound_bytes: that a bound has at least.
    """

    name: str
    type: int
    repetition: int
    definition: int
    bound_bytes: int


def _utf8(data: bytes, position: int) -> tuple[None, int]:
    name, position = BINARY[1](data, position)
    text_of(name, "a name in it")
    return None, position


_ANY_STRUCT: Kind = ((12,), lambda data, position: (None, skip(data, position, 12)))
_KEY_VALUES = count_of(Struct({1: BINARY, 2: BINARY}, required=(1,)).kind)
_ELEMENT = Struct(
    {1: I32, 2: I32, 3: I32, 4: BINARY, 5: I32, 6: I32, 7: I32, 8: I32, 9: I32, 10: _ANY_STRUCT}, required=(4,)
)
_ENCODINGS = count_of(I32, 1_000)
_ENCODING_STATS = count_of(Struct({1: I32, 2: I32, 3: I32}, required=(1, 2, 3)).kind)
_SORTING = count_of(Struct({1: I32, 2: BOOL, 3: BOOL}, required=(1, 2, 3)).kind)
_STATISTICS = Struct({1: BINARY, 2: BINARY, 3: I64, 4: I64, 5: BINARY, 6: BINARY, 7: BOOL, 8: BOOL})
_SIZES = Struct({1: I64, 2: count_of(I64), 3: count_of(I64)})
_COLUMN = Struct(
    {1: I32, 2: _ENCODINGS, 3: count_of(((8,), _utf8)), 4: I32, 5: I64, 6: I64, 7: I64, 8: _KEY_VALUES, 9: I64,
     10: I64, 11: I64, 12: _STATISTICS.kind, 13: _ENCODING_STATS, 14: I64, 15: I32, 16: _SIZES.kind, 17: _ANY_STRUCT},
    required=(1, 2, 3, 4, 5, 6, 7, 9),
)  # fmt: skip
_CHUNK = Struct({1: BINARY, 2: I64, 3: _COLUMN.kind, 4: I64, 5: I32, 6: I64, 7: I32, 8: _ANY_STRUCT, 9: BINARY})


def footer_length(end: bytes) -> int:
    """Return the bytes of a footer without its end.

    :param end: the last bytes of a file, at least eight if it has as many.
    :raises FooterRefused: if these are not of a Parquet file whose footer can be read.
    """
    if end[-4:] == _ENCRYPTED_MAGIC:
        raise FooterEncrypted("its footer is encrypted, and there is no key")
    if len(end) < END_BYTES or end[-4:] != MAGIC:
        raise FooterRefused("it is no Parquet file")
    length = int.from_bytes(end[-END_BYTES:-4], "little")
    if length > MAX_FOOTER_BYTES:
        raise FooterRefused(f"its footer would have {length:,} bytes, and may have {MAX_FOOTER_BYTES:,}")
    return length


_ACCEPTED: dict[bytes, None] = {}
"""Digests of footers that were accepted, with the sizes of their files."""
_LOCK = threading.Lock()


def check_footer_bytes(footer: bytes, size: int | None) -> None:
    """Check a footer, once as long as it is the same.

    :param footer: its bytes, without length and mark. :param size: of the file, in bytes; ``None`` if not known.
    :raises FooterRefused: if it does not agree with itself, or with the size of its file.
    """
    digest = hashlib.blake2b(footer, digest_size=20, key=str(size).encode()).digest()
    if digest in _ACCEPTED:
        return
    _Check(footer, size).run()
    with _LOCK:
        while len(_ACCEPTED) >= MAX_ACCEPTED_FOOTERS:
            del _ACCEPTED[next(iter(_ACCEPTED))]
        _ACCEPTED[digest] = None


@dataclass
class _Check:
    """Check of one footer, with what it has read so far."""

    data: bytes
    size: int | None
    leaves: list[Leaf] | None = None
    chunks: int = 0
    last: Shape | None = None
    shapes: dict[int, Shape] = field(default_factory=dict)

    def run(self) -> None:
        """Read the footer.

        :raises FooterRefused: for the first that is wrong in it.
        """
        footer = Struct(
            {1: I32, 2: ((9,), self._schema), 3: I64, 4: count_of(((12,), self._group)), 5: _KEY_VALUES, 6: BINARY,
             7: count_of(_ANY_STRUCT), 8: _ANY_STRUCT, 9: BINARY}, required=(1, 2, 3, 4),
        )  # fmt: skip
        self._group_fields = Struct(
            {1: ((9,), self._columns), 2: I64, 3: I64, 4: _SORTING, 5: I64, 6: I64, 7: I16}, required=(1, 2, 3)
        )
        try:
            said, _ = footer.read(self.data, 0, "its footer")
        except FooterRefused:
            raise
        except OSError as error:
            raise FooterRefused(str(error)) from error
        if 8 in said or 9 in said:
            raise FooterEncrypted("columns of it are encrypted, and there is no key")
        if said[3] < 0:
            raise FooterRefused("it has less than no rows")
        text_of(said.get(6, b""), "its writer's name")

    def _schema(self, data: bytes, position: int) -> tuple[None, int]:
        elements, position = _ELEMENTS[1](data, position)
        self.leaves = list(_leaves(elements))
        return None, position

    def _group(self, data: bytes, position: int) -> tuple[None, int]:
        said, position = self._group_fields.kind[1](data, position)
        if said[3] < 0:
            raise FooterRefused("a row group has less than no rows")
        return None, position

    def _columns(self, data: bytes, position: int) -> tuple[None, int]:
        if self.leaves is None:
            raise FooterRefused("its row groups come before its schema")
        size, position = list_head(data, position, (12,))
        if size != len(self.leaves):
            raise FooterRefused(f"a row group has {size:,} columns, the schema {len(self.leaves):,}")
        self.chunks += size
        if self.chunks > MAX_CHUNKS:
            raise FooterRefused(f"it has more than {MAX_CHUNKS:,} columns in all row groups")
        for number, leaf in enumerate(self.leaves):
            position = self._chunk(data, position, number, leaf)
        return None, position

    def _chunk(self, data: bytes, position: int, number: int, leaf: Leaf) -> int:
        """Check a column of a row group; return where its bytes end."""
        known = self.shapes.get(number) or self.last
        if known is not None and (end := known.end(data, position, leaf, self.size)):
            return end
        for shape in _SHAPES:
            if end := shape.end(data, position, leaf, self.size):
                self.last = self.shapes[number] = shape
                return end
        chunk, end = _CHUNK.kind[1](data, position)
        if 8 in chunk or 9 in chunk:
            raise FooterEncrypted(f"its column {leaf.name!r} is encrypted, and there is no key")
        if 2 not in chunk or 3 not in chunk:
            raise FooterRefused(f"the column {leaf.name!r} has a row group that says nothing of it")
        self._check_column(chunk[3], leaf)
        if next(_LIKE_NONE) % _BETWEEN_SHAPES == 0:
            learn_shape(data, position)
        return end

    def _check_column(self, column: dict[int, Any], leaf: Leaf) -> None:
        if column[1] != leaf.type:
            raise FooterRefused(f"the column {leaf.name!r} is of another type in a row group than in the schema")
        if not 0 <= column[4] <= _LAST_CODEC:
            raise FooterRefused(f"the column {leaf.name!r} is compressed by a codec that there is not ({column[4]})")
        if column[5] < 0 or column[6] < 0 or column[7] < 0:
            raise FooterRefused(f"the column {leaf.name!r} has a number of values or bytes below zero")
        start, there = column[9], column.get(11, 0)
        start = there if 0 < there < start else start
        end = max(start + column[7], column[9])
        if start < 0 or (self.size is not None and column[5] and end > self.size):
            raise FooterRefused(f"the column {leaf.name!r} is outside of the file")
        bounds = column.get(12)
        if bounds:
            for number in (1, 2, 5, 6):
                bound = bounds.get(number)
                if bound is not None and len(bound) < leaf.bound_bytes:
                    raise FooterRefused(f"a bound of the column {leaf.name!r} is cut")
        sizes = column.get(16)
        if sizes:
            self._check_sizes(sizes, leaf)

    def _check_sizes(self, sizes: dict[int, Any], leaf: Leaf) -> None:
        for number, deepest in ((2, leaf.repetition), (3, leaf.definition)):
            levels = sizes.get(number)
            if levels and levels != deepest + 1:
                raise FooterRefused(
                    f"a histogram of the column {leaf.name!r} has {levels:,} levels, the schema {deepest + 1:,}"
                )
        if 1 in sizes and leaf.type != _TEXT:
            raise FooterRefused(f"the column {leaf.name!r} counts the bytes of texts, and holds none")


# --- columns that look like others ------------------------------------------------------------------------------------
#
# A footer repeats itself: of a thousand columns and a hundred row groups, each column has the same fields, with other
# numbers in them. Reading each field by itself takes some twenty times as long as Arrow takes; so from a column that
# was accepted a pattern is made that is true of all columns like it, and the next is matched as a whole.

_BETWEEN_SHAPES = 50
"""A pattern is made of each fiftieth column that matched none before: to make one takes some milliseconds."""
_MAX_SHAPES = 24
"""Patterns that are kept, each of which a column that matches none is compared with."""

_SHORT_TEXT = b"|".join(b"%s.{%d}" % (re.escape(bytes([size])), size) for size in range(128))
_NUMBERS = {4: rb"[\x80-\xff]{0,1}[\x00-\x7f]", 5: rb"[\x80-\xff]{0,3}[\x00-\x7f]", 6: rb"[\x80-\xff]{0,8}[\x00-\x7f]"}
"""Type -> numbers of no more bytes than fit into the type."""
_EVEN = b"".join(re.escape(bytes([byte])) for byte in range(0, 128, 2))
_EVEN_AND_MORE = b"".join(re.escape(bytes([byte])) for byte in range(128, 256, 2))
# The lowest bit is the sign.
_NOT_NEGATIVE = rb"(?:[%s]|[%s][\x80-\xff]{0,6}[\x00-\x7f])" % (_EVEN, _EVEN_AND_MORE)
_TAKEN = ((3, 5), (3, 7), (3, 9), (3, 11))
"""Fields whose numbers are held against the file: values, bytes, where pages and the dictionary begin."""


@dataclass(frozen=True)
class Shape:
    """A pattern of a column of a row group that was accepted, and what it says of the column.

    :param bound_bytes: that its bounds have at least. :param levels: of the histograms of repetition and definition,
        0 where there is none. :param counts_text: whether the bytes of texts are counted.
    """

    matches: Callable[[bytes, int], re.Match[bytes] | None]
    type: int
    bound_bytes: int
    levels: tuple[int, int]
    counts_text: bool

    def end(self, data: bytes, position: int, leaf: Leaf, size: int | None) -> int:
        """Return where the bytes of a column end that is as this one, and right; else 0."""
        found = self.matches(data, position)
        if found is None or leaf.type != self.type or leaf.bound_bytes > self.bound_bytes:
            return 0
        if self.levels != (0, 0) and (
            self.levels[0] not in (0, leaf.repetition + 1) or self.levels[1] not in (0, leaf.definition + 1)
        ):
            return 0
        path, values, stored, start, *there = found.groups()
        try:
            path.decode()
        except UnicodeDecodeError:
            return 0
        # Where the dictionary begins before the pages, and all the more so if it does not.
        if size is not None and values != b"\0" and _number(start) + _number(stored) > size:
            begins = _number(there[0]) if there else 0
            if not 0 < begins < _number(start) <= size or begins + _number(stored) > size:
                return 0
        return found.end()


def _number(written: bytes) -> int:
    """Return a number that is not negative from its bytes."""
    number = 0
    for byte in reversed(written):
        number = number << 7 | byte & 0x7F
    return number >> 1


_SHAPES: list[Shape] = []
_LIKE_NONE = count(1)
_KNOWN_SHAPES: set[bytes] = set()


def learn_shape(data: bytes, position: int) -> None:
    """Make a pattern of a column that was accepted."""
    writer = _PatternWriter(data)
    try:
        writer.struct(position, ())
    except _NoPattern:
        return
    pattern = b"".join(writer.parts)
    with _LOCK:
        if pattern not in _KNOWN_SHAPES and len(_SHAPES) < _MAX_SHAPES:
            _KNOWN_SHAPES.add(pattern)
            _SHAPES.append(
                Shape(
                    re.compile(pattern, re.DOTALL).match,
                    writer.type,
                    writer.bound_bytes,
                    (writer.levels.get((3, 16, 2), 0), writer.levels.get((3, 16, 3), 0)),
                    (3, 16, 1) in writer.seen,
                )
            )


class _NoPattern(Exception):
    """A column of which no pattern is made."""


class _PatternWriter:
    """Writes the pattern of a column, field by field; fields are named by their ids from the outermost on."""

    def __init__(self, data: bytes) -> None:
        self.data, self.parts, self.type, self.bound_bytes = data, list[bytes](), -1, 1 << 30
        self.levels: dict[tuple[int, ...], int] = {}
        self.seen: set[tuple[int, ...]] = set()

    def struct(self, position: int, where: tuple[int, ...]) -> int:
        """Write a struct; return where it ends."""
        field_ = 0
        while head := self.data[position]:
            if head <= 0x0F:
                raise _NoPattern
            field_ += head >> 4
            self.parts.append(re.escape(bytes([head])))
            self.seen.add((*where, field_))
            position = self.value(position + 1, head & 0x0F, (*where, field_))
        self.parts.append(re.escape(b"\0"))
        return position + 1

    def value(self, position: int, type_: int, where: tuple[int, ...]) -> int:
        """Write the value of a field, or an element of a list; return where it ends."""
        data = self.data
        if type_ in (1, 2):
            return position
        if type_ in _NUMBERS:
            number, end = varint(data, position)
            if where in ((3, 1), (3, 4)):
                self.type = number >> 1 if where == (3, 1) else self.type
                self.parts.append(re.escape(data[position:end]))
            elif where in _TAKEN:
                self.parts.append(b"(%s)" % _NOT_NEGATIVE)
            else:
                self.parts.append(_NOT_NEGATIVE if where == (3, 6) else _NUMBERS[type_])
            return end
        if type_ == 8:
            length, start = varint(data, position)
            if where[:2] == (3, 12) and self.type != _TEXT:
                self.bound_bytes = min(self.bound_bytes, length)
                self.parts.append(re.escape(data[position:start]) + b".{%d}" % length)
            else:
                self.parts.append(b"(?:%s)" % _SHORT_TEXT)
            return start + length
        if type_ == 9:
            return self._list(position, where)
        if type_ == 12:
            return self.struct(position, where)
        raise _NoPattern

    def _list(self, position: int, where: tuple[int, ...]) -> int:
        head = self.data[position]
        size, element = head >> 4, head & 0x0F
        if size == 15 or element < 3:
            raise _NoPattern
        self.levels[where] = size
        path = where == (3, 3)
        self.parts.append(b"(" if path else b"")
        self.parts.append(re.escape(bytes([head])))
        position += 1
        for _ in range(size):
            position = self.value(position, element, where)
        self.parts.append(b")" if path else b"")
        return position


# --- schema -----------------------------------------------------------------------------------------------------------


_ELEMENTS = list_of(_ELEMENT.kind, 2 * MAX_COLUMNS)


@dataclass(slots=True)
class _Group:
    """A group of a schema: columns that are still to come, and the levels of its own."""

    left: int
    repetition: int
    definition: int


def _leaves(elements: list[dict[int, Any]]) -> Iterator[Leaf]:
    """Yield the columns of a schema, in their order.

    :raises FooterRefused: if its elements are not those of one tree.
    """
    if not elements:
        raise FooterRefused("it has no schema")
    groups: list[_Group] = []
    leaves = 0
    for number, element in enumerate(elements):
        name, children, kind = text_of(element[4], "the name of a column"), element.get(5, 0), element.get(3)
        if not 0 <= children < len(elements) - number:
            raise FooterRefused(f"the group {name!r} has {children:,} columns, and there are not as many")
        if not number:
            groups.append(_Group(children, 0, 0))
            continue
        while groups and not groups[-1].left:
            groups.pop()
        if not groups:
            raise FooterRefused("its schema has columns beyond its groups")
        if kind not in (0, _OPTIONAL, _REPEATED):
            raise FooterRefused(f"the column {name!r} is neither required nor optional nor repeated")
        above = groups[-1]
        above.left -= 1
        repetition, definition = above.repetition + (kind == _REPEATED), above.definition + (kind != 0)
        if children:
            groups.append(_Group(children, repetition, definition))
            if len(groups) > MAX_SCHEMA_DEPTH:
                raise FooterRefused(f"its schema is nested deeper than {MAX_SCHEMA_DEPTH} groups")
        elif 1 in element:
            leaves += 1
            yield _leaf(element, name, repetition, definition)
    if any(group.left for group in groups):
        raise FooterRefused("its schema ends within a group")
    if leaves > MAX_COLUMNS:
        raise FooterRefused(f"it has more than {MAX_COLUMNS:,} columns")


def _leaf(element: dict[int, Any], name: str, repetition: int, definition: int) -> Leaf:
    type_, length = element[1], element.get(2, 0)
    if type_ not in _TYPE_BYTES and type_ != _FIXED_TEXT:
        raise FooterRefused(f"the column {name!r} is of a type that there is not")
    if type_ == _FIXED_TEXT and length <= 0:
        raise FooterRefused(f"the column {name!r} holds texts of {length:,} bytes")
    return Leaf(name, type_, repetition, definition, length if type_ == _FIXED_TEXT else _TYPE_BYTES[type_])


def text_of(name: bytes, what: str) -> str:
    """Return a name as text. :raises FooterRefused: if it is none. :param what: what it is the name of."""
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise FooterRefused(f"{what} is no UTF-8: {name!r:.100}") from error
