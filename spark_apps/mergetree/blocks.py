"""Rows by block: in which block of its file each row is, and the rows of chosen blocks alone.

The first is Spark's own reading, by the row index that it gives of each row; the second goes through Arrow, file by
file and block by block, for Spark reads whole files only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from heapq import nlargest
from itertools import accumulate, groupby
from typing import Any, Literal

from spark_apps.engine.pyspark_names import Column, DataFrame, F, T
from spark_apps.engine.spark_utils import cores, inline, with_columns
from spark_apps.engine.spark_versions import from_arrow
from spark_apps.layout.types import INTEGER_BITS, ColumnType, arrow_type, nested_arrow_type, parse_type
from spark_apps.mergetree.external_files import (
    THROUGH,
    add_file_columns,
    attached_values,
    cast_text,
    is_external,
    quoted_uri,
)
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.limits import MAX_MEASURED_FILES
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.reader_settings import case_sensitive
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import GROUP_ID, LINEAGE, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.storage.parquet.files import column_chunk, column_chunks
from spark_apps.storage.parquet.listed import OpenedFile, ParquetFiles, open_address
from spark_apps.storage.parquet.statistics import bounds_of, column_name, flat_columns
from spark_apps.storage.store import HADOOP_SCHEMES, RangedFile, open_by_address
from spark_apps.timeline.files import DataFile

BlockFormat = Literal["parquet", "orc"]

_THREADS = 16
_FORMATS: dict[str, BlockFormat] = {"parquet": "parquet", "delta": "parquet", "iceberg": "parquet", "orc": "orc"}
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_SPARK_VERSION = b"org.apache.spark.version"
"""Key of the version of Spark that wrote a file."""

_FIRST_RECENT_YEAR = 1900
"""The first year in which no calendar or time zone rule that writers ever differed in changes a value."""


def block_format(snapshot: Snapshot, file: DataFile) -> BlockFormat | None:
    """Return the format of a data file, if it has blocks that can be read one by one."""
    source = snapshot.table.source
    if source is None:
        return "parquet"
    # Old dates that a reader is set to take in its own way are left to it.
    if THROUGH in (file.extra or {}) or any("rebase" in name.lower() for name in source.options):
        return None
    if case_sensitive(source):
        return None  # by Arrow columns are found in any case
    return _FORMATS.get(source.format)


def access_options(snapshot: Snapshot) -> dict[str, Any]:
    """Return the options that the table's files are reached with; may hold secrets."""
    return dict(getattr(snapshot.store, "options", {}))


