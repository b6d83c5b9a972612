"""Iceberg's own maintenance by its connector: the actions of ``SparkActions``, and the table's own snapshots.

The procedures of the same names set no property of a snapshot; the actions do, so a snapshot carries the id of the
transaction in its summary. The table is the one that the session's catalog has, so what the session caches of it is
renewed by the commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.engine.spark_versions import message_of
from spark_apps.maintenance.native_calls import NativeCall
from spark_apps.native.interface import TRANSACTION, NativeCommit, Planned, figure
from spark_apps.sources.iceberg_tables import iceberg_of
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER
from spark_apps.timeline.catalog_names import join
from spark_apps.timeline.model import SourceDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE = "none"
"""The version of a table without a snapshot."""
_SNAPSHOT_AGE = ("history.expire.max-snapshot-age-ms", 432_000_000)
_SNAPSHOTS_KEPT = ("history.expire.min-snapshots-to-keep", 1)
_ORPHAN_SECONDS = 3 * 86400.0
"""Iceberg's default: a file that no snapshot names may be one of a commit that is at work."""
_LEAST_ORPHAN_HOURS = 24.0
"""Below it Iceberg's own procedure refuses."""
_FILE_SIZE = ("write.target-file-size-bytes", 512 << 20)
_SMALL_SHARE = 0.75
"""Files below this share of the size that is aimed at are rewritten, by Iceberg's default."""


