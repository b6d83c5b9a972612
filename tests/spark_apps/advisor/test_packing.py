"""What an index would take: how rows are packed, and by some rows of its table how many different values all have."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.advisor.in_memory import _times_more_values
from spark_apps.advisor.packing import packed, row_group_bytes
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.timeline.model import Field

ROWS, PARTS, PART = 400_000, 20, 1_000


@pytest.mark.parametrize("kind", ["anywhere", "side by side", "few"])
def test_given_some_rows_then_it_is_known_about_how_many_values_all_have(kind: str) -> None:
    dice = random.Random(7)
    column = {
        "anywhere": [dice.randrange(30_000) for _ in range(ROWS)],
        "side by side": [number // 4 for number in range(ROWS)],
        "few": [dice.randrange(50) for _ in range(ROWS)],
    }[kind]
    starts = range(0, ROWS, ROWS // PARTS)
    some = [value for start in starts for value in column[start : start + PART]]
    told = _times_more_values(pa.chunked_array([some]), ROWS / len(some))
    assert told == pytest.approx(len(set(column)) / len(set(some)), rel=0.1)


def _packed(values: list[Any], kind: str, **of_tree: Any) -> Any:
    snapshot: Any = Snapshot(NO_SPARK, None, None)  # type: ignore[arg-type]
    tree = Tree("t", (Field("v", kind),), ("v",), ("v",), **of_tree)
    kinds = {"string": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "decimal(30,2)": pa.decimal128(30, 2)}
    rows = pa.table({"v": pa.array(values, kinds.get(kind, pa.int64()))})
    return pq.read_metadata(pa.BufferReader(packed(snapshot, tree, rows))), (snapshot, tree, rows)


@pytest.mark.parametrize(
    ("name", "kind", "values", "kept"),
    [
        ("each once", "bigint", range(20_000), False),
        ("each four times", "bigint", [number // 4 for number in range(20_000)], True),
        ("few", "string", [f"city {number % 7}" for number in range(20_000)], True),
        ("each once, long", "string", [f"{number:036d}" for number in range(20_000)], False),
        ("each once, a time", "timestamp", range(20_000), False),
        ("few, of many digits", "decimal(30,2)", [number % 7 for number in range(20_000)], False),
        ("few at first", "bigint", [number // 8_192 * number for number in range(20_000)], True),
    ],
)
def test_given_values_then_they_get_a_dictionary_where_that_is_smaller_for_the_first_page_as_spark_decides(
    name: str, kind: str, values: Any, kept: bool
) -> None:
    metadata, _ = _packed(list(values), kind)
    assert metadata.row_group(0).column(0).has_dictionary_page == kept, name


def test_given_more_rows_than_a_row_group_holds_then_each_is_of_the_size_that_is_told() -> None:
    dice = random.Random(3)
    values = sorted(dice.randrange(2**60) for _ in range(400_000))
    metadata, packing = _packed(values, "bigint", compressed=False, row_group_bytes=1024 * 1024)
    sizes = [metadata.row_group(number).column(0).total_compressed_size for number in range(metadata.num_row_groups)]
    assert len(sizes) == 4 and max(sizes[:-1]) - min(sizes[:-1]) < 1_000
    assert sizes[0] == pytest.approx(1024 * 1024, rel=0.1)
    assert row_group_bytes(*packing) == pytest.approx(sizes[0], rel=0.02)
