"""Parquet files that the log lists: held against what it says of them, and their footers kept for the next reader.

The log says how large a file is, how many rows it has and, of one of an index, which footer. A footer is read, checked
and parsed once, and what its readers find out by it is kept with it, in one cache of bounded size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from spark_apps.storage.limits import MAX_CACHED_FOOTER_BYTES, MAX_CACHED_FOOTERS
from spark_apps.storage.parquet.files import (
    chunk_range,
    column_chunk,
    footer_bytes,
    group_rows,
    metadata_of,
    open_file,
    read_columns,
)
from spark_apps.storage.parquet.headers import open_bounded
from spark_apps.storage.parquet.page_index import PageIndex, take
from spark_apps.storage.parquet.pages import Chunk, Page
from spark_apps.storage.parquet.seals import check_footer
from spark_apps.storage.parquet.statistics import flat_columns
from spark_apps.storage.store import ObjectStore, RangedFile, open_by_address, open_key

_T = TypeVar("_T")


class Footer:
    """The footer of a file, which was accepted, and what its readers have found out by it.

    :param data: its bytes, with length and mark. :param size: of the file, in bytes.
    :ivar metadata: what it says, as :class:`pyarrow.parquet.FileMetaData`.
    :raises FooterRefused: if it is none that Arrow can be given. Arrow's own errors are raised as they are.
    """

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.metadata = data, metadata_of(data, size)
        self._found: dict[Hashable, Any] = {}

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The rows of each row group."""
        return group_rows(self.metadata)

    @cached_property
    def flat(self) -> dict[str, int]:
        """The columns with one value a row: name -> number among the leaves."""
        return flat_columns(self.metadata.schema)

    @cached_property
    def pages(self) -> PageIndex:
        """The page index of the file, of which each part is read when it is asked for."""
        return PageIndex(self.data)

    def once(self, what: Hashable, find: Callable[[], _T]) -> _T:
        """Return what is found out by the footer, and find it out once. :param what: names it."""
        if what not in self._found:
            self._found[what] = find()
        return cast("_T", self._found[what])


class _Footers:
    """Footers of files that are never written again, by what names them; those that were read last are kept."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Footer] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._states: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._numbers = count()

    def get(self, key: Hashable, read: Callable[[], Footer]) -> Footer:
        """Return a footer, which is read unless it is kept."""
        found = self._kept.get(key)
        if found is not None:
            return found
        footer = read()
        with self._lock:
            self._forget(key)
            while len(self._kept) >= MAX_CACHED_FOOTERS or (
                self._kept and self._bytes + len(footer.data) > MAX_CACHED_FOOTER_BYTES
            ):
                self._forget(next(iter(self._kept)))
            self._kept[key] = footer
            self._bytes += len(footer.data)
        return footer

    def forget(self, key: Hashable) -> None:
        """Keep a footer no longer, if it is kept."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: Hashable) -> None:
        if key in self._kept:
            self._bytes -= len(self._kept.pop(key).data)

    def number_of(self, state: Any) -> int:
        """Return a number that names an object as long as it lives."""
        with self._lock:
            return self._states.setdefault(state, next(self._numbers))


FOOTERS = _Footers()


