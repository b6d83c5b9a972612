"""``python -m dags_examples.demo``: runs the example DAGs on a real Airflow, checks the table against the raw data, and
measures what indexes save on over a million rows.

Exit status 0 only if every number agrees.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import airflow_provider_index
import spark_apps
from airflow_provider_index.testing import LocalAirflow, LocalConnectServer
from dags_examples import folder
from dags_examples.demo import data, lake
from dags_examples.demo.advised import follow_advice
from dags_examples.demo.connector import Connector
from dags_examples.demo.report import check_copies, check_table
from dags_examples.demo.story import Story, index_lake, run_all, timed
from dags_examples.demo.worth import JVM

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

SMALL = {
    "spark.driver.extraJavaOptions": JVM,
    # Each sort would set 64 MB to zero, by the size of the heap.
    "spark.buffer.pageSize": "1m",
}
"""Settings of a Spark for small tables."""

BATCH = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    **SMALL,
}
"""Settings of the Spark that ``spark-submit`` starts for one task."""


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dags_examples.demo", description=__doc__)
    parser.add_argument("--all", action="store_true", help="statements in SQL, and Delta and Iceberg copies, as well")
    parser.add_argument("--keep", action="store_true", help="leave Airflow running afterwards, until Ctrl-C")
    parser.add_argument(
        "--repository", help="a Maven repository for the jars of delta-spark, in place of the public one"
    )
    parser.add_argument("--work", type=Path, default=Path(".demo"), help="folder for everything the demo writes")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    started = time.monotonic()
    work = options.work.absolute()
    shutil.rmtree(work, ignore_errors=True)
    with contextlib.ExitStack() as ending:
        connector = ending.enter_context(contextlib.closing(Connector(work / "connector", options.repository)))
        with timed(console, "The raw flights are landed as files, the way they would arrive"), _compiling():
            flights = data.raw()
            data.land(flights, work / "landing")
            if options.all:
                data.copy(flights, work / "copies")
        port = _free_port()
        airflow = ending.enter_context(_airflow(work, port))
        with timed(console, "Airflow and a Spark Connect server with Delta's connector start on this machine"):
            with ThreadPoolExecutor(1) as pool:
                starting = pool.submit(airflow.start)
                # Airflow takes no network's time: the jars come meanwhile.
                of_delta = _with_delta(connector)
                server = LocalConnectServer({**SMALL, **of_delta}, memory="2g", home=work / "spark", port=port)
                ending.callback(server.stop)
                server.start()
                starting.result()
            spark = _session(server)
            ending.callback(spark.stop)
        console.print(f"  {airflow.url} (user {airflow.username}, password {airflow.password})")
        story = Story(airflow.client, work / "warehouse", spark, console)
        agreed = _shown(console, story, flights, work, everything=options.all)
        if of_delta:
            with timed(console, "A Delta table in Spark's catalog: an index on it, by its name"):
                console.print(f"  {lake.make(spark, flights, work / 'lake' / 'flights')}")
                agreed.append(index_lake(story, work / "lake" / "flights"))
        with timed(console, "Over a million flights, asked with and without indexes"):
            agreed.append(_measure(console, work, of_delta))
        if not of_delta:
            console.print(f"[yellow]A Delta table with its own connector is not shown:[/] {connector.missing}.")
        console.print("\n[green]Everything agrees.[/]" if all(agreed) else "\n[red]Something does not agree.[/]")
        console.print(f"{time.monotonic() - started:.0f} s in all.")
        if options.keep:
            _wait(console, airflow)
    # Without a network all else is shown, and that is well; a repository that was named has to give the jars.
    return 0 if all(agreed) and (of_delta or options.repository is None) else 1


def _with_delta(connector: Connector) -> dict[str, str]:
    """Wait for Delta's connector, and have the Sparks that this process starts find its jars.

    :return: the settings of a Spark that has it; none if it cannot be had.
    """
    of_delta = connector.settings()
    if of_delta:
        # Behind Spark's own jars: before them, no archive of classes would fit.
        behind = (os.environ.get("SPARK_DIST_CLASSPATH"), connector.class_path)
        os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join(path for path in behind if path)
    return of_delta


def _shown(console: Console, story: Story, flights: pd.DataFrame, work: Path, *, everything: bool) -> list[bool]:
    """Run the DAGs on the table of flights, compare it with the raw data, follow advice; return what agrees."""
    run_all(story, everything=everything)
    with timed(console, "The table is checked against the raw data"):
        agreed = [check_table(console, story, data.expected(flights), flights)]
    if everything:
        with timed(console, "The same flights in tables of others"):
            agreed.append(check_copies(console, story.spark, work / "copies", flights))
    with timed(console, "Advice on indexes, from the queries that the table was asked, and what following it saves"):
        agreed.append(follow_advice(console, story.spark, story.table(), data.left(flights)))
    return agreed


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Compile the packages meanwhile, as an installation from a wheel does.

    Each task is two processes, which would compile them anew where Python keeps nothing beside the sources.
    """
    folders = [package.__path__[0] for package in (spark_apps, airflow_provider_index)]
    # Quiet also where the folders are not ours to write.
    with subprocess.Popen([sys.executable, "-m", "compileall", "-qq", *folders]):
        yield


