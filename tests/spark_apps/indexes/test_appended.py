"""A refresh after rows were appended: it looks at them alone, and says what a refresh that looks at all would say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.indexes.keyed import record
from spark_apps.storage.errors import VerificationFailed
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "k string, p string, city string"
SOME = [(f"k{n:03d}", "ab"[n % 2], f"city{n % 7}") for n in range(40)]
MORE = [(f"m{n:03d}", "ab"[n % 2], f"city{n % 5}") for n in range(10)]
NEW_DAY = [(f"d{n:03d}", "c", f"city{n % 5}") for n in range(10)]


def build(spark: Any, folder: Path) -> None:
    table = IndexedTable.create(spark, folder, DDL, ["k"], partition_by=["p"], buckets=2)
    table.upsert(frame(spark, SOME, DDL))
    table.create_index("by_k", "record", deferred=True)
    table.create_index("by_city", "secondary", ["city"], deferred=True)
    for name in ("by_k", "by_city"):
        table.refresh_index(name, mode="full")


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


@contextmanager
def away(table: IndexedTable, index: str) -> Iterator[None]:
    """The entries that there are cannot be read meanwhile."""
    files = table.snapshot.state.files(table.indexes[index].definition.tree)
    paths = [Path(table.uri, file.path) for file in files]
    for path in paths:
        path.rename(path.with_suffix(".away"))
    try:
        yield
    finally:
        for path in paths:
            path.with_suffix(".away").rename(path)


def check(table: IndexedTable, index: str) -> None:
    report = table.verify(index)
    assert report.ok, report
    assert report.stale == report.uncovered == 0


@pytest.mark.parametrize("way", ["insert", "upsert"])
@pytest.mark.by_turn(24)
def test_entries_of_rows_that_came_in_a_new_partition_are_added_unseen(
    spark: Any, table: IndexedTable, way: str
) -> None:
    getattr(table, way)(frame(spark, NEW_DAY, DDL))

    with away(table, "by_city"):
        receipt = table.refresh_index("by_city")
    table.refresh_index("by_k")

    assert (receipt.metrics["entries"], receipt.metrics["tombstones"]) == (10, 0)
    check(table, "by_city")
    check(table, "by_k")
    assert table.read("k = 'd003'").collect() == [("d003", "c", "city3")]


def test_entries_of_inserted_rows_are_added_unseen(spark: Any, table: IndexedTable) -> None:
    table.insert(frame(spark, MORE, DDL))
    table.insert(frame(spark, NEW_DAY, DDL))

    with away(table, "by_city"):
        receipt = table.refresh_index("by_city")
    table.refresh_index("by_k")

    assert (receipt.metrics["entries"], receipt.metrics["tombstones"]) == (20, 0)
    check(table, "by_city")
    check(table, "by_k")


def test_a_driver_that_finds_no_key_of_new_entries_starts_no_job_for_it(
    spark: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_keys_in_several_partitions", None)
    table.insert(frame(spark, MORE, DDL))

    table.refresh_index("by_k")

    check(table, "by_k")


@pytest.mark.parametrize("change", ["upsert", "delete", "compact", "drop and insert again", "overwrite"])
@pytest.mark.by_turn(24)
def test_any_other_change_among_them_is_compared_as_before(spark: Any, table: IndexedTable, change: str) -> None:
    table.insert(frame(spark, MORE, DDL))
    if change == "upsert":
        table.upsert(frame(spark, [("k001", "b", "elsewhere"), ("k002", "a", "elsewhere")], DDL))
    elif change == "delete":
        table.delete("k < 'k010'")
    elif change == "compact":
        table.delete("k < 'k010'")
        table.compact()
    elif change == "overwrite":
        table.insert_overwrite(frame(spark, [("k777", "a", "one")], DDL))
    else:
        table.drop_partition("p=a")
        table.insert(frame(spark, [("k000", "a", "elsewhere"), ("k777", "a", "one")], DDL))

    for name in ("by_city", "by_k"):
        table.refresh_index(name)
        check(table, name)


@pytest.fixture(params=[None, "MAX_LOCAL_LOOKUP_ROWS", "MAX_NEW_KEYS"])
def searched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for the keys of new entries among those that are there: the driver, or Spark for it is too much."""
    if request.param is not None:
        monkeypatch.setattr(record, request.param, 0)


@pytest.mark.usefixtures("searched")
def test_an_inserted_key_that_stands_in_another_partition_is_refused(spark: Any, table: IndexedTable) -> None:
    table.insert(frame(spark, [("k001", "c", "x")], DDL))

    with pytest.raises(VerificationFailed, match=r"k='k001' in p=b|'p=b' and 'p=c'"):
        table.refresh_index("by_k")

    table.delete("k = 'k001' and p = 'b'")
    table.refresh_index("by_k")
    check(table, "by_k")
    assert table.read("k = 'k001'").collect() == [("k001", "c", "x")]


@pytest.mark.usefixtures("searched")
@pytest.mark.by_turn(24)
def test_a_key_in_two_new_partitions_is_refused(spark: Any, table: IndexedTable) -> None:
    table.insert(frame(spark, [("z", "c", "x"), ("z", "d", "x")], DDL))

    with pytest.raises(VerificationFailed, match="'p=c' and 'p=d'"):
        table.refresh_index("by_k")
    with pytest.raises(VerificationFailed, match="'p=c' and 'p=d'"):
        table.refresh_index("by_k", mode="full")
