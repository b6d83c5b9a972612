"""Plain files as a source: what is read, what an index saves, what appended, removed and rewritten files do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pytest

from spark_apps import IndexedTable
from spark_apps.actions.indexing import RefreshIndex
from spark_apps.actions.template import run
from spark_apps.storage import errors
from tests.spark_apps.sources.lake import digest, people, rows_of, write

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

ODD_FOLDERS = ["a b", "c%d", "e%20f", "[g]", "{h}", "ü☃", "i'j", "k+l,m;n", "__HIVE_DEFAULT_PARTITION__"]


def raw(pattern: str, where: str = "true", columns: str = "id, city, note") -> Any:
    """What DuckDB reads of Parquet files."""
    return rows_of(duckdb.sql(f"SELECT {columns} FROM read_parquet('{pattern}') WHERE {where}").fetchall())


def test_a_folder_that_grows_loses_and_changes_files_is_read_right_with_and_without_refresh(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "people"
    for n in range(4):
        write(source / f"{n}.parquet", people(n * 10, 10, f"city {n}"))
    write(source / "_hidden.parquet", people(500, 3))
    write(source / ".also_hidden" / "x.parquet", people(600, 3))
    (source / "empty").touch()
    before = digest(source)

    table = IndexedTable.register(spark, source, record_key=["id"])
    assert table.uri == str(tmp_path / "_indexes" / "people")
    assert table.definition.source is not None
    assert table.create_index("by_city", kind="secondary", columns=["city"]).metrics["files"] == 4
    table.create_index("by_id", kind="record")
    everything = f"{source}/[0-9]*.parquet"
    assert rows_of(table.read()) == raw(everything)
    where = "city = 'city 2' AND id > 23"
    assert rows_of(table.read(where)) == raw(everything, where)
    plan = table.explain("city = 'city 2'")
    assert (plan.files_read, plan.files_skipped, plan.index_used) == (1, 3, "by_city")
    assert table.explain("id = 17").files_read == 1
    assert [file.path for file in table.locate("id IN (5, 35)")] == [f"file://{source}/{n}.parquet" for n in (0, 3)]
    assert {table.verify(name).ok for name in table.indexes} == {True}
    version = table.version
    assert table.refresh_index("by_city").version is None, "nothing has changed, so nothing is committed"
    assert digest(source) == before

    write(source / "4.parquet", people(40, 10, "city 2"))
    (source / "0.parquet").unlink()
    write(source / "1.parquet", people(10, 10, "city 9"))
    changed = digest(source)
    table = IndexedTable.load(spark, source)
    assert table.version == version
    assert rows_of(table.read("city = 'city 2'")) == raw(everything, "city = 'city 2'")
    assert rows_of(table.read("city = 'city 1'")) == raw(everything, "city = 'city 1'")
    assert table.explain("city = 'city 2'").files_read == 3, "one that the index tells of, two that it does not"
    assert {file.path[-9:]: file.indexed for file in table.locate("city = 'city 9'")} == {
        "1.parquet": False, "4.parquet": False
    }  # fmt: skip
    counted = table.locate("city = 'city 9'", count=True)
    assert [(file.path[-9:], file.matches) for file in counted] == [("1.parquet", 10)]
    assert rows_of(table.read("id = 12")) == raw(everything, "id = 12")

    receipt = table.refresh_index("by_city", mode="quick")
    assert receipt.metrics == {"source.files_added": 2, "source.files_removed": 2} | receipt.metrics
    assert table.indexes["by_city"].lagging > 0
    receipt = table.refresh_index("by_city")
    assert receipt.version is not None and "source.files_added" not in receipt.metrics
    assert table.indexes["by_city"].lagging == 0 < table.indexes["by_id"].lagging
    assert table.explain("city = 'city 2'").files_read == 2
    assert rows_of(table.read("city = 'city 2'")) == raw(everything, "city = 'city 2'")
    table.refresh_index("by_id")
    assert table.explain("id = 12").files_read == 1
    assert table.verify("by_city").ok and table.verify("by_city").stale == 0
    assert table.compact("by_city", mode="full").committed
    assert rows_of(table.read("city = 'city 9'")) == raw(everything, "city = 'city 9'")
    table.clean(retain_versions=1, retain_seconds=0)
    assert rows_of(IndexedTable.load(spark, table.uri).read()) == raw(everything)
    assert digest(source) == changed


def test_partition_values_of_any_characters_and_null_come_from_the_folders_names(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "odd #1 [x] {y} %41 ü"
    for n, folder in enumerate(ODD_FOLDERS):
        quoted = folder if folder.startswith("__") or "%20" in folder else _hive(folder)
        write(source / f"day=2024-01-0{n % 3 + 1}" / f"Place={quoted}" / f"part {n}%+[{n}].parquet", people(n * 10, 5))
    write(source / "lies beside.parquet", people(900, 1))
    expected = rows_of(
        (*row.values(), f"2024-01-0{n % 3 + 1}", None if folder.startswith("__") else folder.replace("%20", " "))
        for n, folder in enumerate(ODD_FOLDERS)
        for row in people(n * 10, 5).to_pylist()
    )

    table = IndexedTable.register(spark, source)
    assert [(field.name, field.type) for field in table.definition.fields][-2:] == [
        ("day", "date"),
        ("Place", "string"),
    ]
    read = table.read().selectExpr("id", "city", "note", "cast(day AS string)", "Place")
    assert rows_of(read) == expected
    spark_reads = spark.read.parquet(
        str(source).replace("[", "\\[").replace("]", "\\]").replace("{", "\\{").replace("}", "\\}")
    )
    theirs = spark_reads.selectExpr("id", "city", "note", "cast(day AS string)", "Place")
    assert rows_of(theirs) == expected
    table.create_index("by_city", kind="secondary", columns=["city"])
    assert table.verify("by_city").ok
    where = "city = 'oslo' AND day = DATE'2024-01-02' AND Place IS NOT NULL"
    assert rows_of(table.read(where, ["id", "Place"])) == rows_of(theirs.where(where).select("id", "Place"))
    assert rows_of(table.read("place IS NULL", ["id"])) == rows_of(theirs.where("place IS NULL").select("id"))
    assert table.explain("Place = 'ü☃'").files_read == 1
    assert {file.matches for file in table.locate("city = 'lima'", count=True)} <= {1, 2}
    assert (
        sum(file.matches or 0 for file in table.locate("city = 'lima'", count=True))
        == table.read("city = 'lima'").count()
    )


def _hive(text: str) -> str:
    """Hive's escaping, as far as these names need it."""
    return "".join(f"%{ord(c):02X}" if c in "%'[]{}*/:=?\\#\"^" else c for c in text)


