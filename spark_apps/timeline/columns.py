"""Many files as Arrow columns, looked up by group or by path without turning them into Python objects.

A checkpoint of a million files must load in less than a second, and most readers then look at a few groups. What is
needed to find them (an order by group, an order by the paths' hashes) is made when first asked for.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Literal

import msgspec
import xxhash

from spark_apps.storage.documents import decode
from spark_apps.storage.errors import LogDamaged
from spark_apps.timeline.checked import FILE_PATH, GROUP, INDEX_FILES, KEY_CHARACTERS, PARTITION, TREE
from spark_apps.timeline.consistency import check_extra

NAMES = (
    "tree", "partition", "group", "path", "kind", "rows", "bytes", "place", "tombstones", "lineage", "extra",
)  # fmt: skip
"""The columns in the order of the fields of :class:`~spark_apps.timeline.files.DataFile`."""

REPEATED = ("tree", "partition", "group", "kind")
"""Columns whose values repeat, so that they are kept as codes into a dictionary."""

_RANGES = {"rows": (-1, 10**15), "bytes": (0, 10**15), "tombstones": (0, 2**63 - 1), "lineage": (0, 2**63 - 1)}
_PATTERNS = {"tree": TREE, "partition": PARTITION, "group": GROUP, "kind": re.compile("base|delta")}
_KEY = "path_hash"
_FEW = 64
_PATH = NAMES.index("path")
_UPWARDS = (b"/.", b"//", b"/\n", b"\n/")


_DELETE = "Nothing was opened. Delete the folder _index/timeline/checkpoints, and find out who wrote to it."


def path_hash(path: str) -> int:
    """The 64-bit hash of a path, signed as Arrow's ``int64`` holds it."""
    value = xxhash.xxh3_64_intdigest(path.encode())
    return value - (1 << 64) if value >> 63 else value


def schema() -> Any:
    """The Arrow schema of the columns, the paths' hashes last."""
    import pyarrow as pa

    types = dict.fromkeys(NAMES, pa.int64()) | {"path": pa.string(), "extra": pa.binary()}
    types |= dict.fromkeys(REPEATED, pa.dictionary(pa.int32(), pa.string()))
    return pa.schema([*((name, types[name]) for name in NAMES), (_KEY, pa.int64())])


