"""Tables read in this process, with no Spark: against the rows that are written down beside the packed tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_apps
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, InvalidSchema, UnknownColumn, UnsupportedSource
from tests.compatibility.lake import EXPECTED, unpack
from tests.compatibility.values import plain

TABLES: dict[str, Any] = EXPECTED["tables"]
WITHOUT_SPARK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is asked for")

sys.meta_path.insert(0, Blocked())
import spark_apps

table = spark_apps.open_table(sys.argv[1])
table.read(), table.read("city = 'ams'"), table.lookup([1]), table.explain("id = 3"), table.history(), table.schema
table.indexes, table.partitions, table.index_status("by_id"), str(table)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j", "airflow"}))
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("lake"))


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


def rows(table: pa.Table) -> list[Any]:
    return in_order(plain(row) for row in table.to_pylist())


def test_given_no_pyspark_then_a_table_is_opened_read_and_explained(lake: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, str(lake / "trips")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("name", TABLES)
def test_a_keyed_table_shows_its_rows_versions_and_indexes(lake: Path, name: str) -> None:
    expected = TABLES[name]
    table = spark_apps.open_table(lake / name)
    assert table.version == expected["version"]
    assert [entry.operation for entry in table.history()] == expected["operations"]
    assert {index: info.kind for index, info in table.indexes.items()} == expected["indexes"]
    assert {path: info.buckets for path, info in table.partitions.items()} == expected["buckets"]
    assert rows(table.read()) == in_order(expected["rows"])
    oldest = min(expected["versions"], key=int)
    before = spark_apps.open_table(lake / name, version=int(oldest))
    assert rows(before.read()) == in_order(expected["versions"][oldest])


@pytest.mark.parametrize(
    ("name", "query"), [(name, query) for name, expected in TABLES.items() for query in expected["queries"]]
)
def test_a_predicate_gives_the_rows_written_down_or_is_refused_by_name(
    lake: Path, name: str, query: dict[str, Any]
) -> None:
    table = spark_apps.open_table(lake / name)
    if "TIMESTAMP" in query["where"]:
        with pytest.raises(InvalidPredicate, match=r"only Spark can tell: .* is the session's to say"):
            table.read(query["where"])
        return
    assert rows(table.read(query["where"])) == in_order(query["rows"])
    assert table.explain(query["where"]).version == table.version


@pytest.mark.parametrize("name", EXPECTED["sources"])
def test_a_source_shows_its_rows_or_says_why_not(lake: Path, name: str) -> None:
    expected = EXPECTED["sources"][name]
    table = spark_apps.open_table(lake / "raw" / name)
    assert table.indexes and table.schema.names
    if name == "riders":
        with pytest.raises(UnsupportedSource, match="its files are csv"):
            table.read()
        return
    assert rows(table.read()) == in_order(expected["rows"])
    for query in expected["queries"]:
        assert rows(table.read(query["where"])) == in_order(query["rows"]), query["where"]


def test_columns_come_in_the_order_asked_for_and_batches_with_the_tables_schema(lake: Path) -> None:
    table = spark_apps.open_table(lake / "trips")
    some = table.read("id = 3", ["TS", "id"])
    assert some.to_pylist() == [{"ts": 500, "id": 3}]
    reader = table.batches()
    assert reader.schema == table.schema == table.read("id = -1").schema
    assert sum(batch.num_rows for batch in reader) == len(TABLES["trips"]["rows"])


def test_a_lookup_gives_the_rows_of_keys_that_are_there(lake: Path) -> None:
    table, expected = spark_apps.open_table(lake / "trips"), {row["id"]: row for row in TABLES["trips"]["rows"]}
    ids = [3, 5, 3, 999, -1]
    assert rows(table.lookup(ids)) == in_order([expected[3], expected[5]])
    assert rows(table.lookup(pa.array(ids))) == rows(table.lookup(pa.table({"id": ids})))
    assert table.lookup([8], columns=["city"]).to_pylist() == [{"city": expected[8]["city"]}]
    assert table.lookup([]).num_rows == table.lookup([999]).num_rows == 0
    assert rows(table.lookup(range(-150_000, 150_000))) == in_order(expected.values())


def test_a_lookup_by_a_key_of_several_columns_takes_tuples(lake: Path) -> None:
    table = spark_apps.open_table(lake / "whole")
    key = table.definition.record_key
    everything = table.read(columns=key).to_pylist()
    keys = [tuple(row[name] for name in key) for row in everything]
    assert len(key) > 1
    assert in_order(table.lookup(keys[:3], columns=key).to_pylist()) == in_order(everything[:3])
    assert in_order(table.lookup(keys * 400, columns=key).to_pylist()) == in_order(everything)


def test_what_cannot_be_asked_is_said_in_the_packages_words(lake: Path) -> None:
    table = spark_apps.open_table(lake / "trips")
    with pytest.raises(InvalidPredicate, match="of which only Spark can tell: rand"):
        table.read("rand() < 0.5")
    with pytest.raises(UnknownColumn):
        table.read("nothing = 1")
    with pytest.raises(UnknownColumn):
        table.read(columns=["nothing"])
    with pytest.raises(InvalidSchema):
        table.lookup(["three"])
    with pytest.raises(InvalidInput, match="source_version"):
        spark_apps.open_table(lake / "trips", version=1, source_version=1)
