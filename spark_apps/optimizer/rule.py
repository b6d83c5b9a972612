"""The rule in Spark's optimizer: compiled once a JVM, installed once a session, among those that others put there.

Its Java part (``index_rule.java``, ``join_keys.java``, ``connector.java``, ``held_files.java``) is compiled in the
session (:mod:`spark_apps.engine.java_part`); what knows another format's connector is compiled beside it
(:mod:`spark_apps.optimizer.connectors`).
"""

from __future__ import annotations

import importlib.resources
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started

from spark_apps.engine.java_part import compiled, new, together, with_sequences
from spark_apps.engine.spark_utils import OWN_SCAN
from spark_apps.optimizer.connectors import add_connectors
from spark_apps.optimizer.limits import UNREGISTERED_MILLISECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_PACKAGE = "lakeindex"


class _Decision:
    """Python's answer to the rule, as the function that Java calls."""

    def __init__(self, decide: Callable[[Any], None]) -> None:
        self._decide = decide

    def apply(self, request: Any) -> None:
        """Decide on the scans of a query; never raises, for Spark's own plan is right too."""
        try:
            self._decide(request)
        except Exception:
            logger.warning("A query is planned without indexes.", exc_info=True)

    class Java:
        implements = ("java.util.function.Function",)


class _Finding:
    """Python's answer to a question that is a text, as the function that Java calls."""

    def __init__(self, find: Callable[[str], str | None]) -> None:
        self._find = find

    def apply(self, asked: str) -> str | None:
        """Return the answer, ``None`` if there is none."""
        return self._find(asked)

    class Java:
        implements = ("java.util.function.Function",)


class InstalledRule:
    """The rule of one session.

    :param decide: decides on the scans of a query. :param files: names the files of a keyed table at a version.
    """

    def __init__(self, spark: SparkSession, decide: Callable[[Any], None], files: Callable[[str], str]) -> None:
        self._session: Any = spark._jsparkSession
        context: Any = spark.sparkContext
        ensure_callback_server_started(context._gateway)
        self._jvm = context._jvm
        self._named: list[tuple[str, Any, Any]] = []
        """Name, catalog and what found its tables before: of each catalog that this rule answers for."""
        self._set: list[str] = []
        """The settings of catalogs that this rule has made."""
        self._classes = _compile(self._jvm)
        self._rule = self._new("IndexRule", OWN_SCAN, UNREGISTERED_MILLISECONDS)
        self._rule.setOptimizer(self._session.sessionState().optimizer())
        self._rule.setSession(self._session.sessionState())
        self._rule.setFiles(_Finding(files))
        self._rule.setDecide(_Decision(decide))
        self.formats = frozenset(add_connectors(self._jvm, self._classes, self._rule))
        self._change_rules(lambda rules: [*rules, self._rule])

    def remove(self) -> None:
        """Take the rule out of the session; those of others stay."""
        self._rule.setDecide(None)
        self._change_rules(lambda rules: [rule for rule in rules if rule != self._rule])

    def undo(self) -> None:
        """Take the rule out of a session that it was not wholly put into, with the names that it has made known."""
        self.remove()
        for name, catalog, before in reversed(self._named):
            catalog.setFind(before)
            if before is None:
                self._forget_catalog(name)
        for setting in self._set:
            self._session.conf().unset(setting)

    def forgo(self, address: str) -> None:
        """Do not ask about an address for a while."""
        self._rule.forgo(address)

    def forget(self) -> None:
        """Ask about all addresses again."""
        self._rule.forget()

    def keyed_relation(self, schema_json: str, uri: str, version: int, table_id: str, size: int) -> Any:
        """Return a Java DataFrame of a table at a version, which the rule gives its rows when it is used."""
        schema = self._session.parseDataType(schema_json)
        relation = self._new("KeyedRelation", self._session.sqlContext(), schema, uri, version, table_id, size)
        return self._session.baseRelationToDataFrame(relation)

    def catalog(self, name: str, find: Callable[[str], str | None]) -> bool:
        """Make a name known to the session as a catalog whose tables are found by a function of JSON.

        :return: False if the session has another catalog, or a database, of this name, which stays.
        """
        conf, setting, ours = self._session.conf(), f"spark.sql.catalog.{name}", f"{_PACKAGE}.LakeCatalog"
        given = conf.get(setting, None)
        if given not in (None, ours) or (given is None and self._has_database(name)):
            return False
        if given is None:
            conf.set(setting, ours)
            self._set.append(setting)
        thread = self._jvm.java.lang.Thread.currentThread()
        before = thread.getContextClassLoader()
        # The session loads the class by the thread's loader, once, and keeps the catalog.
        thread.setContextClassLoader(self._classes)
        try:
            with self._active():
                catalog = self._session.sessionState().catalogManager().catalog(name)
        finally:
            thread.setContextClassLoader(before)
        self._named.append((name, catalog, catalog.setFind(_Finding(find))))
        return True

    def number_of(self, execution: Any) -> int:
        """Return the number of the query whose plans an execution makes."""
        return int(self._rule.number(execution.tracker()))

    def _has_database(self, name: str) -> bool:
        with self._active():
            return bool(self._session.catalog().databaseExists(name))

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Let the session be the one whose settings Spark asks in this thread: else it asks the thread's active one."""
        sessions = self._jvm
        for part in self._session.getClass().getName().split("."):
            sessions = getattr(sessions, part)
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._session)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def _forget_catalog(self, name: str) -> None:
        """Take a catalog out of those that the session has loaded, which Spark has no call for."""
        manager = self._session.sessionState().catalogManager()
        for field in manager.getClass().getDeclaredFields():
            if field.getName().rpartition("$")[2] == "catalogs":
                try:
                    field.setAccessible(True)
                    field.get(manager).remove(name)
                except Py4JError as error:
                    logger.warning("The catalog %s stays known to the session, without tables: %s", name, error)

    def _new(self, name: str, *arguments: Any) -> Any:
        return new(self._jvm, self._classes, f"{_PACKAGE}.{name}", arguments)

    def _change_rules(self, change: Callable[[list[Any]], list[Any]]) -> None:
        experimental = self._session.experimental()
        rules = experimental.extraOptimizations()
        kept = self._jvm.java.util.ArrayList()
        for rule in change([rules.apply(position) for position in range(rules.size())]):
            kept.add(rule)
        sequence = self._jvm.scala.collection.JavaConverters.asScalaBuffer(kept).toSeq()
        getattr(experimental, "extraOptimizations_$eq")(sequence)


_PARTS = ("index_rule.java", "join_keys.java", "connector.java", "held_files.java")


@cache
def _source() -> str:
    """Return the source of all classes."""
    files = importlib.resources.files(__package__)
    return together(files.joinpath(name).read_text(encoding="utf-8") for name in _PARTS)


def _compile(jvm: Any) -> Any:
    """Return the loader of the rule's classes, compiled once for a JVM."""
    return compiled(jvm, with_sequences(jvm, _source()))
