"""Delta's own maintenance by delta-spark: OPTIMIZE, VACUUM and RESTORE, by the builders of ``io.delta.tables``.

A commit carries the id of the transaction in ``userMetadata``, which the history of the table shows.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.pyspark_names import DataFrame, spark_errors
from spark_apps.engine.spark_utils import setting
from spark_apps.engine.spark_versions import message_of
from spark_apps.maintenance.native_calls import NativeCall
from spark_apps.native.interface import TRANSACTION, NativeCommit, Planned, cloned, figure
from spark_apps.sources.delta_spark import has_delta
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER
from spark_apps.timeline.catalog_names import CatalogName
from spark_apps.timeline.model import SourceDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_RETENTION_CHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"
_SMALL = "spark.databricks.delta.optimize.minFileSize"
_MAX_METADATA = 2_000
"""Characters of a commit's userMetadata: ours has less, others' may be anything."""
_PAGES = (50, 1_000, None)
"""How much of a history is asked for, one after the other, until it reaches back far enough."""
_SMALL_BYTES = 1 << 30
"""Delta's default: files below it are compacted together."""


class DeltaMaintenance:
    """A Delta table, by its name in a catalog where it is registered by one, else by its address."""

    def __init__(
        self, spark: SparkSession, source: SourceDefinition, storage_options: Mapping[str, Any] | None
    ) -> None:
        if not has_delta(spark):
            raise EnvironmentMismatch(
                f"The session has no delta-spark, which maintains {source.location}.",
                hint="Add its package and its extension to the Spark connection, as docs/delta.md says.",
            )
        self._spark = spark
        self._source = source
        self._address = Store(source.location, storage_options).spark_path("").rstrip("/")
        reach(spark, source.location)

    def identity(self) -> str | None:
        return str(self._snapshot().metadata().id())

    def version(self) -> str:
        return str(self._snapshot().version())

    def is_version(self, text: str) -> bool:
        return figure(text) is not None

    def size(self) -> Mapping[str, int]:
        snapshot = self._snapshot()
        return {"files": int(snapshot.numOfFiles()), "bytes": int(snapshot.sizeInBytes())}

    def commits_after(self, version: str | None) -> list[NativeCommit]:
        newest = int(self.version())
        asked = None if version is None else newest - int(version)
        if asked is not None and asked <= 0:
            return []
        return [_commit(row) for row in self._history(asked) if version is None or row["version"] > int(version)]

    def commits_since(self, moment: float) -> list[NativeCommit]:
        commits: list[NativeCommit] = []
        for most in _PAGES:
            commits = [_commit(row) for row in self._history(most)]
            if most is None or len(commits) < most or commits[-1].at <= moment:
                break
        return [one for one in commits if one.at > moment]

    def has_taken_effect(self, call: NativeCall, arguments: Mapping[str, Any], since: str | None) -> bool:
        return False

    def retention(self, call: NativeCall, arguments: Mapping[str, Any]) -> float:
        own = self._retention_seconds()
        asked = arguments.get("retain_hours")
        if asked is not None and asked * 3600 < own:
            raise InvalidInput(
                f"{call.name} was asked to keep files for {asked:g} hours, and the table "
                f"{self._source.location} keeps them for {own / 3600:g}.",
                outcome="Nothing was deleted.",
                hint="Leave retain_hours out, or change the table's delta.deletedFileRetentionDuration.",
            )
        return own if asked is None else asked * 3600

    def check(self, call: NativeCall, arguments: Mapping[str, Any]) -> None:
        if call.kind == "clean":
            self.retention(call, arguments)
        if call.name != "optimize" or not arguments:
            return
        detail = self._frame(self._table().detail()).collect()[0].asDict()
        clustered = list(detail.get("clusteringColumns") or ())
        if arguments.get("full") and not clustered:
            raise InvalidInput("OPTIMIZE FULL is for tables with CLUSTER BY, and this one has none.")
        if arguments.get("full") and (arguments.get("where") or arguments.get("zorder_by")):
            raise InvalidInput("OPTIMIZE FULL takes neither where nor zorder_by.", hint="Leave them out.")
        if clustered and arguments.get("zorder_by"):
            raise InvalidInput(
                f"The table is clustered by {', '.join(clustered)}, so Delta refuses a Z-order.",
                hint="Leave zorder_by out: OPTIMIZE clusters it.",
            )

    def plan(self, call: NativeCall, arguments: Mapping[str, Any]) -> Planned:
        if call.name == "optimize":
            return self._plan_optimize(arguments)
        if call.name == "vacuum":
            return self._plan_vacuum(call, arguments)
        newest = int(self.version())
        target = arguments.get("version", newest)
        back = self.commits_after(str(target)) if "version" in arguments else []
        return Planned({"version": newest, "commits_taken_back": len(back)} if back else {"version": newest})

    def make(self, call: NativeCall, arguments: Mapping[str, Any], txn_id: str) -> Mapping[str, Any]:
        settings = {_METADATA: json.dumps({TRANSACTION: txn_id}), _RETENTION_CHECKED: "true"}
        with cloned(self._spark, settings) as session:
            table = self._table(session)
            if call.name == "optimize":
                self._optimize(session, table, arguments)
            elif call.name == "vacuum":
                hours = arguments.get("retain_hours")
                table.vacuum() if hours is None else table.vacuum(float(hours))
            elif "version" in arguments:
                table.restoreToVersion(arguments["version"])
            else:
                table.restoreToTimestamp(arguments["timestamp"])
        return {}

    def _optimize(self, session: Any, table: Any, arguments: Mapping[str, Any]) -> None:
        if arguments.get("full"):
            # No builder has it. The table's name is ours, and is quoted.
            session.sql(f"OPTIMIZE {self._quoted()} FULL")
            return
        builder = table.optimize()
        if "where" in arguments:
            builder = builder.where(arguments["where"])
        columns = arguments.get("zorder_by")
        if not columns:
            builder.executeCompaction()
            return
        gateway: Any = self._spark.sparkContext._gateway
        names = gateway.new_array(gateway.jvm.java.lang.String, len(columns))
        for at, name in enumerate(columns):
            names[at] = name
        builder.executeZOrderBy(names)

    # --- what the table says of itself ----------------------------------------------------------------------------

    def _table(self, session: Any = None) -> Any:
        spark: Any = self._spark
        session = spark._jsparkSession if session is None else session
        tables = spark.sparkContext._jvm.io.delta.tables.DeltaTable
        try:
            if self._name() is not None:
                return tables.forName(session, self._name())
            return tables.forPath(session, self._address)
        except spark_errors() as error:
            raise TableNotFound(
                f"There is no Delta table at {self._source.location}: {message_of(error)}", hint="Check the location."
            ) from error

    def _name(self) -> str | None:
        options = self._source.options
        return str(CatalogName.of(options[CATALOG], options[IDENTIFIER])) if CATALOG in options else None

    def _quoted(self) -> str:
        quoted = self._address.replace("`", "``")
        return self._name() or f"delta.`{quoted}`"

    def _history(self, most: int | None) -> list[dict[str, Any]]:
        table = self._table()
        history = table.history() if most is None else table.history(most)
        columns = ("version", "timestamp", "operation", "userMetadata", "operationMetrics")
        return [row.asDict() for row in self._frame(history).select(*columns).collect()]

    def _frame(self, frame: Any) -> DataFrame:
        return DataFrame(frame, self._spark)

    def _retention_seconds(self) -> float:
        jvm: Any = self._spark.sparkContext._jvm
        logs = jvm.org.apache.spark.sql.delta.DeltaLog
        return float(logs.tombstoneRetentionMillis(self._snapshot().metadata())) / 1000

    def _snapshot(self) -> Any:
        """Return the table's newest ``Snapshot``: its own classes are asked, for a question in SQL takes a job."""
        spark: Any = self._spark
        jvm = spark.sparkContext._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self._address)
        none = jvm.scala.Option.empty()
        try:
            snapshot = log.update(False, none, none)
        except spark_errors():  # before 4.0 of delta-spark there is one parameter less
            snapshot = log.update(False, none)
        if snapshot.version() < 0:
            raise TableNotFound(f"There is no Delta table at {self._source.location}.", hint="Check the location.")
        return snapshot

    def _plan_optimize(self, arguments: Mapping[str, Any]) -> Planned:
        small = int(setting(self._spark, _SMALL, None) or _SMALL_BYTES)
        frame = self._frame(self._snapshot().allFiles().toDF())
        partitions: dict[str, list[int]] = defaultdict(list)
        everything = bool(arguments.get("zorder_by") or arguments.get("full"))
        for row in frame.selectExpr("to_json(partitionValues) AS partition", "size").toLocalIterator():
            if everything or row["size"] < small:
                partitions[row["partition"]].append(row["size"])
        chosen = {path: sizes for path, sizes in partitions.items() if len(sizes) > 1 or everything}
        figures = {
            "version": int(self.version()),
            "partitions": len(chosen),
            "files": sum(map(len, chosen.values())),
            "bytes": sum(map(sum, chosen.values())),
        }
        notes = ["The partitions that where leaves are not counted apart."] if "where" in arguments else []
        return Planned(figures, notes)

    def _plan_vacuum(self, call: NativeCall, arguments: Mapping[str, Any]) -> Planned:
        seconds = self.retention(call, arguments)
        removed = self._frame(self._snapshot().tombstones().toDF())
        old = removed.where(f"deletionTimestamp < {int((time.time() - seconds) * 1000)}")
        row = old.selectExpr("count(*) AS files", "coalesce(sum(size), 0) AS bytes").collect()[0]
        figures = {
            "version": int(self.version()),
            "retain_hours": seconds / 3600,
            "files": int(row["files"]),
            "bytes": int(row["bytes"]),
        }
        note = "Files that the log never named are deleted too; only VACUUM's own listing finds them."
        return Planned(figures, [note])


def _commit(row: Mapping[str, Any]) -> NativeCommit:
    said = {name: figure(text) for name, text in (row["operationMetrics"] or {}).items()}
    metrics = {name: value for name, value in said.items() if value is not None}
    return NativeCommit(
        str(row["version"]), row["operation"], row["timestamp"].timestamp(), _txn_of(row["userMetadata"]), metrics
    )


def _txn_of(said: str | None) -> str | None:
    """Return the transaction that a commit's ``userMetadata`` names; it is other writers' text, mostly."""
    try:
        found = json.loads((said or "")[:_MAX_METADATA])
    except (ValueError, RecursionError):
        return None
    value = found.get(TRANSACTION) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None
