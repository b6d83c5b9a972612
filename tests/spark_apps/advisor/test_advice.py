"""Advice for a small table: what is proposed, and that the proposals do what they say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable, open_table, sql
from spark_apps.query.planning import filter_of, plan_bytes, plan_read
from spark_apps.storage.errors import InvalidInput
from spark_apps.workload.asked import AskedQuery, Workload

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def build(spark: Any, folder: Path) -> None:
    """A table of 16 file groups of which few hold a rider, a batch or a city."""
    ddl = "id bigint, day int, rider bigint, batch bigint, city string, fare double, note string"
    table = IndexedTable.create(spark, folder, ddl, ["id"], partition_by=["day"], buckets=2)
    table.upsert(
        spark.range(4_000).selectExpr(
            "id", "cast(id % 8 as int) AS day", "pmod(hash(id), 2000) AS rider", "id % 8 * 10 + id div 400 AS batch",
            "concat('city ', id % 8) AS city", "rand(1) AS fare", "sha2(string(id), 256) AS note",
        )
    )  # fmt: skip


@pytest.fixture
def table(prepared: Any) -> IndexedTable:
    return prepared(build)


def asked(table: IndexedTable, *queries: tuple[str, float], columns: tuple[str, ...] | None = None) -> Workload:
    return Workload(
        AskedQuery(
            table=table.uri, asked=BEGAN + timedelta(days=number), columns=columns, predicate=where,
            shape=where.split("=")[0] + "= ?", weight=weight, bytes_read=1_000_000,
        )
        for number, (where, weight) in enumerate(queries)
    )  # fmt: skip


def read_by(table: IndexedTable, predicates: Iterable[str]) -> int:
    return sum(
        plan_bytes(plan_read(table.snapshot, filter_of(table.snapshot, where), table.snapshot.data.columns))
        for where in predicates
    )


RIDERS = [f"rider = {number}" for number in (17, 401, 1202)]
CITIES = [f"city = 'city {number}'" for number in (1, 6)]


@pytest.mark.by_turn(16)
def test_given_what_is_asked_when_the_advice_is_followed_then_about_so_much_is_spared(
    table: IndexedTable, spark: Any
) -> None:
    workload = asked(table, *((where, 100) for where in RIDERS), *((where, 10) for where in CITIES))
    version = table.version
    advice = table.advise(workload, {"bytes": "2MB", "minutes": 30})
    assert IndexedTable.load(spark, table.uri).version == version
    assert advice.statements and all(one.action == "create" for one in advice.proposals)
    assert any("rider" in " ".join(one.columns) for one in advice.proposals)
    assert sum(one.bytes for one in advice.proposals) <= 2_000_000
    before = read_by(table, [*RIDERS, *CITIES])
    sql.run(spark, ";".join(advice.statements))
    followed = IndexedTable.load(spark, table.uri)
    assert {one.index for one in advice.proposals} == set(followed.indexes)

    days = advice.days
    weights = dict.fromkeys(RIDERS, 100) | dict.fromkeys(CITIES, 10)
    measured = sum(weight * (read_by(table, [where]) - read_by(followed, [where])) for where, weight in weights.items())
    predicted = days * (advice.read_a_day_now - advice.read_a_day_then)
    assert measured > 0 and abs(predicted - measured) <= 0.25 * measured
    assert read_by(followed, [*RIDERS, *CITIES]) < before

    again = followed.advise(workload, {"bytes": "2MB"})
    assert not [one for one in again.proposals if one.action != "keep"], again


def test_given_another_workload_when_advised_then_the_mind_is_changed_and_what_no_longer_pays_goes(
    table: IndexedTable,
) -> None:
    table.create_index("by_rider", "secondary", ["rider"])
    advice = table.advise(asked(table, *((where, 50) for where in CITIES)))
    assert advice.reasons["by_rider"].startswith("saves about 0 B a day")
    [dropped] = [one for one in advice.proposals if one.action == "drop"]
    # What is dropped goes when what takes its place is there.
    assert dropped.index == "by_rider" and advice.statements[-1] == dropped.statement
    assert any("city" in " ".join(one.columns) for one in advice.proposals if one.action == "create")
    assert "by_rider" in str(advice) and "<table" in advice._repr_html_()
    json.dumps(advice.to_dict())


def test_given_no_workload_when_advised_then_nothing_is_proposed_and_it_says_so(table: IndexedTable) -> None:
    for given in (Workload(), [], None):
        advice = table.advise(given)
        assert not advice.proposals and not advice.statements and "Nothing is known" in str(advice)


def test_given_a_table_opened_without_spark_when_advised_then_the_advice_is_the_same(table: IndexedTable) -> None:
    workload = asked(table, *((where, 5) for where in RIDERS))
    here, there = open_table(table.uri).advise(workload), table.advise(workload)
    assert here.statements == there.statements and here.statements


@pytest.mark.by_turn(4)
def test_given_queries_of_expressions_and_of_words_in_texts_then_indexes_over_these_are_proposed_and_kept(
    table: IndexedTable, spark: Any
) -> None:
    [note] = table.read("id = 77", columns=["note"]).collect()[0]
    workload = asked(
        table, ("upper(city) = 'CITY 3'", 9), (f"note LIKE '%{note[3:30]}%'", 9), ("upper(city) = 'CITY 5'", 9)
    )
    advice = table.advise(workload)
    parts = " ".join(part for one in advice.proposals for part in one.columns)
    assert "(upper(city))" in parts and "ngrams(note)" in parts, advice
    sql.run(spark, ";".join(advice.statements))
    followed = IndexedTable.load(spark, table.uri)
    again = followed.advise(workload)
    assert {one.action for one in again.proposals} == {"keep"}, f"{advice}\n{again}"
    # Without a session nothing is known of values of expressions, and so nothing against the index.
    assert "drop" not in {one.action for one in open_table(table.uri).advise(workload).proposals}


def test_given_a_column_that_only_spark_reads_then_advice_is_given_for_the_others(spark: Any, tmp_path: Path) -> None:
    for number in range(6):
        lines = (
            json.dumps({"id": value, "who": {"id": value, "name": f"n{value}" * 20}})
            for value in range(number * 200, number * 200 + 200)
        )
        (tmp_path / f"{number}.json").write_text("\n".join(lines))
    table = IndexedTable.register(spark, tmp_path, format="json")
    workload = asked(table, ("who IS NULL", 5), ("id = 401", 5), ("who.id = 402", 5))
    advice = table.advise(workload)
    assert {"cover_id", "skip_id", "by_id"} & {one.index for one in advice.proposals}, advice


def test_given_what_cannot_be_used_when_advised_then_it_is_counted_or_refused(table: IndexedTable) -> None:
    advice = table.advise(asked(table, ("nope = 1", 7), ("rider = 4", 3)))
    assert advice.left_out == {"no predicate of this table": 7}
    for budget in ({"gigabytes": 3}, {"bytes": "much"}, "5GB", {"minutes": "3 apples"}):
        with pytest.raises(InvalidInput):
            table.advise(asked(table, ("rider = 4", 3)), budget)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no asked query"):
        table.advise(["rider = 4"])  # type: ignore[list-item]


def test_given_a_file_of_queries_when_advised_from_a_shell_then_it_answers_as_the_table_does(
    table: IndexedTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spark_apps.cli.app import run

    workload = asked(table, *((where, 5) for where in RIDERS))
    lines = tmp_path / "asked.jsonl"
    lines.write_bytes(b"\n".join([*(one.to_document() for one in workload.queries()), b"{no line", b""]))
    assert run(["advise", table.uri, "--queries", str(lines), "--budget", "2MB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert tuple(told["statements"]) == table.advise(workload, {"bytes": "2MB"}).statements
    assert run(["advise", table.uri, "--queries", str(lines), "--budget", "much"]) == 2
    statements = [f"SELECT * FROM lake.{Path(table.uri).name} WHERE {where};" for where in RIDERS]
    (tmp_path / "asked.sql").write_text("\n".join([*statements, "SELECT * FROM lake.others WHERE rider = 1"]))
    assert run(["advise", table.uri, "--sql", str(tmp_path), "--budget", "2MB", "--json"]) == 0
    by_files = json.loads(capsys.readouterr().out)
    assert (by_files["queries"], tuple(by_files["statements"])) == (3, tuple(told["statements"]))
    assert run(["advise", table.uri, "--event-logs", str(tmp_path / "none")]) == 2
    lines.write_text("nothing\n")
    assert run(["advise", table.uri, "--queries", str(lines)]) == 2
    assert run(["advise", table.uri, "--queries", str(tmp_path / "none")]) == 2
