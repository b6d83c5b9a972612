"""What numpy finds in the rows of several files, beside what is found value by value; without Spark."""

from __future__ import annotations

import datetime as dt
import math
import random
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from spark_apps.indexes.expressions import Expression
from spark_apps.indexes.ranges import value_of
from spark_apps.indexes.skipping import collecting
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.records import (
    WORDS,
    ColumnRecord,
    Marks,
    alike,
    bytes_of,
    folded,
    grams,
    value_from,
)
from spark_apps.indexes.skipping.row_groups import Divided
from spark_apps.indexes.skipping.summaries import summarize
from spark_apps.layout.types import ColumnType, arrow_type, parse_type
from spark_apps.timeline.files import DataFile

ZONE = dt.UTC
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "boolean": lambda rng: rng.random() < 0.3,
    "tinyint": lambda rng: rng.randrange(-128, 128),
    "int": lambda rng: rng.randrange(-(2**31), 2**31),
    "bigint": lambda rng: rng.choice([-(2**63), 2**63 - 1, rng.randrange(50)]),
    "float": lambda rng: rng.choice([math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -2.25, rng.randrange(9) / 8]),
    "double": lambda rng: rng.choice([math.nan, 0.0, -0.0, math.inf, -math.inf, 1e300, rng.random()]),
    "decimal(12,2)": lambda rng: Decimal(rng.randrange(-500, 500)).scaleb(-2),
    "decimal(38,4)": lambda rng: Decimal(rng.randrange(-(10**34), 10**34)).scaleb(-4),
    "string": lambda rng: rng.choice(["", "a", "abc", "straße", "\U0001f600" * 80, "b" * 300, f"w{rng.randrange(90)}"]),
    "binary": lambda rng: rng.choice([b"", b"\x00\xff", b"x" * 70, rng.randbytes(3)]),
    "date": lambda rng: dt.date(1999, 1, 1) + dt.timedelta(days=rng.randrange(400)),
    "timestamp": lambda rng: dt.datetime(1969, 1, 1, tzinfo=ZONE) + dt.timedelta(microseconds=rng.randrange(10**15)),
    "timestamp_ntz": lambda rng: dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=rng.randrange(10**6)),
}
SETTINGS = Settings(most_values=12, false_positives=0.01, gram_bytes=4)


def _part(kind: str) -> Part:
    kinds = ["minmax", "values", "bloom"] + (["ngrams"] if kind == "string" else [])
    return Part(Expression("`c`", "c", ("c",), "c"), frozenset(kinds), parse_type(kind))


def _expected(values: list[Any], kind: ColumnType, blocks: int) -> tuple[ColumnRecord, Any]:
    """Return a file's record and filter, from one value after the other."""
    known = [value_of(value, kind) for value in values if value is not None]
    distinct = {math.nan if value != value else value for value in known}
    if any(value != value for value in distinct):
        distinct = {value for value in distinct if value == value} | {math.nan}
    low = high = None
    if distinct:
        ordered: list[Any] = sorted(distinct, key=lambda value: (True, 0) if value != value else (False, value))
        cut = kind.kind in ("string", "binary")
        low = bytes_of(ordered[0][:64] if cut else ordered[0], kind)
        high = None if cut and len(ordered[-1]) > 64 else bytes_of(ordered[-1], kind)
    found = [bytes_of(value, kind) or b"" for value in distinct]
    few = len(found) <= SETTINGS.most_values and all(len(data) <= 256 for data in found)
    return ColumnRecord(len(known), low, high, tuple(sorted(found)) if few else None), _marked(distinct, kind, blocks)


def _marked(values: Any, kind: ColumnType, blocks: int) -> Any:
    bits = [[0] * WORDS for _ in range(blocks)]
    for value in values:
        marks = Marks.of(value, kind)
        for word, mark in enumerate(marks.words):
            bits[marks.block(blocks)][word] |= mark
    return np.array(bits, dtype="<u8").view("<i8")


