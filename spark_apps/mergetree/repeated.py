"""Counts keys that stand more than once in files that were just written, sorted by their key.

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

_AT_ONCE = 1 << 14
PLAIN = (T.StringType, T.BinaryType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType, T.BooleanType)
"""Types whose values are equal to Arrow exactly if they are to Spark; of others (floating ones, say) perhaps not."""


def plain(tree: Tree) -> bool:
    """Whether all columns of the key are of such types."""
    return all(type(tree.field(name).dataType) in PLAIN for name in tree.key)


def countable(store: ObjectStore, tree: Tree) -> bool:
    """Whether :func:`count_repeated` can and should be asked: for files on a disk that the driver has."""
    return plain(tree) and store.spark_path("").startswith("file:")


def count_repeated(store: ObjectStore, tree: Tree, files: Sequence[AddFile]) -> int:
    """How many rows of files have the key of the row before them in their file.

    :param files: base files of a tree whose key has no nulls.
    :raises StorageError: naming a file that cannot be read.
    """
    names = [tree.stored(name) for name in tree.key]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return sum(pool.map(lambda file: _repeated(store, file, names), files))


def _repeated(store: ObjectStore, file: AddFile, names: Sequence[str]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found, last = 0, None
    try:
        with pq.ParquetFile(store.spark_path(file.path).removeprefix("file://")) as opened:
            for batch in opened.iter_batches(_AT_ONCE, columns=list(names), use_threads=False):
                columns = [batch.column(name) for name in names]
                found += _alike([column[1:] for column in columns], [column[:-1] for column in columns])
                if last is not None:
                    found += _alike([column[:1] for column in columns], last)
                last = [column[-1:] for column in columns]
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"The file {file.path} that Spark just wrote cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Try again; if it happens again, the storage damages files.",
        ) from error
    return found


def _alike(some: Sequence[Any], others: Sequence[Any]) -> int:
    import pyarrow.compute as pc

    same = reduce(pc.and_, [pc.equal(one, other) for one, other in zip(some, others, strict=True)])
    return int(pc.sum(same).as_py() or 0)