def test_csv_json_and_orc_are_read_with_their_options_and_indexed(spark: Any, tmp_path: Path) -> None:
    rows = [people(n * 10, 10, f"city {n}") for n in range(3)]
    for form in ("csv", "json", "orc"):
        for n, part in enumerate(rows):
            path = tmp_path / form / f"k={n}" / f"{n}.{form}"
            path.parent.mkdir(parents=True)
            if form == "csv":
                pyarrow.csv.write_csv(part, path, pyarrow.csv.WriteOptions(delimiter=";"))
            elif form == "orc":
                pyarrow.orc.write_table(part, path)
            else:
                path.write_text("".join(f"{_json(row)}\n" for row in part.to_pylist()))
    expected = rows_of((*row.values(), n) for n, part in enumerate(rows) for row in part.to_pylist())
    ddl = "id bigint, city string, note string"
    tables = {
        "csv": IndexedTable.register(spark, tmp_path / "csv", "csv", f"{ddl}, k int", {"header": True, "sep": ";"}),
        "json": IndexedTable.register(spark, tmp_path / "json", "json", ddl),
        "orc": IndexedTable.register(spark, tmp_path / "orc", "orc"),
    }
    for form, table in tables.items():
        before = digest(tmp_path / form)
        assert rows_of(table.read()) == expected, form
        table.create_index("by_note", kind="secondary", columns=["note"])
        assert table.verify("by_note").ok
        assert table.explain("note = 'note 12'").files_read == 1
        assert rows_of(table.read("note = 'note 12'")) == rows_of([(12, "city 1", "note 12", 1)]), form
        assert rows_of(table.read("note IS NULL", ["k", "id"])) == rows_of(
            (n, n * 10 + m) for n in range(3) for m in (0, 5)
        )
        assert table.read(columns=["k"]).where("k = 2").count() == 10
        assert digest(tmp_path / form) == before
    text = IndexedTable.register(
        spark, tmp_path / "csv" / "k=1", "csv", options={"header": "true", "sep": ";"}, name="t"
    )
    assert [field.type for field in text.definition.fields] == ["string"] * 3, "as Spark takes CSV without a schema"
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.json").write_text('[{"id": 1, "city": "x\\ny"},\n {"id": 2}]')
    lines = IndexedTable.register(spark, tmp_path / "lines", "json", "id int, city string", {"multiLine": True})
    assert rows_of(lines.read()) == rows_of([(1, "x\ny"), (2, None)])
    assert rows_of(lines.read(columns=["id"])) == rows_of([(1,), (2,)])


