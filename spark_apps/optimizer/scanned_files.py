"""Holds the list of files that Spark has for a scan against the files of a log, and names those that are read.

Which files count is Spark's list alone, of whatever moment it is: nothing is listed for a query. A file of the log
counts where the list has it with the same size and time of change; one that the log has otherwise, or not at all, is
a new file that no index covers, and is read. Spark's list is known by a hash, and files are named by their places in
it, so that a list crosses from the JVM once.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from spark_apps.actions.source_diff import with_listed
from spark_apps.mergetree.external_files import describe_scan
from spark_apps.optimizer.file_choice import path_key, runs_of
from spark_apps.optimizer.limits import MAX_LISTS
from spark_apps.query.planning import matching_partitions
from spark_apps.sources.listing import ListedFile
from spark_apps.sources.registry import PlainFiles
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import DATA_TREE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.mergetree.tree import Snapshot
    from spark_apps.query.predicates import Filter
    from spark_apps.timeline.files import DataFile
    from spark_apps.timeline.state import State


class CannotMatch(Exception):
    """Says why a list of Spark's is not one of a source's files."""


@dataclass(frozen=True)
class ScannedFiles:
    """A source as a list of Spark's shows it.

    :param snapshot: the newest version of its log, with the files of the list and no others.
    :param places: path -> place in the list.
    """

    snapshot: Snapshot
    places: Mapping[str, int] = field(repr=False)

    def text_of(self, files: Iterable[DataFile]) -> str:
        """Return the places of files, as ``FileList.at`` of ``index_rule.java`` reads them: ``0,4-7``."""
        return runs_of(self.places[file.path] for file in files)

    def facts_of(self, files: Sequence[DataFile], columns: Sequence[str]) -> str:
        """Return what Spark learns of a scan of these files; JSON."""
        stored = [name for name in columns if name not in self.snapshot.table.partition_by]
        return json.dumps(describe_scan(self.snapshot, self.snapshot.data, files, stored))


class ScannedRows:
    """Access to files of a scan by Spark's own relation, without a look at them; see ``mergetree.tree.ExternalFiles``.

    :param request: the ``ScanRequest`` of ``index_rule.java``. :param number: of the scan.
    """

    def __init__(self, spark: SparkSession, request: Any, number: int, scanned: ScannedFiles) -> None:
        self._spark, self._request, self._number, self._scanned = spark, request, number, scanned

    def check(self, files: Sequence[DataFile]) -> None:
        """Compare files with how they were listed, those that the log knows."""
        external = self._scanned.snapshot.external
        if external is not None:
            external.check([file for file in files if (file.extra or {}).get("etag") is not None])

    def rows(self, file: DataFile, schema: Any) -> Any:
        """Refuse: Spark reads plain files itself."""
        raise InvalidInput(f"{file.path} is read by Spark.")

    def scan(self, files: Sequence[DataFile], columns: Sequence[str]) -> DataFrame:
        """Return the rows of files as Spark's scan reads them, with some columns at least."""
        scanned = self._scanned
        facts = scanned.facts_of(files, columns)
        relation = self._request.relation(self._number, scanned.text_of(files), facts)
        session: Any = self._spark
        return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), self._spark)


@dataclass(frozen=True)
class _Matched:
    """A list of Spark's beside a version of a log.

    :param listed: the files of the list alone. :param all: and those of the log that the list lacks, in ``lacking``,
        their partitions.
    """

    listed: ScannedFiles
    all: ScannedFiles
    lacking: frozenset[str]

    def shown(self, where: Callable[[], Filter | None]) -> ScannedFiles:
        """Return the source as a query sees it, without what was found of its files by another query.

        Files of partitions that the query rules out stay: Spark passed over them for it, and an index that holds rows
        holds theirs too.
        """
        found = self.all
        if self.lacking and ((asked := where()) is None or self._lacks(asked)):
            found = self.listed
        return replace(found, snapshot=replace(found.snapshot, intact=set()))

    def _lacks(self, where: Filter) -> bool:
        return not self.lacking.isdisjoint(matching_partitions(self.all.snapshot, where.predicate))


