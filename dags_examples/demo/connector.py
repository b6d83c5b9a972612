"""The jars of ``delta-spark`` for the demo: which release, fetched once from a Maven repository, in a bounded time.

Spark would fetch them itself (``spark.jars.packages``), but where a repository does not answer it waits for minutes,
and does not start. So the Ivy that Spark brings along does it before, and is ended when it is silent.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from xml.sax.saxutils import escape

from spark_apps.jobs import environment

PACKAGES = {
    "4.1": ("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    "4.2": ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
}
"""Spark's minor release -> group, artifact and version of the connector that is tested with it."""

SILENT_SECONDS = 15
"""How long the repository may say nothing."""
MAX_SECONDS = 180
"""How long the jars may take in all."""

_WANTED = """<ivy-module version="2.0">
  <info organisation="demo" module="demo"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="{}" name="{}" rev="{}" conf="default->default"/>
    <exclude org="org.apache.hadoop"/>
  </dependencies>
</ivy-module>
"""
"""Hadoop is Spark's own."""

_REPOSITORY = """<ivysettings>
  <settings defaultResolver="given"/>
  <resolvers><ibiblio name="given" m2compatible="true" root="{}"/></resolvers>
</ivysettings>
"""


_UNREACHED = re.compile(
    r"Server access error|Host \S+ not found|(?:UnknownHost|Connect|SocketTimeout|NoRouteToHost)Exception"
)
"""What Ivy writes of a repository that it does not reach."""


class Jars:
    """Jars of a Maven repository, which are being fetched by Ivy since this was made.

    :param home: folder for the jars and the log. :param wanted: what is fetched, as Ivy's module file says it.
    :param repository: address of the repository; the public one, or the cache of an earlier run, unless given.
    """

    def __init__(self, home: Path, wanted: str, repository: str | None = None) -> None:
        self.folder, self._log = home / "jars", home / "fetch.log"
        home.mkdir(parents=True)
        (home / "wanted.xml").write_text(wanted)
        name = "[artifact]-[revision](-[classifier]).[ext]"
        options = ["-ivy", str(home / "wanted.xml"), "-retrieve", f"{self.folder}/{name}", "-m2compatible"]
        if repository is not None:
            (home / "repository.xml").write_text(_REPOSITORY.format(escape(repository, {'"': "&quot;"})))
            # Nothing that came from elsewhere.
            options += ["-settings", str(home / "repository.xml"), "-cache", str(home / "cache")]
        [ivy] = (environment.spark_home() / "jars").glob("ivy-*.jar")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(environment.java_home() / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-jar", str(ivy), *options],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> str:
        """Wait until the jars are in the folder, without those that Spark has; return why they are not, or nothing."""
        started = heard = time.monotonic()
        said = -1
        while self._process.poll() is None:
            now, size = time.monotonic(), self._log.stat().st_size
            heard, said = (now, size) if size != said else (heard, said)
            if now - heard > SILENT_SECONDS or now - started > MAX_SECONDS:
                self.close()
                if now - heard > SILENT_SECONDS:
                    return f"the repository of its jars did not answer for {now - heard:.0f} s"
                return f"its jars were not fetched within {MAX_SECONDS} s"
            time.sleep(0.1)
        if self._process.returncode or not self.folder.is_dir():
            return f"its jars could not be fetched: {self._log} has what was said"
        own = {_artifact(jar) for jar in (environment.spark_home() / "jars").glob("*.jar")}
        for jar in self.folder.iterdir():
            if jar.suffix != ".jar" or _artifact(jar) in own:
                jar.unlink()
        return ""

    @property
    def reached(self) -> bool:
        """Whether the repository answered at all, once it was waited for."""
        log = self._log.read_text(errors="replace")
        return self._process.returncode != -signal.SIGKILL and _UNREACHED.search(log) is None

    def close(self) -> None:
        """End what fetches, if it has not ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Connector:
    """The connector for this Spark, whose jars are being fetched since this was made.

    :param home: folder for them. :param repository: address of a Maven repository; the public one unless given.
    """

    def __init__(self, home: Path, repository: str | None = None) -> None:
        release = _spark_release()
        self.missing = "" if release in PACKAGES else f"no delta-spark is tested with Spark {release}"
        """Why it cannot be had; empty if it can."""
        self._jars = None if self.missing else Jars(home, _WANTED.format(*PACKAGES[release]), repository)

    def close(self) -> None:
        """End what fetches the jars, if it has not ended."""
        if self._jars is not None:
            self._jars.close()

    @property
    def class_path(self) -> str:
        """Where the jars are, as a class path; empty where nothing is fetched."""
        return f"{self._jars.folder}/*" if self._jars is not None else ""

    def settings(self) -> dict[str, str]:
        """Return the settings of a Spark that has the jars on its class path, once they are there.

        :return: none if the connector cannot be had.
        """
        if self._jars is None:
            return {}
        self.missing = self._jars.wait()
        if self.missing:
            return {}
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # A log of few lines is read by 50 tasks else.
            "spark.databricks.delta.snapshotPartitions": "2",
        }


def _spark_release() -> str:
    import pyspark

    return ".".join(pyspark.__version__.split(".")[:2])


def _artifact(jar: Path) -> str:
    return re.split(r"-\d", jar.name)[0]
