"""Keys of a join's other side prune a scan as filters do: rows are those of Spark alone, and fewer files are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.optimizer import join_keys, many_keys
from tests.spark.local import session_with
from tests.spark_apps.optimizer.test_plain_queries import answers, read_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

FILES = 8
COLUMNS = "id bigint, part string, k int, n int"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of eight files, ``facts``, whose keys stand close together, and a keyed table, ``lake.trips``."""
    lake = tmp_path_factory.mktemp("join-keys")
    rows = spark.range(0, 400, 1, FILES).selectExpr(
        "id", "cast(id % 50 AS int) AS n", "IF(id IN (39, 79), NULL, cast(id / 5 AS int)) AS k", "concat('c', id) AS s",
        "date_add(DATE '2024-01-01', cast(id AS int)) AS d", "timestamp_micros(id * 1000000) AS ts",
        "cast(id AS decimal(12, 2)) AS x", "cast(id / 50 AS int) AS b",
    )  # fmt: skip
    rows.write.parquet(str(lake / "facts"))
    table = IndexedTable.register(spark, lake / "facts")
    table.create_index("by_k", kind="secondary", columns=["k"])
    table.create_index("by_n_b", kind="secondary", columns=["n", "b"])
    for column in ("s", "d", "ts", "x"):
        table.create_index(f"by_{column}", kind="compact", columns=[column])
    trips = IndexedTable.create(spark, lake / "lake" / "trips", COLUMNS, ["id"], ["part"], buckets=4)
    trips.upsert(spark.range(400).selectExpr("id", "concat('p', id % 2) AS part", "cast(id / 5 AS int) AS k", "1 AS n"))
    trips.create_index("by_k", kind="secondary", columns=["k"])
    trips.upsert(spark.range(3).selectExpr("id", "concat('p', id % 2) AS part", "77 AS k", "2 AS n"))
    trips.delete("id = 20")
    spark.range(0, 60, 1, 1).selectExpr("id AS k", "concat('g', id % 6) AS g").write.parquet(str(lake / "groups"))
    return lake


@pytest.fixture(autouse=True)
def views(spark: SparkSession, lake: Path) -> Iterator[None]:
    """The names of the tables; jobs for keys are worth their time here, however small the tables are."""
    spark.conf.set(join_keys.WORTH, "0")
    spark.conf.set(join_keys.MAX_SECONDS, "60")
    spark_apps.enable(spark, lake)
    spark.read.parquet(str(lake / "facts")).createOrReplaceTempView("t")
    spark.read.parquet(str(lake / "groups")).createOrReplaceTempView("groups")
    yield
    spark_apps.disable(spark)
    spark.conf.unset(join_keys.WORTH)
    spark.conf.unset(join_keys.MAX_SECONDS)


def check(spark: SparkSession, query: str, taken: list[str | None], folder: str = "facts") -> None:
    """Compare a query with itself without the rule, and the keys taken with those that should be.

    :param taken: by the scans, in any order. :param folder: of the source that is read by fewer files.
    """
    explained = spark_apps.explain(query, spark)
    assert sorted((scan.keys for scan in explained.scans), key=str) == sorted(taken, key=str), explained
    rows = spark.sql(query)
    answer = sorted(map(str, rows.collect()))
    files = read_of(rows, folder)[0]
    spark.conf.set(join_keys.ENABLED, "false")
    try:
        alone = spark.sql(query)
        assert answer == sorted(map(str, alone.collect())), query
        assert not any(scan.keys for scan in spark_apps.explain(query, spark).scans)
    finally:
        spark.conf.unset(join_keys.ENABLED)
    pruned = any(keys and "not taken" not in keys for keys in taken)
    if whole := read_of(alone, folder)[0]:  # else they are a subquery's, which no plan shows
        assert files < whole if pruned else files == whole, (files, query)


V = "(VALUES (3), (4), (3), (null), (99)) v(x)"

