"""What footers say of columns: bounds that Python does not know are none, and names with dots are no paths."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.storage.errors import CannotPublish
from spark_apps.storage.parquet.statistics import Bounds, bounds_of, bounds_together, column_bounds, flat_columns
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.model import Field, TableDefinition

UTC = dt.UTC
DAYS = {"year 10000": 2_932_897, "year 0": -719_529, "1970": 0}
MOST = 253_402_300_799_999_999


def footer(table: pa.Table, **options: Any) -> Any:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return pq.read_metadata(file)


def not_text(*values: bytes) -> pa.Array:
    """Texts that may be no UTF-8, as Spark writes them."""
    held = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(held), held.buffers())


def days(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).cast(pa.date32())


def moments(zone: str | None, *numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).cast(pa.timestamp("us", zone))


EPOCH, NAIVE = dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(1970, 1, 1)
LAST, PAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(1, 1, 1, tzinfo=UTC)

COLUMNS: dict[str, tuple[str, pa.Array, Any, Any, Any, Any]] = {
    # type, values, lowest and highest that Python knows, and what a published log says of them
    "late days": ("date", days(0, DAYS["year 10000"], None), dt.date(1970, 1, 1), None, "1970-01-01", None),
    "early days": ("date", days(DAYS["year 0"], 0), None, dt.date(1970, 1, 1), None, "1970-01-01"),
    "no days": ("date", days(DAYS["year 0"], DAYS["year 10000"]), None, None, None, None),
    "late": ("timestamp", moments("UTC", 0, 2**62), EPOCH, None, "1970-01-01T00:00:00.000Z", None),
    "early": ("timestamp_ntz", moments(None, -(2**62), 0), None, NAIVE, None, "1970-01-01T00:00:00.000"),
    "all years": ("timestamp", moments("UTC", -62_135_596_800_000_000, MOST), PAST, LAST, "0001-01-01T00:00:00.000Z",
                  None),
    "odd": ("timestamp", moments("UTC", 1, 1), EPOCH.replace(microsecond=1), EPOCH.replace(microsecond=1),
            "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"),
    "no text": ("string", not_text(b"a", b"\xff"), "a", None, "a", None),
    "cut text": ("string", not_text(b"\xe2\x82", b"z"), "z", None, "z", None),
    "signs": ("string", pa.array(["\x00\"\\", "\U0001f600"]), "\x00\"\\", "\U0001f600", "\x00\"\\", "\U0001f600"),
    "long": ("string", pa.array(["a", "b" * 200]), "a", "b" * 200, "a", None),
    "decimals": ("decimal(38,2)", pa.array([Decimal("-1.50"), Decimal("9" * 36 + ".25")], pa.decimal128(38, 2)),
                 Decimal("-1.50"), Decimal("9" * 36 + ".25"), Decimal("-1.50"), Decimal("9" * 36 + ".25")),
    "numbers": ("bigint", pa.array([-(2**63), 2**63 - 1]), -(2**63), 2**63 - 1, -(2**63), 2**63 - 1),
    "floats": ("double", pa.array([-0.0, math.inf]), -0.0, math.inf, None, None),
    "raw": ("binary", pa.array([b"\x00", b"\xff"]), b"\x00", b"\xff", None, None),
    "nulls": ("int", pa.array([None, None], pa.int32()), None, None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_given_values_of_any_kind_then_a_bound_that_cannot_be_told_is_left_out_and_no_other(name: str) -> None:
    kind, held, low, high, least, most = COLUMNS[name]
    metadata = footer(pa.table({"other": range(len(held)), "c": held}), row_group_size=1 if name == "odd" else 1000)

    assert column_bounds(metadata, 1) == Bounds(held.null_count, len(held) - held.null_count, low, high)
    table = TableDefinition("t", (Field("other", "bigint"), Field("c", kind)), ("other",), ())
    told = json.loads(delta_log.statistics(metadata, table, True), parse_float=Decimal)
    assert told["numRecords"] == len(held) and told["nullCount"] == {"other": 0, "c": held.null_count}
    assert (told["minValues"].pop("c", None), told["maxValues"].pop("c", None)) == (least, most)
    assert (told["minValues"], told["maxValues"]) == ({"other": 0}, {"other": len(held) - 1})


def test_given_a_name_with_dots_then_it_is_not_taken_for_a_path() -> None:
    below = pa.array([{"b": 5, "c.d": 6}])
    columns = {"a.b": [1], "a": below, "a.c.d": [2], "l.list.element": [3], "l": pa.array([[7]]), "a.x": [4]}
    for names in (list(columns), list(columns)[::-1]):
        metadata = footer(pa.table({name: columns[name] for name in names}))
        flat = flat_columns(metadata.schema)
        assert {name: column_bounds(metadata, leaf).low for name, leaf in flat.items()} == {  # type: ignore[union-attr]
            "a.b": 1, "a.c.d": 2, "l.list.element": 3, "a.x": 4
        }  # fmt: skip
        fields = (*(Field(name, "bigint") for name in flat), Field("a", "struct<b:bigint>"))
        told = json.loads(delta_log.statistics(metadata, TableDefinition("t", fields, ("a.b",), ()), True))
        assert told["minValues"] == told["maxValues"] == {"a.b": 1, "a.c.d": 2, "l.list.element": 3, "a.x": 4}


def test_given_row_groups_without_rows_or_statistics_then_all_is_known_of_the_others_or_nothing() -> None:
    rows, none = Bounds(1, 2, 3, 4), Bounds(2, 0)
    assert bounds_together([rows, none, Bounds(0, 1, 1, 2)]) == Bounds(3, 3, 1, 4)
    assert bounds_together([rows, None]) is None
    assert bounds_together([rows, Bounds(None, 1, 0, 9)]) == Bounds(None, 3, 0, 9)
    assert bounds_together([rows, Bounds(0, 1, None, 9)]) == Bounds(1, 3, None, 9)
    assert bounds_together([]) == Bounds(0, 0)
    assert bounds_of(None) is None
    without = footer(pa.table({"a": [1]}), write_statistics=False)
    assert column_bounds(without, 0) is None
    as_before = SimpleNamespace(
        has_null_count=True, null_count=0, num_values=1, has_min_max=True, physical_type="INT96"
    )
    assert bounds_of(as_before) == Bounds(0, 1), "an older pyarrow says that it has bounds"


def test_given_times_as_before_then_the_column_is_named_also_below_others() -> None:
    held = pa.array([{"at": dt.datetime(2024, 1, 1)}], pa.struct([("at", pa.timestamp("us"))]))
    metadata = footer(pa.table({"s": held}), use_deprecated_int96_timestamps=True)
    with pytest.raises(CannotPublish, match="'s' has its times as INT96"):
        delta_log.statistics(metadata, TableDefinition("t", (Field("s", "struct<at:timestamp>"),), (), ()), True)