@dataclass(frozen=True)
class BlockFile:
    """The blocks of one file.

    :param address: as :func:`~spark_apps.storage.store.open_by_address` takes it.
    :param rows: of each block, in their order; empty for ORC, whose footers do not say how many they are.
    :param parsed: the Parquet metadata, or the ORC file, as pyarrow gives it; ``schema``: its Arrow schema.
    """

    file: DataFile
    address: str
    format: BlockFormat
    blocks: int
    rows: tuple[int, ...]
    parsed: Any
    schema: Any

    @classmethod
    def of(cls, file: DataFile, address: str, opened: OpenedFile | OpenedStripes) -> BlockFile:
        """Return the blocks of a file that is open."""
        if isinstance(opened, OpenedStripes):
            return cls(file, address, "orc", opened.orc.nstripes, (), opened.orc, opened.schema)
        rows = opened.footer.rows
        return cls(file, address, "parquet", len(rows), rows, opened.metadata, opened.schema)

    @cached_property
    def _flat_columns(self) -> dict[str, int]:
        """Name of a Parquet column with one value a row -> its number among the leaves."""
        return flat_columns(self.parsed.schema)

    def held(self, name: str) -> str | None:
        """Return a column's name in the file; case does not matter.

        ``None`` if the file lacks it.

        :raises KeyError: if several could be meant.
        """
        return match_column_name(self.schema.names, name)

    def bytes(self, columns: Iterable[str], blocks: Iterable[int] | None = None) -> int:
        """Return the bytes of some columns in some blocks (all by default), as they are stored."""
        wanted = list(range(self.blocks) if blocks is None else blocks)
        if self.format == "orc":
            return round(self.file.bytes * len(wanted) / max(1, self.blocks))
        names, schema = {self.held(name) for name in columns}, self.parsed.schema
        leaves = [n for n in range(len(schema)) if column_name(schema.column(n)) in names]
        return sum(column_chunk(self.parsed, block, n).total_compressed_size for block in wanted for n in leaves)

    def statistics(self, block: int, name: str) -> Any:
        """Return the statistics of a column in a block, as pyarrow gives them; ``None`` where there are none."""
        leaf = self._flat_columns.get(self.held(name) or "") if self.format == "parquet" else None
        return None if leaf is None else column_chunk(self.parsed, block, leaf).statistics

    def exact(self, columns: Mapping[str, str]) -> bool:
        """Test whether Arrow reads these columns (name -> Spark type) as Spark does."""
        if self.format == "orc" and all(name.startswith("_col") for name in self.schema.names):
            return False  # columns without names, which Spark takes by their places
        try:
            return all(self._is_exact(self.held(name), parse_type(kind)) for name, kind in columns.items())
        except KeyError:
            return False

    def why_unreadable(self, name: str, text: str, rebase: str | None) -> str | None:
        """Return why Arrow does not read a column as Spark does; ``None`` if it does.

        More is read than is :meth:`exact`: values that are converted after they were read, and days and times without
        statistics, which :func:`is_of_one_calendar` judges then.

        :param text: its Spark type. :param rebase: how old days and times of files of unknown writers are taken.
        """
        if self.format == "orc" and all(one.startswith("_col") for one in self.schema.names):
            return "the file holds columns without names, which Spark takes by their places"
        try:
            held = self.held(name)
        except KeyError:
            return "the file has several columns of this name, in letters of another case"
        if held is None:
            return None
        stored = self.schema.field(held).type
        if not _is_converted(stored, text):
            return f"the file holds it as {stored}, which the table has as {text}"
        if not any(moment in text for moment in _MOMENTS):
            return None
        if self.format == "orc":
            return "days and times of ORC files are of the calendar and the zone of their writer"
        if parse_type(text).kind == "other":
            legacy = self._is_of_old_calendar((3, 1)) if rebase == "CORRECTED" else True
            return "it holds days or times whose calendar the file does not name" if legacy else None
        return self._other_moments(held, parse_type(text))

    def _other_moments(self, held: str, kind: ColumnType) -> str | None:
        """Return why days or times of a column of its own are none of the table's type or calendar."""
        int96 = (
            held in self._flat_columns and self.parsed.schema.column(self._flat_columns[held]).physical_type == "INT96"
        )
        stored = self.schema.field(held).type
        times = kind.kind != "date" and getattr(stored, "unit", None) is not None
        if times and (int96 or stored.tz is not None) != (kind.kind == "timestamp"):
            return f"the file holds it as {stored}, which the table has as {kind.text}"
        if self._is_of_old_calendar((3, 1) if int96 else (3, 0), int96):
            return "the file was written by the calendar of Spark 2, or says so"
        return None

    def _is_of_old_calendar(self, since: tuple[int, int], int96: bool = False) -> bool:
        """Test whether the file says that its days and times are of the calendar that Spark used before version 3."""
        key_values = self.parsed.metadata or {}
        if _SPARK_VERSION not in key_values:
            return False
        legacy = b"org.apache.spark.legacyINT96" if int96 else b"org.apache.spark.legacyDateTime"
        return legacy in key_values or not _at_least(key_values[_SPARK_VERSION].decode("ascii", "replace"), since)

    @property
    def names_calendar(self) -> bool:
        """True if Spark wrote the file, and so says of which calendar its days and times are."""
        return _SPARK_VERSION in (self.parsed.metadata or {})

    def is_exact_by_schema(self, columns: Mapping[str, str]) -> bool:
        """Test whether these columns, if they are :meth:`exact`, are so in all files with this schema and key-values.

        Else the statistics of a Parquet file decide.
        """
        moments = any(parse_type(kind).kind in _MOMENTS for kind in columns.values())
        return not moments or _SPARK_VERSION in (self.parsed.metadata or {})

    def _is_exact(self, name: str | None, kind: ColumnType) -> bool:
        if arrow_type(kind) is None:
            return False
        if name is None:
            return True  # null in every row
        if not _converts(self.schema.field(name).type, kind):
            return False
        if kind.kind not in _MOMENTS:
            return True
        # ORC files of different writers mean different calendars and zones.
        return self.format == "parquet" and self._has_same_moments(name, kind)

    def _has_same_moments(self, name: str, kind: ColumnType) -> bool:
        """Test whether a date or timestamp needs no conversion between calendars or zones."""
        if name not in self._flat_columns:
            return False
        int96 = self.parsed.schema.column(self._flat_columns[name]).physical_type == "INT96"
        if kind.kind != "date":
            zoned = int96 or self.schema.field(name).type.tz is not None
            if zoned != (kind.kind == "timestamp"):
                return False
        key_values = self.parsed.metadata or {}
        if _SPARK_VERSION in key_values:
            version = key_values[_SPARK_VERSION].decode("ascii", "replace")
            legacy = b"org.apache.spark.legacyINT96" if int96 else b"org.apache.spark.legacyDateTime"
            return legacy not in key_values and _at_least(version, (3, 1) if int96 else (3, 0))
        statistics = [self.statistics(block, name) for block in range(self.blocks)]
        return not int96 and all(chunk is not None and _is_recent(chunk) for chunk in statistics)


