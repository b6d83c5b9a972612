"""Pages of Parquet files: plain ones read as one numpy array, and those of index files checked by their checksums.

The index writes unique keys plain, without a dictionary: a page of keys of one length, or of integers, is an array as
it stands. Arrow copies each value of it, which takes longer than all the rest of a lookup. What is not such a page
(other encodings, nulls, keys of several lengths) is left to Arrow. Pages are compared with their checksums, as Arrow
does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from spark_apps.engine.spark_utils import cores, inline
from spark_apps.mergetree.blocks import access_options, on_driver_alone, open_blocks
from spark_apps.mergetree.integrity import Identity, identity_of
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.parquet.files import column_chunk
from spark_apps.storage.parquet.headers import MOST_PAGE_BYTES, page_header
from spark_apps.storage.parquet.thrift import varint
from spark_apps.timeline.files import DataFile

_DATA_PAGE = 0
_PLAIN = 0
_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "BROTLI": "brotli"}
# Of a page without nulls: the levels' own length, one run of them, and the length of the first value.
_LEVELS_AND_LENGTH = 14
_INTEGERS = {"INT32": "<i4", "INT64": "<i8"}


class NotPlain(Exception):
    """A column that holds other pages than this module reads."""


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
    def of(cls, metadata: Any, group: int, index: int) -> Chunk:
        """Return the column at an index of a row group, from :class:`pyarrow.parquet.FileMetaData`.

        :raises NotPlain: if it is known from the footer that it cannot be read here.
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
            first += header.rows
        return pages

    def headers(self, data: bytes) -> list[PageHeader]:
        """Return the headers of the pages in the bytes from ``start`` to ``end``.

        :raises NotPlain: if a page is of another kind or encoding.
        :raises OSError: if they are cut.
        """
        headers, position, rows = [], 0, 0
        while position < len(data):
            header, body, position = page_header(data, position)
            data_header = header.get(5)
            if header[1] != _DATA_PAGE or data_header is None or data_header[2] != _PLAIN:
                raise NotPlain
            if header[2] > MOST_PAGE_BYTES:
                raise OSError(f"a page of it would have {header[2]:,} bytes")
            headers.append(PageHeader(body, position, data_header[1], header[2], header.get(4)))
            rows += data_header[1]
        if rows != self.rows:
            raise OSError(f"its pages hold {rows} values, the footer says {self.rows}")
        return headers


class PageHeader(NamedTuple):
    """The header of a page: where in its column the bytes of the page lie, and how many rows they hold."""

    start: int
    end: int
    rows: int
    size: int
    crc: int | None


@dataclass(frozen=True)
class Page:
    """A page: the rows of its row group that it holds, from ``first`` on, and its bytes as they are stored."""

    chunk: Chunk
    first: int
    header: PageHeader
    stored: memoryview

    @property
    def rows(self) -> int:
        return self.header.rows

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
    # One run, of so many ones: every row has a value. Anything else may hold a null.
    if run & 1 or run >> 1 < rows or length != end + 1 or raw[4 + end] != 1:
        raise NotPlain
    return 4 + length


# --- Checksums of pages -----------------------------------------------------------------------------------------------


DRIVER_BYTES = 256 * 1024 * 1024
"""So many bytes of pages are read by the driver, more by a Spark job."""

_THREADS = 4
"""Reading pages is work for a core, and each reader holds a column chunk."""

_BATCH_ROWS = 65_536
_MAX_REMEMBERED = 200_000
_REQUEST_COLUMNS = "file int, path string, size bigint, rows bigint, columns array<string>"

_UNDAMAGED: dict[tuple[str, str, Identity | None], frozenset[str]] = {}
"""Files, and those of their columns whose pages were found undamaged."""


@dataclass(frozen=True)
class Pages:
    """The pages of some columns of a file, with their ``bytes``, about.

    ``bytes``: how many these are, about.
    """

    file: DataFile
    columns: frozenset[str]
    bytes: int


def damaged_pages(snapshot: Snapshot, page_sets: Sequence[Pages]) -> dict[str, str]:
    """Return path -> fault, of the files in which a page of these columns is damaged.

    Pages that were found undamaged in this process are not read again. The files must have passed
    :func:`~spark_apps.mergetree.integrity.check_intact`.
    """
    unchecked = [pages for pages in page_sets if pages.columns - _UNDAMAGED.get(_key(snapshot, pages), frozenset())]
    requests = [
        {
            "file": number,
            "path": snapshot.store.spark_path(pages.file.path),
            "size": pages.file.bytes,
            "rows": pages.file.rows,
            "columns": sorted(pages.columns - _UNDAMAGED.get(_key(snapshot, pages), frozenset())),
        }
        for number, pages in enumerate(unchecked)
    ]
    options = access_options(snapshot)
    if sum(pages.bytes for pages in unchecked) <= DRIVER_BYTES or on_driver_alone(snapshot):
        with ThreadPoolExecutor(_THREADS) as pool:
            faults = dict(enumerate(pool.map(lambda request: fault_of(request, options), requests)))
    else:
        faults = _by_spark(snapshot, requests, options)
    if len(_UNDAMAGED) > _MAX_REMEMBERED:
        _UNDAMAGED.clear()
    for number, pages in enumerate(unchecked):
        if faults[number] is None:
            key = _key(snapshot, pages)
            _UNDAMAGED[key] = _UNDAMAGED.get(key, frozenset()) | pages.columns
    return {unchecked[number].file.path: fault for number, fault in faults.items() if fault is not None}


def _key(snapshot: Snapshot, pages: Pages) -> tuple[str, str, Identity | None]:
    return snapshot.store.uri, pages.file.path, identity_of(snapshot, pages.file.path)


def _by_spark(
    snapshot: Snapshot, requests: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> dict[int, str | None]:
    def check(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for request in batch.to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"file": pa.array([request["file"]], pa.int32()), "fault": pa.array([fault_of(request, options)])},
                    schema=pa.schema([("file", pa.int32()), ("fault", pa.string())]),
                )

    rows = [[request[name.split()[0]] for name in _REQUEST_COLUMNS.split(", ")] for request in requests]
    distributed = inline(snapshot.spark, rows, _REQUEST_COLUMNS).repartition(min(len(rows), 4 * cores(snapshot.spark)))
    faults = distributed.mapInArrow(check, "file int, fault string").collect()
    return {row.file: row.fault for row in faults}


def fault_of(request: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the pages of some columns of a file; ``None`` if nothing is.

    :param request: ``path`` and ``size`` of the file, ``rows`` that it has, ``columns`` to read.
    """
    import pyarrow as pa

    try:
        reader, _ = open_blocks("parquet", request["path"], request["size"], options)
        rows = sum(
            batch.num_rows
            for batch in reader.iter_batches(_BATCH_ROWS, columns=list(request["columns"]), use_threads=False)
        )
    except (pa.ArrowException, OSError) as error:
        return str(error).strip().split("\n")[0] or repr(error)
    return None if rows == request["rows"] else f"it has {rows:,} rows, the log says {request['rows']:,}"
