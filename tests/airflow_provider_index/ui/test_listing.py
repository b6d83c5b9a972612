"""The tables that the page lists, where a part of the warehouse may not be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_index.ui.tables import Lake, Readers
from spark_apps.storage.errors import InvalidName, SourceNotAllowed
from tests.spark_apps.cli.test_log_commands import closed
from tests.spark_apps.maintenance.lake import Table
from tests.spark_apps.timeline.test_catalog_names import registered, written


def test_given_a_folder_that_may_not_be_read_then_it_is_a_line_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.good", "shut.inner", "z"):
        Table(tmp_path, name)
    closed(monkeypatch, f"{tmp_path}/shut")

    tables = Lake("conn", str(tmp_path)).tables(Readers(2), 5.0)
    assert sorted(one.name for one in tables) == ["db.good", "shut", "z"]


def test_given_tables_of_catalogs_then_they_are_listed_and_found_by_name_and_by_the_place_of_their_logs(
    tmp_path: Path,
) -> None:
    table_id = "0f5c1111-2222-3333-4444-555566667777"
    log = registered(tmp_path, "prod.db.trips", table_id)
    odd = registered(tmp_path, "prod.`my db`.trips", table_id)
    written(tmp_path, "prod.db.lies", log="/etc")
    Table(tmp_path, "db.mine")
    Table(tmp_path, "prod.db.both")
    registered(tmp_path, "prod.db.both", table_id)
    lake = Lake("conn", str(tmp_path))

    listed = {one.name: one.location for one in lake.tables(Readers(2), 5.0) if one.name != "prod.db.both"}
    assert listed == {
        "prod.db.trips": log, "prod.`my db`.trips": odd, "db.mine": f"{tmp_path}/db/mine",
        "prod.db.lies": f"{tmp_path}/_indexes/.names/prod.db.lies",
    }  # fmt: skip
    for given in ("prod.db.trips", "catalog:prod.db.trips", log):
        found, store = lake.find(given)
        assert (found.name, found.location, store.uri) == ("prod.db.trips", log, log)
    assert lake.find("prod.`my db`.trips")[1].uri == odd
    with pytest.raises(InvalidName, match=r"of a catalog.*below the warehouse"):
        lake.find("prod.db.both")
    assert lake.find("catalog:prod.db.both")[1].uri.startswith(f"{tmp_path}/_indexes/prod/db/both-")
    with pytest.raises(SourceNotAllowed):
        lake.find("prod.db.lies")
    with pytest.raises(InvalidName):
        lake.find(f"{tmp_path}/_indexes/.names/prod.db.lies")
