"""Rows packed into Parquet by Arrow as Spark packs them: what they take, and where row groups end.

Spark's writer keeps a column's dictionary only if the first page is smaller for it, and ends a row group by what is in
memory then: pages that are packed, and values of the page that is being filled. Arrow is made to do the same, so that a
file takes about what a build's takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_apps.engine.spark_utils import setting
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.mergetree.write import without_dictionary
from spark_apps.mergetree.write_on_driver import CODECS, PAGE_BYTES, footer_metadata, parquet_options, with_statistics
from spark_apps.storage.parquet.files import column_chunks, read_footer
from spark_apps.storage.parquet.statistics import column_name

_PAGE_ROWS = 8192
_TRIED_ROWS = 65_536
"""Rows by which it is found out how many make a row group."""

_MIN_UNSEEN, _MAX_UNSEEN = 100, 10_000
"""Rows after which Spark's writer looks at what is in memory: at least, and at most."""

_MANY_ROWS = 10_000_000
_LENGTH_BYTES = 4
"""Bytes of the length of a text, which is written before it."""

_MAX_DIGITS = 18
"""A decimal of more is written as bytes of one length, which never get a dictionary."""


def packed(snapshot: Snapshot, tree: Tree, rows: Any, row_groups: int = 1) -> bytes:
    """Return some rows of a tree, in their order, as the file that Spark would write of them.

    :param rows: an Arrow table with the tree's columns, as Spark exchanges them.
    :param row_groups: that the file has, of a tree whose row groups have no size of their own.
    """
    import pyspark

    rows = _stored(tree, rows)
    options = _options(snapshot, tree, rows)
    limit = tree.row_group_bytes
    if limit is None:
        groups = [len(rows) * (n + 1) // row_groups - len(rows) * n // row_groups for n in range(row_groups)]
    else:
        groups = _Memory(rows, options).rows_of_groups(len(rows), limit)
    version = snapshot.spark.version if snapshot.has_spark else pyspark.__version__
    return _written(rows, options, groups, footer_metadata(version, tree, deltas=False))


def row_group_bytes(snapshot: Snapshot, tree: Tree, rows: Any) -> int:
    """Return the bytes in a file of a row group of many rows that are like some.

    :param tree: one whose row groups have a size. :param rows: one at least.
    """
    rows = _stored(tree, rows)
    options = _options(snapshot, tree, rows)
    assert tree.row_group_bytes is not None
    some, limit = rows.slice(0, _TRIED_ROWS), tree.row_group_bytes
    group = _Memory(some, options).rows_of_groups(_MANY_ROWS, limit)[0]
    return round(group * sum(_column_bytes(some, options)) / len(some))


def _stored(tree: Tree, rows: Any) -> Any:
    return rows.select(list(tree.columns)).rename_columns([tree.stored(name) for name in tree.columns])


def _options(snapshot: Snapshot, tree: Tree, rows: Any) -> dict[str, Any]:
    import pyarrow as pa

    codec = "snappy" if tree.compressed else "none"
    if tree.compressed and snapshot.has_spark:
        codec = str(setting(snapshot.spark, "spark.sql.parquet.compression.codec", codec)).lower()
    plain = {tree.stored(name) for name in without_dictionary(tree)}
    repeated = [
        path
        for field in rows.schema
        if field.name not in plain and (pa.types.is_nested(field.type) or _keeps_dictionary(rows.column(field.name)))
        for path in _paths(field)
    ]
    return parquet_options(codec if codec in CODECS else "snappy", repeated)


def _paths(field: Any) -> list[str]:
    """Return the paths of a column's values in Parquet: one, but of nested values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not pa.types.is_nested(field.type):
        return [field.name]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.schema([field]).empty_table(), sink)
    schema = read_footer(sink.getvalue()).schema
    return [schema.column(number).path for number in range(len(schema))]


def _keeps_dictionary(values: Any) -> bool:
    """Tell whether Spark's writer keeps the dictionary of a column, by the values of its first page."""
    import numpy as np
    import pyarrow as pa

    kind, width = values.type, _plain_bytes(values)
    many_digits = pa.types.is_decimal(kind) and kind.precision > _MAX_DIGITS
    if pa.types.is_boolean(kind) or many_digits or not len(values):
        return False
    page = values.slice(0, _page_rows(width)).drop_null()
    if not len(page):
        return True
    encoded = pa.concat_arrays(page.chunks).dictionary_encode()
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    bits = max(1, (len(encoded.dictionary) - 1).bit_length())
    runs = 1 + int(np.count_nonzero(np.diff(numbers)))
    indices = min(len(page) * bits / 8, runs * (1 + bits / 8))
    return indices + len(encoded.dictionary) * width < len(page) * width


def _plain_bytes(values: Any) -> float:
    """Return the bytes of a plain value, on average."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_decimal(kind):
        if kind.precision > _MAX_DIGITS:
            return float(((10**kind.precision).bit_length() + 8) // 8)
        return 4.0 if kind.precision <= 9 else 8.0
    if pa.types.is_boolean(kind):
        return 0.125
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        known = len(values) - values.null_count
        return _LENGTH_BYTES + (pc.sum(pc.binary_length(values)).as_py() or 0) / max(known, 1)
    if pa.types.is_nested(kind):
        return max(1.0, values.nbytes / max(len(values), 1))
    return max(4.0, kind.bit_width / 8)


def _page_rows(width: float) -> int:
    return max(1, min(_PAGE_ROWS, int(PAGE_BYTES / width)))


def _column_bytes(rows: Any, options: dict[str, Any], *, dictionaries: bool = True) -> list[int]:
    """Return what each column takes of some rows that are packed as one row group, perhaps without its dictionary."""
    metadata = read_footer(_written(rows, options, [len(rows)]))
    sizes = dict.fromkeys(rows.column_names, 0)
    for number, chunk in enumerate(column_chunks(metadata, 0)):
        size = chunk.total_compressed_size
        if not dictionaries and chunk.has_dictionary_page:
            size -= chunk.data_page_offset - chunk.dictionary_page_offset
        sizes[column_name(metadata.schema.column(number))] += size
    return list(sizes.values())


class _Memory:
    """Memory of Spark's writer for a row group: packed pages, and values of the pages that are being filled.

    :param rows: that are like those it writes.
    """

    def __init__(self, rows: Any, options: dict[str, Any]) -> None:
        some = rows.slice(0, _TRIED_ROWS)
        sizes = _column_bytes(some, options, dictionaries=False) if len(some) else []
        widths = [_plain_bytes(some.column(name)) for name in some.column_names]
        self._columns = [
            (size / len(some), width, _page_rows(width)) for size, width in zip(sizes, widths, strict=False)
        ]

    def after(self, rows: int) -> float:
        """Return the bytes in memory after some rows."""
        return sum(size * (rows - rows % page) + width * (rows % page) for size, width, page in self._columns)

    def rows_of_groups(self, total: int, limit: int) -> list[int]:
        """Return how many rows each row group gets, of some rows in all.

        The writer looks at its memory now and then: the sooner, the closer it came to the limit.

        :param limit: of the bytes in memory.
        """
        groups: list[int] = []
        first, left = _MIN_UNSEEN, total
        while left > 0:
            rows = first
            while rows < left:
                held = self.after(rows)
                if held > limit - 2 * held / rows:
                    break
                rows = max(rows + 1, min(round((rows + limit * rows / held) / 2), rows + _MAX_UNSEEN))
            groups.append(min(rows, left))
            first, left = min(max(_MIN_UNSEEN, rows // 2), _MAX_UNSEEN), left - rows
        return groups


def _written(
    rows: Any, options: dict[str, Any], groups: Sequence[int], metadata: dict[str, str] | None = None
) -> bytes:
    """Return rows as a file.

    :param groups: how many rows each row group has.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, write_statistics=with_statistics(rows), **options) as writer:
        start = 0
        for count in groups:
            writer.write_table(rows.slice(start, count), row_group_size=max(1, count))
            start += count
        if metadata is not None:
            writer.add_key_value_metadata(metadata)
    body: bytes = sink.getvalue().to_pybytes()
    return body
