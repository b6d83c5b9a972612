"""Sizes and lengths of time are written and read alike everywhere."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.sizes import parse_bytes, parse_minutes, parse_seconds
from spark_apps.storage.units import format_bytes, format_duration, format_seconds


@pytest.mark.parametrize(
    ("size", "decimal", "binary", "short"),
    [
        (0, "0 B", "0 B", "0 B"),
        (999, "999 B", "999 B", "999 B"),
        (1000, "1.0 kB", "1000 B", "1.0 kB"),
        (12_300_000, "12.3 MB", "11.7 MiB", "12.3 MB"),
        (160_200_000, "160.2 MB", "152.8 MiB", "160 MB"),
        (999_960_000, "1000.0 MB", "953.6 MiB", "1.0 GB"),
        (2 * 10**18, "2.0 EB", "1.7 EiB", "2.0 EB"),
        (3 * 10**30, "3.0e+12 EB", "2.6e+12 EiB", "3.0e+12 EB"),
    ],
)
def test_given_a_size_when_written_then_in_the_unit_that_leaves_few_digits(
    size: int, decimal: str, binary: str, short: str
) -> None:
    assert (format_bytes(size), format_bytes(size, binary=True), format_bytes(size, short=True)) == (
        decimal, binary, short,
    )  # fmt: skip


def test_given_a_length_of_time_when_written_then_in_one_unit() -> None:
    assert [format_seconds(seconds) for seconds in (42, 89, 120, 7200, 130_000)] == [
        "42 s", "89 s", "2 min", "2.0 h", "1.5 d"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (9.9, "9 s"), (59, "59 s"), (61, "1 min"), (3600, "1 h"), (5400, "1 h 30 min"), (90_000, "1 d 1 h"),
     (40_000, "11 h"), (900_000, "10 d")],
)  # fmt: skip
def test_given_a_length_of_time_when_shown_to_people_then_in_one_or_two_whole_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_given_text_with_a_unit_when_read_then_it_is_bytes_seconds_or_minutes() -> None:
    assert [parse_bytes(text, "x") for text in ("1.5GiB", "256 MB", "7", 7)] == [1610612736, 256_000_000, 7, 7]
    assert [parse_seconds(text, "x") for text in ("90s", "30m", "20h", "7d")] == [90, 1800, 72000, 604800]
    assert [parse_minutes(text, "x") for text in ("90s", "1.5h", 4)] == [1.5, 90, 4]


@pytest.mark.parametrize(
    ("read", "value"), [(parse_bytes, "7 miles"), (parse_bytes, -1), (parse_bytes, True), (parse_seconds, 30)]
)
def test_given_what_has_no_unit_that_is_known_when_read_then_it_is_refused_where_it_stands(read, value) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match=r"limits\.every is "):
        read(value, "limits.every")