JOINS: dict[str, list[str | None]] = {
    f"SELECT * FROM t JOIN {V} ON t.k = v.x": ["3 of k"],
    f"SELECT * FROM {V} JOIN t ON v.x = t.k AND t.n > 17": ["3 of k"],
    f"SELECT * FROM t LEFT SEMI JOIN {V} ON t.k = v.x": ["3 of k"],
    f"SELECT * FROM t WHERE k IN (SELECT x FROM {V})": ["3 of k"],
    f"SELECT * FROM t WHERE EXISTS (SELECT 1 FROM {V} WHERE v.x = t.k AND v.x > t.n)": ["3 of k"],
    f"SELECT * FROM {V} LEFT JOIN t ON v.x = t.k": ["3 of k"],
    f"SELECT * FROM t RIGHT JOIN {V} ON v.x = t.k AND t.n > 16": ["3 of k"],
    f"SELECT * FROM {V} LEFT SEMI JOIN t ON v.x = t.k": ["3 of k"],
    f"SELECT * FROM {V} LEFT ANTI JOIN t ON v.x = t.k": ["3 of k"],
    f"SELECT x, x > 3 OR EXISTS (SELECT 1 FROM t WHERE t.k = v.x) FROM {V}": ["3 of k"],
    f"SELECT * FROM t LEFT JOIN {V} ON t.k = v.x": [None],
    f"SELECT * FROM {V} RIGHT JOIN t ON t.k = v.x": [None],
    f"SELECT * FROM t FULL JOIN {V} ON t.k = v.x": [None],
    f"SELECT * FROM t LEFT ANTI JOIN {V} ON t.k = v.x": [None],
    f"SELECT * FROM {V} WHERE x NOT IN (SELECT k FROM t WHERE k IS NOT NULL)": [None],
    f"SELECT id, n < 9 OR k IN (SELECT x FROM {V}) FROM t": [None],
    f"SELECT * FROM t JOIN {V} ON t.k <=> v.x": ["4 of k"],
    f"SELECT * FROM t JOIN {V} ON t.k < v.x": [None],
    f"SELECT * FROM t JOIN {V} ON t.k + 1 = v.x": [None],
    f"SELECT * FROM t JOIN {V} ON t.k = v.x OR t.id = 7": [None],
    "SELECT * FROM t JOIN (VALUES (7.5D)) v(x) ON t.k = v.x": [None],
    "SELECT * FROM t JOIN (VALUES (5000000000L), (4L)) v(x) ON t.k = v.x": ["1 of k"],
    "SELECT * FROM t JOIN (SELECT 1 AS x WHERE false) v ON t.k = v.x": [],
}


ALWAYS = list(JOINS)[:3] + [query for query in JOINS if "LEFT ANTI" in query or "FULL" in query or "<=>" in query]


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("query", ALWAYS)
def test_each_join_that_drops_rows_without_a_key_reads_files_with_one(spark: SparkSession, query: str) -> None:
    check(spark, query, JOINS[query])


@pytest.mark.by_turn(12)
@pytest.mark.parametrize("query", [query for query in JOINS if query not in ALWAYS])
def test_another_join_reads_files_with_a_key_where_it_drops_the_other_rows(spark: SparkSession, query: str) -> None:
    check(spark, query, JOINS[query])


TYPES: dict[str, tuple[str, str]] = {
    "t.s = v.x": ("v(x)", "('c7'), ('c8'), ('none')"),
    "t.d = v.x": ("v(x)", "(DATE '2024-01-03'), (DATE '2024-01-09')"),
    "t.ts = v.x": ("v(x)", "(TIMESTAMP '1970-01-01 00:00:07Z'), (TIMESTAMP '1969-12-31 19:00:09')"),
    "t.x = v.x": ("v(x)", "(CAST('7.00' AS decimal(12, 2))), (CAST('8.5' AS decimal(12, 2)))"),
    "t.n = v.x AND t.b <=> v.y": ("v(x, y)", "(7, 1), (8, 1), (60, 2), (null, 3), (9, null)"),
}


