"""A Spark Connect server on this machine, for tests and demos of many small tasks: one JVM for all of them.

A task that goes to it starts a Python process and no JVM, which is most of what ``spark-submit`` takes for a few rows.
The server listens on loopback only and is a process group of its own, ended by its id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from airflow_provider_index.testing.lake import SPARK_CONF
from airflow_provider_index.testing.local_server import LocalServer
from spark_apps.jobs import environment

_LOOPBACK = "127.0.0.1"
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")
_STOP_SECONDS = 10


class ConnectServerDidNotStart(RuntimeError):
    """The server did not listen in time; the message ends with what it logged last."""


class LocalConnectServer(LocalServer):
    """Starts a Spark Connect server, says how to reach it, stops it.

    ::

        with LocalConnectServer() as spark:
            connections = {"spark_default": spark.connection(), "index_table_store_default": …}
            with LocalAirflow(dags="dags", connections=connections) as airflow:
                airflow.client.run("nightly")

    :param conf: Spark settings of the server, over :data:`~airflow_provider_index.testing.lake.SPARK_CONF`. A session
        can change those of SQL alone; extensions, catalogs' jars and memory are set by these.
    :param master: where it runs; the number in ``local[2]`` is how many tasks of Spark run at once, for all sessions.
    :param memory: of its JVM.
    :param token: what a client has to bring.
    :param home: folder for its log, scratch files and settings; a temporary one, removed at the end, unless given.
    :param port: where it listens; one that is free, known once it has started, unless given.
    """

    def __init__(
        self,
        conf: Mapping[str, str] | None = None,
        *,
        master: str = "local[2]",
        memory: str = "1g",
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(home, prefix="spark-connect-", log="connect.log")
        self.token = token
        self.port = port
        self._master, self._memory = master, memory
        self._conf = {
            **SPARK_CONF,
            # Unlike an app's, this JVM lives for minutes: the first compiler's own 48 MB of code would be full.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
            "spark.connect.grpc.binding.address": _LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.warehouse.dir": str(self.home / "warehouse"),
            "spark.local.dir": str(self.home / "local"),
            "spark.pyspark.python": sys.executable,
            **(conf or {}),
        }
        if token is not None:
            self._conf["spark.connect.authenticate.token"] = token

    @property
    def address(self) -> str:
        """The server's address, ``sc://localhost:…``. pyspark's client sends a token without TLS to this name only."""
        return f"sc://localhost:{self.port}"

    def connection(self, conf: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the fields of an Airflow connection to this server.

        :param conf: settings for each session, such as ``spark.sql.shuffle.partitions``.
        """
        extra = {"conf": dict(conf)} if conf else {}
        token = {"password": self.token} if self.token is not None else {}
        return {"conn_type": "spark", "host": "sc://localhost", "port": self.port, **token, "extra": extra}

    def start(self, timeout: float = 120) -> Self:
        """Start the server and return once it listens.

        :param timeout: seconds; on two cores about 6 are needed.
        :raises ConnectServerDidNotStart: with the last lines of the log.
        """
        jars = environment.spark_home() / "jars"
        if not any(jars.glob("spark-connect_*.jar")):
            raise ConnectServerDidNotStart(
                f"There is no Spark Connect server in {jars}; Spark brings one along since 4.0. Nothing was started."
            )
        self.home.mkdir(parents=True, exist_ok=True)
        properties = self.home / "server.conf"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{key} {value}\n" for key, value in self._conf.items()))
        size = ["--master", self._master, "--driver-memory", self._memory, "--properties-file", str(properties)]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        self._process = start_spark_class(self.log_file, "org.apache.spark.deploy.SparkSubmit", [*size, *server])
        deadline = time.monotonic() + timeout
        while not (match := _STARTED.search(self.log_file.read_text(errors="replace"))):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise ConnectServerDidNotStart(
                    f"The Spark Connect server did not listen after {timeout:g} s (exit status "
                    f"{self._process.poll()}).\n{self.last_lines()}"
                )
            time.sleep(0.1)
        self.port = int(match[1])
        return self

    def stop(self) -> None:
        """Stop the server and remove a temporary home."""
        if self._process is not None:
            end_spark_class(self._process)
            self._process = None
        self._remove_home()


def start_spark_class(
    log: Path, name: str, arguments: list[str], variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a class of Spark's in a process group of its own, on loopback.

    :param log: file that takes what it writes. :param name: of the class. :param variables: of its environment.
    :raises SparkMissing: there is no Spark or no Java.
    """
    home = environment.spark_home()
    surroundings = {
        **os.environ,
        "JAVA_HOME": str(environment.java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        **(variables or {}),
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), name, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=surroundings,
            cwd=log.parent,
            start_new_session=True,
        )


def end_spark_class(process: subprocess.Popen[bytes]) -> None:
    """End what :func:`start_spark_class` started, with all of its group: politely at first, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            break
