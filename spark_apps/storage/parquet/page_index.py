"""Rows of a Parquet file by their numbers: of a row group only the pages are fetched and decoded that hold them.

The page index of a file says where its pages begin and, of each, the least and the highest value. Pages of one column,
with its dictionary, are handed to Arrow as a file of their own with one row group, so that decoding and checksums are
Arrow's. Columns that are not flat, and files without a page index, are left to the caller, who reads the row group.
"""

from __future__ import annotations

import datetime as dt
import struct as binary
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spark_apps.storage.limits import MAX_ROWS_BY_PAGE
from spark_apps.storage.parquet.files import TAIL_BYTES, open_file
from spark_apps.storage.parquet.footers import END_BYTES, MAGIC, text_of
from spark_apps.storage.parquet.headers import check_pages
from spark_apps.storage.parquet.statistics import Bounds
from spark_apps.storage.parquet.thrift import (
    BINARY,
    BOOL,
    I32,
    I64,
    TO_BINARY,
    TO_I32,
    TO_I64,
    TO_RAW_STRUCT,
    Struct,
    list_of,
    to_list,
    to_struct,
)
from spark_apps.storage.store import RangedFile

_REPEATED = 2
_EPOCH = dt.date(1970, 1, 1).toordinal()
_SPAN_BYTES = 1024 * 1024
"""Pages that are within this many bytes of one another are fetched by one request."""
_MAX_SHARE_OF_PAGES = 0.5
"""If more of a column's pages are needed, all are read."""
_MAX_SHARE_OF_ROWS = 0.5
"""If more of a row group's rows are left by its pages, it is read as a whole; if fewer, what is read is copied."""


@dataclass(frozen=True)
class _Page:
    offset: int
    size: int
    first: int


@dataclass(frozen=True)
class _Pages:
    """The pages of a column of a row group, with the rows that they begin with, and those before which they end."""

    pages: tuple[_Page, ...]
    starts: Any
    ends: Any

    def holding(self, rows: Any) -> Any:
        """Return the numbers of the pages in which some rows are, ascending."""
        import numpy as np

        return np.unique(np.searchsorted(self.starts, rows, "right") - 1)


