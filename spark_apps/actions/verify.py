"""Compares an index with a full scan of the rows, as its kind knows how, and rebuilds what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from spark_apps.actions.indexing import RefreshIndex
from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle, run
from spark_apps.indexes.handler import Difference, IndexContext, VerificationReport
from spark_apps.indexes.registry import find
from spark_apps.mergetree.reader_settings import check_session
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.operations import REPAIR_INDEX, Operation

__all__ = ["Difference", "RepairIndexes", "VerificationReport", "repair", "verify"]


def verify(snapshot: Snapshot, name: str) -> VerificationReport:
    """Compare an index of a version with its rows, by a full scan of both.

    :raises IndexNotFound: if there is none of that name.
    :raises InvalidInput: if its kind cannot be compared, or a source's files mean something else in this session.
    """
    definition = snapshot.state.index(name).definition
    check_session(snapshot)
    return find(definition.kind).verify(IndexContext(snapshot, definition, ""))


def repair(
    handle: TableHandle, reports: Sequence[VerificationReport], *, txn_id: str | None = None, window: int | None = None
) -> tuple[list[VerificationReport], Receipt]:
    """Rebuild the indexes that comparisons found wrong, from the rows alone, all in one commit.

    :returns: the reports, those of rebuilt indexes with the version of that commit; and its receipt, without a version
        if every index agrees.
    """
    wrong = [report for report in reports if not report.ok]
    receipt = run(handle, RepairIndexes(wrong), txn_id=txn_id, window=window)
    return [report if report.ok else replace(report, repaired=receipt.version) for report in reports], receipt


class RepairIndexes(Action):
    """Rebuilds indexes, each as a full refresh of it would, in one commit.

    :param reports: of the indexes that are wrong; what was wrong goes into the receipt.
    """

    operation: ClassVar[Operation] = REPAIR_INDEX
    on_sources = "observing"

    def __init__(self, reports: Sequence[VerificationReport]) -> None:
        self.reports = {report.index: report for report in reports}
        self.refreshes = [RefreshIndex(name, "full") for name in self.reports]

    def validate(self, snapshot: Snapshot) -> None:
        for refresh in self.refreshes:
            refresh.validate(snapshot)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        whole = StagedChanges()
        for refresh in self.refreshes:
            repaired = refresh.work(attempt)
            if repaired is None:
                continue
            whole.actions.extend(repaired.actions)
            whole.reads.extend(repaired.reads)
            whole.writes.extend(repaired.writes)
            whole.keys_conflict = whole.keys_conflict or repaired.keys_conflict  # of the one index of unique keys
            metrics = {**_counts(self.reports[refresh.name]), **repaired.metrics}
            whole.metrics.update({f"{refresh.name}.{name}": value for name, value in metrics.items()})
        if not whole.actions:
            return None
        whole.metrics["repaired"] = list(self.reports)
        return whole


def _counts(report: VerificationReport) -> dict[str, int]:
    """Return how many of each fault were found; of unreadable files, as many as the report names."""
    faults = ("missing", "too_many", "wrong_partition", "wrong_values", "wrong_shard")
    unreadable = sum(difference.fault == "unreadable" for difference in report.differences)
    return {**{name: getattr(report, name) for name in faults}, "unreadable": unreadable}
