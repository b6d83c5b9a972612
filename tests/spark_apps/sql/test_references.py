"""The tables that a query names, and what its text says of each of them. No Spark."""

from __future__ import annotations

import pytest

from spark_apps.sql.row_parser import column_of, columns_named, equalities, is_plain, pushed_down, references, replaced

COLUMNS = ("id", "x", "n", "d")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("WITH q AS (SELECT * FROM q) SELECT * FROM q, lake.t", ["q", "lake.t"]),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b WHERE EXISTS (SELECT 1 FROM A, c)", ["c"]),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", ["b"]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) JOIN a", ["a"]),
        ("SELECT * FROM range(10), `s3://x/y` AS y, parquet.`/z`, LATERAL explode(y.xs)", ["s3://x/y", "parquet./z"]),
        ("VALUES (1), ((SELECT max(x) FROM t))", ["t"]),
        ("SELECT * FROM t |> JOIN u USING (id)", ["t", "u"]),
    ],
)
def test_given_a_query_then_its_tables_are_found_and_its_own_ctes_are_not(query: str, names: list[str]) -> None:
    assert [reference.name for reference in references(query)] == names


def test_given_tables_then_others_take_their_place_and_the_rest_of_the_text_stays() -> None:
    query = """SELECT lake.t.id, /* lake.t */ 'lake.t', t.* FROM lake.t VERSION AS OF 3, q TABLESAMPLE (10 PERCENT),
        (SELECT lake.t.id FROM lake.t TIMESTAMP AS OF '2026-01-01' AS t) WHERE `lake`.t.`x` = 3"""

    tables = references(query)
    text = replaced(query, [(one, f"v{number}") for number, one in enumerate(tables)])

    assert [(one.name, one.version, one.as_of, one.called) for one in tables] == [
        ("lake.t", 3, None, "t"), ("q", None, None, "q"), ("lake.t", None, "2026-01-01", "t"),
    ]  # fmt: skip
    assert text.startswith(
        "SELECT t.id, /* lake.t */ 'lake.t', t.* FROM v0 AS `t`, v1 TABLESAMPLE (10 PERCENT) AS `q`,"
    )
    assert text.endswith("FROM v2 AS t) WHERE t.`x` = 3")


PUSHED = [
    (
        "SELECT count(*) FROM t WHERE x = 'a' AND n > -3 AND (id = 1 OR id IN (2, 3)) AND y = 2",
        ["(`x` = 'a') AND (`n` > -3) AND ((`id` = 1 OR `id` IN (2, 3)))"],
    ),
    ("SELECT 1 FROM t JOIN u ON t.id = u.id AND u.x = 'q' WHERE t.x = 'a' AND n = 5", ["(`x` = 'a')", "(`x` = 'q')"]),
    (
        "SELECT 1 FROM t LEFT JOIN u ON t.id = u.id AND u.n = 4 AND t.n = 9 WHERE t.x = 'a' AND u.x IS NULL",
        ["(`x` = 'a')", "(`n` = 4)"],
    ),
    ("SELECT 1 FROM t RIGHT JOIN u ON t.n = 4 AND u.n = 5 WHERE t.x IS NULL AND u.n = 3", [None, "(`n` = 3)"]),
    ("SELECT 1 FROM t JOIN u ON t.n = 1 FULL JOIN v ON v.n = 2 WHERE t.x = 'a' AND v.x = 'b'", [None, None, None]),
    ("SELECT 1 FROM t LEFT ANTI JOIN u ON t.id = u.id AND u.n = 1 WHERE t.n = 2", ["(`n` = 2)", "(`n` = 1)"]),
    ("SELECT 1 FROM t WHERE x = 'a' OR EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND n = 3)", [None, "(`n` = 3)"]),
    ("SELECT * FROM t LATERAL VIEW explode(y) e AS n WHERE n = 3 AND t.id = 1", ["(`id` = 1)"]),
    ("SELECT 1 FROM t AS a, t AS b WHERE a.n = 1 AND b.n = 2 AND t.n = 3", ["(`n` = 1)", "(`n` = 2)"]),
    ("SELECT 1 FROM t WHERE upper(x) = 'A' AND n + 1 = 2 AND x LIKE 'a%' AND x = 'it\\'s'", [None]),
    ("SELECT 1 FROM t WHERE x = \"n\" AND x = 'a' AND n = 1", ["(`n` = 1)"]),
    ("SELECT 1 FROM t TABLESAMPLE (1 ROWS) WHERE n = 1", [None]),
    ("SELECT 1 FROM t WHERE d BETWEEN DATE '2024-01-01' AND d", ["(`d` BETWEEN CAST('2024-01-01' AS DATE) AND `d`)"]),
    ("SELECT 1 FROM (SELECT * FROM t) s WHERE s.n = 1", [None]),
    ("SELECT 1 FROM t LEFT SEMI JOIN u ON t.n = 1 AND t.n = u.n", ["(`n` = 1)", None]),
    ("SELECT 1 FROM t LEFT ANTI JOIN u ON t.n = 1", [None, None]),
]


