"""Few rows written as files of a tree by this process, without a Spark job, from an Arrow table.

What takes the time of a small write is planning and starting Spark's jobs, not the rows. The files are like those that
Spark writes: the same folders, names, columns and types of Parquet, sorted by the key, with a page index, checksums of
pages, and Hadoop's checksums beside them. Where it is not known how Spark would write (a type, a codec, encryption),
this module writes nothing.

The files are on a disk of the driver's and are not synced by this module: a commit does that with all that an attempt
has staged.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from spark_apps.engine.pyspark_names import SparkSession, T
from spark_apps.engine.spark_utils import has_parquet_keys, setting
from spark_apps.mergetree.buckets import GROUP, PART, Target
from spark_apps.mergetree.integrity import is_countable
from spark_apps.mergetree.tree import DELETED, Tree
from spark_apps.mergetree.write import lineage, without_dictionary
from spark_apps.storage.errors import StorageError
from spark_apps.storage.parquet.seals import seal
from spark_apps.storage.store import ObjectStore, RangedFile
from spark_apps.timeline.model import DATA_TREE, AddFile

CODECS = {"none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd"}
"""Spark's names of codecs -> those of Arrow, for codecs that both write in the same form."""

PAGE_BYTES = 128 * 1024
_PIECE_BYTES = 512
_BATCH_ROWS = 1024
"""Values after which it is looked at whether a page is full."""


def _written_types() -> tuple[type[T.DataType], ...]:
    """Return the types whose values this module writes as Spark does."""
    integers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    others = (T.FloatType, T.DoubleType, T.DecimalType, T.DateType, T.BooleanType, T.TimestampType, T.TimestampNTZType)
    return (T.StringType, T.BinaryType, *integers, *others)


def can_stage_on_driver(spark: SparkSession, store: ObjectStore, tree: Tree) -> bool:
    """Test whether :func:`stage_table` writes rows of a tree as a Spark job of the session would."""
    kinds = [tree.field(name).dataType for name in tree.columns]
    if tree.by_id or not is_countable(store, tree) or any(type(kind) not in _written_types() for kind in kinds):
        return False
    if any(kind != T.StringType() for kind in kinds if isinstance(kind, T.StringType)):  # with a collation, say
        return False
    return (
        _codec(spark, tree) in CODECS
        and str(setting(spark, "spark.sql.parquet.writeLegacyFormat", "false")).lower() == "false"
        and not has_parquet_keys(spark)
    )


def _codec(spark: SparkSession, tree: Tree) -> str:
    if not tree.compressed:
        return "none"
    return str(setting(spark, "spark.sql.parquet.compression.codec", "snappy")).lower()


def stage_table(
    spark: SparkSession,
    store: ObjectStore,
    tree: Tree,
    rows: Any,
    directory: str,
    targets: Sequence[Target],
    numbers: Any,
    buckets: Any,
) -> list[AddFile]:
    """Write rows as deltas of a tree, one file a file group, and return the actions that make them visible.

    :param rows: an Arrow table, each key once in a file group, with the tree's columns and perhaps
        :data:`~spark_apps.mergetree.tree.DELETED`.
    :param directory: key of a directory that does not exist yet.
    :param numbers: of each row's partition among ``targets``, as a numpy array. :param buckets: of each row, likewise.
    :raises StorageError: if a file cannot be written.
    """
    import numpy as np
    import pyarrow as pa

    if not len(rows):
        return []
    if DELETED not in rows.column_names:
        rows = rows.append_column(DELETED, pa.nulls(len(rows), pa.bool_()))
    rows = rows.select([*tree.columns, DELETED])
    order = order_of(tree, rows, numbers, buckets)
    rows, numbers, buckets = rows.take(order).combine_chunks(), numbers[order], buckets[order]
    ends = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(buckets) != 0)) + 1
    bounds = [0, *ends.tolist(), len(rows)]
    stored = pa.schema([_stored_field(tree, name, rows.column(name)) for name in rows.column_names])
    rows, metadata = rows.rename_columns(stored.names).cast(stored), footer_metadata(spark.version, tree, deltas=True)
    options = _options(spark, tree)
    write = secrets.token_hex(16)

    def put(number: int) -> AddFile:
        first, last = bounds[number : number + 2]
        target, group = targets[int(numbers[first])], str(int(buckets[first]))
        suffix = "" if options["compression"] == "none" else f".{_codec(spark, tree)}"
        key = f"{directory}/{PART}={int(numbers[first])}/{GROUP}={group}/part-00000-{write}.c000{suffix}.parquet"
        part = rows.slice(first, last - first)
        return _put(store, tree, part, options, metadata, key, target.path, group)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(put, range(len(bounds) - 1)))


