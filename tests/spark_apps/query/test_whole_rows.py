"""Predicates whose meaning depends on which columns there are (``*``), or that name a column by a text: the rows of a
scan, whatever columns are asked for. And what Spark refuses is refused, also where no row would be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.storage.errors import InvalidPredicate
from tests.spark.local import session_with
from tests.spark.releases import since
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16, together=4)]

DDL = "id int, c string, t tinyint"
ROWS = [(n, "abc"[n % 3], n % 5 or None) for n in range(12)]
ABOUT_ALL = [
    "concat_ws(',', *) = '1,b,1'",
    "hash(*) = hash(4, 'b', 4Y)",
    "struct(*).c = 'a'",
    "id = 4 AND size(split(concat_ws(',', *), ',')) = 3",
]
STAR = since(4, 0, "* in conditions")
BY_TEXT = ["identifier('c') = 'a'", "IDENTIFIER('t' || '') !> 1", "identifier('id') IN (1, 2)"]


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """Without buckets, so that rows carry the id of their file group; a file over each, and every kind of index."""
    made = IndexedTable.create(spark, tmp_path_factory.mktemp("whole") / "t", DDL, ["id"], buckets=None)
    made.upsert(frame(spark, ROWS, DDL))
    made.create_index("cov", "covering", ["c"], included=IncludedColumns(include=["t"]))
    made.create_index("by_c", "secondary", ["c"])
    return made


def scanned(spark: Any, where: str, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    rows = frame(spark, ROWS, DDL).where(where)
    return in_order((rows.select(columns) if columns else rows).collect())


@pytest.mark.parametrize("where", [*(pytest.param(each, marks=STAR) for each in ABOUT_ALL), *BY_TEXT])
def test_given_a_predicate_over_whole_rows_then_it_sees_the_table_s_columns_whatever_is_asked_for(
    spark: Any, table: IndexedTable, where: str
) -> None:
    for columns in (["id"], ["t", "c", "id"]):
        expected = scanned(spark, where, columns)
        assert rows_of(table, where, columns) == expected, columns
    assert expected
    table.create_view("whole_rows", where, ["id"])
    assert in_order(spark.table("whole_rows").collect()) == scanned(spark, where, ["id"])


@STAR
def test_given_a_predicate_over_whole_rows_then_a_delete_by_it_does_not_see_columns_of_ours(
    spark: Any, tmp_path: Path
) -> None:
    for buckets in (None, 2):
        made = IndexedTable.create(spark, tmp_path / f"t{buckets}", DDL, ["id"], buckets=buckets)
        made.upsert(frame(spark, ROWS, DDL))
        made.delete("concat_ws(',', *) = '4,b,4' OR identifier('id') = 7")
        assert sorted(row.id for row in made.read().collect()) == [0, 1, 2, 3, 5, 6, 8, 9, 10, 11]


def test_given_a_predicate_over_whole_rows_then_files_are_not_counted_by_it(table: IndexedTable) -> None:
    with pytest.raises(InvalidPredicate, match="whole rows"):
        table.locate("hash(*) = 1", count=True)
    assert table.locate("hash(*) = 1")


def test_given_names_in_double_quotes_then_they_are_columns_where_the_session_says_so(
    spark: Any, table: IndexedTable
) -> None:
    said = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
    before = {name: spark.conf.get(name) for name in said}
    try:
        for name, value in said.items():
            spark.conf.set(name, value)
        assert [row.id for row in table.read("\"c\" = 'a' AND id < 3", ["id"]).collect()] == [0]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@since(4, 0, "texts that are names, or beside dates,")
def test_given_texts_that_mean_something_else_in_a_session_then_files_are_not_ruled_out_by_them(
    spark: Any, tmp_path: Path
) -> None:
    made = IndexedTable.create(spark, tmp_path / "days", "id int, d date, c string", ["id"], buckets=4)
    rows = "SELECT id, date_add(DATE'2020-01-01', id) AS d, user() AS c FROM VALUES (1), (2), (3), (5), (6) AS t(id)"
    made.upsert(spark.sql(rows))
    made.create_index("by_all", "skipping", ["values(d)", "values(c)"])
    as_texts = {"spark.sql.ansi.enabled": "false", "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true"}
    as_names = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
    for said, where in ((as_texts, "d <> '2020-1-5'"), (as_texts, "d < '2020-1-5'"), (as_names, 'c = "current_user"')):
        with session_with(spark, said):
            assert made.read(where).count() == made.read().where(where).count() == 5, where
    assert made.explain("d < '2020-1-1'").groups_read == made.explain('c = "current_user"').groups_read == 0


@since(4, 0, "patterns of names in a filter")
def test_given_names_that_are_patterns_then_they_are_spark_s_to_match(spark: Any, table: IndexedTable) -> None:
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    try:
        assert [row.id for row in table.read("concat_ws(',', `i.|c`) = '4,b'", ["id"]).collect()] == [4]
        assert sorted(row.id for row in table.read("`c` = 'b'", ["id"]).collect()) == [1, 4, 7, 10]
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")


@pytest.mark.parametrize("where", ["t = 128Y", "null", "id = 4 AND id = 5 AND t = 128Y", "id = 99 AND t = -129Y"])
def test_given_what_spark_refuses_then_it_is_refused_also_where_nothing_is_read(
    table: IndexedTable, where: str
) -> None:
    with pytest.raises(InvalidPredicate):
        table.read(where).collect()
    with pytest.raises(InvalidPredicate):
        table.delete(where)
