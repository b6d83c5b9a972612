"""Counting keys that stand more than once in files that were just written, sorted by their key.

A few passes over the key columns on the driver, where the files lie on its own disk, take a small part of what it takes
Spark to look at each row's neighbours while it writes them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

from pyspark.sql import types as T

from spark_apps.mergetree.tree import Tree
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.model import AddFile

_BATCH_ROWS = 1 << 14
EXACT_TYPES = (
    T.StringType,
    T.BinaryType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DateType,
    T.BooleanType,
)
"""Types whose values are equal to Arrow exactly if they are to Spark; of others (floating ones, say) perhaps not."""


def is_exactly_comparable(tree: Tree) -> bool:
    """Tell whether all columns of the key are of such types."""
    return all(type(tree.field(name).dataType) in EXACT_TYPES for name in tree.key)


def is_countable(store: ObjectStore, tree: Tree) -> bool:
    """Tell whether :func:`count_duplicates` can and should be called: for files on a disk that the driver has."""
    return is_exactly_comparable(tree) and store.spark_path("").startswith("file:")


def count_duplicates(store: ObjectStore, tree: Tree, files: Sequence[AddFile]) -> int:
    """Return how many rows of files have the key of the row before them in their file.

    :param files: base files of a tree whose key has no nulls.
    :raises StorageError: naming a file that cannot be read.
    """
    names = [tree.stored(name) for name in tree.key]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return sum(pool.map(lambda file: _count_in_file(store, file, names), files))


def _count_in_file(store: ObjectStore, file: AddFile, names: Sequence[str]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    duplicates, previous = 0, None
    try:
        with pq.ParquetFile(store.spark_path(file.path).removeprefix("file://")) as opened:
            for batch in opened.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False):
                columns = [batch.column(name) for name in names]
                duplicates += _count_equal([column[1:] for column in columns], [column[:-1] for column in columns])
                if previous is not None:
                    duplicates += _count_equal([column[:1] for column in columns], previous)
                previous = [column[-1:] for column in columns]
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"The file {file.path} that Spark just wrote cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Try again; if it happens again, the storage damages files.",
        ) from error
    return duplicates


def _count_equal(left_columns: Sequence[Any], right_columns: Sequence[Any]) -> int:
    import pyarrow.compute as pc

    same = reduce(pc.and_, [pc.equal(left, right) for left, right in zip(left_columns, right_columns, strict=True)])
    return int(pc.sum(same).as_py() or 0)
