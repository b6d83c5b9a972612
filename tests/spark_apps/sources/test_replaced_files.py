"""Files of a source that their owner replaces between ``read`` and the moment when Spark asks for the rows: of each
file the answer is the old one's, the new one's or an error, never a mixture of what an index said of the old one and
what the new one holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from spark_apps.datasource import IndexedDataSource
from spark_apps.query import planning
from spark_apps.storage import errors

GROUP = 500


def rows(cities: str) -> pa.Table:
    """A row group (stripe) of each city: "abc" is one of a, one of b, one of c. Its first and last row are others, so
    that min and max tell nothing."""
    letters = [letter for city in cities for letter in ["A", *[city] * (GROUP - 2), "z"]]
    return pa.table({"id": pa.array(range(len(letters)), pa.int64()), "city": pa.array(letters, pa.string())})


def write(path: Path, cities: str) -> None:
    """A new file under a name that there may be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    if path.suffix == ".orc":
        pyarrow.orc.write_table(rows(cities), draft, stripe_size=1, batch_size=GROUP)
    else:
        pq.write_table(rows(cities), draft, row_group_size=GROUP)
    draft.replace(path)


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.by_turn(8)
def test_given_a_file_replaced_by_one_of_its_size_then_its_old_blocks_are_not_looked_for_in_the_new_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = tmp_path / "source" / f"0.{form}"
    write(path, "aaab")
    table = IndexedTable.register(spark, path.parent, format=form)
    table.create_index("com", "compact", ["city"])
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    size = path.stat().st_size
    frame = table.read("city = 'b'", ["id"])
    source = IndexedDataSource({"path": table.uri, "where": "city = 'b'"})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    assert table.explain("city = 'b'").blocks_read == 1
    assert frame.count() == GROUP - 2
    write(path, "baaa")
    assert path.stat().st_size == size, "or it would be noticed by that"
    with pytest.raises(Exception, match=r"0\.\w+ was rewritten") as raised:
        frame.collect()
    assert "oad the table again" in str(raised.value)
    with pytest.raises(errors.StorageError, match="was rewritten"):
        [batch for part in parts for batch in reader.read(part)]
    assert IndexedTable.load(spark, path.parent).read("city = 'b'", ["id"]).count() == GROUP - 2


@pytest.mark.spark
def test_given_files_replaced_after_read_then_each_answers_as_it_was_or_as_it_is(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for n, cities in enumerate(("ab", "cd", "ef")):
        write(source / f"{n}.parquet", cities)
    table = IndexedTable.register(spark, source)
    table.create_index("sec", "secondary", ["city"])
    frame = table.read("city IN ('a', 'b')", ["city"])
    write(source / "0.parquet", "bb")  # chosen: read as it is
    write(source / "1.parquet", "ab")  # passed over: answers as it was
    (source / "2.parquet").unlink()  # passed over
    assert {row.city: row["count"] for row in frame.groupBy("city").count().collect()} == {"b": 2 * (GROUP - 2)}
    later = IndexedTable.load(spark, source)
    assert {row.city for row in later.read("city IN ('a', 'b')", ["city"]).collect()} == {"a", "b"}
    frame = later.read("city = 'a'", ["city"])
    (source / "1.parquet").unlink()
    with pytest.raises(Exception, match=r"1\.parquet"):
        frame.collect()