class PageIndex:
    """The page index of a file: where pages are, and what they hold; each part is read when it is asked for, and kept.

    :param footer: of the file, which was accepted, with its length and mark.
    :raises OSError: if it is no footer.
    """

    def __init__(self, footer: bytes) -> None:
        fields, _ = _FOOTER.read(footer[:-END_BYTES], 0, "its footer")
        self._created_by: bytes | None = fields.get(6)
        self._groups: list[dict[int, Any]] = fields[4]
        self._columns: dict[str, int] = {}
        self._elements: dict[str, bytes] = {}
        leaf, skip = 0, 0
        for number, (element, raw) in enumerate(fields[2]):
            children = element.get(5, 0)
            if number and not skip and not children and element.get(3) != _REPEATED:
                name = text_of(element[4], "the name of a column")
                self._columns[name], self._elements[name] = leaf, raw
            leaf += not children and number > 0
            skip = skip - 1 + children if skip else (children if number else 0)
        self._pages: dict[tuple[int, str], _Pages | None] = {}
        self._bounds_of_pages: dict[tuple[int, str], list[Bounds | None] | None] = {}

    def rows(self, group: int) -> int:
        """Return how many rows a row group has."""
        return int(self._groups[group][3])

    def pages(self, source: RangedFile, group: int, name: str) -> _Pages | None:
        """Return where the pages of a flat column are; ``None`` where that is not known."""
        key = group, name
        if key not in self._pages:
            self._pages[key] = self._read_pages(source, group, name)
        return self._pages[key]

    def _read_pages(self, source: RangedFile, group: int, name: str) -> _Pages | None:
        import numpy as np

        chunk = self._chunk(group, name)
        if chunk is None or not chunk.get(4) or not chunk.get(5):
            return None
        index, _ = _OFFSET_INDEX.read(_part(source, chunk[4], chunk[5]), 0, "its page index")
        pages = tuple(_Page(one[1], one[2], one[3]) for one in index[1])
        if not pages or pages[0].first or any(one.first >= other.first for one, other in pairwise(pages)):
            return None
        if not pages[-1].first < self.rows(group) <= MAX_ROWS_BY_PAGE:
            return None
        starts = np.array([page.first for page in pages])
        return _Pages(pages, starts, np.append(starts[1:], self.rows(group)))

    def _chunk(self, group: int, name: str) -> dict[int, Any] | None:
        index = self._columns.get(name)
        return None if index is None else self._groups[group][1][index]

    def candidates(
        self,
        source: RangedFile,
        group: int,
        columns: Mapping[str, str],
        may_match: Callable[[str, Bounds], bool],
    ) -> Any:
        """Return the numbers of the rows of a row group that its pages do not rule out, as a numpy array.

        :param columns: those of a predicate: name in the file -> kind of its type, such as ``bigint``.
        :param may_match: tests whether a row can match whose value of a column is within bounds.
        :return: ``None`` if that may be most of them.
        """
        import numpy as np

        left = None
        for name, kind in columns.items():
            ranges = self._bounds_of(source, group, name, kind)
            pages = self.pages(source, group, name) if ranges is not None else None
            if ranges is None or pages is None or len(ranges) != len(pages.pages):
                continue
            left = np.ones(self.rows(group), bool) if left is None else left
            for first, end, bounds in zip(pages.starts, pages.ends, ranges, strict=True):
                if bounds is not None and not may_match(name, bounds):
                    left[first:end] = False
        if left is None or np.count_nonzero(left) > _MAX_SHARE_OF_ROWS * len(left):
            return None
        return np.flatnonzero(left)

    def _bounds_of(self, source: RangedFile, group: int, name: str, kind: str) -> list[Bounds | None] | None:
        key = group, name
        if key not in self._bounds_of_pages:
            chunk = self._chunk(group, name)
            decode = _decoder(kind, None if chunk is None else chunk[3][1])
            if chunk is None or decode is None or not chunk.get(6) or not chunk.get(7):
                self._bounds_of_pages[key] = None
            else:
                index, _ = _COLUMN_INDEX.read(_part(source, chunk[6], chunk[7]), 0, "its page index")
                if not len(index[1]) == len(index[2]) == len(index[3]):
                    raise OSError("its page index does not speak of the same pages everywhere")
                bounds = zip(index[1], index[2], index[3], strict=True)
                self._bounds_of_pages[key] = [_bounds(decode, *one) for one in bounds]
        return self._bounds_of_pages[key]

    def read(self, source: RangedFile, group: int, names: Iterable[str], rows: Any) -> dict[str, Any]:
        """Return the values of some rows of columns: name -> Arrow column.

        Columns that are not flat, whose pages are not known, or of which most pages are needed, are left out.

        :param rows: their numbers, as a numpy array, ascending.
        :raises OSError: if a page is damaged.
        """
        import numpy as np

        located, spans, total = {}, [], 0
        for name in names:
            pages, chunk = self.pages(source, group, name), self._chunk(group, name)
            if pages is None or chunk is None or not len(rows):
                continue
            numbers, about = pages.holding(rows), chunk[3]
            first = about.get(11) or about[9]
            if len(numbers) <= max(1, _MAX_SHARE_OF_PAGES * len(pages.pages)):
                located[name] = pages, numbers
                last = pages.pages[numbers[-1]]
                spans.append((about.get(11) or pages.pages[numbers[0]].offset, last.offset + last.size))
                total += sum(pages.pages[n].size for n in numbers)
            else:
                spans.append((min(first, about[9]), min(first, about[9]) + about[7]))
                total += about[7]
        self._fetch(source, spans, total)
        read = {}
        for name, values in self._values(source, group, located).items():
            pages, numbers = located[name]
            starts, lengths = pages.starts[numbers], (pages.ends - pages.starts)[numbers]
            shifts = np.cumsum(lengths) - lengths - starts
            read[name] = take(values, rows + shifts[np.searchsorted(starts, rows, "right") - 1])
        return read

    def _fetch(self, source: RangedFile, spans: Sequence[tuple[int, int]], wanted: int) -> None:
        """Fetch some ranges by one request, if they are near each other. :param wanted: bytes of these."""
        if spans:
            first, end = min(start for start, _ in spans), max(end for _, end in spans)
            if end - first <= max(_SPAN_BYTES, 4 * wanted):
                source.keep(first, end)

    def _values(self, source: RangedFile, group: int, located: Mapping[str, tuple[_Pages, Any]]) -> dict[str, Any]:
        """Return the values of some pages of columns, one behind the other."""
        if not located:
            return {}
        counts = {name: int((pages.ends - pages.starts)[numbers].sum()) for name, (pages, numbers) in located.items()}
        chosen = {name: [pages.pages[n] for n in numbers] for name, (pages, numbers) in located.items()}
        reader = open_file(self._file_of_pages(source, group, chosen, counts)).reader
        # Column by column, for each has a number of rows of its own.
        values = {name: reader.read_column(n) for n, name in enumerate(located)}
        for name, count in counts.items():
            if len(values[name]) != count:
                raise OSError(f"pages of a column hold {len(values[name])} values, the page index says {count}")
        return values

    def _file_of_pages(
        self, source: RangedFile, group: int, pages: Mapping[str, Sequence[_Page]], rows: Mapping[str, int]
    ) -> bytearray:
        """Return a Parquet file that holds some pages of columns, and their dictionaries.

        :param rows: how many each column holds; they need not be as many.
        """
        body, chunks, total = bytearray(MAGIC), [], 0
        for name, of_column in pages.items():
            chunk = self._chunk(group, name)
            assert chunk is not None
            about, chunk_starts = chunk[3], len(body)
            dictionary = about.get(11)
            if dictionary and dictionary < about[9]:
                body += source.range(dictionary, about[9])
            data_starts = len(body)
            for first, last in _runs(of_column):
                body += source.range(first.offset, last.offset + last.size)
            check_pages(body, chunk_starts, self.rows(group))
            size = len(body) - chunk_starts
            column = {
                1: about[1], 2: about[2], 3: about[3], 4: about.get(4, 0), 5: rows[name], 6: about[6], 7: size,
                9: data_starts, **({11: chunk_starts} if data_starts > chunk_starts else {}),
            }  # fmt: skip
            metadata = to_struct(column, _COLUMN_TYPES)
            chunks.append(to_struct({2: chunk_starts, 3: metadata}, {2: TO_I64, 3: TO_RAW_STRUCT}))
            total += size
        most = max(rows.values())
        group_bytes = to_struct({1: chunks, 2: total, 3: most}, {1: to_list(TO_RAW_STRUCT), 2: TO_I64, 3: TO_I64})
        root = to_struct({4: b"root", 5: len(pages)}, {4: TO_BINARY, 5: TO_I32})
        schema = [root, *(self._elements[name] for name in pages)]
        whole = {1: 1, 2: schema, 3: most, 4: [group_bytes]}
        kinds = {1: TO_I32, 2: to_list(TO_RAW_STRUCT), 3: TO_I64, 4: to_list(TO_RAW_STRUCT)}
        if self._created_by is not None:
            whole[6], kinds[6] = self._created_by, TO_BINARY
        footer = to_struct(whole, kinds)
        body += footer + binary.pack("<I", len(footer)) + MAGIC
        return body


