"""A real YARN on loopback, from Maven's jars: a ResourceManager and a NodeManager, a JVM each.

Its daemons and all containers end with the process that began them; nothing listens on another address.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil

from airflow_provider_index.runners.settings import SparkSettings
from dags_examples.demo.connector import Jars
from spark_apps.jobs import environment
from tests.spark.clusters import free_port
from tests.spark.local import INTERPRETED, JVM

RELEASE = "3.5.0"
"""Of Hadoop, as the cluster; the client is Spark's own."""
START_SECONDS = 90.0
_LOOPBACK = "127.0.0.1"

_WANTED = f"""<ivy-module version="2.0">
  <info organisation="tests" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{RELEASE}" conf="default->master"/>
    <dependency org="org.bouncycastle" name="bcpkix-jdk18on" rev="1.82" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

_OF_SPARK = ("hadoop-client-api-", "hadoop-client-runtime-", "slf4j-api-", "log4j-", "jcl-over-slf4j-", "commons-")


@dataclass
class Yarn:
    """A ResourceManager and a NodeManager.

    :param home: their folder: configuration, logs, containers. :param page: address of the ResourceManager's REST API.
    """

    home: Path
    page: str
    resource_manager: subprocess.Popen[bytes]
    node_manager: subprocess.Popen[bytes]
    environment: Mapping[str, str] = field(default_factory=dict)

    def settings(self, **conf: str) -> SparkSettings:
        """Return what submits to it in cluster mode."""
        home = environment.spark_home()
        given = {
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.yarn.stagingDir": (self.home / "staging").as_uri(),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JVM,
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": _LOOPBACK,
            "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
            "spark.executorEnv.SPARK_LOCAL_IP": _LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            **INTERPRETED,
            **conf,
        }
        extra = {
            "deploy-mode": "cluster",
            "conf": given,
            "environment": {"HADOOP_CONF_DIR": str(self.home / "conf")},
            "yarn_resourcemanager_webapp_address": self.page,
        }
        return SparkSettings.from_connection(_Connection(extra))

    def application(self, app_id: str) -> dict[str, Any]:
        """Return what the ResourceManager says of an application."""
        with urllib.request.urlopen(f"{self.page}/ws/v1/cluster/apps/{app_id}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["app"]
        return found

    def attempts(self, app_id: str) -> list[dict[str, Any]]:
        """Return the drivers that were started under an application's id."""
        with urllib.request.urlopen(f"{self.page}/ws/v1/cluster/apps/{app_id}/appattempts", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["appAttempts"]["appAttempt"]
        return found

    def drivers(self, app_id: str) -> list[psutil.Process]:
        """Return the processes of Python drivers of an application that run."""
        found = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            with contextlib.suppress(psutil.Error):
                if app_id in (process.info["cwd"] or "") and "python" in Path(process.exe()).name:
                    found.append(process)
        return found

    def lines(self) -> str:
        """Return all that containers have written."""
        logs = sorted((self.home / "logs").rglob("std*"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}" for path in logs)


class _Connection:
    """A Spark connection as a user's form makes it."""

    conn_id, conn_type, host, port, login, password = "yarn", "spark", "yarn", None, None, None

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self.extra_dejson = dict(extra)
        self.extra = json.dumps(extra)


@contextlib.contextmanager
def yarn_cluster(home: Path) -> Iterator[Yarn]:
    """Start both. :raises ConnectionError: if Maven is not reached."""
    with contextlib.closing(Jars(home / "fetched", _WANTED)) as jars:
        missing = jars.wait()
    if missing:
        raise ConnectionError(missing)
    (home / "conf").mkdir()
    page = f"{_LOOPBACK}:{free_port()}"
    _write(home / "conf" / "yarn-site.xml", _yarn_site(home, page))
    _write(home / "conf" / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(home / "tmp")})
    queue = "yarn.scheduler.capacity"
    scheduler = {f"{queue}.root.queues": "default", f"{queue}.root.default.capacity": "100"}
    _write(home / "conf" / "capacity-scheduler.xml", {**scheduler, f"{queue}.maximum-am-resource-percent": "1.0"})
    running: list[subprocess.Popen[bytes]] = []
    try:
        for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            running.append(_daemon(home, jars.folder, name))
        cluster = Yarn(home, f"http://{page}", *running)
        _wait_for_node(cluster)
        yield cluster
    finally:
        for process in running:
            process.kill()
            process.wait()
        _end_containers(home)


def start_node_manager(cluster: Yarn) -> None:
    """Start the NodeManager again after it was killed, and wait until the ResourceManager counts on it."""
    _end_containers(cluster.home)
    cluster.node_manager = _daemon(cluster.home, cluster.home / "fetched" / "jars", "nodemanager.NodeManager")
    _wait_for_node(cluster)


def _end_containers(home: Path) -> None:
    """End what containers have left running: their processes work below the cluster's folder."""
    for process in psutil.process_iter(["cwd"]):
        with contextlib.suppress(psutil.Error):
            if str(home / "local") in (process.info["cwd"] or ""):
                process.send_signal(signal.SIGKILL)


def _daemon(home: Path, jars: Path, name: str) -> subprocess.Popen[bytes]:
    spark = environment.spark_home() / "jars"
    own = [str(jar) for jar in spark.iterdir() if jar.name.startswith(_OF_SPARK)]
    java = environment.java_home()
    command = [
        str(java / "bin" / "java"), "-Xmx256m", *JVM.split(), "-Djava.net.preferIPv4Stack=true",
        "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", os.pathsep.join([str(home / "conf"), f"{jars}/*", *own]),
        f"org.apache.hadoop.yarn.server.{name}",
    ]  # fmt: skip
    surroundings = {**os.environ, "JAVA_HOME": str(java), "HADOOP_CONF_DIR": str(home / "conf")}
    with (home / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=surroundings, cwd=home,
            start_new_session=True,
        )  # fmt: skip


def _wait_for_node(cluster: Yarn) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError):
            answer = urllib.request.urlopen(f"{cluster.page}/ws/v1/cluster/nodes?states=RUNNING", timeout=5)
            if json.loads(answer.read())["nodes"]:
                return
        ended = [one.poll() for one in (cluster.resource_manager, cluster.node_manager)]
        if time.monotonic() > deadline or ended != [None, None]:
            said = "\n".join(log.read_text(errors="replace")[-3000:] for log in sorted(cluster.home.glob("*.log")))
            raise TimeoutError(f"YARN did not start: {ended}\n{said}")
        time.sleep(0.2)


