"""The files of a skipping index: what was written is found again, and what is damaged is said to be."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from spark_apps.indexes.ranges import OutOfRange, RawString
from spark_apps.indexes.skipping import collecting
from spark_apps.indexes.skipping.definition import Settings
from spark_apps.indexes.skipping.records import (
    ColumnRecord,
    Known,
    Marks,
    RecordFile,
    RowGroups,
    blocks_for,
    folded,
    grams,
    rounded_blocks,
    value_from,
    written,
)
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import FileReader
from spark_apps.mergetree.tree import DELETED
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile

pytestmark = pytest.mark.by_turn(8)

BIGINT = parse_type("bigint")
BINARY = parse_type("binary")


def _filter(values: list[Any], kind: Any, blocks: int) -> Any:
    bits = np.zeros((blocks, 4), dtype="<u8")
    for value in values:
        marks = Marks.of(value, kind)
        bits[marks.block(blocks)] |= np.array(marks.words, dtype="<u8")
    return bits.view("<i8")


def _file(folder: Path, known: list[Known], keys: tuple[str, ...] = ("`n`", "`s`")) -> RecordFile:
    store = Store(folder)
    data = written(keys, ("bigint", "string"), 3, known)
    store.put("x.skipping", data)
    return RecordFile(store, DataFile("t", "", "records", "x.skipping", "base", len(known), len(data), 1))


def _known(rng: random.Random, lineage: int, values: list[int], blocks: int) -> Known:
    texts = [f"text {value} of {lineage}" for value in values]
    column = ColumnRecord(len(values), b"1", b"9", (b"1", b"2"))
    found = [gram for text in texts for gram in grams(text, 3)]
    filters = {(0, "bloom"): _filter(values, BIGINT, blocks), (1, "ngrams"): _filter(found, BINARY, 4)}
    return Known(lineage, len(values) + 1, {"spark": "4"}, (column, ColumnRecord(0)), filters)  # type: ignore[arg-type]


def _divided(rng: random.Random, lineage: int, groups: list[list[int]]) -> Known:
    """Return what is known of a file and of its row groups, which hold these values."""
    whole = _known(rng, lineage, [value for values in groups for value in values], 8)
    return replace(whole, rows=sum(len(values) + 1 for values in groups),
                   row_groups=tuple(_known(rng, lineage, values, rng.choice((1, 2))) for values in groups))  # fmt: skip


def test_given_row_groups_then_each_has_its_own_record_and_filters_and_files_without_them_have_none(
    tmp_path: Path,
) -> None:
    rng = random.Random(4)
    values = {
        lineage: [[rng.randrange(10**9) for _ in range(9)] for _ in range(rng.choice((2, 3, 700)))]
        for lineage in range(1, 7)
    }
    known = [_divided(rng, lineage, groups) for lineage, groups in values.items()]
    known.insert(2, _known(rng, 99, [5], 8))
    file = _file(tmp_path, known)
    assert file.row_groups_of(2) is None and file.row_groups(2) == []
    found = rows = 0
    for number, (one, groups) in enumerate(zip([*known[:2], *known[3:]], values.values(), strict=True)):
        number += number > 1
        units = file.row_groups(number)
        assert file.row_groups_of(number) == len(units) == len(groups)
        assert [(unit.rows, unit.columns) for unit in units] == [(g.rows, g.columns) for g in one.row_groups]
        for unit, held in zip(units, groups, strict=True):
            assert all(file.may_equal(unit.number, 0, value) for value in held)
            assert file.may_contain(unit.number, 1, f"text {held[0]} of")
            found, rows = found + sum(file.may_equal(unit.number, 0, value) for value in range(20)), rows + 20
        assert all(file.may_equal(number, 0, value) for held in groups for value in held)
    assert found < rows / 20
    again = file.known()
    assert [len(one.row_groups) for one in again] == [len(one.row_groups) for one in known]
    for one, of in zip(again, known, strict=True):
        for group, written_group in zip(one.row_groups, of.row_groups, strict=True):
            assert (group.rows, group.columns) == (written_group.rows, written_group.columns)
            assert all((group.filters[key] == bits).all() for key, bits in written_group.filters.items())


def test_given_files_without_records_of_row_groups_then_their_file_is_one_that_earlier_releases_read(
    tmp_path: Path,
) -> None:
    rng = random.Random(6)
    _file(tmp_path, [_known(rng, 1, [1, 2], 8)])
    assert (tmp_path / "x.skipping").read_bytes()[:8] == b"LKSKIP2\n"
    _file(tmp_path / "other", [_divided(rng, 1, [[1], [2]])])
    assert (tmp_path / "other" / "x.skipping").read_bytes()[:8] == b"LKSKIP3\n"


@pytest.mark.parametrize(
    "groups",
    [
        RowGroups(1, (2, 2), b""), RowGroups(0, (2, 3), b""), RowGroups(0, (), b""), RowGroups(0, (5, -1), b""),
        RowGroups(0, (2, 2), b"\xc1"), RowGroups(0, (2, 2), msgspec.msgpack.encode([[], []])),
        RowGroups(0, (2, 2), msgspec.msgpack.encode([[ColumnRecord(1), ColumnRecord(1)]])),
    ],
    ids=["of no file", "other rows", "none", "less than no rows", "no records", "other columns", "too few"],
)  # fmt: skip
def test_given_records_of_row_groups_that_cannot_be_then_the_file_is_damaged(tmp_path: Path, groups: RowGroups) -> None:
    file = _file(tmp_path, [_divided(random.Random(7), 1, [[1], [2]])])
    with pytest.raises(StorageError, match=r"b\.skipping"):
        _with_header(tmp_path, file, row_groups=(groups,)).row_groups(0)


@pytest.mark.parametrize(
    "change", [{"page": 0}, {"blocks": 0}, {"page": -1}, {"column": 2}, {"files": (9,)}, {"offset": -64}, {"kind": "x"}]
)
def test_given_filters_that_cannot_be_then_the_file_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    file = _file(tmp_path, [_divided(random.Random(7), 1, [[1], [2]])])
    first, *others = file.header.sections
    with pytest.raises(StorageError, match=r"b\.skipping"):
        _with_header(tmp_path, file, sections=(msgspec.structs.replace(first, **change), *others))


def _with_header(folder: Path, file: RecordFile, **changes: Any) -> RecordFile:
    """The file with another header, which has the right checksum."""
    header = msgspec.msgpack.encode(msgspec.structs.replace(file.header, **changes))
    packed = pa.compress(header, codec="zstd", asbytes=True)
    data = (folder / "x.skipping").read_bytes()
    data = (
        struct.pack("<8sQQQ", b"LKSKIP3\n", len(packed), len(header), xxhash.xxh3_64_intdigest(packed))
        + packed
        + data[len(data) - sum(section.bytes for section in file.header.sections) :]
    )
    (folder / "b.skipping").write_bytes(data)
    return RecordFile(Store(folder), DataFile("t", "", "records", "b.skipping", "base", 1, len(data), 1))


def test_given_many_files_of_several_sizes_then_each_value_is_found_and_few_others_are(tmp_path: Path) -> None:
    rng = random.Random(1)
    values = {lineage: [rng.randrange(10**12) for _ in range(200)] for lineage in range(1, 61)}
    known = [_known(rng, n, held, blocks_for(200, 0.002) if n % 3 else 40) for n, held in values.items()]
    file = _file(tmp_path, known)
    for number, held in enumerate(values.values()):
        assert all(file.may_equal(number, 0, value) for value in held)
        assert all(file.may_contain(number, 1, f"text {value} of") for value in held[:20])
    others = [rng.randrange(10**12) for _ in range(500)]
    wrong = sum(file.may_equal(number, 0, value) for number in range(60) for value in others)
    assert wrong < 0.01 * 60 * len(others)
    assert [file.has(0, 0, kind) for kind in ("bloom", "ngrams")] == [True, False]  # type: ignore[arg-type]
    again = file.known()
    assert [(one.lineage, one.rows, one.columns, dict(one.stamp)) for one in again] == [
        (one.lineage, one.rows, one.columns, dict(one.stamp)) for one in known
    ]
    assert all((one.filters[key] == bits).all() for one, of in zip(again, known, strict=True)
               for key, bits in of.filters.items())  # fmt: skip


def test_given_one_value_among_a_thousand_files_then_some_kilobytes_are_read(tmp_path: Path) -> None:
    held = _filter(list(range(2_000)), BIGINT, blocks_for(2_000, 0.002))
    known = [
        Known(n + 1, 2_000, {}, (ColumnRecord(2_000), ColumnRecord(0)), {(0, "bloom"): held}) for n in range(1_000)
    ]
    file = _file(tmp_path, known)
    before = file.fetched
    assert all(file.may_equal(number, 0, 77) for number in range(1_000))
    assert file.fetched - before < 64 * 1024 < file.file.bytes / 20


@pytest.mark.by_turn(1)
def test_given_any_byte_changed_or_cut_off_then_the_file_is_refused_and_nothing_is_ruled_out(tmp_path: Path) -> None:
    rng = random.Random(2)
    held = [rng.randrange(10**9) for _ in range(50)]
    halves = tuple(_known(rng, 1, some, 2) for some in (held[:25], held[25:]))
    file = _file(tmp_path, [replace(_known(rng, 1, held, 8), rows=52, row_groups=halves)])
    data = (tmp_path / "x.skipping").read_bytes()
    answers = 0
    for number in range(300):
        store = Store(tmp_path / f"{number}")
        at = number if number < 60 else rng.randrange(len(data))
        broken = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if number % 5 else data[:at]
        store.put("x.skipping", broken)
        said = DataFile("t", "", "records", "x.skipping", "base", 1, len(data), 1)
        try:
            opened = RecordFile(store, said)
            assert all(opened.may_equal(0, 0, value) for value in held)
            first, second = (unit.number for unit in opened.row_groups(0))
            assert all(opened.may_equal(first, 0, value) for value in held[:25])
            assert all(opened.may_equal(second, 0, value) for value in held[25:])
            answers += 1
        except StorageError as error:
            assert "x.skipping" in error.message
    assert answers < 300 and file.may_equal(0, 0, held[0])


@pytest.mark.by_turn(1)
def test_given_a_filter_larger_than_its_values_need_then_it_is_folded_and_forgets_none() -> None:
    values = list(range(300))
    bits = folded(_filter(values, BIGINT, rounded_blocks(4_000)), 0.01)
    assert len(bits) <= 2 * blocks_for(300, 0.01)
    words = bits.view("<u8")
    for value in values:
        marks = Marks.of(value, BIGINT)
        held = words[marks.block(len(bits))].tolist()
        assert all(word & mark == mark for word, mark in zip(held, marks.words, strict=True))
    assert len(folded(np.zeros((64, 4), dtype="<i8"), 0.01)) == 1


@pytest.mark.parametrize("blocks", [0.1, 1, 7, 8, 9, 17, 100, 1_000, 12_345.6])
def test_given_a_number_of_blocks_then_it_is_rounded_up_by_an_eighth_at_most(blocks: float) -> None:
    assert blocks <= rounded_blocks(blocks) <= max(1.0, blocks * 1.126 + 1)


@pytest.mark.parametrize(
    ("data", "kind", "value"),
    [
        (b"-7", "int", -7),
        (b"1", "boolean", True),
        (b"-0.0", "double", 0.0),
        (b"-Infinity", "float", -math.inf),
        (b"0E-10", "decimal(38,10)", Decimal("0E-10")),
        (b"-12.50", "decimal(10,2)", Decimal("-12.50")),
        (b"19723", "date", dt.date(2024, 1, 1)),
        (b"1", "timestamp", dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)),
        (b"-1", "timestamp_ntz", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("Straße".encode(), "string", "Straße"),
        (b"\xff", "binary", b"\xff"),
    ],
)
def test_given_a_value_as_bytes_then_it_is_the_one_that_predicates_compare(data: bytes, kind: str, value: Any) -> None:
    assert value_from(data, parse_type(kind)) == value


def test_given_values_that_python_does_not_know_then_they_lie_on_the_right_side_of_all_others() -> None:
    assert math.isnan(value_from(b"NaN", parse_type("double")))
    assert isinstance(value_from(b"\xff", parse_type("string")), RawString)
    for kind, one in (("date", dt.date.max), ("timestamp_ntz", dt.datetime.max)):
        far, early = value_from(b"9" * 18, parse_type(kind)), value_from(b"-" + b"9" * 18, parse_type(kind))
        assert isinstance(far, OutOfRange) and one < far and early < one


def test_given_a_text_with_half_a_character_or_shorter_than_what_is_kept_then_nothing_is_ruled_out(
    tmp_path: Path,
) -> None:
    file = _file(tmp_path, [_known(random.Random(3), 1, [1], 8)])
    assert file.may_contain(0, 1, "\ud800xyz")
    assert not file.may_contain(0, 1, "qqqq") and file.may_contain(0, 1, "qq")


def test_given_a_file_of_an_earlier_release_then_it_is_read(tmp_path: Path) -> None:
    rng = random.Random(3)
    file = _file(tmp_path, [_known(rng, 1, [1, 2, 3], 8)])
    header = msgspec.msgpack.encode(file.header)
    data = (tmp_path / "x.skipping").read_bytes()
    earlier = struct.pack("<8sQQ", b"LKSKIP1\n", len(header), xxhash.xxh3_64_intdigest(header)) + header
    earlier += data[len(data) - sum(section.bytes for section in file.header.sections) :]
    (tmp_path / "e.skipping").write_bytes(earlier)
    opened = RecordFile(Store(tmp_path), DataFile("t", "", "records", "e.skipping", "base", 1, len(earlier), 1))
    assert opened.header == file.header and all(opened.may_equal(0, 0, value) for value in (1, 2, 3))


@pytest.mark.parametrize(
    ("kind", "data"),
    [("int", b"x"), ("decimal(4,2)", b"1.234"), ("double", b""), ("date", b"1e3"), ("timestamp", "١".encode())],
)
def test_given_bytes_that_are_no_value_of_their_type_then_the_file_is_damaged(
    tmp_path: Path, kind: str, data: bytes
) -> None:
    known = [Known(1, 1, {}, (ColumnRecord(1, data, data),))]
    store = Store(tmp_path)
    content = written(["`n`"], [kind], 4, known)
    store.put("b.skipping", content)
    file = RecordFile(store, DataFile("t", "", "records", "b.skipping", "base", 1, len(content), 1))
    with pytest.raises(StorageError, match=r"b\.skipping"):
        file.value(data, 0)


def test_given_texts_stored_as_views_and_deleted_rows_then_rows_that_are_left_are_read_here(tmp_path: Path) -> None:
    types = {"s": ("s", "string"), DELETED: (DELETED, "boolean")}
    reading = collecting.Reading(collecting.Making((), Settings(20, 0.01, 3)), types, {}, True, {})
    reader, tables = FileReader(types, {}), list[pa.Table]()
    for tombstones in (1, 0):
        marks = pa.array([True if n < tombstones else None for n in range(3)], pa.bool_())
        path = tmp_path / f"{tombstones}.parquet"
        pq.write_table(pa.table({"s": pa.array(["a", "b", None], pa.string_view()), DELETED: marks}), path)
        file = DataFile("data", "", "g", path.name, "base", 3, path.stat().st_size, 1, tombstones)
        tables.append(collecting._rows_of_file(reading, reader, (file, str(path))))
    assert reader.together(tables).to_pydict() == {"s": ["b", None, "a", "b", None]}
