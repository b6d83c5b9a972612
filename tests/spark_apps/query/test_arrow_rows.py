"""File groups merged in Arrow, against a model that plays the commits one by one; no Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from pyarrow import orc

from spark_apps.mergetree.tree import DELETED
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import Predicate
from spark_apps.storage.errors import StorageError, UnsupportedSource
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import ORDERED, TOMBSTONES_TREE

TYPES = {"k": "string", "o": "double", "v": "int", "tags": "array<int>"}
SCHEMA = pa.schema([("k", pa.string()), ("o", pa.float64()), ("v", pa.int32()), ("tags", pa.list_(pa.int32()))])
Row = dict[str, Any]


def shape(ordering: str | None = None, **more: Any) -> ArrowShape:
    return ArrowShape(tuple(TYPES), TYPES, ("k",), ordering, **more)


def write(
    path: Path, rows: list[Row], place: int, kind: str, block: int = 3, metadata: Mapping[str, str] | None = None
) -> ArrowFile:
    """A data file with rows in blocks of three."""
    columns = {name: pa.array([row[name] for row in rows], kind.type) for name, kind in zip(TYPES, SCHEMA, strict=True)}
    if kind == "delta":
        columns[DELETED] = pa.array([row.get(DELETED) for row in rows], pa.bool_())
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=block)
    gone = sum(bool(row.get(DELETED)) for row in rows)
    file = DataFile("data", "", "0", path.name, kind, len(rows), path.stat().st_size, place, gone)  # type: ignore[arg-type]
    return ArrowFile(file, str(path), "parquet")


def read(files: list[ArrowFile], form: ArrowShape, schema: pa.Schema = SCHEMA) -> list[str]:
    batches = ArrowRows(form, schema, {}).read(files)
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def changes(chance: random.Random, place: int) -> list[Row]:
    keys = sorted(chance.sample([f"k{n}" for n in range(12)], chance.randint(1, 9)))
    return [
        {"k": key, "o": chance.choice([None, 1.0, 2.0, 3.0, math.nan, -0.0, 0.0]), "v": place * 100 + n,
         "tags": chance.choice([None, [], [place, None]]), DELETED: chance.choice([None, None, True])}
        for n, key in enumerate(keys)
    ]  # fmt: skip


def as_number(value: float | None) -> tuple[int, float]:
    """How Spark orders them: null, numbers, NaN."""
    return (0, 0.0) if value is None else (2, 0.0) if math.isnan(value) else (1, value)


def play(rows: dict[str, Row], batch: list[Row], by_ordering: bool) -> None:
    for row in batch:
        there = rows.get(row["k"])
        if row[DELETED]:
            rows.pop(row["k"], None)
        elif not by_ordering or there is None or as_number(row["o"]) >= as_number(there["o"]):
            rows[row["k"]] = row


def shown(rows: dict[str, Row]) -> list[str]:
    return sorted(repr({name: row[name] for name in TYPES}) for row in rows.values())


@pytest.mark.by_turn(2)
@pytest.mark.parametrize("by_ordering", [False, True])
def test_given_random_commits_over_a_base_then_the_rows_are_those_of_the_model(
    tmp_path: Path, by_ordering: bool
) -> None:
    for seed in range(25):
        chance, rows, files = random.Random(seed), dict[str, Row](), []
        for place in range(chance.randint(1, 5)):
            batch = changes(chance, place)
            play(rows, batch, by_ordering)
            if place == 0 and chance.random() < 0.7:
                files = [write(tmp_path / f"{seed}-base", list(rows.values()), place, "base")] if rows else []
            else:
                files.append(write(tmp_path / f"{seed}-{place}", batch, place, "delta"))
        if files:
            form = shape("o" if by_ordering else None)
            assert read(files, form) == shown(rows), f"seed {seed}"
            for where in ("k = 'k3'", "v >= 100", "v < 100", "k IN ('k1', 'k7') OR v = 201"):
                predicate: Predicate = parse_predicate(where, TYPES)
                some = read(files, shape("o" if by_ordering else None, predicate=predicate))
                exact = read(files, shape("o" if by_ordering else None, predicate=predicate, exact=predicate))
                wanted = {key: row for key, row in rows.items() if satisfies(row, where)}
                assert exact == shown(wanted), f"seed {seed}: {where}"
                assert set(exact) <= set(some) <= set(shown(rows)), f"seed {seed}: {where}"


def play_events(rows: dict[str, Row], deleted: dict[str, float], batch: list[Row], ordered: bool) -> None:
    """Deletes have an ordering, but for those of old files: these remove what there is."""
    for row in batch:
        key, there, order = row["k"], rows.get(row["k"]), as_number(row["o"])
        if row[DELETED]:
            if not ordered or row["o"] is None or there is None or as_number(there["o"]) <= order:
                rows.pop(key, None)
            if ordered and row["o"] is not None:
                deleted[key] = max(deleted.get(key, row["o"]), row["o"], key=as_number)
        elif (key in deleted and order <= as_number(deleted[key])) or (there and order < as_number(there["o"])):
            continue
        else:
            rows[key] = row


def test_given_deletes_with_an_ordering_in_deltas_and_beside_a_base_then_the_highest_event_of_each_key_stands(
    tmp_path: Path,
) -> None:
    for seed in range(40):
        chance, rows, deleted, files = random.Random(seed), dict[str, Row](), dict[str, float](), []
        for place in range(chance.randint(2, 6)):
            batch, ordered = changes(chance, place), chance.random() < 0.8
            play_events(rows, deleted, batch, ordered)
            if place == 0 and rows and chance.random() < 0.7:
                files = [write(tmp_path / f"{seed}-base", list(rows.values()), place, "base")]
                beside: list[Row] = [
                    {"k": key, "o": order, "v": None, "tags": None, DELETED: True} for key, order in deleted.items()
                ]
                if beside:
                    kept = write(tmp_path / f"{seed}-kept", beside, 0, "delta")
                    files.append(replace(kept, file=structs.replace(kept.file, tree=TOMBSTONES_TREE)))
            else:
                delta = write(tmp_path / f"{seed}-{place}", batch, place, "delta")
                extra = {ORDERED: True} if ordered else None
                files.append(replace(delta, file=structs.replace(delta.file, extra=extra)))
        assert read(files, shape("o")) == shown(rows), f"seed {seed}"
        some = read(files, shape("o", predicate=parse_predicate("k = 'k3'", TYPES)))
        assert set(shown({key: row for key, row in rows.items() if key == "k3"})) <= set(some) <= set(shown(rows))


def satisfies(row: Row, where: str) -> bool:
    return {
        "k = 'k3'": row["k"] == "k3", "v >= 100": row["v"] >= 100, "v < 100": row["v"] < 100,
        "k IN ('k1', 'k7') OR v = 201": row["k"] in ("k1", "k7") or row["v"] == 201,
    }[where]  # fmt: skip


def test_given_entries_told_late_under_a_base_then_the_base_hides_them(tmp_path: Path) -> None:
    def row(key: str, v: int) -> Row:
        return {"k": key, "o": None, "v": v, "tags": None, DELETED: None}

    files = [
        write(tmp_path / "late", [row("a", 1), row("b", 1)], 1, "delta"),
        write(tmp_path / "b", [row("a", 2)], 2, "base"),
    ]
    assert read(files, shape()) == shown({"a": row("a", 2), "b": row("b", 1)})


def test_given_a_predicate_then_blocks_that_its_statistics_rule_out_are_not_read(tmp_path: Path) -> None:
    rows = [{"k": f"k{n:02}", "o": 1.0, "v": n, "tags": None} for n in range(30)]
    file = write(tmp_path / "f", rows, 0, "base")
    predicate = parse_predicate("o > 0 AND k >= 'k20'", TYPES)
    assert len(read([file], shape(predicate=predicate))) == 12  # the block with k18 to k20 too
    only = ArrowFile(file.file, file.address, "parquet", blocks=frozenset({2}))
    assert [eval(row)["v"] for row in read([only], shape())] == [6, 7, 8]


def test_given_a_file_that_is_not_as_the_log_says_then_it_is_named_and_no_rows_are_made_up(tmp_path: Path) -> None:
    rows = [{"k": "a", "o": 1.0, "v": 1, "tags": None}]
    file = write(tmp_path / "f", rows, 0, "base")
    other = ArrowFile(write(tmp_path / "g", rows * 2, 0, "base").file, str(tmp_path / "f"), "parquet")
    for wrong in (other, ArrowFile(file.file, str(tmp_path / "gone"), "parquet")):
        with pytest.raises(StorageError, match=r"(f|g) (is gone|cannot be read)"):
            read([wrong], shape())
    old = write(tmp_path / "old", rows, 0, "base", metadata={"org.apache.spark.legacyDateTime": ""})
    with pytest.raises(UnsupportedSource, match="only Spark's own reader"):
        read([old], shape())


def test_given_columns_that_the_file_lacks_or_has_otherwise_then_they_are_null_constant_or_cast(tmp_path: Path) -> None:
    pq.write_table(pa.table({"K": ["a"], "old": pa.array([7], pa.int32())}), tmp_path / "f")
    size = (tmp_path / "f").stat().st_size
    data = DataFile("data", "", "0", "f", "base", 1, size, 0)
    file = ArrowFile(data, str(tmp_path / "f"), "parquet", attached={"day": "2024-02-29"})
    types = {"k": "string", "n": "bigint", "day": "date", "more": "array<string>"}
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("day", pa.date32()), ("more", pa.list_(pa.string()))])
    form = ArrowShape(tuple(types), types, ("k",), stored={"n": "old"})
    assert read([file], form, schema) == ["{'k': 'a', 'n': 7, 'day': datetime.date(2024, 2, 29), 'more': None}"]


def test_given_stripes_of_orc_then_those_wanted_are_read_and_times_are_left_to_spark(tmp_path: Path) -> None:
    orc.write_table(pa.table({"k": [f"k{n}" for n in range(5)], "v": pa.array(range(5), pa.int32())}), tmp_path / "f")
    size = (tmp_path / "f").stat().st_size
    file = ArrowFile(DataFile("data", "", "7", "f", "base", -1, size, 0), str(tmp_path / "f"), "orc")
    schema = pa.schema([("v", pa.int32()), ("k", pa.string())])
    form = ArrowShape(("v", "k"), {"k": "string", "v": "int"}, (), external=True)
    assert read([file], form, schema)[3:] == ["{'v': 3, 'k': 'k3'}", "{'v': 4, 'k': 'k4'}"]
    none = ArrowFile(file.file, file.address, "orc", blocks=frozenset())
    assert read([none], form, schema) == []
    timed = ArrowShape(("v",), {"v": "date"}, (), external=True)
    with pytest.raises(UnsupportedSource):
        read([file], timed, pa.schema([("v", pa.date32())]))


def test_given_int96_times_outside_of_the_years_then_they_are_left_to_spark(tmp_path: Path) -> None:
    types, kind = {"k": "string", "o": "timestamp"}, pa.timestamp("us", "UTC")
    form, schema = ArrowShape(("k",), types, ("k",), "o"), pa.schema([("k", pa.string())])
    far = 253_402_300_800_000_000

    def file(micros: int | None, place: int, kind_of_file: str) -> ArrowFile:
        path = tmp_path / f"{micros}-{place}"
        columns = {"k": pa.array(["a"]), "o": pa.array([micros], pa.int64()).view(kind)}
        if kind_of_file == "delta":
            columns[DELETED] = pa.array([None], pa.bool_())
        pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
        data_file = DataFile("data", "", "0", path.name, kind_of_file, 1, path.stat().st_size, place)  # type: ignore[arg-type]
        return ArrowFile(data_file, str(path), "parquet")

    assert read([file(0, 0, "base"), file(-1, 1, "delta"), file(None, 2, "delta")], form, schema) == ["{'k': 'a'}"]
    with pytest.raises(UnsupportedSource, match=r"years 1 to 9999 in its column 'o'.*read\(where\)"):
        read([file(0, 0, "base"), file(far, 1, "delta")], form, schema)
