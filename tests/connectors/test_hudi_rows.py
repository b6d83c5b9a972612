"""Indexes of Hudi tables whose slices change: by writes, by Hudi's own services, by another table at the place."""

from __future__ import annotations

from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable, sql
from spark_apps.storage.errors import OtherFormat, TableNotFound
from tests.connectors.comparing import compared, learning, unlike_its_list
from tests.connectors.hudi_tables import key, make, rows_of, write

FILES, ROWS = 4, 400


def test_given_a_log_that_grew_then_its_slice_is_read_until_the_next_refresh(hudi, tmp_path):
    path = str(tmp_path / "mor")
    make(hudi, path, "mor", FILES, ROWS)
    hudi.sql(f"CREATE TABLE hudi_rows USING hudi LOCATION '{path}'")
    table = IndexedTable.register(hudi, "hudi_rows", record_key=["id"])
    sql.run(hudi, "CREATE INDEX by_key ON TABLE default.hudi_rows (key)")
    asked = f"SELECT * FROM hudi_rows WHERE key = {key(217, ROWS)}"
    assert compared(hudi, asked, path) == [(FILES, 1)]
    first = hudi.sql("SELECT max(_hoodie_commit_time) FROM hudi_rows").first()[0]

    hudi.sql(f"UPDATE hudi_rows SET key = {key(217, ROWS)} WHERE id = 5")
    hudi.sql("DELETE FROM hudi_rows WHERE id = 330")
    assert compared(hudi, asked, path) == [(FILES, 3)]
    table = IndexedTable.load(hudi, path)
    assert sorted(row.id for row in table.read(f"key = {key(217, ROWS)}").collect()) == [5, 217]
    assert table.read().count() == ROWS - 1
    table.refresh_index("by_key")
    assert table.verify("by_key").ok
    assert compared(hudi, asked, path) == [(FILES, 2)]

    def as_of(**options: str):
        return lambda: hudi.read.format("hudi").options(**options).load(path).where(f"key = {key(217, ROWS)}")

    # The slices of then, and base files alone, are others than those that the index covers.
    assert compared(hudi, as_of(**{"as.of.instant": first}), path) == [(FILES, 3)]
    gone = key(330, ROWS)
    then = lambda: hudi.read.format("hudi").option("as.of.instant", first).load(path).where(f"key = {gone}")  # noqa: E731
    assert compared(hudi, then, path) == [(FILES, 2)] and then().count() == 1
    assert compared(hudi, as_of(**{"hoodie.datasource.query.type": "read_optimized"}), path) == [(FILES, 3)]
    # Old rows beside the new ones.
    assert compared(hudi, as_of(**{"hoodie.datasource.merge.type": "skip_merge"}), path) == [None]
    spark_apps.disable(hudi)
    hudi.sql("DROP TABLE hudi_rows")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_given_hudis_own_services_between_index_and_query_then_answers_stay_right(hudi, tmp_path, kind):
    path = str(tmp_path / kind)
    make(hudi, path, kind, FILES, ROWS)
    hudi.sql(f"CREATE TABLE hudi_served USING hudi LOCATION '{path}'")
    table = IndexedTable.register(hudi, path, "hudi", record_key=["id"])
    for index, columns in {"record": [], "secondary": ["key"], "skipping": ["values(n)"]}.items():
        table.create_index(index, index, columns)
    asked = f"SELECT * FROM hudi_served WHERE key = {key(217, ROWS)}"

    def call(statement: str) -> None:
        spark_apps.disable(hudi)
        hudi.sql(f"CALL {statement}").collect()
        hudi.sql("REFRESH TABLE hudi_served")

    def kept() -> int:
        [scan] = compared(hudi, asked, path)
        assert scan is not None and scan[0] >= scan[1] >= 1
        return scan[1]

    def refreshed(learned: str) -> None:
        table = IndexedTable.load(hudi, path)
        metrics = table.refresh_index("secondary").metrics
        assert learned in metrics, metrics
        assert unlike_its_list(hudi, path) == []
        assert table.verify("secondary").ok

    savepoint = hudi.sql("SELECT max(_hoodie_commit_time) FROM hudi_served").first()[0]
    call(f"create_savepoint(table => 'hudi_served', commit_time => '{savepoint}')")
    hudi.sql("UPDATE hudi_served SET n = n + 1 WHERE id IN (3, 217)")
    assert kept() == 2
    if kind == "mor":
        option = "hoodie.compact.inline.max.delta.commits=1"
        call(f"run_compaction(op => 'scheduleAndExecute', table => 'hudi_served', options => '{option}')")
        assert kept() == 2
    refreshed("source.commits")
    assert kept() == 1
    hudi.sql("UPDATE hudi_served SET n = n + 1 WHERE id IN (3, 330)")
    hudi.sql("DELETE FROM hudi_served WHERE id IN (4, 331)")
    refreshed("source.commits")
    hudi.sql(f"UPDATE hudi_served SET key = {key(217, ROWS)} WHERE id = 5")
    last = hudi.sql("SELECT max(_hoodie_commit_time) FROM hudi_served").first()[0]
    call(f"rollback_to_instant(table => 'hudi_served', instant_time => '{last}')")
    assert kept() == 1
    call("run_clustering(table => 'hudi_served', op => 'scheduleAndExecute', order => 'key')")
    assert compared(hudi, asked, path) == [None]  # no slice is one that the index knows
    refreshed("source.compared")
    compared(hudi, asked, path)  # all rows are in one slice
    call(f"rollback_to_savepoint(table => 'hudi_served', instant_time => '{savepoint}')")
    assert hudi.sql("SELECT n FROM hudi_served WHERE id = 217").first()[0] == 217 % 97
    compared(hudi, asked, path)
    refreshed("source.compared")
    assert kept() == 1
    spark_apps.disable(hudi)
    hudi.sql("DROP TABLE hudi_served")


