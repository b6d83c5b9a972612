"""Plain queries of Hudi tables by Hudi's own reader, whose scans read the slices that indexes leave.

Each query is run with indexes and without, and compared; how many slices a scan kept is as the rule says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import spark_apps
from spark_apps import IndexedTable
from tests.connectors.comparing import compared, compared_held, compared_joins, watched
from tests.connectors.hudi_tables import FILES, key, make, rows_of, write


@pytest.fixture(scope="module", params=["cow", "mor"])
def trips(request, hudi, tmp_path_factory) -> Iterator[str]:
    """A table of 8 slices by id, in a catalog and indexed, of which one was changed since."""
    path = str(tmp_path_factory.mktemp("hudi") / request.param)
    make(hudi, path, request.param)
    hudi.sql(f"CREATE TABLE hudi_trips USING hudi LOCATION '{path}'")
    table = IndexedTable.register(hudi, "hudi_trips", record_key=["id"])
    table.create_index("by_id", "record")
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("by_rider", "compact", ["rider"])
    table.create_index("by_n", "skipping", ["values(n)"])
    write(
        rows_of(hudi, 50, 51).selectExpr("id", "-1L AS key", "n + 500 AS n", "'new' AS rider", "p"),
        path,
        "upsert",
        request.param,
    )
    hudi.sql("REFRESH TABLE hudi_trips")
    yield path
    spark_apps.disable(hudi)
    hudi.sql("DROP TABLE hudi_trips")


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT * FROM hudi_trips WHERE id = 317", [2]),
        ("SELECT * FROM hudi_trips WHERE key = {317}", [2]),
        ("SELECT id, _hoodie_record_key FROM hudi_trips WHERE key IN ({317}, {717})", [3]),
        ("SELECT * FROM hudi_trips WHERE key = -1", [1]),
        ("SELECT count(*) FROM hudi_trips WHERE rider = 'r150'", [5]),
        ("SELECT count(*) FROM hudi_trips WHERE rider = 'new'", [1]),
        ("SELECT t.* FROM hudi_trips t JOIN (VALUES ({317}L), ({717}L)) k(key) ON t.key = k.key", [3]),
        ("SELECT a.id FROM hudi_trips a JOIN hudi_trips b ON a.n = b.n WHERE a.key = {317} AND b.key = {717}", [2, 2]),
        ("SELECT (SELECT max(n) FROM hudi_trips WHERE key = {317}) AS most", [2]),
    ],
)
def test_given_indexes_then_a_query_of_hudis_reads_the_slices_that_they_leave(hudi, trips, query, kept):
    for row in (317, 717):
        query = query.replace(f"{{{row}}}", str(key(row)))

    scans = compared(hudi, query, trips)

    assert [scan and scan[1] for scan in scans] == kept


def test_given_a_folder_then_it_is_pruned_as_its_table_is(hudi, trips):
    assert compared(hudi, lambda: hudi.read.format("hudi").load(trips).where(f"key = {key(317)}"), trips) == [
        (FILES, 2)
    ]


def test_given_one_query_of_two_scans_by_other_keys_then_no_exchange_is_shared(hudi, trips):
    scans = compared_joins(hudi, "hudi_trips", lambda row: key(row % 800), trips)

    assert [scan and scan[0] for scan in scans] == [FILES, FILES]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_given_a_covering_index_then_it_is_read_for_the_slices_that_are_as_it_knows_them(
    hudi, tmp_path, monkeypatch, kind
):
    path, name = str(tmp_path / "t"), f"hudi_held_{kind}"
    make(hudi, path, kind, files=4, hoodie__datasource__write__partitionpath__field="p")
    hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
    table = IndexedTable.register(hudi, path, "hudi", record_key=["id"])
    table.create_index("held", "covering", ["key"], included=["n", "p"])
    changed = rows_of(hudi, 50, 51).selectExpr("id", "key", "n + 500 AS n", "rider", "p")
    write(changed, path, "upsert", kind, hoodie__datasource__write__partitionpath__field="p")
    keys = ", ".join(str(key(row)) for row in (50, 317, 717))

    def asked(where: str):
        return lambda: hudi.read.format("hudi").load(path).where(f"key IN ({keys}) AND {where}").select("key", "n", "p")

    assert compared_held(hudi, asked("n >= 0"), path) == [(4, 1, 3)]
    assert compared_held(hudi, asked("p = 'p1'"), path) == [(2, 0, 2)]
    assert compared_held(hudi, asked("p = 'p0'"), path) == [(2, 1, 1)]
    table.refresh_index("held")
    assert compared_held(hudi, asked("n >= 0"), path) == [(4, 0, 4)]
    spark_apps.enable(hudi, sources=[path])
    seen = watched(monkeypatch)
    hudi.sql(f"UPDATE {name} SET n = 7 WHERE key = {key(317)}")
    spark_apps.disable(hudi)
    assert seen and not any(one.held for one in seen)
    hudi.sql(f"DROP TABLE {name}")
