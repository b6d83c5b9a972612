"""Rows for which an index has no value, and files that Spark cannot read: told as such, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.engine.spark_versions import release
from spark_apps.storage import errors
from tests.spark.local import session_with
from tests.spark_apps.frames import frame

pytestmark = pytest.mark.spark

DDL = "id bigint, s string, n int"
KINDS = ("skipping", "secondary", "compact", "covering")


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedTable]:
    """A table with a row that no expression of the tests below has a value for, in a session that fails at it."""
    made = IndexedTable.create(spark, tmp_path_factory.mktemp("rows") / "t", DDL, ["id"], buckets=1)
    made.upsert(frame(spark, [(1, "1", 2), (2, "no number", 2**31 - 1)], DDL))
    with session_with(spark, {"spark.sql.ansi.enabled": "true"}):
        yield made


@pytest.mark.parametrize(
    ("kind", "expression", "name"),
    [
        *((kind, "CAST(s AS int)", "CAST_INVALID_INPUT") for kind in KINDS),
        ("compact", "(n * n)", "ARITHMETIC_OVERFLOW"),
    ],
)
def test_given_a_row_without_a_value_when_an_index_is_built_then_it_is_refused_by_name_and_nothing_changes(
    table: IndexedTable, kind: str, expression: str, name: str
) -> None:
    columns = [f"minmax({expression})"] if kind == "skipping" else [expression]
    with pytest.raises(errors.InvalidInput, match=f"^The index 'i' over .*: {name}") as refused:
        table.create_index("i", kind, columns)
    assert "Nothing was changed" in str(refused.value) and "\n" not in str(refused.value)
    assert "no number" not in refused.value.message  # which goes into the log
    assert not table.indexes and table.version == 1


@pytest.fixture(scope="module")
def cut_off(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[IndexedTable, str]:
    """A source of two files, one of which was cut off after it was registered, and the name of that one."""
    folder = tmp_path_factory.mktemp("files") / "source"
    frame(spark, [(n, str(n), n) for n in range(200)], DDL).repartition(2).write.parquet(str(folder))
    table = IndexedTable.register(spark, folder)
    file = min(folder.glob("*.parquet"))
    (folder / f".{file.name}.crc").unlink()
    file.write_bytes(file.read_bytes()[:-300])
    return table, file.name


@pytest.mark.parametrize("kind", ["skipping", "compact", "covering"])
def test_given_a_cut_off_file_of_a_source_when_an_index_is_built_then_file_and_source_are_named(
    cut_off: tuple[IndexedTable, str], kind: str
) -> None:
    table, name = cut_off
    with pytest.raises(
        errors.StorageError, match=f"/source/{name} .*(of the source .*/source: it is damaged|cannot be read: )"
    ):
        table.create_index("i", kind, ["values(s)"] if kind == "skipping" else ["s"])
    assert not table.indexes


@pytest.mark.parametrize("kind", ["skipping", "covering"])
def test_given_a_record_that_failfast_refuses_when_an_index_is_built_then_its_file_and_source_are_named(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1, "s": "a"}\n')
    (folder / "b.json").write_text('{"id": 2, "s"\n')
    table = IndexedTable.register(spark, folder, format="json", schema=DDL, options={"mode": "FAILFAST"})
    with pytest.raises(errors.UnsupportedSource, match=r"b\.json of the source .*/source, .*FAILFAST"):
        table.create_index("i", kind, ["values(s)"] if kind == "skipping" else ["s"])
    assert not table.indexes


def test_given_texts_of_two_collations_in_an_expression_when_an_index_is_made_then_that_is_told(
    spark: Any, tmp_path: Path
) -> None:
    if release(spark) < (4, 0):
        pytest.skip("collations came with Spark 4.0")
    ddl = "id bigint, a string collate UTF8_LCASE, b string collate UNICODE"
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], buckets=1)
    with pytest.raises(errors.InvalidInput, match=r"cannot keep coalesce\(a, b\): .* different collations"):
        table.create_index("i", "secondary", ["coalesce(a, b)"])
