"""What the statements of both documents, and our own, are read as. No Spark."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_apps.sql import parse
from spark_apps.sql.statements import (
    AddColumns,
    AlterColumnType,
    CreateIndex,
    CreateTable,
    DescribeIndex,
    DropColumns,
    DropIndex,
    DropPartition,
    DropTable,
    ManageBuckets,
    RebuildIndex,
    RefreshIndex,
    RegisterSource,
    RenameColumn,
    SetIndexProperties,
    SetTableProperties,
    ShowIndexes,
    Statement,
)
from spark_apps.storage.errors import InvalidStatement


def one(text: str) -> Any:
    [statement] = parse(text)
    return statement


# --- the forms of the documents ---------------------------------------------------------------------------------

INDEXES: dict[str, Statement] = {
    # seed 000
    "CREATE INDEX idx_city on hudi_table USING secondary_index(city)": CreateIndex(
        "idx_city", "hudi_table", "secondary", ("city",)
    ),
    "CREATE INDEX idx_last_name on hudi_table (last_name)": CreateIndex(
        "idx_last_name", "hudi_table", "secondary", ("last_name",)
    ),
    "CREATE INDEX IF NOT EXISTS i ON TABLE t USING secondary_index(c)": CreateIndex(
        "i", "t", "secondary", ("c",), if_not_exists=True
    ),
    "CREATE INDEX r ON t USING record_index": CreateIndex("r", "t", "record"),
    "CREATE INDEX r ON t USING record_index (id)": CreateIndex("r", "t", "record", ("id",)),
    "DROP INDEX idx_city;": DropIndex("idx_city"),
    "drop index if exists i on table db.t": DropIndex("i", "db.t", if_exists=True),
    # seed 003
    "CREATE INDEX x ON TABLE t(j) AS 'org.apache.hadoop.hive.ql.index.compact.CompactIndexHandler' IN TABLE t_x;": (
        CreateIndex("x", "t", "compact", ("j",), index_table="t_x")
    ),
    """CREATE INDEX x ON TABLE t (a, b) AS 'compact' WITH DEFERRED REBUILD IDXPROPERTIES ('p' = 'v', "q" = 2)
       IN TABLE db.t_x PARTITIONED BY (dt) STORED AS PARQUET LOCATION '/i' COMMENT "it's an index\"""": CreateIndex(
        "x", "t", "compact", ("a", "b"), deferred=True, properties=(("p", "v"), ("q", "2")), index_table="db.t_x",
        partition_by=("dt",), location="/i", comment="it's an index",
    ),
    "CREATE INDEX x ON t (a) AS 'com.acme.Bloom' PARTITIONED BY ()": CreateIndex(
        "x", "t", "com.acme.Bloom", ("a",), partition_by=()
    ),
    "ALTER INDEX x ON t REBUILD": RebuildIndex("x", "t"),
    "ALTER INDEX x ON t PARTITION (dt = '2024-11-11', r = 7) REBUILD": RebuildIndex(
        "x", "t", (("dt", "2024-11-11"), ("r", 7))
    ),
    "ALTER INDEX x ON t SET IDXPROPERTIES ('tombstones' = 'lazy')": SetIndexProperties(
        "x", "t", (("tombstones", "lazy"),)
    ),
    "SHOW INDEX ON t": ShowIndexes("t"),
    "SHOW FORMATTED INDEXES ON db.t": ShowIndexes("db.t", formatted=True),
    "SHOW INDEXES FROM t IN db": ShowIndexes("db.t"),
    "DESCRIBE INDEX x ON t": DescribeIndex("x", "t"),
    "desc formatted index x on table t": DescribeIndex("x", "t", formatted=True),
    # ours
    "CREATE INDEX e ON t (`p x`.u, (n + 1), lower(c), d)": CreateIndex(
        "e", "t", "secondary", ("`p x`.u", "(n + 1)", "lower(c)", "d")
    ),
    "CREATE INDEX c ON t (a) USING covering INCLUDE (b, c) COMMENT 'c'": CreateIndex(
        "c", "t", "covering", ("a",), include=("b", "c"), comment="c"
    ),
    "CREATE INDEX c ON t (a) USING COVERING EXCLUDE (b)": CreateIndex("c", "t", "covering", ("a",), exclude=("b",)),
    "CREATE INDEX c ON t (a) USING secondary OPTIONS (shards 4)": CreateIndex(
        "c", "t", "secondary", ("a",), properties=(("shards", "4"),)
    ),
    "CREATE INDEX c ON t (a) USING covering INCLUDE (b) EXCLUDE ()": CreateIndex(
        "c", "t", "covering", ("a",), include=("b",), exclude=()
    ),
    "REFRESH INDEX x ON t": RefreshIndex("x", "t"),
    "REFRESH INDEX x ON t FULL PARTITION (dt = DATE '2024-11-11')": RefreshIndex(
        "x", "t", "full", (("dt", "2024-11-11"),)
    ),
    "REFRESH INDEX x ON t quick": RefreshIndex("x", "t", "quick"),
    "REFRESH INDEX x ON t INCREMENTAL INCLUDE (c3) EXCLUDE (c1) SCHEMA (c3 bigint)": RefreshIndex(
        "x", "t", include=("c3",), exclude=("c1",), schema="c3 bigint"
    ),
    "ALTER TABLE t DROP PARTITION (dt = '1'), PARTITION (dt = NULL)": DropPartition(
        "t", ((("dt", "1"),), (("dt", None),))
    ),
    "ALTER TABLE t DROP IF EXISTS PARTITION (n = -1)": DropPartition("t", ((("n", -1),),), if_exists=True),
    "DROP TABLE IF EXISTS `s3://lake/t`": DropTable("s3://lake/t", if_exists=True),
    "DROP TABLE indexed.`/lake/t`": DropTable("/lake/t"),
    # as Spark writes them
    "ALTER TABLE t ADD COLUMN c int COMMENT 'x', d decimal(10, 2)": AddColumns(
        "t", "c int COMMENT 'x', d decimal(10, 2)"
    ),
    "ALTER TABLE t ADD COLUMNS (c struct<first: int, after: int>, first string)": AddColumns(
        "t", "c struct<first: int, after: int>, first string"
    ),
    "ALTER TABLE t ALTER COLUMN c TYPE decimal(12, 2)": AlterColumnType("t", "c", "decimal(12, 2)"),
    "ALTER TABLE t CHANGE type TYPE bigint": AlterColumnType("t", "type", "bigint"),
    "ALTER TABLE db.t RENAME COLUMN a TO `b c`": RenameColumn("db.t", "a", "b c"),
    "ALTER TABLE db.t SET TBLPROPERTIES ('query_log' = 'sampled', 'query_log.sample' = 0.5)": SetTableProperties(
        "db.t", (("query_log", "sampled"), ("query_log.sample", "0.5"))
    ),
    "ALTER TABLE t DROP COLUMN a": DropColumns("t", ("a",)),
    "ALTER TABLE t DROP COLUMNS IF EXISTS (a, b)": DropColumns("t", ("a", "b"), if_exists=True),
    "ALTER TABLE t DROP COLUMN a, b": DropColumns("t", ("a", "b")),
    "CREATE TABLE db.t USING parquet": RegisterSource("db.t", "parquet"),
    """CREATE TABLE IF NOT EXISTS db.t (id int) USING CSV OPTIONS (header true, 'sep' = ';', path '/raw/t')
       TBLPROPERTIES (primaryKey = 'id', team.owner = 'me') COMMENT 'raw'""": RegisterSource(
        "db.t", "csv", "id int", (("header", "true"), ("sep", ";")), ("id",), (("team.owner", "me"),), "/raw/t", "raw",
        if_not_exists=True,
    ),
    "CREATE TABLE db.t USING delta LOCATION 's3://raw/t'": RegisterSource("db.t", "delta", location="s3://raw/t"),
}  # fmt: skip


