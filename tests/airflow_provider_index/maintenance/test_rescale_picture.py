"""The picture of a planned rescale shows what is and what will be, for any number of partitions and buckets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from airflow_provider_index.maintenance.rescale_picture import SHOWN, RescaledPartition, markdown, svg
from spark_apps.timeline.statistics import PartitionStatistics


def before(path: str, sizes: tuple[int, ...], to: int) -> RescaledPartition:
    return RescaledPartition(PartitionStatistics(path, len(sizes), len(sizes), sum(sizes), 0, sizes), to)


def plan(*partitions: RescaledPartition) -> dict[str, object]:
    return {
        "partitions": [{"partition": one.partition.path} for one in partitions], "files": 9, "bytes": 3_000_000,
        "estimated_seconds": 42.0, "estimated_from": "the rescale in version 4", "expressions": "dt=.*,4",
        "rule": "regex", "default": 2, "unchanged": 7,
    }  # fmt: skip


def test_given_a_plan_when_drawn_then_counts_sizes_and_costs_are_there() -> None:
    one = before("dt=2026-11-11", (8_000_000, 0), 4)
    text = markdown("sales.orders", plan(one), [one], "https://airflow/lakeindex")

    assert "1 partition is written anew, 9 files of 3.0 MB, in about 42 s (from the rescale in version 4)" in text
    assert "before     2 buckets, up to    8.0 MB  " + "█" * 30 in text
    assert "after      4 buckets, about    2.0 MB  " + "█" * 8 in text
    assert (
        "bucket 0                     8.0 MB  " + "█" * 30 in text and "bucket 1                        0 B  ·" in text
    )
    assert re.search(r"\n +0 +4\.0 MB +8\.0 MB\n +├─+┼─+┤\n", text), "the scale of all bars"
    assert "7 partitions keep their count" in text and "https://airflow/lakeindex" in text


def test_given_many_buckets_when_drawn_then_each_bar_is_the_fullest_of_a_few_and_as_long_as_on_the_scale() -> None:
    one = before("p=a", tuple(range(0, 3_000_000, 100_000)), 30)
    lines = [line for line in markdown("t", plan(one), [one]).splitlines() if "fullest of" in line]

    assert len(lines) == 8 and "fullest of 26 to 29" in lines[-1]
    assert lines[-1].endswith("2.9 MB  " + "█" * 30) and lines[3].endswith("1.4 MB  " + "█" * 14)


def test_given_only_rules_change_when_drawn_then_it_says_so() -> None:
    assert "no partition is written anew" in markdown("t", plan(), [])


def test_given_very_many_partitions_and_buckets_when_drawn_then_the_picture_stays_small_and_well_formed() -> None:
    many = [before(f"p=<{number}>&", tuple(range(number, number + 3000)), 100_000) for number in range(200)]
    text, picture = markdown("t<&>", plan(*many), many), svg("t<&>", many)

    assert f"… and {200 - SHOWN} smaller partitions" in text and len(text) < 20_000
    root = ET.fromstring(picture)
    assert len(picture) < 700_000 and root.attrib["role"] == "img"
    assert svg("empty", []) and ET.fromstring(svg("empty", [before("", (), 1)])) is not None
