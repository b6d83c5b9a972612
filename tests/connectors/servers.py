"""Catalogs as people have them, on loopback: a Hive metastore, and Iceberg's REST catalog that asks for a token.

They run in a JVM of their own, with Spark's jars and those of Iceberg's own tests, and end with the process that began
them. Nothing listens on another address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dags_examples.demo.connector import Jars
from spark_apps.engine.java_part import compiled

RELEASE = "1.10.0"
"""Of Iceberg, as the server; clients are those of ``releases.py``."""
TOKEN = "only-for-tests"

_WANTED = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{RELEASE}" conf="default->default">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.50.3.0" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


class CatalogServers:
    """A JVM with catalogs. :param home: folder for their state."""

    def __init__(self, jvm: Any, home: Path) -> None:
        self._jvm, self._home = jvm, home
        self._started = 0

    def metastore(self) -> str:
        """Start a Hive metastore, and return its address."""
        classes = compiled(self._jvm, _source("metastore"))
        [constructor] = classes.loadClass("lakeindex.testing.Metastore").getDeclaredConstructors()
        server = constructor.newInstance(self._array(str(self._folder())))
        return f"thrift://127.0.0.1:{server.getClass().getField('port').get(server)}"

    def rest(self, lent: Mapping[str, str] | None = None) -> str:
        """Start a REST catalog over one in SQLite, and return its address. It answers those who bring :data:`TOKEN`.

        :param lent: what it gives whoever loads a table, to read the table's files by.
        """
        folder = self._folder()
        given, config = self._jvm.java.util.HashMap(), self._jvm.java.util.HashMap()
        for name, value in {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}.items():
            given.put(name, value)
        for name, value in (lent or {}).items():
            config.put(name, value)
        hadoop = self._jvm.org.apache.hadoop.conf.Configuration()
        catalog = self._jvm.org.apache.iceberg.CatalogUtil.loadCatalog(
            "org.apache.iceberg.jdbc.JdbcCatalog", "served", given, hadoop
        )
        classes = compiled(self._jvm, _source("rest_catalog"))
        [constructor] = classes.loadClass("lakeindex.testing.RestCatalog").getDeclaredConstructors()
        return f"http://127.0.0.1:{constructor.newInstance(self._array(catalog, TOKEN, config)).start()}"

    def _folder(self) -> Path:
        self._started += 1
        folder = self._home / f"server-{self._started}"
        (folder / "warehouse").mkdir(parents=True)
        return folder

    def _array(self, *values: Any) -> Any:
        given = self._jvm.java.util.ArrayList()
        for value in values:
            given.add(value)
        return given.toArray()


@contextlib.contextmanager
def catalog_servers(home: Path) -> Iterator[CatalogServers]:
    """Start the JVM.

    :raises ConnectionError: Maven is not reached. :raises RuntimeError: it is, and does not give the jars.
    """
    from pyspark.java_gateway import launch_gateway

    with contextlib.closing(Jars(home / "jars", _WANTED)) as jars:
        missing = jars.wait()
    if missing:
        raise (RuntimeError if jars.reached else ConnectionError)(missing)
    settings = {"spark.driver.extraClassPath": f"{jars.folder}/*", "spark.driver.memory": "512m"}
    gateway = launch_gateway(_Settings(settings))
    try:
        yield CatalogServers(gateway.jvm, home)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)


class _Settings:
    """Settings as ``launch_gateway`` asks for them: a ``SparkConf`` would be one of the session that is open."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def getAll(self) -> list[tuple[str, str]]:
        return list(self._values.items())


def _source(name: str) -> str:
    return (Path(__file__).parent / f"{name}.java").read_text(encoding="utf-8")
