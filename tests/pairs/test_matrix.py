"""The conflict matrix of the documents is that of the pairs that were run, of all actions there are."""

from __future__ import annotations

import json

from tests.pairs.actions import acts_of
from tests.pairs.matrix import PAGE, RESULTS, with_matrix


def test_given_the_results_of_the_pairs_then_the_page_shows_them() -> None:
    page = PAGE.read_text()

    assert with_matrix(page, json.loads(RESULTS.read_text())) == page


def test_given_the_actions_then_the_results_tell_of_each_beside_each() -> None:
    results = json.loads(RESULTS.read_text())

    for shape, rows in results.items():
        names = [act.name for act in acts_of(shape)]
        assert list(rows) == names, f"{shape}: run make pairs RECORD=1"
        assert {len(letters) for letters in rows.values()} == {len(names)}
        assert set("".join(rows.values())) <= set("mro.")
