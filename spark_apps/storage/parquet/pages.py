"""Plain pages of Parquet files, each read as one numpy array.

The index writes unique keys plain, without a dictionary: the bytes of a page of integers, or of keys of one length, are
those of an array. Arrow copies each value of it, which takes longer than all the rest of a lookup. What is not such a
page (other encodings, nulls, keys of several lengths) is left to Arrow. Pages are compared with their checksums, as
Arrow does.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from spark_apps.storage.limits import MAX_PAGE_BYTES
from spark_apps.storage.parquet.files import column_chunk
from spark_apps.storage.parquet.headers import PageHeader, page_headers
from spark_apps.storage.parquet.thrift import varint

_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "BROTLI": "brotli"}
# Of a page without nulls: the levels' own length, one run of them, and the length of the first value.
_LEVELS_AND_LENGTH = 14
_INTEGERS = {"INT32": "<i4", "INT64": "<i8"}


class NotPlain(Exception):
    """A column that holds other pages than this module reads."""


@dataclass(frozen=True)
class Chunk:
    """A column of a row group: where its pages are in the file, and what they hold.

    :param physical: Parquet's type, such as ``BYTE_ARRAY``.
    :param optional: whether pages begin with definition levels.
    """

    start: int
    end: int
    physical: str
    codec: str
    optional: bool
    rows: int

    @classmethod
    def of(cls, metadata: Any, group: int, index: int) -> Chunk:
        """Return the column at an index of a row group, from :class:`pyarrow.parquet.FileMetaData`.

        :raises NotPlain: if it is known from the footer that it cannot be read so.
        """
        column, schema = column_chunk(metadata, group, index), metadata.schema.column(index)
        physical, codec = column.physical_type, column.compression
        is_supported = physical in _INTEGERS or physical == "BYTE_ARRAY"
        if (
            not is_supported
            or (codec != "UNCOMPRESSED" and codec not in _CODECS)
            or column.dictionary_page_offset  # None, or 0 of some writers, where there is none
            or schema.max_repetition_level
            or schema.max_definition_level > 1
        ):
            raise NotPlain
        start = column.data_page_offset
        optional = schema.max_definition_level == 1
        return cls(start, start + column.total_compressed_size, physical, codec, optional, column.num_values)

    def pages(self, data: bytes, first: int = 0, headers: Sequence[PageHeader] | None = None) -> list[Page]:
        """Return the pages in the bytes from ``start`` to ``end``; their rows are numbered from ``first`` on.

        :param headers: of these pages, where they were read before.
        :raises NotPlain: if a page is of another kind or encoding.
        :raises OSError: if they are cut.
        """
        view, pages = memoryview(data), []
        for header in self.headers(data) if headers is None else headers:
            pages.append(Page(self, first, header, view[header.start : header.end]))
            first += header.values or 0
        return pages

    def headers(self, data: bytes) -> list[PageHeader]:
        """Return the headers of the pages in the bytes from ``start`` to ``end``.

        :raises NotPlain: if a page is of another kind or encoding.
        :raises OSError: if they are cut.
        """
        headers = []
        for header in page_headers(data):
            if not header.is_plain:
                raise NotPlain
            if header.size > MAX_PAGE_BYTES:
                raise OSError(f"a page of it would have {header.size:,} bytes")
            headers.append(header)
        rows = sum(header.values or 0 for header in headers)
        if rows != self.rows:
            raise OSError(f"its pages hold {rows} values, the footer says {self.rows}")
        return headers


@dataclass(frozen=True)
class Page:
    """A page: the rows of its row group that it holds, from ``first`` on, and its bytes as they are stored."""

    chunk: Chunk
    first: int
    header: PageHeader
    stored: memoryview

    @property
    def rows(self) -> int:
        return self.header.values or 0

    @cached_property
    def _intact(self) -> memoryview:
        """The stored bytes, once they were compared with their checksum."""
        crc = self.header.crc
        if crc is not None and zlib.crc32(self.stored) != crc & 0xFFFFFFFF:
            raise OSError("could not verify page integrity, CRC checksum verification failed")
        return self.stored

    @cached_property
    def values(self) -> Any:
        """The values as a numpy array: integers, or bytes (``S…``) that all have the same length.

        :raises NotPlain: if there are nulls, or strings of several lengths.
        :raises OSError: if the page is damaged.
        """
        try:
            return self._values()
        except (ValueError, IndexError) as error:  # fewer bytes than numbers are made of
            raise OSError("a page of it is cut") from error

    def _values(self) -> Any:
        import numpy as np
        import pyarrow as pa

        data: Any = self._intact
        if self.chunk.codec != "UNCOMPRESSED":
            data = _codec(self.chunk.codec).decompress(pa.py_buffer(data), self.header.size)
        raw = np.frombuffer(data, np.uint8)
        if self.chunk.optional:
            raw = raw[_levels_length(raw, self.rows) :]
        if self.chunk.physical != "BYTE_ARRAY":
            return _fixed_width(raw, np.dtype(_INTEGERS[self.chunk.physical]), self.rows)
        if not self.rows or len(raw) < 4:
            raise NotPlain
        length = int(raw[:4].view("<u4")[0])
        if not length or len(raw) != self.rows * (4 + length):
            raise NotPlain
        fixed = _fixed_width(raw, np.dtype([("length", "<u4"), ("value", f"S{length}")]), self.rows)
        if not (fixed["length"] == length).all():
            raise NotPlain
        return fixed["value"]

    @property
    def first_value(self) -> Any:
        """The first of the values, without the others where that can be.

        :raises NotPlain:
        :raises OSError:
        """
        if self.chunk.codec != "SNAPPY" or self.chunk.physical != "BYTE_ARRAY" or "values" in self.__dict__:
            return self.values[0]
        import numpy as np

        begin = snappy_begin(self._intact, _LEVELS_AND_LENGTH)
        if len(begin) >= _LEVELS_AND_LENGTH:
            skipped = _levels_length(np.frombuffer(begin, np.uint8), self.rows) if self.chunk.optional else 0
            start = skipped + 4
            end = start + int.from_bytes(begin[skipped:start], "little")
            begin = snappy_begin(self._intact, end) if start <= _LEVELS_AND_LENGTH else bytearray()
            if len(begin) >= end:
                return bytes(begin[start:end]).rstrip(b"\0")  # as numpy gives it
        return self.values[0]


@lru_cache
def _codec(name: str) -> Any:
    import pyarrow as pa

    return pa.Codec(_CODECS[name])


def snappy_begin(stored: memoryview, size: int) -> bytearray:
    """Return the first bytes of what was compressed with Snappy.

    At least ``size`` of them, or fewer where they are not to be had simply.
    """
    decompressed = bytearray()
    try:
        _, position = varint(stored, 0)
        while len(decompressed) < size:
            tag = stored[position]
            kind, length = tag & 3, tag >> 2
            position += 1
            if kind == 0:
                more = max(0, length - 59)
                if more:
                    length = int.from_bytes(stored[position : position + more], "little")
                position += more
                decompressed += stored[position : position + min(length + 1, size - len(decompressed))]
                position += length + 1
                continue
            if kind == 1:
                length, back = (length & 7) + 3, (tag >> 5) << 8 | stored[position]
            else:
                back = int.from_bytes(stored[position : position + 2 * (kind - 1)], "little")
            position += 2 * (kind - 1) or 1
            if not 0 < back <= len(decompressed):
                return decompressed
            for _ in range(length + 1):
                decompressed.append(decompressed[-back])
    except IndexError:
        return decompressed
    return decompressed


def _fixed_width(raw: Any, kind: Any, rows: int) -> Any:
    if len(raw) != rows * kind.itemsize:
        raise NotPlain  # fewer values than rows: there are nulls
    return raw.view(kind)


def _levels_length(raw: Any, rows: int) -> int:
    """Return how long the definition levels at the start of a page are.

    :raises NotPlain: if they show nulls.
    """
    length = int(raw[:4].view("<u4")[0])
    if not 2 <= length <= 6:
        raise NotPlain
    run, end = varint(bytes(raw[4 : 4 + length]) + b"\0", 0)
    # One run of ones, as long as the page: every row has a value. Anything else may hold a null.
    if run & 1 or run >> 1 < rows or length != end + 1 or raw[4 + end] != 1:
        raise NotPlain
    return 4 + length
