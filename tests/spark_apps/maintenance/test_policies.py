"""A description of maintenance is read as it was meant, or refused at its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_apps.maintenance.policies import (
    Policy,
    matches,
    read_config,
    read_file,
    share_of,
)
from spark_apps.storage.errors import InvalidInput


def test_given_shares_when_read_then_they_are_from_0_to_1() -> None:
    assert [share_of(text, "x") for text in ("20%", 0.2, 1, "0.5")] == [0.2, 0.2, 1.0, 0.5]


def test_given_entries_when_read_then_each_has_the_defaults_and_what_differs() -> None:
    config = read_config(
        {
            "defaults": {"compact": {"small_files": 5}, "verify": False},
            "tables": [
                "sales.*",
                {"table": "web.clicks", "weight": 3, "compact": {"tombstones": "5%"}, "verify": True},
            ],
            "budget": {"bytes": "2GB", "minutes": "1.5h"},
        }
    )
    sales, clicks = config.tables

    assert (config.budget.bytes, config.budget.minutes) == (2_000_000_000, 90)
    assert sales.policy.verify is None and sales.is_pattern
    assert clicks.policy.compact is not None and clicks.policy.verify == Policy().verify
    assert (clicks.policy.compact.small_files, clicks.policy.compact.tombstones) == (5, 0.05)
    assert clicks.policy.refresh == Policy().refresh and clicks.weight == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tabels": ["a.b"]}, "has the unknown key 'tabels'. Nothing was changed. Did you mean 'tables'?"),
        ({"tables": []}, "tables is []"),
        ([{"table": "a.b", "compact": {"smal_files": 3}}], r"tables[0].compact has the unknown key 'smal_files'"),
        ([{"table": "a.b", "verify": {"every": 7}}], "tables[0].verify.every is 7, which is not a time"),
        ([{"table": "a.b", "clean": {"retain": "a week"}}], "tables[0].clean.retain is 'a week'"),
        ([{"table": "a.b", "compact": {"small_share": "120%"}}], "is '120%', which is not a share"),
        ([{"table": "a.b", "compact": {"mode": "fast"}}], "compact.mode is 'fast'. Nothing was changed. Use one of"),
        ([{"table": "a.b", "compact": {"small_size": None}}], "small_size cannot be switched off"),
        ([{"table": "a.b", "enabled": "yes"}], "tables[0].enabled is 'yes'"),
        ([{"table": "a.b", "weight": 0}], "tables[0].weight is 0"),
        (["../up"], "tables[0].table"),
        (["s3://bucket/*"], "is the pattern 's3://bucket/*' over locations"),
        (["db.[ab"], "a bracket is not closed"),
        (["x" * 500 + "*"], "which is no pattern"),
        ([{"weight": 1}], "tables[0] names no table"),
        ({"tables": ["a.b"], "budget": {"bytes": "lots"}}, "budget.bytes is 'lots', which is not a size"),
        ("a.b", "is str"),
    ],
)
def test_given_a_mistake_when_read_then_it_is_refused_at_its_place(given: object, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_config(given)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_given_a_yaml_file_when_read_then_it_says_the_same_as_python_and_mistakes_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(
        "tables: [sales.*]\nbudget: {minutes: 90}\ndefaults:\n  refresh: {lag_age: 2h, lag_commits: false}\n"
    )
    config = read_file(file)
    assert config == read_config(
        {
            "tables": ["sales.*"],
            "budget": {"minutes": 90},
            "defaults": {"refresh": {"lag_age": "2h", "lag_commits": None}},
        }
    )
    file.write_text("tables: [sales.*\n")
    with pytest.raises(InvalidInput, match="is no YAML"):
        read_file(file)
    file.write_text("tables: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(InvalidInput, match="is no YAML"):
        read_file(file)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_file(tmp_path / "gone.yaml")


def test_given_a_hostile_pattern_when_matched_then_it_answers_at_once() -> None:
    began = time.monotonic()
    assert not matches("*a" * 90 + "b", "a" * 5000)
    assert time.monotonic() - began < 1
    assert matches("sales.*", "sales.orders") and not matches("sales.*", "Sales.orders")
