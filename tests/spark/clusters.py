"""Real clusters on loopback, from the jars of the pyspark package: a standalone master with a worker, and a Spark
Connect server.

Each is a process group of its own, ended by its id; nothing listens on any other address.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_apps import environment
from tests.spark.local import INTERPRETED

_START_SECONDS = 120.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Standalone:
    """A master and a worker. ``conf`` is what a driver on this machine needs to work with them."""

    master: str
    work: Path
    """Where the worker keeps what its executors write and log."""
    worker_pid: int
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
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1",
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
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            **INTERPRETED,
        }
        pages = f"http://{_LOOPBACK}:{page}", f"http://{_LOOPBACK}:{worker_page}"
        yield Standalone(master, home / "work", worker.pid, conf, pages)


@contextlib.contextmanager
def connect_server(
    home: Path, token: str | None = None, more: Mapping[str, str] | None = None
) -> Iterator[ConnectServer]:
    """A Spark Connect server on ``local[2]``, with its page and its event log. :param more: settings of its own."""
    port, page, events = free_port(), free_port(), home / "events"
    conf = {
        **looked_at(page, events),
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        "spark.pyspark.python": sys.executable,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        **INTERPRETED,
        **(more or {}),
    }
    if token is not None:
        conf["spark.connect.authenticate.token"] = token
    events.mkdir(parents=True, exist_ok=True)
    properties = home / "server.conf"
    properties.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
    log = home / "connect.log"
    arguments = ["--master", "local[2]", "--driver-memory", "1g", "--properties-file", str(properties)]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with _spark_class(log, "org.apache.spark.deploy.SparkSubmit", arguments, {}) as process:
        _wait_for(process, log, "Spark Connect server started at")
        # A client sends its token without TLS to this name alone.
        address = f"http://{_LOOPBACK}:{page}"
        yield ConnectServer(f"sc://localhost:{port}", process.pid, log, address, events, token)


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
    home = environment.spark_home()
    surroundings = {
        **os.environ,
        "JAVA_HOME": str(environment.java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        **extra,
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), name, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=surroundings,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break


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
