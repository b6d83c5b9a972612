"""What a task says of itself in Airflow's interface."""

from __future__ import annotations

import airflow_provider_index.operators
from airflow_provider_index.operators import CompactTableOperator, IncrementalRefreshOperator
from airflow_provider_index.sensors import TableCommitSensor


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
        assert not {"``", ":param", ":class:", ":func:"} & {
            mark for mark in ("``", ":param", ":class:", ":func:") if mark in text
        }
