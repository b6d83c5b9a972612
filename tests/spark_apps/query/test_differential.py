"""Predicates against Spark itself: for generated tables and predicates, in ANSI mode and without, every row that Spark
finds lies inside what the key sets allow, and where everything is understood the outcomes are the same.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import struct
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from spark_apps.layout.types import normalize, parse_type
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import (
    NAN,
    KeySet,
    NothingMatches,
    UnboundedKeys,
    columns_of,
    keys_for,
    may_match,
    outcomes,
    reasons,
)
from tests.spark.local import COMPILED, INTERPRETED, session_with
from tests.spark.releases import SPARK

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

ZONE = "America/New_York"
EXAMPLES = max(int(os.environ.get("HISTORIES", "100")) // 20, 1)
SINGLE = struct.unpack("<f", struct.pack("<f", 0.1))[0]
FLOATS = [0.0, -0.0, 0.5, 1.0, -1.0, SINGLE, 16777216.0, float("nan"), float("inf"), float("-inf")]


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


# For each column: its type, the values of its rows, and literals that stand beside it without an error in any mode.
COLUMNS: dict[str, tuple[str, list[object], list[str]]] = {
    "tiny": ("tinyint", [-128, -1, 0, 1, 2, 127], []),
    "id": ("int", [0, 1, 2, -1, 2**31 - 1, -(2**31), 16777217], []),
    "big": ("bigint", [0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)], []),
    "dec": ("decimal(10,2)", [Decimal(text) for text in ("0.00", "1.00", "1.50", "-0.01", "99999999.99")], []),
    "wide": ("decimal(38,10)", [Decimal("1.5"), Decimal(1), Decimal(0), Decimal(10**27)], []),
    "f": ("float", FLOATS, []),
    "d": ("double", [*FLOATS, 0.1, 2.0**53], []),
    "city": (
        "string",
        ["", "a", "A", "b", "é", "\uffff", "\U0001f600", "01", "1", "it's", "a\\b", "its", "id"],
        ["'a'", "'A'", "''", "'é'", "'\uffff'", "'01'", '"a"', '"b"', "'it''s'", r"'it\'s'", r"'a\\b'", "'i' 'ts'"],
    ),
    "day": (
        "date",
        [dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        [
            "DATE '2024-01-01'",
            "DATE'2024-1-2'",
            "'2024-01-01'",
            "'2024-1-1'",
            "'2024'",
            "date('2024-01-02')",
            "'2024-01-01 05:00:00'",
            "TIMESTAMP '2024-01-01 00:00:00'",
            "TIMESTAMP '2024-01-01 05:00:00'",
            "CAST('2024-01-02' AS DATE)",
        ],
    ),
    "ts": (
        "timestamp",
        [
            at("2024-01-01T05:00:00+00:00"),
            at("2024-03-10T07:30:00+00:00"),
            at("2024-11-03T05:30:00+00:00"),
            at("2024-11-03T06:30:00+00:00"),
            at("1970-01-01T00:00:00.000001+00:00"),
            at("1900-01-01T05:00:00+00:00"),
        ],
        [
            "TIMESTAMP '2024-01-01 00:00:00'",
            "'2024-01-01T05:00:00Z'",
            "'2024-01-01 00:00:00'",
            "'2024-1-1'",
            "DATE '2024-01-01'",
            "TIMESTAMP '2024-03-10 02:30:00'",
            "TIMESTAMP '2024-11-03 01:30:00'",
            "TIMESTAMP '2024-11-03 01:30:00-05:00'",
            "TIMESTAMP_NTZ '2024-01-01 00:00:00'",
            "CAST('1970-01-01 00:00:00.000001+00:00' AS TIMESTAMP)",
            "TIMESTAMP '1900-01-01 00:00:00'",
        ],
    ),
    "local": (
        "timestamp_ntz",
        [at("2024-01-01T00:00:00"), at("2024-03-10T02:30:00"), at("2024-01-01T05:00:00")],
        [
            "TIMESTAMP_NTZ '2024-01-01 00:00:00'",
            "'2024-01-01 00:00:00'",
            "'2024-01-01 00:00:00Z'",
            "DATE '2024-01-01'",
            "TIMESTAMP '2024-01-01 00:00:00'",
            "'2024-03-10 02:30:00'",
        ],
    ),
    "flag": ("boolean", [True, False], ["true", "FALSE"]),
    "raw": ("binary", [b"", b"\x01", b"\x1f", b"\xff\x00"], ["X'01'", "X''", "x'fF00'"]),
}
NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "+1",
    "1L",
    "2S",
    "1Y",
    "-128Y",
    "127",
    "300",
    "1.0",
    "1.5",
    "1.50BD",
    "-0.01",
    "0.1",
    ".5",
    "1.",
    "1e0",
    "1.5D",
    "0.1D",
    "0.1F",
    "0.5F",
    "-0.0",
    "0e0",
    "-0e0",
    "2147483648",
    "-2147483649",
    "3000000000",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "16777217",
    "16777217.0",
    "16777217e0",
    "1.00000000000000000001",
    "100000000000000000000000000000",
    "1e300",
    "1e-300",
    "0.0000000001",
]
NUMBERS += [
    "CAST('NaN' AS DOUBLE)",
    "double('NaN')",
    "CAST('-Infinity' AS FLOAT)",
    "CAST(1.005 AS DECIMAL(10,2))",
    "CAST(1.5 AS DECIMAL(5,2))",
    "CAST(1 AS BIGINT)",
    "CAST(NULL AS INT)",
    "'1'",
    "'01'",
    "'+1'",
    "'-1'",
    "'300'",
]
for name in ("tiny", "id", "big", "dec", "wide", "f", "d"):
    COLUMNS[name][2].extend(NUMBERS)
for name in ("dec", "wide", "f", "d"):
    COLUMNS[name][2].extend(["'1.5'", "'1.005'", "'1e0'"])
for name in ("f", "d"):
    COLUMNS[name][2].extend(["'NaN'", "'Infinity'", "'0.1'"])
SCHEMA = {name: kind for name, (kind, _, _) in COLUMNS.items()}
BOUNDS = [
    f"{sign}{cast}({bound} AS {kind})"
    for kind, bound in (("TINYINT", 2**7), ("SMALLINT", 2**15), ("INT", 2**31), ("BIGINT", 2**63))
    for cast in ("CAST", "TRY_CAST")
    for sign in ("", "-")
] + ["-128Y", "-32768S", "-9223372036854775808L", *(("128::tinyint", "-128::tinyint") if SPARK >= (4, 0) else ())]
MOMENTS = [
    f"{before}'2024-01-01 05:00:00{zone}'{after}"
    for zone in ("", "Z", "+02:00", " UTC")
    for before, after in (
        ("CAST(", " AS TIMESTAMP)"), ("TIMESTAMP ", ""), ("timestamp(", ")"), ("", "::timestamp"), ("", ""),
        ("CAST(", " AS TIMESTAMP_LTZ)"), ("CAST(", " AS TIMESTAMP_NTZ)"), ("TRY_CAST(", " AS TIMESTAMP)"),
    )
]  # fmt: skip
OPAQUE = [
    "upper(city) = 'A'",
    "city LIKE 'a%'",
    "id % 2 = 1",
    "id = big",
    "tiny & 1 = 1",
    "coalesce(id, 1) = 1",
    "CASE WHEN flag THEN id = 1 ELSE day IS NULL END",
    "d + 1 = 1.5",
    "CAST(id AS string) = '1'",
    "length(city) BETWEEN 1 AND 1",
    "(id, big) IN ((1, 1), (2, 2))",
    "id = 1 = true",
    "flag = (id = 1)",
    "flag = 'true'",
    "NOT 'f' <> flag",
    "exists(array(id, 2), x -> x > 1)",
    "1 = 1",
    "NULL AND true",
    "true",
]


@st.composite
def atoms(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(OPAQUE))
    name = draw(st.sampled_from(list(COLUMNS)))
    column = draw(st.sampled_from([name, name.upper(), f"`{name}`"]))
    literal = st.sampled_from([*COLUMNS[name][2], "NULL"])
    match draw(st.integers(0, 9)):
        case 0:
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1 | 2 | 3:
            # Lists longer than ten become sets in Spark, with an equality of their own.
            items = draw(st.lists(literal, min_size=1, max_size=4) | st.lists(literal, min_size=11, max_size=13))
            return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(items)})"
        case 4:
            return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(literal)} AND {draw(literal)}"
        case 5 if name == "flag":
            return column + draw(st.sampled_from(["", " IS TRUE", " IS NOT FALSE", " IS UNKNOWN"]))
        case 6:
            return f"{draw(literal)} {draw(st.sampled_from(['=', '<', '<=', '>', '>=', '<=>', '!=']))} {column}"
    op = draw(
        st.sampled_from(["=", "=", "=", "==", "<>", "!=", "<=>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "!>", "!<"])
    )
    return f"{column} {op} {draw(literal)}"


def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Connected without regard to precedence, so that the parser's is tried against Spark's."""
    joined = st.tuples(parts, st.sampled_from([" AND ", " OR ", " and ", "\nOR "]), parts).map("".join)
    return joined | parts.map("({})".format) | parts.map("NOT {}".format) | parts.map("! {}".format)


