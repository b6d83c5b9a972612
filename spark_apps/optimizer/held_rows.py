"""Rows that indexes hold, read in place of files of a connector's scan, beside its own scan of all others.

Of which files these are exactly the rows that the scan would read (none was deleted since, and none came back), and
whether a copy may be read at all, the rule's part in Java says (``held_files.java``); the planner says for which of
them that reads less. The table's own files are never opened: their sizes and the columns' types give the estimate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_apps.indexes.registry import available, held_by
from spark_apps.optimizer.file_choice import Chosen, ConnectorScan, places_in, runs_of, same_columns
from spark_apps.optimizer.limits import MAX_INDEX_SHARE, MIN_SAVED_SECONDS, SURE_INDEX_SHARE
from spark_apps.query.planning import IndexUse, NotUsed, ReadPlan, Shuffle, hold_rows, read_seconds
from spark_apps.query.reading import planned_rows
from spark_apps.timeline.files import DataFile


@dataclass(frozen=True)
class HeldRows:
    """Rows that are read from indexes in place of files of a scan.

    :param plan: what is read of the table, by its connector and from indexes. :param rows: from indexes alone.
    :param places: of the files in the log's list; see :func:`~spark_apps.optimizer.file_choice.runs_of`.
    :param passing: SQL that the rows which count satisfy, by which files pass over pages.
    """

    plan: ReadPlan
    rows: ReadPlan
    places: str
    passing: str | None

    def put(self, request: Any, number: int) -> list[int]:
        """Put the rows in the place of the files; return what ``hold`` of ``index_rule.java`` does."""
        rows: Any = planned_rows(self.rows)
        if self.passing is not None:
            rows = rows.where(self.passing)
        counts: list[int] = json.loads(request.hold(number, self.places, rows._jdf.queryExecution().analyzed()))
        return counts


def find_held_rows(
    request: Any, number: int, scan: ConnectorScan, chosen: Chosen, shuffles: Callable[[], Sequence[Shuffle]]
) -> HeldRows | Mapping[str, NotUsed]:
    """Return the rows that are read from indexes, or why those that hold rows are not used, by index.

    :param request: the ``ScanRequest`` of ``index_rule.java``. :param number: of the scan.
    :param chosen: the files that indexes leave to be read. :param shuffles: returns how the query shuffles the rows.
    """
    refused = _unfit(scan, chosen)
    if scan.purpose != "read" or all(refused.values()):
        return {name: why for name, why in refused.items() if why is not None}
    wanted = shuffles()
    if chosen.plan.where is None and not wanted:
        # It holds as many rows as the files, and the connector too reads the needed columns alone.
        whole = NotUsed("costs_more", "no filter leaves a part of its rows")
        return {name: known or whole for name, known in refused.items()}
    answer = chosen.ask(request, lambda: request.same(number, chosen.logged.hash, chosen.places))
    if "why" in answer:
        why = NotUsed("connector_reads", answer["why"])
        return {name: known or why for name, known in refused.items()}
    files = chosen.logged.files_at(places_in(answer["places"]))
    return _worth_while(scan, chosen, files, answer["others"], wanted)


def _unfit(scan: ConnectorScan, chosen: Chosen) -> dict[str, NotUsed | None]:
    """Return why indexes that hold rows hold none of a scan's, by index; ``None`` for those that may."""
    snapshot = chosen.plan.snapshot
    same = {name.lower() for name in same_columns(snapshot, scan, scan.columns)}
    other = next((name for name in scan.columns if name.lower() not in same), None)
    unfit: dict[str, NotUsed | None] = {}
    for name, entry in sorted(snapshot.state.indexes.items()):
        handler = available(entry.definition.kind)
        if not entry.active or handler is None or not handler.holds_rows:
            continue
        held = {column.lower() for column in held_by(snapshot.table, entry.definition)}
        lacking = [column for column in scan.columns if column.lower() not in held]
        if not scan.columns:
            unfit[name] = NotUsed("costs_more", "the connector counts rows without reading a column")
        elif lacking:
            unfit[name] = NotUsed("lacks_columns", f"it does not hold {', '.join(lacking)}")
        elif other is not None:
            what = "is another one, of another type or read otherwise than was registered"
            unfit[name] = NotUsed("lacks_columns", f"the column {other!r} {what}")
        else:
            unfit[name] = None
    return unfit


def _worth_while(
    scan: ConnectorScan,
    chosen: Chosen,
    files: Sequence[DataFile],
    others: int,
    shuffles: Sequence[Shuffle],
) -> HeldRows | Mapping[str, NotUsed]:
    """Return what is read of indexes in place of files, if that takes less time.

    :param files: that have exactly the rows that were recorded. :param others: how many the connector reads beside.
    :param shuffles: how the query shuffles the rows.
    """
    shown = chosen.logged.shown(chosen.plan.snapshot, files)
    read = [file for file in files if file.group_key in chosen.plan.groups]
    plan = hold_rows(chosen.plan, shown, scan.columns, shuffles)
    if plan.bucketed is not None and (others or len(plan.covering_scans) > 1 or len(_held(plan, read)) < len(read)):
        # Spark keeps no buckets of a union with the connector's scan.
        plan = hold_rows(chosen.plan, shown, scan.columns)
    if not plan.covering_scans:
        return plan.not_used
    if plan.bucketed is None and not is_narrow(plan, scan.joined):
        return {use.name: NotUsed("costs_more", text_of_costs(use)) for use in plan.used if use.replaces}
    rows = replace(plan, snapshot=shown, files={}, keyed={}, blocks={})
    return HeldRows(plan, rows, runs_of(chosen.logged.places(_held(plan, read))), chosen.passing)


def _held(plan: ReadPlan, files: Sequence[DataFile]) -> list[DataFile]:
    lineages = frozenset[int]().union(*(scan.lineages for scan in plan.covering_scans))
    return [file for file in files if file.lineage in lineages]


def is_narrow(plan: ReadPlan, joined: Collection[str]) -> bool:
    """Tell whether indexes that hold rows save more of a source's bytes than using them costs.

    :param joined: columns that joins compare.
    """
    indexes = plan.snapshot.state.indexes
    replacing = [use for use in plan.used if use.replaces]
    held, stored = sum(use.bytes for use in replacing), sum(use.instead_of for use in replacing)
    if held < SURE_INDEX_SHARE * stored:
        return True
    others = any(indexes[use.name].definition.columns[0] not in joined for use in replacing) if joined else False
    saved = read_seconds(plan.snapshot.spark, max(0, stored - held))
    return held < MAX_INDEX_SHARE * stored and saved > MIN_SAVED_SECONDS and not others


def text_of_costs(use: IndexUse) -> str:
    """Return why an index that holds rows does not save enough, in words."""
    return (
        f"it would read about {use.bytes:,} bytes, the files that it replaces {use.instead_of:,}, "
        "which is not worth another scan"
    )
