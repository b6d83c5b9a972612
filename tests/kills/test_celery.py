"""What may happen to a worker of Celery, beside a real Redis and a real PostgreSQL: the work is done once, by the job
that lives on where it may, else by another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.kills.cells import OF_CELERY, WORKS, Cell
from tests.kills.ground import Ground, ground

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = tuple((event, ("write", "build")[number // 2 % 2]) for number, event in enumerate(OF_CELERY))

# Three has no divisor in common with the turns of heavy tests, so that each case has its commit.
pytestmark = [pytest.mark.airflow, pytest.mark.heavy, pytest.mark.timeout(900), pytest.mark.by_turn(3)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ExitStack() as running:
        try:
            begun = running.enter_context(ground(tmp_path_factory.mktemp("kills"), celery=True))
        except ConnectionError as error:
            pytest.skip(f"CELERY NOT TESTED: {error}")
        begun.airflow.client.wait_for_dags(*(Cell.dag_of(OF_CELERY[event], WORKS[work]) for event, work in CASES))
        yield begun


@pytest.mark.parametrize(("event", "work"), CASES)
def test_after_any_end_of_a_worker_nothing_is_left_and_the_work_is_done_once(
    here: Ground, spark: SparkSession, event: str, work: str
) -> None:
    cell = Cell(here, spark, OF_CELERY[event], WORKS[work])
    try:
        cell.run()
    except Exception as error:
        cell.let_go()
        error.add_note(cell.story())
        raise
