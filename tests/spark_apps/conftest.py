"""Tables that many tests begin from: each is built once for the whole run, and copied as a folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable
from tests.spark_apps.small_tables import Prepared

Build = Callable[..., object]


@pytest.fixture(scope="session")
def templates() -> dict[tuple[Any, ...], Path]:
    """What was built so far: the function and its arguments -> the folder."""
    return {}


@pytest.fixture
def prepared(
    spark: SparkSession,
    templates: dict[tuple[Any, ...], Path],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Prepared:
    """Give a copy of the table that ``build(spark, folder, *arguments)`` makes, in this test's own folder.

    The first test that asks has it built. A table's log names its files by their place in the table, so a copy is a
    table like any other.
    """

    def table(build: Build, *arguments: Any, name: str = "t") -> IndexedTable:
        asked = (build.__module__, build.__qualname__, *arguments)
        if asked not in templates:
            folder = tmp_path_factory.mktemp("template") / "t"
            build(spark, folder, *arguments)
            templates[asked] = folder
        return IndexedTable.load(spark, shutil.copytree(templates[asked], tmp_path / name))

    return table
