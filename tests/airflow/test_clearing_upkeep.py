"""What operators of upkeep do when Airflow runs their tasks again: retried behind their commit, and cleared when others
had written meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_index.testing import DagRunReport
from spark_apps import open_table
from tests.airflow.lake import Lake

pytestmark = pytest.mark.by_turn(24, whole=True, first=8)

TABLES = {"restore": "db/restored", "sql": "db/stated"}
"""Tables below the warehouse, by the tasks that work on them; all others but ``register`` work on ``db/upkept``."""

CREATE = (
    "CREATE TABLE db.{0} (id bigint, note string) USING indexed "
    "TBLPROPERTIES (primaryKey = 'id', hoodie.bucket.index.num.buckets = 1)"
)
INSERT = "INSERT INTO db.{} VALUES {}"
INDEX = "CREATE INDEX {} ON db.upkept USING secondary_index(note) {}"


def others(lake: Lake, *statements: str) -> None:
    """Have others run statements on tables."""
    lake.run("clearing_others", {"sql": "; ".join(statements)})


def rows(lake: Lake, table: str) -> dict[int, str]:
    return {row["id"]: row["note"] for row in open_table(lake.warehouse / table).read().to_pylist()}


@dataclass
class Look:
    """How many commits each task has, what it returned, and the rows of the tables."""

    commits: dict[str, int]
    returned: dict[str, Any]
    rows: dict[str, dict[int, str]]


@dataclass
class Cleared:
    """A run whose tasks were each retried once, and cleared when others had written."""

    run: DagRunReport
    tries: dict[str, int]
    looks: list[Look]


@pytest.fixture(scope="module")
def cleared(lake: Lake) -> Cleared:
    source = lake.landing / "of_others"
    source.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), source / "part.parquet")
    base = "(1, 'base'), (2, 'base')"
    tables = ("upkept", "restored", "stated")
    others(lake, *map(CREATE.format, tables), *(INSERT.format(table, base) for table in tables))
    version = lake.timeline("db/restored").head.version
    others(
        lake,
        INDEX.format("late", "WITH DEFERRED REBUILD"), INDEX.format("kept", ""), INDEX.format("gone", ""),
        INSERT.format("upkept", "(3, 'more')"), INSERT.format("restored", "(3, 'more')"),
    )  # fmt: skip
    run = lake.run("clearing_upkeep", {"version": version}, timeout=900)
    tries = {row["task_id"]: row["try_number"] for row in lake.client.task_instances("clearing_upkeep", run.run_id)}
    # Beside the source.
    places = {**dict.fromkeys(tries, "db/upkept"), **TABLES, "register": source.parent / "_indexes" / source.name}

    def look() -> Look:
        counts = {}
        for task, place in places.items():
            ids = [one.txn_id for one in lake.timeline(place).commits() if one.operation != "abort"]
            counts[task] = sum(f".{task}." in one for one in ids)
        returned = {task: lake.client.xcom("clearing_upkeep", run.run_id, task) for task in tries}
        return Look(counts, returned, {table: rows(lake, f"db/{table}") for table in tables})

    looks = [look()]
    inserts = (INSERT.format("upkept", "(4, 'new')"), INSERT.format("restored", "(4, 'new')"))
    others(lake, *inserts, INSERT.format("stated", base))
    lake.client.clear("clearing_upkeep", run.run_id)
    again = lake.client.wait("clearing_upkeep", run.run_id, timeout=900)
    looks.append(look())
    return Cleared(again, tries, looks)


def test_given_a_try_that_was_lost_behind_its_commit_when_retried_then_it_commits_nothing_more(
    cleared: Cleared,
) -> None:
    assert set(cleared.tries.values()) == {2}
    assert cleared.looks[0].commits == {**dict.fromkeys(cleared.tries, 1), "verify": 0, "sql": 2}


def test_given_others_who_wrote_since_when_cleared_then_each_task_works_again_where_there_is_something_to_do(
    lake: Lake, cleared: Cleared
) -> None:
    assert cleared.run.state == "success", lake.client.describe(cleared.run)
    first, again = cleared.looks
    nothing_to_do = {"rescale": 1, "drop": 1, "register": 1}
    assert again.commits == {**dict.fromkeys(cleared.tries, 2), **nothing_to_do, "verify": 0, "sql": 4}
    assert [again.returned[task]["version"] for task in nothing_to_do] == [None] * len(nothing_to_do)
    assert (first.returned["verify"]["kept"]["rows"], again.returned["verify"]["kept"]["rows"]) == (3, 4)
    assert first.rows == {
        "upkept": {1: "base", 2: "base", 3: "more"}, "restored": {1: "base", 2: "base"}, "stated": {},
    }  # fmt: skip
    assert again.rows == {**first.rows, "upkept": {**first.rows["upkept"], 4: "new"}}
    head = lake.timeline("db/upkept").head
    assert sorted(head.indexes) == ["kept", "late"] and not head.index("late").lag
