"""The headers of Parquet's pages, and what a Parquet file of this package would become in memory.

A few hundred bytes of Parquet can declare a billion rows, and a page of a few kilobytes can become gigabytes. The sizes
in the footer need not be true; a page's own header is what its reader makes room by.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from spark_apps.storage.errors import LogDamaged
from spark_apps.storage.parquet.files import column_chunks, group_rows, open_file, read_footer
from spark_apps.storage.parquet.thrift import BOOL, I32, Struct

_DATA_HEADERS = {0: (5, 2), 3: (8, 4)}
"""Type of a page with values -> the field of its header on them, and in that the field of their encoding."""
_DICTIONARY_PAGE, _OF_DICTIONARY = 2, 7
# Of these a page holds no more than its size allows: plain values, and numbers of values of a dictionary. In others a
# byte repeats a long text.
_ENCODINGS = (0, 2, 8)

_PAGE = Struct(
    {1: I32, 2: I32, 3: I32, 4: I32, 5: Struct({1: I32, 2: I32}, required=(1, 2)).kind,
     7: Struct({1: I32, 2: I32}, required=(1, 2)).kind,
     8: Struct({1: I32, 2: I32, 3: I32, 4: I32, 5: I32, 6: I32, 7: BOOL}, required=(1, 2, 3, 4)).kind},
    required=(1, 2, 3),
)  # fmt: skip


def page_header(data: Any, position: int) -> tuple[dict[int, Any], int, int]:
    """Return the header of a page (field id -> value), and where the bytes of the page begin and end.

    :raises OSError: if this is no header, or the page ends behind the data.
    """
    header, start = _PAGE.read(data, position)
    end = start + header[3]
    counts = (header[field][1] for field in (5, 7, 8) if field in header)
    if header[2] < 0 or header[3] < 0 or min(counts, default=0) < 0:
        raise OSError("a page has a number of values or bytes below zero")
    if end > len(data):
        raise OSError("a page ends behind its column")
    return header, start, end


MOST_PAGE_BYTES = 256 << 20
"""Of a page, unpacked: writers make pages of a megabyte, or of a whole column of a row group."""


def check_pages(data: bytes | bytearray, start: int, end: int, rows: int, most: int = MOST_PAGE_BYTES) -> int:
    """Check the pages of a flat column, and return how many bytes they become.

    :param rows: that each has at most. :param most: bytes that each becomes at most.
    :raises OSError: if one is larger, or is none.
    """
    total = 0
    while start < end:
        header, begin, start = page_header(data, start)
        values = [header[field][1] for field in (5, 8) if field in header]
        if header[2] > most or (values and max(values) > rows):
            raise OSError(f"a page of it would have {max(values, default=0):,} values and {header[2]:,} bytes")
        total += max(header[2], start - begin)
    if start > end:
        raise OSError("a page ends behind its column")
    return total


# --- files of any columns, whose values are bounded -------------------------------------------------------------------

SMALL_BYTES, MOST_TIMES = 32 << 20, 1_000
"""What is read of a file may become so many bytes, and so many for each byte that the file has."""
_UNBOUNDED = (7,)
"""Encodings by which a few bytes repeat a long text: none of this package's writers uses them."""
_BY_DICTIONARY = (2, 8)


def allowance(size: int) -> int:
    """Return how many bytes may be made of a file of ``size`` bytes."""
    return SMALL_BYTES + MOST_TIMES * size


def open_bounded(source: Any, metadata: Any = None, **options: Any) -> Any:
    """Open a file of this package as :func:`~spark_apps.storage.parquet.files.open_file` does, with an end to its size.

    Each column of a row group is looked at when Arrow fetches it: its pages say what they become. More than is allowed
    for a file of its size is an error of the reading, and takes no memory.
    """
    import pyarrow as pa

    if metadata is None:
        metadata = read_footer(source)
    file = pa.PythonFile(_BoundedFile(source, metadata), mode="r")
    return open_file(source, metadata, opened=file, **options)


class _BoundedFile(io.RawIOBase):
    """A Parquet file that is read by Arrow, of which each column of a row group is checked before it is handed on."""

    def __init__(self, source: Any, metadata: Any) -> None:
        super().__init__()
        ranged = hasattr(source, "tail")
        self._file: Any = source if ranged else io.BytesIO(source)
        self._left = allowance(source.size if ranged else len(source))
        self._chunks: dict[tuple[int, int], tuple[str, str, int]] = {}
        for number in range(metadata.num_row_groups):
            for index, chunk in enumerate(column_chunks(metadata, number)):
                start, there = chunk.data_page_offset, chunk.dictionary_page_offset or 0
                start = there if 0 < there < start else start
                width = metadata.schema.column(index).length
                self._chunks[start, chunk.total_compressed_size] = chunk.physical_type, chunk.compression, width

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        start = self._file.tell()
        data: bytes = self._file.read(size)
        known = self._chunks.get((start, size))
        if known is None:
            if size > _LENGTH_OF_A_MARK:
                raise OSError("its columns are not read one by one, and cannot be checked")
        else:
            self._left -= _bytes_of_pages(data, *known, self._left)
        return data


_LENGTH_OF_A_MARK = 8


