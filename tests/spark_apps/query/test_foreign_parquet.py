"""Parquet of other writers, read without Spark: what Arrow reads, and of what it does not the column and why."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.layout.types import nested_arrow_type
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.storage.errors import StorageError, UnsupportedSource
from spark_apps.storage.file_faults import fault_of
from spark_apps.timeline.files import DataFile

pytestmark = pytest.mark.by_turn(6)

OLD, NEW = dt.datetime(1600, 2, 3), dt.datetime(2024, 1, 2, 3, 4, 5, 678901)


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


# Spark's type of a column, what another writer writes of it, and what is read.
READ: dict[str, tuple[str, pa.Array, list[Any]]] = {
    "unsigned of 8": ("smallint", column([255, None], pa.uint8()), [255, None]),
    "unsigned of 16": ("int", column([65535, 0], pa.uint16()), [65535, 0]),
    "unsigned of 32": ("bigint", column([2**32 - 1, 0], pa.uint32()), [2**32 - 1, 0]),
    "unsigned of 64": ("decimal(20,0)", column([2**64 - 1, 0], pa.uint64()), [Decimal(2**64 - 1), Decimal(0)]),
    "categories": ("string", column(["a", None, "a"], pa.dictionary(pa.int8(), pa.string())), ["a", None, "a"]),
    "categories of numbers": ("bigint", column([7, None], pa.dictionary(pa.int32(), pa.int64())), [7, None]),
    "fixed binary": ("binary", column([b"ab", None], pa.binary(2)), [b"ab", None]),
    "large texts": ("string", column(["a", None], pa.large_string()), ["a", None]),
    "a list": ("array<int>", column([[1, None], None, []], pa.list_(pa.int32())), [[1, None], None, []]),
    "a large list": ("array<string>", column([["a"], None], pa.large_list(pa.large_string())), [["a"], None]),
    "a struct": ("struct<a:int,b:string>", column([{"a": 1, "b": "x"}, None], pa.struct(
        [("a", pa.int32()), ("b", pa.string())])), [{"a": 1, "b": "x"}, None]),
    "a map": ("map<string,int>", column([[("a", 1)], None], pa.map_(pa.string(), pa.int32())), [[("a", 1)], None]),
    "lists of structs of unsigned": ("array<struct<a:smallint>>", column([[{"a": 255}]], pa.list_(pa.struct(
        [("a", pa.uint8())]))), [[{"a": 255}]]),
    "nulls": ("int", pa.nulls(2), [None, None]),
    "narrower numbers": ("bigint", column([1, None], pa.int16()), [1, None]),
    "narrower fractions": ("double", column([0.5], pa.float32()), [0.5]),
    "narrower decimals": ("decimal(10,2)", column([Decimal("1.25")], pa.decimal128(5, 2)), [Decimal("1.25")]),
    "dates": ("date", column([NEW.date()], pa.date32()), [NEW.date()]),
    "times": ("timestamp", column([NEW], pa.timestamp("us", "UTC")), [NEW.replace(tzinfo=dt.UTC)]),
    "times of no zone": ("timestamp_ntz", column([NEW], pa.timestamp("us")), [NEW]),
    "times in milliseconds": ("timestamp_ntz", column([NEW.replace(microsecond=0)], pa.timestamp("ms")),
                              [NEW.replace(microsecond=0)]),
}  # fmt: skip
# What is refused, and why.
REFUSED: dict[str, tuple[str, pa.Array, str]] = {
    "a wider number": ("int", column([1], pa.int64()), "holds it as int64, which the table has as int"),
    "a text for a number": ("int", column(["1"], pa.string()), "holds it as string, which the table has as int"),
    "a number for a text": ("string", column([1], pa.int32()), "holds it as int32, which the table has as string"),
    "no text": ("string", column([b"\xff"], pa.binary()), "a value of it is none of the type string"),
    "another scale": ("decimal(10,2)", column([Decimal("1.250")], pa.decimal128(5, 3)), r"decimal128\(5, 3\)"),
    "unsigned of 64 as a number": ("bigint", column([1], pa.uint64()), "holds it as uint64"),
    "a text in a list": ("array<int>", column([["1"]], pa.list_(pa.string())), "holds it as list"),
    "another field": ("struct<a:int>", column([{"b": 1}], pa.struct([("b", pa.int32())])), "holds it as struct"),
    "times of no zone": ("timestamp", column([NEW], pa.timestamp("us")), "which the table has as timestamp"),
    "old dates": ("date", column([OLD.date()], pa.date32()), "days or times before 1900"),
    "old times": ("timestamp", column([OLD], pa.timestamp("us", "UTC")), "days or times before 1900"),
    "times in a list": ("array<date>", column([[NEW.date()]], pa.list_(pa.date32())), "calendar the file does not"),
}  # fmt: skip


def read(path: Path, columns: dict[str, str], names: list[str], rebase: str | None = None) -> list[dict[str, Any]]:
    file = DataFile("data", "", "0", path.name, "base", -1, path.stat().st_size, 0, 0)
    shape = ArrowShape(tuple(names), columns, (), external=True, rebase=rebase)
    schema = pa.schema([(name, nested_arrow_type(columns[name])) for name in names])
    return [row for batch in ArrowRows(shape, schema, {}).read([ArrowFile(file, str(path), "parquet")])
            for row in batch.to_pylist()]  # fmt: skip


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("case", READ)
def test_given_a_column_that_arrow_reads_then_it_is_read_as_spark_reads_it(
    tmp_path: Path, case: str, statistics: bool
) -> None:
    kind, values, expected = READ[case]
    pq.write_table(pa.table({"c": values}), tmp_path / "f.parquet", write_statistics=statistics)

    assert [row["c"] for row in read(tmp_path / "f.parquet", {"c": kind}, ["c"])] == expected


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("case", REFUSED)
def test_given_a_column_that_arrow_reads_otherwise_then_it_is_named_with_why_and_the_others_are_read(
    tmp_path: Path, case: str
) -> None:
    kind, values, why = REFUSED[case]
    pq.write_table(pa.table({"id": pa.array(range(len(values)), pa.int64()), "c": values}), tmp_path / "f.parquet")
    columns = {"id": "bigint", "c": kind}

    with pytest.raises(UnsupportedSource, match=f"The column 'c' of f.parquet cannot be read without Spark: .*{why}"):
        read(tmp_path / "f.parquet", columns, ["id", "c"])
    assert read(tmp_path / "f.parquet", columns, ["id"]) == [{"id": n} for n in range(len(values))]


def test_given_old_days_and_a_session_that_takes_them_as_they_are_then_they_are_read(tmp_path: Path) -> None:
    rows = pa.table({"d": column([OLD.date()], pa.date32()), "l": column([[OLD.date()]], pa.list_(pa.date32()))})
    pq.write_table(rows, tmp_path / "f.parquet")

    found = read(tmp_path / "f.parquet", {"d": "date", "l": "array<date>"}, ["d", "l"], "CORRECTED")
    assert found == rows.to_pylist()


def test_given_times_as_int96_then_they_are_read_as_of_utc(tmp_path: Path) -> None:
    rows = pa.table({"t": column([NEW], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True)

    assert read(tmp_path / "f.parquet", {"t": "timestamp"}, ["t"]) == [{"t": NEW.replace(tzinfo=dt.UTC)}]


def test_given_names_that_differ_in_case_then_only_they_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "A": [2], "a": [3], "b`c": [4]}), tmp_path / "f.parquet")
    columns = dict.fromkeys(("id", "a", "AA", "b`c"), "bigint")

    assert read(tmp_path / "f.parquet", columns, ["id", "b`c"]) == [{"id": 1, "b`c": 4}]
    assert read(tmp_path / "f.parquet", columns, ["a"]) == [{"a": 3}]
    columns["Á"] = columns.pop("AA")
    with pytest.raises(UnsupportedSource, match="several columns of this name"):
        pq.write_table(pa.table({"AA": [2], "Aa": [3]}), tmp_path / "g.parquet")
        read(tmp_path / "g.parquet", {"aa": "bigint"}, ["aa"])


SAID = {
    "Encountered error while reading file file:///t/a.parquet. Data type mismatches when reading Parquet column `[v]`. "
    "Expected Spark type bigint, actual Parquet type INT32. SQLSTATE: KD001": ("type", "v", "INT32.*bigint"),
    "Parquet column cannot be converted in file file:///t/a.parquet. Column: [v], Expected: int, Found: BINARY":
        ("type", "v", "BINARY.*int"),
    'Unable to create a Parquet converter for the data type "INT" whose Parquet type is optional binary v (STRING).':
        ("type", "v", "binary.*INT"),
    "org.apache.parquet.hadoop.BadConfigurationException: Class org.apache.hadoop.io.compress.BrotliCodec was not found"
    : ("codec", None, "BrotliCodec"),
    "Support for codec 'lzo' not built": ("codec", None, "lzo"),
    "could not verify page integrity, CRC checksum verification failed": ("checksum", None, "checksum"),
    "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/t/a.parquet at 0": ("checksum", None, "checksum"),
    "ParquetCryptoRuntimeException: Trying to read file with encrypted footer. No keys available":
        ("encryption", None, "encrypted"),
    "columns of it are encrypted, and there is no key": ("encryption", None, "encrypted"),
    "file:/t/a.parquet is not a Parquet file. Expected magic number at tail": ("damage", None, "damaged"),
}  # fmt: skip


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("said", SAID)
def test_given_what_a_reader_says_then_the_fault_is_of_its_sort_with_what_to_do(said: str) -> None:
    sort, name, what = SAID[said]
    fault = fault_of(said)
    assert (fault.sort, fault.column) == (sort, name)
    assert re.search(what, fault.what), fault
    again = "write the file again" in fault.hint
    assert again == (sort in ("damage", "checksum")), "who has nothing damaged writes nothing again"


def test_given_bytes_that_were_changed_under_their_checksum_then_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": list(range(100))}), path, write_page_checksum=True, compression="none")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)

    with pytest.raises(StorageError, match="do not have the checksum"):
        read(path, {"id": "bigint"}, ["id"])
