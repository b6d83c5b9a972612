"""What is refused, where the error points, and what it says was expected. No Spark."""

from __future__ import annotations

import pytest

from spark_apps.sql import parse
from spark_apps.storage.errors import InvalidStatement


def refused(text: str) -> InvalidStatement:
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    assert caught.value.outcome == "Nothing was changed."
    return caught.value


def test_an_error_shows_its_line_a_caret_and_what_was_expected() -> None:
    error = refused("DROP INDEX a ON t;\n\nCREATE INDEX x\n    IN t (c);\nDROP TABLE t")

    assert (error.line, error.column) == (4, 5)
    assert "Line 4, column 5: expected ON, found 'IN'." in error.message
    assert error.message.splitlines()[1:3] == ["      IN t (c);", "      ^^"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE INDEX x ON t (a", "expected '(', ')', ',' or '.', the script ends here"),
        ("CREATE", "expected INDEX or TABLE, the script ends here"),
        ("CREATE VIEW v", "expected INDEX or TABLE, found 'VIEW'"),
        ("ALTER INDEX x ON t DISABLE", "expected PARTITION, REBUILD, SET or '.', found 'DISABLE'"),
        ("ALTER TABLE t PUT", "expected ADD, ALTER, CHANGE, DROP, RENAME, SET or '.', found 'PUT'"),
        ("ALTER TABLE t SET", "expected TBLPROPERTIES, the script ends here"),
        ("ALTER TABLE t ADD PARTITION (a = 1)", "expected COLUMN or COLUMNS, found 'PARTITION'"),
        ("ALTER TABLE t ALTER COLUMN c COMMENT 'x'", "expected TYPE, found 'COMMENT'"),
        ("ALTER TABLE t RENAME TO u", "expected COLUMN, found 'TO'"),
        ("ALTER TABLE t ADD COLUMN", "expected a name or '(', the script ends here"),
        ("CREATE INDEX x ON t (a) WITH REBUILD", "expected DEFERRED, found 'REBUILD'"),
        ("CREATE TABLE t () USING indexed", "expected the columns and their types, found ')'"),
        ("CALL partition_bucket_index_manager(table => t)", "expected FALSE, NULL, TRUE, a quoted text or a number"),
        (
            "EXPLAIN SELECT 1",
            "expected ALTER, CALL, CREATE, DELETE, DESC, DESCRIBE, DROP, INSERT, MERGE, REFRESH, SELECT, SHOW or",
        ),
        ("SELECT 1 FROM WHERE", "cannot be read at its line 1, near 'WHERE'"),
        ("SELECT 'a", "A quotation that begins here is not closed"),
        ("WITH a AS (SELECT 1) DELETE FROM t", "This is no query"),
        ("SELECT 1 FROM (INSERT INTO t SELECT 1)", "The query"),
        ("INSERT t VALUES (1)", "expected INTO or OVERWRITE, found 't'"),
        ("INSERT INTO t (a", "expected ')' or ',', the script ends here"),
        ("INSERT INTO t REPLACE WHERE a = 1 SELECT 1", "REPLACE is not taken"),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", "writes no table"),
        ("INSERT OVERWRITE t PARTITION (a = 1) IF NOT EXISTS SELECT 1", "IF NOT EXISTS of a partition"),
        ("UPDATE t SET", "expected a name, the script ends here"),
        ("UPDATE t AS x SET x.a.b = 1", "fields of a struct are not set"),
        ("UPDATE t SET a = WHERE b", "expected a value, found 'WHERE'"),
        ("DELETE t WHERE a", "expected FROM, found 't'"),
        ("DELETE FROM t WHERE a = 1) OR (b = 1", "expected ';' or the end, found ')'"),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN INSERT *", "expected DELETE or UPDATE, found 'INSERT'"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "no row of the source"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "names 2 columns and gives 1"),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN DELETE WHEN MATCHED AND b THEN DELETE", "can never be reached"),
        ("MERGE WITH SCHEMA EVOLUTION INTO t USING s ON a WHEN MATCHED THEN DELETE", "SCHEMA EVOLUTION is not taken"),
        ("CREATE TABLE t USING indexed TBLPROPERTIES (primaryKey = 'a') AS", "no query follows AS"),
        (
            "CREATE TABLE t (a int) USING indexed TBLPROPERTIES (primaryKey = 'a') AS SELECT 1",
            "query behind AS has its own",
        ),
        ("CREATE TABLE t USING parquet AS SELECT 1", "format parquet is not made from a query"),
        ("DROP INDEX a DROP INDEX b", "expected ON, ';' or the end, found 'DROP'"),
        ("", "holds no statement"),
        ("-- nothing\n;", "holds no statement"),
    ],
)
def test_what_was_expected_is_said_in_the_users_words(text: str, expected: str) -> None:
    assert expected in refused(text).message


