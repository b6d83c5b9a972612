"""The files of a skipping index: records of data files, and Bloom filters that are asked without being read as a whole.

A file has a header (one small record a data file) and behind it filters of the same size, interleaved: block 0 of all
of them, then block 1 of all. A value sets bits of one block of a filter, so one range of some kilobytes answers for a
thousand data files. The header, which is compressed, and each page of filters carry a checksum: what is damaged is not
used.

Where row groups have records too, the header holds them packed, by file; their filters are interleaved as those of
files are.

A filter is of blocks of 256 bits. A value sets one bit in each eighth of one block: the upper half of its hash chooses
the block, the hash of its hash the bits. So a filter of an even number of blocks is folded into one of half as
many by joining neighbours.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from threading import Lock
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from spark_apps.indexes.limits import (
    MAX_FILTERS,
    MAX_HEADER_BYTES,
    MAX_OPENED_FILES,
    MAX_UNPACKED_TIMES,
    SMALL_HEADER_BYTES,
)
from spark_apps.indexes.ranges import OutOfRange, RawString
from spark_apps.layout.hashing import spark_xxhash64
from spark_apps.layout.types import ColumnType, date_or_time, days, micros, normalize, parse_type
from spark_apps.storage.errors import LakeIndexError, StorageError
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import DataFile

FilterKind = Literal["bloom", "ngrams"]

WORDS = 4
"""Words of 64 bits in a block."""

BLOCK_BYTES = 8 * WORDS
_BLOCK_BITS = 8 * BLOCK_BYTES
_BITS_A_VALUE = 8
_PAGE_BYTES = 4096
_CHECKSUM_BYTES = 8
_MAGIC = b"LKSKIP2\n"
_PREFIX = struct.Struct("<8sQQQ")
"""The mark, the bytes of the header as it is stored, those that it unpacks to, and its checksum."""

_MAGIC_OF_ROW_GROUPS = b"LKSKIP3\n"
"""Of files with records of row groups, which releases that do not know these refuse."""

_EARLIER_MAGIC = b"LKSKIP1\n"
_EARLIER_PREFIX = struct.Struct("<8sQQ")
"""Of files whose header is not compressed."""

_CODEC = "zstd"
_FIRST_READ = 256 * 1024
_SIDE_BY_SIDE = 1_024
"""Row groups whose filters are interleaved: most queries ask about those of few files."""


class ColumnRecord(msgspec.Struct, array_like=True, frozen=True):
    """The facts known of an expression in the rows of a file.

    :param filled: rows where it is not null.
    :param low: nothing in the file is less; ``None`` if that is not kept, or there is no value.
    :param high: nothing is more; ``None`` beside a ``low``: it is not known.
    :param values: all values, ``None`` if they are not kept or too many.
    """

    filled: int
    low: bytes | None = None
    high: bytes | None = None
    values: tuple[bytes, ...] | None = None


class FileRecord(msgspec.Struct, array_like=True, frozen=True):
    """The record of a file; ``stamp`` is the number of that of the session that computed it."""

    lineage: int
    rows: int
    stamp: int
    columns: tuple[ColumnRecord, ...]


class RowGroups(msgspec.Struct, array_like=True, frozen=True):
    """The records of the row groups of a file.

    :param file: number of the file's own record. :param rows: of each row group.
    :param records: what is known of each, packed: a list of :class:`ColumnRecord`.
    """

    file: int
    rows: tuple[int, ...]
    records: bytes


class Section(msgspec.Struct, array_like=True, frozen=True):
    """Filters of one size, of one expression.

    :param files: numbers of the files' records, in the order of the filters; row groups are numbered behind all files.
    :param page: blocks in one page. :param offset: from the end of the header.
    """

    column: int
    kind: FilterKind
    blocks: int
    files: tuple[int, ...]
    page: int
    offset: int

    @property
    def stripe(self) -> int:
        """Bytes of one block of all filters."""
        return len(self.files) * BLOCK_BYTES

    @property
    def bytes(self) -> int:
        pages = -(-self.blocks // self.page)
        return self.blocks * self.stripe + pages * _CHECKSUM_BYTES


class Header(msgspec.Struct, frozen=True):
    """:param keys: texts of the expressions. :param types: their Spark types. :param gram: bytes of an n-gram."""

    keys: tuple[str, ...]
    types: tuple[str, ...]
    gram: int
    stamps: tuple[dict[str, str], ...]
    files: tuple[FileRecord, ...]
    sections: tuple[Section, ...]
    row_groups: tuple[RowGroups, ...] = ()


@dataclass(frozen=True)
class Known:
    """The facts known of a data file, with its filters: arrays of blocks by words, by expression and kind.

    :param row_groups: what is known of each of its row groups, if that is kept.
    """

    lineage: int
    rows: int
    stamp: Mapping[str, str]
    columns: tuple[ColumnRecord, ...]
    filters: Mapping[tuple[int, FilterKind], Any] = field(default_factory=dict)
    row_groups: tuple[Known, ...] = ()


class RowGroupRecord(NamedTuple):
    """The record of a row group; its filters are those of this number."""

    number: int
    rows: int
    columns: tuple[ColumnRecord, ...]


def alike(one: ColumnRecord, other: ColumnRecord, kind: ColumnType) -> bool:
    """Return whether two records say the same, however its numbers are written."""

    def said(record: ColumnRecord) -> list[Any]:
        bounds = [None if data is None else repr(value_from(data, kind)) for data in (record.low, record.high)]
        values = None if record.values is None else sorted(repr(value_from(data, kind)) for data in record.values)
        return [record.filled, *bounds, values]

    return one == other or said(one) == said(other)


# --- Values as bytes --------------------------------------------------------------------------------------------------


ABOVE = OutOfRange(above=True)
_BELOW = OutOfRange(above=False)


def value_from(data: bytes, kind: ColumnType) -> Any:
    """Return a value from its bytes, in the form of :func:`spark_apps.layout.types.normalize`.

    The bytes are those of a string or binary, else the value's digits; of dates days, of times microseconds since 1970.
    """
    if kind.kind == "binary":
        return data
    if kind.kind == "string":
        try:
            return data.decode()
        except UnicodeDecodeError:
            return RawString(data)
    text = data.decode("ascii")
    if kind.kind in ("float", "double"):
        number = float(text)
        return math.nan if math.isnan(number) else number + 0.0
    if kind.kind == "decimal":
        return normalize(Decimal(text), kind)
    number = int(text)
    if kind.kind == "boolean":
        return bool(number)
    if kind.kind in ("date", "timestamp", "timestamp_ntz"):
        try:
            return date_or_time(number, kind.kind)
        except OverflowError:
            return ABOVE if number > 0 else _BELOW
    return number


def bytes_of(value: Any, kind: ColumnType) -> bytes | None:
    """Return the bytes of a value in the form of the package; ``None`` for one that Python does not know."""
    if isinstance(value, (OutOfRange, RawString)):
        return None
    match kind.kind:
        case "binary":
            return bytes(value)
        case "string":
            return str(value).encode()
        case "boolean":
            return b"1" if value else b"0"
        case "float" | "double":
            return b"NaN" if value != value else str(value).encode()
        case "date":
            return str(days(value)).encode()
        case "timestamp" | "timestamp_ntz":
            return str(micros(value)).encode()
    return str(value).encode()


# --- Filters ----------------------------------------------------------------------------------------------------------


_MANTISSAS = range(8, 17)


def rounded_blocks(blocks: float) -> int:
    """Return a number of blocks that is not less, an eighth more at most: 1 to 15, or such a number doubled.

    Only filters of one size can be interleaved, so few sizes are better.
    """
    wanted = max(1, math.ceil(blocks))
    if wanted < 8:
        return wanted
    doubled = wanted.bit_length() - 4
    while True:
        for mantissa in _MANTISSAS:
            if mantissa << doubled >= wanted:
                return mantissa << doubled
        doubled += 1


def blocks_for(values: int, false_positives: float) -> int:
    """Return how many blocks a filter of this number of values has."""
    bits = -_BITS_A_VALUE / math.log(1 - false_positives ** (1 / _BITS_A_VALUE))
    return rounded_blocks(values * bits * 1.1 / _BLOCK_BITS)


def folded(filters: Any, false_positives: float) -> Any:
    """Return a filter of as few blocks as its values need, by halving it."""
    import numpy as np

    blocks = len(filters)
    share = int.from_bytes(filters.tobytes()).bit_count() / (blocks * _BLOCK_BITS)
    if share <= 0:
        return filters[:1]
    values = -math.log(max(1 - share, 1e-9)) * blocks * _BLOCK_BITS / _BITS_A_VALUE
    enough = blocks_for(math.ceil(values), false_positives)
    while blocks % 2 == 0 and blocks // 2 >= enough:
        filters = np.bitwise_or(filters[0::2], filters[1::2])
        blocks //= 2
    return filters


@dataclass(frozen=True)
class Marks:
    """The place of a value in filters: the upper half of its hash, and the bits of a block as words."""

    upper: int
    words: tuple[int, ...]

    @classmethod
    def of(cls, value: Any, kind: ColumnType) -> Marks:
        """Return the marks of a value; :mod:`spark_apps.indexes.skipping.summaries` has the same of many values."""
        first = spark_xxhash64([value], [kind])
        second = spark_xxhash64([first], [_BIGINT]) & (2**64 - 1)
        bits = [second >> 5 * number & 31 for number in range(_BITS_A_VALUE)]
        words = tuple(1 << bits[2 * n] | 1 << 32 + bits[2 * n + 1] for n in range(WORDS))
        return cls((first & (2**64 - 1)) >> 32, words)

    def block(self, blocks: int) -> int:
        """Return the block that the value sets bits of, in a filter of this number of blocks."""
        return self.upper * blocks >> 32


_BIGINT = parse_type("bigint")
_BINARY = parse_type("binary")


def _is_text(value: str) -> bool:
    """Return whether a text can be encoded: what half of a surrogate pair is to Spark is not known."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def grams(text: str, size: int) -> list[bytes]:
    """Return the n-grams of a text: its runs of ``size`` bytes."""
    data = text.encode()
    return list(dict.fromkeys(data[at : at + size] for at in range(len(data) - size + 1)))


