"""The conflict matrix of the documents is that of the pairs that were run, of all actions there are."""

from __future__ import annotations

import json

import pytest

from tests.pairs.actions import acts_of
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
