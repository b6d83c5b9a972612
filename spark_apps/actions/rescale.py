"""Rescales partitions: new rules choose bucket counts, and the partitions whose count changes are written
anew.

It happens while writing stops, inside a stop-write window: the caller's, or one that is opened over just
these partitions and closed again. Follows seed ``001_c479261a288d0797.txt`` (partition-level bucket index,
offline rescale).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from spark_apps.actions.partitions import canonical, rules_of
from spark_apps.actions.template import Action, Attempt, TableHandle, Work, run
from spark_apps.layout.rules import BucketRules, HashingConfig
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import Target, stage_rows
from spark_apps.storage.errors import InvalidInput, LakeIndexError, StopWriteWindowOpen, WindowNotOpen
from spark_apps.timeline import windows
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    CONFIG_SCOPE,
    DATA_TREE,
    PutHashingConfig,
    PutPartition,
    Receipt,
    RemoveFile,
    Write,
    partition_scope,
)
from spark_apps.timeline.model import HashingConfig as ConfigEntry
from spark_apps.timeline.transactions import find_receipt

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 900.0
"""Deadline of a window of our own; signs of life move it on, so a driver that died holds writers up no longer
than this."""


@dataclass(frozen=True)
class PartitionRescale:
    """One partition that would be written anew: bucket counts from and to, live files and their bytes."""

    partition: str
    from_buckets: int
    to_buckets: int
    files: int
    bytes: int


@dataclass(frozen=True)
class RescalePlan:
    """What a rescale does: ``partitions`` are written anew, ``unchanged`` others keep their count;
    ``rules_change`` tells whether new partitions will be counted by other rules than now."""

    partitions: tuple[PartitionRescale, ...]
    unchanged: int
    default: int
    rule: str
    expressions: str
    rules_change: bool

    @property
    def files(self) -> int:
        return sum(partition.files for partition in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON and XCom."""
        return {
            **asdict(self),
            "partitions": [asdict(p) for p in self.partitions],
            "files": self.files,
            "bytes": self.bytes,
        }


class Rescale(Action):
    """Counts by new rules for all partitions, or for those named.

    :param buckets: the count where no rule matches; the present default if not given.
    :param partitions: paths to which the rescale is confined; the rules hold for all new partitions
        nevertheless.
    """

    operation: ClassVar[str] = "rescale"

    def __init__(
        self,
        buckets: int | None = None,
        rule: str = "regex",
        expressions: str | None = None,
        partitions: Iterable[str] | None = None,
    ) -> None:
        self.buckets = buckets
        self.rule = rule
        self.expressions = expressions
        self.partitions = None if partitions is None else list(partitions)

    def validate(self, snapshot: Snapshot) -> None:
        if not snapshot.table.bucketed:
            raise InvalidInput(
                "The table has no bucket layout.", hint="Only a table made with buckets can be rescaled."
            )
        self._rules(rules_of(snapshot.state))
        if self.partitions is not None:
            self.partitions = [canonical(snapshot.table, path) for path in self.partitions]

    def _rules(self, now: HashingConfig) -> BucketRules:
        return BucketRules(
            self.rule, self.expressions or "", now.newest.default if self.buckets is None else self.buckets
        )

    def plan(self, snapshot: Snapshot) -> RescalePlan:
        """Which partitions would be written anew, with what counts, files and bytes. Nothing is changed."""
        now = rules_of(snapshot.state)
        rules = self._rules(now)
        new = self._config(now, rules, "9" * 17)
        known = snapshot.state.partitions
        wanted = [path for path in known if self.partitions is None or path in self.partitions]
        found = []
        for path in sorted(wanted):
            count, target = known[path].buckets or 1, new.count_for(path)
            if count != target:
                files = snapshot.state.files(DATA_TREE, path)
                found.append(PartitionRescale(path, count, target, len(files), sum(file.bytes for file in files)))
        return RescalePlan(
            tuple(found), len(wanted) - len(found), rules.default, rules.rule, str(rules.expressions), new != now
        )

    @staticmethod
    def _config(now: HashingConfig, rules: BucketRules, instant: str) -> HashingConfig:
        newest = now.newest
        same = (newest.rule, newest.expressions, newest.default) == (rules.rule, rules.expressions, rules.default)
        return now if same else now.with_rules(instant, rules)

    def work(self, attempt: Attempt) -> Work | None:
        plan = self.plan(attempt.snapshot)
        if not plan.partitions and not plan.rules_change:
            return None
        work = Work(
            metrics={"partitions": len(plan.partitions), "bytes_before": plan.bytes, "files_before": plan.files}
        )
        if plan.rules_change:
            instant = attempt.transaction.timeline.next_instant()
            config = self._config(
                rules_of(attempt.snapshot.state), self._rules(rules_of(attempt.snapshot.state)), instant
            )
            rules = config.newest
            path = f"_index/hashing/config/{instant}.hashing_config"
            attempt.snapshot.store.put(path, config.to_json().encode())
            entry = ConfigEntry(instant, rules.default, rules.rule, str(rules.expressions) or None)
            work.actions.append(PutHashingConfig(entry, path))
            work.writes.append(Write(CONFIG_SCOPE, "replace"))
        if plan.partitions:
            self._write(attempt, plan, work)
        return work

    def _write(self, attempt: Attempt, plan: RescalePlan, work: Work) -> None:
        snapshot, tree = attempt.snapshot, attempt.snapshot.data
        paths = {partition.partition for partition in plan.partitions}
        groups: dict[GroupKey, list[DataFile]] = {k: files for k, files in snapshot.groups().items() if k[0] in paths}
        known = snapshot.state.partitions
        targets = [Target(p.partition, known[p.partition].values, p.to_buckets) for p in plan.partitions]
        attempt.phase("write partitions anew", 0, len(targets))
        rows = scan(snapshot, tree, groups)
        folder = attempt.folder("rescaled")
        added = stage_rows(snapshot.store, tree, rows, folder, targets, kind="base", one_a_key=False)
        work.actions.extend(PutPartition(target.path, target.buckets, target.values) for target in targets)
        work.actions.extend(RemoveFile(tree.name, file.path) for files in groups.values() for file in files)
        work.actions.extend(added)
        work.writes.extend(Write(partition_scope(path), "replace") for path in sorted(paths))
        work.maintained.extend(_still_covering(snapshot, paths))
        work.metrics.update(
            rows=sum(file.rows for file in added),
            files_after=len(added),
            bytes_after=sum(file.bytes for file in added),
        )


