"""What data files tell of their blocks: Parquet's row groups, the stripes of ORC.

How many there are, which rows and bytes each has, which values its statistics allow, and whether Arrow reads a column
exactly as Spark would. Files of other formats are one block each, and so are files that another library reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.foreign import THROUGH
from spark_apps.mergetree.meanings import case_sensitive
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.storage.ranged import RangedFile, opened
from spark_apps.timeline.files import DataFile

BlockFormat = Literal["parquet", "orc"]

_AT_ONCE = 16
_FORMATS: dict[str, BlockFormat] = {"parquet": "parquet", "delta": "parquet", "iceberg": "parquet", "orc": "orc"}
_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_RECENT = 1900
"""From this year on no calendar or time zone rule that writers ever differed in changes a value."""


def block_format(snapshot: Snapshot, file: DataFile) -> BlockFormat | None:
    """The format of a data file, if it has blocks that can be read one by one."""
    source = snapshot.table.source
    if source is None:
        return "parquet"
    # A reader told to take old dates in its own way is left to read them.
    if THROUGH in (file.extra or {}) or any("rebase" in name.lower() for name in source.options):
        return None
    if case_sensitive(source):
        return None  # by Arrow columns are found in any case
    return _FORMATS.get(source.format)


def store_options(snapshot: Snapshot) -> dict[str, Any]:
    """The options that the table's files are reached with; may hold secrets."""
    return dict(getattr(snapshot.store, "options", {}))


@dataclass(frozen=True)
class BlockFile:
    """The blocks of one file.

    :param address: as :func:`~spark_apps.storage.ranged.opened` takes it.
    :param rows: of each block, in their order; empty for ORC, whose footers do not tell them.
    :param parsed: the Parquet metadata, or the ORC file, as pyarrow gives it; ``schema``: its Arrow schema.
    """

    file: DataFile
    address: str
    format: BlockFormat
    blocks: int
    rows: tuple[int, ...]
    parsed: Any
    schema: Any

    @cached_property
    def _leaves(self) -> dict[str, int]:
        """Path of a Parquet column -> its number."""
        schema = self.parsed.schema
        return {schema.column(n).path: n for n in range(self.parsed.num_columns)}

    def held(self, name: str) -> str | None:
        """A column by the name that it has in the file; case does not matter. ``None`` if the file lacks it.

        :raises KeyError: if several could be meant.
        """
        return held_as(self.schema.names, name)

    def bytes(self, columns: Iterable[str], blocks: Iterable[int] | None = None) -> int:
        """The bytes of some columns in some blocks (all by default), as they are stored."""
        wanted = list(range(self.blocks) if blocks is None else blocks)
        if self.format == "orc":
            return round(self.file.bytes * len(wanted) / max(1, self.blocks))
        names = {self.held(name) for name in columns}
        leaves = [n for path, n in self._leaves.items() if path.split(".", 1)[0] in names]
        groups = [self.parsed.row_group(block) for block in wanted]
        return sum(group.column(n).total_compressed_size for group in groups for n in leaves)

    def statistics(self, block: int, name: str) -> Any:
        """The statistics of a column in a block, as pyarrow gives them; ``None`` where there are none."""
        leaf = self._leaves.get(self.held(name) or "") if self.format == "parquet" else None
        return None if leaf is None else self.parsed.row_group(block).column(leaf).statistics

    def exact(self, columns: Mapping[str, str]) -> bool:
        """Whether Arrow reads these columns (name -> Spark type) as Spark does."""
        if self.format == "orc" and all(name.startswith("_col") for name in self.schema.names):
            return False  # columns without names, which Spark takes by their places
        try:
            return all(self._exact(self.held(name), parse_type(kind)) for name, kind in columns.items())
        except KeyError:
            return False

    def _exact(self, name: str | None, kind: ColumnType) -> bool:
        if arrow_type(kind) is None:
            return False
        if name is None:
            return True  # null in every row
        if not _converts(self.schema.field(name).type, kind):
            return False
        if kind.kind not in _MOMENTS:
            return True
        # ORC files of different writers mean different calendars and zones.
        return self.format == "parquet" and self._same_moments(name, kind)

    def _same_moments(self, name: str, kind: ColumnType) -> bool:
        """Whether a date or timestamp needs no conversion between calendars or zones."""
        if name not in self._leaves:
            return False
        int96 = self.parsed.schema.column(self._leaves[name]).physical_type == "INT96"
        if kind.kind != "date":
            zoned = int96 or self.schema.field(name).type.tz is not None
            if zoned != (kind.kind == "timestamp"):
                return False
        told = self.parsed.metadata or {}
        if b"org.apache.spark.version" in told:
            version = told[b"org.apache.spark.version"].decode("ascii", "replace")
            legacy = b"org.apache.spark.legacyINT96" if int96 else b"org.apache.spark.legacyDateTime"
            return legacy not in told and _at_least(version, (3, 1) if int96 else (3, 0))
        found = [self.statistics(block, name) for block in range(self.blocks)]
        return not int96 and all(one is not None and _is_recent(one) for one in found)


