"""Forms of the examples: Airflow demands every field whose type does not admit null, so those that may be empty do."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from airflow.sdk import DAG

import dags_examples
from airflow_provider_index.maintenance import index_maintenance

WITH_FORM = [
    path for path in sorted(Path(dags_examples.__path__[0]).rglob("*.py")) if "Param(" in path.read_text()
]  # fmt: skip
EMPTY = ("", [], {})


def check(dag: DAG) -> None:
    assert dag.params
    for name, param in dag.params.items():
        kinds = [param.schema["type"]] if isinstance(param.schema["type"], str) else param.schema["type"]
        if "null" in kinds:
            param.resolve(None)
            continue
        assert kinds != ["array"], f"{name}: a list that has to be given"
        assert param.value not in EMPTY or param.schema.get("minLength"), f"{name}: empty, and has to be filled in"
        if kinds == ["string"]:
            assert param.schema.get("minLength") or param.value, name


@pytest.mark.parametrize("path", WITH_FORM, ids=lambda path: path.stem)
def test_given_an_example_with_a_form_then_each_field_is_optional_or_required_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[DAG] = []
    enter = DAG.__enter__
    monkeypatch.setattr(DAG, "__enter__", lambda dag: made.append(dag) or enter(dag))
    runpy.run_path(str(path))

    assert made
    for dag in made:
        check(dag)


def test_given_a_dag_of_maintenance_then_each_field_of_its_form_may_be_empty() -> None:
    check(index_maintenance("m", tables=["shop.*"]))
