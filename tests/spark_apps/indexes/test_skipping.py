"""The skipping index on keyed tables and sources: what it rules out, and that what it rules out holds no match."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_apps import IndexedTable, sql
from spark_apps.actions.indexing import verify
from spark_apps.engine.spark_versions import to_arrow
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.skipping import collecting
from spark_apps.indexes.skipping.definition import Settings, parts_of
from spark_apps.indexes.skipping.records import alike
from spark_apps.layout.hashing import bucket_id
from spark_apps.query.planning import filter_of, plan_read
from spark_apps.storage import errors
from tests.spark.local import session_with
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files, local

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = (
    "id bigint, s string, n int, f double, r float, d date, ts timestamp, z timestamp_ntz, b boolean, x binary, "
    "a decimal(12,2), w decimal(30,4), t tinyint, p struct<u:struct<i:int,s:string>>"
)
COLUMNS = (
    "minmax(s)", "bloom(s)", "ngrams(s)", "values(lower(s))", "minmax(n)", "bloom(n)", "minmax(f)", "values(f)",
    "bloom(f)", "bloom(r)", "minmax(r)", "values(d)", "minmax(to_date(ts))", "bloom(ts)", "minmax(z)",
    "bloom(z)", "values(b)",
    "bloom(x)", "minmax(x)", "bloom(a)", "minmax(a)", "bloom(w)", "values(w)", "minmax(n * t)", "values(t)",
    "minmax(p.u.i)", "bloom(p.u.s)", "nulls(p)", "counts(n)", "ngrams(p.u.s)",
)  # fmt: skip
TEXTS = ("", "a", "A", "abc", "ABC def", "Straße", "STRASSE", "İstanbul", "ÄÖÜ grün", "ä", "a_b", "\U0001f600 smile",
         "long " * 40, "long " * 40 + "z", "İ", "ı", "ﬃ")  # fmt: skip
FLOATS = (math.nan, 0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, 1e300)
Row = tuple[Any, ...]


def _row(rng: random.Random, key: int, part: int) -> Row:
    """A row, whose values are of a part of all, so that some files can be ruled out."""

    def some(values: Sequence[Any], share: float = 0.15) -> Any:
        return None if rng.random() < share else values[rng.randrange(part % 3, len(values), 3)]

    day = some(range(40))
    moment = None if day is None else dt.datetime(2024, 3, 1) + dt.timedelta(days=day, hours=rng.randrange(24))
    number, text = some(range(-9, 30)), some(TEXTS)
    return (
        key, text, number, some(FLOATS), some(FLOATS[:7]), None if day is None else dt.date(2024, 2, 20 + day % 9),
        None if moment is None else moment.replace(tzinfo=dt.UTC), moment, some((True, False, True)),
        None if text is None else text.encode()[: part + 3],
        None if number is None else Decimal(number).scaleb(-1).quantize(Decimal("0.01")),
        None if number is None else Decimal(number * 10**20), some(range(-3, 9)),
        some(({"u": {"i": number, "s": text}}, {"u": None}, {"u": {"i": None, "s": text}})),
    )  # fmt: skip


def _predicates(rng: random.Random, count: int) -> list[str]:
    def quoted(text: str) -> str:
        return f"'{text}'"

    def one() -> str:
        text, number, float_ = rng.choice(TEXTS), rng.randrange(-10, 31), rng.choice(FLOATS)
        op = rng.choice(("=", "=", "=", "<=>", "<", ">", "<=", ">=", "<>"))
        cut = text[rng.randrange(len(text) + 1) :][: rng.choice((2, 4, 9))]
        day = dt.date(2024, 2, 18) + dt.timedelta(days=rng.randrange(60))
        literal = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(float_, str(float_).replace("nan", "NaN"))
        return rng.choice((
            f"s {op} {quoted(text)}", f"s IN ({quoted(text)}, {quoted(rng.choice(TEXTS))})", f"s LIKE '%{cut}%'",
            f"s LIKE '{cut}%'", f"s NOT LIKE '%{cut}%'", f"startswith(s, '{cut}')", f"contains(s, '{cut}')",
            f"endswith(s, '{cut}')", "s LIKE '%ng lo%z'", "s IS NULL", f"lower(s) {op} {quoted(text.lower())}",
            f"lower(s) {op} {quoted(text)}", f"upper(s) {op} {quoted(text)}", f"lower(s) LIKE '{cut}%'",
            f"n {op} {number}", f"n IN ({number}, {number + 3}, NULL)", f"n BETWEEN {number} AND {number + 2}",
            f"f {op} double('{literal}')", f"f IN (double('{literal}'), 7.5D)", f"r {op} float('{literal}')",
            f"d {op} DATE'{day}'", f"to_date(ts) {op} DATE'{day}'", f"CAST(ts AS DATE) IN (DATE'{day}')",
            f"ts {op} TIMESTAMP'{day} 05:00:00'", f"z {op} TIMESTAMP_NTZ'{day} 05:00:00'", "b", "NOT b", "b IS NULL",
            f"x {op} X'{text.encode()[:4].hex()}'", f"a {op} {number / 10}", f"w {op} {number}{20 * '0'}.0",
            f"n * t {op} {number}", f"t*n {op} {number}", f"t {op} {number}", f"p.u.i {op} {number}", "p IS NULL",
            f"p.u.s {op} {quoted(text)}", f"p.u.s LIKE '%{cut}%'", "p.u.s IS NOT NULL", f"length(s) {op} 3",
        ))  # fmt: skip

    predicates = []
    for _ in range(count):
        where = one()
        if rng.random() < 0.4:
            where = f"{rng.choice(('', 'NOT '))}({where} {rng.choice(('AND', 'OR'))} {one()})"
        predicates.append(where)
    return predicates


def _compare(spark: Any, table: IndexedTable, rows: dict[int, Row], predicates: Sequence[str]) -> int:
    """Return how many file groups were ruled out over all predicates, none of which has a match in them.

    Spark evaluates all predicates on the rows in one job, without any file or index.
    """
    scanned = frame(spark, list(rows.values()), f"{DDL}, g int")
    matching = scanned.select("id", *(F.expr(where).alias(f"m{n}") for n, where in enumerate(predicates))).collect()
    homes = {key: (f"g={row[-1]}", str(bucket_id([key], 3, types=["bigint"]))) for key, row in rows.items()}
    skipped = 0
    for number, where in enumerate(predicates):
        expected = {row["id"] for row in matching if row[f"m{number}"]}
        plan = plan_read(table.snapshot, filter_of(table.snapshot, where))
        assert not plan.warnings, where
        missed = {key for key in expected if homes[key] not in plan.groups}
        assert not missed, f"{where}: {missed} lie in groups that are not read"
        skipped += len(table.snapshot.groups()) - len(plan.groups) if plan.used else 0
        if number % 16 == 0:
            assert {row["id"] for row in table.read(where, ["id"]).collect()} == expected, where
    return skipped


@pytest.fixture(scope="module")
def empty(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    return IndexedTable.create(spark, tmp_path_factory.mktemp("empty") / "t", DDL, ["id"], buckets=1)


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[IndexedTable, dict[int, Row]]:
    """A table of nine file groups with deltas over some, indexed in the middle of it."""
    rng = random.Random(5)
    table = IndexedTable.create(
        spark, tmp_path_factory.mktemp("skipping") / "t", f"{DDL}, g int", ["id"], ["g"], buckets=3
    )
    rows: dict[int, Row] = {}

    def write(keys: Sequence[int]) -> None:
        batch = {key: (*_row(rng, key, key % 9), key % 3) for key in keys}
        rows.update(batch)
        table.upsert(frame(spark, list(batch.values()), f"{DDL}, g int"))

    write(range(60))
    table.create_index("skip", "skipping", COLUMNS)
    write(rng.sample(range(80), 15))
    table.delete(f"id IN ({', '.join(map(str, rng.sample(sorted(rows), 6)))})")
    gone = {row["id"] for row in spark.createDataFrame([(key,) for key in rows], "id bigint").join(
        table.read().select("id"), "id", "left_anti").collect()}  # fmt: skip
    for key in gone:
        del rows[key]
    return table, rows


def test_given_values_of_all_types_and_deltas_then_no_match_is_ever_ruled_out(
    spark: Any, made: tuple[IndexedTable, dict[int, Row]]
) -> None:
    table, rows = made
    assert table.indexes["skip"].lagging == 0
    with session_with(spark, {"spark.sql.ansi.enabled": "true"}):
        assert _compare(spark, table, rows, _predicates(random.Random(1), 250)) > 250
    assert verify(table.snapshot, "skip").ok


@pytest.mark.parametrize("most", [20_000, 12])
def test_given_the_same_files_then_this_process_some_at_a_time_and_tasks_of_spark_find_the_same(
    made: tuple[IndexedTable, dict[int, Row]], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    table, _ = made
    context = IndexContext(table.snapshot, table.indexes["skip"].definition, "")
    files = table.snapshot.state.files("data")
    kept = parts_of(context.table, context.definition)
    parts = [part for part in kept if collecting._is_readable(context.snapshot, [part], files)]
    assert len(kept) > len(parts) > 10
    by_tasks = collecting._in_tasks(context.snapshot, collecting.Making(parts, Settings(64, 0.002, 4)), files, {})
    asked: list[tuple[str, Any]] = []
    answers = collecting._answers

    def counted(snapshot: Any, part: Any, rows: Any) -> Any:
        asked.extend((part.expression.text, tuple(row.values())) for row in rows.to_pylist())
        return answers(snapshot, part, rows)

    monkeypatch.setattr(collecting, "_answers", counted)
    monkeypatch.setattr(collecting, "BYTES_AT_ONCE", files[0].bytes * 4)
    monkeypatch.setattr(collecting, "_values_of_parts", partial(collecting._values_of_parts, most=most))
    here = collecting.collect(context, parts, Settings(64, 0.002, 4), files, {})
    # An expression of more values than that is evaluated in all rows, by tasks.
    assert most < 20_000 or (asked and len(asked) == len(set(asked)))
    for one, other in zip(here, by_tasks, strict=True):
        assert (one.lineage, one.rows) == (other.lineage, other.rows)
        assert all(map(alike, one.columns, other.columns, [part.type for part in parts]))
        assert all((bits == other.filters[key]).all() for key, bits in one.filters.items())


def test_given_another_session_then_what_it_computes_otherwise_is_not_asked_and_answers_are_its_own(
    spark: Any, made: tuple[IndexedTable, dict[int, Row]]
) -> None:
    table, rows = made
    day = next(row[6] for row in rows.values() if row[6] is not None and row[6].hour > 12)
    for zone in ("UTC", "Asia/Tokyo"):
        with session_with(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": "false"}):
            scanned = frame(spark, list(rows.values()), f"{DDL}, g int")
            where = f"to_date(ts) = DATE'{day.date()}'"
            assert {r.id for r in table.read(where).collect()} == {r.id for r in scanned.where(where).collect()}
            _compare(spark, table, rows, _predicates(random.Random(zone), 60))
    with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        # (Values that Spark does not compute are known in every session.)
        assert table.explain("to_date(ts) = DATE'1999-01-01'").groups_read > 0
        assert table.explain("n = 1000").groups_read == 0


def test_given_a_function_of_the_users_own_by_the_name_of_one_of_sparks_then_answers_are_what_spark_makes_of_it(
    spark: Any, made: tuple[IndexedTable, dict[int, Row]]
) -> None:
    table, rows = made
    # A session of its own: Spark 3.5 drops no function that has the name of a built-in one.
    session = spark.newSession()
    theirs = IndexedTable.load(session, table.uri)
    scanned = frame(session, list(rows.values()), f"{DDL}, g int")
    # From Spark 4.2 on such a function stands behind Spark's own, but where a session says so.
    session.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    session.udf.register("lower", lambda _: "nowhere", "string")
    for call in ("lower(s)", "`lower`(s)", "lower /* case */ (s)"):
        found = theirs.read(f"{call} = 'nowhere'").count()
        assert found == scanned.where(f"{call} = 'nowhere'").count() > 0, call
    theirs.create_index("other", "skipping", ["values(lower(s))"])
    table = IndexedTable.load(spark, table.uri)
    scanned = frame(spark, list(rows.values()), f"{DDL}, g int")
    assert table.explain("lower(s) = 'nowhere'").groups_read == 0
    text = next(row[1] for row in rows.values() if row[1])
    assert (
        table.read(f"lower(s) = '{text.lower()}'").count() == scanned.where(f"lower(s) = '{text.lower()}'").count() > 0
    )
    assert table.verify("other").stale
    table.drop_index("other")


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ([], errors.InvalidInput, "keeps nothing"),
        (["n"], errors.InvalidInput, "what is kept"),
        (["zone(n)"], errors.InvalidInput, "what is kept"),
        (["minmax(nope)"], errors.InvalidInput, "no column 'nope'"),
        (["minmax((SELECT max(n) FROM t))"], errors.InvalidInput, "subquery"),
        (["minmax(rand())"], errors.InvalidInput, "another value each time"),
        (["minmax(now())"], errors.InvalidInput, "'now' depends on the time"),
        (["values(my_udf(s))"], errors.InvalidInput, "my_udf"),
        (["minmax(sum(n))"], errors.InvalidInput, "SUM"),
        (["minmax(1)"], errors.InvalidInput, "names no column"),
        (["minmax(n), minmax(s)"], errors.InvalidInput, "not one expression|cannot be read"),
        (["ngrams(n)"], errors.InvalidSchema, "ngrams of n"),
        (["minmax(p)"], errors.InvalidSchema, "minmax of p"),
        (["minmax(p.nope)"], errors.InvalidInput, "p.nope"),
        (["bloom(lower(p))"], errors.InvalidInput, "lower"),
    ],
)
def test_given_a_definition_that_cannot_be_kept_then_it_is_refused_by_name(
    empty: IndexedTable, columns: list[str], error: type[errors.LakeIndexError], text: str
) -> None:
    with pytest.raises(error, match=text):
        empty.create_index("i", "skipping", columns)


@pytest.mark.parametrize(
    "properties",
    [
        {"gram_bytes": "1"},
        {"most_values": "0"},
        {"false_positive_rate": "2"},
        {"most_value": "3"},
        {"granularity": "page"},
    ],
    ids=str,
)
def test_given_a_property_out_of_its_range_then_it_is_refused(empty: IndexedTable, properties: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidInput, match=next(iter(properties))):
        empty.create_index("i", "skipping", ["minmax(n)"], properties=properties)


def _small(spark: Any, path: Path, **more: Any) -> IndexedTable:
    table = IndexedTable.create(spark, path, "id bigint, s string, n int, g int", ["id"], ["g"], buckets=1, **more)
    table.upsert(frame(spark, [(k, f"s{k}", k * 10, k % 4) for k in range(40)], "id bigint, s string, n int, g int"))
    return table


@pytest.mark.by_turn(2)
@pytest.mark.parametrize("mode", ["merge_on_read", "copy_on_write"])
def test_given_writes_then_each_commit_keeps_the_index_and_a_match_in_a_delta_is_found(
    spark: Any, tmp_path: Path, mode: Any
) -> None:
    table = _small(spark, tmp_path / "t", write_mode=mode)
    table.create_index("i", "skipping", ["minmax(n)", "bloom(s)"])
    assert [table.explain("n > 1000").groups_read, table.explain("s = 'new'").groups_read] == [0, 0]

    receipt = table.upsert(frame(spark, [(1, "new", 2000, 1)], "id bigint, s string, n int, g int"))
    assert receipt.metrics["index.i.files"] == 1 and table.indexes["i"].lagging == 0
    assert [row.id for row in table.read("n > 1000").collect()] == [1]
    assert [table.explain("n > 1000").groups_read, table.explain("s = 'new'").groups_read] == [1, 1]
    # What stands under the delta is in its group still.
    assert table.read("s = 's1'").count() == 0 and table.read("n = 10").count() == 0

    table.delete("id = 1")
    assert table.read("n > 1000").count() == 0 and table.indexes["i"].lagging == 0
    table.compact()
    assert table.indexes["i"].lagging == 0 and table.explain("s = 'new'").groups_read == 0
    table.rescale(buckets=2)
    assert table.indexes["i"].lagging == 0 and table.explain("s = 's7'").files_read == 1
    assert table.compact("i").metrics["files_after"] == 1 and len(index_files(table, "i")) == 1
    table.compact("i", "full")
    assert table.explain("s = 's7'").files_read == 1 and verify(table.snapshot, "i").ok
    table.drop_partition("g=3")
    assert table.read("s = 's7'").count() == 0 and table.read("s = 's4'").count() == 1
    table.drop_index("i")
    assert table.explain("s = 's4'").groups_read == 3 * 2


@pytest.mark.by_turn(1)
def test_given_a_deferred_index_or_one_that_fails_in_a_commit_then_it_lags_and_a_refresh_brings_it_up(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_apps.indexes.skipping import skipping

    table = _small(spark, tmp_path / "t")
    table.create_index("late", "skipping", ["minmax(n)"], deferred=True)
    assert table.explain("n > 1000").not_used["late"].code == "covers_nothing"
    table.refresh_index("late", partitions=["g=0"])
    assert table.explain("n > 1000").groups_read == 3
    table.refresh_index("late")
    table.create_index("kept", "skipping", ["minmax(n)"])

    def fail(*_: Any) -> Any:
        raise errors.StorageUnavailable("The store is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(skipping, "_staged", fail)
        table.upsert(frame(spark, [(2, "new", 5000, 2)], "id bigint, s string, n int, g int"))
    assert [table.indexes[name].lagging for name in ("kept", "late")] == [1, 1]
    assert [row.id for row in table.read("n = 5000").collect()] == [2]
    assert table.refresh_index("kept").metrics["files"] == 1 and table.refresh_index("kept").version is None
    assert table.indexes["kept"].lagging == 0 and table.explain("n = 5000").groups_read == 1
    table.refresh_index("late", mode="full")
    assert verify(table.snapshot, "late").ok and len(index_files(table, "late")) == 1


@pytest.mark.by_turn(4)
def test_given_long_texts_and_numbers_that_are_none_then_bounds_hold_them_in_a_build_and_in_a_commit(
    spark: Any, tmp_path: Path
) -> None:
    ddl = "id bigint, s string, x binary, f double"
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], buckets=1)

    def rows(first: int) -> list[Row]:
        text = "b" * 70
        return [
            (first, "a", b"a", 1.0),
            (first + 1, f"{text}z", f"{text}z".encode(), math.nan),
            (first + 2, None, None, None),
        ]

    table.upsert(frame(spark, rows(0), ddl))
    table.create_index("i", "skipping", ["minmax(s)", "minmax(x)", "minmax(f)", "values(f)"])
    table.upsert(frame(spark, rows(10), ddl))
    assert verify(table.snapshot, "i").ok
    for where, count in {
        f"s = '{'b' * 70}z'": 2, f"s > '{'b' * 70}y'": 2, f"x >= X'{(b'b' * 70 + b'z').hex()}'": 2,
        "f = double('NaN')": 2, "f > 1e300": 2, "f < 1.0D": 0, "s < 'a'": 0, "s IS NULL": 2,
    }.items():  # fmt: skip
        assert table.read(where).count() == count, where
    assert table.explain("f < 1.0D").groups_read == 0 and table.explain("s < 'a'").groups_read == 0


@pytest.mark.by_turn(1)
def test_given_another_time_zone_then_days_are_those_of_the_session_that_asks(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id bigint, ts timestamp", ["id"], buckets=1)
    moment = dt.datetime(2024, 3, 1, 20, tzinfo=dt.UTC)
    table.upsert(frame(spark, [(1, moment)], "id bigint, ts timestamp"))
    table.create_index("i", "skipping", ["minmax(to_date(ts))", "values(id)"])
    for zone, day in (("UTC", 1), ("Asia/Tokyo", 2)):
        with session_with(spark, {"spark.sql.session.timeZone": zone}):
            assert table.read(f"to_date(ts) = DATE'2024-03-0{day}'").count() == 1, zone
            assert table.explain("id = 2").groups_read == 0
    assert table.explain("to_date(ts) = DATE'2024-03-02'").groups_read == 0


@pytest.mark.by_turn(8)
def test_given_predicates_over_columns_then_what_is_kept_of_days_years_and_prefixes_rules_files_out(
    spark: Any, tmp_path: Path
) -> None:
    ddl = "id bigint, p string, ts timestamp, d date, s string"
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], partition_by=["p"], buckets=1)
    rows = [
        # The clocks of Newfoundland were set back from 00:01 to 23:01 of the day before: this is again the 28th.
        (1, "a", dt.datetime(2006, 10, 29, 2, 31, 30, tzinfo=dt.UTC), dt.date(2023, 12, 31), "alpha"),
        (2, "b", dt.datetime(2006, 11, 20, tzinfo=dt.UTC), dt.date(2024, 1, 1), "beta"),
        (3, "c", dt.datetime(2006, 10, 20, tzinfo=dt.UTC), None, "be"),
    ]
    with session_with(spark, {"spark.sql.session.timeZone": "America/St_Johns"}):
        table.upsert(frame(spark, rows, ddl))
        table.create_index("i", "skipping", ["minmax(to_date(ts))", "values(year(d))", "values(left(s, 3))"])
        for where, found, groups in (
            ("ts >= TIMESTAMP'2006-10-29 02:30:00Z'", 2, 2), ("ts < TIMESTAMP'2006-10-22 00:00:00Z'", 1, 1),
            ("NOT ts < TIMESTAMP'2006-11-10 00:00:00Z'", 1, 1), ("d >= DATE'2024-01-01'", 1, 1),
            ("d = DATE'2023-05-05'", 0, 1), ("d < DATE'2022-01-01' OR s = 'betray'", 0, 1), ("s > 'c'", 0, 0),
            ("s IN ('be', 'x')", 1, 1),
        ):  # fmt: skip
            explanation = table.explain(where)
            assert explanation.groups_read == groups, (where, explanation)
            assert table.read(where).count() == found == table.frame().where(where).count(), where
    # Another session may count days from other hours.
    assert table.explain("ts >= TIMESTAMP'2006-10-29 02:30:00Z'").groups_read == 3


@pytest.mark.by_turn(1)
def test_given_an_overflow_in_an_expression_then_rows_are_written_and_the_index_lags(
    spark: Any, tmp_path: Path
) -> None:
    table = _small(spark, tmp_path / "t")
    with session_with(spark, {"spark.sql.ansi.enabled": "true"}):
        table.create_index("i", "skipping", ["minmax(n * n)"])
        table.upsert(frame(spark, [(1, "x", 2**31 - 1, 1)], "id bigint, s string, n int, g int"))
        assert table.indexes["i"].lagging == 1 and table.read("s = 'x'").count() == 1


def test_given_an_expression_that_is_of_two_types_in_two_sessions_then_answers_are_right_in_each(
    spark: Any, tmp_path: Path
) -> None:
    table = _small(spark, tmp_path / "t")
    for ansi in ("true", "false"):
        with session_with(spark, {"spark.sql.ansi.enabled": ansi}):
            table.create_index(f"i_{ansi}", "skipping", ["values(coalesce(n, s))"])
    for ansi in ("true", "false"):
        with session_with(spark, {"spark.sql.ansi.enabled": ansi}):
            assert table.read("coalesce(n, s) IN ('390')").count() == table.read("n = 390").count() == 1


def test_given_a_record_that_says_otherwise_than_its_file_then_verification_tells_and_repair_mends_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_apps.indexes.skipping import skipping
    from spark_apps.indexes.skipping.records import ColumnRecord

    table = _small(spark, tmp_path / "t")
    known = skipping.collect
    with monkeypatch.context() as patch:
        patch.setattr(skipping, "collect", lambda *given: [
            type(one)(one.lineage, one.rows, one.stamp, (ColumnRecord(10, b"0", b"1"),)) for one in known(*given)
        ])  # fmt: skip
        table.create_index("i", "skipping", ["minmax(n)"])
    report = verify(table.snapshot, "i")
    assert not report.ok and report.wrong_values == 4 and report.differences[0].key["of"] == "n"
    table.verify("i", repair=True)
    assert verify(table.snapshot, "i").ok and table.read("n = 390").count() == 1


def test_given_a_damaged_file_of_the_index_then_rows_are_scanned_with_a_warning(spark: Any, tmp_path: Path) -> None:
    from spark_apps.indexes.skipping import records

    table = _small(spark, tmp_path / "t")
    table.create_index("i", "skipping", ["bloom(s)"])
    [file] = index_files(table, "i")
    path = local(table, file)
    data = path.read_bytes()
    for broken in (data[:-1] + bytes([data[-1] ^ 1]), data[:40] + b"x" + data[41:], data[:10]):
        path.write_bytes(broken)
        records._OPENED.clear()
        assert table.read("s = 's7'").count() == 1
        explained = table.explain("s = 's7'")
        assert explained.warnings and explained.not_used["i"].code == "unreadable" and explained.groups_read == 4
        assert not verify(table.snapshot, "i").ok
    table.refresh_index("i", mode="full")
    assert table.explain("s = 's7'").groups_read == 1


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_given_a_source_then_files_without_a_match_are_left_out_and_new_ones_read_until_a_refresh(
    spark: Any, tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "raw"
    for number in range(5):
        rows = [(f"Word{number} of {k}", number * 100 + k, None if k % 2 else float(k)) for k in range(20)]
        part = frame(spark, rows, "s string, n int, f double").coalesce(1)
        part.write.format(form).mode("append").save(str(folder))
    table = IndexedTable.register(spark, folder, format=form, schema="s string, n int, f double")
    columns, by_row_group = ["values(lower(s))", "minmax(n)", "ngrams(s)", "bloom(f)"], {"granularity": "row_group"}
    if form != "parquet":
        with pytest.raises(errors.InvalidInput, match=f"granularity .*'{form}'"):
            table.create_index("i", "skipping", columns, properties=by_row_group)
    table.create_index("i", "skipping", columns, properties=by_row_group if form == "parquet" else None)
    assert table.explain("lower(s) = 'word3 of 7'").files_read == 1
    assert table.explain("s LIKE '%ord4 %'").files_read == 1
    assert table.explain("f = 3.5D").files_read == 0 and table.read("f = 4.0D").count() == 5
    assert [row.n for row in table.read("lower(s) = 'word3 of 7'").collect()] == [307]
    extra = frame(spark, [("word3 of 7", 9, 1.0)], "s string, n int, f double").coalesce(1)
    extra.write.format(form).mode("append").save(str(folder))
    table = IndexedTable.load(spark, str(folder))
    assert {row.n for row in table.read("lower(s) = 'word3 of 7'").collect()} == {9, 307}
    table.refresh_index("i")
    assert table.explain("n = 9").files_read == 2 and table.explain("n = 9999").files_read == 0
    assert verify(table.snapshot, "i").ok


def test_given_statements_then_the_index_is_made_shown_and_used(spark: Any, tmp_path: Path) -> None:
    table = _small(spark, tmp_path / "t")
    name = f"`{tmp_path}/t`"
    sql.run(spark, f"CREATE INDEX i ON {name} USING skipping (minmax(n), bloom(S), values( LOWER(s) ), minmax(n*2))")
    made = IndexedTable.load(spark, table.uri).indexes["i"]
    assert made.columns == ("minmax(n)", "bloom(s)", "values(lower(s))", "minmax(n * 2)")
    assert json.loads(made.properties["expression_types"]) == ["string", "int"]
    sql.run(spark, f"REFRESH INDEX i ON {name}; ALTER INDEX i ON {name} REBUILD")
    table = IndexedTable.load(spark, table.uri)
    assert table.explain("n * 2 = 780").groups_read == 1 and table.explain("n = -3 OR lower(s) = 'x'").groups_read == 0
    for change in (lambda: table.drop_column("n"), lambda: table.rename_column("s", "q")):
        with pytest.raises(errors.InvalidInput, match="index 'i'"):
            change()
    shown_as = sql.run(spark, f"DESCRIBE INDEX i ON {name}")
    assert any("skipping" in str(row) for row in shown_as[-1].rows)
    sql.run(spark, f"DROP INDEX i ON {name}")
    assert IndexedTable.load(spark, table.uri).indexes == {}


def test_given_a_table_that_was_restored_or_copied_then_what_is_known_of_its_files_is_known_again(
    spark: Any, tmp_path: Path
) -> None:
    table = _small(spark, tmp_path / "t")
    table.create_index("i", "skipping", ["minmax(n)"])
    version = table.version
    table.upsert(frame(spark, [(1, "new", 2000, 1)], "id bigint, s string, n int, g int"))
    table.compact()
    table.compact("i", "full")
    table.restore(version)
    assert table.read("n = 2000").count() == 0 and table.read("n = 10").count() == 1
    table.refresh_index("i")
    assert table.explain("n = 2000").groups_read == 0 and verify(table.snapshot, "i").ok


def test_given_texts_that_are_no_utf8_then_like_finds_what_a_scan_finds(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id bigint, s string", ["id"], buckets=4)
    rows = spark.sql(
        "SELECT * FROM VALUES (1L, cast(X'E2616263' AS string)), (2L, cast(X'FF78797A' AS string)), (3L, 'abc'), "
        "(4L, cast(X'C3' AS string)), (5L, '\ufffdxyz'), (6L, cast(X'61E26263' AS string)) AS t(id, s)"
    )
    table.upsert(rows)
    asked = (
        "s LIKE '%abc%'", "s LIKE '%xyz'", "s LIKE '\ufffdxyz'", "s LIKE '\ufffdx%'", "s LIKE '%\ufffd%'",
        "contains(s, 'bc')", "s > 'z'", "s = 'abc'", "startswith(s, 'a')", "s LIKE '_xyz'", "s LIKE 'ab_'",
    )  # fmt: skip
    scanned = {where: to_arrow(table.read(where, ["id"]).orderBy("id")).to_pydict() for where in asked}
    table.create_index("i", "skipping", ["minmax(s)", "bloom(s)", "values(s)", "ngrams(s)"],
                       properties={"gram_bytes": "2"})  # fmt: skip
    for where, expected in scanned.items():
        assert to_arrow(table.read(where, ["id"]).orderBy("id")).to_pydict() == expected, where
    assert table.explain("s LIKE '%abq%'").groups_read == 0
