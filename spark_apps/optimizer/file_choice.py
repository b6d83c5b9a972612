"""Files of a connector's scan that indexes rule out: those that they cover, and in which they find no row that counts.

What is said is of files as the log recorded them, each with the state in which its rows were read then. The list of
files that the connector's scan has decides: one that is in it in that state is left out, and all others stay, whatever
snapshot, branch or range the scan is of. So neither is the source listed, nor are versions compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Protocol

from spark_apps.engine.spark_utils import cores, setting
from spark_apps.indexes.handler import estimated_rows
from spark_apps.mergetree.reader_settings import CALENDARS
from spark_apps.mergetree.schema import column_share
from spark_apps.mergetree.tree import Snapshot
from spark_apps.optimizer.join_keys import JoinKeys
from spark_apps.optimizer.limits import COMMAND_ROW_SECONDS, MAX_LISTS
from spark_apps.optimizer.scan_filters import predicate_of
from spark_apps.query.planning import ReadPlan, plan_read, prunes_by, scan_seconds
from spark_apps.query.predicates import Filter, columns_of
from spark_apps.sources.source_files import STATE
from spark_apps.timeline.files import DataFile, GroupKey
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
    """Files that indexes leave to be read.

    :param logged: all files of the log. :param places: of those that are read; see :func:`runs_of`.
    :param rules_out: whether there are others.
    :param keys: see :class:`~spark_apps.optimizer.rewriting.ScanDecision`. :param passing: SQL that rows which count
        satisfy, by these keys.
    """

    plan: ReadPlan
    logged: LoggedFiles
    places: str
    rules_out: bool
    keys: str | None
    passing: str | None = None

    def keep(self, request: Any, number: int) -> list[int] | None:
        """Let a scan keep these, and files that the log has not; return what ``keep`` of ``index_rule.java`` says."""
        counts: list[int] | None = self.ask(request, lambda: request.keep(number, self.logged.hash, self.places))
        return counts

    def ask(self, request: Any, question: Callable[[], str | None]) -> Any:
        """Return the answer, of JSON, to a question that names the list of files by its hash."""
        answer = question()
        if answer == "":  # the list has not come yet
            request.logged(self.logged.hash, self.logged.lines)
            answer = question()
        return json.loads(answer or "null")


class LoggedFiles:
    """The files of a version of a log, by their places in a list that crosses to the JVM once.

    ``lines``: the list, as ``LoggedFiles`` of ``connector.java`` reads it. ``hash``: names it, its order too.
    """

    def __init__(self, files: Collection[DataFile]) -> None:
        self._files = tuple(files)
        self._places = {file.path: place for place, file in enumerate(self._files)}
        self.lines = "".join(f"{path_key(file.path)}\t{(file.extra or {}).get(STATE, '')}\0" for file in files)
        self.hash = hashlib.sha256(self.lines.encode("utf-8", "surrogatepass")).hexdigest()

    def places(self, read: Iterable[DataFile]) -> list[int]:
        """Return the places of files."""
        return [self._places[file.path] for file in read]

    def files_at(self, places: Iterable[int]) -> list[DataFile]:
        """Return the files at places."""
        return [self._files[place] for place in places]

    def shown(self, snapshot: Snapshot, files: Collection[DataFile]) -> Snapshot:
        """Return the version of the log as if it had some of its files alone."""
        state = snapshot.state
        if len(files) < len(self._files):
            state = state.copy()
            state.file_set.remove_tree(DATA_TREE)
            for file in files:
                state.file_set.add(file)
        return replace(snapshot, state=state, partial=True)


_LOGGED: OrderedDict[str, tuple[object, LoggedFiles]] = OrderedDict()
_LOCK = Lock()


def _logged(snapshot: Snapshot) -> LoggedFiles:
    """Return the files of a version of a log, those of the logs that were asked last from memory."""
    state, log = snapshot.state, snapshot.store.uri
    with _LOCK:
        known = _LOGGED.get(log)
        if known is None or known[0] is not state:
            known = _LOGGED[log] = state, LoggedFiles(state.files(DATA_TREE))
        _LOGGED.move_to_end(log)
        while len(_LOGGED) > MAX_LISTS:
            _LOGGED.popitem(last=False)
    return known[1]


def runs_of(places: Iterable[int]) -> str:
    """Return places in a list as text: ``0,4-7``."""
    runs: list[list[int]] = []
    for place in sorted(places):
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def places_in(runs: str) -> list[int]:
    """Return the places that :func:`runs_of` wrote."""
    places: list[int] = []
    for run in runs.split(",") if runs else ():
        first, _, last = run.partition("-")
        places += range(int(first), int(last or first) + 1)
    return places


def choose_files(
    snapshot: Snapshot, scan: ConnectorScan, number: int, keys: JoinKeys, size: Callable[[], int]
) -> Chosen:
    """Return which files of a version of the log have no row that counts for a scan.

    :param snapshot: the log as it is; its files are not looked at.
    :param size: returns the bytes of the scan's own files.
    :raises NotChosen: if a column is another one than indexes hold values of.
    """
    source = snapshot.table.source
    if source is not None and source.identity not in (None, scan.id):
        raise NotChosen("another table was made at its address since it was registered")
    joined = same_columns(snapshot, scan, scan.joined)

    # Of indexes that hold rows only those are of use that hold what is read, and never for a command.
    columns = scan.columns if scan.purpose == "read" else snapshot.data.columns

    def planned(where: Filter | None, among: Collection[GroupKey] | None = None) -> ReadPlan:
        return replace(plan_read(snapshot, where, among=among), columns=columns)

    where = predicate_of(snapshot, scan.filters)
    if where is not None:
        named = columns_of(where.predicate)
        for name in sorted(named - set(same_columns(snapshot, scan, named))):
            raise NotChosen(
                f"the column {name!r} is another one, of another type or read otherwise than was registered"
            )
    plan, taken, passing = planned(where), None, None
    kinds = None if scan.purpose == "read" else _STEADY
    if joined and prunes_by(snapshot, plan.predicate, joined, plan.columns):
        plan, taken, passing = keys.narrowed(number, plan, planned, partial(_seconds, scan, size), kinds)
    logged = _logged(snapshot)
    read = logged.places(file for members in plan.files.values() for file in members)
    return Chosen(plan, logged, runs_of(read), len(read) < len(snapshot.state.files(DATA_TREE)), taken, passing)


def _seconds(scan: ConnectorScan, size: Callable[[], int], plan: ReadPlan) -> float:
    """Estimate how long the files of a plan are read that a scan has, by their sizes alone: none is opened.

    The later passes of a command have few of them.
    """
    snapshot = plan.snapshot
    files = [file for members in plan.files.values() for file in members]
    share = column_share(snapshot.data.fields, set(scan.columns) & {field.name for field in snapshot.data.fields})
    seconds = scan_seconds(snapshot, files, share)
    if scan.purpose != "read":
        rows = sum(map(estimated_rows, files))
        seconds += rows * COMMAND_ROW_SECONDS / cores(snapshot.spark)
    return seconds * min(1.0, size() / max(1, sum(file.bytes for file in files)))


def same_columns(snapshot: Snapshot, scan: ConnectorScan, names: Collection[str]) -> tuple[str, ...]:
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
