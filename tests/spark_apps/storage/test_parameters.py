"""Values that are bound to a text of SQL are literals there, whatever they hold."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import Comparison
from spark_apps.sql import parse
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.parameters import bind, text_of_bytes

ODD = [
    "o'hare", 'say "x"', "a\\'b", "' OR '1' = '1", "x' --", "`a`", "${spark.app.name}", "{f0}", "line\nend", "\x00",
    ":other", "/* */ ; DROP TABLE t", "ß€😀", "", " ",
]  # fmt: skip


@pytest.mark.parametrize("value", ODD)
def test_given_any_text_then_it_is_one_literal_of_a_predicate(value: str) -> None:
    text = bind("city = :city", {"city": value})
    assert parse_predicate(text, {"city": "string"}) == Comparison("city", "=", value)


@pytest.mark.parametrize("value", ODD)
def test_given_any_text_then_it_is_one_literal_of_a_statement(value: str) -> None:
    script = "DROP INDEX i ON TABLE t; ALTER TABLE t DROP PARTITION (p = :v); INSERT INTO t PARTITION (p = :v) SELECT 1"
    _drop, partitions, insert = parse(script, {"v": value})
    assert partitions.partitions == ((("p", value),),)  # type: ignore[attr-defined]
    assert insert.values == (("p", value),)  # type: ignore[attr-defined]


VALUES: list[tuple[Any, str]] = [
    (None, "NULL"), (True, "true"), (5, "5"), (-5, "-5"), (1.5, "1.5D"), (float("nan"), "CAST('NaN' AS DOUBLE)"),
    (Decimal("1.50"), "1.50BD"), (dt.date(2024, 2, 1), "DATE'2024-02-01'"), (b"a'b", "X'612762'"),
    (dt.datetime(2024, 2, 1, 3, 4, 5), "TIMESTAMP'2024-02-01 03:04:05'"),
    (dt.datetime(2024, 2, 1, 3, tzinfo=dt.timezone(dt.timedelta(hours=2))), "TIMESTAMP'2024-02-01 01:00:00+00:00'"),
    ("sfo", "'sfo'"), ("o'hare", "CAST(X'6F2768617265' AS STRING)"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "written"), VALUES, ids=repr)
def test_given_a_value_then_it_is_a_literal_of_its_type(value: Any, written: str) -> None:
    assert bind("x = :v", {"v": value}) == f"x = {written}"
    assert bind("1-:v||y", {"v": value}) == f"1- {written} ||y"


def test_given_colons_that_begin_no_marker_then_they_stay() -> None:
    text = "a = ':x' AND b::int = 1 AND c:d = 2 AND \":x\" AND `:x` /* :x */ -- :x\n AND f(x):y AND r':x' AND a[0]:b"
    assert bind(text, None) == text


def test_given_a_marker_several_times_and_beside_others_then_each_is_bound() -> None:
    bound = bind("a=:x AND b IN(:x,:y_2)AND c<:ß", {"x": 1, "y_2": "b", "ß": 2})
    assert bound == "a= 1 AND b IN(1,'b')AND c< 2"


@pytest.mark.parametrize(
    ("text", "parameters", "says"),
    [
        ("a = :x", None, "asks for the parameter :x, which is not given; given: none"),
        ("a = :x", {"y": 1}, "asks for the parameter :x, which is not given; given: y"),
        ("a = ':x'", {"x": 1}, "'x' is given, and the text nowhere asks for :x"),
        ("a = :x", {"x": [1]}, "'x' is list, which cannot be bound"),
        ("a = :x", {"x": Decimal("NaN")}, "cannot be bound"),
        ("a = :x", {"x": "\ud800"}, "no valid Unicode"),
        ("a = :x", {"x y": 1}, "no name of a parameter"),
        ("a = :x", {1: 1}, "no name of a parameter"),
        ("a = :x", ["x"], "list, and no mapping"),
    ],
)
def test_given_parameters_that_do_not_fit_then_they_are_refused_by_name(text: str, parameters: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        bind(text, parameters)


def test_given_bytes_that_are_no_text_then_they_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no UTF-8"):
        text_of_bytes("CAST(X'FF' AS STRING)")
