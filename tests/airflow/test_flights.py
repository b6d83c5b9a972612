"""The example DAGs, copied as a user would, on some of the flights: all of them run by a real scheduler, in order.

The table that they leave is compared with a count of the raw data.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from dags_examples.demo import data
from dags_examples.demo.story import Story, run_all
from spark_apps import IndexedTable
from tests.airflow.lake import Lake

pytestmark = pytest.mark.heavy

EXAMPLES = ("flights",)

MONTHS = (6, 7, 8, 12)
DAYS_OF_DECEMBER = (1, 2, 29, 30, 31)
LOOKUPS = ("tailnum = '{tailnum}'", "dest = '{dest}'", "carrier = '{carrier}' AND flight = {flight} AND month = 12")


@pytest.fixture(scope="module")
def flights(lake: Lake) -> pd.DataFrame:
    """Some flights of some days, landed as files; the other days of December bring empty deliveries."""
    raw = data.raw()
    few = (raw["flight"] % 40 == 0) | (raw["flight"] % 97 == 0)
    days = (raw["month"] != 12) | raw["day"].isin(DAYS_OF_DECEMBER)
    chosen = raw[few & days & raw["month"].isin(MONTHS)]
    data.land(chosen, lake.landing)
    data.copy(raw[raw["tailnum"] == data.PLANE], lake.landing.with_name("copies"))
    return chosen


@pytest.fixture(scope="module")
def story(lake: Lake, spark: Any, flights: pd.DataFrame) -> Story:
    story = Story(lake.client, lake.warehouse, spark, Console(width=140, highlight=False))
    sources = lake.trigger("flights_sources")  # of tables of their own, so meanwhile
    run_all(story)
    lake.run("flights_sql", timeout=600)
    report = lake.client.wait("flights_sources", sources, timeout=600)
    assert report.state == "success", lake.client.describe(report)
    return story


@pytest.fixture(scope="module")
def table(spark: Any, story: Story) -> IndexedTable:
    return IndexedTable.load(spark, story.location)


def test_the_rows_are_those_of_the_raw_data(table: IndexedTable, flights: pd.DataFrame) -> None:
    [row] = table.read().selectExpr(
        "count(*) AS rows",
        "count_if(month = 12) AS rows_of_december",
        "count_if(month = 12 AND dep_time IS NULL) AS cancelled_in_december",
        "sum(arr_delay) AS sum_of_arr_delay",
        "sum(air_time) AS sum_of_air_time",
        "count(DISTINCT tailnum) AS planes",
    ).collect()  # fmt: skip
    wanted = asdict(data.expected(flights))

    assert wanted["cancelled_in_december"] > 0
    assert row.asDict() == {name: wanted[name] for name in row.asDict()} | {"cancelled_in_december": 0}


def test_each_delivery_that_brings_something_is_one_commit(table: IndexedTable, story: Story) -> None:
    before, after = story.versions["flights_initial_load"], story.versions["flights_december"]
    commits = [entry for entry in table.history() if before < entry.version <= after]

    # A day's corrections come with the next day's delivery.
    assert [entry.operation for entry in commits] == ["upsert"] * 6
    assert all(entry.metrics["rows"] for entry in commits)


def test_upkeep_leaves_one_file_a_group_and_a_rescale_changes_the_busiest_months_alone(
    lake: Lake, table: IndexedTable, story: Story
) -> None:
    timeline = lake.timeline("demo/flights")
    compacted = timeline.at(story.versions["flights_nightly"])
    kept_by_commits = (compacted.indexes[name].definition.tree for name in ("by_key", "by_tailnum"))
    for tree in ["data", *kept_by_commits]:
        assert {len(files) for files in compacted.groups(tree).values()} == {1}, tree
    assert {path: info.buckets for path, info in table.partitions.items()} == {
        "month=6": 2, "month=7": 8, "month=8": 8, "month=12": 2,
    }  # fmt: skip


def test_the_writer_that_met_the_window_was_refused_and_then_succeeded(table: IndexedTable, story: Story) -> None:
    assert "holds a stop-write window" in story.refusal and story.tries > 1
    assert Counter(entry.operation for entry in table.history())["rescale"] == 1
    after = [entry.operation for entry in table.history() if entry.version > story.versions["flights_nightly"]]
    assert [name for name in after if name in ("rescale", "upsert")] == ["rescale", "upsert"]


def test_lookups_use_the_indexes_and_find_what_a_scan_finds(table: IndexedTable, flights: pd.DataFrame) -> None:
    plane = flights[flights["dep_time"].notna() & (flights["month"] == 12)].iloc[0]
    for lookup in LOOKUPS:
        where = lookup.format(**plane)
        looked_up, scanned = (
            sorted(map(str, rows.collect())) for rows in (table.read(where), table.read().where(where))
        )
        assert looked_up == scanned and looked_up, where
    assert table.explain(LOOKUPS[0].format(**plane)).index_used == "by_tailnum"
    assert table.explain(LOOKUPS[1].format(**plane)).index_used == "by_dest"


def test_statements_and_sources_leave_indexes_that_agree_with_their_tables(
    lake: Lake, spark: Any, table: IndexedTable
) -> None:
    assert {name: info.kind for name, info in table.indexes.items()} == {
        "by_key": "record", "by_tailnum": "secondary", "by_dest": "secondary",
        "by_route": "covering", "by_delay": "compact",
    }  # fmt: skip
    where = f"tailnum = '{data.PLANE}'"
    wanted = int((data.raw()["tailnum"] == data.PLANE).sum())
    copies = lake.landing.with_name("copies")
    allowed = {"source_roots": [data.catalog_address(copies)]}
    for form in ("delta", "iceberg"):
        copy = IndexedTable.load(spark, copies / form, options=allowed)
        assert copy.read(where).count() == wanted > 0
        assert copy.verify("by_tailnum").ok
