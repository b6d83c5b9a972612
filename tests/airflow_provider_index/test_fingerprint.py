"""Whether source files are noticed to have changed."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_provider_index.source_files import fingerprint


def test_it_stays_while_nothing_changes_and_moves_with_content_time_and_new_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    seen = [fingerprint([str(tmp_path)])]
    assert fingerprint([str(tmp_path)]) == seen[0]

    (tmp_path / "a.csv").write_text("12")
    seen.append(fingerprint([str(tmp_path)]))
    os.utime(tmp_path / "a.csv", (1, 1))
    seen.append(fingerprint([str(tmp_path)]))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.csv").write_text("1")
    seen.append(fingerprint([str(tmp_path)]))

    assert len(set(seen)) == 4


def test_a_pattern_sees_what_it_matches_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    before = fingerprint([f"{tmp_path}/*.csv"])

    (tmp_path / "a.json").write_text("1")
    assert fingerprint([f"{tmp_path}/*.csv"]) == before

    (tmp_path / "b.csv").write_text("1")
    assert fingerprint([f"{tmp_path}/*.csv"]) != before


def test_a_file_uri_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_text("1")

    assert fingerprint([f"file://{tmp_path}/a%20b.csv"]) == fingerprint([f"{tmp_path}/a b.csv"])


def test_a_store_that_only_spark_can_list_has_none() -> None:
    assert fingerprint(["hdfs://nn/flights"]) is None


def test_a_local_address_may_hold_a_pattern_and_what_is_a_fragment_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a#b.csv").write_text("1")
    one_file = fingerprint([f"file://{tmp_path}/a?b.csv"])

    assert one_file == fingerprint([f"{tmp_path}/a#b.csv"]) == fingerprint([f"file:{tmp_path}/a#b.csv"])
    assert one_file != fingerprint([f"{tmp_path}/none.csv"])
