"""What other writers wrote into a Delta log is text, whatever it looks like."""

from __future__ import annotations

import json

import pytest

from spark_apps.native.delta import _txn_of
from spark_apps.native.interface import TRANSACTION, figure


@pytest.mark.parametrize(
    ("text", "number"), [("17", 17), ("0", 0), ("", None), ("-1", None), ("1.5", None), ("²", None), ("9" * 19, None)]
)
def test_given_a_figure_of_another_writer_then_it_is_a_number_or_none(text: str, number: int | None) -> None:
    assert figure(text) == number


@pytest.mark.parametrize(
    ("said", "txn_id"),
    [
        (json.dumps({TRANSACTION: "night.1"}), "night.1"),
        (json.dumps({TRANSACTION: 5}), None),
        (json.dumps({TRANSACTION: ["night.1"]}), None),
        (json.dumps([TRANSACTION]), None),
        ("night.1", None),
        ("[" * 1_900, None),
        ("", None),
        (None, None),
    ],
)
def test_given_the_metadata_of_a_commit_then_only_ours_names_a_transaction(
    said: str | None, txn_id: str | None
) -> None:
    assert _txn_of(said) == txn_id