_COLUMN_TYPES = {
    1: TO_I32, 2: to_list(TO_I32), 3: to_list(TO_BINARY), 4: TO_I32, 5: TO_I64, 6: TO_I64, 7: TO_I64, 9: TO_I64,
    11: TO_I64,
}  # fmt: skip


def take(values: Any, positions: Any) -> Any:
    """Return some rows of an Arrow column or table; those that follow each other, and are most, are not copied.

    :param positions: of the rows, as a numpy array, ascending, each once.
    """
    # A part that is not copied keeps the memory of the whole.
    is_run = len(positions) and positions[-1] - positions[0] + 1 == len(positions)
    if is_run and len(positions) >= _MAX_SHARE_OF_ROWS * len(values):
        return values.slice(int(positions[0]), len(positions))
    if hasattr(values, "columns"):
        return type(values).from_arrays([take(column, positions) for column in values.columns], schema=values.schema)
    return _taken_by_chunk(values, positions) if values.num_chunks > 1 else values.take(positions)


def _taken_by_chunk(column: Any, positions: Any) -> Any:
    """Return some rows of a column in several chunks, of each by itself.

    Arrow would copy the whole into one chunk first, which fails where its texts have more than two gigabytes.
    """
    import numpy as np
    import pyarrow as pa

    taken, start = [], 0
    for chunk in column.chunks:
        first, end = np.searchsorted(positions, (start, start + len(chunk)))
        if first < end:
            taken.append(chunk.take(pa.array(positions[first:end] - start)))
        start += len(chunk)
    return pa.chunked_array(taken, type=column.type)


