"""Every argument of every operator and sensor means the same when another task returned it: handed on, and mapped. Run
by Airflow's own ``dag.test()``, with its database and without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.testing import DagTestReport, temporary_lake
from tests.airflow_provider_index.every_argument.surface import operators
from tests.airflow_provider_index.every_argument.test_templates import rounds, templates_of

# Airflow 3.2 takes up to nine seconds to begin a task in `dag.test()`, and here are sixty.
SECONDS = 1200
pytestmark = [pytest.mark.airflow, pytest.mark.timeout(SECONDS)]

HERE = Path(__file__).parent


def given(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a class gets from other tasks: a value of each argument, and mapped, another one or the text of one."""
    first, *_, last = [*rounds(kind), rounds(kind)[-1]]
    mapped = {name: value if at % 2 else str(value) for at, (name, (value, _)) in enumerate(last.items())}
    return {name: value for name, (value, _) in first.items()}, mapped


def meant(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    each_round = rounds(kind)
    first, last = ({name: meaning for name, (_, meaning) in one.items()} for one in (each_round[0], each_round[-1]))
    return first, last


@pytest.fixture(scope="module")
def report() -> DagTestReport:
    with temporary_lake(HERE / "dags") as lake:
        root = {"PYTHONPATH": str(HERE.parents[2])}
        return replace(lake, env={**lake.env, **root}).run("xcoms", timeout=SECONDS)


# Each of the cases needs the whole run, which takes half a minute.
@pytest.mark.by_turn(16)
def test_what_another_task_returns_means_the_same_handed_on_and_mapped(report: DagTestReport) -> None:
    for kind in operators():
        name = kind.__name__
        xcoms = [report.xcoms[task] for task in (name, f"mapped_{name}[0]")]
        for one, meaning in zip(xcoms, meant(kind), strict=True):
            assert set(one) == set(templates_of(kind)), (name, one)
            # As JSON, where 1 is neither true nor 1.0.
            assert json.dumps(one, sort_keys=True) == json.dumps(meaning, sort_keys=True), name
