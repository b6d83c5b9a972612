"""The set of files of a snapshot: a shared, never changed part from a checkpoint, and a small overlay of changes.

Copying a set copies nothing until one of the two is changed, and then only the overlay, so that a transaction can hold
on to its base while the log goes on, whatever the size of the table. The shared part stays in Arrow's columns
(:class:`Columns`); of it only the files that are read become Python objects.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any, Literal

import msgspec
import xxhash

from spark_apps.storage.arrow_keys import in_one_piece
from spark_apps.storage.documents import decode
from spark_apps.storage.errors import LogDamaged
from spark_apps.storage.parquet.files import group_rows, open_file
from spark_apps.timeline.field_types import FILE_PATH, GROUP, INDEX_FILES, KEY_CHARACTERS, PARTITION, TREE
from spark_apps.timeline.limits import MAX_CACHED_FILES, MAX_UNPACKED_FILES
from spark_apps.timeline.model import COVERS, NEW_KEYS, REPLACED, AddFile, Struct
from spark_apps.timeline.validation import check_extra

NAMES = (
    "tree", "partition", "group", "path", "kind", "rows", "bytes", "place", "tombstones", "lineage", "extra",
)  # fmt: skip
"""The columns as files name them, in the order of the fields of :class:`DataFile`."""

REPEATED = ("tree", "partition", "group", "kind")
"""Columns whose values repeat, so that they are kept as codes into a dictionary."""

_RANGES = {"rows": (-1, 10**15), "bytes": (0, 10**15), "tombstones": (0, 2**63 - 1), "lineage": (0, 2**63 - 1)}
_PATTERNS = {"tree": TREE, "partition": PARTITION, "group": GROUP, "kind": re.compile("base|delta")}
_KEY = "path_hash"
_FEW = 64
_MAX_SCANS, _MAX_PATH_SCANS = 8, 64
"""Searches for a group or partition, and for a path, that look at all rows; for more it pays to sort the rows first."""
_MAX_PASSES = 4
"""Times that the packed columns are read through for some rows; then all are unpacked."""
_LARGE_PART = 8
"""More than an eighth of all rows are not read row by row."""
_THREADS = 4
_BATCH_ROWS = 8_192
"""Rows that are unpacked at a time: few, so that they take the same memory again and again."""
_PATH = NAMES.index("path")
_UPWARDS = (b"/.", b"//", b"/\n", b"\n/")


_DELETE = "Nothing was opened. Delete the folder _index/timeline/checkpoints, and find out who wrote to it."


def path_hash(path: str) -> int:
    """Return the 64-bit hash of a path, signed as Arrow's ``int64`` holds it."""
    value = xxhash.xxh3_64_intdigest(path.encode())
    return value - (1 << 64) if value >> 63 else value


def schema() -> Any:
    """Return the Arrow schema of the columns, the paths' hashes last."""
    import pyarrow as pa

    types = dict.fromkeys(NAMES, pa.int64()) | {"path": pa.string(), "extra": pa.binary()}
    types |= dict.fromkeys(REPEATED, pa.dictionary(pa.int32(), pa.string()))
    return pa.schema([*((name, types[name]) for name in NAMES), (_KEY, pa.int64())])


def read(body: bytes, opened: Any, version: int, begins: str, what: str) -> Columns:
    """Return the columns in a Parquet file.

    Numbers, what repeats and where paths begin are checked at once, or of a large file when they are asked for; the
    rest of a path when its file is asked for.

    :param body: the file. :param opened: it, by :func:`~spark_apps.storage.parquet.headers.open_parquet`.
    :param version: of the state.
    :param begins: what the paths of data files begin with (:func:`~spark_apps.timeline.validation.data_prefix`).
    :raises LogDamaged: if a column holds what cannot be, naming it.
    """
    if not opened.schema_arrow.equals(schema()):
        raise LogDamaged(f"{what} cannot be read: its columns are not those of a checkpoint.")
    packed = _Packed(body, opened.metadata, version, begins, what)
    if opened.metadata.num_rows <= MAX_UNPACKED_FILES:
        return Columns(packed.whole(), what)
    return Columns(packed.whole(REPEATED), what, packed)


