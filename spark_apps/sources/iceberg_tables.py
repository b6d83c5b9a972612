"""Iceberg tables by the connector of a Spark session: by their names in its catalogs, their folders or metadata files.

Which files a snapshot has, with which deletes, is planned by the connector's own library in the session's JVM, and rows
are read by its scans: none passes the driver, and deletes, columns, types and access are the connector's affair. Where
the session lacks its classes, and over Spark Connect, there is none.
"""

from __future__ import annotations

import importlib.resources
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_apps.engine.java_part import compiled, new
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.pyspark_names import F
from spark_apps.engine.spark_utils import frame_of_plan, over_connect
from spark_apps.engine.spark_versions import message_of
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import ConnectorRows
from spark_apps.sources.logs.commits import MAX_COMMITS
from spark_apps.storage.errors import StorageError, StorageUnavailable, VersionNotFound
from spark_apps.timeline.catalog_names import CatalogName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

FILE = "_file"
"""The connector's column with the location of a row's file."""
CONNECTOR_CLASS = "org.apache.iceberg.spark.source.SparkTable"
"""The class without which the connector is not there."""
_JAVA: list[tuple[Any, Any]] = []
"""A JVM, and the loader of the classes that ask the connector; ``None`` where it is not there or is unknown."""


def java_source() -> str:
    """Return the Java that knows the connector's tables and scans."""
    return importlib.resources.files(__package__).joinpath("iceberg_tables.java").read_text(encoding="utf-8")


@dataclass(frozen=True)
class NamedTable:
    """A table that a session's catalog resolves: its name in full, the format's id of it, and its folder.

    :param encrypted: whether its files are encrypted by the format.
    :param given_out: names of what the catalog gives the session to read its files by.
    """

    name: CatalogName
    id: str
    location: str
    encrypted: bool = False
    given_out: tuple[str, ...] = ()


class IcebergSession:
    """The connector of a session."""

    def __init__(self, spark: SparkSession, classes: Any) -> None:
        self._spark: Any = spark
        self._jvm: Any = spark.sparkContext._jvm
        self._tables = new(self._jvm, classes, "lakeindex.iceberg.IcebergTables", (self._spark._jsparkSession,))

    def find(self, name: str) -> NamedTable | None:
        """Return the Iceberg table of a name, ``None`` if it is another one's, or of none."""
        text = self._ask(lambda: self._tables.describe(name), name)
        if text is None:
            return None
        said = json.loads(text)
        full = CatalogName(tuple(said["parts"]))
        return NamedTable(full, said["id"], said["location"], said["encrypted"], tuple(said["given_out"]))

    def listing(self, name: str, version: str | None) -> dict[str, Any] | None:
        """Return what ``IcebergTables.listing`` of ``iceberg_tables.java`` says of a snapshot; ``None``: no table.

        :param version: a snapshot's id, a branch or a tag; the current snapshot by default.
        :raises VersionNotFound: if there is no such snapshot.
        """
        text = self._ask(lambda: self._tables.listing(name, version), name)
        return None if text is None else json.loads(text)

    def changes(self, name: str, since: str) -> dict[str, Any] | None:
        """Return what ``IcebergTables.changes`` of ``iceberg_tables.java`` says of the snapshots since one of them."""
        text = self._ask(lambda: self._tables.changes(name, since, MAX_COMMITS), name)
        return None if text is None else json.loads(text)

    def rows(
        self, address: str, version: str | None, files: Mapping[str, Sequence[str]], columns: Sequence[str]
    ) -> ConnectorRows:
        """Return the rows of some files of a table.

        :param address: its name in the session's catalogs, its folder, or its metadata file.
        :param version: the snapshot; ``None`` for the current one, with the columns as they are now.
        :param files: path of each as a log has it -> the locations of its deletes.
        :raises StorageError: if the table has one of them no more, or with other deletes.
        """
        reader: Any = self._spark.read.format("iceberg")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        asked = json.dumps({path: sorted(deletes) for path, deletes in files.items()})

        def planned() -> Any:
            rows = reader.load(address).select(*map(column, columns), F.col(FILE))
            return self._tables.only(rows._jdf.queryExecution().optimizedPlan(), asked)

        plan = self._ask(planned, address)
        return ConnectorRows(frame_of_plan(self._spark, plan), FILE, _spellings)

    def _ask(self, question: Callable[[], Any], what: str) -> Any:
        try:
            return question()
        except Exception as error:
            said = message_of(error)
            if "no snapshot " in said:
                raise VersionNotFound(f"{what} has {said[said.index('no snapshot') :]}.") from error
            if "gone: " in said:
                raise StorageError(
                    f"The table {what} was changed while it was read: {said.rpartition('gone: ')[2]} has other deletes "
                    "by now, or is no file of it any more.",
                    outcome="Nothing was changed.",
                    hint="Try again, which lists the table again.",
                ) from error
            raise StorageUnavailable(f"The Iceberg table {what} cannot be read by Spark: {said}.") from error


def _spellings(path: str) -> tuple[str, ...]:
    """Return a path in each way that a table's metadata may write it: local ones with and without a scheme."""
    if not path.startswith("file://"):
        return (path,)
    local = path.removeprefix("file://")
    return (local, f"file:{local}", f"file://{local}")


def iceberg_of(spark: SparkSession) -> IcebergSession | None:
    """Return the connector of a session, ``None`` if there is none."""
    if spark is NO_SPARK or over_connect(spark):
        return None
    jvm = spark.sparkContext._jvm
    known = next((classes for where, classes in _JAVA if where is jvm), _JAVA)
    if known is _JAVA:
        known = _compiled(jvm)
        _JAVA.append((jvm, known))
    return None if known is None else IcebergSession(spark, known)


def _compiled(jvm: Any) -> Any:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(CONNECTOR_CLASS)
    except Exception:  # noqa: BLE001 - py4j's error of a class that is not there
        return None
    try:
        return compiled(jvm, java_source())
    except Exception as error:  # noqa: BLE001 - the tables are read by pyiceberg then
        logger.warning("Iceberg's connector is of a version that is not known, and is not asked: %s", message_of(error))
        return None
