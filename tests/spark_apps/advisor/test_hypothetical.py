"""Plans with indexes that are not there, beside plans with the same indexes built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable, open_table
from spark_apps.query.explain import Explanation
from spark_apps.storage import errors

pytestmark = pytest.mark.spark

DDL = "id bigint, day int, rider bigint, city string, fare double, note string"


def build(spark: Any, folder: Path) -> None:
    """A table of 12 file groups, of which few hold a rider and all hold a city."""
    table = IndexedTable.create(spark, folder, DDL, ["id"], partition_by=["day"], buckets=2)
    table.upsert(
        spark.range(1_200).selectExpr(
            "id", "cast(id % 6 as int) AS day", "id div 4 + 7 * (id % 6) AS rider",
            "element_at(array('ams', 'osl', 'sfo'), cast(id % 3 as int) + 1) AS city", "id / 2d AS fare",
            "concat('note ', id) AS note",
        )
    )  # fmt: skip
    table.upsert(
        spark.range(100)
        .selectExpr("id", "cast(id % 6 as int)", "id + 5000 AS rider", "'ams'", "1d", "'again'")
        .toDF("id", "day", "rider", "city", "fare", "note")
    )


@pytest.fixture
def table(prepared: Any) -> IndexedTable:
    return prepared(build)


CASES = [
    ({"kind": "secondary", "columns": ["rider"]}, ("rider = 31", "rider IN (5003, 40)", "rider = 31 AND city = 'ams'")),
    pytest.param(
        {"kind": "skipping", "columns": ["bloom(rider)", "minmax(fare)", "ngrams(note)", "values(city)"]},
        ("rider = 31", "note LIKE '%te 77%'", "city = 'rom'", "rider < 3 OR rider = 5003"),
        marks=pytest.mark.by_turn(8),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "predicates"), CASES, ids=["secondary", "skipping"])
def test_given_an_index_that_is_not_there_when_explained_then_what_is_skipped_is_what_the_index_skips(
    table: IndexedTable, given: dict[str, Any], predicates: tuple[str, ...]
) -> None:
    columns = ["rider", "city"]
    before = table.version
    told = {where: table.explain(where, columns, [{**given, "name": "x"}]) for where in predicates}
    opened = {where: open_table(table.uri).explain(where, columns, [{**given, "name": "x"}])
              for where in predicates if "LIKE" not in where}  # fmt: skip
    assert IndexedTable.load(table._handle.spark, table.uri).version == before and not table.indexes

    table.create_index("x", given["kind"], given["columns"], included=given.get("included"),
                       properties=given.get("properties"))  # fmt: skip

    def seen(one: Explanation) -> Any:
        used = {use.name for use in one.indexes}
        return one.files_read, one.files_skipped, one.bytes_read, one.bytes_skipped, used, one.record_keys

    for where in predicates:
        truth = table.explain(where, columns)
        assert seen(told[where]) == seen(truth), where
        assert told[where].bytes_skipped_bounds == (truth.bytes_skipped,) * 2
        assert told[where].hypothetical == ("x",) and "which is not there" in str(told[where])
        if where in opened:
            assert seen(opened[where]) == seen(truth)


REFUSED = [
    ({"kind": "zone", "columns": ["rider"]}, errors.InvalidInput, "zone"),
    ({"kind": "secondary", "columns": ["ridr"]}, errors.UnknownColumn, "ridr"),
    ({"kind": "secondary", "columns": ["rider"], "properties": {"shard": "3"}}, errors.InvalidInput, "shard"),
    ({"kind": "skipping", "columns": ["minmax(fare"]}, errors.InvalidInput, "minmax"),
    ({"kind": "skipping", "columns": ["minmax(fare)"], "properties": {"granularity": "row_group"}}, errors.InvalidInput,
     "granularity"),
    ({"kind": "covering", "columns": ["fare", "nope"]}, errors.InvalidInput, "nope|fare"),
    ({"kind": "secondary", "columns": ["rider"], "name": "a b"}, errors.InvalidName, "a b"),
    ({"columns": ["rider"]}, errors.InvalidInput, "kind"),
    ({"kind": "secondary", "colums": ["rider"]}, errors.InvalidInput, "colums"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "named"), REFUSED)
def test_given_an_index_that_cannot_be_when_explained_then_it_is_refused_as_its_creation_is(
    table: IndexedTable, given: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        table.explain("rider = 1", hypothetical=[given])
    with pytest.raises(error, match=named):
        open_table(table.uri).explain("rider = 1", hypothetical=[given])


@pytest.mark.by_turn(8)
def test_given_many_file_groups_when_some_are_tried_then_the_others_are_bounded(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_apps.advisor.sample.MOST_GROUPS", 8)
    [given] = [{"kind": "secondary", "columns": ["rider"]}]
    told = table.explain("rider = 31", hypothetical=[given])
    low, high = told.bytes_skipped_bounds
    assert low < told.bytes_skipped <= high and "in 8 of 12 file groups" in str(told)
    table.create_index("by_rider", **given)
    assert low <= table.explain("rider = 31").bytes_skipped <= high


@pytest.mark.by_turn(8)
def test_given_a_covering_index_that_is_not_there_then_it_reads_about_what_it_will_read(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id bigint, rider bigint, fare double", ["id"], buckets=2)
    table.upsert(spark.range(50_000).selectExpr("id", "pmod(hash(id), 10000) AS rider", "rand(1) AS fare"))
    given = {"kind": "covering", "columns": ["rider"], "included": ["fare"], "properties": {"layout": "ranges"}}
    predicates = ("rider BETWEEN 100 AND 1100", "rider = 77", "rider > 7000")
    told = {where: table.explain(where, ["fare"], [given]) for where in predicates}
    table.create_index("x", **given)
    for where in predicates:
        [foretold], [used] = told[where].indexes, table.explain(where, ["fare"]).indexes
        assert abs(used.bytes - foretold.bytes) <= 0.25 * (used.instead_of - used.bytes), where
        assert told[where].bytes_skipped == table.explain(where, ["fare"]).bytes_skipped
