"""A person's values in every place below a table that can hold one, before an erasure, and in none after its steps.

What is in a file is found here by other means than the report's: each is decoded, packed parts and all.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_apps import IncludedColumns, IndexedTable, open_table
from spark_apps.actions.erasure import PLACES, UNKNOWN_PLACE, place_of
from spark_apps.indexes.skipping import records
from spark_apps.storage.errors import InvalidPredicate
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile
from spark_apps.workload.query_log import QUERY_LOG
from tests.compatibility.lake import unpack
from tests.spark_apps.small_tables import rows_of

pytestmark = pytest.mark.by_turn(8)

PERSON = "Zanzibar-4711"
WHERE = f"rider = '{PERSON}'"
NOTE = "a note on zanzibar-4711 alone"
DDL = "id string, day string, rider string, note string, fare int"


def rows(spark: SparkSession, first: int, last: int, *, with_person: bool = False) -> Any:
    """Rides of others and, if asked for, one of the person, whose record key names them too."""
    rides = [(f"k{n}", f"d{n % 2}", f"r{n % 5}", f"note {n}", n) for n in range(first, last)]
    return spark.createDataFrame([*rides, (PERSON, "d0", PERSON, NOTE, first)] if with_person else rides, DDL)


def ridden(spark: SparkSession, folder: Path) -> IndexedTable:
    """A published table with a query log, kept deletes and every kind of index, in which the person rode."""
    table = IndexedTable.create(
        spark, folder, DDL, ["id"], partition_by=["day"], buckets=1, ordering_column="fare", merge_by="ordering",
        publish=["delta"], properties={"query_log": "on"},
    )  # fmt: skip
    table.create_index("by_id", "record")
    table.create_index("by_rider", "secondary", ["rider"])
    table.upsert(rows(spark, 0, 20, with_person=True))
    table.create_index("notes", "covering", ["lower(rider)"], included=IncludedColumns(include=["note"]))
    table.create_index("blocks", "compact", ["rider"])
    kept = ["minmax(rider)", "values(rider)", "bloom(rider)", "ngrams(note)"]
    table.create_index("skip", "skipping", kept, properties={"granularity": "row_group"})
    table.upsert(rows(spark, 10, 24, with_person=True))
    for name in ("notes", "blocks"):
        table.refresh_index(name)
    assert table.read(WHERE).count() == 1
    QUERY_LOG.flush()
    return table


def decoded(root: Path, path: Path) -> Iterator[bytes]:
    """Everything in a file: as it is, and unpacked by what it is."""
    data = path.read_bytes()
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    if path.suffix == ".parquet":
        opened = pq.ParquetFile(path)
        texts = [column.path for column in map(opened.schema.column, range(len(opened.schema)))
                 if column.physical_type == "BYTE_ARRAY"]  # fmt: skip
        for column in pq.ParquetFile(path, read_dictionary=texts).read().columns:
            yield str(column.to_pylist()).encode()
            for chunk in column.chunks:
                if pa.types.is_dictionary(chunk.type):
                    yield str(chunk.dictionary.to_pylist()).encode()
        yield str(opened.metadata.to_dict()).encode()
        yield str(opened.metadata.metadata).encode()
    elif path.suffix == ".skipping":
        key = path.relative_to(root).as_posix()
        opened = records.RecordFile(Store(root), DataFile("", "", "", key, "base", 0, path.stat().st_size, 0))
        yield str([opened.header.files, *map(opened.row_groups, range(len(opened.header.files)))]).encode()
        for packed in opened.header.row_groups:
            yield packed.records
    elif path.suffix in (".json", ".jsonl"):
        for line in data.splitlines():
            yield str(json.loads(line)).encode()


def held_in(root: Path) -> dict[str, int]:
    """Place -> how many of its files hold the person's name, in any case, or the start of it that bounds are cut to."""
    found: dict[str, int] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if any(re.search(rb"zanzibar-47", part, re.IGNORECASE) for part in decoded(root, path)):
            place = place_of(path.relative_to(root).as_posix()).name
            found[place] = found.get(place, 0) + 1
    return found


