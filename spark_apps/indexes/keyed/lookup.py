"""Lookup of keys in a merge tree on the driver, and the file groups that can hold the rows of their entries.

Only the row groups that can hold a key are read; in them only the pages that hold one, where their form allows it. A
file is compared with what the log keeps of it (size, rows, footer) and its pages against their checksums, so that a
damaged file is found and never taken for an empty answer. Footers are parsed once as long as a snapshot is loaded.

Entries name the partition of a row, not its file; the bucket follows from the record key and the partition's count, so
neither compaction nor a rescale makes an entry wrong. In Spark for many entries, on the driver for few.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spark_apps.engine.pyspark_names import DataFrame, F, StructField, StructType, spark_errors
from spark_apps.engine.spark_utils import inline
from spark_apps.indexes.handler import PARTITION, Candidates, CannotPrune, IndexContext, Key
from spark_apps.indexes.keyed.matching import (
    SORTED_KINDS,
    KeyMatcher,
    comparable_type,
    keys_from_arrow,
    keys_to_arrow,
    kinds_of,
    normalize_column,
)
from spark_apps.indexes.limits import (
    LOOKUP_THREADS,
    MAX_DRIVER_KEYS,
    MAX_GROUPS_AT_ONCE,
    MAX_LOCAL_LOOKUP_ROWS,
    MAX_LOOKUP_ENTRIES,
    MAX_LOOKUP_ROWS,
    MAX_RETURNED_KEYS,
    MIN_ROWS_PER_KEY,
    MIN_THREADED_ROWS,
)
from spark_apps.indexes.ranges import Range, range_of
from spark_apps.layout.hashing import DEFAULT_HASH, bucket_id, buckets_of_columns, is_known, on_driver
from spark_apps.layout.partitions import parse_partition_path
from spark_apps.mergetree.buckets import (
    bucket_column,
    compute_buckets,
    partition_condition,
    partition_number,
    value_texts,
)
from spark_apps.mergetree.integrity import is_countable
from spark_apps.mergetree.read import live_rows, newest_rows, scan, with_keys
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import LakeIndexError, StorageError
from spark_apps.storage.parquet.files import column_chunk
from spark_apps.storage.parquet.listed import OpenedFile, ParquetFiles
from spark_apps.storage.parquet.pages import NotPlain, Page
from spark_apps.timeline.files import DataFile, GroupKey

# Few values over and over, which are kept as numbers until the rows are known.
_REPEATED = (PARTITION, GROUP_ID)
_LOCK = threading.Lock()


class EntryFile:
    """A file of a tree, and the row groups of it that can hold some keys.

    :raises StorageError: by the constructor and :meth:`rows`, if the file is missing or damaged.
    """

    def __init__(self, snapshot: Snapshot, tree: Tree, file: DataFile, matcher: KeyMatcher) -> None:
        self.file, self.tree, self.matcher = file, tree, matcher
        self._files = ParquetFiles(snapshot.store, snapshot.state)
        with naming_damage(file.path):
            opened = self._files.open(file)
            self.footer, self.bytes = opened.footer, opened.fetched
            ranges = self.footer.once(("ranges", tree.hash_fields), self._ranges)
        self.groups = [n for n, of_group in enumerate(ranges) if matcher.can_occur(of_group)]

    def _ranges(self) -> list[list[Range | None]]:
        """Return what each looked-up column can hold, of each row group."""
        fields, metadata = self.tree.hash_fields, self.footer.metadata
        columns = [self.footer.flat[self.tree.stored(name)] for name in fields]
        kinds = kinds_of(self.tree, fields)
        return [
            [
                range_of(column_chunk(metadata, n, leaf).statistics, kind)
                for leaf, kind in zip(columns, kinds, strict=True)
            ]
            for n in range(len(self.footer.rows))
        ]

    def rows_in(self, group: int) -> int:
        """Return how many rows a row group has."""
        return self.footer.rows[group]

    def open(self) -> OpenedFile:
        """Open the file for one thread. What repeats is kept as numbers until the rows are known."""
        repeated = [name for name in _REPEATED if name in self.footer.flat]
        return self._files.open(self.file, footer=self.footer, read_dictionary=repeated)

    def rows(self, groups: Sequence[int]) -> Any:
        """Return the rows of some row groups with one of the keys.

        Key columns, file group and, of deltas, the tombstone's flag, as an Arrow table of the tree's column names;
        ``None`` if there is none.
        """
        with naming_damage(self.file.path):
            reading = _Reading(self, groups)
            try:
                return reading.rows()
            finally:
                with _LOCK:
                    self.bytes += reading.opened.fetched


class _Reading:
    """Row groups while they are read, by one thread.

    Rows are numbered from the first of them on.
    """

    def __init__(self, file: EntryFile, groups: Sequence[int]) -> None:
        self.opened = file.open()
        self._file, self._groups = file.file, groups
        self._tree, self._matcher, self._footer = file.tree, file.matcher, file.footer
        self._pages: dict[str, list[Page]] = {}
        self._arrow: dict[str, Any] = {}

    def rows(self) -> Any:
        import pyarrow as pa

        names = list(dict.fromkeys([*self._tree.key, *self._tree.columns]))
        if self._file.kind == "delta":
            names.append(DELETED)
        row_numbers = self._matching_rows(names)
        if not len(row_numbers):
            return None
        self._read([name for name in names if not self._is_plain(name)])
        return pa.table([self._column(name, row_numbers) for name in names], names=names)

    def _matching_rows(self, names: Sequence[str]) -> Any:
        if self._matcher.sortable:
            [name] = self._matcher.names
            many = len(self._matcher) * MIN_ROWS_PER_KEY >= sum(self._footer.rows)
            if many and not self._is_uncompressed(name):
                self._read(names)
                column = self._arrow[name]
                return self._matcher.rows_of([column]) if column.null_count else self._matcher.rows_among(column)
            if self._is_plain(name):
                try:
                    return self._matcher.rows_in(self._pages[name])
                except NotPlain:
                    del self._pages[name]
        self._read(self._matcher.names)
        return self._matcher.rows_of([self._arrow[name] for name in self._matcher.names])

    def _is_uncompressed(self, name: str) -> bool:
        """Return whether a column is not compressed in the file: then nothing is quicker than its pages."""
        leaf = self._footer.flat[self._tree.stored(name)]
        chunks = [column_chunk(self._footer.metadata, group, leaf) for group in self._groups]
        return all(chunk.compression == "UNCOMPRESSED" for chunk in chunks)

    def _is_plain(self, name: str) -> bool:
        """Return whether a column can be read by pages; its bytes are fetched then."""
        if name in self._pages:
            return True
        if name in self._arrow or name == DELETED or kinds_of(self._tree, [name])[0].kind not in SORTED_KINDS:
            return False
        try:
            self._pages[name] = self.opened.plain_pages(self._groups, self._tree.stored(name))
        except NotPlain:
            return False
        return True

    def _read(self, names: Sequence[str]) -> None:
        """Let Arrow read columns as a whole."""
        missing = {name: self._tree.stored(name) for name in names if name not in self._arrow}
        if missing:
            table = self.opened.read_groups(self._groups, list(missing.values()))
            self._arrow.update({name: table.column(stored) for name, stored in missing.items()})

    def _column(self, name: str, rows: Any) -> Any:
        kind = None if name == DELETED else kinds_of(self._tree, [name])[0]
        if name in self._pages:
            try:
                return normalize_column(_take_from_pages(self._pages[name], rows, kind.kind if kind else ""), kind)  # type: ignore[arg-type]
            except NotPlain:
                self._read([name])
        values = self._arrow[name].take(rows)
        return values if kind is None else normalize_column(values, kind)


def _take_from_pages(pages: Sequence[Page], rows: Any, kind: str) -> Any:
    """Return the values at ascending row numbers, as an Arrow column.

    :raises NotPlain: if the page of a value is encoded in a way that is left to Arrow.
    :raises OSError: if a page is damaged.
    """
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


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Make what reading a broken file raises in the block an error that names the file.

    :raises StorageError: in its place.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, LakeIndexError, KeyError) as error:
        raise damaged_file_error(path, error) from error


def damaged_file_error(path: str, error: Exception) -> StorageError:
    """Return the error for a file of an index that cannot be used."""
    reason = error.message if isinstance(error, LakeIndexError) else str(error).strip().split("\n")[0]
    return StorageError(
        f"The index file {path} cannot be read: {reason}.",
        outcome="The rows are not affected.",
        hint="Rebuild the index: refresh_index(name, mode='full').",
    )


# --- Lookup of keys ---------------------------------------------------------------------------------------------------


# Below this numpy's many small steps take longer than a call for each key.
_MAX_HASHED_SINGLY = 64

RowLocation = tuple[str, str | None]
"""Partition and, where no hash of the key gives it, file group of a row."""


class TooManyEntries(Exception):
    """A lookup whose keys may be in more rows than a driver should read; Spark can."""


@dataclass(frozen=True)
class LookupResult:
    """The entries of the keys: their whole key columns and location.

    ``files`` and ``bytes`` were read for it.
    """

    entries: list[tuple[Key, RowLocation]]
    files: int
    bytes: int


@dataclass(frozen=True)
class EntryTable:
    """The entries of the keys as an Arrow table with the tree's columns.

    ``files`` and ``bytes`` were read for it.
    """

    table: Any
    files: int
    bytes: int


def shards_of(tree: Tree, keys: Collection[Key], shards: int) -> dict[str, list[Key]]:
    """Return shard -> the keys that it can hold."""
    types = [tree.type_of(name) for name in tree.hash_fields]
    shards_with_keys: dict[str, list[Key]] = {}
    for key in keys:
        shards_with_keys.setdefault(str(bucket_id(key, shards, tree.hash_function, types)), []).append(key)
    return shards_with_keys


def lookup(snapshot: Snapshot, tree: Tree, keys: Collection[Key], shards: int) -> LookupResult:
    """Return the live entries of a tree whose ``hash_fields`` have one of the given values.

    :raises TooManyEntries: if they are more than the driver should read.
    :raises StorageError: if a file is missing or damaged.
    """
    near = len(tree.hash_fields) == 1 and is_countable(snapshot.store, tree)
    most = MAX_LOCAL_LOOKUP_ROWS if near else MAX_LOOKUP_ROWS
    result = lookup_table(snapshot, tree, keys_to_arrow(tree, keys), shards, most, MAX_LOOKUP_ENTRIES)
    try:
        key = keys_from_arrow(result.table, tree, tree.key)
    except (OverflowError, ValueError) as error:
        raise TooManyEntries from error  # Spark knows values that Python does not
    partitions = result.table.column(PARTITION).to_pylist()
    groups: Sequence[str | None] = [None] * len(partitions)
    if GROUP_ID in result.table.column_names:
        groups = result.table.column(GROUP_ID).to_pylist()
    locations = zip(partitions, groups, strict=True)
    return LookupResult(list(zip(key, locations, strict=True)), result.files, result.bytes)


def lookup_table(
    snapshot: Snapshot,
    tree: Tree,
    keys: Any,
    shards: int,
    most_rows: int | None = None,
    most_entries: int | None = None,
) -> EntryTable:
    """Return the live entries of a tree whose ``hash_fields`` have one of the given values, as an Arrow table.

    :param keys: an Arrow table with the columns ``tree.hash_fields``, of types that can be cast to theirs.
    :param most_rows: the most rows, in row groups that can hold the keys, that are read.
    :param most_entries: the most entries that are returned.
    :raises TooManyEntries: if they are more.
    :raises StorageError: if a file is missing or damaged.
    """
    import pyarrow as pa

    groups = snapshot.groups(tree.name)
    shards_read = [
        _Shard(snapshot, tree, groups.get(("", shard), ()), KeyMatcher(tree, shard_keys))
        for shard, shard_keys in _by_shard(tree, keys, shards).items()
    ]
    if most_rows is not None and sum(shard.rows for shard in shards_read) > most_rows:
        raise TooManyEntries
    tables = [_empty_table(tree), *_read(tree, shards_read, most_entries)]
    files = [file for shard in shards_read for file in shard.files]
    return EntryTable(pa.concat_tables(tables), len(files), sum(file.bytes for file in files))


class _Shard:
    """The files of a shard, and the keys that it can hold."""

    def __init__(self, snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], matcher: KeyMatcher) -> None:
        self.matcher = matcher
        self.files = [EntryFile(snapshot, tree, file, matcher) for file in files]
        self.rows = sum(file.rows_in(group) for file in self.files for group in file.groups)

    def jobs(self, threads: int) -> list[tuple[EntryFile, list[int]]]:
        """Return files with some of their row groups, each a thread's work for a while."""
        jobs = []
        for file in self.files:
            step = max(1, min(MAX_GROUPS_AT_ONCE, -(-len(file.groups) // (4 * threads))))
            jobs += [(file, file.groups[n : n + step]) for n in range(0, len(file.groups), step)]
        return jobs


def _read(tree: Tree, shards: Sequence[_Shard], most_entries: int | None) -> list[Any]:
    """Return the live entries with a key, one table per shard.

    :raises TooManyEntries: if they are more than ``most_entries``.
    """
    rows = sum(shard.rows for shard in shards)
    threads = min(LOOKUP_THREADS, os.cpu_count() or 1) if rows >= MIN_THREADED_ROWS else 1
    with ExitStack() as stack:
        run: Any = map
        if threads > 1:
            pool = stack.enter_context(ThreadPoolExecutor(threads))
            run = pool.map
            run(KeyMatcher.prepare, [shard.matcher for shard in shards])  # while the first pages are read
        jobs = [shard.jobs(threads) for shard in shards]
        parts = run(lambda job: job[0].rows(job[1]), [job for shard_jobs in jobs for job in shard_jobs])
        tables, entries = [], 0
        for shard, shard_jobs in zip(shards, jobs, strict=True):
            tables_of_shard = [part for part in islice(parts, len(shard_jobs)) if part is not None]
            if tables_of_shard:
                tables.append(_newest(tree, tables_of_shard, len(shard.files)))
                entries += len(tables[-1])
            if most_entries is not None and entries > most_entries:
                raise TooManyEntries
    return tables


def _newest(tree: Tree, parts: Sequence[Any], files: int) -> Any:
    """Return of each key the entry that was written last, unless that is a tombstone.

    Parts are given in merge order.
    """
    import pyarrow as pa

    table = pa.concat_tables(parts, promote_options="default") if len(parts) > 1 else parts[0]
    if files > 1 and len(parts) > 1:
        table = newest_rows(table, tree.key)
    return live_rows(table).select(_columns(tree))


def _columns(tree: Tree) -> list[str]:
    return list(dict.fromkeys([*tree.key, *tree.columns]))


def _empty_table(tree: Tree) -> Any:
    import pyarrow as pa

    names = _columns(tree)
    return pa.table(
        [pa.array([], comparable_type(kind)) for kind in kinds_of(tree, names)],
        names=names,
    )


def buckets_of_keys(tree: Tree, keys: Any, count: int) -> Any | None:
    """Return the bucket of each row of an Arrow table, as a numpy array; ``None`` if only Spark hashes such keys.

    :param keys: with the columns ``tree.hash_fields``. :param count: of buckets.
    """
    import numpy as np

    kinds = kinds_of(tree, tree.hash_fields)
    columns = [normalize_column(keys.column(name), kind) for name, kind in zip(tree.hash_fields, kinds, strict=True)]
    if tree.hash_function == DEFAULT_HASH and len(keys) > _MAX_HASHED_SINGLY:
        buckets = buckets_of_columns(columns, kinds, count)
        if buckets is not None:
            return buckets
    types = [kind.text for kind in kinds]
    try:
        key_tuples = keys_from_arrow(keys.select(tree.hash_fields), tree, tree.hash_fields)
        return np.array([bucket_id(key, count, tree.hash_function, types) for key in key_tuples], np.int64)
    except (OverflowError, ValueError):
        return buckets_of_columns(columns, kinds, count) if tree.hash_function == DEFAULT_HASH else None


def _by_shard(tree: Tree, keys: Any, shards: int) -> dict[str, Any]:
    """Return shard -> the rows of an Arrow table of keys that it can hold."""
    import numpy as np

    if not len(keys):
        return {}
    if shards == 1:
        return {"0": keys}
    buckets = buckets_of_keys(tree, keys, shards)
    if buckets is None:
        raise TooManyEntries
    order = np.argsort(buckets, kind="stable")
    bounds = np.flatnonzero(np.diff(buckets[order])) + 1
    return {str(buckets[rows[0]]): keys.take(rows) for rows in np.split(order, bounds)}


# --- from entries to the file groups that can hold the rows -----------------------------------------------------------


BUCKET = "__index_bucket"
"""Column that holds the bucket an entry points into; null if its partition is gone."""

_COUNT = "__index_count"
_PATH = "__index_path"


def with_partition_path(rows: DataFrame, tree: Tree, paths: Iterable[str]) -> DataFrame:
    """Add :data:`~spark_apps.indexes.handler.PARTITION` to rows, from the table's partition columns.

    :param tree: the table's own.
    :param paths: all partitions that a row can be of; another one fails the Spark job.
    """
    if not tree.partition_by:
        return rows.withColumn(PARTITION, F.lit(""))
    names = list(value_texts(tree))
    values = {path: tuple(parse_partition_path(path).values()) for path in sorted(set(paths))}
    unexpected = F.raise_error(F.lit("a row of a partition that the commit does not touch"))
    number = partition_number(tree, list(values.values()), unexpected.cast("int"))
    if number is not None:
        # Of no partition the array is of nothing, which Spark before 4 would not write as a string.
        return rows.withColumn(PARTITION, F.get(F.array(*map(F.lit, values)).cast("array<string>"), number))
    partitions = inline(
        rows.sparkSession,
        [(path, *texts) for path, texts in values.items()],
        ", ".join([f"{_PATH} string", *(f"{name} string" for name in names)]),
    )
    joined = rows.join(F.broadcast(partitions), partition_condition(tree, partitions), "left")
    return joined.withColumn(PARTITION, F.coalesce(F.col(_PATH), unexpected.cast("string"))).drop(_PATH, *names)


def with_bucket(entries: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Add :data:`BUCKET` to entries: the file group (as text) in which the snapshot keeps their row."""
    tree = snapshot.data
    if tree.by_id:
        return entries.withColumn(BUCKET, column(GROUP_ID))
    counts = [(path, entry.buckets or 1) for path, entry in sorted(snapshot.state.partitions.items())]
    partitions = inline(snapshot.spark, counts, f"{_PATH} string, {_COUNT} int")
    types = [tree.type_of(name) for name in tree.hash_fields]
    # A null count gives no bucket: the hash functions divide by it.
    bucket = bucket_column(tree.hash_fields, F.col(_COUNT), tree.hash_function, types)
    joined = entries.join(F.broadcast(partitions), entries[PARTITION] == partitions[_PATH], "left")
    return joined.withColumn(BUCKET, bucket.cast("string")).drop(_PATH, _COUNT)


def with_group_marks(entries: DataFrame, snapshot: Snapshot, marks: Mapping[GroupKey, str], name: str) -> DataFrame:
    """Add the mark of the file group that entries refer to in column ``name``; null for groups without one."""
    located = with_bucket(entries, snapshot)
    rows = [(partition, group, mark) for (partition, group), mark in sorted(marks.items())]
    mark_rows = inline(snapshot.spark, rows, f"__index_p string, __index_g string, {name} string")
    in_group = (located[PARTITION] == mark_rows["__index_p"]) & (located[BUCKET] == mark_rows["__index_g"])
    return located.join(F.broadcast(mark_rows), in_group, "left").drop("__index_p", "__index_g", BUCKET)


def groups_of(entries: DataFrame, snapshot: Snapshot) -> frozenset[GroupKey]:
    """Return the file groups that entries refer to.

    One Spark job.
    """
    locator = GroupLocator(snapshot)
    if not snapshot.data.by_id and not locator.is_known:
        partitions = entries.select(PARTITION).distinct().collect()
        return frozenset(group for row in partitions for group in locator.all_groups(row[0]))
    return frozenset((row[0], row[1]) for row in group_pairs(entries, snapshot).collect())


def group_pairs(entries: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Return the file groups that entries refer to, each once: partition and id. The table's hash function is known."""
    return with_bucket(entries, snapshot).where(column(BUCKET).isNotNull()).select(PARTITION, BUCKET).distinct()


class GroupLocator:
    """The file groups of record keys, computed on the driver.

    ``is_known`` says whether that can be done: whether the code of the table's hash function is installed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        types = {field.name: field.type for field in table.fields}
        fields = table.hash_fields or table.record_key
        self.is_known = is_known(table.hash_function) and (snapshot.has_spark or on_driver(table.hash_function))
        self._spark = snapshot.spark
        self._counts = {path: entry.buckets or 1 for path, entry in snapshot.state.partitions.items()}
        self._key_indexes = [table.record_key.index(name) for name in fields]
        self._fields = {name: types[name] for name in fields}
        self._function = table.hash_function

    def buckets(self, partition: str) -> int:
        """Return how many buckets a partition has; 0 if there is no such partition."""
        return self._counts.get(partition, 0)

    def all_groups(self, partition: str) -> list[GroupKey]:
        """Return every file group of a partition."""
        return [(partition, str(bucket)) for bucket in range(self.buckets(partition))]

    def groups(self, partition: str, keys: Sequence[Sequence[Any]]) -> list[GroupKey]:
        """Return the file group of each key; none at all if there is no such partition."""
        count = self._counts.get(partition)
        if count is None:
            return []
        values = [[key[index] for index in self._key_indexes] for key in keys]
        return [(partition, str(b)) for b in compute_buckets(self._spark, self._fields, values, count, self._function)]


# --- From keys to file groups -----------------------------------------------------------------------------------------


# A partition with this number of entries per bucket has one in each bucket: no need to compute which.
_ENTRIES_PER_CROWDED_BUCKET = 20


def find_candidates(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates | CannotPrune:
    """Return where the rows can be that the entries with these keys refer to.

    Without a Spark session for few keys only.

    :param tree: of the index; the keys are values of its ``hash_fields``.
    :raises StorageError: if a file of the index is missing or damaged.
    """
    found = find_on_driver(context, tree, keys)
    if found is not None:
        return found
    if not context.snapshot.has_spark:
        return CannotPrune(f"{len(keys):,} keys are looked up by a Spark job, and there is no session", "no_session")
    return _find_by_spark(context, tree, keys)


def find_on_driver(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates | None:
    """Return what :func:`find_candidates` does, without Spark; ``None`` for more keys or entries than a driver reads.

    :raises StorageError: if a file of the index is missing or damaged.
    """
    if len(keys) > MAX_DRIVER_KEYS:
        return None
    try:
        return _group_entries(context, tree, lookup(context.snapshot, tree, keys, context.definition.shards))
    except TooManyEntries:
        return None


def _find_by_spark(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates:
    snapshot = context.snapshot
    shards = shards_of(tree, keys, context.definition.shards)
    shard_groups = {key: files for key, files in snapshot.groups(tree.name).items() if key[1] in shards}
    files = [file for group_files in shard_groups.values() for file in group_files]
    fields = [StructField(name, tree.field(name).dataType, True) for name in tree.hash_fields]
    try:
        key_rows = snapshot.spark.createDataFrame(list(keys), StructType(fields))
        entries = with_keys(scan(snapshot, tree, shard_groups), key_rows, tree, tree.hash_fields, len(keys))
        groups = groups_of(entries, snapshot)
    except spark_errors(StorageError) as error:
        raise damaged_file_error(f"of {context.definition.name}", error) from error
    return Candidates(groups, None, len(files), sum(file.bytes for file in files))


def _group_entries(context: IndexContext, tree: Tree, result: LookupResult) -> Candidates:
    if context.snapshot.data.by_id:
        return _group_entries_by_id(context, tree, result)
    locator = GroupLocator(context.snapshot)
    columns = [tree.key.index(name) for name in context.table.record_key]
    by_partition: dict[str, list[Key]] = {}
    for key, (partition, _) in result.entries:
        by_partition.setdefault(partition, []).append(tuple(key[n] for n in columns))
    groups: set[GroupKey] = set()
    are_few = len(result.entries) <= MAX_RETURNED_KEYS and locator.is_known
    keys: dict[GroupKey, set[Key]] | None = {} if are_few else None
    for partition, record_keys in by_partition.items():
        crowded = keys is None and len(record_keys) >= _ENTRIES_PER_CROWDED_BUCKET * locator.buckets(partition)
        if crowded or not locator.is_known:
            groups.update(locator.all_groups(partition))
            continue
        for record_key, group in zip(record_keys, locator.groups(partition, record_keys), strict=False):
            groups.add(group)
            if keys is not None:
                keys.setdefault(group, set()).add(record_key)
    record_keys_of_groups = (
        None if keys is None else {group: frozenset(group_keys) for group, group_keys in keys.items()}
    )
    return Candidates(frozenset(groups), record_keys_of_groups, result.files, result.bytes)


def _group_entries_by_id(context: IndexContext, tree: Tree, result: LookupResult) -> Candidates:
    if context.table.source is not None:
        # There an entry means that a file holds the value, and no more.
        groups = frozenset((partition, group) for _, (partition, group) in result.entries if group is not None)
        return Candidates(groups, None, result.files, result.bytes)
    columns = [tree.key.index(name) for name in context.table.record_key]
    keys: dict[GroupKey, set[Key]] = {}
    for key, (partition, group) in result.entries:
        assert group is not None
        keys.setdefault((partition, group), set()).add(tuple(key[n] for n in columns))
    record_keys_of_groups = {group: frozenset(group_keys) for group, group_keys in keys.items()}
    are_few = len(result.entries) <= MAX_RETURNED_KEYS
    return Candidates(frozenset(keys), record_keys_of_groups if are_few else None, result.files, result.bytes)