def _part(source: RangedFile, start: int, size: int) -> bytes:
    """Return a part of a page index: where it is in the end of the file, the others are fetched with it."""
    if start >= source.size - TAIL_BYTES:
        source.tail(TAIL_BYTES)
    return source.range(start, start + size)


def _element(data: bytes, position: int) -> tuple[tuple[dict[int, Any], bytes], int]:
    """Read an element of the schema, with its bytes."""
    element, end = _ELEMENT.kind[1](data, position)
    return (element, data[position:end]), end


_ELEMENT = Struct({3: I32, 4: BINARY, 5: I32}, required=(4,))
_COLUMN = Struct(
    {1: I32, 2: list_of(I32), 3: list_of(BINARY), 4: I32, 5: I64, 6: I64, 7: I64, 9: I64, 11: I64},
    required=(1, 2, 3, 4, 5, 6, 7, 9),
)
_CHUNK = Struct({3: _COLUMN.kind, 4: I64, 5: I32, 6: I64, 7: I32}, required=(3,))
_ROW_GROUP = Struct({1: list_of(_CHUNK.kind), 3: I64}, required=(1, 3))
_FOOTER = Struct({2: list_of(((12,), _element)), 4: list_of(_ROW_GROUP.kind), 6: BINARY}, required=(2, 4))
_LOCATION = Struct({1: I64, 2: I32, 3: I64}, required=(1, 2, 3))
_OFFSET_INDEX = Struct({1: list_of(_LOCATION.kind)}, required=(1,))
_COLUMN_INDEX = Struct({1: list_of(BOOL), 2: list_of(BINARY), 3: list_of(BINARY)}, required=(1, 2, 3))


def _decoder(kind: str, physical: int | None) -> Callable[[bytes], Any] | None:
    """Return what reads a bound of the page index; ``None`` for types whose bounds are not looked at."""
    if physical == 1 and kind in ("tinyint", "smallint", "int"):
        return lambda data: binary.unpack("<i", data)[0]
    if physical == 2 and kind == "bigint":
        return lambda data: binary.unpack("<q", data)[0]
    if physical == 1 and kind == "date":
        return lambda data: dt.date.fromordinal(_EPOCH + binary.unpack("<i", data)[0])
    if physical == 6 and kind == "string":
        return lambda data: data.decode()
    return None


def _bounds(decode: Callable[[bytes], Any], null: bool, low: bytes, high: bytes) -> Bounds | None:
    if null:
        return Bounds(None, 0)
    try:
        return Bounds(None, None, decode(low), decode(high))
    except (ValueError, OverflowError, binary.error):  # a year or a text that Python does not know
        return None


def _runs(pages: Sequence[_Page]) -> list[tuple[_Page, _Page]]:
    """Return the first and the last of pages that follow each other."""
    runs: list[tuple[_Page, _Page]] = []
    for page in pages:
        if runs and runs[-1][1].offset + runs[-1][1].size == page.offset:
            runs[-1] = (runs[-1][0], page)
        else:
            runs.append((page, page))
    return runs
