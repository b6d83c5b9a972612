"""Seven cells of the matrix, one of each kind of end; ``make kills`` runs all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kills.cells import EVENTS, WORKS, Cell
from tests.kills.ground import Ground, ground

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TELLING = (
    ("worker_killed", "transaction"),
    ("worker_lost", "write"),
    ("run_marked_failed", "rescale"),
    ("cleared_deferred", "compact"),
    ("driver_killed", "build"),
    ("parent_killed", "write"),
    ("scheduler_restarted", "write"),
)

pytestmark = [pytest.mark.airflow, pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("kills")) as begun:
        begun.airflow.client.wait_for_dags(*(Cell.dag_of(EVENTS[event], WORKS[work]) for event, work in TELLING))
        yield begun


@pytest.mark.parametrize(("event", "work"), TELLING)
def test_after_any_end_nothing_is_left_and_the_work_is_done_once(
    here: Ground, spark: SparkSession, event: str, work: str
) -> None:
    Cell(here, spark, EVENTS[event], WORKS[work]).run()
