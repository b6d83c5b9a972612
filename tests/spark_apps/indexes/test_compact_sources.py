"""The compact index over files that another writer owns: which blocks it names, and that only those are read."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import json as pj
from pyarrow import orc

from spark_apps import IndexedTable
from spark_apps.mergetree.blocks import read_block_batches, read_footers
from spark_apps.query import planning
from spark_apps.query.planning import filter_of, plan_read

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(12)]

BLOCK_ROWS = 100
Row = dict[str, Any]

PREDICATES: list[tuple[str, Callable[[Row], bool]]] = [
    ("v = 7", lambda r: r["v"] == 7),
    ("v IN (3, 8, 77)", lambda r: r["v"] in (3, 8, 77)),
    ("v > -1 AND v < 2", lambda r: r["v"] in (0, 1)),
    ("v >= 0 AND v <= 1 AND n >= 50", lambda r: r["v"] in (0, 1) and r["n"] >= 50),
    ("v > 12 AND v < 99", lambda r: r["v"] in (13, 14)),
    ("(v >= 13 AND v <= 98) OR v IS NULL", lambda r: r["v"] in (13, 14, None)),
    ("v BETWEEN 5 AND 6", lambda r: r["v"] in (5, 6)),
    ("v IS NULL", lambda r: r["v"] is None),
    ("v = 4 OR v = 12", lambda r: r["v"] in (4, 12)),
    ("v = 1000", lambda r: False),
    ("NOT (v <> 9)", lambda r: r["v"] == 9),
    ("v = 5 AND p = 'b'", lambda r: r["v"] == 5 and r["p"] == "b"),
]


def _blocks(rng: random.Random, first: int) -> list[list[Row]]:
    """Ten blocks; a value stands in one or two of them, and -1 and 99 in all, so that min and max rule out nothing."""
    blocks = []
    for block in range(10):
        own = [first + block, first + (block + 3) % 10] if block < 5 else [first + block]
        values = [-1, 99, *own, *([None] if block == 4 else [])]
        blocks.append([
            {"id": (first + block) * BLOCK_ROWS + i, "v": values[i % len(values)], "n": i,
             "pad": rng.randbytes(500).hex()}
            for i in range(BLOCK_ROWS)
        ])  # fmt: skip
    return blocks


SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("n", pa.int32()), ("pad", pa.string())])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, int, Row]]]:
    """A folder of two Parquet files of ten row groups, and its rows with (partition, block)."""
    root, rng = tmp_path_factory.mktemp("a lake"), random.Random(3)
    rows: list[tuple[str, int, Row]] = []
    for partition, first in (("a", 0), ("b", 5)):
        folder = root / f"p={partition}"
        folder.mkdir()
        with pq.ParquetWriter(folder / "x%20y z.parquet", SCHEMA, compression="none") as writer:
            for number, block in enumerate(_blocks(rng, first)):
                writer.write_table(pa.Table.from_pylist(block, SCHEMA))
                rows.extend((partition, number, {**row, "p": partition}) for row in block)
    return root, rows


@pytest.fixture(scope="module")
def table(spark: Any, lake: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    table = IndexedTable.register(spark, lake[0], format="parquet", index_root=str(tmp_path_factory.mktemp("logs")))
    receipt = table.create_index("by_v", "compact", ["v"])
    assert receipt.version is not None
    return table


def _ids(rows: Any) -> list[int]:
    return sorted(row["id"] for row in rows)


@pytest.mark.parametrize(("where", "matches"), PREDICATES, ids=[text for text, _ in PREDICATES])
def test_given_a_predicate_then_the_plan_names_the_blocks_that_hold_its_values_and_no_others(
    lake: Any, table: IndexedTable, where: str, matches: Callable[[Row], bool]
) -> None:
    plan = plan_read(table.snapshot, filter_of(table.snapshot, where))
    files = {file.lineage: file.partition[2:] for file in table.snapshot.state.files("data")}
    named = {(files[lineage], block) for lineage, numbers in plan.blocks.items() for block in numbers}
    # By the value alone: other columns of the predicate are the rows' affair.
    wanted = {(p, block) for p, block, row in lake[1] if matches({**row, "n": 99})}
    assert named == wanted
    assert {group[0][2:] for group in plan.groups} == {p for p, _ in wanted}


def test_given_predicates_then_rows_read_block_by_block_are_those_of_a_full_scan(
    spark: Any, lake: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    for where, matches in [*PREDICATES[:2], PREDICATES[5], PREDICATES[11]]:
        explanation = table.explain(where)
        assert explanation.blocks_read and explanation.index_used == "by_v"
        expected = [row for _, _, row in lake[1] if matches(row)]
        answer = [row.asDict() for row in table.read(where).collect()]
        assert sorted(map(repr, answer)) == sorted(repr({n: r[n] for n in answer[0]}) for r in expected)


def test_given_other_blocks_made_unreadable_then_a_lookup_does_not_notice_and_a_scan_does(
    spark: Any, lake: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    path = lake[0] / "p=a" / "x%20y z.parquet"
    before, times = path.read_bytes(), path.stat()
    # One of an even number of blocks that hold no 7.
    keep = {block for p, block, row in lake[1] if p == "a" and row["v"] == 7}
    metadata = pq.read_metadata(path)
    damaged = bytearray(before)
    for number in set(range(metadata.num_row_groups)) - keep:
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(number).column(place)
            start = min(
                offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset is not None
            )
            damaged[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    try:
        _overwrite(path, bytes(damaged), times)
        expected = [row for _, _, row in lake[1] if row["v"] == 7]
        assert _ids(table.read("v = 7").collect()) == _ids(expected)
        with pytest.raises(Exception, match=r"(?s)."):
            table.read("n = 7").collect()
    finally:
        _overwrite(path, before, times)


def _overwrite(path: Path, data: bytes, times: os.stat_result) -> None:
    """In place and with its old times, so that it passes for the file that was listed."""
    with path.open("r+b") as handle:
        handle.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_given_a_block_then_the_bytes_fetched_for_it_are_few_beside_those_of_the_file(table: IndexedTable) -> None:
    footer = read_footers(table.snapshot, table.snapshot.state.files("data"))[0]
    one = {"path": footer.address, "size": footer.file.bytes, "lineage": 1, "form": "parquet", "blocks": [4]}
    rows, raw = read_block_batches(one, {"id": ("id", "bigint"), "pad": ("pad", "string")}, {})
    assert sum(batch.num_rows for batch in rows) == BLOCK_ROWS
    needed = footer.bytes(["id", "pad"], [4])
    # The footer comes on top, in pyarrow's own way of fetching it: at most 64 KiB at once.
    assert needed <= raw.fetched <= needed + 96 * 1024 < footer.file.bytes / 4
    assert table.explain("v = 7").bytes_read <= sum(file.bytes for file in table.snapshot.state.files("data"))


def test_given_a_question_that_leaves_nearly_everything_then_the_index_says_that_it_is_of_no_use(
    table: IndexedTable,
) -> None:
    explanation = table.explain("v >= -1")
    assert explanation.index_used is None and explanation.not_used["by_v"].code == "no_gain"
    assert table.explain("n = 3").not_used["by_v"].code == "no_keys"
    assert table.explain("v = 3 OR n = 3").not_used["by_v"].code == "no_keys"
    table.alter_index("by_v", {"most_values": "3"})
    assert table.explain("v BETWEEN 2 AND 9").not_used["by_v"].code == "too_many_values"
    assert table.explain("v = 2").index_used == "by_v"
    table.alter_index("by_v", {"most_values": "200000"})


def test_given_values_that_min_and_max_tell_as_well_then_explain_says_so(spark: Any, tmp_path: Path) -> None:
    rows = [{"id": i, "v": i // 100, "n": 0, "pad": "x"} for i in range(1000)]
    source = tmp_path / "sorted"
    source.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), source / "f.parquet", row_group_size=100)
    table = IndexedTable.register(spark, source, format="parquet", index_root=str(tmp_path / "logs"))
    table.create_index("by_v", "compact", ["v"])
    explanation = table.explain("v = 5")
    assert explanation.index_used == "by_v" and explanation.notes[0].startswith("no_better_than_statistics")
    assert "no_better_than_statistics" in str(explanation)


def _write_orc(rows: list[Row], path: Path) -> None:
    with orc.ORCWriter(path, stripe_size=64 * 1024, batch_size=64, compression="uncompressed") as writer:
        for start in range(0, len(rows), 200):
            writer.write(pa.Table.from_pylist(rows[start : start + 200], SCHEMA))


def _write_json(rows: list[Row], path: Path) -> None:
    import json

    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert pj.read_json(path).num_rows == len(rows)


@pytest.mark.parametrize(("form", "write"), [("orc", _write_orc), ("json", _write_json)])
@pytest.mark.by_turn(8)
def test_given_other_formats_then_stripes_or_whole_files_are_told_and_appended_ones_after_a_refresh(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, write: Callable[[list[Row], Path], None]
) -> None:
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    rng, source = random.Random(1), tmp_path / "source"
    source.mkdir()
    rows = [{"id": i, "v": i // 100, "n": i % 3, "pad": rng.randbytes(200).hex()} for i in range(2000)]
    write(rows[:1000], source / f"one.{form}")
    write(rows[1000:1500], source / f"two.{form}")
    table = IndexedTable.register(spark, source, format=form, schema="id bigint, v int, n int, pad string",
                                  index_root=str(tmp_path / "logs"))  # fmt: skip
    table.create_index("by_v", "compact", ["v"])
    explanation = table.explain("v = 3")
    assert (explanation.files_read, explanation.files_skipped) == (1, 1)
    assert bool(explanation.blocks_skipped) == (form == "orc")
    assert _ids(table.read("v = 3").collect()) == list(range(300, 400))

    write(rows[1500:], source / f"three.{form}")
    later = IndexedTable.load(spark, table.uri)
    assert _ids(later.read("v IN (3, 17)").collect()) == [*range(300, 400), *range(1700, 1800)]
    assert later.refresh_index("by_v").metrics["files"] == 1
    assert later.explain("v = 17").files_read == 1
    assert later.refresh_index("by_v").version is None
    (source / f"one.{form}").unlink()
    last = IndexedTable.load(spark, table.uri)
    assert last.read("v = 3").count() == 0 and _ids(last.read("v = 12").collect()) == list(range(1200, 1300))
    assert last.verify("by_v").ok
