"""What the pairs are worth: with a check taken out of the code, the meeting that needs it goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.differential.session import small
from tests.pairs.arena import Arena
from tests.pairs.planted import PLANTED

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def arena(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with small(spark, compiled=False):
        yield Arena(spark, "buckets", tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("name", PLANTED)
def test_given_a_fault_when_its_actions_meet_then_the_pair_goes_wrong_and_without_it_does_not(
    arena: Arena, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = PLANTED[name]
    with arena.planted(*fault.anew):
        fault.plant(monkeypatch)
        assert arena.meet(*fault.names).wrong, "not found"

    monkeypatch.undo()
    assert not arena.meet(*fault.names).wrong
