"""Tables read in this process, with no Spark: against the rows that are written down beside the packed tables."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_apps
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows
from spark_apps.storage.errors import (
    EnvironmentMismatch,
    InvalidInput,
    InvalidPredicate,
    InvalidSchema,
    UnknownColumn,
)
from spark_apps.storage.store import RangedFile, Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import (
    AddFile,
    Field,
    HashingConfig,
    PutHashingConfig,
    PutPartition,
    TableDefinition,
)
from tests.compatibility.lake import EXPECTED, unpack
from tests.compatibility.values import plain
from tests.simulation.s3 import BUCKET, s3_server

pytestmark = pytest.mark.by_turn(8)

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


@pytest.mark.by_turn(1)
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
        table = spark_apps.open_table(lake / name, time_zone="UTC")
        for other in ("+04:00", "America/New_York"):
            assert table.read(query["where"]) != spark_apps.open_table(lake / name, time_zone=other).read(
                query["where"]
            )
    assert rows(table.read(query["where"])) == in_order(query["rows"])
    assert table.explain(query["where"]).version == table.version


@pytest.mark.parametrize("name", EXPECTED["sources"])
def test_a_source_shows_its_rows_or_says_why_not(lake: Path, name: str) -> None:
    expected = EXPECTED["sources"][name]
    table = spark_apps.open_table(lake / "raw" / name)
    assert table.indexes and table.schema.names
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
    for zone in ("Mars/Olympus", "CET", "+25:00", 2):
        with pytest.raises(InvalidInput, match=r"time zone .* is not known"):
            spark_apps.open_table(lake / "trips", time_zone=zone)
    with pytest.raises(InvalidInput, match="source_version"):
        spark_apps.open_table(lake / "trips", version=1, source_version=1)


# --- other libraries in this process ----------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, frozenset[str]]]:
    """The data files that were opened, each with the columns that were read of it."""
    files: list[tuple[str, frozenset[str]]] = []
    read = ArrowRows._tables

    def counted(self: ArrowRows, source_file: ArrowFile, names: Any, *rest: Any) -> Any:
        files.append((source_file.address, frozenset(names)))
        return read(self, source_file, names, *rest)

    monkeypatch.setattr(ArrowRows, "_tables", counted)
    return files


@pytest.mark.parametrize(
    ("sql", "where", "columns"),
    [
        ("SELECT id, city FROM trips", "id = 3", ["id", "city"]),
        ("SELECT id FROM trips", "city IN ('ams', 'osl') AND fare > 5", ["id"]),
        ("SELECT id FROM trips", "dt = '2024-11-11' AND tip IS NULL", ["id"]),
        ("SELECT id FROM trips", "NOT (id = 3 OR city <> 'osl')", ["id"]),
    ],
)
def test_given_sql_of_duckdb_then_filters_and_columns_are_pushed_down_to_what_read_reads(
    lake: Path, opened: list[tuple[str, frozenset[str]]], sql: str, where: str, columns: list[str]
) -> None:
    table, connection = spark_apps.open_table(lake / "trips"), duckdb.connect()
    table.duckdb(connection, "trips")

    answer = connection.execute(f"{sql} WHERE {where}").fetchall()
    by_sql, opened[:] = {path for path, _ in opened}, []
    expected = table.read(where, columns)

    assert sorted(answer) == sorted(tuple(row.values()) for row in expected.to_pylist()) and answer
    assert by_sql == {path for path, _ in opened}
    assert len(by_sql) < len(table.snapshot.state.files("data"))


def test_given_sql_that_is_not_pushed_down_then_its_answers_are_those_of_all_rows(lake: Path) -> None:
    table, connection = spark_apps.open_table(lake / "trips"), duckdb.connect()
    table.duckdb(connection, "trips")
    connection.register("plain", table.read())
    for query in (
        "SELECT count(*) FROM {}", "SELECT city, sum(fare) FROM {} GROUP BY city ORDER BY city",
        "SELECT max(id) FROM {} WHERE city LIKE 'o%' AND tip > 1.5",
        "SELECT a.id FROM {0} a JOIN {0} b ON a.id = b.fare ORDER BY 1", "SELECT * FROM {} WHERE id + 1 = 4",
    ):  # fmt: skip
        assert (
            connection.execute(query.format("trips")).fetchall() == connection.execute(query.format("plain")).fetchall()
        )
    plan = connection.execute("EXPLAIN SELECT id FROM trips WHERE id = 3").fetchall()[0][1]
    assert "Filters" in plan and "id = 3" in plan.replace('"', "")


def test_frames_of_pandas_are_backed_by_arrow_and_a_library_that_is_missing_is_named(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spark_apps.open_table(lake / "trips")
    frame = table.to_pandas("id = 3", ["id", "tip"])
    assert frame.to_dict("records") == [{"id": 3, "tip": 1.5}] and "pyarrow" in str(frame.dtypes["id"])
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(EnvironmentMismatch, match="to_polars needs polars"):
        table.to_polars()


# --- on an object store -----------------------------------------------------------------------------------------------


@pytest.mark.servers
def test_given_a_table_on_s3_then_a_lookup_opens_the_files_that_can_hold_the_key_and_no_others(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, int]] = []
    whole = Store.get_range

    def counted(store: Store, key: str, start: int, end: int) -> bytes:
        requests.append((key, end - start))
        return whole(store, key, start, end)

    with s3_server() as options:
        uri = f"s3://{BUCKET}/lake/trips"
        store = Store(uri, options)
        for path in sorted((lake / "trips").rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                store.put(path.relative_to(lake / "trips").as_posix(), path.read_bytes())
        table = spark_apps.open_table(uri, options=options)
        monkeypatch.setattr(Store, "get_range", counted)

        entries = table.lookup([3])

        held = {file.path.rpartition("/")[2]: file.bytes for file in table.snapshot.state.files("data")}
        asked = [(name, size) for key, size in requests if (name := key.rpartition("/")[2]) in held]
        assert rows(entries) == [row for row in TABLES["trips"]["rows"] if row["id"] == 3]
        # Small files are fetched whole, by one request each: of one bucket of a partition, and of the index's shard.
        assert 0 < len(asked) == len(set(asked)) < len(held) / 2 and len(requests) < 10
        assert all(size == held[name] for name, size in asked)
        assert rows(table.read()) == in_order(TABLES["trips"]["rows"])


ROWS = 200_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one file, larger than what is fetched at once."""
    folder = tmp_path_factory.mktemp("large")
    path = folder / "t/data/first/rows.parquet"
    path.parent.mkdir(parents=True)
    held = pa.table(
        {"id": [f"k{n:09}" for n in range(ROWS)], "note": [hashlib.sha256(b"%d" % n).hexdigest() for n in range(ROWS)]}
    )
    options: dict[str, Any] = {"write_page_index": True, "write_page_checksum": True, "use_dictionary": False}
    pq.write_table(held, path, data_page_size=64 * 1024, **options)  # unique values have no dictionary
    definition = TableDefinition("t", (Field("id", "string", False), Field("note", "string")), ("id",), ())
    actions = (
        PutHashingConfig(HashingConfig("", 1)),
        PutPartition("", 1, ()),
        AddFile("data", "", "0", "data/first/rows.parquet", "base", ROWS, path.stat().st_size, 0, lineage=7),
    )
    create_table(Store(folder / "t"), definition, actions)
    return folder / "t"


def test_given_a_large_file_then_a_lookup_fetches_its_footer_and_some_pages(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    whole = RangedFile._get

    def counted(file: RangedFile, start: int, end: int) -> bytes:
        fetched.append(end - start)
        return whole(file, start, end)

    monkeypatch.setattr(RangedFile, "_get", counted)
    table = spark_apps.open_table(large)
    size = (large / "data/first/rows.parquet").stat().st_size

    for key in ("k000012345", "k000199999"):
        assert table.lookup([key])["note"].to_pylist() == [hashlib.sha256(b"%d" % int(key[1:])).hexdigest()]
    first, fetched[:] = list(fetched), []
    assert table.read("id > 'k000150000' AND id <= 'k000150010'").num_rows == 10

    assert size > 5_000_000 and 0 < len(first) <= 9 and sum(first) < size / 5
    assert 0 < len(fetched) <= 3 and sum(fetched) < size / 10  # the footer is known
    assert table.lookup(["k1", "none"]).num_rows == 0
