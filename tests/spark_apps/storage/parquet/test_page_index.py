"""Rows of Parquet files read by pages, against the same rows of the whole file; what is fetched is counted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.storage.parquet.files import footer_bytes
from spark_apps.storage.parquet.page_index import PageIndex, take
from spark_apps.storage.store import RangedFile

ROWS, GROUP = 50_000, 30_000
FLAT = ["id", "n", "big", "city", "part", "flag", "day"]
TABLE = pa.table(
    {
        "id": [f"k{n:06}" for n in range(ROWS)],
        "n": pa.array(range(ROWS), pa.int32()),
        "nested": [[n, None] for n in range(ROWS)],
        "big": pa.array([n * 2**33 for n in range(ROWS)], pa.int64()),
        "city": [f"c{n % 50}" for n in range(ROWS)],
        "part": [None if n % 3 == 0 or 2_000 < n < 9_000 else n / 7 for n in range(ROWS)],
        "pair": [{"a": n, "b": "x"} for n in range(ROWS)],
        "flag": [n % 2 == 0 for n in range(ROWS)],
        "day": pa.array([n // 100 for n in range(ROWS)], pa.int32()).cast(pa.date32()),
    }
)


class Written:
    """The file, opened by ranges that are counted."""

    def __init__(self, path: Path, **options: Any) -> None:
        given: dict[str, Any] = {"write_page_index": True, "write_page_checksum": True, **options}
        pq.write_table(TABLE, path, row_group_size=GROUP, data_page_size=4_000, **given)
        self.data = path.read_bytes()
        self.fetched: list[tuple[int, int]] = []
        self.source = RangedFile(self.fetch, len(self.data), 0)
        self.file = PageIndex(footer_bytes(self.source))

    def fetch(self, start: int, end: int) -> bytes:
        self.fetched.append((start, end))
        return self.data[start:end]

    def candidates(self, group: int, name: str, kind: str, value: Any) -> Any:
        return self.file.candidates(
            self.source, group, {name: kind}, lambda _, values: bool(values.low <= value <= values.high)
        )


@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd", "use_dictionary": False}, {"data_page_version": "2.0"}]
)
def test_any_rows_of_flat_columns_are_those_of_the_whole_file(tmp_path: Path, options: dict[str, Any]) -> None:
    written, chosen = Written(tmp_path / "f.parquet", **options), random.Random(5)
    for group, start in ((0, 0), (1, GROUP)):
        rows = written.file.rows(group)
        for _ in range(10):
            ends = sorted(chosen.sample(range(rows), 6))
            within = np.arange(ends[0], min(ends[1], ends[0] + 3_000))
            for some in (np.array(ends[:1]), np.array(ends[:3]), within, np.union1d(within, ends[2:])):
                found = written.file.read(written.source, group, FLAT, some)
                assert len(some) > 1 or list(found) == FLAT
                for name, column in found.items():
                    assert column.to_pylist() == TABLE.column(name).take(start + some).to_pylist(), name
    assert list(written.file.read(written.source, 0, ["nested", "id", "pair"], np.array([1]))) == ["id"]
    assert written.file.read(written.source, 0, ["id"], np.arange(GROUP)) == {}  # of all pages Arrow reads it sooner


@pytest.mark.parametrize(
    ("name", "kind", "row"),
    [("id", "string", 31_234), ("n", "int", 7), ("big", "bigint", 49_999), ("day", "date", 12_345)],
)
def test_pages_tell_which_rows_can_hold_a_value(tmp_path: Path, name: str, kind: str, row: int) -> None:
    written = Written(tmp_path / "f.parquet")
    group, start = divmod(row, GROUP)
    left = written.candidates(group, name, kind, TABLE.column(name)[row].as_py())
    assert start in left and len(left) < GROUP / 4
    assert not len(written.candidates(1 - group, name, kind, TABLE.column(name)[row].as_py()))


def test_a_few_rows_keep_no_memory_of_the_others(tmp_path: Path) -> None:
    written, rows = Written(tmp_path / "f.parquet", use_dictionary=False), np.arange(12_345, 12_348)
    read = written.file.read(written.source, 0, ["id", "n", "big"], rows)
    for found in (*read.values(), *take(TABLE, rows).columns):
        assert found.get_total_buffer_size() < 1_000
    most = np.arange(10_000, ROWS)
    assert take(TABLE.column("n"), most).chunk(0).buffers()[1].address == TABLE["n"].chunk(0).buffers()[1].address
    assert take(TABLE, most).equals(TABLE.slice(10_000))


def test_given_texts_of_more_than_one_chunk_can_hold_then_rows_are_taken_of_each_chunk() -> None:
    one = pa.array([f"{n:<1048576}" for n in range(16)])
    texts = pa.chunked_array([one] * 130)
    for some in ([7], [7, 8], [15, 16, 17], [0, 33, 2_079], []):
        rows = np.array(some, np.int64)
        for found in (take(texts, rows), take(pa.table({"t": texts}), rows).column("t")):
            assert [int(text) for text in found.to_pylist()] == [n % 16 for n in some]


def test_what_is_fetched_of_one_row_is_a_part_of_the_file(tmp_path: Path) -> None:
    written = Written(tmp_path / "f.parquet", use_dictionary=False)
    left = written.candidates(0, "id", "string", "k012345")
    written.fetched.clear()
    assert list(written.file.read(written.source, 0, ["id", "n"], left)) == ["id", "n"]
    [(start, end)] = written.fetched  # pages near each other, and what is between them
    assert end - start < len(written.data) / 8


def test_given_a_footer_that_is_kept_then_the_page_index_is_fetched_by_one_request(tmp_path: Path) -> None:
    written = Written(tmp_path / "f.parquet", use_dictionary=False)
    opened_again = RangedFile(written.fetch, len(written.data), 0)
    written.fetched.clear()
    left = written.file.candidates(opened_again, 1, {"id": "string"}, lambda _, values: values.low <= "k033000")
    assert len(written.fetched) == 1 and left is not None
    for name in FLAT:
        assert written.file.pages(opened_again, 1, name) is not None
    assert len(written.fetched) == 1


def test_a_file_without_a_page_index_is_left_to_the_caller_and_a_damaged_page_is_found(tmp_path: Path) -> None:
    written = Written(tmp_path / "f.parquet", write_page_index=False)
    assert written.candidates(0, "id", "string", "k000001") is None
    assert written.file.read(written.source, 0, ["id"], np.array([0])) == {}

    written = Written(tmp_path / "f.parquet", compression="none", use_dictionary=False)
    at = written.data.index(b"k000007")
    written.data = written.data[:at] + b"X" + written.data[at + 1 :]
    with pytest.raises(OSError, match="CRC"):
        written.file.read(written.source, 0, ["id"], np.array([7]))


def test_a_footer_that_is_none_is_refused(tmp_path: Path) -> None:
    written = Written(tmp_path / "f.parquet")
    for body in (b"", b"PAR1", written.data[:-1], b"PAR1" + b"\xff" * 64 + (60).to_bytes(4, "little") + b"PAR1"):
        with pytest.raises(OSError):
            PageIndex(footer_bytes(RangedFile(lambda start, end, held=body: held[start:end], len(body), 0)))
