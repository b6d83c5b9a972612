"""Rows by block: in which block of its file each row lies, and the rows of chosen blocks alone.

The first is Spark's own reading, by the position that it tells of each row; the second goes through Arrow, file by file
and block by block, for Spark can only be asked for whole files. Which files can be read so is told by
:mod:`spark_apps.mergetree.blockfiles`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blockfiles import BlockFile, arrow_type, etag_of, held_as, open_blocks, store_options
from spark_apps.mergetree.foreign import is_foreign, typed, values_of
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.intact import check_intact
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.sessions import cores, with_columns
from spark_apps.mergetree.telling import told_of, uri_of
from spark_apps.mergetree.tree import GROUP_ID, LINEAGE, Snapshot, Tree
from spark_apps.storage.ranged import RangedFile
from spark_apps.timeline.files import DataFile

BLOCK = "__index_block"
"""Column with the number of the block, within its file, that a row lies in."""

_URI = "__index_uri"
_PATH = "__index_path"
_AT = "__index_at"
_START = "__index_start"
_STARTS = "__index_starts"
_ASKED = "path string, size bigint, etag string, lineage bigint, form string, blocks array<int>"
_TASKS_A_CORE = 2


@dataclass(frozen=True)
class BlockRead:
    """A file of which some blocks are read."""

    footer: BlockFile
    blocks: tuple[int, ...]

    @property
    def file(self) -> DataFile:
        return self.footer.file


# --- where rows lie ---------------------------------------------------------------------------------------------


def located(
    snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], footers: Sequence[BlockFile], columns: Sequence[str]
) -> DataFrame:
    """The rows of data files with :data:`LINEAGE` and :data:`BLOCK`; a file without a footer is one block, number 0.

    :param files: of the table's own tree, each to be read alone (no deltas over it).
    :param footers: of those files that have blocks.
    """
    parquet = [footer for footer in footers if footer.format == "parquet"]
    stripes = [footer for footer in footers if footer.format == "orc" and readable(snapshot, tree, footer, columns)]
    apart = {footer.file.path for footer in (*parquet, *stripes)}
    whole = [file for file in files if file.path not in apart]
    parts: list[DataFrame] = []
    if parquet:
        single = [footer for footer in parquet if footer.blocks == 1]
        several = [footer for footer in parquet if footer.blocks != 1]
        parts.extend(_by_position(snapshot, tree, some, columns) for some in (single, several) if some)
    if stripes:
        reads = [BlockRead(footer, tuple(range(footer.blocks))) for footer in stripes]
        parts.append(read_blocks(snapshot, tree, reads, [*columns, LINEAGE, BLOCK]))
    if whole:
        rows = read_files(snapshot, tree, whole, [*columns, GROUP_ID])
        told = {LINEAGE: column(GROUP_ID).cast("bigint"), BLOCK: F.lit(0)}
        parts.append(with_columns(rows, told).drop(GROUP_ID))
    return reduce(DataFrame.unionByName, parts)


def _by_position(snapshot: Snapshot, tree: Tree, footers: Sequence[BlockFile], columns: Sequence[str]) -> DataFrame:
    """Rows of Parquet files with their place, by the position that Spark tells of each row."""
    files = [footer.file for footer in footers]
    rows = read_files(snapshot, tree, files, columns)
    if all(footer.blocks == 1 for footer in footers):
        named = [column(name) for name in columns]
        lineages = {LINEAGE: ("bigint", [file.lineage for file in files])}
        found = told_of(snapshot, rows, named, files, lineages, lambda frame: frame)
        return found.select(*named, LINEAGE, F.lit(0).alias(BLOCK))
    path = F.regexp_replace(F.col("_metadata.file_path"), "^([A-Za-z0-9]+):/+", "$1:/")
    rows = rows.select(*map(column, columns), path.alias(_PATH), F.col("_metadata.row_index").alias(_AT))
    known = [
        (_plain(uri_of(footer.address)), footer.file.lineage, [0, *accumulate(footer.rows)][: footer.blocks])
        for footer in footers
    ]
    table = inline(snapshot.spark, known, f"{_URI} string, {LINEAGE} bigint, {_STARTS} array<bigint>")
    # One row a block: a row of data lies in the block that begins last before it.
    table = table.select(_URI, LINEAGE, _STARTS, F.posexplode(_STARTS).alias(BLOCK, _START))
    end = F.coalesce(F.try_element_at(_STARTS, F.col(BLOCK) + 2), F.lit(2**63 - 1))
    table = table.select(_URI, LINEAGE, BLOCK, _START, end.alias("__index_end"))
    here = (F.col(_PATH) == F.col(_URI)) & (F.col(_AT) >= F.col(_START)) & (F.col(_AT) < F.col("__index_end"))
    found = rows.join(F.broadcast(table), here, "left")
    stray = F.raise_error(F.concat(F.lit("a row of a file that was not asked for: "), F.col(_PATH))).cast("bigint")
    lineage = F.when(F.col(_URI).isNull(), stray).otherwise(F.col(LINEAGE))
    return found.select(*map(column, columns), lineage.alias(LINEAGE), F.col(BLOCK))


def _plain(uri: str) -> str:
    scheme, rest = uri.split(":", 1)
    return f"{scheme}:/{rest.lstrip('/')}"


# --- the rows of some blocks ------------------------------------------------------------------------------------


def readable(snapshot: Snapshot, tree: Tree, footer: BlockFile, columns: Iterable[str]) -> bool:
    """Whether :func:`read_blocks` gives these columns of a file as Spark would."""
    attached = _attached(snapshot, footer.file)
    inside = [name for name in columns if name not in attached]
    return footer.exact({tree.stored(name): tree.field(name).dataType.simpleString() for name in inside})


def read_blocks(snapshot: Snapshot, tree: Tree, reads: Sequence[BlockRead], columns: Sequence[str]) -> DataFrame:
    """The rows of some blocks of data files, as they lie there.

    :param reads: of files that are :func:`readable` in these columns.
    :param columns: of the tree, and :data:`LINEAGE` or :data:`BLOCK`, in this order.
    :raises ObjectNotFound: :raises StorageError: if a file is not as it was listed.
    """
    files = [read.file for read in reads]
    if not is_foreign(snapshot, tree):
        check_intact(snapshot, tree, files)
    elif snapshot.foreign is not None:
        snapshot.foreign.check(files)
    told = {file.lineage: _attached(snapshot, file) for file in files}
    attached = [name for name in columns if name in next(iter(told.values()))]
    inside = [name for name in columns if name in tree.columns and name not in attached]
    tasks = cores(snapshot.spark) * _TASKS_A_CORE
    # Each task opens its file anew, so a file is cut no smaller than it takes to keep all cores busy.
    step = max(1, -(-sum(len(read.blocks) for read in reads) // tasks))
    pieces = [
        (read.footer.address, read.file.bytes, etag_of(read.file), read.file.lineage, read.footer.format,
         list(read.blocks[n : n + step]))
        for read in reads
        for n in range(0, len(read.blocks), step)
    ]  # fmt: skip
    asked = inline(snapshot.spark, pieces, _ASKED)
    asked = asked.repartition(min(len(pieces), 4 * tasks)) if len(pieces) > 1 else asked
    fields = [T.StructField(name, tree.field(name).dataType, True) for name in inside]
    fields += [T.StructField(LINEAGE, T.LongType()), T.StructField(BLOCK, T.IntegerType())]
    types = {name: (tree.stored(name), tree.field(name).dataType.simpleString()) for name in inside}
    rows = asked.mapInArrow(partial(_batches, types, store_options(snapshot)), T.StructType(fields))
    values = {name: _told(tree, name, {lineage: texts[name] for lineage, texts in told.items()}) for name in attached}
    return with_columns(rows, values).select(*map(column, columns))


def _attached(snapshot: Snapshot, file: DataFile) -> dict[str, str | None]:
    return {} if snapshot.table.source is None else values_of(snapshot, file)


def _told(tree: Tree, name: str, texts: Mapping[int, str | None]) -> Column:
    """A column that says the same of all rows of a file."""
    distinct = set(texts.values())
    if len(distinct) == 1:
        return typed(tree, name, F.lit(distinct.pop()))
    pairs = [F.lit(part) for lineage, text in texts.items() if text is not None for part in (lineage, text)]
    return typed(tree, name, F.create_map(*pairs)[F.col(LINEAGE)])


def _batches(types: Mapping[str, tuple[str, str]], options: Mapping[str, Any], asked: Iterable[Any]) -> Iterator[Any]:
    """On an executor: the record batches of the blocks that the rows of ``asked`` tell."""
    for batch in asked:
        for one in batch.to_pylist():
            yield from block_batches(one, types, options)[0]


def block_batches(
    one: Mapping[str, Any], types: Mapping[str, tuple[str, str]], options: Mapping[str, Any]
) -> tuple[Iterator[Any], RangedFile]:
    """The rows of some blocks of a file, and the file below, which counts the bytes that it fetches.

    :param one: ``path``, ``size``, ``etag``, ``lineage``, ``form`` and ``blocks``.
    :param types: column -> its name in the file, and its Spark type.
    """
    file, raw = open_blocks(one["form"], one["path"], one["size"], options, one.get("etag"))
    names = file.schema.names if one["form"] == "orc" else file.schema_arrow.names
    wanted = {name: held_as(names, stored) for name, (stored, _) in types.items()}

    stored = [name for name in dict.fromkeys(wanted.values()) if name is not None]

    def rows(block: int) -> Iterator[Any]:
        import pyarrow as pa

        if one["form"] == "orc":
            # Without a column it would not tell how many rows there are.
            table = pa.Table.from_batches([file.read_stripe(block, columns=stored or names[:1])])
        else:
            table = file.read_row_group(block, columns=stored, use_threads=False)
        arrays = [_converted(table, wanted[name], arrow_type(parse_type(kind))) for name, (_, kind) in types.items()]
        arrays.append(pa.chunked_array([pa.repeat(pa.scalar(one["lineage"], pa.int64()), table.num_rows)]))
        arrays.append(pa.chunked_array([pa.repeat(pa.scalar(block, pa.int32()), table.num_rows)]))
        yield from pa.table(arrays, names=[*types, LINEAGE, BLOCK]).to_batches()

    return (batch for block in one["blocks"] for batch in rows(block)), raw


def _converted(table: Any, name: str | None, kind: Any) -> Any:
    import pyarrow as pa

    if name is None:
        return pa.chunked_array([pa.nulls(table.num_rows, kind)])
    held = table.column(name)
    return held if held.type == kind else held.cast(kind)