def _still_covering(snapshot: Snapshot, paths: set[str]) -> list[str]:
    """Trees of the indexes that tell of the rewritten rows what they told before: all, and by key.

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


def rescale(
    handle: TableHandle,
    action: Rescale,
    *,
    txn_id: str | None = None,
    window: int | None = None,
    drain_seconds: float = 600.0,
) -> Receipt:
    """Runs a rescale inside the window of epoch ``window``, or inside one of its own.

    :param drain_seconds: how long a window of its own waits for writers from before it.
    :raises WindowNotOpen: if ``window`` is not open. :raises StopWriteWindowOpen: if it holds only other
        partitions, or somebody else holds these. :raises DrainTimeout: if writers from before are still at
        work.
    """
    handle.timeline.refresh()
    snapshot = handle.snapshot()
    action.validate(snapshot)
    done = None if txn_id is None else find_receipt(handle.timeline, txn_id)
    if done is not None:
        return done
    paths = [partition.partition for partition in action.plan(snapshot).partitions]
    if window is not None:
        _check_holds(handle.timeline, window, paths)
        return run(handle, action, txn_id=txn_id, window=window)
    if not paths:
        return run(handle, action, txn_id=txn_id)
    with _own_window(handle.timeline, paths, txn_id) as epoch:
        windows.drain(handle.timeline, epoch, seconds=drain_seconds)
        return run(handle, action, txn_id=txn_id, window=epoch, renew_seconds=WINDOW_SECONDS)


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
def _own_window(timeline: Timeline, paths: list[str], txn_id: str | None) -> Iterator[int]:
    # Under an id made of the transaction's, so that a retry after a crash finds the window it left open.
    name = None if txn_id is None else f"window-{hashlib.sha256(txn_id.encode()).hexdigest()[:24]}"
    holder = f"rescale {txn_id}" if txn_id else "rescale"
    try:
        opened = windows.open_window(timeline, holder, partitions=paths, seconds=WINDOW_SECONDS, txn_id=name)
    except WindowNotOpen:  # the window of the earlier try has ended meanwhile
        opened = windows.open_window(timeline, holder, partitions=paths, seconds=WINDOW_SECONDS)
    try:
        yield opened.epoch
    finally:
        try:
            windows.close(timeline, opened.epoch)
        except LakeIndexError as error:
            # It ends by itself at its deadline; what the rescale did or raised is what counts.
            logger.warning("The window of epoch %s was not closed: %s", opened.epoch, error)
