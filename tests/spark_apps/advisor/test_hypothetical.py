"""Plans with indexes that are not there, beside plans with the same indexes built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable, open_table
from spark_apps.advisor.hypothetical import definition_of, trial_of
from spark_apps.advisor.sample import read_sample
from spark_apps.query.explain import Explanation
from spark_apps.storage import errors

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

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
        marks=pytest.mark.by_turn(16),
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
    ({"kind": "skipping", "columns": ["minmax(fare)"], "properties": {"granularity": "rows"}}, errors.InvalidInput,
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


@pytest.mark.by_turn(16)
def test_given_many_file_groups_when_some_are_tried_then_the_others_are_bounded(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_GROUPS", "SMALL_GROUPS"):
        monkeypatch.setattr(f"spark_apps.advisor.sample.{limit}", 8)
    [given] = [{"kind": "secondary", "columns": ["rider"]}]
    told = table.explain("rider = 31", hypothetical=[given])
    low, high = told.bytes_skipped_bounds
    assert low < told.bytes_skipped <= high and "in 8 of 12 file groups" in str(told)
    table.create_index("by_rider", **given)
    assert low <= table.explain("rider = 31").bytes_skipped <= high


def test_given_parts_of_expressions_floats_and_row_groups_that_are_not_there_then_they_hold_and_skip_what_they_will(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    for number in range(6):
        values = range(number * 1_000, number * 1_000 + 1_000)
        columns = {
            "id": list(values),
            "x": [float("nan") if value % 997 == 3 else value / 7 for value in values],
            "city": [f"City {value // 500}" for value in values],
            "note": [f"note {value * 7919 % 6007}" for value in values],
        }
        pq.write_table(pa.table(columns), tmp_path / "t" / f"{number}.parquet", row_group_size=250)
    table = IndexedTable.register(spark, tmp_path / "t", format="parquet")
    parts = ["minmax(x)", "values(lower(city))", "ngrams(note)", "bloom(upper(note))"]
    given: dict[str, Any] = {
        "name": "x", "kind": "skipping", "columns": parts, "properties": {"granularity": "row_group"},
    }  # fmt: skip
    predicates = (
        "x BETWEEN 120 AND 130", "x < 90", "lower(city) = 'city 3'", "note LIKE '%te 591%'", "upper(note) = 'NOTE 77'",
        "lower(city) IN ('city 1', 'rom') AND x < 90", "x = double('NaN')",
    )  # fmt: skip
    told = {where: table.explain(where, ["id"], [given]) for where in predicates}
    sample = read_sample(table.snapshot, ["x", "city", "note"])
    about = trial_of(table.snapshot, definition_of(table.snapshot, given), sample).bytes
    with pytest.raises(errors.InvalidInput, match="only Spark knows"):
        open_table(table.uri).explain("x < 90", ["id"], [given])

    table.create_index(**given)
    assert about == pytest.approx(table.index_status("x").bytes, rel=0.05)
    for where in predicates:
        truth = table.explain(where, ["id"])
        assert told[where].bytes_skipped == truth.bytes_skipped > 0 or where.startswith("x = "), where
        assert (told[where].files_read, told[where].bytes_read) == (truth.files_read, truth.bytes_read), where


def test_given_many_alike_files_of_which_some_are_read_or_parts_of_some_then_the_size_told_is_about_that_of_the_index(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    for number in range(200):
        values = range(number * 200, number * 200 + 200)
        columns = {
            "rider": [value * 7919 % 100_003 for value in values],
            "city": [f"city {value % 9}" for value in values],
        }
        pq.write_table(pa.table(columns), tmp_path / "t" / f"{number:03}.parquet", row_group_size=50)
    table = IndexedTable.register(spark, tmp_path / "t", format="parquet")
    given: dict[str, Any] = {"name": "x", "kind": "skipping", "columns": ["bloom(rider)", "values(city)"]}
    definition, told = definition_of(table.snapshot, given), {}
    monkeypatch.setattr("spark_apps.advisor.sample.SMALL_GROUPS", 100)
    for most_bytes in (2**27, 8_000):
        sample = read_sample(table.snapshot, ["rider", "city"], most_bytes)
        told[len(sample.groups), sample.depth] = trial_of(table.snapshot, definition, sample).bytes
    table.create_index(**given)
    assert told == {key: pytest.approx(table.index_status("x").bytes, rel=0.25) for key in told}
    assert [*told] == [(64, 1.0), (8, 10 / 32)]


@pytest.mark.by_turn(1)
def test_given_long_texts_that_take_little_in_files_then_no_more_is_read_than_memory_has(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_sample(table.snapshot, ["note"]).whole
    rows = read_sample(table.snapshot, ["note"]).rows
    monkeypatch.setattr("spark_apps.advisor.sample.MAX_HELD_BYTES", rows.nbytes // 3)
    some = read_sample(table.snapshot, ["note"])
    assert not some.small and some.rows.nbytes < rows.nbytes / 2
    told = table.explain("rider = 31", hypothetical=[{"kind": "covering", "columns": ["rider"], "included": ["note"]}])
    assert told.hypothetical


BUILT: list[dict[str, Any]] = [
    {"kind": "covering", "columns": ["rider"], "included": ["fare"], "properties": {"layout": "ranges"}},
    {"kind": "covering", "columns": ["city"], "included": ["fare", "rider"], "properties": {"buckets": "4"}},
    {"kind": "secondary", "columns": ["rider"]},
    {"kind": "compact", "columns": ["rider"]},
]


@pytest.mark.by_turn(16)
def test_given_indexes_that_are_not_there_then_they_hold_and_read_about_what_they_will(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddl = "id bigint, rider bigint, fare decimal(12,2), city string"
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], buckets=32)
    table.upsert(
        spark.range(150_000).selectExpr(
            "id", "pmod(hash(id), 50000) AS rider", "cast(rand(1) * 100000 AS decimal(12,2)) AS fare",
            "concat('city ', id % 7) AS city",
        )
    )  # fmt: skip
    predicates = ("rider BETWEEN 100 AND 1100", "rider = 77", "city = 'city 3'", "rider IN (5, 6, 7000)")

    def told() -> list[dict[str, Explanation]]:
        return [{where: table.explain(where, ["fare"], [one]) for where in predicates} for one in BUILT]

    of_all, of_some = told(), []
    with monkeypatch.context() as smaller:
        smaller.setattr("spark_apps.advisor.sample.SMALL_GROUPS", 0)
        of_some = told()
    for number, one in enumerate(BUILT):
        table.create_index(f"x{number}", one["kind"], one["columns"], included=one.get("included"),
                           properties=one.get("properties"))  # fmt: skip
        for where in predicates:
            truth = IndexedTable.load(spark, table.uri).explain(where, ["fare"])
            for foretold, within in ((of_all[number][where], 0.1), (of_some[number][where], 0.25)):
                assert [use.replaces for use in foretold.indexes] == [use.replaces for use in truth.indexes], where
                reads, read = (sum(use.bytes for use in each.indexes) for each in (foretold, truth))
                assert abs(reads - read) <= within * max(read, 1), (one, where, reads, read)
            assert of_all[number][where].bytes_skipped == truth.bytes_skipped
        table.drop_index(f"x{number}")
