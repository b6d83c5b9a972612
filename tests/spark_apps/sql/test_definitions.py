"""Definitions in trouble: a rebuild that fails, code that is not here, storage outside of the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_apps import IndexedTable
from spark_apps.indexes import registry
from spark_apps.indexes.handler import IndexContext, IndexWork
from spark_apps.indexes.keyed.secondary import SecondaryHandler
from spark_apps.sql import Results, run
from spark_apps.storage.errors import InvalidInput, LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import IndexDefinition, PutIndex, Write, definition_scope
from spark_apps.timeline.transactions import begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ELSEWHERE = "tests.spark_apps.sql.test_definitions.Elsewhere"


class Elsewhere(SecondaryHandler):
    """A kind that would keep its entries in a database somewhere, at the location of its definition."""

    kind = ELSEWHERE
    own_storage = False

    def drop(self, context: IndexContext) -> IndexWork:
        return IndexWork()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    run(spark, "CREATE TABLE t (id int, city string) USING indexed TBLPROPERTIES (primaryKey = 'id', buckets = 1)",
        warehouse=str(tmp_path))  # fmt: skip
    return tmp_path


def ask(spark: SparkSession, lake: Path, text: str) -> Results:
    return run(spark, text, warehouse=str(lake))


def test_a_rebuild_that_fails_leaves_the_index_as_it_was(spark: SparkSession, lake: Path) -> None:
    table = IndexedTable.load(spark, lake / "t")
    table.upsert(spark.sql("SELECT CAST(id AS int) id, 'c' city FROM range(3)"))
    ask(spark, lake, "CREATE INDEX c ON t (city)")
    before = ask(spark, lake, "SHOW INDEXES ON t").rows
    [file] = (lake / "t" / "data").rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(LakeIndexError):
        ask(spark, lake, "ALTER INDEX c ON t REBUILD")

    assert ask(spark, lake, "SHOW INDEXES ON t").rows == before
    file.write_bytes(whole)
    assert IndexedTable.load(spark, lake / "t").verify("c").ok


def test_an_index_whose_code_is_not_here_is_shown_and_stops_nobody(spark: SparkSession, lake: Path) -> None:
    timeline = Timeline.load(Store(lake / "t"))
    for name in ("strange", "stranger"):
        begin(timeline, operation="create_index").commit(
            [PutIndex(IndexDefinition(name, "com.acme.Bloom", ("city",), name))],
            writes=[Write(definition_scope(name), "replace")],
        )

    assert [row[2] for row in ask(spark, lake, "SHOW INDEXES ON t").rows] == ["com.acme.Bloom"] * 2
    with pytest.raises(InvalidInput, match=r"com\.acme\.Bloom"):
        ask(spark, lake, "ALTER INDEX strange ON t REBUILD")

    ask(spark, lake, "DROP INDEX strange; DROP TABLE t")
    assert Timeline(Store(lake / "t")).refresh().dropped


def test_only_what_is_stored_elsewhere_has_a_location_and_no_index_table(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registry.ALLOWED, ELSEWHERE)
    make = f"CREATE INDEX far ON t (city) AS '{ELSEWHERE}' "

    with pytest.raises(InvalidInput, match="cannot be in its commits"):
        ask(spark, lake, make)
    with pytest.raises(InvalidInput, match="no index table"):
        ask(spark, lake, make + "WITH DEFERRED REBUILD IN TABLE far_away")
    ask(spark, lake, make + "WITH DEFERRED REBUILD LOCATION 'db://entries'")

    description = dict(ask(spark, lake, "DESCRIBE INDEX far ON t").rows)
    assert (description["location"], description["index_table"]) == ("db://entries", None)
