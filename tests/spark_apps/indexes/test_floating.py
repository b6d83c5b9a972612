"""Floats and doubles as indexed columns of covering and compact indexes: NaN, zeros of either sign and infinities as
Spark compares them, however the rows were written and whoever reads them."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, InvalidSchema
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared, within

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "id bigint, d double, f float, n int, g int, note string"
READ = ["id", "d", "f", "n"]
KEPT = {"hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1", "buckets": "4"}
INDEXES: dict[str, tuple[str, dict[str, Any]]] = {
    "hashed": ("covering", {"columns": ["d"], "included": ["n", "f"], "properties": KEPT}),
    "ranged": ("covering", {"columns": ["d"], "included": ["n", "f"], "properties": {**KEPT, "layout": "ranges"}}),
    "single": ("covering", {"columns": ["f"], "included": ["n", "d"], "properties": {**KEPT, "layout": "ranges"}}),
    "several": ("covering", {"columns": ["n", "f"], "included": ["d"], "properties": KEPT}),
    "blocks": ("compact", {"columns": ["d"]}),
    "pairs": ("compact", {"columns": ["f", "n"]}),
}
SINGLE = struct.unpack("<f", struct.pack("<f", 0.1))[0]
VALUES = (math.nan, -0.0, 0.0, math.inf, -math.inf, 1.5, -2.5, SINGLE, 7.0, 1e30, None)
LITERALS = ("double('NaN')", "0.0D", "-0.0D", "double('Infinity')", "double('-Infinity')", "1.5D", "0.1D", "-2.5D", "7",
            "0.1F", "-0.0F", "float('NaN')", "1e300D", "'NaN'")  # fmt: skip
Row = tuple[Any, ...]


def _rows(rng: random.Random, ids: range) -> list[Row]:
    """Rows of which each group, and so each file, has some of the values only."""
    rows = []
    for key in ids:
        group = key % len(VALUES)
        value = VALUES[group] if rng.random() < 0.8 else float(rng.randrange(-40, 40))
        single = value if value is None or abs(value) != 1e30 else math.inf
        rows.append((key, value, single, rng.randrange(3), group, f"x{key}" * 200))
    return rows


def _predicates(rng: random.Random) -> list[str]:
    def one(name: str) -> str:
        op = rng.choice(("=", "<=>", "<", "<=", ">", ">=", "<>"))
        a, b = rng.choice(LITERALS), rng.choice(LITERALS)
        return rng.choice((
            f"{name} {op} {a}", f"{name} {op} {a}", f"{name} IN ({a}, {b})", f"{name} BETWEEN {a} AND {b}",
            f"NOT {name} {op} {a}", f"{name} IS NULL", f"{name} IN ({', '.join(LITERALS[:12])}, 3.0D)",
            f"{name} NOT IN ({a}, {b})", f"isnan({name})",
        ))  # fmt: skip

    always = [f"{name} {op} {literal}" for name in "df" for op in "=>" for literal in LITERALS[:3]]
    drawn = [one(name) for name in "df" for _ in range(8)]
    return [*always, *drawn, *(f"f = {literal} AND n = 1" for literal in LITERALS[:4]), f"{one('d')} OR {one('f')}"]


def _sorted(rows: Any) -> list[str]:
    return sorted(repr(tuple(row)[:4]) for row in rows)


def _check(spark: Any, table: IndexedTable, rows: dict[int, Row], rng: random.Random) -> int:
    """Compare with Spark's own judgement of rows that lie in no file; return by how many predicates the index is used.

    All are read without Spark, and some of those by which the index is used with it.
    """
    predicates = _predicates(rng)
    judged = frame(spark, list(rows.values()), DDL).selectExpr("id", *predicates).collect()
    opened, used = spark_apps.open_table(table.uri, time_zone="UTC"), 0
    for number, where in enumerate(predicates):
        expected = _sorted(rows[row[0]] for row in judged if row[number + 1])
        try:
            used += opened.explain(where, READ).index_used is not None
            assert _sorted(row.values() for row in opened.read(where, READ).to_pylist()) == expected, where
            left_to_spark = False
        except InvalidPredicate:
            left_to_spark = True
        if left_to_spark or number % 7 == 0:
            assert _sorted(table.read(where, READ).collect()) == expected, where
    assert table.verify("i").ok and opened.verify("i").ok
    return used


def _build(spark: Any, folder: Path) -> None:
    table = IndexedTable.create(spark, folder, DDL, ["id"], partition_by=["g"], buckets=1)
    table.upsert(frame(spark, _rows(random.Random(20), range(300)), DDL))


@pytest.mark.parametrize("name", INDEXES)
def test_given_floating_point_columns_then_all_who_read_agree_with_a_full_scan(
    spark: Any, prepared: Prepared, name: str
) -> None:
    table, rows, rng = prepared(_build), {row[0]: row for row in _rows(random.Random(20), range(300))}, random.Random(1)
    kind, arguments = INDEXES[name]
    table.create_index("i", kind, **arguments)
    assert _check(spark, table, rows, rng) >= 3
    # Of later files one is written by this process, whose writer leaves NaN out of bounds, the other by Spark.
    for ids, staged in ((range(290, 330), 10_000), (range(100, 130), 0)):
        more = _rows(rng, ids)
        within(table, staged_rows=staged).upsert(frame(spark, more, DDL))
        rows.update((row[0], row) for row in more)
    table.delete("id < 20")
    rows = {key: row for key, row in rows.items() if key >= 20}
    table.compact(mode="full")
    table.refresh_index("i")
    table.compact("i", mode="full")
    assert _check(spark, table, rows, rng) >= 3
    with pytest.raises(InvalidInput, match=f"'{arguments['columns'][0]}', so it cannot be dropped"):
        table.drop_column(arguments["columns"][0])


def _check_keys(spark: Any, table: IndexedTable, rows: list[Row]) -> None:
    """Compare joins and groups by a column of the index, which is read, with those of rows that lie in no file."""
    others = frame(spark, [(math.nan,), (-0.0,), (7.0,), (None,)], "k double")
    for each in (lambda rows: rows.groupBy("d").agg({"n": "sum"}), lambda rows: rows.join(others, rows.d == others.k),
                 lambda rows: rows.join(others, rows.d.eqNullSafe(others.k)).select("d", "n")):  # fmt: skip
        indexed = each(table.frame().select("d", "n"))
        uses = [scan.explanation.index_used for scan in spark_apps.explain(indexed).scans if scan.explanation]
        assert uses == ["i"]
        assert _sorted(indexed.collect()) == _sorted(each(frame(spark, rows, DDL).select("d", "n")).collect())


@pytest.mark.by_turn(16)
def test_given_floating_point_columns_then_files_without_a_value_are_left_out_and_none_that_has_it(
    spark: Any, prepared: Prepared
) -> None:
    """By the bucket of a value, by the bounds of ranges, and by the bounds that files of an index tell."""
    table, rows = prepared(_build), _rows(random.Random(20), range(300))
    for name, cases in (
        ("hashed", {"d = -0.0D": 1, "d = double('NaN')": 1, "d IN (0.0D, double('NaN'))": 2, "d > 1e31D": 4}),
        ("ranged", {"d = 0.0D": 1, "d = double('NaN')": 1, "d > double('Infinity')": 1, "d < -1e31D": 1,
                    "d < double('-Infinity')": 0, "d BETWEEN 50.0D AND 60.0D": 1}),
        ("blocks", {"d = -0.0D": None, "d > double('Infinity')": None, "d < double('-Infinity')": None}),
    ):  # fmt: skip
        kind, arguments = INDEXES[name]
        table.create_index("i", kind, **arguments)
        judged = frame(spark, rows, DDL).selectExpr("id", *cases).collect()
        for number, (where, most) in enumerate(cases.items()):
            plan = table.explain(where, READ)
            matching = [row for row, found in zip(rows, judged, strict=True) if found[number + 1]]
            if most is None:  # a file a group
                assert plan.files_read == len({row[4] for row in matching}), (name, where, plan)
            else:
                assert plan.indexes[0].files <= most, (name, where, plan)
            assert _sorted(table.read(where, READ).collect()) == _sorted(matching), (name, where)
        if kind == "covering":
            _check_keys(spark, table, rows)
        table.drop_index("i")
    with pytest.raises(InvalidInput, match=r"cannot be laid as Spark's buckets by 'f', which is float"):
        table.create_index("i", "covering", ["n", "f"], properties={"layout": "buckets"})
    with pytest.raises(InvalidSchema, match="double"):
        table.create_index("i", "secondary", ["d"])
