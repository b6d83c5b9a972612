"""Where marks and bars stand, and how numbers and times are said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.ui import formatting
from airflow_provider_index.ui.access import in_environment
from airflow_provider_index.ui.commits import Entry, entries, lane_of
from airflow_provider_index.ui.overview import OverviewQuery
from airflow_provider_index.ui.pictures import bucket_picture, timeline_picture
from spark_apps.timeline.state import Window
from spark_apps.timeline.statistics import PartitionStatistics
from tests.airflow_provider_index.ui import lakes

AT = datetime(2026, 11, 20, 14, 2, 7, tzinfo=UTC)


def entry(version: int, operation: str = "upsert", **more: Any) -> Entry:
    return Entry(version, AT, operation, lane_of(operation), f"txn{version}", 1, version - 1, **more)


def test_commits_stand_one_step_apart_newest_right_whatever_their_number() -> None:
    for count in (1, 5, 60):
        picture = timeline_picture([entry(version) for version in range(count)], [])
        places = [mark.x for mark in picture.marks]

        assert places == sorted(places)
        assert places[0] > 0 and places[-1] < picture.width
        assert picture.width - places[-1] < 20


def test_bars_grow_with_bytes_and_the_largest_is_as_high_as_there_is_room() -> None:
    sizes = [0, 1, 1000, 10**9, 10**12]
    picture = timeline_picture([entry(n, data_bytes=size, index_bytes=size) for n, size in enumerate(sizes)], [])
    heights = [mark.data_height + mark.index_height for mark in picture.marks]

    assert heights == sorted(heights)
    assert heights[0] == 0
    assert heights[-1] == pytest.approx(56)
    assert all(mark.data_height == pytest.approx(mark.index_height) for mark in picture.marks)


def test_a_window_is_drawn_from_its_opening_to_its_end_or_to_the_edge_while_it_is_open() -> None:
    log = [
        entry(7, "close_window", epoch=3, ended=True),
        entry(8, "open_window", epoch=8),
        entry(9),
        entry(10, "close_window", epoch=8, ended=True),
        entry(11, "open_window", epoch=11),
        entry(12),
    ]
    picture = timeline_picture(log, [Window(11, "ann", 0.0, 0.0)])
    at = {mark.entry.version: mark.x for mark in picture.marks}
    before, closed, still = picture.stretches

    assert before.x < at[7] == pytest.approx(before.x + before.width)
    assert (closed.x, closed.x + closed.width) == pytest.approx((at[8], at[10]))
    assert still.x == at[11] and still.x + still.width > at[12]
    assert [stretch.open_end for stretch in picture.stretches] == [False, False, True]
    assert "ann" in still.title


def test_each_kind_of_work_has_its_own_row() -> None:
    operations = ["upsert", "create_index", "rescale", "renew_window", "expire", "something_new"]
    marks = timeline_picture([entry(n, operation) for n, operation in enumerate(operations)], []).marks

    assert len({mark.y for mark in marks}) == 5
    assert marks[4].y == marks[5].y


def partition(sizes: tuple[int, ...], buckets: int | None = None) -> PartitionStatistics:
    return PartitionStatistics("dt=1", buckets, len(sizes), sum(sizes), 0, sizes)


def test_buckets_are_drawn_to_one_scale_and_many_of_them_several_to_a_bar() -> None:
    few = bucket_picture(partition((10, 40, 0, 30), 4), 80)
    heights = [bar.height for bar in few.bars]
    many = bucket_picture(partition(tuple(range(1, 1001)), 1000), 1000)

    assert heights[1] == pytest.approx(22)
    assert heights[0] < heights[3] < heights[1]
    assert heights[2] < 1
    assert few.mean == pytest.approx(44 * (1 - 20 / 80))
    assert len(many.bars) == 125
    assert many.bars[-1].title == "Buckets 992 to 999: at most 1.0 kB"
    assert bucket_picture(partition(()), 0).bars == ()


def test_the_entries_of_a_log_say_what_was_written_and_what_a_restore_took_back(tmp_path: Path) -> None:
    timeline = lakes.make(tmp_path / "t")
    lakes.write(timeline, "dt=1", [9000, 0, 1800, 0], tombstones=3)
    lakes.write(timeline, "dt=1", [900, 900, 900, 900])
    lakes.restore(timeline, 1)

    shown = list(entries(timeline.commits(), timeline.refresh()))

    assert [one.operation for one in shown] == ["create", "upsert", "upsert", "restore"]
    assert (shown[1].added, shown[1].data_bytes, shown[1].rows, shown[1].tombstones) == (2, 10800, 114, 6)
    assert [one.stands for one in shown] == [True, True, False, True]
    assert "2 files added, 10.8 kB" in shown[1].title
    assert "taken back by a restore, or dropped with its table" in shown[2].title


def test_sizes_and_times_are_shown_shortly() -> None:
    assert [formatting.size(n) for n in (0, 999, 1000, 31_000_000, 123_456_789_000)] == [
        "0 B", "999 B", "1.0 kB", "31.0 MB", "123 GB"
    ]  # fmt: skip
    assert formatting.ago(AT, AT.timestamp() + 7200) == "2 h ago"
    assert formatting.ago(AT, AT.timestamp() - 120) == "in 2 min"
    assert formatting.of_instant("20261120140207250").microsecond == 250_000
    assert f"{formatting.of_instant('20261120140260250'):%H:%M:%S}" == "14:03:00"  # a second 60 stands in some logs


def test_table_stores_are_found_among_the_connections_of_the_environment() -> None:
    environ = {
        "AIRFLOW_CONN_LAKE": '{"conn_type": "index_table_store", "extra": {}}',
        "AIRFLOW_CONN_BY_URI": "index-table-store://?warehouse=%2Fdata",
        "AIRFLOW_CONN_SPARK": "spark://host:7077",
        "AIRFLOW_CONN_BROKEN": '{"conn_type": ',
        "OTHER": "index-table-store://",
    }

    assert sorted(in_environment(environ)) == ["by_uri", "lake"]


def test_an_address_with_nonsense_in_it_is_as_if_it_had_not_been_said() -> None:
    assert OverviewQuery.of({"page": "-3", "per": "99999999999", "sort": "drop", "show": "x"}) == OverviewQuery()
    assert OverviewQuery.of({"page": "٣", "per": "5000"}).per_page == 1000