@pytest.mark.parametrize("text", INDEXES)
def test_a_statement_is_read_as_it_is_meant(text: str) -> None:
    assert one(text) == INDEXES[text]


def test_words_may_be_written_in_any_case_and_names_keep_theirs() -> None:
    assert one("cReAtE iNdEx MyIdx oN MyTable (MyColumn)") == CreateIndex(
        "MyIdx", "MyTable", "secondary", ("MyColumn",)
    )


def test_clauses_may_come_in_any_order() -> None:
    forwards = one("CREATE INDEX x ON t (a) AS 'compact' WITH DEFERRED REBUILD IN TABLE i COMMENT 'c'")
    assert one("CREATE INDEX x ON t (a) COMMENT 'c' IN TABLE i WITH DEFERRED REBUILD USING compact") == forwards


# --- CREATE TABLE -----------------------------------------------------------------------------------------------


def test_the_documents_table_is_read_with_its_options() -> None:
    statement = one(r"""
        CREATE TABLE hudi_table(
            id BIGINT, -- the key
            name STRING COMMENT 'not -- a comment',
            price DECIMAL(10, 2),
            tags ARRAY<STRUCT<a: INT, b: MAP<STRING, INT>>>,
            dt DATE
        )
        PARTITIONED BY (dt)
        WITH (
            'connector' = 'indexed',
            'path' = 'file:///tmp/hudi_table',
            'table.type' = 'MERGE_ON_READ',
            'primaryKey' = 'id, name',
            'index.type' = 'BUCKET',
            'hoodie.bucket.index.partition.expressions' = '\\d{4}-(06-(01|17|18)|11-(01|10|11)),256',
            'hoodie.bucket.index.num.buckets' = '10'
        );""")

    assert statement.table == "hudi_table"
    assert statement.location == "file:///tmp/hudi_table"
    assert statement.partition_by == ("dt",)
    assert dict(statement.arguments) == {
        "record_key": ("id", "name"),
        "write_mode": "merge_on_read",
        "buckets": 10,
        "bucket_expressions": r"\d{4}-(06-(01|17|18)|11-(01|10|11)),256",
    }
    assert "the key" not in statement.columns
    assert "'not -- a comment'" in statement.columns
    assert statement.columns.endswith("dt DATE")


