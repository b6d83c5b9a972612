"""Tests that come by turns: commits one after another run all of them, and what is laid apart or together stays so."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import in_this_turn
from tests.turns import of_this_turn


class Case:
    """A test as far as turns look at it, with one mark: its own, or that of its module."""

    def __init__(self, file: str, name: str, mark: pytest.Mark, *, own: bool = True) -> None:
        self.nodeid, self.path = f"{file}::{name}", Path(file)
        self.name, self.originalname = name, name.partition("[")[0]
        self._mark, self._own = mark, own

    def iter_markers_with_node(self, name: str) -> Iterator[tuple[object, pytest.Mark]]:
        assert name == "by_turn"
        yield (self if self._own else self.path), self._mark


def by_turn(*args: int, **kwargs: Any) -> pytest.Mark:
    return pytest.mark.by_turn(*args, **kwargs).mark


def runs(monkeypatch: pytest.MonkeyPatch, cases: list[Any], turns: range) -> list[list[str]]:
    ran = []
    for turn in turns:
        monkeypatch.setenv("TURN", str(turn))
        ran.append([case.nodeid for case in in_this_turn(cases)])
    return ran


@pytest.mark.parametrize("own", [True, False])
def test_given_cases_by_turns_then_as_many_commits_run_each_once(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    cases = [Case("tests/test_a.py", f"test_it[{number}]", by_turn(4), own=own) for number in range(6)]

    ran = runs(monkeypatch, cases, range(40, 44))

    assert sorted(chain.from_iterable(ran)) == sorted(case.nodeid for case in cases)
    assert max(map(len, ran)) == 2


def test_given_a_first_turn_or_a_group_then_tests_run_there_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [Case(f"tests/test_{file}.py", "test_it", by_turn(8, whole=True, first=3), own=False) for file in "ab"]
    first = Case("tests/test_c.py", "test_it", by_turn(8, first=5))
    together = [Case("tests/test_d.py", f"test_{name}", by_turn(8, group="server")) for name in "ab"]

    ran = runs(monkeypatch, [*whole, first, *together], range(16, 24))

    assert [case.nodeid in ran[3] for case in whole] == [True, True]
    assert first.nodeid in ran[5]
    assert [turn for turn in ran if together[0].nodeid in turn] == [turn for turn in ran if together[1].nodeid in turn]
    assert len([*chain.from_iterable(ran)]) == 5


def test_given_cases_that_come_together_then_few_commits_run_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case("tests/test_a.py", f"test_{number}", by_turn(8, together=4), own=False) for number in range(7)]

    ran = [each for each in runs(monkeypatch, cases, range(8)) if each]

    assert sorted(ran, key=len, reverse=True) == [[c.nodeid for c in cases[:4]], [c.nodeid for c in cases[4:]]]


def test_given_what_draws_within_a_test_by_turns_then_its_runs_draw_all(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    for turn in range(5, 5 + 4 * 8, 4):
        monkeypatch.setenv("TURN", str(turn))
        drawn += of_this_turn(range(8), 8, each=4)

    assert sorted(drawn) == list(range(8))