def _json(row: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in row.items() if value is not None})


def test_a_glob_a_single_file_and_a_name_of_the_catalog_stand_for_the_files_behind_them(
    spark: Any, tmp_path: Path
) -> None:
    for n in range(4):
        write(tmp_path / "lake" / f"y=202{n}" / "a.parquet", people(n * 10, 5))
        write(tmp_path / "lake" / f"y=202{n}" / "b.txt", people(n * 10 + 5, 5))
    pattern = f"{tmp_path}/lake/y=202[12]/*.parquet"
    table = IndexedTable.register(spark, pattern, record_key=["id"])
    assert rows_of(table.read(columns=["id", "y"])) == rows_of((n * 10 + m, 2020 + n) for n in (1, 2) for m in range(5))
    table.create_index("by_id", kind="record")
    write(tmp_path / "lake" / "y=2022" / "c.parquet", people(70, 1))
    again = IndexedTable.load(spark, pattern)
    assert again.uri == table.uri and again.read("id = 70").count() == 1
    assert not list(tmp_path.glob("lake/*[[]*")), "looking for a log leaves nothing behind"

    one = IndexedTable.register(spark, tmp_path / "lake" / "y=2020" / "a.parquet")
    assert one.read().count() == 5
    assert IndexedTable.load(spark, tmp_path / "lake" / "y=2020" / "a.parquet").uri == one.uri

    spark.sql("CREATE DATABASE IF NOT EXISTS shop")
    spark.sql(f"CREATE TABLE shop.people (id BIGINT, city STRING, p INT) USING csv OPTIONS (sep '|') "
              f"PARTITIONED BY (p) LOCATION '{tmp_path}/named'")  # fmt: skip
    spark.sql("INSERT INTO shop.people VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c|d', NULL)")
    named = IndexedTable.register(spark, "shop.people", record_key=["id"])
    assert rows_of(named.read()) == rows_of(spark.table("shop.people"))
    assert rows_of(IndexedTable.load(spark, "shop.people").read("p IS NULL")) == rows_of([(3, "c|d", None)])
    spark.sql("CREATE VIEW shop.some AS SELECT * FROM shop.people")
    with pytest.raises(errors.UnsupportedSource, match="view"):
        IndexedTable.register(spark, "shop.some")
    spark.sql("DROP DATABASE shop CASCADE")


