"""The program that registers a source, run again with the same and with other arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.jobs.job import Job
from spark_apps.programs.register_table import register_table
from spark_apps.storage.errors import TableExists
from tests.spark_apps.sources.lake import people, write

pytestmark = pytest.mark.spark


def asked(source: Path, txn_id: str, **arguments: Any) -> Job:
    return Job("register_table", str(source), {"format": "csv", **arguments}, txn_id=txn_id)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "trips"
    folder.mkdir()
    (folder / "a.csv").write_text("id,city\n1,oslo\n")
    return folder


FIRST = {"schema": "id bigint, city string", "options": {"header": True}, "record_key": ["id"]}


def test_the_same_again_does_nothing_also_when_the_folder_has_changed_since(spark: Any, source: Path) -> None:
    assert register_table(spark, asked(source, "one", **FIRST)).version == 0
    assert register_table(spark, asked(source, "one", **FIRST)).version == 0, "a retry finds its own commit"
    (source / "a.csv").unlink()

    assert register_table(spark, asked(source, "two", **FIRST)).version is None
    assert register_table(spark, asked(source, "three", **{**FIRST, "schema": None})).version is None
    assert register_table(spark, asked(source, "four", **{**FIRST, "options": {"HEADER": "true"}})).version is None


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"format": "json", "options": None}, "the format is 'csv', not 'json'"),
        ({"options": {"header": False}}, "the option 'header' is 'true', not 'false'"),
        ({"options": None}, "the option 'header' is 'true', and would not be set"),
        ({"record_key": ["city"]}, "the record key is (id), not (city)"),
        ({"schema": "id string, city string"}, "the column 'id' is bigint, not string"),
        ({"schema": "id bigint"}, "there is a column 'city' too"),
        ({"schema": "id bigint, city string, x int"}, "there is no column 'x'"),
    ],
)
def test_other_arguments_are_refused_and_what_differs_is_named(
    spark: Any, source: Path, other: dict[str, Any], named: str
) -> None:
    register_table(spark, asked(source, "one", **FIRST))

    with pytest.raises(TableExists) as caught:
        register_table(spark, asked(source, "two", **{**FIRST, **other}))

    assert named in str(caught.value)
    assert IndexedTable.load(spark, source).version == 0


def test_a_log_of_that_name_over_another_source_or_a_table_is_named(spark: Any, source: Path) -> None:
    root = source.parent / "logs"
    write(source.parent / "others" / "a.parquet", people(0, 3))
    IndexedTable.register(spark, source.parent / "others", index_root=root, name="shared")
    IndexedTable.create(spark, root / "own", "id int", ["id"])

    for name, named in (("shared", f"of the source {source.parent}/others"), ("own", "not a source")):
        with pytest.raises(TableExists) as caught:
            register_table(spark, asked(source, "one", index_root=str(root), name=name))
        assert named in str(caught.value)


def test_a_registration_that_was_dropped_is_made_anew(spark: Any, source: Path) -> None:
    register_table(spark, asked(source, "one", **FIRST))
    IndexedTable.load(spark, source).drop()

    receipt = register_table(spark, asked(source, "two", **{**FIRST, "schema": "id string, city string"}))

    assert receipt.version == 2
    assert IndexedTable.load(spark, source).read().collect() == [("1", "oslo")]
    assert register_table(spark, asked(source, "three", **FIRST | {"schema": "id string, city string"})).version is None
