"""What a person who writes statements, predicates, rules, names or templates can hand in: each is taken, or refused by
an error of the package in a time that grows with its length; nothing else happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.hooks import TableStoreHook
from airflow_provider_index.operators import (
    BuildIndexOperator,
    IndexSQLOperator,
    OpenStopWriteWindowOperator,
    RegisterTableOperator,
    WriteTableOperator,
)
from spark_apps.layout.rules import BucketRules
from spark_apps.layout.types import parse_type
from spark_apps.query.parsing import parse_predicate
from spark_apps.sql.parser import parse
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.names import check_column_name, check_name, check_txn_id
from spark_apps.storage.parameters import bind
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import Warehouse

SECONDS = 20.0
"""More than any of these takes on a busy machine, and less than what doubles with each character."""
N = 1000


def outcome_of(call: Callable[[], Any]) -> Any:
    """What a call gives, or its error of the package; within its time. Another error fails the test."""
    started = time.monotonic()
    try:
        return call()
    except LakeIndexError as error:
        assert error.message
        return error
    finally:
        assert time.monotonic() - started < SECONDS


STATEMENTS = [
    "(" * N,
    "SHOW INDEXES ON " + "(" * N,
    "CREATE INDEX i ON TABLE t (" + "(" * N + "c" + ")" * N + ") USING record",
    "CREATE INDEX i ON TABLE t (" + ",".join(f"c{n}" for n in range(N)) + ") USING record",
    ";" * N,
    "/*" * N,
    "--" * N,
    "/*" * N + "*/" * N,
    "'" * (N + 1),
    "`" * (N + 1),
    "CREATE INDEX " + "i" * 100_000 + " ON TABLE t (c) USING record",
    "CREATE INDEX i ON TABLE t (c) USING record COMMENT '" + "\\" * N,
    "CREATE TABLE t (c " + "array<" * N + "int" + ">" * N + ") USING indexed OPTIONS (record_key 'c')",
    "SHOW INDEXES ON t;" * 100,
    "SHOW INDEXES ON t\x00",
    "SHOW INDEXES ON \u0442",
    "\ufeffSHOW INDEXES ON t",
    "SHOW INDEXES ON `\ud800`",
    "SHOW INDEXES ON " + "a." * N + "a",
    "\u2028DROP INDEX i ON t",
    "ALTER TABLE t DROP PARTITION (a=" + "9" * N + ")",
    "ALTER TABLE t DROP PARTITION (a=1e" + "9" * 50 + ")",
    "DROP INDEX i ON t; DROP TABLE `../../etc`",
    "CREATE INDEX i ON TABLE `../../../etc/passwd` (c) USING record",
    "CREATE INDEX `i'; DROP TABLE t; --` ON TABLE t (c) USING record",
    "CREATE INDEX i ON TABLE t (c) AS 'os.system'",
    "CREATE INDEX i ON TABLE t (c) USING record LOCATION 'file:///etc/../etc'",
    "DROP\x00TABLE t",
    "drop/**/table/**/t",
    "CREATE INDEX i ON TABLE t (c) USING record IN TABLE `a`.`b`.`../c`",
    "SELECT 1",
    "INSERT INTO t VALUES (1)",
    "",
    "CALL partition_bucket_index_manager(" + "x=>1," * N + ")",
    "CREATE INDEX i ON t (c) USING record OPTIONS ('a'='" + "'" * N,
    "DROP TABLE t " + "'\\" * 20_000,
]


@pytest.mark.parametrize("text", STATEMENTS, ids=range(len(STATEMENTS)))
def test_given_a_script_then_it_is_read_or_refused_with_a_place_and_no_name_is_half_of_it(text: str) -> None:
    statements = outcome_of(lambda: list(parse(text)))
    if isinstance(statements, list):
        assert len(statements) == max(1, text.count("SHOW INDEXES ON t;") or 1 + text.count("; DROP TABLE `"))


PREDICATES = [
    "(" * N + "a=1" + ")" * N,
    "NOT " * N + "a=1",
    " AND ".join(["a=1"] * N),
    " OR ".join(["a=1"] * N),
    "a = " + "- " * N + "1",
    "a IN (" + ",".join(map(str, range(N))) + ")",
    "a = " + "9" * 5000,
    "x = 0." + "1" * 5000,
    "x = 1e999999999",
    "x = 1e-999999999",
    "x = 1e999999999BD",
    "d = DATE '" + "9" * N + "'",
    "s = '" + "x" * 100_000 + "'",
    "s = '\x00'",
    "s = '\ud800'",
    "a IN (SELECT 1)",
    "a=1; DROP TABLE t",
    "s LIKE '" + "%a" * N + "'",
    "s RLIKE '(a+)+$'",
    "`" + "a" * N + "`=1",
    "a." * N + "b = 1",
    "s = X'" + "F" * (N + 1) + "'",
    "lower(" * N + "s" + ")" * N + "='a'",
    "a = 1 -- ",
    "a = 1 /* ",
    "*",
    "",
    "java_method('java.lang.Runtime', 'getRuntime') = 1",
    "reflect('java.lang.System', 'exit', 1) = 1",
    "\x00",
    "a\u037e1",
    "s = '" + "\\'" * 40_000,
    "s = 1 " + "/* " * 40_000,
    ":a" * 40_000,
]


@pytest.mark.parametrize("text", PREDICATES, ids=range(len(PREDICATES)))
def test_given_a_predicate_then_it_is_read_or_refused(text: str) -> None:
    outcome_of(lambda: parse_predicate(text, {"a": "int", "s": "string", "d": "date", "x": "decimal(10,2)"}))
    outcome_of(lambda: bind(text, {"a": 1}))


RULES = [
    "(a{1,1000}){1,1000},4",
    "(" * N + ")" * N + ",4",
    "(?:a?){1000}a{1000},4",
    "a," + "9" * 5000,
    "a,-1",
    "a,\u0663",
    "a,0",
    ";".join(["a,4"] * N),
    "(?=a),4",
    "\ud800,4",
    "\\C,3",
    ",4",
    "\\p{L}{1000},4",
    "(a+)+$,4",
    "a" * 20_000 + ",4",
    "(?P<x>a)(?P=x),4",
]


@pytest.mark.parametrize("rule", ["regex", "range", "os.system", "../x", ""])
@pytest.mark.parametrize("text", RULES, ids=range(len(RULES)))
def test_given_a_rule_then_it_is_taken_or_refused_and_matches_in_linear_time(text: str, rule: str) -> None:
    rules = outcome_of(lambda: BucketRules(rule, text, 4))
    if isinstance(rules, BucketRules):
        outcome_of(lambda: rules.count_for("dt=" + "a" * 5000 + "!"))


@pytest.mark.parametrize(
    "text",
    [
        "array<" * N + "int" + ">" * N,
        "decimal(" + "9" * 5000 + ")",
        "struct<" * N,
        "decimal(\u0663,1)",
        "varchar(" + "9" * 5000 + ")",
        "int\x00",
        "",
        "decimal(-1)",
        "interval year to month",
    ],
)
def test_given_a_type_then_reading_it_ends(text: str) -> None:
    outcome_of(lambda: parse_type(text))


# --- names and places -------------------------------------------------------------------------------------------

NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "/a",
    "a\x00",
    "a\n",
    "a b",
    "a" * 129,
    "\u0430",
    "e\u0301",
    "\u00e9",
    "\uff0e\uff0e",
    "\u2024\u2024/x",
    "a\u200bb",
    "\u202ea",
    "%2e%2e",
    "a;b",
    "a'b",
    'a"b',
    "a`b",
    "1a",
    "-a",
    "\ud800",
    "a\u0000b",
    "$x",
    "~",
]


@pytest.mark.parametrize("name", NAMES)
def test_given_a_name_that_could_be_taken_for_something_else_then_no_index_table_or_folder_gets_it(name: str) -> None:
    assert isinstance(outcome_of(lambda: check_name("index", name)), LakeIndexError)
    if name != "1a":
        assert isinstance(outcome_of(lambda: check_txn_id(name)), LakeIndexError)
    located = outcome_of(lambda: Warehouse("/warehouse").locate(name))
    if not isinstance(located, LakeIndexError):  # an absolute path stands for itself
        assert name.startswith("/") and located == name


@pytest.mark.parametrize(
    "name", ["", " ", "a`b", "a\nb", "a\x00b", "__index_x", "__INDEX_x", "a\u202eb", "\ud800", "a\u2028b"]
)
def test_given_a_column_name_that_would_not_be_seen_or_is_ours_then_it_is_refused(name: str) -> None:
    assert isinstance(outcome_of(lambda: check_column_name(name)), LakeIndexError)


PLACES = [
    "../x",
    "a/../b",
    "s3://b/../x",
    "s3://b/a/../../c",
    "http://x/y",
    "ftp://x/y",
    "hdfs://n/x",
    "jar:file:/x!/y",
    "s3://",
    "~/x",
    "javascript:alert(1)",
    "s3://b\n/x",
    "\\\\host\\share",
    "C:\\x",
    "$HOME/x",
    "s3:/b/x",
    "://x",
    "a" * 5000,
    "x:y",
    "{{ x }}",
]


@pytest.mark.parametrize("place", PLACES)
def test_given_a_template_that_renders_to_another_kind_of_place_then_every_operator_refuses_it_before_anything_is_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))
    assert isinstance(outcome_of(lambda: TableStoreHook("lake").locate(place)), LakeIndexError)
    made = (
        BuildIndexOperator(task_id="a", table=place, table_conn_id="lake", index="i", kind="record", columns=["id"]),
        WriteTableOperator(task_id="b", table=place, table_conn_id="lake", source="/x", operation="upsert"),
        RegisterTableOperator(task_id="c", table=place, table_conn_id="lake"),
        OpenStopWriteWindowOperator(task_id="d", table=place, table_conn_id="lake"),
    )
    for operator in made:
        with pytest.raises((LakeIndexError, ValueError)):
            operator.location() if hasattr(operator, "location") else operator.execute({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sql", [["DROP TABLE t"], {"a": 1}, 7, None, b"DROP TABLE t"])
def test_given_statements_that_are_no_text_then_they_are_refused(sql: Any) -> None:
    assert isinstance(outcome_of(lambda: IndexSQLOperator(task_id="a", sql=sql).statements()), LakeIndexError)


def test_given_one_name_in_two_normal_forms_then_they_are_two_folders_or_refused(tmp_path: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    for name in (composed, apart):
        assert isinstance(outcome_of(lambda name=name: check_name("table", name)), LakeIndexError)
    for name in (composed, apart):
        Store(tmp_path / name).put("x", name.encode())
    assert Store(tmp_path / composed).get("x") != Store(tmp_path / apart).get("x")
