"""What the pairs are worth: with a check taken out of the code, the meeting that needs it goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.differential.session import small
from tests.pairs.arena import Arena
from tests.pairs.further import further_differences
from tests.pairs.planted import PLANTED, Planted

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.timeout(900)]


Arenas = Callable[[str], Arena]


@pytest.fixture(scope="module")
def arenas(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arenas]:
    with small(spark, compiled=False):
        yield functools.cache(lambda shape: Arena(spark, shape, tmp_path_factory.mktemp("planted")))


@pytest.mark.parametrize("name", sorted(PLANTED, key=lambda name: PLANTED[name].shape))
def test_given_a_fault_when_its_actions_meet_then_the_pair_goes_wrong_and_without_it_does_not(
    arenas: Arenas, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = PLANTED[name]
    arena = arenas(fault.shape)
    with arena.planted(*fault.anew):
        fault.plant(monkeypatch)
        assert next(_wrong(arena, fault), None), "not found"

    monkeypatch.undo()
    assert not list(_wrong(arena, fault))


def _wrong(arena: Arena, fault: Planted) -> Iterator[str]:
    outcome = arena.meet(*fault.names)
    yield from outcome.wrong
    if fault.further and outcome.expected is not None:
        yield from further_differences(arena.ground, outcome.expected)
