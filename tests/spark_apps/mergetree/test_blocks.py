"""Rows of single blocks, read through Arrow: the values that Spark's own reader gives, or a refusal."""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from spark_apps.indexes.skipping.row_groups import divide
from spark_apps.mergetree.blocks import (
    BLOCK,
    BlockFile,
    BlockRead,
    FileReader,
    is_readable,
    located,
    read_blocks,
    read_footers,
    stored_share,
)
from spark_apps.mergetree.tree import LINEAGE, Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    Commit,
    Field,
    PutPartition,
    PutTable,
    SourceDefinition,
    TableDefinition,
)
from spark_apps.timeline.state import State

TYPES = {
    "flag": "boolean", "tiny": "tinyint", "small": "smallint", "whole": "int", "long": "bigint", "single": "float",
    "both": "double", "money": "decimal(10,2)", "huge": "decimal(38,10)", "text": "string", "raw": "binary",
    "day": "date", "at": "timestamp", "local": "timestamp_ntz", "lacking": "string",
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "flag": n % 2 == 0, "tiny": n - 4, "small": -n, "whole": n * 10**8, "long": n * 10**17, "single": n / 4,
        "both": float("nan") if n == 3 else -0.0 if n == 4 else n / 7, "money": Decimal(n).scaleb(-2),
        "huge": Decimal(10**27 + n).scaleb(-10), "text": "é\U0001f600" * n, "raw": bytes([n, 0, 255]),
        "day": dt.date(1950 + n, 2, 28), "at": dt.datetime(1960 + n, 6, 1, 3, 4, 5, 678901 + n, dt.UTC),
        "local": dt.datetime(2024, 10, 27, 2, 30, n, 1000),
    }
    for n in range(9)
] + [{}]  # fmt: skip
SCHEMA = pa.schema([
    ("flag", pa.bool_()), ("tiny", pa.int8()), ("small", pa.int16()), ("whole", pa.int32()), ("long", pa.int64()),
    ("single", pa.float32()), ("both", pa.float64()), ("money", pa.decimal128(10, 2)),
    ("huge", pa.decimal128(38, 10)), ("TEXT", pa.large_string()), ("raw", pa.binary()), ("day", pa.date32()),
    ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
])  # fmt: skip


def _written(path: Path, **options: Any) -> None:
    table = pa.Table.from_pylist([{("TEXT" if k == "text" else k): v for k, v in row.items()} for row in ROWS], SCHEMA)
    pq.write_table(table, path, row_group_size=4, **options)


def _snapshot(spark: Any, root: Path, paths: list[Path], types: dict[str, str]) -> Snapshot:
    fields = tuple(Field(name, kind) for name, kind in types.items())
    source = SourceDefinition("parquet", str(root))
    table = TableDefinition("t", fields, (), bucketed=False, source=source)
    files = [AddFile(DATA_TREE, "", str(n), f"file://{path}", "base", -1, path.stat().st_size, lineage=n)
             for n, path in enumerate(paths)]  # fmt: skip
    state = State()
    state.apply(
        Commit(1, 0, "20240101000000000", "register", "x", 1, -1, actions=(PutTable(table), PutPartition(""), *files))
    )
    return Snapshot(spark, Store(root / "log"), state)


def _footers(snapshot: Snapshot) -> list[BlockFile]:
    return read_footers(snapshot, sorted(snapshot.state.files(DATA_TREE), key=lambda file: file.lineage))


def _sorted(rows: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in rows)