def test_given_a_table_made_anew_at_the_place_then_it_is_another_one(hudi, tmp_path):
    path = str(tmp_path / "t")
    make(hudi, path, "cow", 2, 40)
    table = IndexedTable.register(hudi, path, "hudi")
    table.create_index("by_key", "secondary", ["key"])
    with pytest.raises(OtherFormat, match="a Hudi table"):
        IndexedTable.register(hudi, path, index_root=str(tmp_path / "plain"))

    (tmp_path / "t").rename(tmp_path / "before")
    make(hudi, path, "cow", 2, 40)
    with pytest.raises(TableNotFound, match="is gone"):
        IndexedTable.load(hudi, path).read().count()
    assert compared(hudi, lambda: hudi.read.format("hudi").load(path).where("key = 3"), path) == [None]


def test_given_partitions_and_another_schema_then_those_that_are_asked_for_are_listed(hudi, tmp_path):
    path = str(tmp_path / "p")
    partitioned = {"hoodie__datasource__write__partitionpath__field": "p",
                   "hoodie__datasource__write__hive_style_partitioning": "true"}  # fmt: skip
    make(hudi, path, "cow", FILES, 1200, **partitioned)
    hudi.sql(f"CREATE TABLE hudi_parts USING hudi LOCATION '{path}'")
    table = IndexedTable.register(hudi, path, "hudi", record_key=["id"])
    table.create_index("by_key", "secondary", ["key"])
    table.create_index("by_p", "secondary", ["p"])
    assert compared(hudi, f"SELECT * FROM hudi_parts WHERE key = {key(317, 1200)}", path) == [(6, 1)]
    ((files, kept),) = compared(hudi, f"SELECT * FROM hudi_parts WHERE p = 'p0' AND key = {key(317, 1200)}", path)
    assert (files, kept) == (2, 1)
    assert table.read("p = 'p1'").count() == 400

    wider = rows_of(hudi, 1200, 1210, 1200).selectExpr("id", "key", "n", "rider", "p", "nullif('x', rider) AS more")
    write(wider, path, "upsert", "cow", **partitioned)
    hudi.sql("REFRESH TABLE hudi_parts")
    frame = lambda: hudi.read.format("hudi").load(path)  # noqa: E731
    assert compared(hudi, lambda: frame().where(f"key = {key(317, 1200)}"), path) == [(7, 2)]
    table = IndexedTable.load(hudi, path)
    table.create_index("by_more", "secondary", ["more"])
    table.refresh_index("by_key")
    assert compared(hudi, lambda: frame().where("more = 'x' AND key >= 0"), path) == [(7, 1)]
    assert table.read("more IS NULL").count() == 1200
    spark_apps.disable(hudi)
    hudi.sql("DROP TABLE hudi_parts")


def slices_listed(source: Any) -> int:
    """Return of how many folders Hudi's reader has the list of files."""
    owner, names = source._last.table, ("index", "cachedAllInputFileSlices")
    for name in names:
        kind = owner.getClass()
        while all(field.getName() != name for field in kind.getDeclaredFields()):
            kind = kind.getSuperclass()
        field = kind.getDeclaredField(name)
        field.setAccessible(True)
        owner = field.get(owner)
    return 0 if owner is None else len(owner)


def test_given_one_slice_more_then_learning_of_it_costs_the_same_whatever_the_table_holds(hudi, tmp_path):
    costs, asked, listed = [], [], []

    def followed(source: Any) -> None:
        asked.append(source)
        listed.append(slices_listed(source))

    for files in (2, 40):
        path = str(tmp_path / f"t{files:02d}")
        make(hudi, path, "cow", files, ROWS)
        table = IndexedTable.register(hudi, path, "hudi", record_key=["id"])
        write(rows_of(hudi, ROWS, ROWS + 1, ROWS), path, "insert", "cow")
        costs.append(learning(hudi, table, followed))
    assert listed == [0, 0] and [slices_listed(source) for source in asked] == [1, 1]
    few, many = costs
    assert (few.added, few.calls) == (many.added, many.calls) and few.added == 1
    assert abs(few.bytes - many.bytes) < 200, "but for the digits of its counts"
