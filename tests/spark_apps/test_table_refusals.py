"""What a table says to bad input: the thing is named, and nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_apps import IndexedTable
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from tests.spark_apps.frames import frame as frame_of
from tests.spark_apps.small_tables import DDL, Make, maker, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(6)]


@pytest.fixture
def make(spark: Any, tmp_path: Path) -> Make:
    return maker(spark, tmp_path)


BAD_BATCHES = [
    ("select 1L id, 'a' dt, 'x' city", errors.InvalidSchema, "'ts'"),
    ("select 1L id, 'a' dt, 'x' city, 1 ts, 2 more", errors.InvalidSchema, "'more'"),
    (
        "select '1' id, 'a' dt, 'x' city, 1 ts",
        errors.InvalidSchema,
        "'id' of the batch is string, but the table's is bigint",
    ),
    ("select 1L id, 'a' dt, 'x' city, 1L ts", errors.InvalidSchema, "'ts'"),
    ("select cast(null as bigint) id, 'a' dt, 'x' city, 1 ts", errors.InvalidSchema, "null in the column 'id'"),
    ("select 1L id, 'a' dt, 'x' city, 1 ts, 2 TS", errors.InvalidSchema, "twice"),
]


@pytest.mark.parametrize(("query", "error", "said"), BAD_BATCHES)
def test_given_a_batch_that_does_not_fit_then_the_column_is_named_and_nothing_is_changed(
    spark: Any, make: Make, query: str, error: type[Exception], said: str
) -> None:
    table = make()

    for write in (table.upsert, table.insert, table.insert_overwrite):
        with pytest.raises(error, match=said) as raised:
            write(spark.sql(query))
        assert "Nothing was changed" in str(raised.value)
    assert IndexedTable.load(spark, table.uri).read().count() == 0


BAD_TABLES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"key": ["nope"]}, errors.UnknownColumn, "nope"),
    ({"key": ["id", "ID"]}, errors.InvalidInput, "twice"),
    ({"key": "id"}, errors.InvalidInput, "list"),
    ({"partition_by": ["nope"]}, errors.UnknownColumn, "nope"),
    ({"ddl": "id bigint, `a``b` int"}, errors.InvalidName, "backtick"),
    ({"ddl": "id bigint, __index_x int"}, errors.InvalidName, "__index_"),
    ({"ddl": "id bigint, ID int"}, errors.InvalidSchema, "case"),
    ({"ddl": "id bigint,,"}, errors.InvalidSchema, "schema"),
    ({"ddl": "id map<string,int>, v int"}, errors.InvalidSchema, "'id'"),
    ({"ddl": "id bigint, t double", "partition_by": ["t"]}, errors.InvalidSchema, "'t'"),
    ({"ddl": "id bigint", "partition_by": ["id"]}, errors.InvalidSchema, "partition column"),
    ({"hash_fields": ["city"]}, errors.InvalidInput, "city"),
    ({"hash_function": "md5"}, errors.InvalidRule, "md5"),
    ({"merge_by": "ordering", "ordering_column": None}, errors.InvalidInput, "ordering_column"),
    ({"merge_by": "newest"}, errors.InvalidInput, "newest"),
    ({"write_mode": "fast"}, errors.InvalidInput, "fast"),
    ({"buckets": 0}, errors.InvalidRule, "0"),
    ({"buckets": -3}, errors.InvalidRule, "-3"),
    ({"buckets": None, "bucket_expressions": "a,2"}, errors.InvalidInput, "without buckets"),
    ({"bucket_expressions": "([a-z,4"}, errors.InvalidRule, "a-z"),
    ({"bucket_expressions": "dt=1,0"}, errors.InvalidRule, "0"),
    ({"bucket_rule": "guess"}, errors.InvalidRule, "guess"),
    ({"name": "../a\nb"}, errors.InvalidName, "location"),
]


@pytest.mark.parametrize(("options", "error", "said"), BAD_TABLES, ids=lambda value: str(value)[:40])
def test_given_a_bad_definition_then_the_argument_is_named_and_no_table_is_made(
    make: Make, tmp_path: Path, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said.replace("[", r"\[")):
        make(**options)
    assert not list(tmp_path.rglob("*.json"))


def test_given_bad_predicates_columns_and_paths_then_they_are_named(spark: Any, make: Make) -> None:
    table = make()
    table.upsert(frame_of(spark, [(1, "a", "x", 0)], DDL))

    for predicate, error in (("id = = 1", errors.InvalidPredicate), ("nope = 1", errors.UnknownColumn),
                             ("id", errors.InvalidPredicate), ("'x'", errors.InvalidPredicate),
                             ("  ", errors.InvalidPredicate)):  # fmt: skip
        for ask in (table.delete, table.read):
            with pytest.raises(error, match="Nothing was changed"):
                ask(predicate)
    with pytest.raises(errors.UnknownColumn, match="'nope'"):
        table.read(columns=["nope"])
    for path in ("a", "x=1", "dt=1/dt=2", "dt=1/x=2", ""):
        with pytest.raises(errors.InvalidInput, match="partition"):
            table.drop_partition(path)
    assert table.drop_partition("dt=not-there").version is None
    with pytest.raises(errors.InvalidInput, match="mode"):
        table.compact(mode="fast")  # type: ignore[arg-type]
    assert table.version == 1


def test_given_a_table_there_or_none_then_create_and_load_say_so(spark: Any, make: Make, tmp_path: Path) -> None:
    make()

    with pytest.raises(errors.TableExists):
        make()
    with pytest.raises(errors.TableNotFound, match="no table"):
        IndexedTable.load(spark, tmp_path / "elsewhere")


def test_given_a_data_file_that_is_gone_then_reading_names_it(spark: Any, make: Make) -> None:
    table = make()
    table.upsert(frame_of(spark, [(1, "a", "x", 0)], DDL))
    file = table._state.files(DATA_TREE)[0]
    (Path(table.uri) / file.path).unlink()

    with pytest.raises(errors.ObjectNotFound, match=Path(file.path).name):
        table.read()


@pytest.mark.parametrize("buckets", [2, None])
def test_given_a_null_in_the_key_then_it_is_named_in_tables_of_either_layout(
    spark: Any, make: Make, buckets: int | None
) -> None:
    table = make(buckets=buckets)
    table.upsert(frame_of(spark, [(1, "a", "x", 0)], DDL))

    for write in (table.upsert, table.insert_overwrite):
        with pytest.raises(errors.InvalidSchema, match="null in the column 'id'"):
            write(frame_of(spark, [(None, "a", "x", 0)], DDL))
    assert IndexedTable.load(spark, table.uri).read().collect() == [(1, "a", "x", 0)]


def test_given_a_name_that_differs_in_case_only_then_a_second_index_is_refused(make: Make) -> None:
    table = make()
    table.create_index("by_city", "secondary", ["city"], deferred=True)

    for more in ({}, {"if_not_exists": True}):
        with pytest.raises(errors.IndexExists, match="'by_city' already"):
            table.create_index("By_City", "secondary", ["city"], deferred=True, **more)
    assert table.create_index("by_city", "secondary", ["city"], if_not_exists=True).version is None


def test_given_a_secret_among_properties_options_or_in_an_address_then_no_log_keeps_it(
    spark: Any, make: Make, tmp_path: Path
) -> None:
    table = make(properties={"team.owner": "ada", "comment.password": "hashed"})
    folder = tmp_path / "rows"
    folder.mkdir()
    held = {"team.password": "hunter2", "x.url": "https://ada:hunter2@h/x", "comment": "password='hunter2'"}
    for name, value in held.items():
        for refused in (
            lambda given: make(properties=given),
            lambda given: IndexedTable.register(spark, folder, properties=given),
            lambda given: table.create_index("by_city", kind="secondary", columns=["city"], properties=given),
            lambda given: table.add_columns("fare double", properties=given),
        ):
            with pytest.raises(errors.InvalidInput, match=f"'{name}' looks like a secret") as raised:
                refused({name: value})
            assert "hunter2" not in str(raised.value) and "Nothing was changed" in str(raised.value)
    with pytest.raises(errors.InvalidInput, match="looks like a secret"):
        IndexedTable.register(spark, "s3://AKID:hunter2@lake/rows")
    table.create_index("by_city", kind="secondary", columns=["city"])
    with pytest.raises(errors.InvalidInput, match=r"'team\.token' looks like a secret"):
        table.alter_index("by_city", {"team.token": "hunter2"})


def test_given_reserved_names_then_no_new_column_has_one_and_tables_of_before_are_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id int, n int", ["id"], buckets=1)
    for name in ("__number", "_METADATA", "__LakeIndex_action"):
        with pytest.raises(errors.InvalidName, match="are kept for"):
            IndexedTable.create(spark, tmp_path / "u", f"id int, `{name}` int", ["id"])
        with pytest.raises(errors.InvalidName, match="are kept for"):
            table.add_columns(f"`{name}` int")
        with pytest.raises(errors.InvalidName, match="are kept for"):
            table.rename_column("n", name)
    assert table.version == 0 and not (tmp_path / "u").exists()

    write_deltalake(tmp_path / "raw", pa.table({"id": [1], "__number": [2], "_Metadata": ["a"]}))
    with pytest.raises(errors.InvalidName, match="'_Metadata' cannot be the name"):
        IndexedTable.register(spark, tmp_path / "raw", format="delta")

    with monkeypatch.context() as before:
        before.setattr("spark_apps.mergetree.schema.check_column_name", str)
        ddl = "id int, `__number` int, `__lakeindex_action` string"
        old = IndexedTable.create(
            spark, tmp_path / "old", ddl, ["id", "__number"], buckets=1, positions=True, publish=["delta"]
        )
    old.upsert(spark.sql("SELECT cast(id AS int) id, 1 `__number`, 'a' `__lakeindex_action` FROM range(3)"))
    old.upsert(spark.sql("SELECT 1 id, 1 `__number`, 'b' `__lakeindex_action`"))
    expected = [(0, 1, "a"), (1, 1, "b"), (2, 1, "a")]
    assert rows_of(IndexedTable.load(spark, old.uri)) == expected
    assert old.published.behind == 0, old.published
