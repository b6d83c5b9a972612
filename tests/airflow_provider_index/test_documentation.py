"""What a task says of itself in Airflow's interface."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

import airflow_provider_index.operators
from airflow_provider_index.operators import CompactTableOperator, IncrementalRefreshOperator
from airflow_provider_index.sensors import TableCommitSensor
from spark_apps.maintenance.policies import read_config
from tests.airflow_provider_index.every_argument.surface import operators


def test_a_task_shows_what_its_operator_does_and_every_argument_as_markdown() -> None:
    text = IncrementalRefreshOperator(task_id="r", table="/t", index="i").doc_md or ""

    assert text.startswith("**IncrementalRefreshOperator**: Brings an index up to date")
    assert "- `mode`: `incremental` reads only" in text
    assert "- `table`: URI, absolute path, or name" in text
    assert "Waits for a commit" in (TableCommitSensor(task_id="s", table="/t").doc_md or "")


def test_what_the_author_of_a_dag_wrote_stands_and_so_does_the_docstring_of_his_own_operator() -> None:
    class Nightly(CompactTableOperator):
        """Compacts at night."""

    assert CompactTableOperator(task_id="c", table="/t", doc_md="mine").doc_md == "mine"
    assert CompactTableOperator(task_id="c", table="/t", doc="mine").doc_md is None
    assert (Nightly(task_id="n", table="/t").doc_md or "").startswith("**Nightly**: Compacts at night.")


def test_no_operators_text_holds_markup_that_the_interface_would_show_as_it_is() -> None:
    from airflow_provider_index.compat import markdown_of

    for name in airflow_provider_index.operators.__all__:
        text = markdown_of(getattr(airflow_provider_index.operators, name))
        assert not [mark for mark in ("``", ":param", ":class:", ":func:", "::") if mark in text]


@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
def test_given_the_example_of_an_operator_when_a_dag_holds_it_then_it_is_a_task(kind: type) -> None:
    [example] = re.findall(r"::(?: python)?\n\n((?:        .*\n)+)", kind.__doc__ or "")
    names: dict[str, Any] = {one.__name__: one for one in operators()}
    with DAG("d", schedule=None) as dag:
        others = {name: BaseOperator(task_id=f"its_{name}") for name in ("plan", "open", "begin")}
        exec(textwrap.dedent(example), {**names, **others, "read_config": read_config, "SmtpNotifier": dict})

    [made] = [task for task in dag.tasks if task not in others.values()]
    assert made.task_type == kind.__name__