def read_footers(snapshot: Snapshot, files: Sequence[DataFile], *, own: bool = False) -> list[BlockFile]:
    """The footers of those files that have blocks, in their order.

    :param own: they are files of an index, and so Parquet, whatever the table's are.
    :raises StorageError: naming a file whose footer cannot be read.
    """
    options = store_options(snapshot)
    forms: list[BlockFormat | None] = ["parquet" if own else block_format(snapshot, file) for file in files]
    wanted = [(file, form) for file, form in zip(files, forms, strict=True) if form is not None]

    def read(one: tuple[DataFile, BlockFormat]) -> BlockFile:
        return _read(one[0], one[1], snapshot.store.spark_path(one[0].path), options)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, wanted))


def _read(file: DataFile, form: BlockFormat, address: str, options: Mapping[str, Any]) -> BlockFile:
    import pyarrow as pa

    try:
        reader, _ = open_blocks(form, address, file.bytes, options, etag_of(file))
        if form == "orc":
            return BlockFile(file, address, form, reader.nstripes, (), reader, reader.schema)
        metadata = reader.metadata
        rows = tuple(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))
        return BlockFile(file, address, form, len(rows), rows, metadata, reader.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise StorageError(
            f"The footer of {file.path} cannot be read: {reason}.",
            outcome="Nothing was changed.",
            hint="Bring the file back from a backup, or load the table again if its owner changed it.",
        ) from error


def etag_of(file: DataFile) -> str | None:
    """What a file of a source was known by when it was listed. Files of our own, of Delta and of Iceberg are never
    written again, and have none."""
    found: str | None = (file.extra or {}).get("etag")
    return found


def open_blocks(
    form: str, address: str, size: int, options: Mapping[str, Any], etag: str | None = None
) -> tuple[Any, RangedFile]:
    """A Parquet or ORC file that fetches only what is read of it, and the file below, which counts the bytes.

    :param etag: of a file that its owner may replace: what lies in which block was told of that very file.
    :raises OSError: here or while it is read.
    """
    import pyarrow as pa

    raw = opened(address, size, options, etag)
    file = pa.PythonFile(raw, mode="r")
    if form == "orc":
        from pyarrow import orc

        return orc.ORCFile(file), raw
    import pyarrow.parquet as pq

    reader = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    return reader, raw


def held_as(names: Sequence[str], name: str) -> str | None:
    """A column's name among those of a file; see :meth:`BlockFile.held`."""
    if names.count(name) == 1:
        return name
    alike = [other for other in names if other.lower() == name.lower()]
    if len(alike) > 1:
        raise KeyError(name)
    return alike[0] if alike else None


def arrow_type(kind: ColumnType) -> Any:
    """The Arrow type in which Spark takes values of one of its own; ``None`` for those that are left to Spark."""
    import pyarrow as pa

    plain = {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
        "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
        "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return plain.get(kind.kind)


def _converts(stored: Any, kind: ColumnType) -> bool:
    """Whether every value of a stored type becomes the value that Spark reads."""
    import pyarrow.types as pat

    if kind.is_integer:
        return bool(pat.is_signed_integer(stored)) and stored.bit_width <= _WIDTHS[kind.kind]
    if kind.kind == "string":
        return bool(pat.is_string(stored) or pat.is_large_string(stored))
    if kind.kind == "binary":
        return bool(pat.is_binary(stored) or pat.is_large_binary(stored))
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return bool(pat.is_timestamp(stored)) and stored.unit in ("ms", "us")
    return bool(stored == arrow_type(kind))


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    parts = version.split(".")
    try:
        return (int(parts[0]), int(parts[1])) >= wanted
    except (ValueError, IndexError):
        return False


def _is_recent(statistics: Any) -> bool:
    if statistics.has_null_count and statistics.num_values == 0:
        return True
    try:
        return bool(statistics.has_min_max) and statistics.min.year >= _RECENT
    except (OverflowError, ValueError):  # a year that Python does not know, before 1 or after 9999
        return False