@pytest.mark.parametrize(("query", "pushed"), PUSHED)
def test_given_a_query_then_only_what_every_row_must_satisfy_is_told(query: str, pushed: list[str | None]) -> None:
    assert [pushed_down(query, one, COLUMNS) for one in references(query)] == pushed


def test_given_a_query_then_the_columns_it_may_read_are_told() -> None:
    assert columns_named("SELECT t.N, count(*) FROM t WHERE X.y = 1", COLUMNS) == ["x", "n"]
    assert columns_named("SELECT n FROM (SELECT * FROM t)", COLUMNS) == list(COLUMNS)
    assert columns_named("SELECT n FROM t NATURAL JOIN u", COLUMNS) == list(COLUMNS)


def test_given_a_condition_then_it_is_known_whether_another_query_is_asked() -> None:
    assert is_plain("x = 'a' AND n IN (1, 2)") and is_plain("upper(x) = `d`")
    assert not is_plain("t.x = 'a'") and not is_plain("x IN (SELECT 1)")


EQUAL = [
    ("t.id = s.key", ["id=key"], True),
    ("(s.KEY <=> T.id) AND (t.p = s.p)", ["id<=>KEY", "p=p"], True),
    ("t.id = s.key AND s.n > 3", ["id=key"], False),
    ("t.id = s.key AND false", ["id=key"], False),
    ("t.id = s.key AND NOT t.gone", ["id=key"], False),
    ("t.id = s.key OR t.n = s.n", [], False),
    ("t.id = s.key + 1", [], False),
    ("t.id = CAST(s.key AS BIGINT)", [], False),
    ("t.id > s.key", [], False),
    ("s.id = s.key", [], False),
    ("t.id = 1 AND t.p = s.p", ["p=p"], False),
    ("NOT (t.id = s.key)", [], False),
    ("t.id = s.t.id", [], False),
    ("(t.id = s.key) = true", [], False),
    ("id = s.key", [], False),
    ("t.id = s.key AND", [], False),
]


@pytest.mark.parametrize(("condition", "parts", "alone"), EQUAL)
def test_given_a_condition_then_what_it_holds_equal_is_told_and_whether_it_asks_more(
    condition: str, parts: list[str], alone: bool
) -> None:
    found = equalities(condition, "`t`", "`s`")

    assert [f"{one.column}{'<=>' if one.null_safe else '='}{one.value}" for one in found.parts] == parts
    assert found.alone == alone


def test_given_a_value_then_the_column_of_the_source_that_it_is_is_told() -> None:
    values = ["s.Key", "key", "`S`.`a.b`", "s.key + 1", "t.key", "s.a.key", "key -- 1", "1"]
    assert [column_of(value, "`s`") for value in values] == ["Key", "key", "a.b", None, None, None, "key", None]