_SAMPLED = 3
"""Files, the largest, whose footers are read for how their bytes are divided between columns."""

_COLUMN_BYTES: dict[tuple[str, str, int, int], Mapping[str, int]] = {}
"""The bytes of each column, by its name in lower case, of files whose footers were read."""


def stored_share(
    snapshot: Snapshot, files: Sequence[DataFile], columns: Iterable[str], *, own: bool = False
) -> float | None:
    """Return the part of Parquet files' bytes that some of their columns take, from 0 to 1; one is read at least.

    By the footers of the largest, which are read once.

    :param columns: as they are called in the files. :param own: they are files of an index.
    :return: ``None`` where footers do not say.
    """
    wanted = {name.lower() for name in columns}
    sample = nlargest(_SAMPLED, files, key=lambda file: (file.bytes, file.path))
    missing = [file for file in sample if _key(snapshot, file) not in _COLUMN_BYTES]
    try:
        for footer in read_footers(snapshot, missing, own=own) if missing else ():
            note_column_bytes(snapshot, footer)
    except StorageError:
        return None  # Spark will say what is wrong with the file, if it is read
    sizes = [known for file in sample if (known := _COLUMN_BYTES.get(_key(snapshot, file)))]
    total = sum(sum(each.values()) for each in sizes)
    if not total:
        return None
    read = sum(sum(size for name, size in each.items() if name in wanted) or min(each.values()) for each in sizes)
    return read / total


def note_column_bytes(snapshot: Snapshot, footer: BlockFile) -> None:
    """Remember how the bytes of a Parquet file are divided between its columns."""
    if footer.format != "parquet":
        return
    if len(_COLUMN_BYTES) >= MAX_MEASURED_FILES:
        _COLUMN_BYTES.clear()
    _COLUMN_BYTES[_key(snapshot, footer.file)] = column_bytes(footer.parsed)


def column_bytes(metadata: Any) -> dict[str, int]:
    """Return the bytes of each column of a Parquet file, by its name in lower case.

    :param metadata: of the file, as pyarrow gives it.
    """
    sizes: dict[str, int] = {}
    for number in range(metadata.num_row_groups):
        for leaf, chunk in enumerate(column_chunks(metadata, number)):
            name = column_name(metadata.schema.column(leaf)).lower()
            sizes[name] = sizes.get(name, 0) + chunk.total_compressed_size
    return sizes


def _key(snapshot: Snapshot, file: DataFile) -> tuple[str, str, int, int]:
    return snapshot.store.uri, file.path, file.lineage, file.bytes


def read_footers(snapshot: Snapshot, files: Sequence[DataFile], *, own: bool = False) -> list[BlockFile]:
    """Return the footers of those files that have blocks, in their order.

    :param own: they are files of an index, and so Parquet, whatever the table's are.
    :param snapshot: the version that the files are of.
    :raises StorageError: naming a file whose footer cannot be read.
    """
    options = access_options(snapshot)
    forms: list[BlockFormat | None] = ["parquet" if own else block_format(snapshot, file) for file in files]
    readable_files = [(file, form) for file, form in zip(files, forms, strict=True) if form is not None]
    index_files = ParquetFiles(snapshot.store)  # which are held against the log each time

    def read(file_and_format: tuple[DataFile, BlockFormat]) -> BlockFile:
        file, form = file_and_format
        address = snapshot.store.spark_path(file.path)
        if own:
            return _read(file, address, lambda: index_files.open(file))
        keep = snapshot.table.source is None
        return _read(file, address, lambda: open_blocks(form, address, file.bytes, options, etag_of(file), keep=keep))

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, readable_files))


