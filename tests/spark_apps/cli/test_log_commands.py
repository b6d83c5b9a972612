"""What a log tells: tables, commits, indexes, windows, attempts, what is due; compared with what the writer noted."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from spark_apps.cli.app import app
from spark_apps.maintenance.policies import read_config
from spark_apps.maintenance.survey import find_tables
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline import windows
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import begin
from tests.compatibility.lake import EXPECTED, unpack
from tests.spark_apps.cli.conftest import Ask
from tests.spark_apps.maintenance.lake import Table
from tests.spark_apps.timeline.plain_rows import PlainRows
from tests.spark_apps.timeline.test_catalog_names import registered, written

TABLES = ["groups", "marked", "raw.riders", "raw.rides", "trips", "whole"]


def test_given_a_warehouse_then_every_table_is_listed_with_its_version_and_indexes(ask: Ask) -> None:
    told = {one["name"]: one for one in ask("tables", "--json").json}

    assert sorted(told) == TABLES
    assert told["trips"]["version"] == EXPECTED["tables"]["trips"]["version"]
    assert told["trips"]["rows_at_least"] <= len(EXPECTED["tables"]["trips"]["rows"]) <= told["trips"]["rows_at_most"]
    assert told["raw.rides"]["rows_of"] == "parquet" and "by_rider" in told["raw.rides"]["indexes"]
    assert [one["state"] for one in ask("tables", "dropped", "--all", "--json").json] == ["dropped"]
    assert [one["name"] for one in ask("tables", "raw.*", "--names", "--json").json] == TABLES[2:4]


def test_given_a_table_that_cannot_be_read_then_it_is_listed_with_the_reason(ask: Ask, tmp_path: Path) -> None:
    Table(tmp_path, "db.good")
    Table(tmp_path, "db.bad")
    (tmp_path / "db" / "bad" / "_index" / "timeline" / f"{0:020d}.json").write_text("{")

    told = {one["name"]: one for one in ask("tables", "-w", str(tmp_path), "--json").json}
    assert (told["db.good"]["state"], told["db.bad"]["state"]) == ("active", "unreadable")
    assert "cannot be read" in told["db.bad"]["error"]
    refused = ask("show", "db.bad", "-w", str(tmp_path))
    assert refused.code == 5 and refused.err.startswith("Error: ") and "Traceback" not in refused.err


def closed(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Lets the store refuse to look into a folder, as one does whose reader has no right to."""
    call = Store._call

    def refusing(self: Store, verb: str, key: str, work: Any) -> Any:
        if f"{self.uri}/{key}".rstrip("/").endswith(folder) or f"{folder}/" in f"{self.uri}/{key}/":
            raise StorageUnavailable(f"The store failed to {verb} {self.uri}/{key}: permission denied")
        return call(self, verb, key, work)

    monkeypatch.setattr(Store, "_call", refusing)


