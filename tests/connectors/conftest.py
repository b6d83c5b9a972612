"""The session of the connectors' tests: a JVM with their jars, so a process of its own (``make connectors``).

All connectors of this Spark are in the one session, but for Hudi's, whose tests are run by themselves: it wants another
catalog and serializer. Where their jars are not there and Maven is not reached, every test
is skipped, and pytest's last lines count them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connectors import hudi_tables
from tests.connectors.releases import connected_session, of_spark
from tests.turns import commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ALONE: list[bool] = []
"""Whether Hudi's tests are run, and no others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which no other run takes along, and begin with another module at each commit.

    CI gives them a few minutes, and cuts off what does not fit.
    """
    own = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in own:
        item.add_marker(pytest.mark.connectors)
        # A statement of a connector takes seconds; and a call of the JVM that is broken off spoils those that follow.
        item.add_marker(pytest.mark.timeout(900))
    _ALONE.append(all(item.path.name.startswith("test_hudi_") for item in own))
    modules = sorted({item.path for item in own})
    first = commits() % len(modules) if modules else 0
    places = {path: place for place, path in enumerate([*modules[first:], *modules[:first]])}
    items.sort(key=lambda item: places.get(item.path, -1))


def chosen(release: str) -> frozenset[str]:
    """Return the names of the connectors that this process tests."""
    alone = {"hudi"}
    return frozenset(of_spark(release)) & alone if _ALONE[-1] else frozenset(of_spark(release)) - alone


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small session with all connectors that are tested on this Spark."""
    import pyspark
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    names = chosen(pyspark.__version__)
    if not names:
        pytest.skip(
            f"CONNECTORS NOT TESTED: none is named for Spark {pyspark.__version__} (tests/connectors/releases.py)"
        )
    if SparkSession.getActiveSession() is not None:
        pytest.skip("CONNECTORS NOT TESTED: this process has a JVM without their jars; run `make connectors`")
    try:
        session = connected_session(tmp_path_factory.mktemp("connectors"), names)
    except PySparkRuntimeError as error:
        if "GATEWAY" not in str(error).upper():
            raise
        pytest.skip("CONNECTORS NOT TESTED: Spark did not start with their jars: is Maven reached?")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connectors(spark: SparkSession) -> frozenset[str]:
    """The names of the connectors that the session has."""
    return chosen(spark.version)


@pytest.fixture(scope="session")
def delta(spark: SparkSession, connectors: frozenset[str]) -> None:
    """Ask for delta-spark."""
    if "delta" not in connectors:
        pytest.skip(f"CONNECTORS NOT TESTED: Delta has none for Spark {spark.version} (tests/connectors/releases.py)")


@pytest.fixture(scope="session")
def iceberg(spark: SparkSession, connectors: frozenset[str]) -> None:
    """Let the session's catalog ``prod``, as on docs/iceberg.md, have a namespace ``db``."""
    if "iceberg" not in connectors:
        pytest.skip(f"CONNECTORS NOT TESTED: Iceberg has none for Spark {spark.version} (tests/connectors/releases.py)")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS prod.db")


@pytest.fixture(scope="session")
def hudi(spark: SparkSession, connectors: frozenset[str]) -> SparkSession:
    """A session whose own catalog is Hudi's, and whose tables are small."""
    if "hudi" not in connectors:
        pytest.skip("CONNECTORS NOT TESTED: Hudi's tests are run by themselves: pytest tests/connectors/test_hudi_*.py")
    return hudi_tables.session_of(spark)
