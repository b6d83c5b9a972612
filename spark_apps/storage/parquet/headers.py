"""The headers of Parquet's pages, and what a Parquet file of this package would become in memory.

A few hundred bytes of Parquet can declare a billion rows, and a page of a few kilobytes can become gigabytes. The sizes
in the footer need not be true; a page's own header is what its reader makes room by.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from spark_apps.storage.errors import LogDamaged
from spark_apps.storage.limits import MAX_PAGE_BYTES, UNPACKED_BYTES, UNPACKED_BYTES_PER_BYTE
from spark_apps.storage.parquet.files import chunk_range, column_chunks, group_rows, open_file, read_footer
from spark_apps.storage.parquet.thrift import BOOL, I32, Struct

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_SAID = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}
"""Type of a page -> the field of its header on its values, and in that the field of their encoding."""
PLAIN, _OLD_DICTIONARY, _DELTA_TEXTS, _BY_DICTIONARY = 0, 2, 7, 8

_PAGE = Struct(
    {1: I32, 2: I32, 3: I32, 4: I32, 5: Struct({1: I32, 2: I32}, required=(1, 2)).kind,
     7: Struct({1: I32, 2: I32}, required=(1, 2)).kind,
     8: Struct({1: I32, 2: I32, 3: I32, 4: I32, 5: I32, 6: I32, 7: BOOL}, required=(1, 2, 3, 4)).kind},
    required=(1, 2, 3),
)  # fmt: skip


class PageHeader(NamedTuple):
    """The header of a page.

    :param type: of the page, as Parquet numbers them. :param start: where its bytes begin, :param end: and end.
    :param size: its bytes, unpacked. :param values: that it holds; ``None`` if its header says nothing of them.
    :param encoding: of these. :param crc: the checksum of its bytes, if it has one.
    """

    type: int
    start: int
    end: int
    size: int
    values: int | None
    encoding: int | None
    crc: int | None

    @property
    def is_dictionary(self) -> bool:
        return self.type == _DICTIONARY

    @property
    def is_data(self) -> bool:
        return self.type in (_DATA, _DATA_V2)

    @property
    def is_plain(self) -> bool:
        """True for a page of the first version whose values are in the encoding PLAIN."""
        return self.type == _DATA and self.encoding == PLAIN

    @property
    def most_bytes(self) -> int:
        """The bytes that are taken by the page, unpacked or not."""
        return max(self.size, self.end - self.start)


def page_headers(data: Any, start: int = 0, end: int | None = None) -> Iterator[PageHeader]:
    """Yield the headers of the pages in some bytes.

    :raises OSError: if there is none, or a page ends behind them.
    """
    position, end = start, len(data) if end is None else end
    while position < end:
        header, begin = _PAGE.read(data, position)
        position = begin + header[3]
        counts = (header[field][1] for field in (5, 7, 8) if field in header)
        if header[2] < 0 or header[3] < 0 or min(counts, default=0) < 0:
            raise OSError("a page has a number of values or bytes below zero")
        if position > min(end, len(data)):
            raise OSError("a page ends behind its column")
        field, encoding = _SAID.get(header[1], (0, 0))
        said = header.get(field, {})
        yield PageHeader(header[1], begin, position, header[2], said.get(1), said.get(encoding), header.get(4))


def check_pages(data: bytes | bytearray, start: int, rows: int, most: int = MAX_PAGE_BYTES) -> None:
    """Check the pages of a flat column, which end with the data.

    :param rows: that each may have. :param most: bytes that each may take, unpacked.
    :raises OSError: if one is larger, or is none.
    """
    for page in page_headers(data, start):
        values = page.values or 0 if page.is_data else 0
        if page.size > most or values > rows:
            raise OSError(f"a page of it would have {values:,} values and {page.size:,} bytes")


# --- files of any columns, whose values are bounded -------------------------------------------------------------------

_UNBOUNDED = (_DELTA_TEXTS,)
"""Encodings by which a few bytes repeat a long text: none of this package's writers uses them."""
_NUMBERS_OF_VALUES = (_OLD_DICTIONARY, _BY_DICTIONARY)
"""Encodings of numbers of values of a dictionary."""


def allowance(size: int) -> int:
    """Return how many bytes may be made of a file of ``size`` bytes."""
    return UNPACKED_BYTES + UNPACKED_BYTES_PER_BYTE * size


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
                start, end = chunk_range(chunk)
                width = metadata.schema.column(index).length
                self._chunks[start, end - start] = chunk.physical_type, chunk.compression, width

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
    total, longest = 0, 0
    for page in page_headers(data):
        total += page.most_bytes
        if total > most:
            break
        if page.is_dictionary:
            longest = _longest(data[page.start : page.end], page.size, physical, codec, width)
        elif page.is_data:
            if page.values is None or page.encoding in _UNBOUNDED:
                raise OSError("a page is not one that this package writes")
            total += page.values * (longest + 8 if page.encoding in _NUMBERS_OF_VALUES else 8)
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
"""The longest value of a dictionary up to this many bytes is not looked for: it is taken to have all of them."""


# --- small files, all of whose pages are looked at --------------------------------------------------------------------


def open_parquet(body: bytes, what: str, *, rows: int, size: int, repeated: Sequence[str] | None = None) -> Any:
    """Open a small Parquet file of this package as a :class:`pyarrow.parquet.ParquetFile` of bounded size.

    :param what: names it, for errors.
    :param rows: that it may have.
    :param size: bytes that all its pages may have, unpacked.
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
            start, end = chunk_range(column)
            if not 0 < start <= end <= len(body):
                raise OSError("a column is outside of the file")
            for page in page_headers(body, start, end):
                if not _is_bounded(page, rows, described.path in repeated):
                    raise OSError("a page is not one that this package writes")
                total += page.most_bytes
    return total


def _is_bounded(page: PageHeader, rows: int, repeated: bool) -> bool:
    """Test whether a page holds no more than its size allows, and no more values than there are rows."""
    if page.values is None or page.encoding not in _BOUNDED:
        return False
    return page.values <= rows if page.is_data else repeated and page.is_dictionary and page.values <= page.size


_BOUNDED = (PLAIN, _OLD_DICTIONARY, _BY_DICTIONARY)
"""Encodings of plain values, and of numbers of values of a dictionary. In others a byte repeats a long text."""