def test_given_a_folder_that_may_not_be_read_then_it_is_one_line_and_the_rest_goes_on(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.good", "db.shut.inner", "z", "closed.one"):
        Table(tmp_path, name)
    closed(monkeypatch, f"{tmp_path}/closed")
    listed = ask("tables", "-w", str(tmp_path), "--json")
    told = {one["name"]: one for one in json.loads(listed.out)}
    assert {name: one["state"] for name, one in told.items()} == {
        "db.good": "active", "db.shut.inner": "active", "z": "active", "closed": "unreadable",
    }  # fmt: skip
    assert "permission denied" in told["closed"]["error"] and listed.code == 4
    shown = ask("tables", "-w", str(tmp_path))
    assert "3 tables in" in shown.out and "1 folder that cannot be looked into" in shown.out and shown.code == 4
    assert ask("tables", "db.*", "-w", str(tmp_path)).code == 0, "what cannot lie there is complete"
    assert ask("tables", "clo*", "-w", str(tmp_path), "--names").code == 4

    due = ask("plan", "*", "-w", str(tmp_path), "--json").json
    assert [(one["table"], one["code"]) for one in due["skipped"] if one["code"] == "unreachable"] == [
        ("closed", "unreachable")
    ]
    found, missed = find_tables(read_config(["db.*"], "PATTERN").tables, {"": Warehouse(str(tmp_path))}, "")
    assert sorted(one.name for one in found) == ["db.good", "db.shut.inner"] and not missed


def test_given_a_table_of_a_catalog_then_commands_and_maintenance_know_it_by_its_name(ask: Ask, tmp_path: Path) -> None:
    log = registered(tmp_path, "prod.db.trips")
    written(tmp_path, "prod.db.lies", log="/etc")
    Table(tmp_path, "prod.db.both")
    registered(tmp_path, "prod.db.both")

    listed = ask("tables", "-w", str(tmp_path), "--json")
    states = [(one["name"], one["state"]) for one in json.loads(listed.out)]
    assert ("prod.db.trips", "active") in states and ("prod.db.lies", "unreadable") in states and len(states) == 4
    for name in ("prod.db.trips", "catalog:prod.db.trips"):
        assert ask("show", name, "-w", str(tmp_path), "--json").json["location"] == log
    refused = ask("show", "prod.db.both", "-w", str(tmp_path))
    assert "of a catalog" in refused.err and "catalog:prod.db.both" in refused.err
    assert "No table is registered" in ask("show", "catalog:prod.db.none", "-w", str(tmp_path)).err
    found, missed = find_tables(read_config(["prod.db.t*"], "PATTERN").tables, {"": Warehouse(str(tmp_path))}, "")
    assert [(one.name, one.location) for one in found] == [("prod.db.trips", log)] and not missed


def test_given_a_table_that_other_engines_read_then_show_says_how_far(ask: Ask, tmp_path: Path) -> None:
    rng, rows = random.Random(1), PlainRows(tmp_path / "db" / "open", partitioned=False)
    rows.write("insert", None, [rows.row(number, None, rng) for number in range(4)])
    rows.write("delete", None, [], [3])

    told = ask("show", "db.open", "-w", str(tmp_path), "--json").json["published"]
    assert (told["format"], told["version"], told["log_version"], told["behind"]) == ("delta", 1, 1, 1)
    assert "published as delta" in ask("show", "db.open", "-w", str(tmp_path)).out
    assert ask("show", "trips", "--json").json["published"] is None


def test_given_a_terminal_of_forty_columns_then_no_line_is_longer(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for arguments in (
        ["tables"],
        ["show", "trips", "--partitions"],
        ["history", "trips", "--all"],
        ["indexes", "trips"],
        ["windows", "trips"],
        ["plan"],
        ["explain", "trips", "id = 3"],
        ["locate", "trips", "city = 'osl'"],
        ["doctor", "--read-only"],
    ):
        told = ask(*arguments)
        assert told.code == 0, told.err
        assert max(map(len, told.out.splitlines())) <= 40, arguments


TRIPS_AT_40 = """\
5 indexes

index     by_city
kind      secondary
state     active
columns   city
included
kept      with the data

index     by_fare
kind      compact
state     6 file groups behind
columns   fare
included
kept      deferred
"""


def test_given_tables_of_before_then_they_are_printed_as_they_were(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = ask("indexes", "trips").out.splitlines()
    assert wide[:5] == [
        "5 indexes",
        "",
        "index    kind       state                 columns        included  kept",
        "───────  ─────────  ────────────────────  ─────────────  ────────  ─────────────",
        "by_city  secondary  active                city                     with the data",
    ]
    monkeypatch.setenv("COLUMNS", "40")
    assert ask("indexes", "trips").out.startswith(TRIPS_AT_40)


def test_given_a_version_or_an_instant_then_the_table_is_shown_as_of_it(ask: Ask) -> None:
    now = ask("show", "trips", "--json").json
    commits = ask("history", "trips", "--all", "--json").json
    before = next(one for one in commits if one["version"] == 20)

    assert [one["version"] for one in commits] == list(range(now["version"] + 1))
    assert {field["name"] for field in now["definition"]["columns"]} >= {"id", "fare", "tip"}
    assert ask("show", "trips", "--version", "20", "--json").json["instant"] == before["instant"]
    assert ask("show", "trips", "--as-of", before["instant"], "--json").json["version"] == 20
    assert ask("show", "trips", "--version", "20", "--as-of", before["instant"]).code == 2
    assert ask("show", "trips", "--version", "999").code == 3
    assert "was expired" in ask("show", "trips", "--version", "3").err
    assert [one["version"] for one in ask("history", "trips", "-n", "2", "--json").json] == [45, 46]
    assert {one["operation"] for one in ask("history", "trips", "--operation", "upsert", "--json").json} == {"upsert"}


def test_given_an_index_then_its_coverage_is_told(ask: Ask) -> None:
    all_of_them = {one["name"]: one for one in ask("indexes", "trips", "--json").json}
    one = ask("indexes", "trips", "by_fare", "--json").json

    assert one == all_of_them["by_fare"] and one["lag"]["groups"] > 0
    assert all_of_them["by_id"]["lag"]["groups"] == 0
    assert "lags behind in" in ask("indexes", "trips", "by_fare").out


@pytest.mark.parametrize(
    ("arguments", "code", "told", "hint"),
    [
        (["tabels"], 2, "no command tabels", "Did you mean tables?"),
        (["show", "tripz"], 3, "no table tripz", "Did you mean trips?"),
        (["show", "raw.ride"], 3, "no table raw.ride", "Did you mean raw.rides?"),
        (["indexes", "trips", "by_cty"], 3, "no index 'by_cty'", "Did you mean by_city?"),
        (["explain", "trips", "fair = 3"], 2, "no column 'fair'", "Did you mean fare?"),
        (["export", "trips", "-", "--columns", "id,fair"], 2, "'fair'", "Did you mean fare?"),
        (["show"], 2, "Missing argument", "--help"),
        (["show", "trips", "--no-such"], 2, "--no-such", "--help"),
        (["history", "trips", "-n", "x"], 2, "not a valid integer", "--help"),
        (["show", "a/b/nowhere"], 3, "no table", "address"),
        (["plan", "--config", "nowhere.yaml"], 2, "cannot be read", ""),
        (["plan", "--bytes", "many"], 2, "not a size", "256MB"),
        (["tables", "-w", "/no/such/folder"], 2, "no folder", ""),
        (["tables", "--option", "aws_secret_access_key=hunter22"], 2, "is a secret", "--storage-options FILE"),
        (["tables", "--option", "nothing"], 2, "no option", "aws_region"),
        (["tables", "--storage-options", "/no/such/file"], 2, "cannot be read", ""),
        (["tables", "--connection", "none"], 2, "no connection 'none'", "AIRFLOW_CONN_NONE"),
    ],
)
def test_given_a_mistake_then_it_is_told_without_a_traceback(
    ask: Ask, arguments: list[str], code: int, told: str, hint: str
) -> None:
    answer = ask(*arguments)

    assert (answer.code, answer.out) == (code, "")
    assert told in answer.err and hint in answer.err and "Traceback" not in answer.err
    assert "hunter22" not in answer.err
    if "--no-such" not in arguments and arguments[0] != "tabels":
        as_json = ask(*arguments, "--json")
        assert as_json.code == code and told.partition("'")[0] in json.loads(as_json.err)["error"]["message"]


def test_given_a_name_that_a_terminal_would_obey_then_the_error_shows_it_as_text(ask: Ask) -> None:
    refused = ask("show", "/nowhere/\x1b]0;x\x07")
    assert refused.code != 0 and refused.err.replace("\n", "").isprintable() and "\\x1b]0;x\\x07" in refused.err


def test_given_no_warehouse_then_names_are_refused_and_addresses_are_read(
    ask: Ask, whole_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEINDEX_WAREHOUSE")
    monkeypatch.chdir(whole_lake)

    assert "--warehouse" in ask("show", "trips").err and ask("tables").code == 2 and ask("plan").code == 2
    for address in ("./trips", str(whole_lake / "trips"), f"file://{whole_lake}/trips"):
        assert ask("show", address, "--json").json["version"] == 46
    assert ask("show", str(whole_lake / "raw" / "rides"), "--json").json["definition"]["source"]["format"] == "parquet"
    assert ask("locate", "raw/rides", "--json").json["log"].endswith("_indexes/rides/_index/timeline")


def test_given_a_connection_of_airflow_s_in_the_environment_then_it_says_where_tables_are(
    ask: Ask, whole_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEINDEX_WAREHOUSE")
    extra = {"warehouse": str(whole_lake), "secret_storage_options": {"aws_secret_access_key": "hunter22"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "index_table_store", "extra": json.dumps(extra)}))

    assert len(ask("tables", "--connection", "lake", "--json").json) == len(TABLES)
    for form in ((), ("--json",)):
        told = ask("doctor", "--connection", "lake", "--read-only", *form)
        assert told.code == 0 and "***" in told.out and "hunter22" not in told.out


def test_given_looks_at_what_is_not_there_then_no_folder_is_made(ask: Ask, tmp_path: Path) -> None:
    for arguments in (["show", "db.t"], ["plan", "db.t"], ["locate", "db.t", "id = 1"], ["tables"]):
        ask(*arguments, "-w", str(tmp_path / "none"))
        ask(*arguments, "-w", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_given_writers_and_a_window_then_both_are_told_of(ask: Ask, tmp_path: Path) -> None:
    table = Table(tmp_path, "db.t")
    timeline = Timeline.load(table.store)
    transaction = begin(timeline, operation="upsert", txn_id="nightly")
    transaction.heartbeat("staging", 3, 10)
    epoch = windows.open_window(timeline, "rescale").epoch

    (attempt,) = ask("attempts", "db.t", "-w", str(tmp_path), "--json").json
    assert (attempt["txn_id"], attempt["state"], attempt["progress"]) == ("nightly", "live", "staging 3 of 10")
    (window,) = ask("windows", "db.t", "-w", str(tmp_path), "--json").json["open"]
    assert (window["epoch"], window["holder"], window["over"]) == (epoch, "rescale", False)
    assert window["undrained"] == ["nightly"]
    assert "nightly" in ask("windows", "db.t", "-w", str(tmp_path)).out

    transaction.abort()
    assert ask("attempts", "db.t", "-w", str(tmp_path), "--json").json == []
    told = ask("attempts", "db.t", "-w", str(tmp_path), "--all", "--json").json
    assert {one["txn_id"]: one["state"] for one in told}["nightly"] == "aborted"


def test_given_work_that_is_due_then_the_plan_names_it_with_its_reason_and_nothing_changes(
    ask: Ask, tmp_path: Path
) -> None:
    lake = unpack(tmp_path)
    before = sorted(path for path in lake.rglob("*"))
    told = ask("plan", "trips", "-w", str(lake), "--json").json

    works = {(one["kind"], one["index"]): one for one in told["chosen"]}
    assert "behind" in works["refresh", "by_fare"]["reason"]
    assert {one["code"] for one in told["skipped"]} & {"covered", "not_due"}
    assert ask("plan", "trips", "-w", str(lake), "--due", "--json").json["skipped"] == []
    assert len(ask("plan", "trips", "-w", str(lake), "--bytes", "1B", "--json").json["chosen"]) == 1
    (tmp_path / "nightly.yaml").write_text("tables: [{table: 'tr*', compact: false}, groups]\nbudget: {minutes: 90}\n")
    described = ask("plan", "--config", str(tmp_path / "nightly.yaml"), "-w", str(lake), "--json").json
    assert {one["table"] for one in described["chosen"]} == {"trips", "groups"}
    assert ("trips", "compact") not in {(one["table"], one["kind"]) for one in described["chosen"]}
    assert sorted(path for path in lake.rglob("*") if path.name != "nightly.yaml") == before


def test_given_a_store_then_the_doctor_tries_it_and_leaves_nothing(ask: Ask, tmp_path: Path) -> None:
    told = ask("doctor", "-w", str(tmp_path), "--json").json

    assert told["ok"] and {"Python", "obstore", "pyarrow"} <= {one["name"] for one in told["versions"]}
    assert any("one winner" in one["what"] for one in told["store"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    failed = ask("doctor", "-w", str(tmp_path / "none"))
    assert failed.code == 1 and "FAILED" in failed.out
    assert Store(str(tmp_path)).folders() in ([], ["_index_check"])


def shown() -> list[list[str]]:
    """The command lines of the page on the command line, as far as they are ours."""
    text = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ lakeindex ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1 : next((n for n, word in enumerate(line) if word in "|>"), len(line))] for line in words]


def test_given_the_page_then_every_command_of_it_is_one_and_every_command_is_on_it(ask: Ask) -> None:
    for name, *arguments in shown():
        app.commands[name].make_context(name, arguments)
    assert {line[0] for line in shown()} >= {*app.commands} - {"quickstart", "example", "libraries", "bundle"}
