"""What a task says of itself in Airflow's interface."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import DagSerialization

import airflow_provider_index.operators
from airflow_provider_index.documentation import documentation_of
from airflow_provider_index.operators import (
    CompactTableOperator,
    IncrementalRefreshOperator,
    RefreshIndexOperator,
    WriteTableOperator,
)
from airflow_provider_index.operators.base import SparkTableOperator
from airflow_provider_index.sensors import TableCommitSensor
from airflow_provider_index.ui.app import render
from airflow_provider_index.ui.operators import known_operators, operator_page
from spark_apps.maintenance.policies import read_config
from tests.airflow_provider_index.every_argument.surface import arguments, operators


def test_a_task_shows_what_its_operator_does_and_links_the_page_of_its_arguments() -> None:
    text = IncrementalRefreshOperator(task_id="r", table="/t", index="i").doc_md or ""

    assert text.startswith("**IncrementalRefreshOperator**: Brings an index up to date with its table. [Arguments](")
    assert text.endswith("/lakeindex/operators?name=IncrementalRefreshOperator)")
    assert "Waits for a commit" in (TableCommitSensor(task_id="s", table="/t").doc_md or "")


@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
def test_the_page_of_an_operator_says_of_each_argument_what_it_means(kind: type) -> None:
    page = operator_page(kind.__name__)

    assert {one.name for one in page.arguments} == set(arguments(kind)) - {"config"}
    assert all(one.meaning for one in page.arguments)
    html = render("operators.html", names=[], view=page).body
    assert bytes(f"import {kind.__name__}</code>", "utf-8") in bytes(html)


def test_what_the_author_of_a_dag_wrote_stands_and_so_does_the_docstring_of_his_own_operator() -> None:
    class Nightly(CompactTableOperator):
        """Compacts at night."""

    assert CompactTableOperator(task_id="c", table="/t", doc_md="mine").doc_md == "mine"
    assert CompactTableOperator(task_id="c", table="/t", doc="mine").doc_md is None
    with DAG("mine", schedule=None, default_args={"doc_rst": "mine"}):
        assert CompactTableOperator(task_id="c", table="/t").doc_md is None
    with DAG("mine", schedule=None, default_args={"doc_md": "mine"}):
        assert CompactTableOperator(task_id="c", table="/t").doc_md == "mine"
    text = Nightly(task_id="n", table="/t").doc_md or ""
    assert text.startswith("**Nightly**: Compacts at night.") and text.endswith("?name=CompactTableOperator)")


def test_an_operator_of_ones_own_that_derives_from_a_base_of_ours_links_to_a_page_that_there_is() -> None:
    class Vacuum(SparkTableOperator):
        """Does what no operator of this package does."""

    text = Vacuum(task_id="v", table="/t").doc_md or ""
    name = text.rpartition("?name=")[2].removesuffix(")")

    assert name == "SparkTableOperator" and name not in known_operators()
    assert {one.name for one in operator_page(name).arguments} >= {"table", "spark_conn_id", "conf"}


def test_no_operators_text_holds_markup_that_the_interface_would_show_as_it_is() -> None:
    for name in airflow_provider_index.operators.__all__:
        text, parameters = documentation_of(getattr(airflow_provider_index.operators, name))
        shown = "\n".join([text, *parameters.values()])
        assert not [mark for mark in ("``", ":param", ":class:", ":func:", "::") if mark in shown]


@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
def test_given_the_example_of_an_operator_when_a_dag_holds_it_then_it_is_a_task_of_less_than_a_kilobyte(
    kind: type,
) -> None:
    [example] = re.findall(r"::(?: python)?\n\n((?:        .*\n)+)", kind.__doc__ or "")
    names: dict[str, Any] = {one.__name__: one for one in operators()}
    with DAG("d", schedule=None) as dag:
        others = {name: BaseOperator(task_id=f"its_{name}") for name in ("plan", "open", "begin")}
        exec(textwrap.dedent(example), {**names, **others, "read_config": read_config, "SmtpNotifier": dict})

    [made] = [task for task in dag.tasks if task not in others.values()]
    assert made.task_type == kind.__name__
    serialized = {one["__var"]["task_id"]: one for one in DagSerialization.to_dict(dag)["dag"]["tasks"]}
    # 100 of them are to fit into 100 kB.
    assert len(json.dumps(serialized[made.task_id])) < 1000


def test_given_an_argument_as_by_default_then_its_task_names_no_template_for_it_until_it_is_given() -> None:
    task = WriteTableOperator(task_id="w", table="a.b", source="/in/{{ ds }}", format="parquet", batches=None)

    assert task.template_fields == ("table", "source")
    assert set(WriteTableOperator.template_fields) > {"table", "source", "sql", "batches", "leave_indexes"}
    task.sql = "SELECT * FROM source WHERE dt = '{{ ds }}'"
    task.leave_indexes = []
    assert task.template_fields == ("table", "source", "sql")
    task.render_template_fields({"ds": "2026-11-11"})
    assert task.sql == "SELECT * FROM source WHERE dt = '2026-11-11'"


def test_given_a_mapped_task_when_it_is_made_then_all_its_arguments_are_templates() -> None:
    with DAG("d", schedule=None):
        mapped = WriteTableOperator.partial(task_id="w", table="a.b").expand(sql=["SELECT 1"])

    assert mapped.template_fields == WriteTableOperator.template_fields


def test_a_refresh_is_shown_by_the_name_that_was_written() -> None:
    made = [kind(task_id="r", table="/t", index="i") for kind in (IncrementalRefreshOperator, RefreshIndexOperator)]

    assert [task.task_type for task in made] == ["IncrementalRefreshOperator", "RefreshIndexOperator"]
    assert made[0].arguments() == made[1].arguments() and made[0].program == made[1].program