class _Packed:
    """The columns of a checkpoint, packed as in its file, from which the rows that are asked for are read.

    To unpack all paths of millions of files takes seconds, most of them to get the memory. What was read is checked.

    :param body: the file, with its footer ``metadata``. :param version: and ``begins``, ``what``: as of :func:`read`.
    """

    def __init__(self, body: bytes, metadata: Any, version: int, begins: str, what: str) -> None:
        self._body, self._metadata, self._begins, self._what = body, metadata, begins, what
        self._ranges = {**_RANGES, "place": (0, version)}
        self._starts = [0, *accumulate(group_rows(metadata))]
        self._left = _MAX_PASSES * int(metadata.num_row_groups)

    def whole(self, names: Sequence[str] = (*NAMES, _KEY)) -> Any:
        """Return whole columns.

        :raises LogDamaged: if one holds what cannot be.
        """
        return self._checked(lambda: self._opened().read(list(names)).unify_dictionaries())

    def part(self, rows: Sequence[int], names: Sequence[str]) -> Any:
        """Return some rows of columns, as a table; ``None`` where it is faster to unpack all: for many rows, or calls.

        :param names: of columns that do not repeat.
        :raises LogDamaged: if a column holds what cannot be.
        """
        if len(rows) * _LARGE_PART > self._starts[-1]:
            return None
        groups: dict[int, list[int]] = {}
        for row in sorted(rows):
            groups.setdefault(bisect_right(self._starts, row) - 1, []).append(row)
        self._left -= len(groups)
        if self._left < 0:
            return None
        found = self._checked(lambda: self._rows_of(groups, names))
        positions = {row: position for position, row in enumerate(sorted(rows))}
        return found.take(_numbers([positions[row] for row in rows]))

    def _rows_of(self, groups: dict[int, list[int]], names: Sequence[str]) -> Any:
        import pyarrow as pa

        if len(groups) == 1:
            batches = [self._rows_of_group(*next(iter(groups.items())), names)]
        else:
            with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1, len(groups)), "files") as pool:
                batches = list(pool.map(lambda group: self._rows_of_group(group, groups[group], names), groups))
        whole = pa.Table.from_batches([batch for of_group in batches for batch in of_group])
        return whole.select(list(names)).combine_chunks()

    def _rows_of_group(self, group: int, rows: list[int], names: Sequence[str]) -> list[Any]:
        start, left, found = self._starts[group], 0, []
        read = self._opened().iter_batches(_BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False)
        for batch in read:
            end = start + batch.num_rows
            right = bisect_left(rows, end)
            if left < right:
                found.append(batch.take(_numbers([row - start for row in rows[left:right]])))
            start, left = end, right
            if left == len(rows):
                return found
        raise OSError(f"row group {group} holds fewer rows than the footer says")

    def _opened(self) -> Any:
        # Opened each time, for threads may ask at once.
        return open_file(self._body, self._metadata, read_dictionary=list(REPEATED))

    def _checked(self, read_table: Callable[[], Any]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        what = self._what
        try:
            table = read_table()
            held = set(table.column_names)
            for name, (low, high) in self._ranges.items():
                if name not in held:
                    continue
                ends = pc.min_max(table[name]).as_py() if table.num_rows else {"min": low, "max": high}
                if table[name].null_count or not low <= ends["min"] <= ends["max"] <= high:
                    raise LogDamaged(
                        f"{what} cannot be read: its column {name!r} holds what cannot be in it: {ends}.", hint=_DELETE
                    )
            for name, pattern in _PATTERNS.items():
                if name not in held:
                    continue
                column = table[name]
                values = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
                wrong = next((value for value in values if not pattern.fullmatch(value or "")), None)
                if column.null_count or wrong is not None:
                    raise LogDamaged(f"{what} cannot be read: its column {name!r} holds {wrong!r:.200}.", hint=_DELETE)
            if "path" in held:
                self._check_inside(table["path"])
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise LogDamaged(f"{what} cannot be read: {error}.", hint=_DELETE) from error
        return table

    def _check_inside(self, paths: Any) -> None:
        import pyarrow.compute as pc

        inside = sum(pc.sum(pc.starts_with(paths, prefix)).as_py() or 0 for prefix in (self._begins, INDEX_FILES))
        # A source may be one file, which then has the location for its path.
        if paths.null_count or (inside < len(paths) and set(paths.to_pylist()) != {self._begins.rstrip("/")}):
            raise LogDamaged(
                f"{self._what} cannot be read: its column 'path' holds files that are none of the table.", hint=_DELETE
            )


class Columns:
    """An unchanging list of files; a row is named by its number.

    :param table: an Arrow table of :func:`schema`, or ``None`` for no files.
    :param what: names the checkpoint that it is from, and its table, for errors.
    :param packed: holds all columns, where the table has only those of :data:`REPEATED`.
    """

    def __init__(
        self, table: Any = None, what: str = "A checkpoint of the table", packed: _Packed | None = None
    ) -> None:
        self.what = what
        # One dictionary for all chunks, so that a code means the same value everywhere.
        self._coded: Any = None if table is None else table.unify_dictionaries()
        self._packed = packed
        self._hashes: Any = None
        self._codes: dict[str, dict[str, int]] = {}
        self._group_scans = self._path_scans = 0
        self._by_group: tuple[memoryview, memoryview] | None = None
        self._by_path: tuple[memoryview, memoryview] | None = None

    def __len__(self) -> int:
        return 0 if self._coded is None else int(self._coded.num_rows)

    @property
    def table(self) -> Any:
        """All columns as an Arrow table, unpacked; ``None`` for no files.

        :raises LogDamaged: if a column of a checkpoint holds what cannot be in it.
        """
        packed = self._packed
        if packed is not None:
            self._coded = packed.whole()
            self._packed = self._hashes = None
        return self._coded

    def trees(self) -> list[str]:
        """Return the names of the trees that have files among these."""
        if not len(self):
            return []
        import pyarrow.compute as pc

        held = set(pc.unique(self._indices("tree")).to_pylist())
        return [name for name, code in self._code_of("tree").items() if code in held]

    def rows(self, tree: str, partition: str | None = None, group: str | None = None) -> list[int]:
        """Return the numbers of the rows of a tree, of one partition of it, or of one group."""
        if not len(self):
            return []
        if partition is not None and self._by_group is None and self._group_scans < _MAX_SCANS:
            self._group_scans += 1
            return self._scanned(tree, partition, group)
        start, end = self.rows_span(tree, partition, group)
        return self._grouped()[1][start:end].tolist() if start < end else []

    def _scanned(self, tree: str, partition: str, group: str | None) -> list[int]:
        """Return the numbers of the rows of a partition or a group, by looking at each row, in the order by group."""
        import pyarrow.compute as pc

        wanted = {"partition": partition, "tree": tree, **({} if group is None else {"group": group})}
        rows: Any = None
        for name, value in wanted.items():
            code = self._code_of(name).get(value)
            if code is None:
                return []
            codes = self._indices(name)
            if rows is None:
                rows = pc.indices_nonzero(pc.equal(codes, code))
            else:
                rows = rows.filter(pc.equal(codes.take(rows), code))
        if group is None:
            rows = rows.take(pc.sort_indices(self._indices("group").take(rows)))
        return _view(rows).tolist() if len(rows) else []

    def _indices(self, name: str) -> Any:
        """Return the codes of a column of :data:`REPEATED`."""
        import pyarrow as pa

        return pa.chunked_array([chunk.indices for chunk in self._coded.column(name).chunks])

    def rows_span(self, tree: str, partition: str | None = None, group: str | None = None) -> tuple[int, int]:
        """Return the places of the rows in the order by group: (first, behind the last)."""
        partitions, groups = len(self._code_of("partition")), len(self._code_of("group"))
        low, width = self._code_of("tree").get(tree), partitions * groups
        if low is not None and partition is not None:
            code = self._code_of("partition").get(partition)
            low, width = (None if code is None else low * partitions + code), groups
            if low is not None and group is not None:
                code = self._code_of("group").get(group)
                low, width = (None if code is None else low * groups + code), 1
        if low is None:
            return 0, 0
        keys = self._grouped()[0]
        return bisect_left(keys, low * width), bisect_left(keys, (low + 1) * width)

    def find(self, tree: str, path: str) -> int | None:
        """Return the row of a path in a tree, or ``None``."""
        if not len(self):
            return None
        for row in self._rows_of_hash(path_hash(path)):
            part = self._part([row], ("path", "tree"))
            if part["path"][0].as_py() == path and part["tree"][0].as_py() == tree:
                return row
        return None

    def _part(self, rows: list[int], names: Sequence[str] = NAMES) -> Any:
        """Return some rows of columns, as a table."""
        import pyarrow as pa

        packed = self._packed
        unlike = [name for name in names if name not in REPEATED]
        read = None if packed is None else packed.part(rows, unlike)
        held = self.table if read is None else self._coded
        held = held.select([name for name in names if read is None or name in REPEATED])
        few = len(rows) <= _FEW
        taken = pa.concat_tables([held.slice(row, 1) for row in rows]) if few else held.take(_numbers(rows))
        return taken if read is None else pa.table({name: (read if name in unlike else taken)[name] for name in names})

    def _rows_of_hash(self, key: int) -> list[int]:
        """Return the rows whose paths have a hash."""
        if self._by_path is None:
            if self._path_scans < _MAX_PATH_SCANS:
                import pyarrow.compute as pc

                self._path_scans += 1
                rows = pc.indices_nonzero(pc.equal(self._hash_column(), key))
                return _view(rows).tolist() if len(rows) else []
            self._by_path = _ordered(self._hash_column())
        keys, order = self._by_path
        return [order[position] for position in range(bisect_left(keys, key), bisect_right(keys, key))]

    def _hash_column(self) -> Any:
        packed = self._packed
        if packed is None:
            return self._coded.column(_KEY)
        if self._hashes is None:
            self._hashes = packed.whole((_KEY,)).column(_KEY)
        return self._hashes

    def paths(self, rows: list[int]) -> list[str]:
        """Return the paths of some rows."""
        return self._part(rows, ("path",))["path"].to_pylist() if rows else []

    def read(self, rows: list[int]) -> Iterator[list[Any]]:
        """Yield the values of some rows, in the order of :data:`NAMES`.

        :raises LogDamaged: if a row is none of a file.
        """
        if not rows:
            return
        part = self._part(rows)
        if len(rows) <= _FEW:
            for n in range(len(rows)):
                values = [part[name][n].as_py() for name in NAMES]
                self._check_path(values[_PATH])
                values[-1] = self._decoded(values[-1])
                yield values
            return
        columns: list[Iterable[Any]] = []
        for name in NAMES:
            column = in_one_piece(part.column(name))
            if name in REPEATED:
                values = column.dictionary.to_pylist()
                columns.append([values[code] for code in _view(column.indices)])
            elif name == "path":
                columns.append(self._check_paths(column.to_pylist()))
            elif name == "extra":
                empty = column.null_count == len(column)
                columns.append(repeat(None) if empty else map(self._decoded, column.to_pylist()))
            else:
                columns.append(_view(column).tolist())
        for row_values in zip(*columns, strict=False):
            yield list(row_values)

    def changed(self, without: set[int], added: Iterable[DataFile]) -> Columns:
        """Return these files without some rows and with some files added."""
        import pyarrow as pa

        values: dict[str, list[Any]] = {name: [] for name in (*NAMES, _KEY)}
        for file in added:
            for name, field in zip(NAMES[:-1], DataFile.__struct_fields__, strict=False):
                values[name].append(getattr(file, field))
            values["extra"].append(msgspec.json.encode(file.extra) if file.extra else None)
            values[_KEY].append(path_hash(file.path))
        parts = [pa.table(values, schema=schema())]
        if len(self):
            kept = self.table
            if without:
                mask = bytearray(b"\x01") * len(self)
                for row in without:
                    mask[row] = 0
                import pyarrow.compute as pc

                flags = pa.Array.from_buffers(pa.uint8(), len(self), [None, pa.py_buffer(mask)])
                kept = kept.filter(pc.equal(flags, 1))
            parts.insert(0, kept)
        return Columns(pa.concat_tables(parts), self.what)

    # --- inside -----------------------------------------------------------------------------------------------

    def _code_of(self, name: str) -> dict[str, int]:
        if name not in self._codes:
            chunks = self._coded.column(name).chunks
            values = chunks[0].dictionary.to_pylist() if chunks else []
            self._codes[name] = {value: code for code, value in enumerate(values)}
        return self._codes[name]

    def _grouped(self) -> tuple[memoryview, memoryview]:
        if self._by_group is None:
            import pyarrow as pa
            import pyarrow.compute as pc

            tree, partition, group = (
                in_one_piece(self._coded.column(name)).indices.cast(pa.int64())
                for name in ("tree", "partition", "group")
            )
            partitions, groups = (_numbers([len(self._code_of(name))])[0] for name in ("partition", "group"))
            key = pc.add(pc.multiply(tree, partitions), partition)
            self._by_group = _ordered(pc.add(pc.multiply(key, groups), group))
        return self._by_group

    def _check_paths(self, paths: list[str]) -> list[str]:
        """Check the paths against their pattern: all at once where they are made of a key's usual characters."""
        whole = "\n".join(paths).encode()
        usual = whole.translate(None, KEY_CHARACTERS) == b"\n" * (len(paths) - 1)
        if usual and not any(two in whole for two in _UPWARDS):
            return paths
        return [self._check_path(path) for path in paths]

    def _check_path(self, path: str) -> str:
        if not FILE_PATH.fullmatch(path):
            raise LogDamaged(
                f"{self.what} lists a file of the path {path!r:.200}, which cannot be one of it.", hint=_DELETE
            )
        return path

    def _decoded(self, extra: bytes | None) -> dict[str, Any] | None:
        if not extra:
            return None
        decoded: dict[str, Any] = decode(extra, dict, f"{self.what} lists a file whose field 'extra'", hint=_DELETE)
        try:
            check_extra(decoded)
        except LogDamaged as error:
            raise LogDamaged(f"{self.what} lists a file: {error.message}", hint=_DELETE) from error
        return decoded


def _ordered(keys: Any) -> tuple[memoryview, memoryview]:
    """Return the keys in ascending order, and the numbers of their rows."""
    import pyarrow.compute as pc

    order = pc.sort_indices(keys)
    return _view(keys.take(order)), _view(order)


def _view(values: Any) -> memoryview:
    """Return integers without nulls as Python sees them, without copying."""
    import pyarrow as pa

    values = in_one_piece(values)
    codes: dict[Any, Literal["Q", "q", "i"]] = {pa.uint64(): "Q", pa.int64(): "q", pa.int32(): "i"}
    whole = memoryview(values.buffers()[1]).cast(codes[values.type])
    return whole[values.offset : values.offset + len(values)]


def _numbers(rows: list[int]) -> Any:
    """Return integers as an Arrow array. Arrow's own conversion from Python imports pandas."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(array("q", rows))])


# --- The set of files of a snapshot ---------------------------------------------------------------------------------


GroupKey = tuple[str, str]
"""(partition, group)."""


class DataFile(Struct, frozen=True):
    """A live file; as :class:`~spark_apps.timeline.model.AddFile`, with its sequence number resolved."""

    tree: str
    partition: str
    group: str
    path: str
    kind: Literal["base", "delta"]
    rows: int
    bytes: int
    sequence_number: int = msgspec.field(name="place")
    tombstones: int = 0
    lineage: int = 0
    extra: dict[str, Any] | None = None

    @classmethod
    def of(cls, add: AddFile, version: int) -> DataFile:
        sequence_number = version if add.sequence_number is None else add.sequence_number
        return cls(add.tree, add.partition, add.group, add.path, add.kind, add.rows, add.bytes, sequence_number,
                   add.tombstones, add.lineage, add.extra)  # fmt: skip

    def to_add(self) -> AddFile:
        """Return the action that brings this very file back, with its sequence number."""
        return AddFile(self.tree, self.partition, self.group, self.path, self.kind, self.rows, self.bytes,
                       self.sequence_number, self.tombstones, self.lineage, self.extra)  # fmt: skip

    @property
    def group_key(self) -> GroupKey:
        return self.partition, self.group


def merge_order(file: DataFile) -> tuple[int, bool, str]:
    """Return the sort key of a file in its group: the sequence number, then a base before deltas, then the path."""
    return file.sequence_number, file.kind == "delta", file.path


def covered_lineages(files: Iterable[DataFile]) -> frozenset[int]:
    """Return the lineages of the data files that an index which addresses files covers, from its own files."""
    parts = [part for file in files if file.extra for part in file.extra.get(COVERS, ())]
    return frozenset(lineage for part in parts for lineage in part["lineages"])


def lowest_files(files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Return the files under all others of a group, given in merge order.

    That is one file, or the parts of one base, which have one sequence number and no key in common.
    """
    parts = sum(file.kind == "base" and file.sequence_number == files[0].sequence_number for file in files)
    return files[: max(parts, 1)]


def is_merged(files: Sequence[DataFile]) -> bool:
    """Test whether a group has files, given in merge order, whose rows need no merging.

    Each key is there once then, and none is deleted.
    """
    return 0 < len(files) == len(lowest_files(files)) and not any(file.tombstones for file in files)


def lowest_plain_file(files: Sequence[DataFile]) -> DataFile | None:
    """Return the file under all others of a group, given in merge order, if it is a plain one.

    That is one whose rows count unless a later file replaces them: a base, or a delta without tombstones, with nothing
    but deltas over it.
    """
    if not files or files[0].tombstones or not files[0].lineage:
        return None
    return files[0] if all(file.kind == "delta" for file in files[1:]) else None


@dataclass(frozen=True)
class RowCount:
    """The number of rows that the log knows of: at least ``least``, and at most ``most`` where that is not ``None``."""

    least: int = 0
    most: int | None = 0

    @property
    def exact(self) -> int | None:
        """The number, where it is known."""
        return self.least if self.least == self.most else None

    @property
    def text(self) -> str:
        """The number as people read it: ``12,345``, a bound such as ``≤ 12,345``, or ``not known``."""
        if self.most is None:
            return f"≥ {self.least:,}" if self.least else "not known"
        return f"{self.most:,}" if self.exact is not None else f"≤ {self.most:,}"

    @property
    def why(self) -> str:
        """The reason for which a number is not exact, for people; empty if it is."""
        if self.exact is not None:
            return ""
        if self.most is None:
            return "The log has no count of some files: their format or their deletes leave it to a reader."
        return (
            f"Between {self.least:,} and {self.most:,}: rows of later files replace others, and nobody has counted "
            "which. A compaction does."
        )

    def __add__(self, other: RowCount) -> RowCount:
        most = None if self.most is None or other.most is None else self.most + other.most
        return RowCount(self.least + other.least, most)


NO_ROWS = RowCount()


def replaced_rows(delta: DataFile) -> int | None:
    """Return how many rows of its file group a delta replaced or deleted when it was committed, if that was counted."""
    extra = delta.extra or {}
    return 0 if extra.get(NEW_KEYS) else extra.get(REPLACED)


def row_count(files: Sequence[DataFile], merge_by: str) -> RowCount:
    """Return the number of rows of a file group, as far as the log says: no file is read.

    :param files: of the group, in merge order.
    """
    if any(file.rows < 0 for file in files):
        return RowCount(0, None)
    live = [file.rows - file.tombstones for file in files]
    tombstones, by_commit = sum(file.tombstones for file in files), merge_by == "commit"
    # Where a column decides between rows, a file may hold a row and a tombstone of one key.
    own = [file.tombstones if by_commit else 0 for file in files]
    least = max((rows - tombstones + of_file for rows, of_file in zip(live, own, strict=True)), default=0)
    bounds = RowCount(max(least, 0), sum(live))
    bottom = len(lowest_files(files))
    if len(files) <= bottom and (by_commit or not tombstones):
        return RowCount(sum(live), sum(live))
    if not by_commit:
        return bounds
    rows, places = sum(live[:bottom]), Counter(file.sequence_number for file in files)
    for number, file in enumerate(files[bottom:], bottom):
        gone = replaced_rows(file)
        if gone is None and number == 1 and (positions := Positions.of(file)) is not None:
            # Of a file right over the lowest one, what it hides there is all that it replaces.
            gone = positions.hidden if positions.over == files[0].lineage and not files[0].tombstones else None
        if gone is None or places[file.sequence_number] > 1:
            return bounds
        rows += live[number] - gone
    fits = bounds.least <= rows <= (bounds.most or 0)
    return RowCount(rows, rows) if fits else bounds


class _Tree:
    """Files of one tree by path, with the paths of each group."""

    __slots__ = ("by_path", "groups")

    def __init__(self) -> None:
        self.by_path: dict[str, DataFile] = {}
        # Tuples, so that copying the outer dict is enough.
        self.groups: dict[GroupKey, tuple[str, ...]] = {}

    def add(self, file: DataFile) -> None:
        if file.path not in self.by_path:
            self.groups[file.group_key] = (*self.groups.get(file.group_key, ()), file.path)
        self.by_path[file.path] = file

    def discard(self, path: str) -> DataFile | None:
        file = self.by_path.pop(path, None)
        if file is not None:
            remaining = tuple(other for other in self.groups[file.group_key] if other != path)
            if remaining:
                self.groups[file.group_key] = remaining
            else:
                del self.groups[file.group_key]
        return file

    def select(self, partition: str | None, group: str | None) -> Iterable[DataFile]:
        if partition is None:
            return self.by_path.values()
        keys = [(partition, group)] if group is not None else [key for key in self.groups if key[0] == partition]
        return [self.by_path[path] for key in keys for path in self.groups.get(key, ())]

    def copy(self) -> _Tree:
        other = _Tree()
        other.by_path, other.groups = dict(self.by_path), dict(self.groups)
        return other


_READ_TOGETHER = 16
"""Files that are read together in the time that one group is read by itself."""


class FileSet:
    """Live files by tree, partition and group."""

    __slots__ = ("_added", "_borrowed", "_files", "_groups", "_removed", "_shared")

    def __init__(self, shared: Columns | None = None) -> None:
        self._shared = Columns() if shared is None else shared
        self._added: dict[str, _Tree] = {}
        self._removed: set[int] = set()
        self._borrowed = False
        # The same files are asked for several times, by one query or build, and while files of other trees change.
        self._files: dict[str, tuple[DataFile, ...]] = {}
        self._groups: dict[str, dict[GroupKey, list[DataFile]]] = {}

    def copy(self) -> FileSet:
        """Return a set that can be changed while this one stays, and the other way round."""
        other = FileSet(self._shared)
        other._added, other._removed = self._added, self._removed
        self._borrowed = other._borrowed = True
        other._files, other._groups = dict(self._files), dict(self._groups)
        return other

    def _own(self, tree: str) -> None:
        """Prepare a change to the files of a tree."""
        self._files.pop(tree, None)
        self._groups.pop(tree, None)
        if self._borrowed:
            self._added = {name: tree.copy() for name, tree in self._added.items()}
            self._removed = set(self._removed)
            self._borrowed = False

    def changes(self) -> int:
        """Return the size of the overlay: changes that the next reader need not fold if a checkpoint is written now."""
        return sum(len(tree.by_path) for tree in self._added.values()) + len(self._removed)

    def size(self) -> int:
        """Return the number of live files, without reading each."""
        return len(self._shared) - len(self._removed) + sum(len(tree.by_path) for tree in self._added.values())

    def trees(self) -> list[str]:
        shared = (name for name in self._shared.trees() if self._live_rows(name))
        return sorted({*shared, *(name for name, tree in self._added.items() if tree.by_path)})

    def add(self, file: DataFile) -> None:
        self._own(file.tree)
        self._added.setdefault(file.tree, _Tree()).add(file)

    def remove(self, tree: str, path: str) -> DataFile | None:
        """Take a file out and return it, or ``None`` if it was not there."""
        self._own(tree)
        added = self._added[tree].discard(path) if tree in self._added else None
        row = self._shared.find(tree, path)
        if row is None or row in self._removed:
            return added
        self._removed.add(row)
        return added or next(self._read([row]))

    def remove_tree(self, tree: str) -> None:
        self._own(tree)
        self._added.pop(tree, None)
        self._removed.update(self._shared.rows(tree))

    def files(self, tree: str, partition: str | None = None, group: str | None = None) -> Iterator[DataFile]:
        """Return the files of a tree; of one partition, or of one group of it, where given."""
        if partition is None and self.size() <= MAX_CACHED_FILES:
            if tree not in self._files:
                self._files[tree] = tuple(self._each(tree, None, None))
            return iter(self._files[tree])
        return self._each(tree, partition, group)

    def _each(self, tree: str, partition: str | None, group: str | None) -> Iterator[DataFile]:
        yield from self._read(self._live_rows(tree, partition, group))
        if tree in self._added:
            yield from self._added[tree].select(partition, group)

    def paths(self, only: str | None = None) -> Iterator[str]:
        """Yield the paths of all files, of all trees or of one."""
        for tree in self.trees() if only is None else [only]:
            yield from self._shared.paths(self._live_rows(tree))
            if tree in self._added:
                yield from self._added[tree].by_path

    def get(self, tree: str, path: str) -> DataFile | None:
        """Return a file by its path, or ``None`` if it is not among them."""
        if tree in self._added and path in self._added[tree].by_path:
            return self._added[tree].by_path[path]
        row = self._shared.find(tree, path)
        return None if row is None or row in self._removed else next(self._read([row]))

    def has(self, tree: str, path: str) -> bool:
        if tree in self._added and path in self._added[tree].by_path:
            return True
        row = self._shared.find(tree, path)
        return row is not None and row not in self._removed

    def has_files(self, tree: str, partition: str, group: str) -> bool:
        """Test whether a group has files, without reading any."""
        added = self._added.get(tree)
        if added is not None and added.groups.get((partition, group)):
            return True
        return bool(self._live_rows(tree, partition, group))

    def groups(self, tree: str) -> dict[GroupKey, list[DataFile]]:
        """Return (partition, group) -> its files in merge order."""
        if self.size() > MAX_CACHED_FILES:
            return self._sorted_groups(tree)
        if tree not in self._groups:
            self._groups[tree] = self._sorted_groups(tree)
        return dict(self._groups[tree])

    def read_ahead(self, tree: str, groups: int) -> None:
        """Read the groups of a tree together, where that takes less than reading that many of them one by one."""
        if self.size() <= min(MAX_CACHED_FILES, groups * _READ_TOGETHER):
            self.groups(tree)

    def group(self, tree: str, key: GroupKey) -> Sequence[DataFile]:
        """Return the files of a group in merge order."""
        known = self._groups.get(tree)
        return sorted(self._each(tree, *key), key=merge_order) if known is None else known.get(key, ())

    def _sorted_groups(self, tree: str) -> dict[GroupKey, list[DataFile]]:
        groups: dict[GroupKey, list[DataFile]] = {}
        for file in self.files(tree):
            groups.setdefault(file.group_key, []).append(file)
        for files in groups.values():
            files.sort(key=merge_order)
        return {key: groups[key] for key in sorted(groups)}

    def __iter__(self) -> Iterator[DataFile]:
        return (file for tree in self.trees() for file in self.files(tree))

    def flattened(self) -> Columns:
        """Return the same files as columns alone, without an overlay: what a checkpoint holds."""
        if not self.changes() and self._shared.table is not None:
            return self._shared
        added = (file for tree in self._added.values() for file in tree.by_path.values())
        return self._shared.changed(self._removed, added)

    def _live_rows(self, tree: str, partition: str | None = None, group: str | None = None) -> list[int]:
        rows = self._shared.rows(tree, partition, group)
        return [row for row in rows if row not in self._removed] if self._removed else rows

    def _read(self, rows: list[int]) -> Iterator[DataFile]:
        return (DataFile(*values) for values in self._shared.read(rows))


# --- What the log holds of positions -------------------------------------------------------------------------------


_EXTRA = "positions"
_ENDING = ".positions"


class Positions(Struct, frozen=True):
    """Entry of the log on a delta's positions.

    :param hidden: how many rows of that file are replaced or deleted.
    :param over: lineage of the file whose rows they mark.
    :param bytes: size of the file of positions; 0 if there are none, and so no file.
    """

    over: int
    hidden: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, file: DataFile | AddFile) -> Positions | None:
        """Return the positions of a delta; ``None`` if it has none."""
        written = (file.extra or {}).get(_EXTRA)
        return None if written is None else cls(**written)

    def to_extra(self) -> dict[str, Any]:
        """Return the positions as :attr:`AddFile.extra` holds them."""
        return {_EXTRA: {"over": self.over, "hidden": self.hidden, "bytes": self.bytes}}


def positions_path(delta: str) -> str:
    """Return the path of the positions of a delta."""
    return delta.removesuffix(".parquet") + _ENDING


def delta_of(path: str) -> str | None:
    """Return the delta that a file of positions belongs to; ``None`` for other files."""
    return path.removesuffix(_ENDING) + ".parquet" if path.endswith(_ENDING) else None
