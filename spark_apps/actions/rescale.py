"""Rescales partitions: the bucket rules change, and the partitions whose count changes are written anew.

It happens while writing stops, inside a stop-write window: the caller's, or one that is opened over just
these partitions and closed again. Follows Hudi's RFC-89 (partition-level bucket index,
offline rescale); the change of the rules is in :mod:`spark_apps.actions.bucket_rules`.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spark_apps.actions.bucket_rules import Change, NewRules, RuleChange
from spark_apps.actions.late_rows import kept_in
from spark_apps.actions.limits import MAX_COMMITS_READ, MIN_MEASURED_BYTES, RESCALE_WINDOW_SECONDS
from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle, run
from spark_apps.engine.spark_utils import cores
from spark_apps.layout.rules import HashingConfig
from spark_apps.mergetree.buckets import Target
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import stage_kept, stage_rows
from spark_apps.storage.errors import AlreadyCommitted, InvalidInput, LakeIndexError, StopWriteWindowOpen
from spark_apps.storage.printing import ALL_ROWS, Grid, Printed, View, counted, instant_text, size, span
from spark_apps.timeline import windows
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    CONFIG_SCOPE,
    DATA_TREE,
    PutPartition,
    Receipt,
    RemoveFile,
    Write,
    partition_scope,
)
from spark_apps.timeline.operations import RESCALE, Operation
from spark_apps.timeline.transactions import end_earlier, find_receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

BYTES_PER_SECOND = 12e6
"""What one core rewrites, until a rescale of the table itself has shown its rate: 13e6 were measured with two cores, 2
million rows of 50 bytes and a text key."""

_START_SECONDS = 2.0


@dataclass(frozen=True)
class PartitionRescale:
    """A partition that would be written anew: bucket counts from and to, live files and their bytes."""

    partition: str
    from_buckets: int
    to_buckets: int
    files: int
    bytes: int


@dataclass(frozen=True, repr=False)
class RescalePlan(Printed):
    """The partitions that a rescale writes anew, with its cost.

    ``unchanged`` others keep their count; ``rules_change`` is whether new partitions get their count by other rules.

    :param default: of the newest config as it will be; so are ``rule`` and ``expressions``.
    :param estimated_seconds: from the rate in ``estimated_from``; 0 where nothing is written anew.
    :param takes_back: instant of the config that a rollback takes back.
    """

    partitions: tuple[PartitionRescale, ...]
    unchanged: int
    default: int
    rule: str
    expressions: str
    rules_change: bool
    estimated_seconds: float = 0.0
    estimated_from: str = ""
    takes_back: str | None = None

    @property
    def files(self) -> int:
        return sum(partition.files for partition in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return {
            **asdict(self),
            "partitions": [asdict(p) for p in self.partitions],
            "files": self.files,
            "bytes": self.bytes,
        }

    def view(self) -> View:
        changed = counted(len(self.partitions), "partition")
        facts = [
            ("keep their count", counted(self.unchanged, "partition")),
            ("takes back", instant_text(self.takes_back)),
            (
                "rules",
                f"{'changed' if self.rules_change else 'as they are'}: {self.rule} {self.expressions or '(none)'}",
            ),
            ("default", self.default),
            (
                "takes about",
                f"{span(self.estimated_seconds)} ({self.estimated_from})" if self.estimated_from else None,
            ),
        ]
        rows = [
            (p.partition or ALL_ROWS, p.from_buckets, p.to_buckets, p.files, size(p.bytes)) for p in self.partitions
        ]
        columns = ("partition", "from buckets", "to", "files", "size")
        heading = f"rescale: {changed}, {counted(self.files, 'file')}, {size(self.bytes)} written anew"
        return View(heading, facts, [Grid(columns, rows)])


class Rescale(Action):
    """Other rules for the table, and the counts that they say for all partitions, or for those named.

    :param change: what becomes of the rules; the default brings the partitions in line with those there are.
    :param partitions: paths to which the rescale is confined; the rules hold for all new partitions
        nevertheless.
    :param timeline: to look up how long earlier rescales took.
    """

    operation: ClassVar[Operation] = RESCALE

    def __init__(
        self,
        change: RuleChange | None = None,
        partitions: Iterable[str] | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.change = change or NewRules()
        self.partitions = None if partitions is None else list(partitions)
        self.timeline = timeline

    def validate(self, snapshot: Snapshot) -> None:
        if not snapshot.table.bucketed:
            raise InvalidInput(
                "The table has no bucket layout.", hint="Only a table made with buckets can be rescaled."
            )
        self.change.applied_to(snapshot.state)
        self.confined_to(snapshot.table)

    def plan(self, snapshot: Snapshot) -> RescalePlan:
        """Return which partitions would be written anew, with what counts, files and bytes; nothing is changed."""
        change = self.change.applied_to(snapshot.state)
        rescaled, paths = list(self._changed(snapshot, change)), self.confined_to(snapshot.table)
        confined = [path for path in snapshot.state.partitions if paths is None or path in paths]
        newest = change.config.newest
        seconds, source = self._estimate(snapshot, sum(partition.bytes for partition in rescaled))
        return RescalePlan(
            tuple(rescaled), len(confined) - len(rescaled), newest.default, newest.rule, newest.text,
            bool(change.actions), seconds, source, change.takes_back,
        )  # fmt: skip

    def _changed(self, snapshot: Snapshot, change: Change) -> Iterator[PartitionRescale]:
        known, now = snapshot.state.partitions, HashingConfig.of(snapshot.state.configs)
        paths = self.confined_to(snapshot.table)
        for path in sorted(known):
            if paths is not None and path not in paths:
                continue
            count, target = known[path].buckets or 1, self.change.target(path, known[path], now, change)
            if count != target:
                files = snapshot.state.files(DATA_TREE, path)
                yield PartitionRescale(path, count, target, len(files), sum(file.bytes for file in files))

    def _estimate(self, snapshot: Snapshot, size: int) -> tuple[float, str]:
        """Return the seconds that a rescale of ``size`` bytes takes, and what they were estimated from."""
        if not size:
            return 0.0, ""
        for commit in reversed(list(self._recent_commits())):
            metrics = commit.metrics
            if commit.operation == self.operation.name and metrics.get("bytes_before", 0) >= MIN_MEASURED_BYTES:
                seconds = metrics.get("seconds", 0.0) * size / metrics["bytes_before"]
                return round(max(seconds, 0.1), 1), f"the rescale in version {commit.version}"
        return estimate(snapshot.spark, size)

    def _recent_commits(self) -> Iterator[Any]:
        if self.timeline is not None:
            yield from self.timeline.commits(after=max(self.timeline.head.version - MAX_COMMITS_READ, -1))

    def work(self, attempt: Attempt) -> StagedChanges | None:
        started = time.monotonic()
        change = self.change.applied_to(attempt.snapshot.state)
        rescaled = list(self._changed(attempt.snapshot, change))
        if not rescaled and not change.actions:
            return None
        work = StagedChanges(
            actions=list(change.actions),
            metrics={
                "partitions": len(rescaled),
                "bytes_before": sum(partition.bytes for partition in rescaled),
                "files_before": sum(partition.files for partition in rescaled),
            },
        )
        if change.actions:
            work.writes.append(Write(CONFIG_SCOPE, "replace"))
        if rescaled:
            self._write(attempt, rescaled, work)
            work.metrics["seconds"] = round(time.monotonic() - started, 3)
        return work

    def _write(self, attempt: Attempt, rescaled: list[PartitionRescale], work: StagedChanges) -> None:
        snapshot, tree = attempt.snapshot, attempt.snapshot.data
        paths = {partition.partition for partition in rescaled}
        groups: dict[GroupKey, list[DataFile]] = {k: files for k, files in snapshot.groups().items() if k[0] in paths}
        known = snapshot.state.partitions
        targets = [Target(p.partition, known[p.partition].values, p.to_buckets) for p in rescaled]
        attempt.phase("write partitions anew", 0, len(targets))
        rows = scan(snapshot, tree, groups)
        folder = attempt.folder("rescaled")
        expected = sum(file.rows for files in groups.values() for file in files)
        added = stage_rows(
            snapshot.store, tree, rows, folder, targets, kind="base", one_per_key=False, expected=expected
        )
        work.actions.extend(PutPartition(target.path, target.buckets, target.values) for target in targets)
        work.actions.extend(RemoveFile(tree.name, file.path) for files in groups.values() for file in files)
        work.actions.extend(added)
        now, beside = attempt.transaction.timeline.clock(), kept_in(snapshot, tree, paths)
        kept = stage_kept(snapshot, tree, groups, beside, attempt.folder("tombstones"), targets, now)
        work.actions.extend(kept)
        work.writes.extend(Write(partition_scope(path), "replace") for path in sorted(paths))
        work.maintained.extend(_still_covering(snapshot, paths))
        work.metrics.update(
            rows=sum(file.rows for file in added),
            files_after=len(added),
            bytes_after=sum(file.bytes for file in added),
        )


def _still_covering(snapshot: Snapshot, paths: set[str]) -> list[str]:
    """Return the trees of the indexes that cover the rewritten rows as they did before: all rows, and by key.

    An index that lagged in one of the partitions is left out, so all their groups lag from now on: more than
    before, never less.
    """
    from spark_apps.indexes.registry import available

    covering = []
    for entry in snapshot.state.indexes.values():
        handler = available(entry.definition.kind)
        if handler is not None and handler.by_key and not any(partition in paths for partition, _ in entry.lag):
            covering.append(entry.definition.tree)
    return covering


def estimate(spark: SparkSession, size: int) -> tuple[float, str]:
    """Return the seconds that a rescale of so many bytes takes by the rate of a core, and that rate in words."""
    if not size:
        return 0.0, ""
    rate = BYTES_PER_SECOND * cores(spark)
    return round(_START_SECONDS + size / rate, 1), f"{BYTES_PER_SECOND / 1e6:.0f} MB/s on a core"


def rescale(
    handle: TableHandle,
    action: Rescale,
    *,
    txn_id: str | None = None,
    window: int | None = None,
    drain_seconds: float = 600.0,
) -> Receipt:
    """Run a rescale inside the window of epoch ``window``, or inside one of its own.

    :param drain_seconds: how long a window of its own waits for writers from before it.
    :raises WindowNotOpen: if ``window`` is not open.
    :raises StopWriteWindowOpen: if it holds only other partitions, or another holder has these.
    :raises DrainTimeout: if writers from before are still at work.
    """
    handle.timeline.refresh()
    earlier = None if txn_id is None else find_receipt(handle.timeline, txn_id)
    if earlier is not None:  # before the arguments are checked: a change taken back cannot be taken back again
        return earlier
    snapshot = handle.snapshot()
    action.validate(snapshot)
    action = Rescale(action.change.settled(snapshot.state), action.partitions, action.timeline)
    paths = [partition.partition for partition in action.plan(snapshot).partitions]
    if window is not None:
        _check_holds(handle.timeline, window, paths)
        return run(handle, action, txn_id=txn_id, window=window)
    if not paths:
        return run(handle, action, txn_id=txn_id)
    with own_window(handle.timeline, paths, txn_id, drain_seconds) as epoch:
        if txn_id is not None:
            with suppress(AlreadyCommitted):  # then its receipt is what the run returns
                end_earlier(handle.timeline, txn_id)
        windows.drain(handle.timeline, epoch, seconds=drain_seconds, renew_seconds=RESCALE_WINDOW_SECONDS)
        return run(handle, action, txn_id=txn_id, window=epoch, renew_seconds=RESCALE_WINDOW_SECONDS)


def _check_holds(timeline: Timeline, epoch: int, paths: list[str]) -> None:
    window = windows.find(timeline, epoch)
    outside = [path for path in paths if not window.covers(partition_scope(path))]
    if outside:
        raise StopWriteWindowOpen(
            f"The window of epoch {epoch} is over {window.scope_text}; the rescale would write "
            f"{len(outside)} partitions outside of it, such as {outside[0]!r}.",
            hint="Open a window over all partitions that the plan lists, or name the partitions to rescale.",
        )


@contextmanager
def own_window(timeline: Timeline, paths: list[str] | None, txn_id: str | None, drain_seconds: float) -> Iterator[int]:
    """Hold a stop-write window over partitions, or all, for as long as the block runs; yields its epoch."""
    lasts: dict[str, Any] = {"seconds": RESCALE_WINDOW_SECONDS, "at_most": windows.DEFAULT_AT_MOST + drain_seconds}
    if txn_id is None:
        opened = windows.open_window(timeline, "rescale", partitions=paths, **lasts)
    else:
        # Under an id made of the transaction's, so that a retry after a crash finds the window that was left open.
        name = f"window-{hashlib.sha256(txn_id.encode()).hexdigest()[:24]}"
        opened = windows.open_for_try(timeline, f"rescale {txn_id}", name, partitions=paths, **lasts)
    try:
        yield opened.epoch
    finally:
        try:
            windows.close(timeline, opened.epoch)
        except LakeIndexError as error:
            # It ends by itself at its deadline; what the rescale did or raised is what counts.
            logger.warning("The window of epoch %s was not closed: %s", opened.epoch, error)