@pytest.mark.parametrize("kind", list(VALUES))
@pytest.mark.parametrize("seed", [1, 2])
def test_given_rows_of_several_files_then_each_has_the_record_and_filter_of_its_own_values(
    kind: str, seed: int
) -> None:
    rng, type_ = random.Random(seed), parse_type(kind)
    files: list[list[Any]] = [
        [None if rng.random() < 0.1 else VALUES[kind](rng) for _ in range(rows)] for rows in (40, 0, 3, 1, 120)
    ]
    files += [[None, None], []]
    blocks = [rng.choice([1, 3, 8, 36]) for _ in files]
    array = pa.array([value for values in files for value in values], arrow_type(type_))
    made = summarize(array, list(map(len, files)), _part(kind), SETTINGS, {"bloom": blocks, "ngrams": blocks})

    for number, values in enumerate(files):
        record, bits = _expected(values, type_, blocks[number])
        mine = made.records[number]
        assert mine.filled == record.filled
        for one, other in ((mine.low, record.low), (mine.high, record.high)):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert repr(value_from(one, type_)) == repr(value_from(other, type_))
        assert (mine.values is None) == (record.values is None)
        if mine.values is not None and record.values is not None:
            assert {repr(value_from(data, type_)) for data in mine.values} == {
                repr(value_from(data, type_)) for data in record.values
            }
        assert (made.filters["bloom"][number] == folded(bits, 0.01)).all()
        if kind == "string":
            runs = {run for text in values if text is not None for run in grams(text, 4)}
            expected = folded(_marked(runs, parse_type("binary"), blocks[number]), 0.05)
            assert (made.filters["ngrams"][number] == expected).all()


@pytest.mark.parametrize("size", [2, 8, 9, 16])
def test_given_runs_of_another_length_then_none_crosses_from_one_text_into_the_next(size: int) -> None:
    texts = ["abcdefghi", "", "j", "klmnopqrstuvwxyzäöü", "klmnopqrstuvwxyz"]
    settings = Settings(64, 0.01, size)
    made = summarize(pa.array(texts), [len(texts)], _part("string"), settings, {"bloom": [8], "ngrams": [64]})
    runs = {run for text in texts for run in grams(text, size)}
    assert (made.filters["ngrams"][0] == folded(_marked(runs, parse_type("binary"), 64), 0.05)).all()


def test_given_a_long_text_that_is_no_utf8_then_its_characters_are_counted_as_spark_counts_them() -> None:
    texts = [b"\xff" * 65, b"\xc3\xa4" * 63 + b"\x80", b"\xf0\x9f\x98\x80" * 65]
    for text, low, high in zip(texts, (b"\xff" * 64, texts[1], texts[2][:256]), (None, texts[1], None), strict=True):
        made = summarize(
            pa.array([text]).view(pa.string()), [1], _part("string"), SETTINGS, {"bloom": [1], "ngrams": [1]}
        )
        assert (made.records[0].low, made.records[0].high) == (low, high)


