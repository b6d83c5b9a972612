"""Tables are found by name and pattern; what cannot be reached is a reason and holds nothing up."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from spark_apps.maintenance.policies import read_config
from spark_apps.maintenance.survey import find_tables, survey_tables
from spark_apps.timeline.locations import Warehouse
from tests.spark_apps.maintenance.lake import CONN, Table, survey
from tests.spark_apps.timeline.test_catalog_names import registered, written


def test_given_patterns_and_names_when_found_then_the_first_entry_that_fits_counts(tmp_path: Path) -> None:
    for name in ("sales.a", "sales.b", "web.c"):
        Table(tmp_path, name)
    seen, missed = survey(tmp_path, [{"table": "sales.a", "weight": 5}, "sales.*", "web.?", "none.*", "web.gone"])

    assert {(one.table.name, one.table.entry.weight) for one in seen} == {("sales.a", 5), ("sales.b", 1), ("web.c", 1)}
    assert {(one.name, one.skipped.code) for one in missed} == {
        ("none.*", "no_such_table"),
        ("web.gone", "no_such_table"),
    }
    assert not (tmp_path / "web" / "gone").exists()


def test_given_a_pattern_of_catalog_names_when_found_then_it_is_the_registered_tables_of_that_catalog(
    tmp_path: Path,
) -> None:
    named = [f"prod.db.t{number}" for number in range(40)]
    logs = {name: registered(tmp_path, name) for name in (*named, "prod.other.x", "lite.db.t0", "db.mine")}
    Table(tmp_path, "prod.db.folder")
    written(tmp_path, "prod.db.forged", log=str(tmp_path / "prod/db/folder"))

    seen, missed = survey(tmp_path, ["prod.db.t*"])
    assert {one.table.name: one.table.location for one in seen} == {name: logs[name] for name in named}
    seen, missed = survey(tmp_path, ["prod.db.*"])
    assert {one.table.name for one in seen} == {*named, "prod.db.folder"}
    assert [(one.name, one.skipped.code) for one in missed] == [("prod.db.forged", "unreachable")]
    assert [one.table.location for one in survey(tmp_path, ["*.other.*"])[0]] == [logs["prod.other.x"]]
    for pattern in ("db.m*", "spark_catalog.db.*"):
        assert [one.table.location for one in survey(tmp_path, [pattern])[0]] == [logs["db.mine"]]
    assert survey(tmp_path, ["prod.d?.t1", "prod.db.t1*"])[0][0].table.entry.table == "prod.d?.t1"


def test_given_a_damaged_log_and_a_location_nobody_serves_when_looked_at_then_both_are_reasons(tmp_path: Path) -> None:
    Table(tmp_path, "db.good")
    Table(tmp_path, "db.bad")
    (tmp_path / "db" / "bad" / "_index" / "timeline" / f"{0:020d}.json").write_text("{")
    seen, missed = survey(tmp_path, ["db.*", "nosuch://bucket/table"])

    assert [one.table.name for one in seen] == ["db.good"]
    skipped = {one.name: one.skipped for one in missed}
    assert skipped["db.bad"].code == skipped["nosuch://bucket/table"].code == "unreachable"
    assert "cannot be read" in skipped["db.bad"].reason


@pytest.mark.timeout(60)
def test_given_a_store_that_never_answers_when_looked_at_then_the_others_are_there_in_time(tmp_path: Path) -> None:
    Table(tmp_path, "db.good")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        options = {
            "endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "allow_http": "true", "region": "x",
            "access_key_id": "x", "secret_access_key": "x",
        }  # fmt: skip
        warehouses = {CONN: Warehouse(str(tmp_path)), "far": Warehouse("s3://bucket/w", options)}
        given = read_config(
            [{"table": "a.b", "table_conn_id": "far"}, "db.good", {"table": "x.*", "table_conn_id": "far"}]
        )
        began = time.monotonic()
        places, missed = find_tables(given.tables, warehouses, CONN, patience=1)
        seen, unreachable = survey_tables(places, patience=1, at_once=1)

    assert time.monotonic() - began < 10
    assert [one.table.name for one in seen] == ["db.good"]
    assert {(one.name, one.skipped.code) for one in (*missed, *unreachable)} == {
        ("x.*", "unreachable"), ("a.b", "unreachable"),
    }  # fmt: skip


@pytest.mark.by_turn(8)
def test_given_200_tables_when_looked_at_then_it_takes_seconds(tmp_path: Path) -> None:
    for number in range(200):
        Table(tmp_path, f"db.t{number}")
    began = time.monotonic()
    seen, missed = survey(tmp_path, ["db.*"])
    assert len(seen) == 200 and not missed
    assert time.monotonic() - began < 20