def read(opened: Any, version: int, begins: str, what: str) -> Any:
    """The columns in an opened Parquet file, as an Arrow table of :func:`schema`.

    Numbers, what repeats and where files lie are checked here; the rest of a path when its file is asked for.

    :param opened: from :func:`~spark_apps.storage.page_headers.open_parquet`. :param version: of the state.
    :param begins: what the paths of data files begin with (:func:`~spark_apps.timeline.consistency.data_prefix`).
    :raises LogDamaged: naming the column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not opened.schema_arrow.equals(schema()):
        raise LogDamaged(f"{what} cannot be read: its columns are not those of a checkpoint.")
    try:
        table = opened.read().unify_dictionaries()
        for name, (low, high) in {**_RANGES, "place": (0, version)}.items():
            ends = pc.min_max(table[name]).as_py() if table.num_rows else {"min": low, "max": high}
            if table[name].null_count or not low <= ends["min"] <= ends["max"] <= high:
                raise LogDamaged(f"{what} cannot be read: its column {name!r} holds what cannot be in it: {ends}.")
        for name, pattern in _PATTERNS.items():
            column = table[name]
            values = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
            wrong = next((value for value in values if not pattern.fullmatch(value or "")), None)
            if column.null_count or wrong is not None:
                raise LogDamaged(f"{what} cannot be read: its column {name!r} holds {wrong!r:.200}.")
        paths = table["path"]
        inside = sum(pc.sum(pc.starts_with(paths, place)).as_py() or 0 for place in (begins, INDEX_FILES))
        # A source may be one file, which then has the location for its path.
        if paths.null_count or (inside < len(paths) and set(paths.to_pylist()) != {begins.rstrip("/")}):
            raise LogDamaged(f"{what} cannot be read: its column 'path' holds files that are none of the table.")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogDamaged(f"{what} cannot be read: {error}.") from error
    return table


class Columns:
    """An unchanging list of files; a row is named by its number.

    :param table: an Arrow table of :func:`schema`, or ``None`` for no files.
    :param what: names the checkpoint that it is from, and its table, for errors.
    """

    def __init__(self, table: Any = None, what: str = "A checkpoint of the table") -> None:
        self.what = what
        # One dictionary for all chunks, so that a code means the same value everywhere.
        self.table: Any = None if table is None else table.unify_dictionaries()
        self._codes: dict[str, dict[str, int]] = {}
        self._by_group: tuple[memoryview, memoryview] | None = None
        self._by_path: tuple[memoryview, memoryview] | None = None

    def __len__(self) -> int:
        return 0 if self.table is None else self.table.num_rows

    def trees(self) -> list[str]:
        """Names of the trees that have files here."""
        if not len(self):
            return []
        return [name for name in self._code_of("tree") if self.rows_span(name)[0] < self.rows_span(name)[1]]

    def rows(self, tree: str, partition: str | None = None, group: str | None = None) -> list[int]:
        """Numbers of the rows of a tree, of one partition of it, or of one group."""
        if not len(self):
            return []
        start, end = self.rows_span(tree, partition, group)
        return self._grouped()[1][start:end].tolist() if start < end else []

    def rows_span(self, tree: str, partition: str | None = None, group: str | None = None) -> tuple[int, int]:
        """Where the rows stand in the order by group: (first, behind the last)."""
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
        """The row of a path in a tree, or ``None``."""
        if not len(self):
            return None
        if self._by_path is None:
            self._by_path = _ordered(self.table.column(_KEY))
        keys, order = self._by_path
        key = path_hash(path)
        for position in range(bisect_left(keys, key), bisect_right(keys, key)):
            row = order[position]
            if self.table["path"][row].as_py() == path and self.table["tree"][row].as_py() == tree:
                return row
        return None

    def paths(self, rows: list[int]) -> list[str]:
        """The paths of some rows."""
        return self.table["path"].take(_numbers(rows)).to_pylist() if rows else []

    def read(self, rows: list[int]) -> Iterator[list[Any]]:
        """The values of some rows, in the order of :data:`NAMES`. :raises LogDamaged: if one is none of a file."""
        if not rows:
            return
        if len(rows) <= _FEW:
            for row in rows:
                values = [self.table[name][row].as_py() for name in NAMES]
                self._check_path(values[_PATH])
                values[-1] = self._decoded(values[-1])
                yield values
            return
        part = self.table.take(_numbers(rows))
        columns: list[Iterable[Any]] = []
        for name in NAMES:
            column = _joined(part.column(name))
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

    def changed(self, without: set[int], added: Iterable[Any]) -> Columns:
        """These files without some rows and with some files (objects with the attributes :data:`NAMES`) added."""
        import pyarrow as pa

        values: dict[str, list[Any]] = {name: [] for name in (*NAMES, _KEY)}
        for file in added:
            for name in NAMES[:-1]:
                values[name].append(getattr(file, name))
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
            chunks = self.table.column(name).chunks
            values = chunks[0].dictionary.to_pylist() if chunks else []
            self._codes[name] = {value: code for code, value in enumerate(values)}
        return self._codes[name]

    def _grouped(self) -> tuple[memoryview, memoryview]:
        if self._by_group is None:
            import pyarrow as pa
            import pyarrow.compute as pc

            tree, partition, group = (
                _joined(self.table.column(name)).indices.cast(pa.int64()) for name in ("tree", "partition", "group")
            )
            partitions, groups = (_numbers([len(self._code_of(name))])[0] for name in ("partition", "group"))
            key = pc.add(pc.multiply(tree, partitions), partition)
            self._by_group = _ordered(pc.add(pc.multiply(key, groups), group))
        return self._by_group

    def _check_paths(self, paths: list[str]) -> list[str]:
        """The paths, held against their pattern: all at once where they are made of a key's usual characters."""
        whole = "\n".join(paths).encode()
        usual = whole.translate(None, KEY_CHARACTERS) == b"\n" * (len(paths) - 1)
        if usual and not any(two in whole for two in _UPWARDS):
            return paths
        return [self._check_path(path) for path in paths]

    def _check_path(self, path: str) -> str:
        if not FILE_PATH.fullmatch(path):
            raise LogDamaged(
                f"{self.what} tells of a file of the path {path!r:.200}, which cannot be one of it.", hint=_DELETE
            )
        return path

    def _decoded(self, extra: bytes | None) -> dict[str, Any] | None:
        if not extra:
            return None
        found: dict[str, Any] = decode(extra, dict, f"{self.what} tells of a file whose field 'extra'", hint=_DELETE)
        try:
            check_extra(found)
        except LogDamaged as error:
            raise LogDamaged(f"{self.what} tells of a file: {error.message}", hint=_DELETE) from error
        return found


def _ordered(keys: Any) -> tuple[memoryview, memoryview]:
    """The keys in ascending order, and the rows they stand in."""
    import pyarrow.compute as pc

    order = pc.sort_indices(keys)
    return _view(keys.take(order)), _view(order)


def _joined(column: Any) -> Any:
    """A column in one piece."""
    import pyarrow as pa

    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _view(values: Any) -> memoryview:
    """Integers without nulls as Python sees them, without copying."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = _joined(values)
    codes: dict[Any, Literal["Q", "q", "i"]] = {pa.uint64(): "Q", pa.int64(): "q", pa.int32(): "i"}
    whole = memoryview(values.buffers()[1]).cast(codes[values.type])
    return whole[values.offset : values.offset + len(values)]


def _numbers(rows: list[int]) -> Any:
    """Integers as Arrow sees them. Arrow's own way from a Python value looks for pandas, and so imports it."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(array("q", rows))])
