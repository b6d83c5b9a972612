"""Connectors of other formats that a session's rule knows: those of this package, and those that others install.

A connector's part in Java (``TableConnector`` of ``connector.java``) recognizes its scans and says what they read; it
is compiled where the connector's own classes are in the session's JVM, and left out where they are not. Another package
adds one by an entry point of the group ``airflow_provider_index.connectors`` that names a :class:`Connector`: what is
installed decides, and nothing that a table's log says makes code load.
"""

from __future__ import annotations

import importlib.resources
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from py4j.protocol import Py4JError

from spark_apps.engine.java_part import compiled, new, together, with_sequences
from spark_apps.sources import hudi, iceberg_tables

logger = logging.getLogger(__name__)

GROUP = "airflow_provider_index.connectors"
"""The entry points by which packages offer connectors."""


@dataclass(frozen=True)
class Connector:
    """A connector of another format.

    :param format: of registered sources, as ``TableConnector.format`` says it too.
    :param needs: a class of the connector's, without which it is not there.
    :param main: the class that is a ``TableConnector``, with a constructor without arguments.
    :param source: returns its Java, which Janino compiles: no generics, no lambdas.
    """

    format: str
    needs: str
    main: str
    source: Callable[[], str]


def java_of(name: str) -> Callable[[], str]:
    """Return what reads a file of Java beside this module."""
    return lambda: importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


DELTA = Connector(
    "delta",
    "org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex",
    "lakeindex.delta.DeltaConnector",
    java_of("delta.java"),
)
ICEBERG = Connector(
    "iceberg",
    iceberg_tables.CONNECTOR_CLASS,
    "lakeindex.iceberg.IcebergConnector",
    lambda: together([iceberg_tables.java_source(), java_of("iceberg.java")()]),
)
HUDI = Connector(
    "hudi",
    hudi.CONNECTOR_CLASS,
    "lakeindex.hudi.HudiConnector",
    lambda: together([hudi.java_source(), java_of("hudi.java")()]),
)
BUILT_IN = (DELTA, ICEBERG, HUDI)


def installed() -> Iterator[Connector]:
    """Yield the connectors of this package, and those of others."""
    yield from BUILT_IN
    for entry in entry_points(group=GROUP):
        try:
            found = entry.load()
        except Exception as error:  # noqa: BLE001 - a package that does not load takes nothing from others
            logger.warning("The connector %s of %s is not used: %s", entry.name, entry.value, error)
            continue
        if isinstance(found, Connector):
            yield found
        else:
            logger.warning("The connector %s is not used: %s is no Connector.", entry.name, entry.value)


def add_connectors(jvm: Any, rule_classes: Any, rule: Any) -> list[str]:
    """Give a rule the connectors whose classes the session has, and return their formats.

    :param rule_classes: the loader of the rule's classes.
    """
    added = []
    for connector in installed():
        if not _is_there(rule_classes, connector.needs):
            continue
        try:
            classes = compiled(jvm, with_sequences(jvm, connector.source()), rule_classes)
            rule.addConnector(new(jvm, classes, connector.main, ()))
        except Py4JError as error:
            logger.warning(
                "Tables of the format %s are read without indexes, for this version of its connector is another than "
                "is known: %s",
                connector.format,
                str(error).splitlines()[-1],
            )
            continue
        added.append(connector.format)
    return added


def _is_there(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Py4JError:
        return False
    return True
