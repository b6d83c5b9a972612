"""Lines of asked queries, and many merged: counts stay right, memory stays bounded, and bad lines are refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spark_apps.storage.errors import LogDamaged
from spark_apps.workload.asked import AskedQuery, Workload, from_document
from spark_apps.workload.limits import MAX_GROUP_CHARACTERS, MAX_PREDICATES

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def query(number: int = 0, weight: float = 1.0, shape: str = "city = ?", **more: Any) -> AskedQuery:
    given: dict[str, Any] = {
        "table": "s3://lake/trips", "asked": BEGAN + timedelta(minutes=number), "predicate": f"city = 'c{number}'",
        "shape": shape, "weight": weight, "bytes_read": 10, "bytes_skipped": 90, "spared": {"by_city": 7},
        "used": (("by_city", "secondary"),), "unused": (("cov", "covering", "lacks_columns"),),
    }  # fmt: skip
    return AskedQuery(**{**given, **more})


def test_given_a_query_when_it_is_written_and_read_then_it_is_the_same() -> None:
    for one in (query(), query(columns=("a", 'b "c"')), query(predicate=None, shape=None, used=(), spared={})):
        line = one.to_document()
        assert b"\n" not in line
        assert from_document(line) == one


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"\xff", b'{"table": "t"}', query().to_document()[:-20],
        query().to_document().replace(b"2026", b"1066"), query().to_document().replace(b'"weight":1.0', b'"weight":-1'),
        query().to_document().replace(b'"bytes_read":10', b'"bytes_read":1e30'),
        query().to_document().replace(b'"shape":"city = ?"', b'"shape":null'),
        b'{"table": ' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_given_a_line_that_is_no_query_when_it_is_read_then_it_is_refused(line: bytes) -> None:
    with pytest.raises(LogDamaged):
        from_document(line)


def test_given_lines_that_stand_for_many_when_merged_then_sums_count_them_as_often() -> None:
    rng = random.Random(3)
    lines = [query(number, rng.choice((1.0, 10.0, 2.5)), rng.choice(("city = ?", "id = ?"))) for number in range(300)]
    merged = Workload(lines)

    weights: dict[str, float] = {}
    for line in lines:
        weights[line.shape or ""] = weights.get(line.shape or "", 0.0) + line.weight
    assert {group.shape.shape: group.weight for group in merged} == pytest.approx(weights)
    assert merged.weight == pytest.approx(sum(weights.values())) and merged.lines == 300
    for group in merged:
        assert group.bytes_skipped == pytest.approx(90 * group.weight)
        assert len(group.predicates) == MAX_PREDICATES
        assert sum(one.weight for one in group.queries()) == pytest.approx(group.weight)
    worth = merged.indexes()["by_city"]
    assert worth.used == pytest.approx(merged.weight) and worth.bytes_spared == pytest.approx(7 * merged.weight)
    assert merged.indexes()["cov"].unused == pytest.approx({"lacks_columns": merged.weight})
    again = Workload(merged.queries())
    assert again.weight == pytest.approx(merged.weight) and len(again) == 2


def test_given_more_shapes_than_are_kept_when_merged_then_the_rarest_are_left_out_and_counted() -> None:
    merged = Workload(most=10)
    for number in range(500):
        merged.add(query(number, shape=f"c{number} = ?"))
        merged.add(query(number, weight=5.0, shape=f"c{number % 5} = ?"))
        assert len(merged._groups) <= 20
    kept = list(merged)
    assert len(kept) == 10 and {f"c{number} = ?" for number in range(5)} <= {one.shape.shape for one in kept}
    assert sum(one.weight for one in kept) + merged.left_out == pytest.approx(merged.weight)


def test_given_long_predicates_when_merged_then_a_group_keeps_some_of_them_only() -> None:
    long = Workload(query(number, predicate=f"city = '{number}{'x' * 9_000}'") for number in range(100))
    [group] = long
    assert 1 <= len(group.predicates) <= MAX_GROUP_CHARACTERS // 9_000


def test_given_queries_of_several_tables_when_one_is_asked_for_then_only_its_queries_count() -> None:
    merged = Workload([query(), query(table="spark_catalog.lake.trips", weight=3.0), query(table="s3://lake/trips2")])
    merged.refuse("damaged", 4)
    of_one = merged.of_table("s3://lake/trips")
    assert of_one.weight == 4.0 and {group.shape.table for group in of_one} == {"s3://lake/trips"}
    assert of_one.refused == {"damaged": 4}
