"""Indexes of keys that are tried over a sample, beside indexes that the table has."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_apps import open_table
from tests.compatibility.lake import unpack


@pytest.mark.parametrize("condition", ["fare = 3", "(fare = 3 OR remark = 'x' AND seats = 1)"])
def test_given_an_index_that_gives_keys_when_another_is_tried_over_a_sample_then_what_both_leave_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    monkeypatch.setattr("spark_apps.advisor.sample.SMALL_GROUPS", 0)
    table = open_table(unpack(tmp_path) / "trips")
    where = f"city = 'osl' AND {condition}"
    assert table.read(where).num_rows == 1

    explained = table.explain(where, ["id"], [{"kind": "secondary", "columns": ["fare"], "name": "x"}])

    assert {"by_city", "x"} <= {use.name for use in explained.indexes}
    assert explained.record_keys and 0 < explained.files_read < table.explain(where, ["id"]).files_read
