"""Reads a column of plain Parquet pages as one numpy array, without making a value of each.

The index writes unique keys plain, without a dictionary: a page of keys of one length, or of integers, is an array as
it stands. Arrow copies each value of it, which takes longer than all the rest of a lookup. What is not such a page
(other encodings, nulls, keys of several lengths) is left to Arrow. Pages are held against their checksums, as Arrow
does.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from spark_apps.storage.page_headers import struct, varint

_DATA_PAGE = 0
_PLAIN = 0
_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "BROTLI": "brotli"}
# Of a page without nulls: the levels' own length, one run of them, and the length of the first value.
_LEVELS_AND_LENGTH = 14
_INTEGERS = {"INT32": "<i4", "INT64": "<i8"}


class NotPlain(Exception):
    """The column holds other pages than this module reads."""


@dataclass(frozen=True)
class Chunk:
    """A column of a row group: where its pages lie in the file, and what they hold.

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
    def of(cls, metadata: Any, group: int, place: int) -> Chunk:
        """The column at ``place`` of a row group, from :class:`pyarrow.parquet.FileMetaData`.

        :raises NotPlain: if it is known from the footer that it cannot be read here.
        """
        column, described = metadata.row_group(group).column(place), metadata.schema.column(place)
        physical, codec = column.physical_type, column.compression
        known = physical in _INTEGERS or physical == "BYTE_ARRAY"
        if (
            not known
            or (codec != "UNCOMPRESSED" and codec not in _CODECS)
            or column.dictionary_page_offset  # None, or 0 of some writers, where there is none
            or described.max_repetition_level
            or described.max_definition_level > 1
        ):
            raise NotPlain
        start = column.data_page_offset
        optional = described.max_definition_level == 1
        return cls(start, start + column.total_compressed_size, physical, codec, optional, column.num_values)

    def pages(self, data: bytes, first: int = 0) -> list[Page]:
        """The pages in the bytes from ``start`` to ``end``; their rows are numbered from ``first`` on.

        :raises NotPlain: :raises OSError: if they are cut.
        """
        found, position, rows = [], 0, 0
        while position < len(data):
            header, body = struct(data, position)
            told = header.get(5)
            if header.get(1) != _DATA_PAGE or told is None or told[2] != _PLAIN:
                raise NotPlain
            position = body + header[3]
            if position > len(data):
                raise OSError("a page ends behind its column")
            found.append(Page(self, first + rows, told[1], header[2], header.get(4), memoryview(data)[body:position]))
            rows += told[1]
        if rows != self.rows:
            raise OSError(f"its pages hold {rows} values, the footer says {self.rows}")
        return found


@dataclass(frozen=True)
class Page:
    """A page: its place among the rows of its row group, and its bytes as they are stored."""

    chunk: Chunk
    first: int
    rows: int
    size: int
    crc: int | None
    stored: memoryview

    @cached_property
    def _intact(self) -> memoryview:
        """The stored bytes, once they were held against their checksum."""
        if self.crc is not None and zlib.crc32(self.stored) != self.crc & 0xFFFFFFFF:
            raise OSError("could not verify page integrity, CRC checksum verification failed")
        return self.stored

    @cached_property
    def values(self) -> Any:
        """The values as a numpy array: integers, or bytes (``S…``) that all have the same length.

        :raises NotPlain: if there are nulls, or strings of several lengths. :raises OSError: if the page is damaged.
        """
        import numpy as np
        import pyarrow as pa

        data: Any = self._intact
        if self.chunk.codec != "UNCOMPRESSED":
            data = _codec(self.chunk.codec).decompress(pa.py_buffer(data), self.size)
        raw = np.frombuffer(data, np.uint8)
        if self.chunk.optional:
            raw = raw[_levels(raw, self.rows) :]
        if self.chunk.physical != "BYTE_ARRAY":
            return _sized(raw, np.dtype(_INTEGERS[self.chunk.physical]), self.rows)
        if not self.rows or len(raw) < 4:
            raise NotPlain
        length = int(raw[:4].view("<u4")[0])
        if not length or len(raw) != self.rows * (4 + length):
            raise NotPlain
        held = _sized(raw, np.dtype([("length", "<u4"), ("value", f"S{length}")]), self.rows)
        if not (held["length"] == length).all():
            raise NotPlain
        return held["value"]

    @property
    def first_value(self) -> Any:
        """The first of the values, without the others where it can be had so. :raises NotPlain: :raises OSError:"""
        if self.chunk.codec != "SNAPPY" or self.chunk.physical != "BYTE_ARRAY" or "values" in self.__dict__:
            return self.values[0]
        import numpy as np

        begin = snappy_begin(self._intact, _LEVELS_AND_LENGTH)
        if len(begin) >= _LEVELS_AND_LENGTH:
            skipped = _levels(np.frombuffer(begin, np.uint8), self.rows) if self.chunk.optional else 0
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
    """The first bytes of what was compressed with Snappy: at least ``size`` of them, or fewer where they are not to be
    had simply."""
    found = bytearray()
    try:
        _, position = varint(stored, 0)
        while len(found) < size:
            tag = stored[position]
            kind, length = tag & 3, tag >> 2
            position += 1
            if kind == 0:
                more = max(0, length - 59)
                if more:
                    length = int.from_bytes(stored[position : position + more], "little")
                position += more
                found += stored[position : position + min(length + 1, size - len(found))]
                position += length + 1
                continue
            if kind == 1:
                length, back = (length & 7) + 3, (tag >> 5) << 8 | stored[position]
            else:
                back = int.from_bytes(stored[position : position + 2 * (kind - 1)], "little")
            position += 2 * (kind - 1) or 1
            if not 0 < back <= len(found):
                return found
            for _ in range(length + 1):
                found.append(found[-back])
    except IndexError:
        return found
    return found


def _sized(raw: Any, kind: Any, rows: int) -> Any:
    if len(raw) != rows * kind.itemsize:
        raise NotPlain  # fewer values than rows: there are nulls
    return raw.view(kind)


def _levels(raw: Any, rows: int) -> int:
    """How long the definition levels at the start of a page are. :raises NotPlain: if they tell of nulls."""
    length = int(raw[:4].view("<u4")[0])
    if not 2 <= length <= 6:
        raise NotPlain
    run, end = varint(bytes(raw[4 : 4 + length]) + b"\0", 0)
    # One run, of so many ones: every row has a value. Anything else may hold a null.
    if run & 1 or run >> 1 < rows or length != end + 1 or raw[4 + end] != 1:
        raise NotPlain
    return 4 + length
