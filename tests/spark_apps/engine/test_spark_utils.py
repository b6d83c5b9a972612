"""Files that never change are looked up once a session, whatever reads them again; others each time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.readwriter import DataFrameReader

from spark_apps import IndexedTable
from spark_apps.engine import spark_utils
from spark_apps.engine.spark_utils import estimated_bytes, is_built_in, load_files, size_of_plan
from spark_apps.query.predicates import check_predicate
from spark_apps.storage.errors import InvalidPredicate, UnknownColumn

pytestmark = pytest.mark.spark


def test_files_that_are_written_once_are_looked_up_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(10).selectExpr("id", "id % 3 AS k")
    rows.coalesce(1).write.parquet(str(tmp_path / "files"))
    paths = sorted(map(str, (tmp_path / "files").glob("*.parquet")))
    loads: list[Any] = []
    load = DataFrameReader.load

    def noted(reader: DataFrameReader, *arguments: Any) -> Any:
        loads.append(arguments)
        return load(reader, *arguments)

    monkeypatch.setattr(DataFrameReader, "load", noted)

    def read(written_once: bool, name: str = "a") -> Any:
        return load_files(spark, "parquet", rows.schema, {}, paths, {"name": name}, written_once=written_once)

    first, second = read(True), read(True)
    assert len(loads) == 1
    # Each of the ids 0 to 2 meets those of its class: the two have columns of their own.
    assert first.join(second, first.id == second.k).count() == 10
    assert sorted(second.selectExpr("id", "_metadata.file_name").collect()) == sorted(
        first.selectExpr("id", "_metadata.file_name").collect()
    )
    read(True, "b")
    read(False)
    read(False)
    assert len(loads) == 4

    monkeypatch.setattr(spark_utils, "_MAX_RELATIONS", 1)
    read(True, "c")
    read(True, "a")
    assert len(loads) == 6


def test_the_size_that_an_explanation_states_is_what_the_optimizer_takes_rows_for(
    spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    few = spark.range(10).selectExpr("id", "'Statistics(sizeInBytes=7.0 TiB)' s")
    for rows in (few, spark.range(10**7).where("id > 7"), few.crossJoin(spark.range(10**15)).crossJoin(few)):
        rows.explain(mode="cost")
        assert size_of_plan(capsys.readouterr().out) == pytest.approx(estimated_bytes(rows), rel=0.06)
    assert size_of_plan("== Physical Plan ==") is None


def test_given_a_question_whose_answer_may_be_an_error_then_pyspark_writes_none(spark: Any, tmp_path: Path) -> None:
    # Spark 3.5 has no such logger.
    of_errors = pytest.importorskip("pyspark.logger").PySparkLogger.getLogger("SQLQueryContextLogger")
    handler, written, before = logging.Handler(), [], of_errors.disabled
    handler.emit = written.append  # type: ignore[method-assign]
    snapshot = IndexedTable.create(spark, tmp_path / "t", "id bigint", ["id"], buckets=1).snapshot
    of_errors.addHandler(handler)
    try:
        of_errors.disabled = False
        assert not is_built_in(spark, "nobodys")
        with pytest.raises(UnknownColumn):
            check_predicate(snapshot, "id + nobodys > 1")
        with pytest.raises(InvalidPredicate):
            check_predicate(snapshot, "nobodys(id) > 1")
        assert not written
        with pytest.raises(AnalysisException):
            spark.sql("SELECT nobodys(id) FROM range(1)")
        assert len(written) == 1
    finally:
        of_errors.disabled = before
        of_errors.removeHandler(handler)