def _read(file: DataFile, address: str, opened: Callable[[], OpenedFile | OpenedStripes]) -> BlockFile:
    import pyarrow as pa

    try:
        return BlockFile.of(file, address, opened())
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise StorageError(
            f"The footer of {file.path} cannot be read: {reason}.",
            outcome="Nothing was changed.",
            hint="Bring the file back from a backup, or load the table again if its owner changed it.",
        ) from error


def etag_of(file: DataFile) -> str | None:
    """Return the etag that a file of a source had when it was listed.

    Files of this package, of Delta and of Iceberg are never written again, and have none.
    """
    etag: str | None = (file.extra or {}).get("etag")
    return etag


class OpenedStripes:
    """An ORC file that is open, read as :class:`~spark_apps.storage.parquet.listed.OpenedFile` reads row groups.

    :param source: the file below, which counts the bytes that it fetches.
    """

    def __init__(self, source: RangedFile) -> None:
        import pyarrow as pa
        from pyarrow import orc

        self.source, whole = source, source.whole
        self.orc = orc.ORCFile(pa.PythonFile(source, mode="r") if whole is None else pa.BufferReader(whole))

    @property
    def schema(self) -> Any:
        """The Arrow schema of the file."""
        return self.orc.schema

    def read_group(self, stripe: int, columns: Sequence[str], rows: None = None, threads: bool = False) -> Any:
        """Return columns of a stripe as an Arrow table; stripes are always read as a whole."""
        import pyarrow as pa

        # Without a column the number of rows would not be known.
        read = self.orc.read_stripe(stripe, columns=list(columns) or self.schema.names[:1])
        return pa.Table.from_batches([read]) if isinstance(read, pa.RecordBatch) else read


def open_blocks(
    form: str, address: str, size: int, options: Mapping[str, Any], etag: str | None = None, **more: Any
) -> OpenedFile | OpenedStripes:
    """Open a Parquet or ORC file, of which only what is read is fetched.

    :param etag: of a file that its owner may replace: what is in which block is known of that very file.
    :param more: of a Parquet file, as :func:`~spark_apps.storage.parquet.listed.open_address` takes it.
    :raises OSError: from this call, or while the file is read.
    """
    if form == "orc":
        return OpenedStripes(open_by_address(address, size, options, etag))
    return open_address(address, size, options, etag, **more)


def match_column_name(names: Sequence[str], name: str) -> str | None:
    """Return a column's name among those of a file; see :meth:`BlockFile.held`."""
    if names.count(name) == 1:
        return name
    similar = [other for other in names if other.lower() == name.lower()]
    if len(similar) > 1:
        raise KeyError(name)
    return similar[0] if similar else None


def _converts(stored: Any, kind: ColumnType) -> bool:
    """Test whether every value of a stored type becomes the value that Spark reads."""
    import pyarrow.types as pat

    if kind.is_integer:
        return bool(pat.is_signed_integer(stored)) and stored.bit_width <= INTEGER_BITS[kind.kind]
    if kind.kind == "string":
        return bool(pat.is_string(stored) or pat.is_large_string(stored) or pat.is_string_view(stored))
    if kind.kind == "binary":
        return bool(pat.is_binary(stored) or pat.is_large_binary(stored) or pat.is_binary_view(stored))
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return bool(pat.is_timestamp(stored)) and stored.unit in ("ms", "us")
    return bool(stored == arrow_type(kind))


def _is_converted(stored: Any, text: str) -> bool:
    """Test whether Arrow casts every value of a stored type to the value that Spark reads as a type, or fails at it."""
    import pyarrow.types as pat

    while isinstance(stored, pa_extension()):
        stored = stored.storage_type
    if pat.is_null(stored):
        return True
    if pat.is_dictionary(stored):
        return _is_converted(stored.value_type, text)
    wanted = nested_arrow_type(text)
    if wanted is None:
        return False
    if pat.is_nested(wanted):
        return _is_nested_alike(stored, wanted)
    return _is_cast(stored, wanted)


def _is_nested_alike(stored: Any, wanted: Any) -> bool:
    """Test whether a list, map or struct is cast part by part; the fields of a struct are found by their names."""
    import pyarrow.types as pat

    def part(one: Any, other: Any) -> bool:
        while isinstance(one, pa_extension()):
            one = one.storage_type
        if pat.is_null(one):
            return True
        if pat.is_dictionary(one):
            return False  # Arrow casts none inside of others
        return _is_nested_alike(one, other) if pat.is_nested(other) else _is_cast(one, other)

    if pat.is_map(wanted):
        return (
            pat.is_map(stored) and part(stored.key_type, wanted.key_type) and part(stored.item_type, wanted.item_type)
        )
    if pat.is_list(wanted):
        lists = pat.is_list(stored) or pat.is_large_list(stored)
        return bool(lists and not pat.is_map(stored) and part(stored.value_type, wanted.value_type))
    if not pat.is_struct(wanted) or not pat.is_struct(stored):
        return False
    names = [stored.field(n).name for n in range(stored.num_fields)]
    return names == [wanted.field(n).name for n in range(wanted.num_fields)] and all(
        part(stored.field(n).type, wanted.field(n).type) for n in range(stored.num_fields)
    )