def _bytes_of_pages(data: bytes, physical: str, codec: str, width: int, most: int) -> int:
    """Return about how many bytes the values of a column of a row group become.

    :raises OSError: if they are more than ``most``, or the pages cannot be read.
    """
    total = position = 0
    longest: int | None = None
    while position < len(data):
        header, start, position = page_header(data, position)
        unpacked = header[2]
        total += max(unpacked, position - start)
        if total > most:
            break
        if header[1] == _DICTIONARY_PAGE:
            longest = _longest(data[start:position], unpacked, physical, codec, width)
        elif header[1] in _DATA_HEADERS:
            field, encoding = _DATA_HEADERS[header[1]]
            if field not in header or header[field][encoding] in _UNBOUNDED:
                raise OSError("a page is not one that this package writes")
            by_dictionary = header[field][encoding] in _BY_DICTIONARY
            total += header[field][1] * ((longest or 0) + 8 if by_dictionary else 8)
        if total > most:
            break
    if total > most:
        raise OSError(f"a column of it would take {total:,} bytes in memory, and may take {most:,}")
    return total


def _longest(page: bytes, unpacked: int, physical: str, codec: str, width: int) -> int:
    """Return the bytes of the longest value of a dictionary."""
    if physical != "BYTE_ARRAY":
        return width if physical == "FIXED_LEN_BYTE_ARRAY" else 12
    if unpacked <= _SHORT_DICTIONARY:
        return unpacked
    import pyarrow as pa

    if codec != "UNCOMPRESSED":
        page = pa.Codec(codec.lower()).decompress(page, unpacked, asbytes=True)
    longest = position = 0
    while position + 4 <= len(page):
        length = int.from_bytes(page[position : position + 4], "little")
        longest, position = max(longest, length), position + 4 + length
    return min(longest, len(page))


_SHORT_DICTIONARY = 256
"""Of so many bytes the whole is taken for its longest value."""


# --- small files, all of whose pages are looked at --------------------------------------------------------------------


def open_parquet(body: bytes, what: str, *, rows: int, size: int, repeated: Sequence[str] | None = None) -> Any:
    """Open a small Parquet file of this package as a :class:`pyarrow.parquet.ParquetFile` of bounded size.

    :param what: names it, for errors.
    :param rows: at most so many.
    :param size: of all pages, unpacked, in bytes.
    :param repeated: columns to be read as codes into a dictionary, those that have one if not given: a value that is
        repeated then takes memory once. No other column may have a dictionary.
    :raises LogDamaged: if it is no such file, or larger.
    """
    import pyarrow as pa

    try:
        metadata = read_footer(body)
        if repeated is None:
            repeated = _with_dictionary(metadata)
        opened = open_file(body, metadata, read_dictionary=list(repeated))
        if (said := max(metadata.num_rows, sum(group_rows(metadata)))) > rows:
            raise OSError(f"it has {said:,} rows, and may have {rows:,}")
        if (unpacked := _unpacked(body, opened.metadata, frozenset(repeated))) > size:
            raise OSError(f"it would take {unpacked:,} bytes in memory, and may take {size:,}")
    except KeyError as error:
        raise LogDamaged(f"{what} cannot be read: it has no column {_text(error.args[0])!r}.") from error
    except (pa.ArrowException, OSError, RecursionError) as error:
        raise LogDamaged(f"{what} cannot be read: {str(error) or type(error).__name__}.") from error
    return opened


def _text(name: Any) -> str:
    """Return a column's name as the library gives it."""
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _with_dictionary(metadata: Any) -> list[str]:
    """Return the columns that have a dictionary, according to the footer."""
    columns = (column for number in range(metadata.num_row_groups) for column in column_chunks(metadata, number))
    return sorted({column.path_in_schema for column in columns if column.has_dictionary_page})


def _unpacked(body: bytes, metadata: Any, repeated: frozenset[str]) -> int:
    """Return the bytes of all pages, unpacked, according to the headers of the pages.

    :raises OSError: if the pages are not plain.
    """
    total = 0
    for number, rows in enumerate(group_rows(metadata)):
        if not rows:
            continue  # there are no pages
        for index, column in enumerate(column_chunks(metadata, number)):
            described = metadata.schema.column(index)
            if described.max_repetition_level or described.max_definition_level > 1:
                raise OSError(f"the column {described.path!r} is nested")
            start, there = column.data_page_offset, column.dictionary_page_offset
            start = there if there and there < start else start
            pages = _Pages(body, rows, described.path if described.path in repeated else None)
            total += pages.walk(start, start + column.total_compressed_size)
    return total


class _Pages:
    """The pages of a column of a row group."""

    def __init__(self, body: bytes, rows: int, repeated: str | None) -> None:
        self.body, self.rows, self.repeated = body, rows, repeated

    def walk(self, start: int, end: int) -> int:
        """Return how many bytes the pages become.

        :raises OSError: if a header is not that of a page in this column.
        """
        if not 0 < start <= end <= len(self.body):
            raise OSError("a column lies outside of the file")
        total, position = 0, start
        while position < end:
            header, begin, position = page_header(self.body, position)
            if position > end:
                raise OSError("a page ends behind its column")
            self._check(header[1], header, header[2])
            total += max(header[2], position - begin)
        return total

    def _check(self, kind: int | None, header: dict[int, Any], unpacked: int) -> None:
        if kind == _DICTIONARY_PAGE:
            fields = header.get(_OF_DICTIONARY, {})
            fits = self.repeated is not None and 0 <= fields.get(1, -1) <= unpacked and fields.get(2) in _ENCODINGS
        elif kind in _DATA_HEADERS:
            field, encoding = _DATA_HEADERS[kind]
            fields = header.get(field, {})
            fits = 0 <= fields.get(1, -1) <= self.rows and fields.get(encoding) in _ENCODINGS
        else:
            fits = False
        if not fits:
            raise OSError("a page is not one that this package writes")
