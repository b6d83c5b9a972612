"""Which indexes of rows stand in for a source's files: by what they spare, and by what is done with the rows after."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_apps.optimizer import held_rows
from spark_apps.optimizer.file_choice import places_in, runs_of
from spark_apps.query.planning import IndexUse
from spark_apps.timeline.model import IndexDefinition

_MB = 1_000_000


def plan(held: int, stored: int) -> Any:
    """A plan that reads an index by the day in place of a source's one file; both in MB."""
    definition = IndexDefinition("by_day", "covering", ("day",), "1" * 32)
    state = SimpleNamespace(indexes={"by_day": SimpleNamespace(definition=definition)})
    use = IndexUse("by_day", 3, held * _MB, 0, 1, stored * _MB)
    return SimpleNamespace(used=(use,), snapshot=SimpleNamespace(state=state, spark=None))


@pytest.mark.parametrize(
    ("held", "stored", "joined", "narrow"),
    [
        (0, 1, (), True),
        (3, 10, (), True),
        (3, 10, ("rider",), True),
        (5, 10, (), False),
        (50, 100, (), True),
        (50, 100, ("rider",), False),
        (50, 100, ("rider", "day"), True),
        (80, 100, (), False),
        (200, 100, (), False),
    ],
)
def test_given_an_index_that_reads_a_third_or_more_then_it_must_spare_time_and_lie_as_its_rows_are_joined(
    monkeypatch: pytest.MonkeyPatch, held: int, stored: int, joined: tuple[str, ...], narrow: bool
) -> None:
    monkeypatch.setattr(held_rows, "read_seconds", lambda spark, size: size / (120 * _MB))
    assert held_rows.is_narrow(plan(held, stored), joined) is narrow


@pytest.mark.parametrize("places", [[], [0], [3], [0, 1, 2, 7, 9, 10], list(range(40))])
def test_given_places_of_files_then_they_are_read_back_as_they_were_written(places: list[int]) -> None:
    assert places_in(runs_of(reversed(places))) == places