@pytest.mark.by_turn(4)
def test_given_a_person_in_every_place_when_erased_by_the_steps_of_the_list_then_no_file_holds_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ridden(spark, tmp_path / "t")
    before, others = held_in(tmp_path / "t"), rows_of(table, f"NOT {WHERE}")
    assert before.keys() == {"rows", "index files", "published log", "query log"}
    report = table.verify_erasure(WHERE, values=[NOTE])
    assert not report.ok and report.found == before and "published log" in str(report)

    table.delete(WHERE)
    table.compact(mode="full")
    for name in table.indexes:
        table.refresh_index(name)
        table.compact(name, mode="full")
    assert held_in(tmp_path / "t").keys() == {*before, "kept deletes"}
    cleaned = table.clean(retain_versions=1, retain_seconds=0, published_log=True, tombstones=True, query_log=True)

    assert held_in(tmp_path / "t") == {}
    report = open_table(tmp_path / "t").verify_erasure(WHERE, values=[NOTE])
    assert report.ok and not report.findings and sum(report.files.values()) > 20, report
    assert cleaned.metrics["query_log_files_deleted"] == 1
    assert rows_of(table) == others
    for name in table.indexes:
        assert table.verify(name).ok, name
    # What asked before has written its lines anew, without those that were erased.
    assert table.read("rider = 'r1'").count()
    QUERY_LOG.flush()
    assert held_in(tmp_path / "t") == {} and table.asked().lines == 2


@pytest.mark.by_turn(1)
def test_given_numbers_and_times_when_looked_for_then_in_their_columns_and_bounds_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = IndexedTable.create(
        spark, tmp_path / "t", "id bigint, fare int, tip decimal(9,2), day date", ["id"], buckets=1, publish=["delta"]
    )
    rides = "(4711, 17, 1.25, DATE'2024-02-29'), (17, 5, 2.50, DATE'2024-03-01')"
    table.upsert(spark.sql(f"SELECT * FROM VALUES {rides} AS t(id, fare, tip, day)"))
    table.create_index("tips", "covering", ["tip"], included=IncludedColumns(include=["fare"]))

    table.create_index("kept", "skipping", ["values(tip)", "minmax(day)"])

    def places(where: str) -> set[str]:
        return set(table.verify_erasure(where).found)

    assert places("id = 4711") == places("fare IN (17, 99)") == {"rows", "published log", "index files"}
    for where in ("tip = 1.25", "day = DATE'2024-02-29'"):
        assert "records" in {found.where for found in table.verify_erasure(where).findings}
    assert not places("fare = 4711") and not places("id IN (5, 18)") and not places("tip = 17")


@pytest.mark.parametrize(
    ("where", "values"), [(None, ()), ("fare > 3", ()), ("city LIKE 'r%'", ()), (None, [17]), ("city = ''", [])]
)
def test_given_no_value_to_look_for_then_it_is_refused_with_the_way_on(
    where: str | None, values: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPredicate, match=r"could be looked for|looked for in a column"):
        open_table(unpack(tmp_path) / "trips").verify_erasure(where, values=values)


def test_given_tables_of_every_kind_then_each_of_their_files_has_a_place_of_the_list(tmp_path: Path) -> None:
    lake = unpack(tmp_path)
    places = {place_of(path.relative_to(root).as_posix())
              for root in (log.parent for log in lake.rglob("_index"))
              for path in root.rglob("*") if path.is_file() and "_indexes" not in path.parts}  # fmt: skip

    assert len(places) > 6 and UNKNOWN_PLACE not in places
    assert all(place.removed_by or place.stays or "no value" in place.holds or "fixed" in place.holds
               for place in PLACES)  # fmt: skip


def test_given_a_damaged_file_then_it_is_named_and_the_table_is_not_called_clean(tmp_path: Path) -> None:
    root = unpack(tmp_path) / "trips"
    path = next(root.glob("data/**/*.parquet"))
    path.write_bytes(path.read_bytes()[:-40])

    report = open_table(root).verify_erasure(values=["nobody at all"])

    assert not report.ok and not report.found and list(report.unread) == [path.relative_to(root).as_posix()]
