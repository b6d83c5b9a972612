"""Thrift's compact protocol as far as the headers of Parquet's pages need it, and what a Parquet file would become.

A few hundred bytes of Parquet can declare a billion rows, and a page of a few kilobytes can become gigabytes. The sizes
in the footer need not be true; a page's own header is what its reader makes room by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spark_apps.storage.errors import LogDamaged

_DATA_HEADERS = {0: (5, 2), 3: (8, 4)}
"""Type of a page with values -> the field of its header on them, and in that the field of their encoding."""
_DICTIONARY_PAGE, _OF_DICTIONARY = 2, 7
# Of these a page holds no more than its size allows: plain values, and numbers of values of a dictionary. In others a
# byte repeats a long text.
_ENCODINGS = (0, 2, 8)
_MOST_OF_A_KIND = 100_000  # row groups, columns: what a footer lists


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
    import pyarrow.parquet as pq

    try:
        # Not `read_table`, which brings in pyarrow's datasets, and these pandas: most of a second in each process.
        source = pa.BufferReader(body)
        if repeated is None:
            repeated = _with_dictionary(pq.ParquetFile(source, thrift_container_size_limit=_MOST_OF_A_KIND).metadata)
        opened = pq.ParquetFile(source, read_dictionary=list(repeated), thrift_container_size_limit=_MOST_OF_A_KIND)
        if opened.metadata.num_rows > rows:
            raise OSError(f"it has {opened.metadata.num_rows:,} rows, and may have {rows:,}")
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
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = (group.column(index) for group in groups for index in range(group.num_columns))
    return sorted({column.path_in_schema for column in columns if column.has_dictionary_page})


def _unpacked(body: bytes, metadata: Any, repeated: frozenset[str]) -> int:
    """Return the bytes of all pages, unpacked, according to the headers of the pages.

    :raises OSError: if the pages are not plain.
    """
    total = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows < 0:
            raise OSError("a row group has less than no rows")
        for index in range(group.num_columns if group.num_rows else 0):  # of no rows there are no pages
            column = group.column(index)
            described = metadata.schema.column(index)
            if described.max_repetition_level or described.max_definition_level > 1:
                raise OSError(f"the column {described.path!r} is nested")
            start, there = column.data_page_offset, column.dictionary_page_offset
            start = there if there and there < start else start
            pages = _Pages(body, group.num_rows, described.path if described.path in repeated else None)
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
            header, position = struct(self.body, position)
            kind, unpacked, packed = header.get(1), header.get(2, -1), header.get(3, -1)
            if unpacked < 0 or packed < 0 or position + packed > end:
                raise OSError("a page ends behind its column")
            self._check(kind, header, unpacked)
            total += max(unpacked, packed)
            position += packed
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


# --- Thrift's compact protocol ----------------------------------------------------------------------------------------


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
    number, position = varint(data, position)
    return (number >> 1) ^ -(number & 1), position


def _binary(data: bytes, position: int) -> tuple[bytes, int]:
    length, position = varint(data, position)
    return data[position : position + length], position + length


def struct(data: bytes, position: int) -> tuple[dict[int, Any], int]:
    """Return field id -> value, and where the bytes of the struct end.

    :raises OSError: if this is no such struct.
    """
    fields: dict[int, Any] = {}
    field = 0
    try:
        while True:
            byte = data[position]
            position += 1
            if not byte:
                return fields, position
            kind, step = byte & 0x0F, byte >> 4
            if step:
                field += step
            else:
                field, position = _integer(data, position)
            if kind in (1, 2):
                fields[field] = kind == 1
            else:
                fields[field], position = _READ[kind](data, position)
    except (IndexError, KeyError) as error:
        raise OSError("the header of a page cannot be read") from error


def _list(data: bytes, position: int) -> tuple[list[Any], int]:
    head = data[position]
    position += 1
    size, kind = head >> 4, head & 0x0F
    if size == 15:
        size, position = varint(data, position)
    if size > len(data):
        raise IndexError("a list with more elements than there are bytes")
    values = []
    for _ in range(size):
        if kind in (1, 2):
            value, position = data[position] == 1, position + 1
        else:
            value, position = _READ[kind](data, position)
        values.append(value)
    return values, position


_READ: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    3: lambda data, position: (data[position], position + 1),
    4: _integer,
    5: _integer,
    6: _integer,
    8: _binary,
    9: _list,
    12: struct,
}