@pytest.mark.by_turn(8)
@pytest.mark.spark
def test_given_files_of_many_types_and_writers_then_blocks_hold_what_spark_reads(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "a %20 b"
    root.mkdir()
    paths = [root / "plain.parquet", root / "millis #1.parquet", root / "dictionary.parquet"]
    _written(paths[0], version="2.6")
    _written(paths[1], version="1.0", coerce_timestamps="ms", allow_truncated_timestamps=True)
    _written(paths[2], use_dictionary=True, data_page_version="2.0", compression="zstd")
    snapshot = _snapshot(spark, root, paths, TYPES)
    spark.read.schema(snapshot.data.schema).parquet(f"file://{paths[0]}".replace("%", "%")).repartition(1).write.mode(
        "overwrite"
    ).parquet(str(root / "spark"))  # timestamps as Spark writes them, INT96
    paths += list((root / "spark").glob("*.parquet"))
    snapshot, names = _snapshot(spark, root, paths, TYPES), list(TYPES)
    tree, footers = snapshot.data, _footers(_snapshot(spark, root, paths, TYPES))
    assert [footer.blocks for footer in footers] == [3, 3, 3, 1]
    assert all(is_readable(snapshot, tree, footer, names) for footer in footers)
    reads = [BlockRead(footer, tuple(range(footer.blocks))[-2:]) for footer in footers]
    shown = [*names, LINEAGE, BLOCK]
    everything = located(snapshot, tree, [f.file for f in footers], footers, names).select(shown).collect()
    wanted = [row for row in everything if row[BLOCK] in reads[row[LINEAGE]].blocks]
    assert len(everything) == 40 and len(wanted) == 3 * 6 + 10
    assert _sorted(read_blocks(snapshot, tree, reads, shown).collect()) == _sorted(wanted)
    assert {row[BLOCK] for row in everything if row["long"] == 5 * 10**17 and row[LINEAGE] < 3} == {1}


@pytest.mark.parametrize(
    ("stored", "kind", "fits"),
    [
        (pa.int32(), "bigint", True),
        (pa.int64(), "int", False),
        (pa.uint8(), "smallint", False),
        (pa.string(), "binary", False),
        (pa.binary(), "string", False),
        (pa.string_view(), "string", True),
        (pa.binary_view(), "string", False),
        (pa.decimal128(9, 2), "decimal(10,2)", False),
        (pa.timestamp("ns"), "timestamp_ntz", False),
        (pa.timestamp("us"), "timestamp", False),
        (pa.timestamp("us", "Europe/Rome"), "timestamp", True),
        (pa.list_(pa.int32()), "array<int>", False),
        (pa.string(), "char(3)", False),
        (pa.float32(), "double", False),
    ],
)
def test_given_a_stored_type_then_only_what_needs_no_guess_is_read_block_by_block(
    tmp_path: Path, stored: pa.DataType, kind: str, fits: bool
) -> None:
    footer = _one(tmp_path, pa.table({"c": pa.nulls(3, stored)}))
    assert footer.exact({"C": kind}) is fits


@pytest.mark.parametrize(
    ("values", "metadata", "fits"),
    [
        ([dt.date(2020, 1, 1), None], {}, True),
        ([dt.date(1800, 1, 1)], {}, False),
        ([dt.date(1500, 1, 1)], {b"org.apache.spark.version": b"4.0.1"}, True),
        ([dt.date(1500, 1, 1)], {b"org.apache.spark.version": b"2.4.8"}, False),
        (
            [dt.date(1500, 1, 1)],
            {b"org.apache.spark.version": b"3.5.0", b"org.apache.spark.legacyDateTime": b""},
            False,
        ),
    ],
)
def test_given_old_dates_then_it_counts_who_wrote_them(
    tmp_path: Path, values: list[Any], metadata: dict[bytes, bytes], fits: bool
) -> None:
    table = pa.table({"c": pa.array(values, pa.date32())})
    assert _one(tmp_path, table.replace_schema_metadata(metadata)).exact({"c": "date"}) is fits


def test_given_names_that_differ_in_case_only_then_none_is_taken(tmp_path: Path) -> None:
    footer = _one(tmp_path, pa.table({"c": [1], "C": [2]}))
    assert footer.exact({"c": "bigint"}) and not _one(tmp_path, pa.table({"cC": [1], "Cc": [2]})).exact(
        {"cc": "bigint"}
    )


def test_given_texts_stored_as_views_then_they_are_read_as_texts(tmp_path: Path) -> None:
    texts = ["a text of more than twelve bytes", None, "", "ü"]
    raw = [b"\x00" * 13, None, b"", b"a"]
    footer = _one(
        tmp_path, pa.table([pa.array(texts, pa.string_view()), pa.array(raw, pa.binary_view())], ["text", "raw"])
    )
    assert str(footer.schema.field("text").type) == "string_view"  # as DataFusion and Polars write them
    types = {"text": ("text", "string"), "raw": ("raw", "binary")}
    reader = FileReader(types, {})
    table = reader.together([reader.read(footer.file, footer.address)])
    assert table.schema.types == [pa.string(), pa.binary()]
    assert table.to_pydict() == {"text": texts, "raw": raw}


_DAYS = pa.array([dt.date(1500, 1, 1), dt.date(2020, 1, 1)], pa.date32())
_BY_SPARK = {b"org.apache.spark.version": b"4.0.1"}


@pytest.mark.parametrize(
    ("other", "metadata", "fits"),
    [
        ({"c": _DAYS}, {b"org.apache.spark.version": b"2.4.8"}, False),
        ({"c": _DAYS}, {}, False),
        ({"C": _DAYS, "c": _DAYS}, _BY_SPARK, True),
        ({"c": _DAYS.cast(pa.int32())}, _BY_SPARK, False),
        ({"c": pa.array([{"c": day} for day in _DAYS])}, _BY_SPARK, False),
        ({"C": _DAYS}, _BY_SPARK, True),
        ({"b": pa.array([1, 2]), "c": _DAYS}, _BY_SPARK, True),
    ],
)
def test_given_files_of_another_writer_or_schema_among_those_of_one_then_each_is_read_as_what_it_is(
    tmp_path: Path, other: dict[str, pa.Array], metadata: dict[bytes, bytes], fits: bool
) -> None:
    tables = [pa.table({"c": _DAYS}).replace_schema_metadata(_BY_SPARK)] * 2
    tables.insert(1, pa.table(other).replace_schema_metadata(metadata))
    reader = FileReader({"c": ("c", "date")}, {})
    footers = [_one(tmp_path, table, f"{n}.parquet") for n, table in enumerate(tables)]
    read = [reader.read(footer.file, footer.address) for footer in footers]
    assert [table is not None and table.column("c").combine_chunks() == _DAYS for table in read] == [True, fits, True]


_NUMBERS = pa.array([1, 2])


def _grouped(group: str, column: str) -> pa.Table:
    """Return a table of one group that is never null, whose leaves so look as those of a column do."""
    values = pa.StructArray.from_arrays([_NUMBERS], names=[column])
    return pa.table([values], schema=pa.schema([pa.field(group, values.type, nullable=False)]))


_PLAIN, _NULLS = pa.table({"c": _NUMBERS}), [None, None]


@pytest.mark.parametrize(
    ("tables", "values"),
    [
        ([_PLAIN, _grouped("g", "c")], [[1, 2], _NULLS]),
        ([_grouped("g", "c"), _PLAIN], [_NULLS, [1, 2]]),
        ([_grouped("g", "x"), _grouped("c", "x")], [_NULLS, None]),
    ],
)
def test_given_files_whose_leaves_are_alike_in_other_groups_then_each_is_read_as_what_it_is(
    tmp_path: Path, tables: list[pa.Table], values: list[list[int | None] | None]
) -> None:
    reader = FileReader({"c": ("c", "bigint")}, {})
    footers = [_one(tmp_path, table, f"{n}.parquet", store_schema=False) for n, table in enumerate(tables)]
    assert footers[0].parsed.schema.equals(footers[1].parsed.schema)
    read = [reader.read(footer.file, footer.address) for footer in footers]
    assert [table and table.column("c").to_pylist() for table in read] == values


def test_given_files_of_which_statistics_tell_whether_arrow_reads_them_then_each_is_asked(tmp_path: Path) -> None:
    reader = FileReader({"c": ("c", "date")}, {})
    footers = [_one(tmp_path, pa.table({"c": _DAYS[n:]}), f"{n}.parquet") for n in (1, 0)]
    assert [reader.read(footer.file, footer.address) is not None for footer in footers] == [True, False]


class _OpenKeys(encryption.KmsClient):
    """Keys that lie in the files that they are for."""

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64decode(key)


@pytest.mark.parametrize("plain_footer", [True, False])
def test_given_a_file_with_an_encrypted_column_then_it_is_refused_and_the_process_lives(
    tmp_path: Path, plain_footer: bool
) -> None:
    factory = encryption.CryptoFactory(lambda _: _OpenKeys())
    asked = encryption.EncryptionConfiguration("f", column_keys={"k": ["c"]}, plaintext_footer=plain_footer)
    keys = factory.file_encryption_properties(encryption.KmsConnectionConfig(), asked)
    path, table = tmp_path / "f.parquet", pa.table({"c": list(range(9)), "d": list(range(9))})
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table, row_group_size=4)
    snapshot = _snapshot(None, tmp_path, [path], {"c": "bigint", "d": "bigint"})
    [file] = snapshot.state.files(DATA_TREE)

    with pytest.raises(StorageError, match=r"f\.parquet cannot be read: .*encrypted"):
        read_footers(snapshot, [file])
    with pytest.raises(OSError, match="encrypted"):
        FileReader({"d": ("d", "bigint")}, {}).read(file, str(path))
    assert divide(snapshot, [file]) == {}
    assert stored_share(snapshot, [file], ["c"]) is None


def _one(root: Path, table: pa.Table, name: str = "f.parquet", **options: Any) -> BlockFile:
    path = root / name
    pq.write_table(table, path, **options)
    snapshot = replace(_snapshot(None, root, [path], {"c": "int"}))
    return _footers(snapshot)[0]
