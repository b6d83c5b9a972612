"""Files of a source that are hard to tell apart: of one size, under folders that a URI escapes, or whose paths end
alike."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.mergetree.external_files import metadata_paths
from tests.spark_apps.sources.lake import people, rows_of, write

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

ODD = [
    "a b",
    "c%3Ad",
    "|",
    "<",
    ">",
    "{x}",
    "^",
    "e:f",
    "g%2Fh",
    "ü☃",
    "[1]",
    "i'j",
    "k+l,m;n",
    "#",
    "?",
    "\\",
    '"',
    "%",
    "\u00a0",
    "&=$",
]


def test_given_any_folder_then_its_path_is_known_as_spark_shows_it(spark: Any, tmp_path: Path) -> None:
    for name in ODD:
        write(tmp_path / f"x {name}" / "p.parquet", people(0, 1))
    rows = spark.read.option("recursiveFileLookup", "true").parquet(f"file://{tmp_path}")
    seen = {row[0] for row in rows.select("_metadata.file_path").collect()}
    known = {form for name in ODD for form in metadata_paths(f"file://{tmp_path}/x {name}/p.parquet")}
    assert seen <= known and len(seen) == len(ODD)


@pytest.mark.parametrize("above", ["with space", "a%3Ab"])
def test_given_files_of_one_size_then_each_is_told_from_the_others_whatever_its_path(
    spark: Any, tmp_path: Path, above: str
) -> None:
    source = tmp_path / above / "people"
    folders = [f"p={name}" for name in ("a b", "c%253Ad", "%7C", "<", "{x}", "^", "e%3Af", "ü☃")]
    for n, folder in enumerate(folders):
        write(source / folder / "y=2022" / "m=1" / "d=1" / "part-0.parquet", people(n * 10, 10, f"town {n}"))
    sizes = {file.stat().st_size for file in source.rglob("*.parquet")}
    assert len(sizes) < len(folders), "some are of one size"
    table = IndexedTable.register(spark, source)
    expected = rows_of(table.read(columns=["id", "city", "note"]))
    assert sum(expected.values()) == 80
    table.create_index("blocks", "compact", ["city"])
    table.create_index("cov", "covering", ["id"], included=IncludedColumns(include=["city"]))
    table.create_index("keys", "secondary", ["city"])
    for name in table.indexes:
        assert table.verify(name).ok, name
    for n in random.Random(above).sample(range(8), 3):
        where = f"city = 'town {n}'"
        assert [row.id for row in table.read(where, ["id"]).orderBy("id").collect()] == list(range(n * 10, n * 10 + 10))
        assert table.explain(where).files_read <= 1