def test_our_own_options_and_the_layout_clause() -> None:
    statement = one(
        """
        CREATE TABLE IF NOT EXISTS db.t (id int NOT NULL, n string) USING indexed
        CLUSTERED BY (id) INTO 4 BUCKETS LOCATION '/lake/t' COMMENT 'rides'
        TBLPROPERTIES (record_key = 'id', preCombineField = 'n', hoodie.record.merge.mode = 'EVENT_TIME_ORDERING',
                       positions = 'TRUE', 'team.owner' = 'me')"""
    )

    assert statement == CreateTable(
        "db.t", "id int NOT NULL, n string", (),
        (("record_key", ("id",)), ("ordering_column", "n"), ("merge_by", "ordering"), ("positions", True),
         ("hash_fields", ("id",)), ("buckets", 4)),
        (("team.owner", "me"),), "/lake/t", "rides", True,
    )  # fmt: skip


# --- CALL -------------------------------------------------------------------------------------------------------

CALLS = {
    "CALL partition_bucket_index_manager(table => 't', overwrite => 'a,1;b,2')": ManageBuckets(
        "t", "overwrite", "a,1;b,2"
    ),
    "call p.partitionBucketIndexManager(overwrite => 'a,1', bucket-number => '8', dry-run => 'false', table => 't')": (
        ManageBuckets("t", "overwrite", "a,1", 8, dry_run=False)
    ),
    "CALL partition_bucket_index_manager('t', 'a,1', -1, NULL, false, NULL, false, 'range')": ManageBuckets(
        "t", "overwrite", "a,1", None, dry_run=False, rule="range"
    ),
    "CALL partition_bucket_index_manager('t', add => 'a,1', options => 'drain_seconds=5, window=7')": ManageBuckets(
        "t", "add", "a,1", options=(("drain_seconds", "5"), ("window", "7"))
    ),
    "CALL partition_bucket_index_manager(table => 't', rollback => '20250303095546020')": ManageBuckets(
        "t", "rollback", "20250303095546020", dry_run=False
    ),
    "CALL partition_bucket_index_manager(table => 't', show_config => true)": ManageBuckets(
        "t", "show_config", dry_run=False
    ),
}


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_read_by_name_and_by_place(text: str) -> None:
    assert one(text) == CALLS[text]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "names no table"),
        ("table => 't'", "asks for nothing"),
        ("table => 't', add => 'a,1', overwrite => 'a,1'", "overwrite and add"),
        ("table => 't', nonsense => 1", "no parameter 'nonsense'"),
        ("'t', table => 't'", "table is given twice"),
        ("table => 't', 'a,1'", "without a name"),
        ("table => 't', show_config => 'perhaps'", "neither true nor false"),
        ("table => 't', add => 'a,1', bucket_number => 4", "add takes no bucket_number"),
        ("table => 't', overwrite => 'a,1', bucket_number => 'many'", "no number"),
        ("table => 't', overwrite => 'a,1', options => 'hoodie.x=1'", "no option 'hoodie.x'"),
        ("table => 7, overwrite => 'a,1'", "table is not a text"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(arguments: str, words: str) -> None:
    with pytest.raises(InvalidStatement, match=words):
        parse(f"CALL partition_bucket_index_manager({arguments})")


def test_another_procedure_is_not_guessed_at() -> None:
    with pytest.raises(InvalidStatement, match="no procedure 'run_clustering'"):
        parse("CALL run_clustering(table => 't')")


# --- quotes, comments, several statements -----------------------------------------------------------------------


def test_quotes_and_doubled_quotes() -> None:
    statement = one("""CREATE INDEX `an ``odd`` name` ON "db"."t" ("select", `from`) COMMENT 'it''s "so"'""")

    assert (statement.index, statement.table) == ("an `odd` name", "db.t")
    assert statement.columns == ("select", "from")
    assert statement.comment == 'it\'s "so"'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"'\d{4}'", r"\d{4}"),
        (r"'\\d{4}'", r"\d{4}"),
        (r"r'\\d{4}'", r"\\d{4}"),
        (r"'a\'b'", "a'b"),
        (r'"a\"b"', 'a"b'),
        ("''", ""),
        (r"'\\'", "\\"),
        ("'a\nb'", "a\nb"),
    ],
)
def test_a_backslash_only_takes_the_meaning_from_quotes_and_itself(written: str, meant: str) -> None:
    assert one(f"CREATE INDEX x ON t (a) COMMENT {written}").comment == meant