@pytest.mark.parametrize("kind", list(VALUES))
def test_given_tasks_that_have_pieces_of_files_then_what_is_joined_is_what_is_known_of_the_whole_files(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, type_ = random.Random(kind), parse_type(kind)
    lists = [[None if rng.random() < 0.2 else VALUES[kind](rng) for _ in range(rows)] for rows in (60, 5, 0, 200, 9)]
    lists.append([None, VALUES[kind](rng)])
    files = [
        DataFile("data", "", "g", "f", "base", -1 if number == 4 else len(values), 4000, 1, 0, 100 - number)
        for number, values in enumerate(lists)
    ]
    making = collecting.Making([_part(kind)], SETTINGS)
    array = pa.array([value for values in lists for value in values], arrow_type(type_))
    expected = making.records(files, list(map(len, lists)), [array])

    rows = pa.table({collecting._FILE: np.repeat([file.lineage for file in files], list(map(len, lists))), "v0": array})
    monkeypatch.setattr(collecting, "ROWS_AT_ONCE", 50)
    pieces: dict[int, list[collecting.Piece]] = {}
    for some in (rows.slice(0, 90), rows.slice(90).take(rng.sample(range(len(rows) - 90), len(rows) - 90))):
        found = collecting._found_in_batches(
            making, {file.lineage: file for file in files}, some.to_batches(max_chunksize=20)
        )
        for piece in collecting._pieces_of(found):
            pieces.setdefault(piece.lineage, []).append(piece)
    assert len(pieces[files[3].lineage]) > 1
    for file, whole in zip(files, expected, strict=True):
        mine = making.joined(file, pieces.get(file.lineage, []))
        assert (mine.lineage, mine.rows) == (whole.lineage, whole.rows)
        assert alike(mine.columns[0], whole.columns[0], type_)
        assert mine.filters.keys() == whole.filters.keys()
        assert all((bits == whole.filters[key]).all() for key, bits in mine.filters.items())


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_given_a_session_that_exchanges_longer_offsets_then_filters_hold_the_values_all_the_same(kind: str) -> None:
    type_, values = parse_type(kind), [b"abc", b"abc", None]
    file = DataFile("data", "", "g", "f", "base", 3, 4000, 1, 0, 7)
    making = collecting.Making([_part(kind)], SETTINGS)
    large = pa.large_string() if kind == "string" else pa.large_binary()
    rows = pa.table({collecting._FILE: pa.array([7] * 3), "v0": pa.array(values, pa.large_binary()).cast(large)})
    (piece,) = collecting._pieces_of(collecting._found_in_batches(making, {7: file}, rows.to_batches()))
    bits = piece.known().filters[0, "bloom"]
    assert (bits == folded(_marked({"abc" if kind == "string" else b"abc"}, type_, len(bits)), 0.01)).all()


def test_given_many_tasks_that_read_one_file_then_the_driver_has_few_of_their_filters_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, tasks = 400_000, 40
    file = DataFile("data", "", "g", "f", "base", rows, 4_000_000, 1, 0, 7)
    making = collecting.Making([_part("bigint")], SETTINGS)

    answers = pa.Table.from_batches(
        [
            batch
            for some in np.split(np.arange(rows), tasks)
            for batch in collecting._found_in_batches(
                making, {7: file}, pa.table({collecting._FILE: np.full(len(some), 7), "v0": some}).to_batches()
            )
        ]
    )
    monkeypatch.setattr(collecting, "to_arrow", lambda rows: answers)
    tracemalloc.start()
    (known,) = collecting._found_by_tasks(Mock(), making, [file])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    whole = making.records([file], [rows], [pa.array(np.arange(rows))])[0]
    assert (known.filters[0, "bloom"] == whole.filters[0, "bloom"]).all()
    assert most < answers.nbytes + 8 * whole.filters[0, "bloom"].nbytes


def test_given_row_groups_of_many_rows_then_no_job_hands_more_filters_to_the_driver_than_those_of_files_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    making, jobs = collecting.Making([_part("bigint")], SETTINGS), list[list[Divided]]()
    unit = DataFile("data", "", "g", "f", "base", 1_000_000, 4_000_000, 1, 0, 7)
    divided = {number: Divided(Mock(), (unit,) * 50) for number in range(20)}

    def rows(snapshot: Any, some: list[Divided], parts: Any) -> None:
        jobs.append(some)

    monkeypatch.setattr(collecting, "_rows_of_row_groups", rows)
    monkeypatch.setattr(collecting, "_found_by_tasks", lambda rows, making, units: [Mock(rows=1)] * len(units))
    collecting._in_tasks(Mock(), making, [], divided)

    assert [each for some in jobs for each in some] == list(divided.values())
    for some in jobs:
        assert sum(making.bytes_of(one) for each in some for one in each.units) <= collecting.MAX_FILTER_BYTES


def test_given_a_file_of_more_rows_than_its_source_says_then_no_text_is_above_the_highest_that_is_known() -> None:
    file = DataFile("data", "", "g", "f", "base", 2, 4000, 1, 0, 7)
    part = Part(Expression("`c`", "c", ("c",), "c"), frozenset({"minmax"}), parse_type("string"))
    making, pieces = collecting.Making([part], SETTINGS), list[collecting.Piece]()
    for texts in (["z" * 80, "y"], ["a", "b"]):
        rows = pa.table({collecting._FILE: [7, 7], "v0": texts})
        pieces += collecting._pieces_of(collecting._found_in_batches(making, {7: file}, rows.to_batches()))
    assert making.joined(file, pieces).columns == (ColumnRecord(4, b"a", None),)
