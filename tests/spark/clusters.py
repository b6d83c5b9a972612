"""Real clusters on loopback, from the jars of the pyspark package: a standalone master with a worker, and a Spark
Connect server.

Each is a process group of its own, ended by its id; nothing listens on any other address.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_index.testing.connect_server import LocalConnectServer, end_spark_class, start_spark_class
from tests.spark.local import INTERPRETED, JVM
from tests.spark.releases import SPARK

_START_SECONDS = 120.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Standalone:
    """A master and a worker. ``conf`` is what a driver on this machine needs to work with them."""

    master: str
    work: Path
    """Where the worker keeps what its executors write and log."""
    worker_pid: int
    master_pid: int
    conf: Mapping[str, str]
    pages: tuple[str, str]
    """Addresses of the master's own page and of the worker's."""


@dataclass(frozen=True)
class ConnectServer:
    """A Spark Connect server. ``token`` is what a client must bring, if one was asked for."""

    address: str
    pid: int
    log: Path
    page: str
    """Address of Spark's own page."""
    events: Path
    """Folder of its event log."""
    token: str | None = None


@contextlib.contextmanager
def standalone_cluster(home: Path, cores: int = 2, memory: str = "1g") -> Iterator[Standalone]:
    """A standalone cluster with one worker."""
    port, worker_port, page, worker_page = (free_port() for _ in range(4))
    master = f"spark://{_LOOPBACK}:{port}"
    daemon = {
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {JVM}",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with contextlib.ExitStack() as running:
        listen = ["--host", _LOOPBACK, "--port", str(port), "--webui-port", str(page)]
        log = home / "master.log"
        process = running.enter_context(_spark_class(log, "org.apache.spark.deploy.master.Master", listen, daemon))
        _wait_for(process, log, "New state: ALIVE")
        listen = ["--host", _LOOPBACK, "--port", str(worker_port), "--webui-port", str(worker_page)]
        size = ["--cores", str(cores), "--memory", memory, "--work-dir", str(home / "work"), master]
        log = home / "worker.log"
        arguments = [*listen, *size]
        worker = running.enter_context(_spark_class(log, "org.apache.spark.deploy.worker.Worker", arguments, daemon))
        _wait_for(worker, log, "Successfully registered with master")
        conf = {
            "spark.ui.enabled": "false",
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.executor.memory": "600m",
            "spark.executor.cores": str(cores),
            "spark.pyspark.python": sys.executable,
            "spark.driver.extraJavaOptions": JVM,
            "spark.executor.extraJavaOptions": JVM,
            **INTERPRETED,
        }
        pages = f"http://{_LOOPBACK}:{page}", f"http://{_LOOPBACK}:{worker_page}"
        yield Standalone(master, home / "work", worker.pid, process.pid, conf, pages)


@contextlib.contextmanager
def connect_server(
    home: Path, token: str | None = None, more: Mapping[str, str] | None = None
) -> Iterator[ConnectServer]:
    """A Spark Connect server on ``local[2]``, with its page and its event log. :param more: settings of its own."""
    if SPARK < (4, 0):
        pytest.skip("Spark 4.0 brought a Spark Connect server among its own jars")
    page, events = free_port(), home / "events"
    events.mkdir(parents=True, exist_ok=True)
    conf = {**looked_at(page, events), **INTERPRETED, "spark.driver.extraJavaOptions": JVM, **(more or {})}
    with LocalConnectServer(conf, token=token, home=home) as server:
        assert server.pid is not None
        yield ConnectServer(server.address, server.pid, server.log_file, f"http://{_LOOPBACK}:{page}", events, token)


def looked_at(page: int, events: Path) -> dict[str, str]:
    """Settings of a Spark whose page is at that port, and whose event log is text in that folder."""
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(page),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


@contextlib.contextmanager
def _spark_class(
    log: Path, name: str, arguments: list[str], extra: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    process = start_spark_class(log, name, arguments, extra)
    try:
        yield process
    finally:
        end_spark_class(process)


def _wait_for(process: subprocess.Popen[bytes], log: Path, words: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while words not in (text := log.read_text(errors="replace")):
        if time.monotonic() > deadline or process.poll() is not None:
            raise TimeoutError(f"{log} never said {words!r}:\n{text[-4000:]}")
        time.sleep(0.1)


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to outgoing connections: one of these could take
    it before the server does."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((_LOOPBACK, port))
            return port
    raise OSError("No port is free.")