def _is_cast(stored: Any, wanted: Any) -> bool:
    """Test whether Arrow casts values of one plain type to the values of another that Spark reads, or fails at one."""
    import pyarrow as pa
    import pyarrow.types as pat

    if stored == wanted:
        return True
    if pat.is_integer(wanted):
        fits = stored.bit_width < wanted.bit_width if pat.is_unsigned_integer(stored) else True
        return bool(pat.is_integer(stored) and fits and stored.bit_width <= wanted.bit_width)
    if pat.is_string(wanted) or pat.is_binary(wanted):
        texts = pat.is_string(stored) or pat.is_large_string(stored) or pat.is_string_view(stored)
        octets = pat.is_binary(stored) or pat.is_large_binary(stored) or pat.is_binary_view(stored)
        return bool(texts or octets or (pat.is_binary(wanted) and pat.is_fixed_size_binary(stored)))
    if pat.is_decimal(wanted):
        if pat.is_decimal(stored):
            return bool(stored.scale == wanted.scale and stored.precision <= wanted.precision)
        return bool(stored == pa.uint64() and wanted == pa.decimal128(20, 0))
    if pat.is_timestamp(wanted):
        return bool(pat.is_timestamp(stored)) and stored.unit in ("ms", "us", "ns")
    return bool(pat.is_float32(stored) and pat.is_float64(wanted))


def pa_extension() -> Any:
    import pyarrow as pa

    return pa.BaseExtensionType


def is_of_one_calendar(column: Any) -> bool:
    """Test whether no calendar or time zone rule that writers ever differed in changes a day or time of a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = dt.date(_FIRST_RECENT_YEAR, 1, 1)
    if pa.types.is_timestamp(column.type):
        least = pc.min(column.cast(pa.int64()))
        units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
        return least.as_py() is None or least.as_py() >= (first - dt.date(1970, 1, 1)).days * 86_400 * units
    least = pc.min(column.cast(pa.int32()))
    return least.as_py() is None or least.as_py() >= (first - dt.date(1970, 1, 1)).days


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    parts = version.split(".")
    try:
        return (int(parts[0]), int(parts[1])) >= wanted
    except (ValueError, IndexError):
        return False


def _is_recent(statistics: Any) -> bool:
    bounds = bounds_of(statistics)
    if bounds is None:
        return False
    if bounds.nulls is not None and bounds.values == 0:
        return True
    return bounds.low is not None and bool(bounds.low.year >= _FIRST_RECENT_YEAR)


# --- Rows by block ----------------------------------------------------------------------------------------------------


BLOCK = "__index_block"
"""Column with the number of a row's block within its file."""

_URI = "__index_uri"
_PATH = "__index_path"
_ROW_INDEX = "__index_at"
_START = "__index_start"
_STARTS = "__index_starts"
_REQUEST_COLUMNS = "path string, size bigint, etag string, lineage bigint, form string, blocks array<int>"
_TASKS_PER_CORE = 2


@dataclass(frozen=True)
class BlockRead:
    """A file of which some blocks are read."""

    footer: BlockFile
    blocks: tuple[int, ...]

    @property
    def file(self) -> DataFile:
        return self.footer.file


# --- Rows with their block --------------------------------------------------------------------------------------------


