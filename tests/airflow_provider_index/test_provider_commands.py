"""What ``airflow providers …`` says of this package, by the commands' own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.airflow_version import airflow_version

PACKAGE = "airflow-provider-index"
COMMANDS = ("list", "hooks", "behaviours", "widgets", "triggers", "links", "configs", "get")

# One process serves all of them, and takes longer than they do.
pytestmark = pytest.mark.by_turn(4, together=9)

# One process for all: each start of the command takes seconds.
SCRIPT = """
import contextlib, io, json, sys
from airflow.cli.cli_parser import get_parser

said = {}
for command in sys.argv[1:]:
    more = ["airflow-provider-index", "--full"] if command == "get" else []
    arguments = get_parser().parse_args(["providers", command, *more, "--output", "json"])
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        arguments.func(arguments)
    said[command] = text.getvalue()
print("\\n@" + json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Command -> what it printed, decoded."""
    home = tmp_path_factory.mktemp("home")
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    env.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__DAGS_FOLDER=str(home),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home}/airflow.db",
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *COMMANDS],
        env=env,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    texts = json.loads(done.stdout.rpartition("\n@")[2])
    return {name: json.loads(text) for name, text in texts.items()}


def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if any(PACKAGE in str(value) or "index" in str(value) for value in row.values())]


def test_the_provider_is_listed_with_what_it_is_for(said: dict[str, Any]) -> None:
    (row,) = [row for row in said["list"] if row["package_name"] == PACKAGE]

    assert "indexes on lake tables" in row["description"]


def test_the_connection_type_has_its_hook_its_form_and_its_behaviour(said: dict[str, Any]) -> None:
    (hook,) = [row for row in said["hooks"] if row["connection_type"] == "index_table_store"]
    fields = {row["connection_parameter_name"]: row for row in own(said["widgets"])}
    behaviours = [row for row in said["behaviours"] if row["field_behaviours"] == "index_table_store"]

    assert (hook["package_name"], hook["hook_name"]) == (PACKAGE, "Index table store")
    if airflow_version() < (3, 2) and find_spec("wtforms") is None:
        return  # the command alone cannot tell then (hooks/test_connection_forms.py)
    assert {name.rpartition("__")[2] for name in fields} >= {"warehouse", "storage_options", "spark_conn_id"}
    assert len(behaviours) == 1


def test_triggers_and_links_are_registered(said: dict[str, Any]) -> None:
    triggers = json.dumps(own(said["triggers"]))
    links = {value for row in said["links"] for value in row.values()}

    assert all(f"airflow_provider_index.triggers.{name}" in triggers for name in ("events", "timeline"))
    assert links >= {
        "airflow_provider_index.links.SparkUILink",
        "airflow_provider_index.links.TablePageLink",
    }


def test_everything_of_the_provider_info_is_there(said: dict[str, Any]) -> None:
    text = json.dumps(said["get"])

    assert "airflow_provider_index.assets.sanitize_uri" in text
    assert "airflow_provider_index.operators.indexes" in text
