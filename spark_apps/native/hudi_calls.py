"""Hudi's own maintenance by its write client: compaction, clustering, cleaning, savepoints and rollbacks.

The procedures of the same names take no extra metadata; the client's plans do, and the instant of a compaction or a
clustering is that of its plan. So a retry finds the plan by the id of the transaction: it is done, or is executed then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.engine.spark_utils import setting
from spark_apps.maintenance.native_calls import NativeCall
from spark_apps.native.interface import TRANSACTION, NativeCommit, Planned, figure
from spark_apps.sources.hudi import HudiTable, has_hudi
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.model import SourceDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE = "0"
"""The version of a table without a completed commit."""
_LOCK = "hoodie.write.lock.provider"
_COMPACT_AT_ONCE = {"hoodie.compact.inline.max.delta.commits": "1"}
_CLUSTER_AT_ONCE = {"hoodie.clustering.inline": "false", "hoodie.clustering.async.max.commits": "1"}
_ORDER = "hoodie.clustering.plan.strategy.sort.columns"
_USER = "lakeindex"


class HudiMaintenance:
    """A Hudi table at its address. Its version is the time at which its newest commit was completed."""

    def __init__(
        self, spark: SparkSession, source: SourceDefinition, storage_options: Mapping[str, Any] | None
    ) -> None:
        if not has_hudi(spark):
            raise EnvironmentMismatch(
                f"The session has no Hudi, which maintains {source.location}.",
                hint="Add its bundle to the Spark connection, as docs/hudi.md says.",
            )
        self._spark: Any = spark
        self._jvm: Any = spark.sparkContext._jvm
        self._source = source
        self._storage_options = storage_options
        self._address = Store(source.location, storage_options).spark_path("").rstrip("/")
        reach(spark, source.location)

    def identity(self) -> str | None:
        return HudiTable(self._source.location, self._storage_options, self._spark, None).table_id()

    def version(self) -> str:
        return max((one.getCompletionTime() for one in self._completed(self._meta_client())), default=_NONE)

    def is_version(self, text: str) -> bool:
        return figure(text) is not None

    def size(self) -> Mapping[str, int]:
        return {}

    def commits_after(self, version: str | None) -> list[NativeCommit]:
        client = self._meta_client()
        found = [one for one in self._completed(client) if version is None or one.getCompletionTime() > version]
        return self._commits(client, found)

    def commits_since(self, moment: float) -> list[NativeCommit]:
        client = self._meta_client()
        return self._commits(client, [one for one in self._completed(client) if _completed_at(client, one) > moment])

    def has_taken_effect(self, call: NativeCall, arguments: Mapping[str, Any], since: str | None) -> bool:
        timeline = self._meta_client().getActiveTimeline()
        instant = arguments.get("instant")
        savepoints = timeline.getSavePointTimeline().filterCompletedInstants()
        if call.name == "create_savepoint":
            return bool(savepoints.containsInstant(instant))
        if call.name == "delete_savepoint":
            return not savepoints.containsInstant(instant)
        if call.name == "rollback_to_instant":
            return not timeline.getCommitsTimeline().containsInstant(instant)
        if call.name == "rollback_to_savepoint" and since is not None:
            restores = timeline.getRestoreTimeline().filterCompletedInstants().getInstants()
            return any(one.getCompletionTime() > since for one in restores)
        return False

    def retention(self, call: NativeCall, arguments: Mapping[str, Any]) -> float | None:
        return None

    def check(self, call: NativeCall, arguments: Mapping[str, Any]) -> None:
        timeline = self._meta_client().getActiveTimeline()
        instant = arguments.get("instant")
        savepoints = timeline.getSavePointTimeline().filterCompletedInstants()
        if call.name == "rollback_to_instant" and savepoints.containsInstant(instant):
            raise InvalidInput(
                f"The commit {instant} has a savepoint, so Hudi does not roll it back.", hint="Delete the savepoint."
            )
        if call.name == "rollback_to_savepoint" and not savepoints.containsInstant(instant):
            raise InvalidInput(f"There is no savepoint {instant}.", hint="See CALL show_savepoints.")

    def plan(self, call: NativeCall, arguments: Mapping[str, Any]) -> Planned:
        client = self._meta_client()
        timeline = client.getActiveTimeline()
        since = timeline.getCommitsTimeline().filterCompletedInstants().getInstants()
        figures: dict[str, Any] = {"version": self.version()}
        if call.name == "run_compaction":
            compacted = max((one.requestedTime() for one in since if one.getAction() == "commit"), default="")
            deltas = [one for one in since if one.getAction() == "deltacommit" and one.requestedTime() > compacted]
            figures |= {
                "delta_commits": len(deltas),
                "pending": timeline.filterPendingCompactionTimeline().countInstants(),
            }
        elif call.name == "run_clustering":
            figures["pending"] = timeline.filterPendingClusteringTimeline().countInstants()
        elif call.name == "rollback_to_savepoint":
            figures["commits_taken_back"] = sum(one.requestedTime() > arguments["instant"] for one in since)
        lock = setting(self._spark, _LOCK, None)
        note = f"The lock provider of the session is {lock}." if lock else (
            f"The session has no {_LOCK}: with other writers at work, Hudi needs one."
        )  # fmt: skip
        return Planned(figures, [note])

    def make(self, call: NativeCall, arguments: Mapping[str, Any], txn_id: str) -> Mapping[str, Any]:
        instant = arguments.get("instant")
        if call.name == "run_compaction":
            return self._compact(txn_id)
        if call.name == "run_clustering":
            return self._cluster(arguments, txn_id)
        with self._client({}) as client:
            if call.name == "run_clean":
                done = client.clean()
                return {"deleted_files": 0 if done is None else int(done.getTotalFilesDeleted())}
            if call.name == "create_savepoint":
                client.savepoint(instant, _USER, txn_id)
            elif call.name == "delete_savepoint":
                client.deleteSavepoint(instant)
            elif call.name == "rollback_to_savepoint":
                client.restoreToSavepoint(instant)
            elif not client.rollback(instant):
                raise InvalidInput(f"There is no commit {instant} that could be rolled back.", hint="See show_commits.")
        return {}

    # --- the parts --------------------------------------------------------------------------------------------------

    def _compact(self, txn_id: str) -> Mapping[str, Any]:
        with self._client(_COMPACT_AT_ONCE) as client:
            instant = self._pending(txn_id)
            if instant is None:
                scheduled = client.scheduleCompaction(self._extra(txn_id))
                if not scheduled.isPresent():
                    return {}
                instant = scheduled.get()
            done = client.compact(instant)
            client.commitCompaction(instant, done, self._option(None))
        return {}

    def _cluster(self, arguments: Mapping[str, Any], txn_id: str) -> Mapping[str, Any]:
        order = arguments.get("order")
        settings = {**_CLUSTER_AT_ONCE, **({_ORDER: ",".join(order)} if order else {})}
        with self._client(settings) as client:
            instant = self._pending(txn_id)
            if instant is None:
                scheduled = client.scheduleClustering(self._extra(txn_id))
                if not scheduled.isPresent():
                    return {}
                instant = scheduled.get()
            client.cluster(instant, True)
        return {}

    def _pending(self, txn_id: str) -> str | None:
        """Return the instant of a plan of this transaction that is not completed."""
        client = self._meta_client()
        timeline = client.getActiveTimeline()
        pending = timeline.filterPendingReplaceClusteringAndCompactionTimeline().getInstants()
        return next((one.requestedTime() for one in pending if self._txn_of(client, one) == txn_id), None)

    def _commits(self, client: Any, instants: list[Any]) -> list[NativeCommit]:
        """Return completed instants as commits, the newest first; the plan of each is read."""
        newest = sorted(instants, key=lambda one: one.getCompletionTime(), reverse=True)
        return [
            NativeCommit(
                one.requestedTime(), one.getAction(), _completed_at(client, one), self._txn_of(client, one)
            )
            for one in newest
        ]  # fmt: skip

    def _txn_of(self, client: Any, instant: Any) -> str | None:
        """Return the transaction whose id the plan of an instant carries."""
        compaction = self._jvm.org.apache.hudi.common.util.CompactionUtils
        try:
            if instant.getAction() in ("compaction", "commit"):
                plan = compaction.getCompactionPlan(client, instant.requestedTime())
            elif instant.getAction() in ("clustering", "replacecommit"):
                requested = client.getInstantGenerator().getClusteringCommitRequestedInstant(instant.requestedTime())
                plan = client.getActiveTimeline().readRequestedReplaceMetadata(requested)
            else:
                return None
        except spark_errors():  # an instant without a plan, which the format says in many ways
            return None
        extra = None if plan is None else plan.getExtraMetadata()
        return None if extra is None else extra.get(TRANSACTION)

    def _completed(self, client: Any) -> list[Any]:
        return list(client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants().getInstants())

    def _meta_client(self) -> Any:
        table = self._jvm.org.apache.hudi.common.table.HoodieTableMetaClient
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        stored = self._jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(conf)
        return table.builder().setConf(stored).setBasePath(self._address).build()

    @contextmanager
    def _client(self, settings: Mapping[str, str]) -> Iterator[Any]:
        """Yield a write client of the table, with the lock provider of the session or the table, and close it."""
        given = self._jvm.java.util.HashMap()
        for name, value in settings.items():
            given.put(name, value)
        client = self._jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
            self._spark._jsparkSession, self._address, self._jvm.PythonUtils.toScalaMap(given),
            self._jvm.scala.Option.empty(),
        )  # fmt: skip
        try:
            yield client
        finally:
            client.close()

    def _extra(self, txn_id: str) -> Any:
        extra = self._jvm.java.util.HashMap()
        extra.put(TRANSACTION, txn_id)
        return self._option(extra)

    def _option(self, value: Any) -> Any:
        option = self._jvm.org.apache.hudi.common.util.Option
        return option.empty() if value is None else option.of(value)


def _completed_at(client: Any, instant: Any) -> float:
    """Return when an instant was completed, in seconds since 1970."""
    completed = instant.getCompletionTime()
    in_utc = client.getTableConfig().getTimelineTimezone().name() == "UTC"
    second = datetime.strptime(completed[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC if in_utc else None)
    return second.timestamp() + int(completed[14:17] or 0) / 1000