@contextlib.contextmanager
def _airflow(work: Path, port: int) -> Iterator[LocalAirflow]:
    """An Airflow on the example DAGs, not started yet; stopped at the end, whatever happens.

    :param port: where the Spark Connect server of its connection will listen.
    """
    connections = {
        "index_table_store_default": {
            "conn_type": "index_table_store",
            "extra": {
                "warehouse": str(work / "warehouse"),
                "spark_conn_id": "spark_default",
                "source_roots": [data.catalog_address(work / "copies")],
                "listed_tables": [str(work / "copies" / "_indexes")],
            },
        },
        "spark_default": {"conn_type": "spark", "host": "sc://localhost", "port": port},
        "spark_submit": {
            "conn_type": "spark",
            "host": "local[2]",
            "extra": {"conf": BATCH, "driver-memory": "2g"},
        },
    }
    variables = {"flights_landing": str(work / "landing"), "flights_copies": str(work / "copies")}
    airflow = LocalAirflow(folder() / "flights", home=work / "airflow", connections=connections, variables=variables)
    try:
        yield airflow
    finally:
        airflow.stop()


def _measure(console: Console, work: Path, of_delta: Mapping[str, str]) -> bool:
    """Ask over a million flights, and the Delta table if there is one, in a process with a Spark of its own.

    :param of_delta: settings by which a Spark has delta-spark. :return: whether all is well.
    """
    command = [sys.executable, "-m", "dags_examples.demo.worth", str(work / "history")]
    if of_delta:
        command += ["--lake", str(work / "lake" / "flights"), "--warehouse", str(work / "warehouse")]
        command += [f"--conf={name}={value}" for name, value in of_delta.items()]
    # Where a session of Spark Connect is open, pyspark says so to each process that is started.
    env = {name: value for name, value in os.environ.items() if name != "SPARK_CONNECT_MODE_ENABLED"}
    log = work / "worth.log"
    with log.open("wb") as errors:
        done = subprocess.run(command, env=env, stderr=errors, check=False)
    if done.returncode:
        console.print(f"  [red]It ended with exit status {done.returncode};[/] {log} has what it said.")
    return done.returncode == 0


def _session(server: LocalConnectServer) -> SparkSession:
    """This process's own session on the server, by which the demo looks at tables."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(server.address).create()


def _wait(console: Console, airflow: LocalAirflow) -> None:
    """Leave Airflow to the person until Ctrl-C."""
    console.print(
        f"Airflow runs at {airflow.url} (user {airflow.username}, password {airflow.password}); Ctrl-C ends it."
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