@pytest.mark.parametrize(
    ("text", "words", "column"),
    [
        ("DROP INDEX 'x", "A quotation that begins here is not closed.", 12),
        ("DROP TABLE `x", "A quoted name that begins here is not closed.", 12),
        ("DROP TABLE t /* x", "A comment that begins here is not closed.", 14),
    ],
)
def test_what_is_opened_and_never_closed_is_pointed_at(text: str, words: str, column: int) -> None:
    error = refused(text)
    assert words in error.message and error.column == column


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"CREATE TABLE t (a {'(' * 20000}{')' * 20000})", "nested too deeply"),
        (f"CREATE INDEX x ON t (f{'(' * 20000}{')' * 20000})", "nested too deeply"),
        (f"ALTER TABLE t DROP PARTITION (a = {'9' * 5000})", "larger than any type holds"),
        ("ALTER TABLE t DROP PARTITION (a = 1e999)", "larger than any type holds"),
        (f"DROP INDEX {'x' * 100000} AND y", "expected ON, ';' or the end, found 'AND'"),
        (f"DROP INDEX a {'x' * 100000}", f"found '{'x' * 60}' …."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_monstrous_is_refused_in_few_words(text: str, words: str) -> None:
    error = refused(text)

    assert words in error.message
    assert len(error.message) < 600


def test_a_truncation_is_told_what_does_the_same() -> None:
    assert "DELETE FROM" in refused("DROP INDEX a ON t; TRUNCATE TABLE t").hint


def test_a_query_that_cannot_be_read_is_pointed_at_in_its_script() -> None:
    error = refused("DROP INDEX a ON t;\n  SELECT ';' FROM (;\nSHOW INDEXES ON t")

    assert (error.line, error.column) == (2, 3)


def test_a_hyphen_in_a_name_is_explained() -> None:
    assert "back-ticks" in refused("DROP TABLE my-table").hint


@pytest.mark.parametrize(
    ("clause", "words", "at"),
    [
        ("ROW FORMAT DELIMITED FIELDS TERMINATED BY ','", "ROW FORMAT cannot be given", "ROW"),
        ("STORED BY 'com.acme.Handler' WITH SERDEPROPERTIES ('a'='b')", "STORED BY cannot be given", "STORED BY"),
        ("STORED AS RCFILE", "Index files are Parquet", "RCFILE"),
        ("STORED AS INPUTFORMAT 'a' OUTPUTFORMAT 'b'", "Index files are Parquet", "INPUTFORMAT"),
        ("TBLPROPERTIES ('a' = 'b')", "TBLPROPERTIES cannot be given", "TBLPROPERTIES"),
        ("COMMENT 'a' COMMENT 'b'", "COMMENT is given twice", "COMMENT 'b'"),
        ("USING secondary AS 'compact'", "kind of the index is given twice", "AS"),
        ("USING secondary (b)", "columns are given twice", "USING"),
        ("USING bucket", "layout of the table itself", "bucket"),
        ("IDXPROPERTIES ('a' = 'b', 'A' = 'c')", "'A' is given twice", "'A'"),
        ("IDXPROPERTIES ('a' = NULL)", "cannot be NULL", "NULL"),
        ("PARTITIONED BY (dt, DT)", "'DT' is given twice", "DT"),
    ],
)
def test_a_clause_of_hive_that_is_not_honoured_is_refused_at_its_place(clause: str, words: str, at: str) -> None:
    text = f"CREATE INDEX x ON t (a) {clause}"

    error = refused(text)

    assert words in error.message
    assert error.column == text.rindex(at) + 1
    assert error.hint or "twice" in error.message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("primarykeys = 'id'", "no table option 'primarykeys'"),
        ("primaryKey = 'id', hoodie.index.type = 'SIMPLE'", "by their bucket or by the record index"),
        ("primaryKey = 'id', index.type = 'RECORD_INDEX', buckets = 4", "buckets is given twice"),
        ("primaryKey = 'id', hoodie.bucket.index.engine = 'CONSISTENT_HASHING'", "only 'SIMPLE' can be had"),
        ("primaryKey = 'id', hoodie.bucket.index.max.num.buckets = 4", "no table option"),
        ("primaryKey = 'id', record_key = 'n'", "record_key is given twice"),
        ("primaryKey = 'id', type = 'log'", "not one of mor, cow"),
        ("primaryKey = 'id,'", "not a list of columns"),
        ("primaryKey = 'id', buckets = 'x'", "not a bucket count"),
        ("preCombineField = 'ts'", "no record key"),
        ("primaryKey = 'id', preCombineField = 'ts,n'", "by one column only"),
        ("primaryKey = 'id', connector = 'hudi'", "format"),
    ],
)
def test_a_table_option_that_is_not_known_or_not_possible_is_refused(options: str, words: str) -> None:
    assert words in refused(f"CREATE TABLE t (id int) USING indexed TBLPROPERTIES ({options})").message


