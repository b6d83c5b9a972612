"""The tables that the page lists, where a part of the warehouse may not be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_index.ui.tables import Lake, Readers
from tests.spark_apps.cli.test_log_commands import closed
from tests.spark_apps.maintenance.lake import Table


def test_given_a_folder_that_may_not_be_read_then_it_is_a_line_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.good", "shut.inner", "z"):
        Table(tmp_path, name)
    closed(monkeypatch, f"{tmp_path}/shut")

    tables = Lake("conn", str(tmp_path)).tables(Readers(2), 5.0)
    assert sorted(one.name for one in tables) == ["db.good", "shut", "z"]
