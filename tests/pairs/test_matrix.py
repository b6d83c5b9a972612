"""The conflict matrix of the documents is that of the pairs that were run, of all actions there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_apps.storage.errors import CommitRefused
from tests.pairs.actions import Act, acts_of
from tests.pairs.arena import Outcome, Recorded, _Doing
from tests.pairs.matrix import PAGE, RESULTS, with_matrix
from tests.pairs.shapes import SHAPES


def test_given_the_results_of_the_pairs_then_the_page_shows_them() -> None:
    page = PAGE.read_text()

    assert with_matrix(page, json.loads(RESULTS.read_text())) == page


@pytest.mark.parametrize("shape", SHAPES)
def test_given_the_actions_then_the_results_tell_of_each_beside_each(shape: str) -> None:
    results = json.loads(RESULTS.read_text())

    names = [act.name for act in acts_of(shape)]
    assert list(results.get(shape, ())) == names, f"{shape}: run make pairs RECORD=1"
    assert {len(letters) for letters in results[shape].values()} == {len(names)}
    missing = {first: letters.count(".") for first, letters in results[shape].items() if "." in letters}
    assert not missing, f"{shape}: pairs that were not run, or went wrong; run make pairs RECORD=1"
    assert set("".join(results[shape].values())) <= set("mro")


def test_given_an_action_that_fails_after_its_commit_was_refused_then_the_pair_has_both_its_ends_and_tells() -> None:
    def refused(_: object) -> None:
        raise CommitRefused("no", hint="Try again.")

    def broken(_: object) -> None:
        raise KeyError("window")

    act, ground, outcome = Act("odd", (refused, broken), lambda _: None, main=0), Any, Outcome(("odd", "other"))
    doing = _Doing(ground, Recorded(act, [None, None], {}, {}, 0.0), 0)  # type: ignore[arg-type]

    end = doing.around(lambda: outcome.ends.append("committed"), outcome, early=False)

    assert [*outcome.ends, end] == ["committed", "CommitRefused"]
    assert outcome.wrong == ["odd, after its end: KeyError: 'window'"]