PREDICATES = st.recursive(atoms(), larger, max_leaves=5)
ROWS = st.lists(
    st.tuples(*(st.none() | st.sampled_from(values) for _, values, _ in COLUMNS.values())), min_size=10, max_size=40
)


def spark_outcomes(spark, frame, predicates):
    """For each predicate its outcomes by row, or ``None`` where Spark refuses it."""
    try:
        rows = frame.select(
            "row", *(F.expr(text).alias(f"p{number}") for number, text in enumerate(predicates))
        ).collect()
    except Exception:  # noqa: BLE001 - whatever Spark raises: one of the predicates is refused, so try one by one
        if len(predicates) == 1:
            return [None]
        half = len(predicates) // 2
        return [*spark_outcomes(spark, frame, predicates[:half]), *spark_outcomes(spark, frame, predicates[half:])]
    rows.sort(key=lambda row: row["row"])
    return [[row[number + 1] for row in rows] for number in range(len(predicates))]


def normalized(rows):
    """The rows as the key sets hold their values, with the one NaN."""
    types = [parse_type(kind) for kind in SCHEMA.values()]
    values = [[normalize(value, kind) for value, kind in zip(row, types, strict=True)] for row in rows]
    return [dict(zip(SCHEMA, (NAN if v != v else v for v in row), strict=True)) for row in values]


