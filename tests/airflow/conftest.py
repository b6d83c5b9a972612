"""One real Airflow for all tests here: scheduler, DAG processor, API server, triggerer, and Spark in the
tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_index.testing import LocalAirflow
from tests.airflow.lake import SECRET, Lake

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.airflow)
            item.add_marker(pytest.mark.slow)
            # A run of a DAG is a dozen starts of Spark, and a busy machine takes its time over each.
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    local = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Apps that live for seconds gain nothing from the second compiler.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    connections = {
        "lake": {
            "conn_type": "index_table_store",
            "extra": {"warehouse": str(warehouse), "spark_conn_id": "spark_here"},
        },
        "spark_here": {
            "conn_type": "spark",
            "host": "local[2]",
            "extra": {"conf": {**local, "spark.hadoop.planted.password": SECRET}, "driver-memory": "1g"},
        },
    }
    config = {
        # A worker that was killed is noticed after this, not after five minutes.
        "scheduler__task_instance_heartbeat_timeout": "20",
        "scheduler__task_instance_heartbeat_timeout_detection_interval": "5",
    }
    with LocalAirflow(HERE / "dags", connections=connections, config=config) as airflow:
        airflow.client.wait_for_dags("writing", "windows", "killing", "waiting")
        yield Lake(airflow, warehouse)