def _yarn_site(home: Path, page: str) -> dict[str, str]:
    ports = {
        name: f"{_LOOPBACK}:{free_port()}"
        for name in (
            "resourcemanager.address", "resourcemanager.scheduler.address", "resourcemanager.resource-tracker.address",
            "resourcemanager.admin.address", "nodemanager.address", "nodemanager.localizer.address",
            "nodemanager.webapp.address", "nodemanager.collector-service.address",
        )
    }  # fmt: skip
    plain = {
        "resourcemanager.webapp.address": page,
        "resourcemanager.bind-host": _LOOPBACK,
        "nodemanager.bind-host": _LOOPBACK,
        "nodemanager.hostname": _LOOPBACK,
        "nodemanager.local-dirs": str(home / "local"),
        "nodemanager.log-dirs": str(home / "logs"),
        "nodemanager.pmem-check-enabled": "false",
        "nodemanager.vmem-check-enabled": "false",
        "nodemanager.resource.memory-mb": "4096",
        "nodemanager.resource.cpu-vcores": "8",
        "nodemanager.disk-health-checker.enable": "false",
        "nodemanager.sleep-delay-before-sigkill.ms": "3000",
        "nodemanager.delete.debug-delay-sec": "600",
        "scheduler.minimum-allocation-mb": "128",
        "resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        "nm.liveness-monitor.expiry-interval-ms": "20000",
        "am.liveness-monitor.expiry-interval-ms": "120000",
    }
    return {f"yarn.{name}": value for name, value in {**ports, **plain}.items()}


def _write(path: Path, properties: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")
