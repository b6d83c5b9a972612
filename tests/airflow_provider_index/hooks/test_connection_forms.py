"""The forms of the two connection types, as Airflow's own page gets them: by the provider info, and before
Airflow 3.2 by the classes of the hooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.provider_info import get_provider_info

# In a process of its own: it puts stand-ins in the place of modules.
ASKED = """
import json
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
print(json.dumps({one.connection_type: one.model_dump() for one in HookMetaService.hook_meta_data()}, default=str))
"""


# One process serves all of them, and takes longer than they do.
pytestmark = pytest.mark.by_turn(4, together=9)


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        env={**env, "AIRFLOW_HOME": str(tmp_path_factory.mktemp("home"))},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "declared", get_provider_info()["connection-types"], ids=lambda declared: declared["connection-type"]
)
def test_a_form_asks_for_every_field_and_hides_what_is_typed_into_those_of_secrets(
    forms: dict[str, Any], declared: dict[str, Any]
) -> None:
    form = forms[declared["connection-type"]]
    shown = form["extra_fields"]

    assert list(shown) == list(declared["conn-fields"])
    for name, field in declared["conn-fields"].items():
        assert shown[name]["schema"]["title"] == field["label"]
        assert shown[name]["description"] == field["description"]
        assert shown[name]["schema"].get("format") == field["schema"].get("format"), name
        assert shown[name]["schema"].get("enum") == field["schema"].get("enum"), name
        assert shown[name]["value"] == field["schema"].get("default"), name


def test_a_form_names_and_hides_the_fields_that_every_connection_has(forms: dict[str, Any]) -> None:
    runner, tables = (forms[name]["standard_fields"] for name in ("index_runner", "index_table_store"))

    assert runner["host"]["title"] == "Master" and runner["host"]["placeholder"].startswith("local[4]")
    assert runner["url_schema"]["hidden"] and not runner["host"]["hidden"]
    assert all(tables[name]["hidden"] for name in ("host", "port", "login", "password", "url_schema"))
