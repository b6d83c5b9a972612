"""Files of a source that go and come back just as they were (moved away and back, rolled back, restored): no index
covers one whose entries it has dropped meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from tests.differential.session import small

pytestmark = pytest.mark.spark

FILES = {"p=a/one": range(10), "p=a/two": range(10, 20), "p=b/three": range(20, 30), "p=a/four": range(30, 40)}


def write(source: Path, name: str) -> None:
    path = source / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(FILES[name]), "v": [n % 7 for n in FILES[name]]}), path)


@contextmanager
def away(source: Path, name: str) -> Iterator[None]:
    """A file is gone for a while, and then there again as it was."""
    path, hidden = source / f"{name}.parquet", source / "_elsewhere"
    path.rename(hidden)
    yield
    hidden.rename(path)


@pytest.fixture(scope="module")
def interpreted(spark: Any) -> Iterator[None]:
    with small(spark, compiled=False):
        yield


def check(table: IndexedTable, *names: str) -> None:
    """Every index is right about every file that it covers, and a query by any of them finds what there is."""
    table = IndexedTable.load(table._handle.spark, table.uri)
    ids = sorted(row.id for row in table.read("v = 3", columns=["id"]).collect())
    assert ids == [n for n in range(40) if n % 7 == 3]
    for name in names:
        report = table.verify(name)
        assert report.ok, (name, report)


@pytest.mark.by_turn(4)
def test_given_a_file_that_was_gone_while_its_entries_were_folded_then_no_row_of_it_is_lost(
    spark: Any, interpreted: None, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for name in ("p=a/one", "p=a/two", "p=b/three"):
        write(source, name)
    table = IndexedTable.register(spark, source, format="parquet", index_root=str(tmp_path / "logs"))
    table.create_index("apart", "compact", ["v"])
    table.create_index("together", "compact", ["v"], partition_by=[])
    table.create_index("rows", "covering", ["v"], included=["id"], properties={"buckets": "1"})
    table.create_index("places", "secondary", ["v"])
    names = ("apart", "together", "rows", "places")
    write(source, "p=a/four")
    for name in names:
        table.refresh_index(name)

    with away(source, "p=a/one"):
        for name in names:
            assert table.compact(name, mode="full" if name == "places" else "quick").committed, name
    check(table, *names)

    with away(source, "p=a/one"):
        for name in ("apart", "together"):
            assert table.refresh_index(name, mode="full", partitions=["p=a"]).committed, name
    check(table, "apart", "together")

    with away(source, "p=a/one"):
        assert table.compact("apart", mode="full").committed
    assert table.refresh_index("apart").metrics["files"] == 1  # its entries are gone, and so is its coverage
    check(table, "apart")
