"""Reads from a file of a merge tree the rows whose looked-up columns hold some keys, on the driver.

Only the row groups that can hold a key are read; in them only the pages that hold one, where their form allows it. A
file is checked against what the log says of it (size, rows, footer) and its pages against their checksums, so that a
damaged file is found and never taken for an empty answer. Footers are parsed once as long as a snapshot is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

from spark_apps.indexes.handler import PARTITION
from spark_apps.indexes.matching import SORTED_KINDS, Wanted, kinds_of, uniform
from spark_apps.indexes.ranges import Range, range_of
from spark_apps.mergetree.footers import check_footer
from spark_apps.mergetree.plain_pages import Chunk, NotPlain, Page
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import LakeIndexError, StorageError
from spark_apps.storage.ranged import RangedFile
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import AddFile
from spark_apps.timeline.state import State

_MOST_FOOTERS = 256
# With more keys than one to so many rows hardly a page can be left out. Arrow then reads columns as a whole, and other
# threads run meanwhile: pages, one at a time in Python, would wait for each other.
_ROWS_A_KEY = 1_000
# Few values over and over, which are kept as numbers until the rows are known.
_REPEATED = (PARTITION, GROUP_ID)
_LOCK = threading.Lock()
_FOOTERS: WeakKeyDictionary[State, dict[str, _Footer]] = WeakKeyDictionary()


class _Footer:
    """What the footer of a file tells, parsed.

    :param ranges: of each row group, what each looked-up column can hold.
    """

    def __init__(self, metadata: Any, tree: Tree) -> None:
        self.metadata = metadata
        self.places = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
        columns = [self.places[tree.stored(name)] for name in tree.hash_fields]
        kinds = kinds_of(tree, tree.hash_fields)
        groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
        self.rows = [int(group.num_rows) for group in groups]
        self.ranges: list[list[Range | None]] = [
            [range_of(group.column(n).statistics, kind) for n, kind in zip(columns, kinds, strict=True)]
            for group in groups
        ]


class EntryFile:
    """One file of a tree, and the row groups of it that can hold some keys.

    :raises StorageError: here and in :meth:`rows`, if the file is missing or damaged.
    """

    def __init__(self, snapshot: Snapshot, tree: Tree, file: DataFile, wanted: Wanted) -> None:
        self._store, self._tree, self._file, self._wanted = snapshot.store, tree, file, wanted
        self.bytes = 0
        with _Damage(file.path):
            self._footer = self._parsed(snapshot.state)
        self.groups = [n for n, ranges in enumerate(self._footer.ranges) if wanted.can_stand(ranges)]

    def rows_in(self, group: int) -> int:
        """How many rows a row group has."""
        return self._footer.rows[group]

    def _parsed(self, state: State) -> _Footer:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with _LOCK:
            kept = _FOOTERS.setdefault(state, {})
        if (footer := kept.get(self._file.path)) is not None:
            return footer
        source = ranged(self._store, self._file)
        check_footer(source, self._file.extra)
        metadata = pq.read_metadata(pa.PythonFile(source, mode="r"))
        self.bytes += source.fetched
        if metadata.num_rows != self._file.rows:
            raise pa.ArrowInvalid(f"it has {metadata.num_rows} rows, the log says {self._file.rows}")
        footer = _Footer(metadata, self._tree)
        with _LOCK:
            if len(kept) >= _MOST_FOOTERS:
                kept.pop(next(iter(kept)))
            kept[self._file.path] = footer
        return footer

    def rows(self, groups: Sequence[int]) -> Any:
        """The rows of some row groups with one of the keys: key columns, place and, of deltas, the tombstone's flag, as
        an Arrow table of the tree's column names; ``None`` if there is none."""
        with _Damage(self._file.path):
            reading = _Reading(self, groups)
            try:
                return reading.rows()
            finally:
                with _LOCK:
                    self.bytes += reading.source.fetched


