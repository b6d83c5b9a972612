"""What Airflow reads of the provider is true and fits Airflow's own schema."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path

import airflow
import jsonschema
from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

import airflow_provider_index.operators
from airflow_provider_index.provider_info import get_provider_info


def test_it_fits_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())

    jsonschema.validate(get_provider_info(), schema)


def test_every_module_named_can_be_imported_and_holds_what_it_is_named_for() -> None:
    info = get_provider_info()
    kinds = {"operators": BaseOperator, "sensors": BaseSensorOperator, "triggers": BaseTrigger}
    for key, base in kinds.items():
        for name in info[key][0]["python-modules"]:
            classes = [one for _, one in inspect.getmembers(import_module(name), inspect.isclass)]
            assert any(issubclass(one, base) and one.__module__ == name for one in classes), name


def test_every_operator_that_can_be_imported_is_in_a_module_named() -> None:
    named = set(get_provider_info()["operators"][0]["python-modules"])
    exported = airflow_provider_index.operators.__all__

    assert {getattr(airflow_provider_index.operators, name).__module__ for name in exported} == named


def test_every_operator_has_a_docstring_and_templates_only_its_own_attributes() -> None:
    for name in airflow_provider_index.operators.__all__:
        kind = getattr(airflow_provider_index.operators, name)
        parameters = {
            parameter
            for one in kind.__mro__
            if one.__module__.startswith("airflow_provider_index")
            for parameter in inspect.signature(one.__init__).parameters
        }
        assert kind.__doc__
        assert set(kind.template_fields) <= parameters, name
