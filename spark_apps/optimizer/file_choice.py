"""Files of a connector's scan that indexes rule out: those that they cover, and in which they find no row that counts.

What is said is of files as the log recorded them, each with the state in which its rows were read then. The list of
files that the connector's scan has decides: one that is in it in that state is left out, and all others stay, whatever
snapshot, branch or range the scan is of. So neither is the source listed, nor are versions compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from spark_apps.engine.spark_utils import setting
from spark_apps.mergetree.reader_settings import CALENDARS
from spark_apps.mergetree.schema import column_share
from spark_apps.mergetree.tree import Snapshot
from spark_apps.optimizer.join_keys import JoinKeys
from spark_apps.optimizer.scan_filters import predicate_of
from spark_apps.query.planning import ReadPlan, plan_read, prunes_by, scan_seconds
from spark_apps.query.predicates import Filter, columns_of
from spark_apps.sources.source_files import STATE
from spark_apps.timeline.model import DATA_TREE


class ConnectorScan(Protocol):
    """A scan as the rule describes it.

    :param id: the format's own id of the table. :param stored: by what name a column is in its files.
    :param joined: columns that joins compare.
    :param purpose: ``read``, or the command whose target it is.
    """

    @property
    def id(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def types(self) -> tuple[str, ...]: ...
    @property
    def filters(self) -> tuple[str, ...]: ...
    @property
    def joined(self) -> tuple[str, ...]: ...
    @property
    def purpose(self) -> str: ...
    @property
    def stored(self) -> Mapping[str, str]: ...


_STEADY = frozenset({"local", "checkpoint", "pinned"})
"""Where keys for the target of a command come from: what has the same rows when the command reads it."""


class NotChosen(Exception):
    """Says why all files of a scan stay."""


@dataclass(frozen=True)
class Chosen:
    """Files that indexes rule out.

    :param lines: for ``ScanRequest.keep`` of ``index_rule.java``; empty for nothing.
    :param keys: see :class:`~spark_apps.optimizer.rewriting.ScanDecision`.
    """

    plan: ReadPlan
    lines: str
    keys: str | None


def choose_files(snapshot: Snapshot, scan: ConnectorScan, number: int, keys: JoinKeys) -> Chosen:
    """Return which files of a version of the log have no row that counts for a scan.

    :param snapshot: the log as it is; its files are not looked at.
    :raises NotChosen: if a column is another one than indexes hold values of.
    """
    source = snapshot.table.source
    if source is not None and source.identity not in (None, scan.id):
        raise NotChosen("another table was made at its address since it was registered")
    joined = _same_columns(snapshot, scan, scan.joined)

    def planned(where: Filter | None) -> ReadPlan:
        return plan_read(snapshot, where)

    where = predicate_of(snapshot, scan.filters)
    if where is not None:
        named = columns_of(where.predicate)
        for name in sorted(named - set(_same_columns(snapshot, scan, named))):
            raise NotChosen(
                f"the column {name!r} is another one, of another type or read otherwise than was registered"
            )
    plan, taken = planned(where), None
    kinds = None if scan.purpose == "read" else _STEADY
    if joined and prunes_by(snapshot, plan.predicate, joined):
        plan, taken, _ = keys.narrowed(number, plan, planned, partial(_seconds, scan.columns), kinds)
    read = {file.path for members in plan.files.values() for file in members}
    ruled_out = (file for file in snapshot.state.files(DATA_TREE) if file.path not in read)
    lines = "\0".join(f"{path_key(file.path)}\t{(file.extra or {}).get(STATE, '')}" for file in ruled_out)
    return Chosen(plan, lines, taken)


def _seconds(columns: Collection[str], plan: ReadPlan) -> float:
    """Estimate how long the files of a plan are read, by their sizes alone: none is opened."""
    fields = plan.snapshot.data.fields
    share = column_share(fields, set(columns) & {field.name for field in fields})
    return scan_seconds(plan.snapshot, [file for members in plan.files.values() for file in members], share)


def _same_columns(snapshot: Snapshot, scan: ConnectorScan, names: Collection[str]) -> tuple[str, ...]:
    """Return those of some columns that are in the files by the same name, with the same values, as was registered."""
    declared = {field.name: (field.type, field.stored_name) for field in snapshot.table.fields}
    types = dict(zip(scan.columns, scan.types, strict=True))
    same = (
        name for name in names if name in types and declared.get(name) == (types[name], scan.stored.get(name, name))
    )
    return tuple(name for name in same if not _TIMES.search(types[name]) or _same_calendar(snapshot))


_TIMES = re.compile("date|timestamp")


def _same_calendar(snapshot: Snapshot) -> bool:
    """Tell whether old days and times in the files are those of the calendar that was meant when they were indexed."""
    source = snapshot.table.source
    given = source.session if source is not None and source.session is not None else {}
    # Spark's readers go by the session; Iceberg's own never takes the old calendar.
    by_session = source is not None and source.format != "iceberg"
    return all(
        (given.get(name) == "LEGACY") == (by_session and setting(snapshot.spark, name) == "LEGACY")
        for name in CALENDARS
    )


def path_key(path: str) -> str:
    """Return a path as ``ScanFile.key`` of ``connector.java`` does."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    scheme, sign, rest = path.partition("://")
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}{sign}{rest}"
