"""What other writers' logs say is read as input: numbers, and whose transaction a commit is of."""

from __future__ import annotations

import json

import pytest

from spark_apps.native.delta import _MAX_METADATA, _txn_of
from spark_apps.native.interface import TRANSACTION, figure


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("17", 17), ("-1", None), ("1e9", None), ("", None), ("١٢", None), ("9" * 400, None)]
)
def test_given_a_text_of_a_log_then_it_is_a_number_or_none(text: str, number: int | None) -> None:
    assert figure(text) == number


@pytest.mark.parametrize(
    "said",
    [None, "", "nightly load", "{", "[]", "17", json.dumps({TRANSACTION: 17}), json.dumps({TRANSACTION: ["night"]}),
     "[" * 100_000, json.dumps({"note": "x" * 2 * _MAX_METADATA, TRANSACTION: "night"})],
)  # fmt: skip
def test_given_metadata_of_another_writer_then_it_is_of_no_transaction(said: str | None) -> None:
    assert _txn_of(said) is None


def test_given_our_own_metadata_then_it_names_the_transaction() -> None:
    assert _txn_of(json.dumps({TRANSACTION: "night"})) == "night"
