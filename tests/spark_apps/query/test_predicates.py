"""What a predicate is taken to mean, which keys it allows, and how mistakes are reported. Spark itself is compared with
in ``test_differential.py``.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from decimal import Decimal
from typing import Any

import pytest

from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import (
    NAN,
    And,
    Comparison,
    In,
    IsNull,
    KeySet,
    Not,
    NothingMatches,
    Opaque,
    Or,
    UnboundedKeys,
    columns_of,
    keys_for,
    may_match,
    of_whole_rows,
    reasons,
)
from spark_apps.storage.errors import InvalidPredicate, UnknownColumn

pytestmark = pytest.mark.by_turn(8)

SCHEMA = {
    "id": "int",
    "big": "bigint",
    "city": "string",
    "day": "date",
    "at": "timestamp",
    "dec": "decimal(10,2)",
    "f": "float",
    "d": "double",
    "flag": "boolean",
    "place": "struct<lat:double>",
    "we ird": "int",
    "a.b": "int",
    "padded": "char(3)",
    "folded": "string collate UTF8_LCASE",
    "list": "array<int>",
}


def parse(sql, **options):
    return parse_predicate(sql, SCHEMA, **{"timestamps": "timestamp", **options})


def keys(sql, *columns, **options):
    allowed = keys_for(parse(sql, **options), columns)
    if isinstance(allowed, KeySet):
        return {key[0] if len(columns) == 1 else key for key in allowed.keys}
    return type(allowed)


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(
    ("sql", "column", "expected"),
    [
        ("id = 5", "id", {5}),
        ("5 = ID", "id", {5}),
        ("id IN (1, 2, NULL)", "id", {1, 2}),
        ("id IS NULL", "id", {None}),
        ("id <=> NULL OR id <=> 3", "id", {None, 3}),
        ("id = 1 OR id = 2 OR id IN (2, 3)", "id", {1, 2, 3}),
        ("id IN (1, 2, 3) AND id IN (2, 3, 4)", "id", {2, 3}),
        ("id IN (1, 2, 3, 4) AND id BETWEEN 2 AND 3", "id", {2, 3}),
        ("id IN (1, 2, 3) AND NOT id = 2", "id", {1, 3}),
        ("id IN (1, 2, 3) AND id NOT IN (1, 2)", "id", {3}),
        ("id IN (1, 2, 3) AND NOT id < 2", "id", {2, 3}),
        ("id IN (1, 2, 3) AND NOT id <= 2", "id", {3}),
        ("id IN (1, 2, 3) AND NOT id > 2", "id", {1, 2}),
        ("id IN (1, 2, 3) AND NOT id >= 2", "id", {1}),
        ("NOT (id <> 5 OR city IS NULL)", "id", {5}),
        ("id = 1 AND upper(city) = 'A'", "id", {1}),
        ("city = 'a' AND (id = 1 OR id = 2)", "id", {1, 2}),
        ("city = 'x' OR city = ''", "city", {"x", ""}),
        ('city = "x"', "city", {"x"}),
        ("`we ird` = 3", "we ird", {3}),
        ("`a.b` = 3", "a.b", {3}),
        ("flag", "flag", {True}),
        ("NOT flag", "flag", {False}),
        ("flag IS NOT TRUE", "flag", {False, None}),
        ("padded IS NULL", "padded", {None}),
        ("place IS NULL", "place", {None}),
        ("id = 1 /* not 2 */ -- or 3", "id", {1}),
    ],
)
def test_given_a_predicate_with_finite_keys_then_they_are_found(sql, column, expected):
    assert keys(sql, column) == expected


@pytest.mark.parametrize(
    ("sql", "column", "expected"),
    [
        ("id = '01'", "id", {1}),
        ("id = 1.0 OR id = 1e0", "id", {1}),
        ("big = 5L", "big", {5}),
        ("dec = 1.5 OR dec = 7", "dec", {Decimal("1.50"), Decimal("7.00")}),
        ("d = -0.0", "d", {0.0}),
        ("d = CAST('NaN' AS DOUBLE)", "d", {NAN}),
        ("d = 0.1 OR d = '0.5'", "d", {0.1, 0.5}),
        ("f = 0.5", "f", {0.5}),
        ("day = '2024-1-2' OR day = DATE '2024-01-03'", "day", {dt.date(2024, 1, 2), dt.date(2024, 1, 3)}),
        ("day IN ('2024-01-02')", "day", {dt.date(2024, 1, 2)}),
        ("at = TIMESTAMP '2024-01-01 00:00:00Z'", "at", {dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}),
        ("at = '2024-01-01 02:00:00+02:00'", "at", {dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}),
    ],
)
def test_given_a_literal_of_another_type_then_it_is_compared_as_spark_does(sql, column, expected):
    assert keys(sql, column) == expected


def test_given_a_time_without_a_zone_then_the_session_s_decides_and_without_one_nothing_is_pruned():
    sql = "at = TIMESTAMP '2024-07-01 00:00:00'"
    assert keys(sql, "at") is UnboundedKeys
    assert keys(sql, "at", time_zone="UTC") == {dt.datetime(2024, 7, 1, tzinfo=dt.UTC)}
    assert keys(sql, "at", time_zone="America/New_York") == {dt.datetime(2024, 7, 1, 4, tzinfo=dt.UTC)}
    assert keys(sql, "at", time_zone="Mars/Base") is UnboundedKeys
    assert keys(sql, "at", time_zone="PST") is UnboundedKeys


def test_given_a_number_s_bound_then_it_is_taken_only_as_a_literal_with_its_sign():
    assert keys("id = -128Y OR id = -32768S", "id") == {-128, -32768}
    assert keys("big = -9223372036854775808L", "big") == {-(2**63)}
    assert keys("id = CAST(127 AS TINYINT) OR id = 127Y", "id") == {127}


def test_given_a_timestamp_then_the_session_s_type_of_it_decides_whether_an_offset_counts():
    cast, literal = "at = CAST('2024-01-01 02:00:00+02:00' AS TIMESTAMP)", "at = TIMESTAMP '2024-01-01 02:00:00+02:00'"
    there = {dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}
    assert keys(cast, "at") == keys(literal, "at") == there
    for unclear in ({"timestamps": "timestamp_ntz"}, {"timestamps": None}):
        assert keys(cast, "at", **unclear) is UnboundedKeys
        assert keys("at = '2024-01-01 02:00:00Z'::timestamp", "at", **unclear) is UnboundedKeys
        assert keys(literal, "at", **unclear) == there
        assert keys("at = CAST('2024-01-01 00:00:00Z' AS TIMESTAMP_LTZ)", "at", **unclear) == there
    assert (
        keys("at = TIMESTAMP '2024-01-01 00:00:00'", "at", timestamps="timestamp_ntz", time_zone="UTC") is UnboundedKeys
    )


@pytest.mark.by_turn(1)
def test_given_a_column_of_times_without_a_zone_then_a_text_with_one_is_left_to_spark():
    def keys_of(text):
        return keys_for(parse_predicate(f"seen = '{text}'", {"seen": "timestamp_ntz"}, time_zone="UTC"), ["seen"])

    assert keys_of("2024-01-01 02:00:00").keys == {(dt.datetime(2024, 1, 1, 2),)}
    for text in ("2024-01-01 02:00:00+02:00", "2024-01-01 02:00:00Z"):
        assert isinstance(keys_of(text), UnboundedKeys)


@pytest.mark.parametrize(
    "sql", ["hash(*) = 1", "concat_ws(',', *) = '1,a' AND id = 1", "struct(* EXCEPT (id)) IS NULL"]
)
def test_given_a_star_then_the_predicate_is_about_whole_rows_and_needs_all_columns(sql):
    assert of_whole_rows(parse(sql))
    assert columns_of(parse(sql)) == set(SCHEMA)


@pytest.mark.parametrize("sql", ["identifier('city') = 'a'", "IDENTIFIER('ci' || 'ty') = 'a'", "city = '${x}'"])
def test_given_a_column_named_by_a_text_then_all_columns_are_needed(sql):
    assert not of_whole_rows(parse(sql))
    assert columns_of(parse(sql)) == set(SCHEMA)


def test_given_a_star_that_is_not_the_table_s_then_the_predicate_needs_its_columns_only():
    for sql, columns in (
        ("id IN (SELECT * FROM other)", {"id"}),
        ("id * 2 = 4", {"id"}),
        ("hash(place.*) = 1", {"place"}),
        ("upper(city) = '*'", {"city"}),
    ):
        assert columns_of(parse(sql)) == columns, sql
        assert not of_whole_rows(parse(sql)), sql


def test_given_a_text_that_may_be_set_to_be_a_column_then_that_is_needed():
    assert columns_of(parse("\"city\" = 'a'")) == {"city"}


@pytest.mark.parametrize("sql", ["NULL", " (null) "])
def test_given_a_bare_null_then_it_is_refused_as_spark_does(sql):
    with pytest.raises(InvalidPredicate, match="no condition"):
        parse(sql)


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("id = 1 AND id = 2", "id"),
        ("id = 1.5", "id"),
        ("id = 3000000000", "id"),
        ("dec = 1.555", "dec"),
        ("dec = 100000000", "dec"),
        ("f = 0.1", "f"),
        ("id = NULL", "id"),
        ("NOT id = NULL", "id"),
        ("id NOT IN (1, NULL)", "id"),
        ("id IS NULL AND id IS NOT NULL", "id"),
        ("id IN (1, 2) AND id > 5", "id"),
        ("false", "id"),
        ("flag AND NOT flag", "flag"),
        ("id = 1 AND NULL", "id"),
        ("id = 1 AND id !> 0", "id"),
        ("id = 1 AND id !< 2", "id"),
    ],
)
def test_given_a_predicate_that_no_row_meets_then_nothing_matches(sql, column):
    assert keys(sql, column) is NothingMatches


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("id > 5", "id"),
        ("id <> 5", "id"),
        ("id = CAST(2147483648 AS INT)", "id"),
        ("id = -CAST(2147483648 AS INT)", "id"),
        ("id <=> TRY_CAST(2147483648 AS INT)", "id"),
        ("id = try_cast(1 AS INT)", "id"),
        ("id = 128Y", "id"),
        ("id = 32768S", "id"),
        ("big = 9223372036854775808L", "big"),
        ("id IS NOT NULL", "id"),
        ("id = 1 OR city = 'a'", "id"),
        ("id = 1 OR upper(city) = 'A'", "id"),
        ("NOT (id = 1 AND city = 'a')", "id"),
        ("id = big", "id"),
        ("id + 1 = 2", "id"),
        ("CAST(id AS STRING) = '1'", "id"),
        ("id IN ('01')", "id"),
        ("id IN (SELECT id FROM other)", "id"),
        ("city = 1", "city"),
        ("city LIKE 'a'", "city"),
        ("city = 'it''s'", "city"),
        (r"city = 'it\'s'", "city"),
        ("city = 'a' 'b'", "city"),
        ("city = r'a'", "city"),
        ("city = 'a' COLLATE UTF8_LCASE", "city"),
        ("city = '${name}'", "city"),
        ('city = "day"', "city"),
        ("city = 'a' -- \\\n AND true", "city"),
        ("padded = 'a'", "padded"),
        ("folded = 'a'", "folded"),
        ("place.lat = 1", "place"),
        ("list[0] = 1", "list"),
        ("big = 1e0", "big"),
        ("big = 9223372036854775808", "big"),
        ("dec = '1.005'", "dec"),
        ("dec = 1e0", "dec"),
        ("f = '0.5'", "f"),
        ("d IN ('0.5')", "d"),
        ("day = 'today'", "day"),
        ("day = '2024-02-30'", "day"),
        ("day = TIMESTAMP '2024-01-01 00:00:00'", "day"),
        ("flag = 'true'", "flag"),
        ("true", "id"),
        ("id BETWEEN SYMMETRIC 2 AND 1", "id"),
    ],
)
def test_given_anything_unclear_then_nothing_is_pruned(sql, column):
    assert keys(sql, column) is UnboundedKeys


def test_given_several_columns_then_keys_are_the_product_in_the_order_asked_for():
    assert keys("id IN (1, 2) AND city IN ('a', 'b')", "city", "id") == {("a", 1), ("a", 2), ("b", 1), ("b", 2)}
    assert keys("(id = 1 AND city = 'a') OR (id = 2 AND city = 'b')", "id", "city") == {(1, "a"), (2, "b")}
    assert keys("(id = 1 OR id = 2) AND (city = 'a' OR id = 2 AND city = 'b')", "id", "city") == {
        (1, "a"),
        (2, "a"),
        (2, "b"),
    }
    assert keys("id = 1", "id", "city") is UnboundedKeys


def test_given_more_keys_than_the_limit_then_nothing_is_pruned():
    predicate = parse("id IN (1, 2, 3) AND city IN ('a', 'b', 'c')")
    assert isinstance(keys_for(predicate, ["id", "city"], limit=9), KeySet)
    assert isinstance(keys_for(predicate, ["id", "city"], limit=8), UnboundedKeys)
    wide = parse(" AND ".join(f"(id IN ({n}, 1) OR city IN ('{n}', 'a'))" for n in range(60)))
    assert isinstance(keys_for(wide, ["id", "city"], limit=50), UnboundedKeys)


def test_given_thousands_of_parts_then_they_are_read():
    assert len(keys(" OR ".join(f"id = {n}" for n in range(3000)), "id")) == 3000
    pairs = " OR ".join(f"(id = {n} AND city = 'c{n}')" for n in range(2000))
    assert len(keys(pairs, "id", "city")) == 2000
    assert keys(" AND ".join(f"id <> {n}" for n in range(3000)) + " AND id IN (5, 4000)", "id") == {4000}


def test_given_a_predicate_then_its_tree_says_what_was_understood():
    assert parse("NOT id BETWEEN 1 AND 2 OR city IN ('a') AND flag") == Or(
        (
            Not(And((Comparison("id", ">=", 1), Comparison("id", "<=", 2)))),
            And((In("city", frozenset({"a"})), Comparison("flag", "=", True))),
        )
    )
    assert parse("city IS NOT NULL") == Not(IsNull("city"))
    assert parse("day <> '2024-01-01'") == Not(Comparison("day", "=", dt.date(2024, 1, 1)))
    opaque = parse("upper(city) = 'A' AND id = 1").parts[0]
    assert isinstance(opaque, Opaque)
    assert reasons(opaque) == ("UPPER(city) = 'A': its left side is not a plain column",)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("ID = 1 AND City = 'a'", {"id", "city"}),
        ("id = NULL", {"id"}),
        ("upper(city) = concat(city, id) OR place.lat > 1", {"city", "id", "place"}),
        ("exists(list, x -> x > id)", {"list", "id"}),
        ("id IN (SELECT whatever FROM other WHERE day > 1)", {"id", "day"}),
        ("current_date > day AND user = 'me'", {"day"}),
        ("true", set()),
    ],
)
def test_given_a_predicate_then_the_columns_it_needs_are_named_as_in_the_table(sql, columns):
    assert columns_of(parse(sql)) == columns


def test_given_known_values_then_a_row_may_match_or_cannot():
    predicate = parse("day >= '2024-01-02' AND (id = 1 OR city LIKE 'a%')")
    assert may_match(predicate, {"day": dt.date(2024, 1, 2)})
    assert not may_match(predicate, {"day": dt.date(2024, 1, 1)})
    assert not may_match(predicate, {"day": None})
    assert may_match(predicate, {"day": dt.date(2024, 1, 3), "id": 2})
    assert not may_match(parse("d < 5"), {"d": math.nan})
    assert may_match(parse("d > 5 AND d = CAST('NaN' AS DOUBLE)"), {"d": math.nan})


def test_given_case_sensitive_names_then_only_the_exact_name_is_found():
    assert columns_of(parse_predicate("ID = 1", {"ID": "int", "id": "int"}, case_sensitive=True)) == {"ID"}
    with pytest.raises(UnknownColumn, match="'ID'"):
        parse("ID = 1", case_sensitive=True)


def test_given_a_name_that_two_columns_share_then_nothing_is_pruned():
    predicate = parse_predicate("iD = 1", {"ID": "int", "id": "int"})
    assert isinstance(keys_for(predicate, ["id"]), UnboundedKeys)
    assert columns_of(predicate) == {"ID", "id"}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ciity = 1", r"'ciity' \(line 1, column 1 .*Nothing was changed.*'city'"),
        ("id = 1 OR\n  upper(`Cty`) = 'A'", r"'Cty' \(line 2, column 9 .*'city'"),
        ("nothing_like_it = 1", "It has: id, big, city"),
        ("t.id = 1", r"'t\.id'"),
        ("id = unknown_one", "'unknown_one'"),
        ("`user` = 'me'", "'user'"),
    ],
)
def test_given_an_unknown_column_then_it_is_named_with_its_place_and_similar_names(sql, message):
    with pytest.raises(UnknownColumn, match=message):
        parse(sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("id = ", "line 1, column 4, near '='"),
        ("id = 1 AS x", "line 1, column 8, near 'AS'"),
        ("id =\n 1 1", "line 2, column 4"),
        ("(id = 1", r"Expecting \)"),
        ("id = 1; DROP TABLE t", "2 conditions|cannot be read"),
        ("id = 1 AND city = 'x", "a ' is opened and not closed"),
        ("/* id = 1", "comment"),
        ("", "''"),
        ("  ", "'  '"),
        ("-- id = 1", "0 conditions"),
        ("map(id", "cannot be read"),  # of which the library raises an IndexError,
        ("id -> 1BD", "cannot be read"),  # and an error of decimals
        (None, "None"),
        ("(" * 3000 + "id = 1" + ")" * 3000, "nested too deeply"),
        ("NOT " * 3000 + "flag", "nested too deeply"),
    ],
)
def test_given_text_that_is_no_predicate_then_the_error_points_at_the_place(sql, message):
    with pytest.raises(InvalidPredicate, match=message):
        parse(sql)


ONLY_SPARKS = "id >>> 2 = 4"


def test_given_text_that_only_spark_can_read_then_nothing_is_pruned_and_all_columns_are_needed():
    asked = []
    predicate = parse(ONLY_SPARKS, check_with_spark=asked.append)

    assert asked == [ONLY_SPARKS]
    assert columns_of(predicate) == set(SCHEMA)
    assert isinstance(keys_for(predicate, ("id",)), UnboundedKeys)
    assert reasons(predicate) == (f"{ONLY_SPARKS}: only Spark can read it",)


def test_given_text_that_spark_refuses_too_then_the_error_is_ours_which_tells_the_place():
    def refuse(sql):
        raise InvalidPredicate(f"Spark: {sql}")

    with pytest.raises(InvalidPredicate, match="line 1, column"):
        parse("id = ", check_with_spark=refuse)
    with pytest.raises(UnknownColumn, match="nope"):
        parse("nope = 1", check_with_spark=refuse)


def test_given_an_unknown_column_in_text_that_only_spark_can_read_then_it_is_named():
    def refuse(_sql):
        raise UnknownColumn("The table has no column 'nope'.")

    with pytest.raises(UnknownColumn, match="'nope'"):
        parse("nope >>> 2 = 4", check_with_spark=refuse)
    with pytest.raises(UnknownColumn, match="column 1 of the predicate"):
        parse("nope = 1", check_with_spark=refuse)


@pytest.mark.parametrize(
    ("written", "few", "many"),
    [
        (lambda n: " OR ".join(f"id = {number}" for number in range(n)), 500, 10_000),
        (lambda n: " AND ".join(f"(id = {number} OR city = 'a')" for number in range(n)), 400, 2_400),
        (lambda n: " AND ".join(f"NOT (id <> {number} AND city <> 'a')" for number in range(n)), 400, 2_400),
    ],
    ids=["any of many", "all of many that are joined by OR", "none of many pairs"],
)
@pytest.mark.by_turn(6)
def test_given_thousands_of_comparisons_then_their_time_grows_as_they_do(written: Any, few: int, many: int) -> None:
    def seconds(number: int) -> float:
        text, began = written(number), time.process_time()
        predicate = parse_predicate(text, SCHEMA)
        keys_for(predicate, ["id"])
        keys_for(predicate, ["id", "city"])
        return time.process_time() - began

    # Where it grew as the square, it would be six times and more above what a line gives; half of that is allowed.
    assert seconds(many) < 3 * (many / few) * max(seconds(few), seconds(few))


def test_given_too_many_conditions_to_meet_all_then_the_keys_found_hold_those_that_match() -> None:
    text = " AND ".join(f"(id = {number} OR city = 'a')" for number in range(2_000))
    allowed = keys_for(parse_predicate(f"({text}) AND id IN (7, 8)", SCHEMA), ["id", "city"])
    assert isinstance(allowed, KeySet)
    assert allowed.keys == {(7, "a"), (8, "a")}