def check(text, by_spark, rows, timestamps):
    predicate = parse_predicate(text, SCHEMA, time_zone=ZONE, timestamps=timestamps)
    names = sorted(columns_of(predicate)) or ["id"]
    for row, outcome in zip(rows, by_spark, strict=True):
        ours = outcomes(predicate, row)
        assert outcome in ours, (text, row, outcome, ours)
        assert reasons(predicate) or ours == {outcome}, (text, row, outcome, ours)
        assert may_match(predicate, row) or not outcome
    finite = 0
    for columns in [*itertools.combinations(names, 1), *itertools.permutations(names[:3], 2), tuple(names)]:
        allowed = keys_for(predicate, columns)
        finite += not isinstance(allowed, UnboundedKeys)
        for row, outcome in zip(rows, by_spark, strict=True):
            key = tuple(row[name] for name in columns)
            if outcome is True:
                assert not isinstance(allowed, NothingMatches), (text, columns, row)
                assert not isinstance(allowed, KeySet) or key in allowed.keys, (text, columns, key, allowed)
    return finite


@pytest.fixture
def zoned(spark):
    """The session in a zone with summer time. Interpreted, for compiling a thousand predicates takes minutes; a run
    with HISTORIES set compiles them."""
    settings_of_test = {"spark.sql.session.timeZone": ZONE, "spark.sql.ansi.enabled": "true"}
    settings_of_test |= COMPILED if "HISTORIES" in os.environ else INTERPRETED
    with session_with(spark, settings_of_test):
        yield spark


def compare(spark, rows, predicates, timestamps="timestamp", modes=("true", "false")):
    """Check all predicates over all rows, with ANSI and without; how many Spark refused, and how many pruned."""
    frame = spark.createDataFrame(
        [(number, *row) for number, row in enumerate(rows)],
        "row int, " + ", ".join(f"{name} {kind if name != 'ts' else 'timestamp_ltz'}" for name, kind in SCHEMA.items()),
    )
    refused = pruned = 0
    for ansi in modes:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for text, by_spark in zip(predicates, spark_outcomes(spark, frame, predicates), strict=True):
            if by_spark is None:
                refused += 1
            else:
                pruned += check(text, by_spark, normalized(rows), timestamps) > 0
    return refused, pruned


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(rows=ROWS, predicates=st.lists(PREDICATES, min_size=20, max_size=30))
def test_given_any_table_and_predicates_then_no_matching_row_lies_outside_of_the_keys(zoned, rows, predicates):
    compare(zoned, rows, predicates)


def test_given_casts_at_the_bounds_of_their_types_then_outcomes_are_spark_s(zoned):
    rows = list(itertools.zip_longest(*([*values, None] for _, values, _ in COLUMNS.values())))
    for mode, literals in (("false", BOUNDS), ("true", [text for text in BOUNDS if "TRY_CAST" in text])):
        names = [(name, literal) for name in ("tiny", "id") for literal in literals]
        predicates = [f"{name} {op} {literal}" for name, literal in names for op in ("=", "<=>", "!>")]
        refused, pruned = compare(zoned, rows, predicates, modes=(mode,))
        assert not refused and (pruned or mode == "true")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_given_either_type_of_timestamps_then_offsets_in_literals_count_as_they_do_in_spark(zoned, kind):
    rows = list(itertools.zip_longest(*([*values, None] for _, values, _ in COLUMNS.values())))
    predicates = [f"{name} {op} {text}" for name in ("ts", "local") for text in MOMENTS for op in ("=", "<", "<=>")]
    predicates += [f"{name} IN ({text})" for name in ("ts", "local") for text in MOMENTS]
    zoned.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ" if kind == "timestamp" else "TIMESTAMP_NTZ")
    try:
        _, pruned = compare(zoned, rows, predicates, kind)
    finally:
        zoned.conf.unset("spark.sql.timestampType")
    assert pruned > 30


def test_given_every_literal_beside_every_column_then_outcomes_are_spark_s(zoned):
    rows = list(itertools.zip_longest(*([*values, None] for _, values, _ in COLUMNS.values())))
    predicates = [
        f"{name} {op} {literal}"
        for name, (_, _, literals) in COLUMNS.items()
        for literal in literals
        for op in ("=", "<=")
    ]
    predicates += [f"{name} IN ({literal})" for name, (_, _, literals) in COLUMNS.items() for literal in literals]
    refused, pruned = compare(zoned, rows, predicates)
    assert refused < len(predicates) / 100
    assert pruned > len(predicates) / 2