# --- Writing ----------------------------------------------------------------------------------------------------------


def written(keys: Sequence[str], types: Sequence[str], gram: int, known: Sequence[Known]) -> bytes:
    """Return the bytes of a file of records."""
    import numpy as np
    import pyarrow as pa

    stamps: list[dict[str, str]] = []
    by_size: dict[tuple[int, FilterKind, int], list[tuple[int, Any]]] = {}
    of_row_groups: dict[tuple[int, FilterKind, int], list[tuple[int, Any]]] = {}
    records, row_groups, behind = [], list[RowGroups](), count(len(known))
    for number, each in enumerate(known):
        stamp = dict(each.stamp)
        if stamp not in stamps:
            stamps.append(stamp)
        records.append(FileRecord(each.lineage, each.rows, stamps.index(stamp), each.columns))
        for (column, kind), filters in each.filters.items():
            by_size.setdefault((column, kind, len(filters)), []).append((number, filters))
        if each.row_groups:
            row_groups.append(RowGroups(number, tuple(one.rows for one in each.row_groups), _packed(each.row_groups)))
        for one in each.row_groups:
            at = next(behind)
            for (column, kind), filters in one.filters.items():
                of_row_groups.setdefault((column, kind, len(filters)), []).append((at, filters))
    together = [
        *sorted(by_size.items(), key=lambda item: item[0]),
        *(
            (size, members[start : start + _SIDE_BY_SIDE])
            for size, members in sorted(of_row_groups.items(), key=lambda item: item[0])
            for start in range(0, len(members), _SIDE_BY_SIDE)
        ),
    ]
    sections, body, offset = [], list[bytes](), 0
    for (column, kind, blocks), members in together:
        files = tuple(number for number, _ in members)
        page = max(1, _PAGE_BYTES // (len(files) * BLOCK_BYTES))
        section = Section(column, kind, blocks, files, page, offset)
        side_by_side = np.stack([filters for _, filters in members], axis=1).astype("<i8")
        for start in range(0, blocks, page):
            content = side_by_side[start : start + page].tobytes()
            body += [content, _checksum(content)]
        sections.append(section)
        offset += section.bytes
    header = msgspec.msgpack.encode(
        Header(tuple(keys), tuple(types), gram, tuple(stamps), tuple(records), tuple(sections), tuple(row_groups))
    )
    packed = pa.compress(header, codec=_CODEC, asbytes=True)
    magic = _MAGIC_OF_ROW_GROUPS if row_groups else _MAGIC
    return b"".join([_PREFIX.pack(magic, len(packed), len(header), _digest(packed)), packed, *body])


def _packed(row_groups: Sequence[Known]) -> bytes:
    return msgspec.msgpack.encode([one.columns for one in row_groups])


def bytes_of_row_groups(known: Known) -> int:
    """Return about how many bytes the records and filters of a file's row groups take."""
    filters = sum(bits.nbytes for one in known.row_groups for bits in one.filters.values())
    return len(_packed(known.row_groups)) + filters


def _digest(data: bytes | memoryview) -> int:
    import xxhash

    return xxhash.xxh3_64_intdigest(data)


def _checksum(data: bytes | memoryview) -> bytes:
    return _digest(data).to_bytes(_CHECKSUM_BYTES, "little")


# --- Reading ----------------------------------------------------------------------------------------------------------


class FilterPages:
    """The filters of a file of records, read by ranges.

    :param start: where they begin in the file.
    :raises StorageError: when one is read, if the file is gone or damaged.
    """

    def __init__(self, store: ObjectStore, file: DataFile, start: int = 0) -> None:
        self.file = file
        self._store, self.start = store, start
        self.fetched = 0
        """Bytes read of it."""

    def read(self, section: Section, first: int, end: int | None = None) -> list[Any]:
        """Return a page of filters, or those from one to another: blocks by files by words."""
        import numpy as np

        end = first + 1 if end is None else end
        whole, start = section.page * section.stripe + _CHECKSUM_BYTES, self.start + section.offset
        blocks = [min(section.page, section.blocks - number * section.page) for number in range(first, end)]
        length = sum(blocks) * section.stripe + len(blocks) * _CHECKSUM_BYTES
        data = memoryview(self._fetch(start + first * whole, start + first * whole + length))
        pages = []
        for at, held in enumerate(blocks):
            page = data[at * whole :][: held * section.stripe + _CHECKSUM_BYTES]
            content, checksum = page[:-_CHECKSUM_BYTES], page[-_CHECKSUM_BYTES:]
            if _checksum(content) != checksum:
                raise self.damaged("a page of it is not what was written")
            pages.append(np.frombuffer(content, dtype="<u8").reshape(held, len(section.files), WORDS))
        return pages

    def _fetch(self, start: int, end: int) -> bytes:
        try:
            data = self._store.get_range(self.file.path, start, end)
        except OSError as error:
            raise self.damaged(str(error)) from error
        if len(data) != end - start:
            raise self.damaged(f"it is shorter than the log says, {self.file.bytes:,} bytes")
        self.fetched += len(data)
        return data

    def damaged(self, reason: str) -> StorageError:
        """Return the error that says that the file cannot be used."""
        return StorageError(
            f"The index file {self.file.path} cannot be read: {reason}.",
            outcome="The rows are not affected.",
            hint="Rebuild the index: refresh_index(name, mode='full').",
        )


class RecordFile(FilterPages):
    """A file of records, of which the filters are read by ranges.

    :raises StorageError: when it is opened or asked, if the file is gone or damaged.
    """

    def __init__(self, store: ObjectStore, file: DataFile) -> None:
        super().__init__(store, file)
        self._opened = self._open()
        self.header, self.start = self._opened.header, self._opened.start
        self._pages: dict[tuple[int, int], Any] = {}
        self._marks: dict[tuple[int, Any], Marks] = {}
        self.types = self._types()

    @property
    def filters(self) -> FilterPages:
        """The filters alone, as a task may take them along."""
        return FilterPages(self._store, replace(self.file, extra=None), self.start)

    def _types(self) -> tuple[ColumnType, ...]:
        try:
            return tuple(map(parse_type, self.header.types))
        except (LakeIndexError, ValueError) as error:
            raise self.damaged(f"its types are none of Spark's ({error})") from error

    def _open(self) -> _Opened:
        key = (self._store_uri, self.file.path, self.file.bytes)
        with _LOCK:
            opened = _OPENED.get(key)
            if opened is not None:
                _OPENED.move_to_end(key)
                return opened
        opened = self._read_header()
        with _LOCK:
            _OPENED[key] = opened
            while len(_OPENED) > MAX_OPENED_FILES:
                _OPENED.popitem(last=False)
        return opened

    @property
    def _store_uri(self) -> str:
        return str(getattr(self._store, "uri", id(self._store)))

    def _read_header(self) -> _Opened:
        import pyarrow as pa

        first = self._fetch(0, min(self.file.bytes, _FIRST_READ))
        if len(first) < _PREFIX.size:
            raise self.damaged("it ends in its beginning")
        begin = _PREFIX.size
        magic, length, whole, digest = _PREFIX.unpack_from(first)
        if magic == _EARLIER_MAGIC:
            begin, whole = _EARLIER_PREFIX.size, 0
            magic, length, digest = _EARLIER_PREFIX.unpack_from(first)
        end = begin + length
        known = (_MAGIC, _MAGIC_OF_ROW_GROUPS, _EARLIER_MAGIC)
        most = min(MAX_HEADER_BYTES, SMALL_HEADER_BYTES + MAX_UNPACKED_TIMES * length)
        if magic not in known or end > self.file.bytes or length > MAX_HEADER_BYTES or whole > most:
            raise self.damaged("it does not begin as such a file does")
        data = first[begin:end]
        if len(data) < length:
            data += self._fetch(begin + len(data), end)
        if _digest(data) != digest:
            raise self.damaged("its header is not what was written")
        try:
            if magic != _EARLIER_MAGIC:
                data = pa.decompress(data, decompressed_size=whole, codec=_CODEC, asbytes=True)
            header = msgspec.msgpack.decode(data, type=Header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, pa.ArrowException, OSError) as error:
            raise self.damaged(str(error)) from error
        self._check(header, end)
        return _Opened.of(header, end)

    def _check(self, header: Header, end: int) -> None:
        width, files = len(header.keys), len(header.files)
        numbers = files + sum(len(each.rows) for each in header.row_groups)
        sound = (
            len(header.types) == width
            and header.gram >= 1
            and all(len(each.columns) == width and 0 <= each.stamp < len(header.stamps) for each in header.files)
            and all(
                0 <= each.column < width and each.blocks > 0 and each.page > 0 and each.offset >= 0
                and all(0 <= number < numbers for number in each.files)
                for each in header.sections
            )
            and len({each.file for each in header.row_groups}) == len(header.row_groups)
            and all(
                0 <= each.file < files and min(each.rows, default=-1) >= 0
                and sum(each.rows) == header.files[each.file].rows
                for each in header.row_groups
            )
        )  # fmt: skip
        kinds = {(each.column, each.kind) for each in header.sections}
        sound = sound and all(each.files for each in header.sections)
        sound = sound and len(kinds) * numbers <= MAX_FILTERS + self.file.bytes
        ends = (section.offset + section.bytes for section in header.sections)
        if not sound or end + max(ends, default=0) != self.file.bytes:
            raise self.damaged("its header does not fit what follows")

    def may_equal(self, number: int, column: int, value: Any) -> bool:
        """Return whether a file may hold a value of an expression, by its filter."""
        if isinstance(value, str) and not _is_text(value):
            return True
        return self._may_hold(number, column, "bloom", value, self.types[column])

    def may_contain(self, number: int, column: int, text: str) -> bool:
        """Return whether a file may hold a value that contains a text."""
        if not _is_text(text):
            return True
        found = grams(text, self.header.gram)
        return all(self._may_hold(number, column, "ngrams", gram, _BINARY) for gram in found)

    def has(self, number: int, column: int, kind: FilterKind) -> bool:
        """Return whether there is a filter of a file."""
        return self._opened.filter_of(number, column, kind) is not None

    def bloom(self, number: int, column: int) -> tuple[int, int] | None:
        """Return the section of the Bloom filter of a file, and its place there; ``None`` if it has none."""
        return self._opened.filter_of(number, column, "bloom")

    def row_groups_of(self, number: int) -> int | None:
        """Return how many row groups a file has, ``None`` if there are no records of them."""
        known = self._opened.row_groups.get(number)
        return None if known is None else len(known[1].rows)

    def row_groups(self, number: int) -> list[RowGroupRecord]:
        """Return the records of the row groups of a file, in their order; none if there are none."""
        if number not in self._opened.row_groups:
            return []
        first, known = self._opened.row_groups[number]
        try:
            columns = _ROW_GROUPS.decode(known.records)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.damaged(f"its records of row groups cannot be read: {error}") from error
        if len(columns) != len(known.rows) or any(len(each) != len(self.header.keys) for each in columns):
            raise self.damaged("its records of row groups are of others")
        return [
            RowGroupRecord(at, rows, each)
            for at, rows, each in zip(count(first), known.rows, columns, strict=False)
        ]  # fmt: skip

    def _may_hold(self, number: int, column: int, kind: FilterKind, value: Any, type_: ColumnType) -> bool:
        known = (column if kind == "bloom" else -1, value)
        marks = self._marks.get(known)
        if marks is None:
            marks = self._marks[known] = Marks.of(value, type_)
        found = self._opened.filter_of(number, column, kind)
        assert found is not None  # or it would not be asked
        at, place = found
        section = self.header.sections[at]
        block = marks.block(section.blocks)
        words = self._page(at, block // section.page)[block % section.page, place].tolist()
        return all(word & mark == mark for word, mark in zip(words, marks.words, strict=True))

    def _page(self, at: int, number: int) -> Any:
        """Return a page of filters, which is read once."""
        known = self._pages.get((at, number))
        if known is None:
            [known] = self.read(self.header.sections[at], number)
            self._pages[at, number] = known
        return known

    def known(self) -> list[Known]:
        """Return all that it holds, to be written again."""
        import numpy as np

        filters: dict[int, dict[tuple[int, FilterKind], Any]] = {}
        for at, section in enumerate(self.header.sections):
            pages = -(-section.blocks // section.page)
            whole = np.concatenate([self._page(at, number) for number in range(pages)])
            for place, number in enumerate(section.files):
                filters.setdefault(number, {})[section.column, section.kind] = whole[:, place].astype("<i8")
            self._pages.clear()
        found = []
        for number, each in enumerate(self.header.files):
            stamp = self.header.stamps[each.stamp]
            row_groups = tuple(
                Known(each.lineage, one.rows, stamp, one.columns, filters.get(one.number, {}))
                for one in self.row_groups(number)
            )
            found.append(Known(each.lineage, each.rows, stamp, each.columns, filters.get(number, {}), row_groups))
        return found

    def value(self, data: bytes, column: int) -> Any:
        """Return a value of an expression from its bytes in a record.

        :raises StorageError: if they are those of none.
        """
        try:
            return value_from(data, self.types[column])
        except (ValueError, ArithmeticError, LakeIndexError) as error:
            raise self.damaged(f"a value in it is none of type {self.header.types[column]}") from error

    @property
    def numbers(self) -> Mapping[int, int]:
        """Lineage of a data file -> the number of its record."""
        return self._opened.numbers

    def ends(self, column: int) -> tuple[Any, Any, Any]:
        """Return of each file the lowest and the highest value of an expression, and whether both are known: arrays.

        :raises StorageError: if one is none of the type.
        """
        import numpy as np

        known = self._opened.ends.get(column)
        if known is None:
            count = len(self.header.files)
            low, high, sure = np.empty(count, object), np.empty(count, object), np.zeros(count, bool)
            for number, each in enumerate(self.header.files):
                one = each.columns[column]
                if one.low is None or one.high is None:
                    continue
                ends = self.value(one.low, column), self.value(one.high, column)
                if not any(isinstance(end, (OutOfRange, RawString)) or end != end for end in ends):
                    (low[number], high[number]), sure[number] = ends, True
            known = self._opened.ends[column] = low, high, sure
        return known


_ROW_GROUPS = msgspec.msgpack.Decoder(tuple[tuple[ColumnRecord, ...], ...])


@dataclass(frozen=True)
class _Opened:
    """A header, and what is found by it.

    :param start: where filters begin. :param row_groups: number of a file -> that of its first row group, and these.
    :param places: column and kind -> section and place in it of the filter of each number; -1 where it has none.
    """

    header: Header
    start: int
    row_groups: Mapping[int, tuple[int, RowGroups]]
    places: Mapping[tuple[int, FilterKind], tuple[Any, Any]]
    numbers: Mapping[int, int]
    """Lineage of a file -> its number; the last of those that are said twice."""
    ends: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict, compare=False)
    """Column -> what :meth:`RecordFile.ends` has made of its records."""

    @classmethod
    def of(cls, header: Header, start: int) -> _Opened:
        row_groups: dict[int, tuple[int, RowGroups]] = {}
        numbers = len(header.files)
        for each in header.row_groups:
            row_groups[each.file] = numbers, each
            numbers += len(each.rows)
        places = _places(header.sections, numbers) if header.sections else {}
        return cls(header, start, row_groups, places, {each.lineage: n for n, each in enumerate(header.files)})

    def filter_of(self, number: int, column: int, kind: FilterKind) -> tuple[int, int] | None:
        """Return the section of the filter of a file or row group, and its place there; ``None`` if it has none."""
        known = self.places.get((column, kind))
        if known is None or known[0][number] < 0:
            return None
        return int(known[0][number]), int(known[1][number])


def _places(sections: Sequence[Section], numbers: int) -> dict[tuple[int, FilterKind], tuple[Any, Any]]:
    import numpy as np

    places: dict[tuple[int, FilterKind], tuple[Any, Any]] = {}
    for at, section in enumerate(sections):
        key = section.column, section.kind
        if key not in places:
            places[key] = np.full(numbers, -1, np.int32), np.zeros(numbers, np.int32)
        members = np.array(section.files, np.int64)
        places[key][0][members] = at
        places[key][1][members] = np.arange(len(members))
    return places


_LOCK = Lock()
_OPENED: OrderedDict[tuple[str, str, int], _Opened] = OrderedDict()
"""Headers that were read; such a file is never written again."""


def all_known(files: Iterable[RecordFile], lineages: frozenset[int] | None = None) -> list[Known]:
    """Return what files of records hold, each data file once; of some data files only, where they are given."""
    found: dict[int, Known] = {}
    for file in files:
        for each in file.known():
            if lineages is None or each.lineage in lineages:
                found.setdefault(each.lineage, each)
    return list(found.values())
