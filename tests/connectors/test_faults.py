"""What goes wrong beside a table of Delta's: a driver that dies in a refresh, a table dropped in a query, a store of
indexes that is not to be read any more. Answers are the connector's own, and nothing is lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.storage.store import Store
from tests.connectors.comparing import compared
from tests.simulation.driver import CALLS
from tests.simulation.store import Crash
from tests.turns import commits

pytestmark = pytest.mark.usefixtures("delta")

ROWS, FILES = 400, 4
POINTS = 6
"""Calls of a refresh at which a driver dies, in one run; another commit has others."""


@pytest.fixture
def path(spark: Any, tmp_path: Path) -> str:
    path = str(tmp_path / "trips")
    rows = spark.range(ROWS).selectExpr("id", f"id * 7919 % {ROWS} AS key")
    rows.repartitionByRange(FILES, "id").write.format("delta").save(path)
    table = IndexedTable.register(spark, path, "delta")
    table.create_index("by_key", "secondary", ["key"])
    return path


def append(spark: Any, path: str, key: int) -> None:
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ({key}, {key})")


def test_given_a_driver_that_dies_in_a_refresh_then_answers_stay_right_and_the_next_refresh_follows(
    spark: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ROWS

    def die_at(call: int | None, *, after: bool) -> int:
        """Refresh, and die at a call to the store; return how many there were."""
        nonlocal key
        key += 1
        append(spark, path, key)
        made = 0

        def counting(verb: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **kwargs: Any) -> Any:
                nonlocal made
                made += 1
                here = made == call
                if here and not after:
                    raise Crash
                result = verb(*args, **kwargs)
                if here:
                    raise Crash
                return result

            return counted

        with monkeypatch.context() as patched:
            for verb in CALLS:
                patched.setattr(Store, verb, counting(getattr(Store, verb)))
            if call is None:
                IndexedTable.load(spark, path).refresh_index("by_key")
            else:
                with pytest.raises(Crash):
                    IndexedTable.load(spark, path).refresh_index("by_key")
        return made

    calls = die_at(None, after=False)
    assert calls > 2 * POINTS
    for point in range(POINTS):
        die_at(1 + (commits() + point * calls // POINTS) % calls, after=(commits() + point) % 2 == 0)
        [scanned] = compared(spark, f"SELECT * FROM delta.`{path}` WHERE key IN ({key}, 17)", path)
        assert scanned is not None and scanned[1] < scanned[0]
    table = IndexedTable.load(spark, path)
    table.refresh_index("by_key")
    report = table.verify("by_key")
    assert report.ok and report.rows == report.entries == ROWS + key - ROWS


def test_given_a_table_that_is_dropped_in_a_query_then_its_error_is_the_one_without_indexes(
    spark: Any, path: str
) -> None:
    kept = Path(path).parent / "kept"
    shutil.copytree(path, kept)

    def ended(*, indexed: bool) -> str:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(kept, path)
        if indexed:
            spark_apps.enable(spark, sources=[path])
        frame = spark.sql(f"SELECT * FROM delta.`{path}` WHERE key = 17")
        frame._jdf.queryExecution().executedPlan()
        if indexed:
            assert spark_apps.explain(frame).scans[0].scanned == (FILES, 1)
        shutil.rmtree(path)
        with pytest.raises(Exception) as raised:
            frame.collect()
        return " ".join(re.findall(r"\[[A-Z_.]+\]", str(raised.value)))

    spark_apps.disable(spark)
    without = ended(indexed=False)
    try:
        assert ended(indexed=True) == without != ""
    finally:
        spark_apps.disable(spark)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise StorageUnavailable("The store failed: the token has expired.")

    def begin() -> None:
        for verb in CALLS:
            monkeypatch.setattr(Store, verb, refuse)

    yield begin
    monkeypatch.undo()


def test_given_credentials_that_end_then_queries_are_the_connectors_own_until_they_are_given_again(
    spark: Any, path: str, refused: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"SELECT id FROM delta.`{path}` WHERE key = 17"
    spark_apps.disable(spark)
    expected = spark.sql(query).collect()
    spark_apps.enable(spark, sources=[path])
    try:
        assert spark_apps.explain(query).scans[0].scanned == (FILES, 1)
        append(spark, path, 1000)
        refused()
        assert spark.sql(query).collect() == expected
        assert spark.sql(query.replace("17", "1000")).count() == 1
        monkeypatch.undo()
        assert spark_apps.explain(query).scans[0].scanned == (FILES, 1)
        assert spark.sql(query).collect() == expected
    finally:
        spark_apps.disable(spark)