def located(
    snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], footers: Sequence[BlockFile], columns: Sequence[str]
) -> DataFrame:
    """Return the rows of data files with :data:`LINEAGE` and :data:`BLOCK`.

    A file without a footer is one block, number 0.

    :param files: of the table's own tree, each to be read alone (no deltas over it).
    :param footers: of those files that have blocks.
    :param snapshot: the version that the files are of. :param columns: to read.
    """
    parquet = [footer for footer in footers if footer.format == "parquet"]
    stripes = [footer for footer in footers if footer.format == "orc" and is_readable(snapshot, tree, footer, columns)]
    blocked_paths = {footer.file.path for footer in (*parquet, *stripes)}
    whole_files = [file for file in files if file.path not in blocked_paths]
    parts: list[DataFrame] = []
    if parquet:
        single = [footer for footer in parquet if footer.blocks == 1]
        several = [footer for footer in parquet if footer.blocks != 1]
        parts.extend(
            _by_position(snapshot, tree, footers_of_kind, columns)
            for footers_of_kind in (single, several)
            if footers_of_kind
        )
    if stripes:
        reads = [BlockRead(footer, tuple(range(footer.blocks))) for footer in stripes]
        parts.append(read_blocks(snapshot, tree, reads, [*columns, LINEAGE, BLOCK]))
    if whole_files:
        rows = read_files(snapshot, tree, whole_files, [*columns, GROUP_ID])
        constants = {LINEAGE: column(GROUP_ID).cast("bigint"), BLOCK: F.lit(0)}
        parts.append(with_columns(rows, constants).drop(GROUP_ID))
    return reduce(DataFrame.unionByName, parts)


def _by_position(snapshot: Snapshot, tree: Tree, footers: Sequence[BlockFile], columns: Sequence[str]) -> DataFrame:
    """Return rows of Parquet files with their block, by the row index that Spark gives."""
    files = [footer.file for footer in footers]
    rows = read_files(snapshot, tree, files, columns)
    if all(footer.blocks == 1 for footer in footers):
        named = [column(name) for name in columns]
        lineages = {LINEAGE: ("bigint", [file.lineage for file in files])}
        positioned = add_file_columns(snapshot, rows, named, files, lineages, lambda frame: frame)
        return positioned.select(*named, LINEAGE, F.lit(0).alias(BLOCK))
    path = F.regexp_replace(F.col("_metadata.file_path"), "^([A-Za-z0-9]+):/+", "$1:/")
    rows = rows.select(*map(column, columns), path.alias(_PATH), F.col("_metadata.row_index").alias(_ROW_INDEX))
    block_starts = [
        (_plain_uri(quoted_uri(footer.address)), footer.file.lineage, [0, *accumulate(footer.rows)][: footer.blocks])
        for footer in footers
    ]
    table = inline(snapshot.spark, block_starts, f"{_URI} string, {LINEAGE} bigint, {_STARTS} array<bigint>")
    # One row per block: a row of data is in the block that begins last before it.
    table = table.select(_URI, LINEAGE, _STARTS, F.posexplode(_STARTS).alias(BLOCK, _START))
    end = F.coalesce(F.try_element_at(_STARTS, F.col(BLOCK) + 2), F.lit(2**63 - 1))
    table = table.select(_URI, LINEAGE, BLOCK, _START, end.alias("__index_end"))
    in_block = (
        (F.col(_PATH) == F.col(_URI))
        & (F.col(_ROW_INDEX) >= F.col(_START))
        & (F.col(_ROW_INDEX) < F.col("__index_end"))
    )
    positioned = rows.join(F.broadcast(table), in_block, "left")
    unexpected_file = F.raise_error(F.concat(F.lit("a row of a file that was not asked for: "), F.col(_PATH))).cast(
        "bigint"
    )
    lineage = F.when(F.col(_URI).isNull(), unexpected_file).otherwise(F.col(LINEAGE))
    return positioned.select(*map(column, columns), lineage.alias(LINEAGE), F.col(BLOCK))


def _plain_uri(uri: str) -> str:
    scheme, rest = uri.split(":", 1)
    return f"{scheme}:/{rest.lstrip('/')}"


# --- Rows of chosen blocks --------------------------------------------------------------------------------------------


def is_readable(snapshot: Snapshot, tree: Tree, footer: BlockFile, columns: Iterable[str]) -> bool:
    """Test whether :func:`read_blocks` gives these columns of a file as Spark would."""
    attached = _values_of(snapshot, footer.file)
    inside = [name for name in columns if name not in attached]
    return footer.exact({tree.stored(name): tree.type_of(name) for name in inside})


