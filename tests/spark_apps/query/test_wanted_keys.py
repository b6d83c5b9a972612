"""Rows found by their record keys in columns of files, against each row compared with each key; no Spark."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.layout.types import parse_type
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.query.wanted_keys import WantedKeys
from spark_apps.storage.parquet.statistics import Bounds
from spark_apps.storage.store import RangedFile
from spark_apps.timeline.files import DataFile

Make = Callable[[random.Random], Any]


def text(chance: random.Random) -> str:
    return "".join(chance.choices("ab-\0é", k=chance.randint(0, 9)))


MAKERS: dict[str, tuple[str, Any, Make]] = {
    "unlike in the first bytes": ("string", pa.string(), lambda c: f"{c.randrange(400):08d}-{'x' * 20}"),
    "alike in the first bytes": ("string", pa.string(), lambda c: f"{'x' * 20}-{c.randrange(400):08d}"),
    "alike in eight bytes": ("string", pa.string(), lambda c: f"{c.randrange(150):08d}--------{c.randrange(3)}"),
    "alike in many": ("string", pa.string(), lambda c: f"{c.randrange(9):08d}--------{c.randrange(50):04d}"),
    "short": ("string", pa.string(), lambda c: f"{c.randrange(400):04d}"),
    "of all lengths": ("string", pa.string(), text),
    "bytes": ("binary", pa.binary(), lambda c: c.randbytes(1) + b"\0" * 7 + c.randbytes(1)),
    "numbers": ("bigint", pa.int64(), lambda c: c.randrange(-200, 200) * 2**40),
    "small numbers": ("smallint", pa.int16(), lambda c: c.randrange(-300, 300)),
    "days": ("date", pa.date32(), lambda c: dt.date(2024, 1, 1) + dt.timedelta(c.randrange(400))),
    "fractions": ("double", pa.float64(), lambda c: c.choice([0.0, -0.0, c.randrange(300) / 7])),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("count", [1, 40, 300])
def test_given_random_keys_then_the_rows_with_one_of_them_are_found(name: str, count: int) -> None:
    kind, stored, make = MAKERS[name]
    for seed in range(8):
        chance = random.Random(seed)
        keys = list(dict.fromkeys(make(chance) for _ in range(count)))
        keys += keys * (5 if seed == 7 else 0)
        rows = [chance.choice([make(chance), chance.choice(keys)]) for _ in range(chance.choice([0, 1, 500]))]
        if seed % 3 == 2:
            rows = [None if chance.random() < 0.1 else row for row in rows]
        given = pa.array([key + 0.0 if kind == "double" else key for key in keys], stored)
        wanted = WantedKeys({"k": given}, [parse_type(kind)])
        column = pa.chunked_array([pa.array(rows[:200], stored), pa.array(rows[200:], stored)])

        found = wanted.positions(pa.table({"k": column}))

        assert found.tolist() == [n for n, row in enumerate(rows) if row is not None and row in keys], seed


def test_given_keys_of_two_columns_then_rows_with_both_are_found() -> None:
    wanted = WantedKeys(
        {"a": pa.array([1, 2, 2]), "b": pa.array(["x", "y", "x"])}, list(map(parse_type, ("bigint", "string")))
    )
    rows = pa.table({"b": ["y", "x", "x", "y", "y"], "a": [1, 1, 2, 2, 3]})
    assert wanted.positions(rows).tolist() == [1, 2, 3]
    assert wanted.may_be_within(Bounds(None, None, 7, 9)) and not wanted.rules_pages_out


@pytest.mark.parametrize("count", [3, 2_000])
def test_bounds_that_hold_no_key_are_ruled_out(count: int) -> None:
    wanted = WantedKeys({"k": pa.array(range(100, 100 + count))}, [parse_type("int")])
    bounds = partial(Bounds, None, None)
    assert not wanted.may_be_within(bounds(0, 99)) and not wanted.may_be_within(bounds(100 + count, 9_999))
    assert not wanted.may_be_within(Bounds(None, 0))
    assert wanted.may_be_within(bounds(0, 100)) and wanted.may_be_within(bounds(99 + count, 9_999))
    assert wanted.may_be_within(bounds(0, 9_999))


# --- rows of a file ---------------------------------------------------------------------------------------------------

ROWS, GROUP = 60_000, 25_000
TYPES = {"k": "string", "n": "int", "city": "string", "tags": "array<int>"}
TABLE = pa.table(
    {
        "k": [f"k{n:08}" for n in range(ROWS)],
        "n": pa.array([None if n % 7 == 0 else n for n in range(ROWS)], pa.int32()),
        "city": [f"c{n % 50}" for n in range(ROWS)],
        "tags": pa.array([[n] for n in range(ROWS)], pa.list_(pa.int32())),
    }
)


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("in_order", [True, False])
def test_given_a_file_then_the_rows_of_keys_are_read_and_of_few_keys_few_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: bool, in_order: bool
) -> None:
    chance = random.Random(3)
    table = TABLE if in_order else TABLE.take(chance.sample(range(ROWS), ROWS))
    path = tmp_path / "f.parquet"
    pq.write_table(
        table, path, row_group_size=GROUP, data_page_size=16_000, write_page_index=index, write_page_checksum=True,
        use_dictionary=["city"], compression="none",
    )  # fmt: skip
    size = path.stat().st_size
    file = ArrowFile(DataFile("data", "", "0", "f.parquet", "base", ROWS, size, 0), str(path), "parquet")
    fetched: list[int] = []
    get = RangedFile._get
    monkeypatch.setattr(
        RangedFile, "_get", lambda self, first, end: (fetched.append(end - first), get(self, first, end))[1]
    )
    by_key = {row["k"]: row for row in TABLE.to_pylist()}
    for count in (1, 20, 300, 30_000):
        numbers = sorted(chance.sample(range(ROWS), count))
        keys = [f"k{number:08}" for number in numbers] + ["none"]
        wanted = WantedKeys({"k": pa.array(keys)}, [parse_type("string")])
        form = ArrowShape(("tags", "k", "city", "n"), TYPES, ("k",), wanted=wanted)
        fetched.clear()

        rows = [
            row
            for batch in ArrowRows(form, table.schema.empty_table().select(list(form.columns)).schema, {}).read([file])
            for row in batch.to_pylist()
        ]

        assert sorted(rows, key=lambda row: row["k"]) == [by_key[key] for key in keys[:-1]], count
        if count == 1 and index and in_order:
            assert sum(fetched) < size / 4
