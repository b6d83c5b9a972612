"""What every test may use: one Spark session for the whole run, and the profiles of the property tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.turns import of_this_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One profile for all property tests; HISTORIES says how many examples, `make model` sets it to 10,000.
settings.register_profile(
    "run",
    max_examples=int(os.environ.get("HISTORIES", "100")),
    deadline=None,
    derandomize="HISTORIES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("run")


ONE_AIRFLOW = "tests/airflow/"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-turns", action="store_true", help="of the heavy tests only those of this turn (tests/turns.py)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the heavy tests of this turn's files; tests of one file share what it sets up, so they stay together."""
    if not config.getoption("--in-turns"):
        return
    heavy = sorted({item.path for item in items if item.get_closest_marker("heavy")})
    kept = set(of_this_turn(heavy))
    dropped = [item for item in items if item.get_closest_marker("heavy") and item.path not in kept]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in set(dropped)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one file run in one worker, since they share what the file sets up; those that share an Airflow, too.

    A scheduler of our own, because the marks of ``--dist loadgroup`` do nothing in pytest 9 with pytest-xdist 3.8.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return ONE_AIRFLOW if nodeid.startswith(ONE_AIRFLOW) else nodeid.partition("::")[0]

    return ByFile(config, log)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a user would have it, but small: two threads, four shuffle partitions, no UI. With
    ``TESTS_OVER=connect`` one over Spark Connect."""
    from pyspark.sql import SparkSession

    from tests.spark.clusters import connect_server
    from tests.spark.local import local_session, set_environment

    home: Path = tmp_path_factory.mktemp("spark")
    set_environment()
    if os.environ.get("TESTS_OVER") == "connect":
        with connect_server(home) as server:
            session = SparkSession.builder.remote(server.address).create()
            yield session
            session.stop()
        return
    places = {"spark__local__dir": str(home / "local"), "spark__sql__warehouse__dir": str(home / "warehouse")}
    session = local_session(partitions=4, **places)
    yield session
    session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the code that Spark generates, for tests of which that code is the subject."""
    from tests.spark.local import COMPILED, INTERPRETED

    for key, value in COMPILED.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