class _Reading:
    """Row groups while they are read, by one thread. Rows are numbered from the first of them on."""

    def __init__(self, file: EntryFile, groups: Sequence[int]) -> None:
        self.source = ranged(file._store, file._file)
        self._file, self._groups = file, groups
        self._tree, self._wanted, self._footer = file._tree, file._wanted, file._footer
        self._starts = [0, *accumulate(file.rows_in(group) for group in groups)]
        self._pages: dict[str, list[Page]] = {}
        self._arrow: dict[str, Any] = {}

    def rows(self) -> Any:
        import pyarrow as pa

        names = list(dict.fromkeys([*self._tree.key, *self._tree.columns]))
        if self._file._file.kind == "delta":
            names.append(DELETED)
        found = self._found(names)
        if not len(found):
            return None
        self._read([name for name in names if not self._is_plain(name)])
        return pa.table([self._column(name, found) for name in names], names=names)

    def _found(self, names: Sequence[str]) -> Any:
        if self._wanted.sortable:
            [name] = self._wanted.names
            if len(self._wanted) * _ROWS_A_KEY >= sum(self._footer.rows):
                self._read(names)
                column = self._arrow[name]
                return self._wanted.rows_of([column]) if column.null_count else self._wanted.rows_among(column)
            if self._is_plain(name):
                try:
                    return self._wanted.rows_in(self._pages[name])
                except NotPlain:
                    del self._pages[name]
        self._read(self._wanted.names)
        return self._wanted.rows_of([self._arrow[name] for name in self._wanted.names])

    def _is_plain(self, name: str) -> bool:
        """Whether a column can be read by pages; its bytes are fetched then."""
        if name in self._pages:
            return True
        if name in self._arrow or name == DELETED or kinds_of(self._tree, [name])[0].kind not in SORTED_KINDS:
            return False
        try:
            place = self._footer.places[self._tree.stored(name)]
            chunks = [Chunk.of(self._footer.metadata, group, place) for group in self._groups]
            pages: list[Page] = []
            for chunk, first in zip(chunks, self._starts, strict=False):
                pages += chunk.pages(self.source.range(chunk.start, chunk.end), first)
        except NotPlain:
            return False
        self._pages[name] = pages
        return True

    def _read(self, names: Sequence[str]) -> None:
        """Has Arrow read columns as a whole."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        missing = [name for name in names if name not in self._arrow]
        if not missing:
            return
        stored = [self._tree.stored(name) for name in missing]
        self._fetch(stored)
        parquet = pq.ParquetFile(
            pa.PythonFile(self.source, mode="r"),
            metadata=self._footer.metadata,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=[name for name in _REPEATED if name in missing],
            coerce_int96_timestamp_unit="us",
        )
        table = parquet.read_row_groups(self._groups, columns=stored, use_threads=False)
        if table.num_rows != self._starts[-1]:
            # The header of a page is under no checksum, and Arrow passes over pages of a sort that it does not know.
            raise OSError(f"a column holds {table.num_rows} values, the footer says {self._starts[-1]}")
        for name, kept in zip(missing, stored, strict=True):
            self._arrow[name] = table.column(kept)

    def _fetch(self, stored: Sequence[str]) -> None:
        """Fetches columns of all row groups at once, where nothing but them lies in between."""
        metadata, places = self._footer.metadata, [self._footer.places[name] for name in stored]
        chunks = [metadata.row_group(group).column(place) for group in self._groups for place in places]
        starts = [min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset))) for chunk in chunks]
        first, last = min(starts), max(s + c.total_compressed_size for s, c in zip(starts, chunks, strict=True))
        if last - first == sum(chunk.total_compressed_size for chunk in chunks):
            self.source.keep(first, last)

    def _column(self, name: str, rows: Any) -> Any:
        kind = None if name == DELETED else kinds_of(self._tree, [name])[0]
        if name in self._pages:
            try:
                return uniform(_taken(self._pages[name], rows, kind.kind if kind else ""), kind)  # type: ignore[arg-type]
            except NotPlain:
                self._read([name])
        taken = self._arrow[name].take(rows)
        return taken if kind is None else uniform(taken, kind)


def _taken(pages: Sequence[Page], rows: Any, kind: str) -> Any:
    """The values at ascending row numbers, as an Arrow column. :raises NotPlain: :raises OSError:"""
    import numpy as np
    import pyarrow as pa

    parts = []
    bounds = np.searchsorted(rows, [*(page.first for page in pages), pages[-1].first + pages[-1].rows])
    for page, low, high in zip(pages, bounds, bounds[1:], strict=False):
        if low == high:
            continue
        values = page.values[rows[low:high] - page.first]
        if values.dtype.kind != "S":
            parts.append(pa.array(values))
            continue
        width = values.dtype.itemsize
        offsets = pa.py_buffer(np.arange(0, (len(values) + 1) * width, width, dtype=np.int32))
        data = pa.py_buffer(np.ascontiguousarray(values))
        type = pa.string() if kind == "string" else pa.binary()
        parts.append(pa.Array.from_buffers(type, len(values), [None, offsets, data]))
    return pa.chunked_array(parts)


class _Damage:
    """Turns what reading a broken file raises into an error that names the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        import pyarrow as pa

        if isinstance(error, (pa.ArrowException, OSError, StorageError, KeyError)):
            raise damaged(self._path, error) from error


def ranged(store: ObjectStore, file: DataFile | AddFile) -> RangedFile:
    """A file of an index, read by ranges."""
    return RangedFile(lambda start, end: store.get_range(file.path, start, end), file.bytes)


def damaged(path: str, error: Exception) -> StorageError:
    """The error that says that a file of an index cannot be used."""
    reason = error.message if isinstance(error, LakeIndexError) else str(error).strip().split("\n")[0]
    return StorageError(
        f"The index file {path} cannot be read: {reason}.",
        outcome="The rows are not affected.",
        hint="Rebuild the index: refresh_index(name, mode='full').",
    )
