"""What a Spark lacks is made up for: the same rows, types and values in and out as by the newest one's own ways."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.engine.spark_versions import (
    arrow_schema,
    failed_expression,
    from_arrow,
    missing_names,
    refused_record,
    repartition_by_id,
    to_arrow,
    try_cast,
    unreadable_file,
)
from spark_apps.mergetree import spark_versions
from spark_apps.mergetree.schema import parse_ddl, quote
from tests.spark.local import session_with
from tests.spark_apps.frames import frame

pytestmark = pytest.mark.spark

DDL = (
    "n int, big bigint, tiny tinyint, x double, f float, d decimal(38,18), s string, b binary, t boolean, day date, "
    "at timestamp, local timestamp_ntz, many array<int>, named struct<a: int, at: timestamp>, by map<string, bigint>"
)
TIME = dt.datetime(2024, 3, 31, 2, 30, 0, 123456)
ZONED = TIME.replace(tzinfo=dt.UTC)
ROWS = [
    (1, 2**63 - 1, -128, -0.0, float("inf"), Decimal("12345678901234567890.123456789012345678"), "ä\0", b"\xff", True,
     dt.date(1, 1, 1), ZONED, TIME, [1, None], {"a": 1, "at": ZONED}, {"k": 1}),
    (2, -(2**63), 127, float("nan"), -0.0, Decimal("-0.000000000000000001"), "", b"", False, dt.date(9999, 12, 31),
     dt.datetime(1850, 1, 1, tzinfo=dt.UTC), dt.datetime(1850, 1, 1), [], {"a": None, "at": None}, {}),
    (3, *[None] * 14),
]  # fmt: skip


def bits(rows: Any) -> list[str]:
    """Rows of Arrow in order, value by value, so that NaN is itself and -0.0 is not 0.0."""
    return sorted(repr(row) for row in rows.to_pylist())


@pytest.fixture(params=["as it is", "as before Spark 4.0"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own way, and the way round for a Spark that has none."""
    if request.param != "as it is":
        monkeypatch.setattr(spark_versions, "_takes_arrow", lambda: False)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_given_rows_of_all_types_then_arrow_tables_bring_them_in_and_out_bit_by_bit(spark: Any, zone: str) -> None:
    schema = parse_ddl(DDL)
    with session_with(spark, {"spark.sql.session.timeZone": zone, "spark.sql.execution.arrow.maxRecordsPerBatch": "2"}):
        rows = frame(spark, ROWS, DDL)
        arrow = to_arrow(rows)
        again = to_arrow(from_arrow(spark, arrow, schema))
        texts = rows.select("n", F.hex("s"), F.hex("b"), F.date_format("at", "yyyy-MM-dd HH:mm:ss.SSSSSS VV")).collect()

    assert arrow.schema.equals(arrow_schema(schema)) and again.schema.equals(arrow.schema)
    assert bits(arrow) == bits(again)
    assert [row["big"] for row in sorted(arrow.to_pylist(), key=lambda row: row["n"])] == [2**63 - 1, -(2**63), None]
    assert arrow.column("at").to_pylist()[0] == ZONED and arrow.column("local").to_pylist()[0] == TIME
    assert next(row for row in texts if row.n == 1)[1:3] == ("C3A400", "FF")


@pytest.mark.usefixtures("way")
def test_given_no_rows_then_the_tables_have_the_columns(spark: Any) -> None:
    schema = parse_ddl(DDL)
    empty = from_arrow(spark, arrow_schema(schema).empty_table(), schema)

    assert empty.schema == schema
    assert to_arrow(empty).schema.equals(arrow_schema(schema)) and to_arrow(empty).num_rows == 0
    assert to_arrow(empty.select("n").where("n > 1")).num_rows == 0


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("without", [False, True], ids=["as it is", "as before Spark 4.0"])
def test_given_numbers_that_do_not_fit_then_they_are_null_and_no_others(
    spark: Any, monkeypatch: pytest.MonkeyPatch, ansi: str, without: bool
) -> None:
    if without:
        monkeypatch.setattr(spark_versions, "_has_try_cast", lambda: False)
    numbers = [-128, 127, 128, -129, 2**31 - 1, 2**31, 2**53, None]
    rows = frame(spark, [(n, None if n is None else float(n)) for n in numbers], "n bigint, x double")
    with session_with(spark, {"spark.sql.ansi.enabled": ansi}):
        tiny, whole = T.ByteType(), T.IntegerType()
        casts = rows.select(
            "n", try_cast(F.col("n"), tiny), try_cast(F.col("x") + 0.9, tiny), try_cast(F.col("x"), whole)
        ).collect()

    for n, small, cut, known in casts:
        assert small == (n if n in (-128, 127) else None)
        assert cut == {-128: -127, 127: 127, -129: -128}.get(n)
        assert known == (n if n is not None and n < 2**31 else None)


