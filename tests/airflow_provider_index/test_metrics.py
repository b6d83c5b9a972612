"""Metrics under the names that the page of metrics lists, received where a StatsD would receive them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_index import metrics
from airflow_provider_index.airflow_version import airflow_version
from spark_apps.maintenance.demand import Demand, IndexDemand
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import AddFile, Field, IndexDefinition, PutIndex, TableDefinition, Write, group_scope
from spark_apps.timeline.transactions import begin

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


class StatsD:
    """A socket that collects what is sent to it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def received(self) -> dict[str, str]:
        """Name with tags -> the last value, of all that came."""
        self._socket.settimeout(0.2)
        metrics = {}
        try:
            while True:
                name, _, value = self._socket.recv(65_536).decode().rpartition(":")
                metrics[name] = value
        except TimeoutError:
            return metrics

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsD]:
    """Airflow's own metrics, as its settings send them to a socket here."""
    server = StatsD()
    with monkeypatch.context() as settings:
        for name, value in {
            "STATSD_ON": "True",
            "STATSD_HOST": "127.0.0.1",
            "STATSD_PORT": str(server.port),
            "STATSD_INFLUXDB_ENABLED": "True",
        }.items():
            settings.setenv(f"AIRFLOW__METRICS__{name}", value)
        metrics.prepare.cache_clear()
        if airflow_version() < (3, 2):  # chosen as its module is imported, which other tests have done
            from airflow.metrics.statsd_logger import get_statsd_logger

            settings.setattr(type(metrics.Stats), "factory", get_statsd_logger)
            settings.setattr(type(metrics.Stats), "instance", None)
            settings.setattr(metrics.Stats, "instance", None)
        assert metrics.enabled()
        yield server
    metrics.prepare.cache_clear()
    metrics.prepare()
    server.close()


def test_a_receipt_is_counted_with_what_was_written_and_nothing_to_do_is_told_apart(statsd: StatsD) -> None:
    receipt = {"version": 3, "txn_id": "x", "operation": "upsert", "metrics": {"rows": 9, "bytes": 500, "files": 2}}

    metrics.record_receipt(receipt, "s3://lake/db/orders")
    metrics.record_receipt({**receipt, "version": None, "operation": "refresh_index"}, "db.orders", "by_city")

    got = statsd.received()
    tags = "table=db.orders,operation=upsert"
    assert got == {
        f"airflow.lakeindex.commits,{tags}": "1|c",
        f"airflow.lakeindex.rows_written,{tags}": "9|c",
        f"airflow.lakeindex.bytes_written,{tags}": "500|c",
        f"airflow.lakeindex.files_written,{tags}": "2|c",
        "airflow.lakeindex.nothing_to_do,table=db.orders,operation=refresh_index,index=by_city": "1|c",
    }


def test_the_lag_of_an_index_is_the_groups_versions_and_bytes_that_it_does_not_tell_of(
    statsd: StatsD, tmp_path: Path
) -> None:
    fields = (Field("id", "bigint"), Field("city", "string"))
    index = IndexDefinition("by_city", "secondary", ("city",), "1", deferred=True)
    store = Store(tmp_path)
    timeline, _ = create_table(store, TableDefinition("t", fields, ("id",)), [PutIndex(index, covered=True)])
    for number, size in ((1, 100), (2, 50)):
        work = begin(timeline, operation="upsert", txn_id=f"w{number}")
        path = f"data/w{number}.{work.attempt}/work/f.parquet"
        store.put(path, b"x" * size)
        file = AddFile("data", "", "0", path, "delta", 1, size, lineage=number)
        work.commit([file], writes=[Write(group_scope("", "0"))])

    metrics.record_state(timeline.refresh(), "db.orders")

    got = statsd.received()
    assert got["airflow.lakeindex.table_version.db.orders"] == "2|g"
    assert got["airflow.lakeindex.index_lag_groups,table=db.orders,index=by_city"] == "1|g"
    assert got["airflow.lakeindex.index_lag_versions.db.orders.by_city"] == "2|g"
    assert got["airflow.lakeindex.index_lag_bytes.db.orders.by_city"] == "150|g"


def test_the_demand_for_an_index_is_told_by_the_day(statsd: StatsD) -> None:
    metrics.record_demand(Demand(90, 5, {"by_city": IndexDemand(30, 700.0)}), "db.orders")

    got = statsd.received()
    assert got["airflow.lakeindex.index_queries,table=db.orders,index=by_city"] == "6.0|g"
    assert got["airflow.lakeindex.index_bytes_spared.db.orders.by_city"] == "700.0|g"


def test_what_a_plan_spares_a_query_is_counted(statsd: StatsD) -> None:
    plan = {"files_read": 2, "files_skipped": 30, "bytes_read": 10, "bytes_skipped": 900}

    metrics.record_reading(plan, "/lake/db/orders")

    assert statsd.received() == {
        "airflow.lakeindex.files_read,table=db.orders": "2|c",
        "airflow.lakeindex.files_pruned,table=db.orders": "30|c",
        "airflow.lakeindex.bytes_read,table=db.orders": "10|c",
        "airflow.lakeindex.bytes_pruned,table=db.orders": "900|c",
    }


def test_waits_durations_and_errors_carry_who_and_which_table(statsd: StatsD) -> None:
    metrics.record_wait("WritersDrainedSensor", "db.orders", 1.5)
    metrics.record_duration("CompactTableOperator", "db.orders", 2)
    metrics.record_error("CompactTableOperator", "db.orders", InvalidInput("no"))

    assert statsd.received() == {
        "airflow.lakeindex.wait,sensor=WritersDrainedSensor,table=db.orders": "1500.000000|ms",
        "airflow.lakeindex.task_duration,operator=CompactTableOperator,table=db.orders": "2000.000000|ms",
        "airflow.lakeindex.errors,operator=CompactTableOperator,table=db.orders,error=InvalidInput": "1|c",
    }


def test_a_table_is_labelled_alike_by_name_and_by_location_and_fit_for_every_collector() -> None:
    assert metrics.label("db.orders") == metrics.label("s3://lake/warehouse/db/orders/") == "db.orders"
    assert metrics.label("/lake/a b/ü=1") == "a_b._1"


def test_every_metric_sent_is_on_the_page_and_every_one_on_the_page_is_sent() -> None:
    listed = re.findall(r"^\| `lakeindex\.(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    source = "".join(path.read_text() for path in Path(metrics.__file__).parent.rglob("*.py"))

    assert {name: (kind, tags.strip("` "), text) for name, kind, tags, text in listed} == metrics.METRICS
    for name in metrics.METRICS:
        assert source.count(f'"{name}"') >= 2 or name.startswith(("files_", "bytes_")), name
