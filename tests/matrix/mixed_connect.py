"""Airflow on one side and Spark Connect servers on another: an Airflow without Spark (Python 3.12) hands jobs to
clients of other releases than the server is, older ones and newer ones.

Run as :mod:`tests.matrix.mixed` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_apps.storage.errors import EnvironmentMismatch
from tests.matrix.mixed import connection, python_of, served
from tests.spark import jobs

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(420)]


@pytest.fixture(scope="module", params=["spark-4.1", "spark-4.2", "spark-4.3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with served(request.param, "connect", tmp_path_factory.mktemp("connect")) as settings:
        yield request.param, settings["master"]


@pytest.mark.parametrize("client", ["spark-4.0", "spark-4.1", "spark-4.2"])
def test_a_client_works_with_a_newer_server_and_refuses_an_older_one(
    server: tuple[str, str], client: str, tmp_path: Path
) -> None:
    name, address = server
    settings = connection(address, environment={"PYSPARK_DRIVER_PYTHON": str(python_of(client))})
    rows = jobs.write_rows(tmp_path / "rows.parquet", range(20), 1)
    arguments = jobs.upsert(rows, create=True)

    if client > name:
        with pytest.raises(EnvironmentMismatch, match="The Spark Connect server runs Spark"):
            jobs.run(settings, "write_table", tmp_path / "t", arguments)
        return
    jobs.run(settings, "write_table", tmp_path / "t", arguments)
    jobs.run(settings, "build_index", tmp_path / "t", {"name": "i", "kind": "secondary", "columns": ["city"]})

    assert jobs.run(settings, "verify_index", tmp_path / "t", {})["i"]["ok"]