class OpenedFile:
    """A file that is open, of which only what is read is fetched.

    :param open_source: opens the file below, once something is fetched of it.
    :param key: names the file, if it is never written again: its footer is kept under it.
    :param rows: that the log says it has; -1 if it does not say. :param extra: what it says beside.
    :param bounded: whether what is read of the file has an end (:mod:`spark_apps.storage.parquet.headers`).
    :param footer: of the file, if the caller holds it: then none is read, whether it is kept or not.
    :param options: of :func:`~spark_apps.storage.parquet.files.open_file`.
    :raises OSError: if its footer is not as the log says, or none that Arrow can be given.
    """

    def __init__(
        self,
        open_source: Callable[[], RangedFile],
        key: Hashable = None,
        rows: int = -1,
        extra: Mapping[str, Any] | None = None,
        bounded: bool = False,
        footer: Footer | None = None,
        **options: Any,
    ) -> None:
        # No cached_property: before Python 3.12 one of them has one lock for all files, held while a store answers.
        self._source: RangedFile | None = None
        self._reader: Any = None
        self._open_source, self._extra = open_source, extra
        self._open, self._options = open_bounded if bounded else open_file, options
        if footer is None:
            footer = self._read_footer() if key is None else FOOTERS.get(key, self._read_footer)
        self.footer = footer
        if 0 <= rows != self.metadata.num_rows:
            FOOTERS.forget(key)  # the file that the log means may be brought back
            raise OSError(f"it has {self.metadata.num_rows:,} rows, and the log says {rows:,}")

    def _read_footer(self) -> Footer:
        footer = footer_bytes(self.source)
        check_footer(footer, self._extra)
        return Footer(footer, self.source.size)

    @property
    def source(self) -> RangedFile:
        """The file below, read by ranges."""
        if self._source is None:
            self._source = self._open_source()
        return self._source

    @property
    def fetched(self) -> int:
        """The bytes that were fetched so far."""
        return 0 if self._source is None else self._source.fetched

    @property
    def metadata(self) -> Any:
        """The parsed footer, as :class:`pyarrow.parquet.FileMetaData`."""
        return self.footer.metadata

    @property
    def schema(self) -> Any:
        """The Arrow schema of the file."""
        return self.footer.once("schema", lambda: self.reader.schema_arrow)

    @property
    def reader(self) -> Any:
        """The file as Arrow reads it, a :class:`pyarrow.parquet.ParquetFile`."""
        if self._reader is None:
            self._reader = self._open(self.source, self.metadata, **self._options)
        return self._reader

    def columns(self, names: Sequence[str]) -> Any:
        """Return some columns of the whole file as an Arrow table.

        :raises OSError: if it cannot be read. Arrow's own errors are raised as they are.
        """
        return read_columns(self.reader, names)

    def read_group(self, group: int, columns: Sequence[str], rows: Any = None, threads: bool = False) -> Any:
        """Return columns of a row group as an Arrow table.

        :param rows: numbers of those that are wanted, if not all, as a numpy array, ascending. Of columns whose pages
            are known, only the pages that hold them are fetched and decoded.
        :param threads: whether columns are read side by side.
        :raises OSError: if a page is damaged. Arrow's own errors are raised as they are.
        """
        if rows is None:
            return self.reader.read_row_group(group, columns=list(columns), use_threads=threads)
        import pyarrow as pa

        arrays = self.footer.pages.read(self.source, group, columns, rows)
        whole = [name for name in columns if name not in arrays]
        if whole:
            table = take(self.reader.read_row_group(group, columns=whole, use_threads=threads), rows)
            arrays.update({name: table.column(name) for name in whole})
        return pa.table([arrays[name] for name in columns], names=list(columns))

    def read_groups(self, groups: Sequence[int], columns: Sequence[str]) -> Any:
        """Return flat columns of row groups as an Arrow table, fetched at once where nothing else is in between.

        :raises KeyError: for a column that is not there.
        :raises OSError: if a page is damaged. Arrow's own errors are raised as they are.
        """
        leaves = [self.footer.flat[name] for name in columns]
        ranges = [chunk_range(column_chunk(self.metadata, group, leaf)) for group in groups for leaf in leaves]
        first, last = min((start for start, _ in ranges), default=0), max((end for _, end in ranges), default=0)
        if ranges and last - first == sum(end - start for start, end in ranges):
            self.source.keep(first, last)
        table = self.reader.read_row_groups(list(groups), columns=list(columns), use_threads=False)
        expected = sum(self.footer.rows[group] for group in groups)
        if columns and table.num_rows != expected:
            # The header of a page is under no checksum, and Arrow passes over pages of a sort that it does not know.
            raise OSError(f"a column holds {table.num_rows} values, the footer says {expected}")
        return table

    def plain_pages(self, groups: Sequence[int], column: str) -> list[Page]:
        """Return the pages of a flat column of row groups, which become numpy arrays; their rows are numbered on.

        :raises KeyError: for a column that is not there.
        :raises NotPlain: if they are other pages. :raises OSError: if they are cut.
        """
        leaf, first, pages = self.footer.flat[column], 0, list[Page]()
        chunks = [Chunk.of(self.metadata, group, leaf) for group in groups]
        for group, chunk in zip(groups, chunks, strict=True):
            data = self.source.range(chunk.start, chunk.end)
            headers = self.footer.once(("pages", group, leaf), partial(chunk.headers, data))
            pages += chunk.pages(data, first, headers)
            first += self.footer.rows[group]
        return pages


class Listed(Protocol):
    """A file as the log lists it."""

    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def extra(self) -> Mapping[str, Any] | None: ...


class ParquetFiles:
    """The files of a table and its indexes in a store, none of which is written again.

    :param state: of the log, for which footers are kept: who loads the table again finds damage that came meanwhile.
        If not given, footers are read anew each time.
    """

    def __init__(self, store: ObjectStore, state: Any = None) -> None:
        self._store = store
        self._scope = None if state is None else FOOTERS.number_of(state)

    def open(self, file: Listed, **options: Any) -> OpenedFile:
        """Open a file. What is read of it has an end.

        :param options: ``footer``, and those of :func:`~spark_apps.storage.parquet.files.open_file`.
        :raises OSError: if its footer is not as the log says, or none that Arrow can be given.
        """
        key = None if self._scope is None else (self._scope, file.path)
        return OpenedFile(
            lambda: open_key(self._store, file.path, file.bytes), key, file.rows, file.extra, bounded=True, **options
        )


def open_address(
    address: str, size: int, options: Mapping[str, Any], etag: str | None = None, rows: int = -1, keep: bool = False
) -> OpenedFile:
    """Open a file by its address, on any machine that reaches it.

    :param address: and what follows, as :func:`~spark_apps.storage.store.open_by_address` takes them.
    :param rows: that it has, -1 if that is not known. :param keep: whether it is never written again, so that its
        footer is kept for whoever opens it next in this process.
    :raises OSError: if its footer is none that Arrow can be given, or says that it has other rows.
    """
    key = (address, size) if keep else None
    return OpenedFile(lambda: open_by_address(address, size, options, etag), key, rows)