def read_blocks(snapshot: Snapshot, tree: Tree, reads: Sequence[BlockRead], columns: Sequence[str]) -> DataFrame:
    """Return the rows of some blocks of data files, unmerged.

    :param reads: of files that are :func:`is_readable` in these columns.
    :param columns: of the tree, and :data:`LINEAGE` or :data:`BLOCK`, in this order.
    :raises ObjectNotFound: if a file is not as it was listed.
    :raises StorageError: if a file is not as it was listed.
    """
    files = [read.file for read in reads]
    if not is_external(snapshot, tree):
        check_intact(snapshot, tree, files)
    elif snapshot.external is not None:
        snapshot.external.check(files)
    attached_texts = {file.lineage: _values_of(snapshot, file) for file in files}
    attached = [name for name in columns if name in next(iter(attached_texts.values()))]
    stored = [name for name in columns if name in tree.columns and name not in attached]
    tasks = cores(snapshot.spark) * _TASKS_PER_CORE
    # Each task opens its file anew, so a file is cut no smaller than it takes to keep all cores busy.
    step = max(1, -(-sum(len(read.blocks) for read in reads) // tasks))
    pieces = [
        (read.footer.address, read.file.bytes, etag_of(read.file), read.file.lineage, read.footer.format,
         list(read.blocks[n : n + step]))
        for read in reads
        for n in range(0, len(read.blocks), step)
    ]  # fmt: skip
    fields = [T.StructField(name, tree.field(name).dataType, True) for name in stored]
    schema = T.StructType([*fields, T.StructField(LINEAGE, T.LongType()), T.StructField(BLOCK, T.IntegerType())])
    types = {name: (tree.stored(name), tree.type_of(name)) for name in stored}
    if on_driver_alone(snapshot):
        rows = _read_on_driver(snapshot, pieces, types, schema)
    else:
        requests = inline(snapshot.spark, pieces, _REQUEST_COLUMNS)
        requests = requests.repartition(min(len(pieces), 4 * tasks)) if len(pieces) > 1 else requests
        rows = requests.mapInArrow(partial(_batches, types, access_options(snapshot)), schema)
    values = {
        name: _attached_column(tree, name, {lineage: texts[name] for lineage, texts in attached_texts.items()})
        for name in attached
    }
    return with_columns(rows, values).select(*map(column, columns))


def on_driver_alone(snapshot: Snapshot) -> bool:
    """Test whether Python on an executor cannot open the table's files: those on a file system of Hadoop."""
    return getattr(snapshot.store, "uri", "").partition("://")[0] in HADOOP_SCHEMES


def _read_on_driver(
    snapshot: Snapshot, pieces: Sequence[Sequence[Any]], types: Mapping[str, tuple[str, str]], schema: T.StructType
) -> DataFrame:
    """Return the rows of blocks, read on the driver and handed to Spark."""
    import pyarrow as pa

    names = [part.split()[0] for part in _REQUEST_COLUMNS.split(", ")]
    requests = [dict(zip(names, piece, strict=True)) for piece in pieces]

    def read(request: Mapping[str, Any]) -> list[Any]:
        return list(read_block_batches(request, types, access_options(snapshot))[0])

    with ThreadPoolExecutor(_THREADS) as pool:
        return from_arrow(
            snapshot.spark, pa.Table.from_batches([b for some in pool.map(read, requests) for b in some]), schema
        )


def _values_of(snapshot: Snapshot, file: DataFile) -> dict[str, str | None]:
    return {} if snapshot.table.source is None else attached_values(snapshot, file)


def _attached_column(tree: Tree, name: str, texts: Mapping[int, str | None]) -> Column:
    """Return a column that is constant in all rows of a file."""
    distinct = set(texts.values())
    if len(distinct) == 1:
        return cast_text(tree, name, F.lit(distinct.pop()))
    pairs = [F.lit(part) for lineage, text in texts.items() if text is not None for part in (lineage, text)]
    return cast_text(tree, name, F.create_map(*pairs)[F.col(LINEAGE)])


def _batches(
    types: Mapping[str, tuple[str, str]], options: Mapping[str, Any], requests: Iterable[Any]
) -> Iterator[Any]:
    """Yield, on an executor, the record batches of the blocks in the rows of ``requests``."""
    for batch in requests:
        for request in batch.to_pylist():
            yield from read_block_batches(request, types, options)[0]


def read_block_batches(
    request: Mapping[str, Any], types: Mapping[str, tuple[str, str]], options: Mapping[str, Any]
) -> tuple[Iterator[Any], RangedFile]:
    """Return the rows of some blocks of a file, and the file below, which counts the bytes that it fetches.

    :param request: ``path``, ``size``, ``etag``, ``lineage``, ``form`` and ``blocks``.
    :param types: column -> its name in the file, and its Spark type.
    """
    file = open_blocks(request["form"], request["path"], request["size"], options, request.get("etag"))
    stored_names = {name: match_column_name(file.schema.names, stored) for name, (stored, _) in types.items()}

    stored = [name for name in dict.fromkeys(stored_names.values()) if name is not None]

    def rows(block: int) -> Iterator[Any]:
        import pyarrow as pa

        table = file.read_group(block, stored)
        arrays = [
            _cast_or_null(table, stored_names[name], arrow_type(parse_type(kind))) for name, (_, kind) in types.items()
        ]
        arrays.append(pa.chunked_array([pa.repeat(pa.scalar(request["lineage"], pa.int64()), table.num_rows)]))
        arrays.append(pa.chunked_array([pa.repeat(pa.scalar(block, pa.int32()), table.num_rows)]))
        yield from pa.table(arrays, names=[*types, LINEAGE, BLOCK]).to_batches()

    return (batch for block in request["blocks"] for batch in rows(block)), file.source


class FileReader:
    """A reader of columns of whole Parquet files, each of which is opened once.

    What a schema means is found out once for the files of one writer, which are alike.

    :param types: column -> its name in the files, and its Spark type. :param options: that the files are reached with.
    """

    def __init__(self, types: Mapping[str, tuple[str, str]], options: Mapping[str, Any]) -> None:
        self._types, self._options = types, options
        self._columns = dict(types.values())
        self._kinds = {name: arrow_type(parse_type(kind)) for name, (_, kind) in types.items()}
        self._known: _KnownSchema | None = None

    def read(self, file: DataFile, address: str) -> Any | None:
        """Return the columns of all rows of a file as an Arrow table, of the types that they have there.

        :return: ``None`` where Arrow does not read the columns as Spark does.
        :raises OSError: if the file is not as it was listed.
        """
        import pyarrow as pa

        opened = open_address(address, file.bytes, self._options, etag_of(file))
        held, reader = self._held(file, address, opened), opened.reader
        if held is None:
            return None
        wanted = [name for name in dict.fromkeys(held.values()) if name is not None]
        table = reader.read(columns=wanted, use_threads=False) if wanted else None
        if table is not None and all(name == stored for name, stored in held.items()):
            return table
        arrays = [
            pa.nulls(reader.metadata.num_rows, kind)
            if held[name] is None or table is None
            else table.column(held[name])
            for name, kind in self._kinds.items()
        ]
        return pa.table(arrays, names=list(self._kinds))

    def together(self, tables: Sequence[Any]) -> Any:
        """Return the rows of all tables in one, of the types in which Spark exchanges them.

        :param tables: as :meth:`read` gives them, at least one; columns that they do not have are left out.
        """
        import pyarrow as pa

        alike = [pa.concat_tables(some) for _, some in groupby(tables, key=lambda table: table.schema)]
        kinds = {name: kind for name, kind in self._kinds.items() if name in tables[0].column_names}
        cast = [pa.table({name: _cast_or_null(table, name, kind) for name, kind in kinds.items()}) for table in alike]
        return pa.concat_tables(cast).combine_chunks()

    def _held(self, file: DataFile, address: str, opened: OpenedFile) -> Mapping[str, str | None] | None:
        """Return the name in a file of each column, ``None`` where Arrow does not read the columns as Spark does."""
        known, metadata = self._known, opened.metadata
        if known is not None and known.is_of(opened):
            return known.held
        footer = BlockFile.of(file, address, opened)
        if not footer.exact(self._columns):
            return None
        held = {name: footer.held(stored) for name, (stored, _) in self._types.items()}
        if footer.is_exact_by_schema(self._columns):
            self._known = _KnownSchema(metadata.schema, opened.schema, metadata.metadata or {}, held)
        return held


@dataclass(frozen=True)
class _KnownSchema:
    """The schema of a file that Arrow reads as Spark does, and the names of columns in it.

    :param physical: its leaves as Parquet has them, without their groups. :param schema: what Arrow makes of them, with
        their groups. :param key_values: what else its writer has said.
    """

    physical: Any
    schema: Any
    key_values: Mapping[bytes, bytes]
    held: Mapping[str, str | None]

    def is_of(self, opened: OpenedFile) -> bool:
        """Test whether another file has it."""
        metadata = opened.metadata
        return bool(
            metadata.schema.equals(self.physical)
            and (metadata.metadata or {}) == self.key_values
            and opened.schema.equals(self.schema)
        )


def _cast_or_null(table: Any, name: str | None, kind: Any) -> Any:
    import pyarrow as pa

    if name is None:
        return pa.chunked_array([pa.nulls(table.num_rows, kind)])
    values = table.column(name)
    return values if values.type == kind else values.cast(kind)