def test_older_versions_of_the_log_read_the_files_of_then_or_say_that_they_are_gone_or_rewritten(
    spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "people"
    write(source / "0.parquet", people(0, 5))
    write(source / "1.parquet", people(10, 5))
    table = IndexedTable.register(spark, source)
    write(source / "2.parquet", people(20, 5))
    table = IndexedTable.load(spark, source)
    assert table.create_index("by_city", kind="secondary", columns=["city"]).metrics["source.files_added"] == 1
    assert IndexedTable.load(spark, source, version=0).read().count() == 10
    assert table.read().count() == 15

    write(source / "1.parquet", people(30, 5))
    os.utime(source / "1.parquet", (1, 1))
    with pytest.raises(errors.StorageError, match="rewritten"):
        table.read().count()
    (source / "0.parquet").unlink()
    with pytest.raises(errors.ObjectNotFound, match="gone"):
        IndexedTable.load(spark, source, version=0).read("id < 5").count()
    assert IndexedTable.load(spark, source).read().count() == 10
    source.rename(tmp_path / "moved")
    with pytest.raises(errors.StorageUnavailable, match="no folder"):
        IndexedTable.load(spark, source)
    assert not source.exists()


def test_what_writes_rows_is_refused_and_what_cannot_be_registered_is_named(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "people"
    write(source / "p=1" / "0.parquet", people(0, 5))
    before = digest(tmp_path)
    for arguments, error, text in [
        ({"format": "avro"}, errors.InvalidInput, "parquet, orc"),
        ({"options": {"fs.s3a.secret.key": "x"}}, errors.InvalidInput, "secret"),
        ({"options": {"password": "x"}}, errors.InvalidInput, "storage_options"),
        ({"options": {"url": "http://me:pw@host/"}}, errors.InvalidInput, "secret"),
        ({"options": {"pathGlobFilter": "*.x"}}, errors.InvalidInput, "glob"),
        ({"format": "csv", "options": {"mode": "DropMalformed"}}, errors.InvalidInput, "DROPMALFORMED"),
        ({"record_key": ["nope"]}, errors.UnknownColumn, "nope"),
        ({"record_key": "id"}, errors.InvalidInput, "list"),
        ({"schema": "id bigint, p double"}, errors.InvalidSchema, "double"),
        ({"schema": "id bigint, p date"}, errors.InvalidInput, "partition column"),
        ({"index_root": source / "inside"}, errors.InvalidInput, "inside the other"),
        ({"index_root": tmp_path.parent, "name": tmp_path.name}, errors.InvalidInput, "inside the other"),
        ({"name": "a/b"}, errors.InvalidName, "a/b"),
        ({"format": "delta"}, errors.TableNotFound, "Delta"),
        ({"format": "iceberg"}, errors.TableNotFound, "version-hint"),
        ({"format": "delta", "schema": "id int"}, errors.InvalidInput, "own"),
    ]:
        with pytest.raises(error, match=text):
            IndexedTable.register(spark, source, **arguments)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidInput, match="no files"):
        IndexedTable.register(spark, tmp_path / "people" / "*.orc", "orc")
    with pytest.raises(errors.StorageUnavailable, match="no folder"):
        IndexedTable.register(spark, tmp_path / "nowhere")
    with pytest.raises(errors.TableNotFound):
        IndexedTable.load(spark, source)
    assert digest(tmp_path) == before, "what was refused left nothing behind"

    table = IndexedTable.register(spark, source, index_root=tmp_path / "elsewhere")
    assert table.uri == str(tmp_path / "elsewhere" / "people")
    assert IndexedTable.load(spark, source, index_root=tmp_path / "elsewhere").version == 0
    with pytest.raises(errors.TableExists):
        IndexedTable.register(spark, source, index_root=tmp_path / "elsewhere")
    with pytest.raises(errors.InvalidInput, match="record_key"):
        table.create_index("r", kind="record")
    frame = table.read()
    calls = [
        lambda: table.upsert(frame), lambda: table.insert(frame), lambda: table.delete("id = 1"),
        lambda: table.insert_overwrite(frame), lambda: table.drop_partition("p=1"), lambda: table.compact(),
        lambda: table.rescale(4), lambda: table.restore(0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(errors.InvalidInput, match=r"another writer owns|no bucket layout"):
            call()
    write(source / "q=1" / "0.parquet", people(0, 5))
    with pytest.raises(errors.InvalidInput, match="partition columns"):
        IndexedTable.load(spark, table.uri)
    assert table.version == 0


def test_keys_that_repeat_or_are_null_are_found_in_every_file_that_holds_them(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "loose"
    ids = {"p=1/a": [1, 1, None], "p=1/b": [2, None], "p=2/c": [1, 3], "p=2/d": [3, 4]}
    for name, values in ids.items():
        write(source / f"{name}.parquet", pa.table({"id": pa.array(values, pa.int32())}))
    table = IndexedTable.register(spark, source, record_key=["id"])
    table.create_index("by_id", kind="record")
    assert table.verify("by_id").ok
    expected = {"id = 1": 3, "id IS NULL": 2, "id IN (2, 3)": 3, "id = 9": 0, "id = 3 AND p = 2": 2}
    for where, count in expected.items():
        assert table.read(where).count() == count, where
        assert [file.path[-9] for file in table.locate(where)] == [
            name[-1] for name, values in ids.items() if _matches(where, name, values)
        ], where

    write(source / "p=1" / "e.parquet", pa.table({"id": pa.array([5], pa.int32())}))
    (source / "p=2" / "c.parquet").unlink()
    table = IndexedTable.load(spark, source)
    assert table.refresh_index("by_id", partitions=["p=1"]).metrics["source.files_added"] == 1
    assert table.explain("id = 5").files_read == 1 and table.indexes["by_id"].lagging == 1
    assert table.refresh_index("by_id", partitions=["p=1"]).version is None
    assert table.refresh_index("by_id").metrics["source.files_removed"] == 1
    assert [file.path[-9] for file in table.locate("id IN (3, 5)")] == ["e", "d"]
    assert table.refresh_index("by_id", mode="full").committed and table.verify("by_id").ok

    assert table.drop().committed
    with pytest.raises(errors.TableNotFound):
        IndexedTable.load(spark, source)
    again = IndexedTable.register(spark, source)
    assert again.version > table.version and not again.indexes and again.read("id = 1").count() == 2


def _matches(where: str, name: str, values: list[int | None]) -> bool:
    rows = {"id = 1": [1], "id IS NULL": [None], "id IN (2, 3)": [2, 3], "id = 9": [], "id = 3 AND p = 2": [3]}[where]
    return bool(set(rows) & set(values)) and ("p = 2" not in where or name.startswith("p=2"))


def test_two_refreshes_at_once_tell_of_the_same_new_files_and_neither_is_refused(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "people"
    for n in range(3):
        write(source / f"{n}.parquet", people(n * 10, 10, f"city {n}"))
    table = IndexedTable.register(spark, source)
    table.create_index("a", kind="secondary", columns=["city"])
    table.create_index("b", kind="secondary", columns=["note"])
    (source / "0.parquet").unlink()
    write(source / "3.parquet", people(30, 10, "city 3"))
    one, other = IndexedTable.load(spark, source), IndexedTable.load(spark, source)

    class Overtaken(RefreshIndex):
        """A refresh that another one overtakes between its work and its commit."""

        def work(self, attempt: Any) -> Any:
            work = super().work(attempt)
            assert one.refresh_index("a").committed
            write(source / "4.parquet", people(40, 10, "city 4"))
            assert one.refresh_index("a").committed
            return work

    run(other._handle, Overtaken("b"))
    table = IndexedTable.load(spark, source)
    assert rows_of(table.read()) == raw(f"{source}/*.parquet")
    for where in ("note = 'note 33'", "note = 'note 41'", "note = 'note 1'", "city = 'city 4'", "city = 'city 0'"):
        assert rows_of(table.read(where)) == raw(f"{source}/*.parquet", where), where
    assert table.indexes["a"].lagging == 0
    assert table.explain("city = 'city 4'").files_read == 1
    table.refresh_index("b")
    assert table.indexes["b"].lagging == 0 and table.verify("b").ok and table.verify("a").ok
    assert table.explain("note = 'note 33'").files_read == 1
