"""Rows by the command line: compared with the rows that the lake's writer noted down."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import RemoveFile, Write, definition_scope
from spark_apps.timeline.transactions import begin
from tests.compatibility.lake import EXPECTED, unpack
from tests.spark_apps.cli.conftest import Ask

ROWS: dict[int, dict[str, Any]] = {row["id"]: row for row in EXPECTED["tables"]["trips"]["rows"]}


def test_given_keys_then_their_rows_are_those_that_were_written(ask: Ask) -> None:
    told = ask("lookup", "trips", "3", "5", "999", "--json").json

    assert {row["id"]: row for row in told} == {key: ROWS[key] for key in (3, 5)}
    assert ask("lookup", "trips", "999").code == 1 and ask("lookup", "trips", "999", "--json").out == "[\n]\n"
    assert "'x'" in ask("lookup", "trips", "x").err
    assert [list(row) for row in ask("lookup", "trips", "3", "--columns", "fare,id", "--json").json] == [["fare", "id"]]


def test_given_keys_in_a_file_then_each_line_is_one(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("\n".join(str(key) for key in (*ROWS, 10**12)))
    (tmp_path / "wrong").write_text("1\ntwo\n")
    (tmp_path / "none").write_text("")

    assert {row["id"]: row for row in ask("lookup", "trips", "--keys", str(tmp_path / "keys"), "--json").json} == ROWS
    assert ask("lookup", "trips", "--keys", str(tmp_path / "none")).code == 1
    assert "no keys of the table" in ask("lookup", "trips", "--keys", str(tmp_path / "wrong")).err
    assert "cannot be read" in ask("lookup", "trips", "--keys", str(tmp_path / "nowhere")).err
    assert ask("lookup", "trips", "1", "--keys", "x").code == ask("lookup", "trips").code == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"3\n")))
    assert [row["id"] for row in ask("lookup", "trips", "--keys", "-", "--json").json] == [3]


def test_given_a_select_over_names_and_addresses_then_duckdb_answers_it(ask: Ask, whole_lake: Path) -> None:
    dear = sorted(key for key, row in ROWS.items() if row["fare"] > 100)
    sql = "SELECT id FROM trips WHERE fare > 100 ORDER BY id"
    assert [row["id"] for row in ask("query", sql, "--json").json] == dear
    by_address = sql.replace("trips", f'"{whole_lake}/trips"')
    assert [row["id"] for row in ask("query", by_address, "--json").json] == dear
    by_name = ask("query", sql.replace("trips", "t"), "--table", f"t={whole_lake}/trips", "--json").json
    assert [row["id"] for row in by_name] == dear
    assert ask("query", "SELECT count(*) AS n FROM raw.rides r JOIN trips t ON t.id = r.n", "--json").json[0]["n"] >= 0
    assert ask("query", "WITH trips AS (SELECT 1 AS a) SELECT * FROM trips", "--json").json == [{"a": 1}]


def test_given_more_rows_than_are_printed_then_it_says_so(ask: Ask) -> None:
    told = ask("query", "SELECT id, city FROM trips ORDER BY id", "--rows", "2").out.splitlines()

    assert told[0] == "the first 2 rows; there are more" and told[4].split() == ["1", "ber"]
    assert ask("query", "SELECT id FROM trips", "--rows", "0").out.splitlines()[0] == f"{len(ROWS)} rows"
    assert ask("query", "SELECT NULL AS a, '' AS b, [1, 2] AS c, 1e300 AS d").out.splitlines()[-1].split() == [
        "null", "[1,2]", "1e+300",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "code", "told"),
    [
        ("SELEC 1", 2, "syntax error"),
        ("DROP TABLE trips", 2, "no query"),
        ("SELECT 1; SELECT 2", 2, "2 statements"),
        ("SELECT * FROM tripz", 3, "Did you mean trips?"),
        ("SELECT fair FROM trips", 2, '"fare"'),
        ("SELECT CAST(city AS INT) FROM trips", 2, "INT"),
        ("SELECT * FROM 'nowhere/at/all'", 3, "no table"),
    ],
)
def test_given_a_query_that_cannot_be_answered_then_it_says_why(ask: Ask, sql: str, code: int, told: str) -> None:
    answer = ask("query", sql)
    assert answer.code == code and told in answer.err and "Traceback" not in answer.err


def test_given_a_predicate_then_the_plan_and_the_files_are_told(ask: Ask) -> None:
    plan = ask("explain", "trips", "id = 3", "--json").json
    files = ask("locate", "trips", "id = 3", "--json").json

    assert "by_id" in plan["index_used"] and plan["files_read"] < plan["files_skipped"]
    assert len(files) == plan["files_read"] and all(file["indexed"] for file in files)
    assert "by_id" in ask("explain", "trips", "id = 3").out
    moment = "t = TIMESTAMP '2024-01-01 04:00:00'"
    for command in (
        ["explain", "whole", moment],
        ["locate", "whole", moment],
        ["export", "whole", "-", "--format", "json", "--where", moment],
    ):
        assert ask(*command).code == 2 and "the session's to say" in ask(*command).err, command
        assert ask(*command, "--time-zone", "Mars").code == 2
        assert ask(*command, "--time-zone", "UTC").code == 0
    assert (
        len(ask("export", "whole", "-", "--format", "json", "--where", moment, "--time-zone", "UTC").out.splitlines())
        == 1
    )
    refused = ask("explain", "trips", "id = rand()")
    assert refused.code == 2 and "only Spark can tell" in refused.err


def test_given_parameters_then_they_are_values_of_the_predicate(ask: Ask) -> None:
    given = ["--parameter", "least:=100", "--format", "json"]
    told = ask("export", "trips", "-", "--where", "fare > :least", *given).out
    assert told == ask("export", "trips", "-", "--where", "fare > 100", "--format", "json").out and told
    plan = ask("explain", "trips", "id = :id", "--parameter", "id:=3", "--json").json
    assert plan["files_read"] == ask("explain", "trips", "id = 3", "--json").json["files_read"]
    assert "asks for the parameter :id" in ask("locate", "trips", "id = :id").err
    assert "'x' is given" in ask("explain", "trips", "id = 3", "--parameter", "x=1").err
    for wrong in ("x", "x:=y", "=1", "x:="):
        assert ask("explain", "trips", "id = :x", "--parameter", wrong).code == 2


def test_given_a_table_then_its_rows_are_exported_in_each_format(ask: Ask, tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows.arrow", "rows.jsonl", "rows.csv"):
        told = ask("export", "trips", str(tmp_path / name), "--json").json
        assert told["rows"] == len(ROWS) and told["bytes"] == (tmp_path / name).stat().st_size
    with pa.ipc.open_stream(tmp_path / "rows.arrow") as stream:
        arrow = stream.read_all()
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    for rows in (parquet.read_table(tmp_path / "rows.parquet").to_pylist(), arrow.to_pylist(), lines):
        assert {row["id"]: row for row in rows} == ROWS
    with (tmp_path / "rows.csv").open() as file:
        assert {int(row["id"]): int(row["fare"]) for row in csv.DictReader(file)} == {
            key: row["fare"] for key, row in ROWS.items()
        }
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_given_a_predicate_and_columns_then_only_these_go_to_the_standard_output(ask: Ask) -> None:
    told = ask("export", "trips", "-", "--where", "fare > 100", "--columns", "id,fare", "--format", "json")

    rows = [json.loads(line) for line in told.out.splitlines()]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": key, "fare": ROWS[key]["fare"]} for key in sorted(ROWS) if ROWS[key]["fare"] > 100
    ]


def test_given_what_cannot_be_exported_then_nothing_is_written(ask: Ask, tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine")

    assert ask("export", "trips", str(there)).code == 2 and there.read_text() == "mine"
    assert "does not tell a format" in ask("export", "trips", str(tmp_path / "rows.xyz")).err
    assert ask("export", "trips", str(tmp_path / "rows.csv"), "--where", "rand() > 0").code == 2
    assert ask("export", "trips", str(tmp_path / "no" / "rows.csv")).code == 4
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert ask("export", "trips", str(there), "--overwrite").code == 0 and there.read_text() != "mine"


def test_given_a_file_that_is_gone_then_it_is_the_store_that_failed_and_no_half_of_a_file_stays(
    ask: Ask, tmp_path: Path
) -> None:
    lake = unpack(tmp_path)
    gone = ask("locate", "whole", "d IS NOT NULL", "-w", str(lake), "--json").json[-1]["path"]
    (lake / "whole" / gone).unlink()

    for arguments in (["export", "whole", str(tmp_path / "rows.jsonl")], ["query", "SELECT * FROM whole"]):
        told = ask(*arguments, "-w", str(lake))
        assert told.code == 4 and Path(gone).name in told.err and "Traceback" not in told.err, (arguments, told.err)
    assert not [path for path in tmp_path.rglob("*rows*") if path.suffix in (".jsonl", ".part")]


def test_given_indexes_of_rows_then_they_agree_until_entries_are_lost_or_a_file_is_another(
    ask: Ask, tmp_path: Path
) -> None:
    lake = unpack(tmp_path)
    told = ask("verify", "trips", "-w", str(lake), "--json").json
    assert {one["index"]: one["ok"] for one in told["reports"]} == dict.fromkeys(
        ("by_city", "by_fare", "by_id", "by_note", "by_ts"), True
    )
    assert told["not_compared"] == {} and ask("verify", "trips", "by_cty").code == 3
    of_source = ask("verify", "raw.rides", "-w", str(lake), "--json").json
    assert all("of a registered source is compared" in why for why in of_source["not_compared"].values())
    assert ask("verify", "raw.rides", "by_rider", "-w", str(lake)).code in (0, 2)

    timeline = Timeline.load(Store(lake / "groups"))
    entry = timeline.head.index("by_v")
    file = timeline.head.files(entry.definition.tree)[0]
    attempt = begin(timeline, operation="refresh_index")
    attempt.commit([RemoveFile(file.tree, file.path)], writes=[Write(definition_scope("by_v"), "fold")])
    lost = ask("verify", "groups", "by_v", "-w", str(lake))
    assert lost.code == 1 and "DIFFERS" in lost.out
    assert file.rows <= len(EXPECTED["tables"]["groups"]["rows"]) and "missing" in lost.out

    path = lake / "trips" / Timeline.load(Store(lake / "trips")).head.files(tree_of(lake, "by_city"))[0].path
    rows = parquet.read_table(path)
    cities = pa.array(["nowhere"] * rows.num_rows, rows.schema.field("city").type)
    parquet.write_table(rows.set_column(rows.schema.get_field_index("city"), "city", cities), path)
    other = ask("verify", "trips", "by_city", "-w", str(lake))
    assert other.code == 1 and "unreadable" in other.out, other


def tree_of(lake: Path, index: str) -> str:
    return Timeline.load(Store(lake / "trips")).head.index(index).definition.tree