class IcebergMaintenance:
    """An Iceberg table, by its name in a catalog of the session where it has one, else by its folder."""

    def __init__(
        self, spark: SparkSession, source: SourceDefinition, storage_options: Mapping[str, Any] | None
    ) -> None:
        if iceberg_of(spark) is None:
            raise EnvironmentMismatch(
                f"The session has no connector of Iceberg, which maintains {source.location}.",
                hint="Add its package and its catalog to the Spark connection, as docs/iceberg.md says.",
            )
        self._spark: Any = spark
        self._jvm: Any = spark.sparkContext._jvm
        self._source = source
        options = source.options
        self._name = f"{join((options[CATALOG],))}.{options[IDENTIFIER]}" if CATALOG in options else None
        if self._name is None:
            reach(spark, source.location)
        self._address = Store(source.location, storage_options).spark_path("").rstrip("/")
        self._table = self._load()

    def identity(self) -> str | None:
        return str(self._table.uuid())

    def version(self) -> str:
        self._table.refresh()
        return _id(self._table.currentSnapshot())

    def is_version(self, text: str) -> bool:
        return text == _NONE or figure(text) is not None

    def size(self) -> Mapping[str, int]:
        summary = _summary(self._table.currentSnapshot())
        names = {"files": "total-data-files", "bytes": "total-files-size"}
        names |= {"delete_files": "total-delete-files"}
        found = {name: figure(summary.get(key, "")) for name, key in names.items()}
        return {name: value for name, value in found.items() if value is not None}

    def commits_after(self, version: str | None) -> list[NativeCommit]:
        self._table.refresh()
        snapshots = {_id(one): one for one in self._table.snapshots()}
        at = version
        while at in snapshots:
            at = _parent(snapshots.pop(at))
        return _commits(snapshots.values())

    def commits_since(self, moment: float) -> list[NativeCommit]:
        self._table.refresh()
        return _commits(one for one in self._table.snapshots() if one.timestampMillis() / 1000 > moment)

    def has_taken_effect(self, call: NativeCall, arguments: Mapping[str, Any], since: str | None) -> bool:
        if call.name != "rollback_to_snapshot" or since is None:
            return False
        self._table.refresh()
        after = [str(entry.snapshotId()) for entry in self._table.history()]
        last = max((at for at, one in enumerate(after) if one == since), default=None)
        return last is not None and str(arguments["snapshot_id"]) in after[last + 1 :]

    def retention(self, call: NativeCall, arguments: Mapping[str, Any]) -> float:
        asked = arguments.get("retain_hours")
        if call.name == "remove_orphan_files":
            if asked is not None and asked < _LEAST_ORPHAN_HOURS:
                raise InvalidInput(
                    f"{call.name} was asked to keep files for {asked:g} hours; Iceberg keeps them for "
                    f"{_LEAST_ORPHAN_HOURS:g} at least, since a commit that is at work may name them.",
                    outcome="Nothing was deleted.",
                    hint="Leave retain_hours out: Iceberg's default is three days.",
                )
            return _ORPHAN_SECONDS if asked is None else asked * 3600
        own = self._property(*_SNAPSHOT_AGE) / 1000
        if asked is not None and asked * 3600 < own:
            raise InvalidInput(
                f"{call.name} was asked to keep snapshots for {asked:g} hours, and the table {self._label} keeps them "
                f"for {own / 3600:g}.",
                outcome="Nothing was deleted.",
                hint=f"Leave retain_hours out, or change the table's {_SNAPSHOT_AGE[0]}.",
            )
        kept, least = arguments.get("retain_last"), self._property(*_SNAPSHOTS_KEPT)
        if kept is not None and kept < least:
            raise InvalidInput(
                f"{call.name} was asked to keep {kept} snapshots, and the table {self._label} keeps {least}.",
                outcome="Nothing was deleted.",
                hint=f"Leave retain_last out, or change the table's {_SNAPSHOTS_KEPT[0]}.",
            )
        return own if asked is None else asked * 3600

    def check(self, call: NativeCall, arguments: Mapping[str, Any]) -> None:
        if call.kind == "clean":
            self.retention(call, arguments)
        if call.name == "rollback_to_snapshot" and self._table.snapshot(arguments["snapshot_id"]) is None:
            raise InvalidInput(
                f"{self._label} has no snapshot {arguments['snapshot_id']}.", hint="See its metadata table .snapshots."
            )
        if arguments.get("sort") and arguments.get("zorder_by"):
            raise InvalidInput("Files are sorted, or by a Z-order.", hint="Give one of sort and zorder_by.")

    def plan(self, call: NativeCall, arguments: Mapping[str, Any]) -> Planned:
        figures: dict[str, Any] = {"version": self.version(), **self.size()}
        if call.name == "rewrite_data_files":
            return self._plan_rewrite(figures, arguments)
        if call.name == "rewrite_manifests":
            snapshot = self._table.currentSnapshot()
            manifests = [] if snapshot is None else list(snapshot.allManifests(self._table.io()))
            return Planned({**figures, "manifests": len(manifests), "bytes": sum(one.length() for one in manifests)})
        if call.name == "expire_snapshots":
            return self._plan_expiry(figures, call, arguments)
        if call.name == "remove_orphan_files":
            hours = self.retention(call, arguments) / 3600
            note = "Which files no snapshot names, only the call's own listing of the folder finds."
            return Planned({**figures, "retain_hours": hours}, [note])
        if call.name == "rollback_to_snapshot":
            back = self.commits_after(str(arguments["snapshot_id"]))
            return Planned({**figures, "commits_taken_back": len(back)})
        return Planned(figures)

    def make(self, call: NativeCall, arguments: Mapping[str, Any], txn_id: str) -> Mapping[str, Any]:
        self._table.refresh()
        actions = self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession)
        if call.name == "rollback_to_snapshot":
            self._table.manageSnapshots().rollbackTo(arguments["snapshot_id"]).commit()
            return {}
        if call.name == "expire_snapshots":
            expiry = actions.expireSnapshots(self._table)
            if "retain_hours" in arguments:
                expiry = expiry.expireOlderThan(_milliseconds_ago(arguments["retain_hours"] * 3600))
            if "retain_last" in arguments:
                expiry = expiry.retainLast(arguments["retain_last"])
            return _figures(expiry.execute(), _OF_EXPIRY)
        if call.name == "remove_orphan_files":
            seconds = self.retention(call, arguments)
            orphans = actions.deleteOrphanFiles(self._table).olderThan(_milliseconds_ago(seconds)).execute()
            return {"deleted_files": _count(orphans.orphanFileLocations())}
        if call.name == "rewrite_data_files":
            action, named = self._rewrite(actions, arguments), _OF_REWRITE
        elif call.name == "rewrite_position_delete_files":
            action, named = actions.rewritePositionDeletes(self._table), _OF_DELETES
        else:
            action, named = actions.rewriteManifests(self._table), {}
        for name, value in arguments.get("options", {}).items():
            action = action.option(name, value)
        return _figures(action.snapshotProperty(TRANSACTION, txn_id).execute(), named)

    # --- the parts --------------------------------------------------------------------------------------------------

    def _rewrite(self, actions: Any, arguments: Mapping[str, Any]) -> Any:
        action = actions.rewriteDataFiles(self._table)
        if arguments.get("sort"):
            action = action.sort()
        elif arguments.get("zorder_by"):
            columns = arguments["zorder_by"]
            names = self._spark.sparkContext._gateway.new_array(self._jvm.java.lang.String, len(columns))
            for at, name in enumerate(columns):
                names[at] = name
            action = action.zOrder(names)
        if "where" in arguments:
            converter = self._jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
            said = converter.collectResolvedSparkExpression(
                self._spark._jsparkSession, self._name or f"iceberg.`{self._address}`", arguments["where"]
            )
            action = action.filter(converter.convertToIcebergExpression(said))
        return action

    def _plan_rewrite(self, figures: dict[str, Any], arguments: Mapping[str, Any]) -> Planned:
        option = "target-file-size-bytes"
        asked = arguments.get("options", {}).get(option)
        target = self._property(*_FILE_SIZE) if asked is None else _number(option, asked)
        files = self._spark.read.format("iceberg").load(
            f"{self._name or self._address}{'.' if self._name else '#'}files"
        )
        row = (
            files.where(f"content = 0 AND file_size_in_bytes < {int(target * _SMALL_SHARE)}")
            .selectExpr("count(*) AS files", "coalesce(sum(file_size_in_bytes), 0) AS bytes")
            .collect()[0]
        )
        found = {"small_files": int(row.files), "small_bytes": int(row.bytes)}
        return Planned({**figures, **found}, ["Iceberg leaves groups of less than min-input-files files alone."])

    def _plan_expiry(self, figures: dict[str, Any], call: NativeCall, arguments: Mapping[str, Any]) -> Planned:
        seconds = self.retention(call, arguments)
        least = arguments.get("retain_last", self._property(*_SNAPSHOTS_KEPT))
        kept = {str(ref.snapshotId()) for ref in self._table.refs().values()}
        snapshots = sorted(self._table.snapshots(), key=lambda one: one.timestampMillis(), reverse=True)
        before = _milliseconds_ago(seconds)
        old = [one for one in snapshots[least:] if one.timestampMillis() < before and _id(one) not in kept]
        found = {"snapshots": len(snapshots), "expired_snapshots": len(old), "retain_hours": seconds / 3600}
        notes = []
        if any(self._source.version == _id(one) for one in old):
            notes.append(
                f"The log of indexes last recorded snapshot {self._source.version}, which would be expired: the next "
                "refresh compares the list of all files instead of reading the snapshots since."
            )
        return Planned({**figures, **found}, notes)

    def _property(self, name: str, default: int) -> int:
        found = self._table.properties().get(name)
        return default if found is None else _number(name, str(found))

    @property
    def _label(self) -> str:
        return self._name or self._source.location

    def _load(self) -> Any:
        try:
            if self._name is not None:
                return self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                    self._spark._jsparkSession, self._name
                )
            conf = self._spark._jsparkSession.sessionState().newHadoopConf()
            return self._jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(self._address)
        except spark_errors() as error:
            raise TableNotFound(
                f"The session has no Iceberg table {self._label}: {message_of(error)}",
                hint="Configure its catalog in the Spark connection; a table that was registered by its metadata file "
                "is maintained once it is registered by its name.",
            ) from error


