"""A table as its own format maintains it: asked for versions, commits and plans, and made to do calls.

Which calls there are, :mod:`spark_apps.maintenance.native_calls` says. A format says where its table is, how its
commits carry the id of a transaction and are found by it, and makes the calls. The log, the transaction and the
receipt are those of :mod:`spark_apps.actions.native_maintenance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.spark_utils import over_connect
from spark_apps.maintenance.native_calls import NativeCall
from spark_apps.storage.errors import EnvironmentMismatch, UnsupportedSource
from spark_apps.timeline.model import SourceDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSACTION = "lakeindex.transaction"
"""What the id of our transaction is called in a commit of another format."""


@dataclass(frozen=True)
class NativeCommit:
    """A commit of another format.

    :param at: when it was made, in seconds since 1970.
    :param txn_id: the transaction of ours whose id it carries; ``None``: another writer made it.
    :param metrics: what the format says of it.
    """

    version: str
    operation: str
    at: float
    txn_id: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


def figure(text: str) -> int | None:
    """Return the number that a format's log says, ``None`` for what is none: it is other writers' text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@dataclass(frozen=True)
class Planned:
    """The figures of a call that is not made, by the table's own log.

    :param figures: files, bytes and the like. :param notes: what to know, in sentences.
    """

    figures: Mapping[str, Any]
    notes: Sequence[str] = ()


class NativeTable(Protocol):
    """A table as its own format maintains it."""

    def identity(self) -> str | None:
        """Return the format's own id of the table that is there now."""

    def version(self) -> str:
        """Return the table's newest version, by the format's name of it."""

    def is_version(self, text: str) -> bool:
        """Return whether a text can be the name of a version: it comes from a request, which is input."""

    def size(self) -> Mapping[str, int]:
        """Return ``files`` and ``bytes`` of the newest version."""

    def commits_after(self, version: str | None) -> list[NativeCommit]:
        """Return the commits that came after a version, the newest first; all that are known for ``None``."""

    def commits_since(self, moment: float) -> list[NativeCommit]:
        """Return the commits that came after a moment, in seconds since 1970 by the format's own clock."""

    def has_taken_effect(self, call: NativeCall, arguments: Mapping[str, Any], since: str | None) -> bool:
        """Return whether a call that writes no commit has been made since a version, and must not be made again."""

    def retention(self, call: NativeCall, arguments: Mapping[str, Any]) -> float | None:
        """Return the seconds for which a call leaves what it deletes; ``None`` where the format counts commits.

        :raises InvalidInput: if the arguments ask for less than the table's own rule.
        """

    def check(self, call: NativeCall, arguments: Mapping[str, Any]) -> None:
        """Check arguments that only the table can judge.

        :raises InvalidInput: naming one that it cannot have.
        """

    def plan(self, call: NativeCall, arguments: Mapping[str, Any]) -> Planned:
        """Return what a call would do. Nothing is written."""

    def make(self, call: NativeCall, arguments: Mapping[str, Any], txn_id: str) -> Mapping[str, Any]:
        """Make a call, whose commits carry an id; return what the format says of it."""


def native_table(
    spark: SparkSession, source: SourceDefinition, storage_options: Mapping[str, Any] | None
) -> NativeTable:
    """Return a registered table as its own format maintains it.

    :raises UnsupportedSource: if the format has no maintenance of its own.
    :raises EnvironmentMismatch: if the session lacks the format's connector.
    """
    if spark is NO_SPARK or over_connect(spark):
        raise EnvironmentMismatch(
            "A table's own maintenance needs a Spark session with a JVM of its own; over Spark Connect there is none.",
            hint="Use a Spark connection of type spark.",
        )
    if source.format == "delta":
        from spark_apps.native.delta import DeltaMaintenance

        return DeltaMaintenance(spark, source, storage_options)
    if source.format == "iceberg":
        from spark_apps.native.iceberg import IcebergMaintenance

        return IcebergMaintenance(spark, source, storage_options)
    if source.format == "hudi":
        from spark_apps.native.hudi_calls import HudiMaintenance

        return HudiMaintenance(spark, source, storage_options)
    raise UnsupportedSource(
        f"{source.location} is of the format {source.format}, which has no maintenance of its own here.",
        hint="Delta, Iceberg and Hudi tables have.",
    )


@contextmanager
def cloned(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[Any]:
    """Yield a clone of the session's JVM side, with settings that no other thread of the session sees.

    A setting of the session itself would be seen by whatever else commits in it meanwhile. The clone's plans are
    Spark's and the format's own: no index takes part in them.
    """
    session: Any = spark
    clone = session._jsparkSession.cloneSession()
    own = clone.experimental()
    getattr(own, "extraOptimizations_$eq")(own.extraOptimizations().take(0))
    for name, value in settings.items():
        clone.conf().set(name, value)
    yield clone