@pytest.mark.by_turn(6)
@pytest.mark.parametrize("without", [False, True], ids=["as it is", "as before Spark 4.1"])
@pytest.mark.parametrize("count", [1, 2, 37])
def test_given_numbers_of_partitions_then_each_row_is_in_its_own(
    spark: Any, monkeypatch: pytest.MonkeyPatch, count: int, without: bool
) -> None:
    if without:
        monkeypatch.setattr(spark_versions, "_has_repartition_by_id", lambda: False)
    rows = spark.range(500).select((F.col("id") % count).cast("int").alias("slot"))
    placed = repartition_by_id(rows, count, "slot").select("slot", F.spark_partition_id().alias("at"))

    assert placed.rdd.getNumPartitions() == count
    assert placed.where("slot <> at").count() == 0 and placed.count() == 500


@pytest.mark.parametrize(
    "message",
    [
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {}.  SQLSTATE: KD001",
        "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file {}. Could not read footer.",
        # Spark 3.5
        "Job aborted due to stage failure: Task 1 in stage 305.0 failed 1 times, most recent failure: Lost task 1.0: "
        "org.apache.spark.SparkException: Encountered error while reading file {}. Details:\n\tat org.apache.spark",
        "Lost task 1.0: org.apache.spark.SparkException: Parquet column cannot be converted in file {}. Column: [v], "
        "Expected: bigint, Found: BINARY.",
        "Lost task 1.0: org.apache.hadoop.fs.ChecksumException: Checksum error: {} at 0 exp: 16417 got: 9723\n",
        "Lost task 1.0: java.lang.RuntimeException: {} is not a Parquet file. Expected magic number at tail",
        "Lost task 1.0: java.lang.RuntimeException: {} is not a Parquet file (length is too low: 4)",
    ],
)
def test_given_a_file_that_no_spark_can_read_then_it_is_named(message: str) -> None:
    file = "file:///lake/t/p=a%20b/part-0.c000.parquet"

    assert unreadable_file(message.format(file)) == file


@pytest.mark.parametrize(
    ("message", "name", "said"),
    [
        (
            "[CAST_INVALID_INPUT] The value 'x' of the type STRING cannot be cast to INT because it is malformed. "
            "Correct the value as per the syntax. Use `try_cast` to tolerate it. SQLSTATE: 22018\n== SQL ==\nCAST(s)",
            "CAST_INVALID_INPUT",
            "The value 'x' of the type STRING cannot be cast to INT because it is malformed.",
        ),
        ("[NEW_IN_A_LATER_SPARK.SUB] It has no value. SQLSTATE: 22003", "NEW_IN_A_LATER_SPARK.SUB", "It has no value."),
        # Spark 3.5
        (
            "Lost task 1.0: org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] integer overflow. If "
            "necessary set spark.sql.ansi.enabled to false.\n== SQL of VIEW v ==",
            "ARITHMETIC_OVERFLOW",
            "integer overflow.",
        ),
    ],
)
def test_given_an_expression_without_a_value_then_it_is_told_in_one_line(message: str, name: str, said: str) -> None:
    assert failed_expression(message) == (name, said)


def test_given_another_error_then_no_file_record_or_expression_is_named() -> None:
    assert unreadable_file("Encountered error while reading the log.") is None
    assert refused_record("[PATH_NOT_FOUND] Path does not exist. SQLSTATE: 42K03") is None
    assert failed_expression("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column. SQLSTATE: 42703") is None


@pytest.mark.parametrize("name", ["a city", "a `quoted` city"])
def test_given_a_column_that_a_frame_lacks_then_the_error_of_spark_names_it_and_none_that_exists(
    spark: Any, name: str
) -> None:
    rows = spark.range(1).select("id", F.col("id").alias("a town"))

    with pytest.raises(AnalysisException) as raised:
        rows.select(F.col(quote(name)))

    assert {name, "a town", "id"} & missing_names(raised.value) == {name}
    assert missing_names(KeyError(name)) == {name}


@pytest.mark.parametrize("name", ["a city", "a `quoted` city"])
def test_given_an_error_of_spark_3_5_over_connect_then_its_text_names_the_column_that_a_frame_lacks(name: str) -> None:
    error = AnalysisException(
        f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column or function parameter with name {quote(name)} cannot be "
        "resolved. Did you mean one of the following? [`id`, `a town`].;\n'Project ['x]\n\nJVM stacktrace: …"
    )

    assert {name, "a town", "id"} & missing_names(error) == {name}
    assert missing_names(AnalysisException("[PATH_NOT_FOUND] Path does not exist: `id`.")) == frozenset()
