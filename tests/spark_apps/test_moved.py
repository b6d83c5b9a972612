"""Old names of modules: each can be imported, with a warning, and programs can be run by theirs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from spark_apps.moved import MOVED

PROGRAMS = sorted(name for name, now in MOVED.items() if now.startswith("spark_apps.programs."))


@pytest.mark.parametrize("name", sorted(MOVED))
def test_given_an_old_name_when_imported_then_it_is_the_module_of_now_and_warns(name: str) -> None:
    sys.modules.pop(name, None)
    now = importlib.import_module(MOVED[name])  # Airflow has warnings go elsewhere when it is imported first

    with pytest.warns(DeprecationWarning, match=f"{name} is {MOVED[name]} now"):
        module = importlib.import_module(name)
    assert module is now


@pytest.mark.by_turn(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_given_a_program_run_by_its_old_name_without_a_job_then_its_usage_names_it(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", name], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )

    assert done.returncode == 2
    assert f"{name.rpartition('.')[2]}.py <path of the job>" in done.stdout
