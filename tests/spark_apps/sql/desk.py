"""A warehouse and what statements do to it, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_apps import IndexedTable
from spark_apps.sql import Results, run
from spark_apps.storage.errors import LakeIndexError
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Desk:
    """A warehouse and what is asked of it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root

    def __call__(self, text: str, **fields: Any) -> Results:
        return run(self.spark, text, warehouse=str(self.root), **fields)

    def table(self, name: str = "db/rides") -> IndexedTable:
        return IndexedTable.load(self.spark, self.root / name)

    def field(self, result: Results, row: int, name: str) -> Any:
        return result.rows[row][result.columns.index(name)]


def refused(desk: Desk, kind: type[LakeIndexError], text: str, **fields: Any) -> LakeIndexError:
    before = versions(desk)
    with pytest.raises(kind) as caught:
        desk(text, **fields)
    assert versions(desk) == before
    return caught.value


def versions(desk: Desk) -> dict[str, int]:
    return {table.name: Timeline(table.log).refresh().version for table in Warehouse(str(desk.root)).tables()}