@given(st.text(max_size=30))
def test_any_text_can_be_quoted(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace("'", "''")
    assert one(f"CREATE INDEX x ON t (a) COMMENT '{quoted}'").comment == text


def test_words_of_the_grammar_can_be_names_where_no_such_word_can_stand() -> None:
    statement = one("CREATE INDEX location ON comment (date, index, partition, options, comment) IN TABLE using")

    assert (statement.index, statement.table, statement.index_table) == ("location", "comment", "using")
    assert statement.columns == ("date", "index", "partition", "options", "comment")


def test_a_name_that_begins_like_a_word_is_a_name() -> None:
    assert one("CREATE INDEX if_so ON table1 (include_me, asc)").table == "table1"


def test_several_statements_with_comments_and_empty_ones_between() -> None:
    first, second = parse("""
        -- ; not a statement
        DROP INDEX a ON t; ; /* DROP TABLE t;
        */ SHOW INDEXES ON t -- the end""")

    assert (first.source.number, first.source.line, first.source.column) == (1, 3, 9)
    assert (second.source.number, second.source.line) == (2, 4)
    assert second.source.text == "SHOW INDEXES ON t"


def test_a_file_may_begin_with_a_byte_order_mark_and_have_lines_of_windows() -> None:
    assert one("\ufeffDROP TABLE t;\r\n-- done\r\n") == DropTable("t")


def test_reading_needs_no_spark() -> None:
    code = "import sys; from spark_apps.sql import parse; parse('DROP TABLE t'); print('pyspark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