_OF_REWRITE = {
    "rewritten_files": "rewrittenDataFilesCount",
    "added_files": "addedDataFilesCount",
    "rewritten_bytes": "rewrittenBytesCount",
}
_OF_DELETES = {
    "rewritten_delete_files": "rewrittenDeleteFilesCount",
    "added_delete_files": "addedDeleteFilesCount",
    "rewritten_bytes": "rewrittenBytesCount",
}
_OF_EXPIRY = {
    "deleted_files": "deletedDataFilesCount",
    "deleted_delete_files": "deletedPositionDeleteFilesCount",
    "deleted_manifests": "deletedManifestsCount",
}


def _number(name: str, text: str) -> int:
    """Return what a property or an option says. :raises InvalidInput: if it is no whole number."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidInput(f"{name} is {text!r:.100}.", outcome="Nothing was changed.", hint="Write a whole number.")
    return int(text)


def _figures(result: Any, names: Mapping[str, str]) -> dict[str, int]:
    return {name: int(getattr(result, method)()) for name, method in names.items()}


def _count(iterable: Any) -> int:
    iterator, count = iterable.iterator(), 0
    while iterator.hasNext():
        iterator.next()
        count += 1
    return count


def _milliseconds_ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1000)


def _id(snapshot: Any) -> str:
    return _NONE if snapshot is None else str(snapshot.snapshotId())


def _parent(snapshot: Any) -> str:
    return str(snapshot.parentId())


def _summary(snapshot: Any) -> dict[str, str]:
    return {} if snapshot is None else dict(snapshot.summary())


def _commits(snapshots: Iterable[Any]) -> list[NativeCommit]:
    """Return the commits that made snapshots, the newest first."""
    newest = sorted(snapshots, key=lambda one: (one.sequenceNumber(), one.timestampMillis()), reverse=True)
    return [_commit(one) for one in newest]


def _commit(snapshot: Any) -> NativeCommit:
    summary = _summary(snapshot)
    said = {name: figure(value) for name, value in summary.items() if not name.startswith("total-")}
    metrics = {name: value for name, value in said.items() if value is not None}
    return NativeCommit(
        _id(snapshot), str(snapshot.operation()), snapshot.timestampMillis() / 1000, summary.get(TRANSACTION), metrics
    )
