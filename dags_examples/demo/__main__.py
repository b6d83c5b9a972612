"""``python -m dags_examples.demo``: runs the example DAGs on a real Airflow and checks the table against
the raw data.

Exit status 0 only if every number agrees.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from airflow_provider_index.testing import AirflowClient, LocalAirflow
from dags_examples import folder
from dags_examples.demo import data
from dags_examples.demo.report import inspect, show
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline

DAGS = (
    "flights_initial_load",
    "flights_december",
    "flights_nightly",
    "flights_rescale",
    "flights_correction",
    "flights_sql",
    "flights_sources",
)
SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Apps that live for seconds, on a few cores: the second compiler costs more than it gives. Without it Java makes
    # room for little code, and stops compiling when that is full.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}


@dataclass
class Story:
    """What the demo has seen so far. ``versions`` maps a moment to the table's version then."""

    warehouse: Path
    versions: dict[str, int] = field(default_factory=dict)
    refusal: str = ""
    tries: int = 0

    @property
    def location(self) -> Path:
        return self.warehouse / "demo" / "flights"

    def mark(self, moment: str) -> None:
        """Remembers the table's newest version as that of a moment."""
        self.versions[moment] = Timeline.load(Store(self.location)).head.version


def main() -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dags_examples.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave Airflow running afterwards, until Ctrl-C")
    parser.add_argument("--work", type=Path, default=Path(".demo"), help="folder for everything the demo writes")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    started = time.monotonic()

    work = options.work.absolute()
    shutil.rmtree(work, ignore_errors=True)
    story = Story(work / "warehouse")
    with step(console, "landing the raw flights as files, and as a Delta and an Iceberg table"):
        flights = data.raw()
        data.land(flights, work / "landing")
        data.copy(flights, work / "copies")
    with airflow(work, story) as server:
        with step(console, "starting Airflow"):
            server.start()
            server.client.wait_for_dags(*DAGS)
        console.print(f"  {server.url} (user {server.username}, password {server.password})")
        run_all(console, server.client, story)
        with step(console, "looking at the table"):
            findings = inspect(story.location, story.versions, work / "copies", data.expected(flights), SPARK_CONF)
        agreed = show(console, findings, story.refusal, story.tries)
        console.print(f"\n{time.monotonic() - started:.0f} s in all.")
        if options.keep:
            wait(console, server)
        with step(console, "stopping Airflow"):
            server.stop()
    return 0 if agreed else 1


@contextlib.contextmanager
def airflow(work: Path, story: Story) -> Iterator[LocalAirflow]:
    """An Airflow on the example DAGs, not started yet; stopped at the end, whatever happens."""
    server = LocalAirflow(
        folder() / "flights",
        home=work / "airflow",
        connections={
            "index_table_store_default": {
                "conn_type": "index_table_store",
                "extra": {
                    "warehouse": str(story.warehouse),
                    "spark_conn_id": "spark_default",
                    "source_roots": [data.catalog_address(work / "copies")],
                },
            },
            "spark_default": {
                "conn_type": "spark",
                "host": "local[2]",
                "extra": {"conf": SPARK_CONF, "driver-memory": "2g"},
            },
        },
        variables={"flights_landing": str(work / "landing"), "flights_copies": str(work / "copies")},
    )
    try:
        yield server
    finally:
        server.stop()


def run_all(console: Console, client: AirflowClient, story: Story) -> None:
    """The DAGs in their order."""
    for dag_id, moment in (
        ("flights_initial_load", "loaded"),
        ("flights_december", "delivered"),
        ("flights_nightly", "compacted"),
    ):
        with step(console, dag_id):
            client.run(dag_id, timeout=900)
        story.mark(moment)
    with step(console, "flights_rescale, and flights_correction meanwhile"):
        rescale_while_somebody_writes(client, story)
    story.mark("rescaled")
    for dag_id in ("flights_sql", "flights_sources"):
        with step(console, dag_id):
            client.run(dag_id, timeout=600)


def rescale_while_somebody_writes(client: AirflowClient, story: Story) -> None:
    """Starts the writer as soon as the window is open; it must be refused once, and succeed after."""
    rescale = client.trigger("flights_rescale")
    client.wait_for_task("flights_rescale", rescale, "quiet.drained", timeout=300)
    correction = client.trigger("flights_correction")
    for dag_id, run_id in (("flights_rescale", rescale), ("flights_correction", correction)):
        report = client.wait(dag_id, run_id, timeout=600)
        if report.state != "success":
            raise SystemExit(client.describe(report))
    [row] = client.task_instances("flights_correction", correction)
    story.tries = row["try_number"]
    lines = client.log("flights_correction", correction, "correct", 1).splitlines()
    story.refusal = next((line for line in reversed(lines) if "holds a stop-write window" in line), "")


@contextlib.contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    """Says what is being done, and how long it took."""
    started = time.monotonic()
    console.print(f"{what} …")
    yield
    console.print(f"  {time.monotonic() - started:.1f} s")


def wait(console: Console, server: LocalAirflow) -> None:
    """Leaves Airflow to the person until Ctrl-C."""
    console.print(f"Airflow runs at {server.url} (user {server.username}, password {server.password}); Ctrl-C ends it.")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