@pytest.mark.by_turn(8)
@pytest.mark.parametrize("condition", TYPES)
def test_keys_of_each_type_are_those_of_the_columns(spark: SparkSession, condition: str) -> None:
    names, values = TYPES[condition]
    taken = {"t.s = v.x": "3 of s", "t.d = v.x": "2 of d", "t.ts = v.x": "2 of ts", "t.x = v.x": "2 of x"}
    with session_with(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        query = f"SELECT t.id FROM t JOIN (VALUES {values}) {names} ON {condition}"
        assert answers(spark, query), "it finds something"
        check(spark, query, [taken.get(condition, "4 of n, b")])


BETWEEN: dict[str, list[str | None]] = {
    f"SELECT * FROM (SELECT k, count(*) FROM t GROUP BY k) g JOIN {V} ON g.k = v.x": ["3 of k"],
    f"SELECT * FROM (SELECT k + 1 AS k, count(*) FROM t GROUP BY k + 1) g JOIN {V} ON g.k = v.x": [None],
    f"SELECT * FROM (SELECT max(k) AS k FROM t) g JOIN {V} ON g.k = v.x": [None],
    f"SELECT * FROM (SELECT k, rank() OVER (PARTITION BY k ORDER BY id) r FROM t) JOIN {V} ON k = v.x": ["3 of k"],
    f"SELECT * FROM (SELECT k, rank() OVER (PARTITION BY n ORDER BY id) r FROM t) JOIN {V} ON k = v.x": [None],
    f"SELECT * FROM (SELECT k, id FROM t ORDER BY id LIMIT 300) JOIN {V} ON k = v.x": [None],
    f"SELECT * FROM (SELECT k AS a FROM t UNION ALL SELECT b FROM t) JOIN {V} ON a = v.x": ["3 of k", None],
    f"SELECT * FROM (SELECT k AS a, monotonically_increasing_id() i FROM t) JOIN {V} ON a = v.x": [None],
    f"SELECT * FROM t JOIN groups g ON t.n = g.k JOIN {V} ON t.k = v.x": ["3 of k"],
    f"SELECT * FROM t LEFT JOIN groups g ON t.n = g.k JOIN {V} ON t.k = v.x": ["3 of k"],
    f"SELECT * FROM groups g LEFT JOIN t ON t.n = g.k JOIN {V} ON t.k <=> v.x": [None],
    f"SELECT a.id, b.id FROM t a JOIN t b ON a.n = b.n JOIN {V} ON b.k = v.x WHERE a.id > 5": [None, "3 of k"],
    f"SELECT (SELECT count(*) FROM t JOIN {V} ON t.k = v.x) + count(*) FROM groups": ["3 of k"],
    "SELECT t.* FROM t JOIN (SELECT x + 1 AS y FROM (VALUES (3), (null)) v(x) WHERE x > 2) ON t.k = y": ["1 of k"],
    f"SELECT t.* FROM t JOIN (SELECT DISTINCT lower('C' || x) AS u FROM {V}) ON t.s = u": ["3 of s"],
    f"SELECT t.* FROM t JOIN (SELECT x, rand() AS r FROM {V}) v ON t.k = v.x WHERE r >= 0": ["3 of k"],
    "SELECT t.id FROM t JOIN (SELECT k + cast(rand() AS int) AS y FROM groups) ON t.k = y": [None],
    "SELECT t.id FROM t JOIN (SELECT k, rand() AS r FROM groups) g ON t.k = g.k WHERE r >= 0": ["60 of k"],
}


EASILY_LOST = [query for query in BETWEEN if "<=>" in query or "PARTITION BY n" in query or "a.n = b.n" in query]


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("query", EASILY_LOST)
def test_rows_that_are_easily_lost_on_the_way_to_a_scan_are_read(spark: SparkSession, query: str) -> None:
    check(spark, query, BETWEEN[query])


@pytest.mark.by_turn(12)
@pytest.mark.parametrize("query", [query for query in BETWEEN if query not in EASILY_LOST])
def test_keys_go_down_to_a_scan_as_far_as_its_rows_come_up_as_they_are(spark: SparkSession, query: str) -> None:
    check(spark, query, BETWEEN[query])


A, B = "(VALUES (1), (2), (3)) a(k)", "(VALUES (1, 11), (2, 12)) b(k, x)"
LEFT = f"(SELECT a.k, b.x FROM {A} LEFT JOIN {B} ON a.k = b.k) o"
RIGHT = f"(SELECT a.k, b.x FROM {B} RIGHT JOIN {A} ON a.k = b.k) o"
FULL = f"(SELECT a.k, b.x FROM {B} FULL JOIN {A} ON a.k = b.k) o"
CACHED = f"(SELECT a.k, b.x FROM kept a LEFT JOIN {B} ON a.k = b.k) o"
# Of one row Spark would make no group.
ZERO = "(SELECT d FROM (VALUES (double('-0.0')), (double('7.0'))) v(d) GROUP BY d) o"
NULL_EXTENDED: dict[str, list[str | None]] = {
    f"SELECT t.id FROM t JOIN {LEFT} ON t.k = coalesce(o.x, 30)": ["3 of k"],
    f"SELECT t.id FROM t JOIN {RIGHT} ON t.k = nvl(o.x, 30)": ["3 of k"],
    f"SELECT t.id FROM t JOIN {FULL} ON t.k = CASE WHEN o.x IS NULL THEN 30 ELSE o.x END": ["3 of k"],
    f"SELECT o.k, t.id FROM {LEFT} LEFT JOIN t ON t.k = ifnull(o.x, 30)": ["3 of k"],
    f"SELECT id FROM t WHERE s IN (SELECT concat_ws('', 'c3', x) FROM {LEFT})": ["3 of s"],
    f"SELECT id FROM t WHERE EXISTS (SELECT 1 FROM {RIGHT} WHERE if(x <=> NULL, 30, x) = t.k)": ["3 of k"],
    f"SELECT t.id FROM t JOIN {LEFT} ON t.n = coalesce(o.x, 7) AND t.b <=> nvl2(o.x, 0, 1)": ["3 of n, b"],
    f"SELECT t.id FROM t JOIN {LEFT} ON t.k <=> o.x": ["2 of k"],
    f"SELECT t.id FROM t JOIN {LEFT} ON t.k = o.x + 1": ["2 of k"],
    f"SELECT t.id FROM t JOIN {CACHED} ON t.k = coalesce(o.x, 30)": [None],
    "SELECT t.id FROM t JOIN (SELECT 30 AS k, count(*) FROM (VALUES (1)) v(x) WHERE x > 2) o ON t.k = o.k": [None],
    f"SELECT t.id FROM t JOIN {ZERO} ON t.k = if(string(o.d) = '0.0', 3, 4)": [None],
}


NULL_EXTENDED_ALWAYS = [
    query
    for query in NULL_EXTENDED
    if "FULL" in query or "concat_ws" in query or "nvl2" in query or "count" in query or ZERO in query
]


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("query", NULL_EXTENDED_ALWAYS)
def test_keys_that_only_a_row_without_a_match_has_are_taken_too(spark: SparkSession, query: str) -> None:
    check(spark, query, NULL_EXTENDED[query])


@pytest.mark.by_turn(8)
@pytest.mark.parametrize("query", [query for query in NULL_EXTENDED if query not in NULL_EXTENDED_ALWAYS])
def test_keys_of_rows_that_joins_and_groups_make_are_taken_where_these_rows_are(
    spark: SparkSession, query: str
) -> None:
    kept = spark.range(1, 4).selectExpr("cast(id AS int) AS k").cache()
    kept.count()
    kept.createOrReplaceTempView("kept")
    try:
        check(spark, query, NULL_EXTENDED[query])
    finally:
        kept.unpersist()


@pytest.mark.by_turn(16)
def test_keyed_tables_and_their_frames_keep_rows_of_a_key_without_a_match(spark: SparkSession, lake: Path) -> None:
    IndexedTable.load(spark, lake / "lake" / "trips").frame().createOrReplaceTempView("frame")
    for name in ("lake.trips", "frame"):
        query = f"SELECT f.id FROM {name} f JOIN {LEFT} ON f.k = coalesce(o.x, 30)"
        check(spark, query, ["3 of k"], folder="trips")
        assert len(answers(spark, query)) == 15


def keys_of_scans(query: Any, spark: SparkSession | None = None) -> list[str | None]:
    return [scan.keys for scan in spark_apps.explain(query, spark).scans]


def test_a_cached_frame_is_asked_for_keys_once_it_is_in_memory(spark: SparkSession) -> None:
    cached = spark.table("groups").where("g = 'g3'").cache()
    try:
        cached.createOrReplaceTempView("kept")
        query = "SELECT t.id FROM t JOIN kept ON t.k = kept.k"
        assert keys_of_scans(query, spark) == [
            "keys of k not taken: the cached frame of the other side is not in memory"
        ]
        cached.count()
        check(spark, query, ["10 of k"])
        other = spark.range(20).selectExpr("cast(rand() * 80 AS int) AS k").cache()
        other.count()
        other.createOrReplaceTempView("kept")
        assert "another one if it were made anew" in str(keys_of_scans(query, spark))
        other.unpersist()
    finally:
        cached.unpersist()


FILES_SIDE = "SELECT t.id FROM t JOIN groups g ON t.k = g.k"


def test_a_small_side_of_files_is_read_for_its_keys_and_within_its_limits(spark: SparkSession) -> None:
    check(spark, f"{FILES_SIDE} WHERE g.g = 'g3'", ["10 of k"])
    check(spark, FILES_SIDE, ["60 of k"])
    check(spark, "SELECT g.k, t.id FROM groups g LEFT JOIN t ON t.k = g.k", ["60 of k"])
    for name, value, words in (
        (join_keys.MAX_BYTES, "1", "and 1 is the limit"),
        (join_keys.MAX_SECONDS, "0", "were spent on keys"),
        (join_keys.MAX_SECONDS, "0.001", "not there after 1 ms"),
    ):
        with session_with(spark, {name: value}):
            assert words in str(keys_of_scans(FILES_SIDE, spark)), name
            assert len(answers(spark, FILES_SIDE)) == 298


ALL_KEYS = f"(VALUES {', '.join(f'({n}L)' for n in range(-20, 80))}, (null), (5000000000L)) many(x)"
MANY_KEYS = {
    f"{FILES_SIDE} WHERE g.k < 12": "12 of k, looked up by a job",
    f"{FILES_SIDE} AND t.b <=> g.k DIV 10 WHERE g.k BETWEEN 3 AND 19": "17 of k, b, looked up by a job",
    "SELECT t.id FROM t LEFT SEMI JOIN (SELECT IF(k BETWEEN 50 AND 55, k, null) AS x FROM groups) g "
    "ON t.k <=> g.x": "60 of k, looked up by a job",
    f"SELECT t.id FROM t JOIN {ALL_KEYS} ON t.k = many.x": "keys of k not taken: they are more than 5, and nearly all "
    "files hold one of them",
}


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("query", MANY_KEYS)
def test_many_keys_are_looked_up_by_a_job_unless_nearly_all_files_hold_one(
    spark: SparkSession, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_keys, "MAX_KEYS", 5)

    check(spark, query, [MANY_KEYS[query]])


@pytest.mark.by_turn(1)
def test_many_keys_prune_nothing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_keys, "MAX_KEYS", 5)
    monkeypatch.setattr(many_keys, "MAX_MANY_KEYS", 11)

    check(
        spark, f"{FILES_SIDE} WHERE g.k < 12", ["keys of k not taken: they are more than 5, and they are more than 11"]
    )