def order_of(tree: Tree, rows: Any, numbers: Any, buckets: Any) -> Any:
    """Return the positions of rows in the order of partition, bucket and key, nulls first, as Spark sorts them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ranks = [pa.array(numbers, pa.int64()), pa.array(buckets, pa.int64())]
    for name in tree.key:
        values = rows.column(name)
        ranks += [pc.cast(values.is_valid(), pa.int8()), values] if values.null_count else [values]
    table = pa.table(ranks, names=list(map(str, range(len(ranks)))))
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])


def _stored_field(tree: Tree, name: str, values: Any) -> Any:
    """Return a column as files have it: of one that takes no null and has none the file says so."""
    import pyarrow as pa

    nullable = name == DELETED or tree.field(name).nullable or values.null_count > 0
    return pa.field(tree.stored(name), values.type, nullable)


def footer_metadata(version: str, tree: Tree, *, deltas: bool) -> dict[str, str]:
    """Return what Spark of a version writes into a footer; by that readers know the calendar of dates."""
    fields = [T.StructField(tree.stored(name), tree.field(name).dataType) for name in tree.columns]
    schema = T.StructType([*fields, *([T.StructField(DELETED, T.BooleanType())] if deltas else [])])
    return {"org.apache.spark.version": version, "org.apache.spark.sql.parquet.row.metadata": schema.json()}


def _options(spark: SparkSession, tree: Tree) -> dict[str, Any]:
    plain = set(map(tree.stored, without_dictionary(tree)))
    repeated = [name for name in (*map(tree.stored, tree.columns), DELETED) if name not in plain]
    return parquet_options(_codec(spark, tree), repeated)


def parquet_options(codec: str, repeated: Sequence[str]) -> dict[str, Any]:
    """Return how Arrow writes Parquet as Spark does.

    :param codec: as Spark calls it, one of :data:`CODECS`. :param repeated: the columns that have a dictionary.
    """
    return {
        "compression": CODECS[codec],
        "use_dictionary": list(repeated) or False,
        "store_decimal_as_integer": True,
        "store_schema": False,
        "write_page_index": True,
        "write_page_checksum": True,
        "data_page_size": PAGE_BYTES,
        "write_batch_size": _BATCH_ROWS,
    }


def _put(
    store: ObjectStore,
    tree: Tree,
    rows: Any,
    options: dict[str, Any],
    metadata: dict[str, str],
    key: str,
    partition: str,
    group: str,
) -> AddFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    most = len(rows) if tree.row_group_bytes is None else len(rows) * tree.row_group_bytes // max(rows.nbytes, 1)
    with pq.ParquetWriter(sink, rows.schema, write_statistics=with_statistics(rows), **options) as writer:
        writer.write_table(rows, row_group_size=max(1, min(most, len(rows))))
        writer.add_key_value_metadata(metadata)
    body = sink.getvalue().to_pybytes()
    path = Path(store.spark_path(key).removeprefix("file://"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for place, data in ((path, body), (path.with_name(f".{path.name}.crc"), _checksums(body))):
            with place.open("xb") as file:
                file.write(data)
    except OSError as error:
        raise StorageError(
            f"The file {key} cannot be written: {error}.",
            outcome="Nothing was changed.",
            hint="See that the disk has room and that the folder may be written to, then try again.",
        ) from error
    tombstones = len(rows) - rows.column(DELETED).null_count
    extra = None if tree.name == DATA_TREE else seal(RangedFile.of(body))
    return AddFile(
        tree.name, partition, group, key, "delta", len(rows), len(body), None, tombstones, lineage(key), extra
    )


def with_statistics(rows: Any) -> list[str]:
    """Return the columns whose lowest and highest values a file states: none that holds a NaN.

    Arrow leaves a NaN out of both, and Spark takes it for the highest number: its readers would pass over such rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    return [
        field.name
        for field in rows.schema
        if not (pa.types.is_floating(field.type) and pc.any(pc.is_nan(rows.column(field.name))).as_py())
    ]


def _checksums(body: bytes) -> bytes:
    """Return what Hadoop keeps beside a file on a local disk: a checksum of each piece, which its readers compare."""
    sums = (zlib.crc32(body[begin : begin + _PIECE_BYTES]) for begin in range(0, len(body), _PIECE_BYTES))
    return b"crc\0" + struct.pack(">i", _PIECE_BYTES) + b"".join(struct.pack(">I", each) for each in sums)