def test_a_near_miss_of_an_option_is_suggested() -> None:
    assert "'primarykey'" in refused("CREATE TABLE t (id int) USING indexed OPTIONS (primarykeys 'id')").hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE TABLE t (id int) TBLPROPERTIES (primaryKey = 'id')", "USING indexed"),
        ("CREATE TABLE t (id int) USING avro TBLPROPERTIES (primaryKey = 'id')", "'avro' are not made here"),
        ("DROP TABLE ` `", "not blank"),
        ("DROP TABLE t PURGE", "PURGE cannot be had"),
        ("ALTER TABLE t DROP PARTITION (dt = '1') PURGE", "PURGE cannot be had"),
        ("ALTER INDEX x ON t PARTITION (dt = '1') SET IDXPROPERTIES ('a' = 'b')", "belong to the whole index"),
        ("DROP TABLE delta.`/lake/t`", r"named by db.table, by `path`, or by indexed.`path`"),
        ("ALTER TABLE t DROP PARTITION (dt = '1', DT = '2')", "'DT' is given twice"),
        ("REFRESH INDEX x ON t FULL QUICK", "mode is given twice"),
        ("REFRESH INDEX x ON t PARTITION (a = 1) PARTITION (a = 2)", "PARTITION is given twice"),
    ],
)
def test_other_statements_are_refused_with_their_reason(text: str, words: str) -> None:
    assert words in refused(text).message


def test_given_mistakes_in_two_statements_then_the_first_is_pointed_at() -> None:
    assert refused("UPDATE t SET; DROP INDX c").column == len("UPDATE t SET;")
    assert refused("DROP INDX c; UPDATE t SET 'a").column == 6


def test_a_mistake_anywhere_keeps_the_whole_script_from_running() -> None:
    assert refused("DROP INDEX a ON t; DROP INDEX b ON t; DROP INDX c").line == 1


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (id int) USING indexed OPTIONS ('fs.s3a.secret.key' 'hunter2', ! 'a' = 'b')",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('password' = 'hunter2', ! 'a' = 'b')",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('account.key': 'hunter2hunter2hunter2')",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('password': 'hunter2')",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('password' =\n  'hunter2' !",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('db.passwd' = 'hun\nter2', 'hunter' !",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('password' = '"
        + "x" * 300
        + "hunter2"
        + "x" * 60
        + "' !",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('password' = 'hunter2",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('password' hunter2",
        "CREATE TABLE t (id int) USING indexed LOCATION 's3://AKID:hunter2@bucket/x' !",
        "CREATE TABLE t (id int) USING indexed TBLPROPERTIES ('x.url' = 'https://b/x?sig=hunter2' !)",
        "CREATE TABLE t (id int) USING indexed OPTIONS (header 'Authorization: Bearer hunter2hunter2', !)",
        'CREATE TABLE t (id int) USING indexed OPTIONS (passwd "hunt\\"er2" !)',
        "ALTER INDEX a ON t SET IDXPROPERTIES ('token' = 'hunter2' !)",
    ],
    ids=map(str, range(14)),
)
def test_no_secret_of_a_script_stands_in_an_error(text: str) -> None:
    error = refused(text)

    assert "hunter2" not in str(error) and "ter2" not in str(error)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("ALTER TABLE t ADD COLUMN c int FIRST", 32, "New columns are added at the end"),
        ("ALTER TABLE t ADD COLUMNS (a int, c int AFTER a)", 41, "New columns are added at the end"),
        ("ALTER TABLE t DROP COLUMNS (a, A)", 32, "The column 'A' is given twice"),
        ("CREATE TABLE t USING parquet PARTITIONED BY (dt)", 30, "those of its folders"),
        ("CREATE TABLE t USING orc CLUSTERED BY (a) INTO 4 BUCKETS", 26, "this package's own tables"),
        (
            "CREATE TABLE t USING csv TBLPROPERTIES (buckets = 4)",
            41,
            "no option 'buckets' of a table that others write",
        ),
        ("CREATE TABLE t USING csv OPTIONS (path 'a') LOCATION 'b'", 45, "given twice, also as 'a'"),
        ("CREATE TABLE t USING avro", 22, "'avro' are not made here"),
        ("CREATE TABLE t USING indexed TBLPROPERTIES (primaryKey = 'id')", 1, "has no columns"),
    ],
)
def test_what_cannot_be_meant_of_a_table_is_refused_at_its_place(text: str, column: int, words: str) -> None:
    error = refused(text)

    assert words in error.message
    assert error.column == column