@pytest.mark.by_turn(4)
def test_a_file_that_came_since_is_read_whatever_a_job_finds_of_many_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(0, 80, 1, 4).selectExpr("id", "cast(id AS int) AS k")
    rows.write.parquet(str(tmp_path / "more"))
    IndexedTable.register(spark, tmp_path / "more").create_index("by_k", kind="secondary", columns=["k"])
    rows.where("id = 3").write.mode("append").parquet(str(tmp_path / "more"))
    spark_apps.enable(spark, sources=[str(tmp_path / "more")])
    spark.read.parquet(str(tmp_path / "more")).createOrReplaceTempView("more")
    monkeypatch.setattr(join_keys, "MAX_KEYS", 5)
    query = "SELECT m.id FROM more m JOIN groups g ON m.k = g.k WHERE g.k < 12"

    check(spark, query, ["12 of k, looked up by a job"], "more")
    assert len(answers(spark, query)) == 13


@pytest.fixture(scope="module")
def kinds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of four files that other kinds of indexes cover, and one that came since."""
    home = tmp_path_factory.mktemp("kinds")
    rows = spark.range(0, 80, 1, 4).selectExpr(
        "id", "cast(id AS int) AS c", "cast(id AS int) AS m", "concat('s', id) AS s", "concat('b', id) AS b",
        "IF(id IN (39, 79), NULL, cast(id AS smallint)) AS n",
    )  # fmt: skip
    rows.write.parquet(str(home / "more"))
    table = IndexedTable.register(spark, home / "more")
    table.create_index("packed", kind="compact", columns=["c"])
    table.create_index("kept", kind="skipping", columns=["minmax(m)", "values(s)", "bloom(b)", "minmax(n)"])
    rows.where("id = 3").coalesce(1).write.mode("append").parquet(str(home / "more"))
    return home


# Spark gives a scan the filters of the side that it is joined with: these are none by which an index prunes.
OTHER_KINDS = {
    "SELECT x.id FROM x JOIN groups g ON x.c = g.k WHERE g.k % 60 < 12": ("12 of c", 2),
    "SELECT x.id FROM x JOIN groups g ON x.m = g.k WHERE g.k % 60 IN (17, 18, 19, 20, 38, 39)": ("6 of m", 3),
    "SELECT x.id FROM x JOIN groups g ON x.s = concat('s', g.k) WHERE g.k BETWEEN 37 AND 42": ("6 of s", 3),
    "SELECT x.id FROM x JOIN groups g ON x.b = concat('b', g.k) WHERE g.k BETWEEN 21 AND 32": ("12 of b", 2),
    "SELECT x.id FROM x LEFT SEMI JOIN (SELECT IF(k BETWEEN 50 AND 55, k, null) AS v FROM groups) g ON x.n <=> g.v": (
        "60 of n",
        4,
    ),
}


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("query", OTHER_KINDS)
def test_many_keys_are_looked_up_in_indexes_that_keep_something_of_each_file(
    spark: SparkSession, kinds: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_apps.enable(spark, sources=[str(kinds / "more")])
    spark.read.parquet(str(kinds / "more")).createOrReplaceTempView("x")
    monkeypatch.setattr(join_keys, "MAX_KEYS", 5)
    keys, files = OTHER_KINDS[query]

    check(spark, query, [f"{keys}, looked up by a job"], "more")
    rows = spark.sql(query)
    rows.collect()
    assert read_of(rows, "more")[0] == files, "those with a key, and the one that came since"


@pytest.mark.by_turn(8)
@pytest.mark.parametrize(("column", "name"), [("c", "packed"), ("b", "kept")])
def test_a_file_of_an_index_that_is_gone_when_many_keys_are_looked_up_leaves_the_scan_whole(
    spark: SparkSession, kinds: Path, column: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_apps.enable(spark, sources=[str(kinds / "more")])
    spark.read.parquet(str(kinds / "more")).createOrReplaceTempView("x")
    monkeypatch.setattr(join_keys, "MAX_KEYS", 2)
    key = "g.k" if column == "c" else "concat('b', g.k)"
    query = f"SELECT x.id FROM x JOIN groups g ON x.{column} = {key} WHERE g.k % 60 < 12"
    words = f"keys of {column} not taken: they are more than 2, and the index '{name}' cannot be read"
    files = [file for file in (kinds / "_indexes").rglob("*") if file.suffix in (".parquet", ".skipping")]
    whole = {file: file.read_bytes() for file in files if "indexes" in file.parts}
    try:
        for file, content in whole.items():
            file.write_bytes(bytes(len(content)))
        assert str(keys_of_scans(query, spark)[0]).startswith(words)
        monkeypatch.setattr(many_keys.ManyKeys, "_holding", lambda *_: frozenset())  # as if it was whole until then
        assert str(keys_of_scans(query, spark)[0]).startswith(words)
        assert len(answers(spark, query)) == 13
    finally:
        for file, content in whole.items():
            file.write_bytes(content)


def test_a_side_that_takes_longer_than_it_may_spare_is_not_looked_into(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.unset(join_keys.WORTH)
    monkeypatch.setattr(join_keys, "plan_seconds", lambda plan: 0.5)

    assert "finding them takes about 0.3 s, and reading what is left 0.5 s" in str(keys_of_scans(FILES_SIDE, spark))


@pytest.mark.by_turn(1)
def test_explain_statements_run_no_job_for_keys(spark: SparkSession) -> None:
    def jobs() -> int:
        context: Any = spark.sparkContext
        return int(context._jsc.sc().dagScheduler().numTotalJobs())

    query, before = f"{FILES_SIDE} WHERE g.g = 'g3'", jobs()
    spark.sql(f"EXPLAIN {query}").collect()
    spark.sql(query).explain()

    assert jobs() == before
    rows = spark.sql(query)
    rows.collect()
    assert read_of(rows, "facts")[0] < FILES, "the plan that is run has keys"


def test_what_fails_leaves_the_scan_as_its_own_filters_do(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_keys, "keys_of", lambda *_: 1 / 0)

    assert len(answers(spark, f"SELECT * FROM t JOIN {V} ON t.k = v.x")) == 15
    assert keys_of_scans(f"SELECT * FROM t JOIN {V} ON t.k = v.x", spark) == [
        "not taken: ZeroDivisionError: division by zero"
    ]


@pytest.mark.by_turn(16)
def test_keyed_tables_prune_by_keys_and_give_them_at_their_version(spark: SparkSession, lake: Path) -> None:
    check(spark, f"SELECT * FROM lake.trips t JOIN {V} ON t.k = v.x", ["3 of k"], folder="trips")
    check(spark, f"SELECT * FROM lake.trips t JOIN {V} ON t.id = v.x", ["3 of id"], folder="trips")
    check(spark, "SELECT * FROM lake.trips t JOIN (VALUES ('p1')) v(p) ON t.part = v.p", ["1 of part"], folder="trips")
    own = "SELECT t.id, o.id FROM lake.trips o JOIN t ON o.k = t.k WHERE o.id IN (1, 2, 30)"
    check(spark, own, ["2 of k", None], folder="facts")
    versions = (
        "SELECT a.id, b.k FROM lake.trips VERSION AS OF 1 a JOIN lake.trips b ON a.k = b.k WHERE a.id IN (1, 300)"
    )
    check(spark, versions, ["2 of k", None], folder="trips")


def test_a_leaf_that_stands_twice_is_read_for_both_places(spark: SparkSession) -> None:
    facts, values = spark.table("t"), spark.sql("SELECT x FROM (VALUES (3), (18), (18)) v(x)")
    counts = {
        facts.join(values, facts.k == values.x).select("id").unionAll(facts.select("id")): 415,
        facts.select("id").unionAll(facts.join(values, facts.k == values.x).select("id")): 415,
        facts.select("k").unionAll(values.join(facts, values.x == facts.k, "left_semi")): 403,
        facts.join(values, facts.k == values.x, "left_semi").join(values, facts.n == values.x, "left_semi"): 1,
    }
    for rows, count in counts.items():
        assert len(rows.collect()) == count
        assert rows.count() == count