class ScannedSources:
    """The lists of Spark's that were matched last; for several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[State, _Matched | CannotMatch]] = OrderedDict()
        self._lock = Lock()

    def of(
        self,
        logged: Snapshot,
        seen: str,
        request: Any,
        number: int,
        options: Mapping[str, Any] | None,
        where: Callable[[], Filter | None],
    ) -> ScannedFiles:
        """Return a source as the list of a scan shows it; the list is fetched where its hash is not known.

        :param logged: the newest version of the log. :param seen: the hash of the list.
        :param options: of the source's store. :param where: returns the predicate of the query.
        :raises CannotMatch: if the list has files that are none of the source's, or partitions that its folders are
            not.
        """
        key = logged.store.uri, seen
        with self._lock:
            known = self._known.get(key)
        if known is None or known[0] is not logged.state:
            found: _Matched | CannotMatch
            try:
                found = _matched(logged, request.files(number), json.loads(request.partitions(number)), options)
            except CannotMatch as error:
                found = error
            known = logged.state, found
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > MAX_LISTS:
                self._known.popitem(last=False)
        if isinstance(known[1], CannotMatch):
            raise CannotMatch(*known[1].args)
        return known[1].shown(where)


def _matched(
    logged: Snapshot, lines: str, folders: Mapping[str, Sequence[str | None] | None], options: Mapping[str, Any] | None
) -> _Matched:
    """Match a list with the files of a log.

    :param lines: path, bytes, and time of change in milliseconds of each, as ``FileList`` writes them.
    :param folders: each with the values that Spark's catalog has for it; see :func:`_check_same_partitions`.
    """
    known = {path_key(file.path): file for file in logged.state.files(DATA_TREE)}
    places: dict[str, int] = {}
    kept: list[DataFile] = []
    others: list[ListedFile] = []
    seen: set[str] = set()
    for place, line in enumerate(lines.split("\0")[:-1]):
        path, size, modified = line.rsplit("\t", 2)
        if size == "0":
            continue  # Spark reads no empty file, and a listing of ours does not show it
        key = path_key(path)
        seen.add(key)
        file = known.get(key)
        if file is not None and _is_same(file, int(size), int(modified)):
            places[file.path] = place
            kept.append(file)
        else:
            other = _listed(logged, key, int(size), int(modified))
            places[other.path] = place
            others.append(other)
    plain = PlainFiles.of(logged.table, options)
    try:
        new = plain.source_files(others)
    except InvalidInput as error:
        raise CannotMatch(str(error)) from error
    if len(new) < len(others):
        passed = {file.path for file in others} - {file.path for file in new}
        raise CannotMatch(f"{min(passed)} is read by Spark, and is none of the source's files")
    snapshot = replace(logged, state=with_listed(logged.state, kept, new), external=plain)
    _check_same_partitions(snapshot, folders)
    listed = ScannedFiles(snapshot, places)
    missing = [file for path, file in known.items() if path not in seen]
    if not missing:
        return _Matched(listed, listed, frozenset())
    whole = replace(snapshot, state=with_listed(logged.state, [*kept, *missing], new))
    return _Matched(listed, ScannedFiles(whole, places), frozenset(file.partition for file in missing))


def _is_same(file: DataFile, size: int, modified: int) -> bool:
    """Tell whether a file of the log is the one that Spark has listed; its time of change has milliseconds there."""
    known = (file.extra or {}).get("modified")
    return file.bytes == size and (known is None or abs(modified - known * 1000) <= 1.0)


def _listed(logged: Snapshot, key: str, size: int, modified: int) -> ListedFile:
    """Return a file of Spark's list as a listing of the source would show it."""
    assert logged.table.source is not None
    base = locate(logged.table.source.location).base.rstrip("/")
    if key != base and not key.startswith(f"{base}/"):
        raise CannotMatch(f"{key} is read by Spark, and is none of the source's files")
    path = key if "://" in key else f"file://{key}"
    return ListedFile(key[len(base) + 1 :], path, size, modified / 1000, None)


def _check_same_partitions(snapshot: Snapshot, folders: Mapping[str, Sequence[str | None] | None]) -> None:
    """Check that folders are the partitions in Spark's catalog that they are by their names.

    :param folders: each with the values that the catalog has for it, ``None`` if it is several partitions; none at all
        if it is no table of a catalog.
    :raises CannotMatch: naming the first that is another one.
    """
    if not folders:
        return
    values = {path_key(path): texts for path, texts in folders.items()}
    for file in snapshot.state.files(DATA_TREE):
        folder = path_key(file.path).rpartition("/")[0]
        if folder in values and values[folder] != list(snapshot.state.partitions[file.partition].values):
            raise CannotMatch(f"{folder} is another partition in Spark's catalog, or several")


def path_of(address: str) -> str:
    """Return an address of Hadoop's as a path, or as a URI of another store than the local disk."""
    if not address.startswith("file:"):
        return address
    return "/" + address.removeprefix("file:").lstrip("/")
