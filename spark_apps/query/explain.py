"""The explanation of a query: indexes used, what is read and skipped, and why other indexes are not used.

Beside it, the partitions, indexes and history of a table, as plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spark_apps.engine.pyspark_names import F
from spark_apps.mergetree.external_files import external_reader_notes
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.schema import column, resolve
from spark_apps.mergetree.tree import GROUP_ID, Snapshot
from spark_apps.query.planning import (
    BlockChoice,
    IndexUse,
    NotUsed,
    ReadPlan,
    compare_with_statistics,
    filter_of,
    known_blocks,
    plan_read,
)
from spark_apps.query.predicates import Filter, of_whole_rows, reasons
from spark_apps.storage.errors import InvalidInput, InvalidPredicate
from spark_apps.storage.printing import (
    ALL_ROWS,
    Figure,
    Grid,
    Printed,
    ResultList,
    ResultMap,
    View,
    counted,
    exact,
    instant_text,
    metric_facts,
    size,
)
from spark_apps.storage.units import format_bytes
from spark_apps.timeline.files import NO_ROWS, RowCount
from spark_apps.timeline.hudi_indexes import HudiIndexes
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, HUDI, OWN_ENGINE, IndexDefinition
from spark_apps.timeline.state import State
from spark_apps.timeline.statistics import partition_statistics


@dataclass(frozen=True, repr=False)
class Explanation(Printed):
    """The explanation of a query by :meth:`~spark_apps.table.IndexedTable.read`.

    Files and bytes are those of the table's rows; within a file that is read, Parquet may skip more. A file group
    whose rows are in an index is not read, except for deltas over such rows.

    :param nothing_matches: whether the predicate is false or null for every row.
    :param indexes: the indexes that were asked, with the files and bytes read of each.
    :param not_used: index -> why.
    :param not_understood: parts of the predicate that can only be decided on the rows.
    :param blocks_read: blocks (row groups, stripes) that are read, of files that are not read as a whole;
        ``bytes_read`` counts the columns that are needed in them. ``blocks_skipped``: the other blocks of these files.
    :param notes: further remarks, each beginning with a code such as ``no_better_than_statistics``.
    :param hypothetical: indexes that the table does not have, and that were counted as if they were there; what is read
        and skipped is an estimate then. ``bytes_skipped_bounds`` is between what the skipped bytes are, in 95 of 100
        cases.
    """

    version: int
    where: str | None
    columns: tuple[str, ...]
    nothing_matches: bool
    partitions_read: int
    partitions_skipped: int
    groups_read: int
    groups_skipped: int
    files_read: int
    files_skipped: int
    bytes_read: int
    bytes_skipped: int
    record_keys: int | None
    indexes: tuple[IndexUse, ...]
    not_used: dict[str, NotUsed]
    not_understood: tuple[str, ...]
    warnings: tuple[str, ...]
    blocks_read: int = 0
    blocks_skipped: int = 0
    notes: tuple[str, ...] = ()
    hypothetical: tuple[str, ...] = ()
    bytes_skipped_bounds: tuple[int, int] | None = None

    @property
    def index_used(self) -> str | None:
        """The indexes used, by name; ``None`` if the rows are scanned."""
        return ", ".join(use.name for use in self.indexes) or None

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return {**asdict(self), "index_used": self.index_used}

    def view(self) -> View:
        bounds = self.bytes_skipped_bounds
        facts = [
            ("index used", self.index_used or "none"),
            ("partitions", f"{self.partitions_read:,} read, {self.partitions_skipped:,} skipped"),
            ("file groups", f"{self.groups_read:,} read, {self.groups_skipped:,} skipped"),
            ("files", f"{self.files_read:,} read, {self.files_skipped:,} skipped"),
            ("bytes", f"{size(self.bytes_read)} read, {size(self.bytes_skipped)} skipped"),
            ("blocks", f"{self.blocks_read:,} read, {self.blocks_skipped:,} skipped" if self.blocks_skipped else None),
            ("hypothetical", [f"{name}, which is not there" for name in self.hypothetical]),
            ("skipped, between", bounds and f"{size(bounds[0])} and {size(bounds[1])}"),
            ("nothing matches", "no row can satisfy the predicate" if self.nothing_matches else None),
            *(("only rows can tell", part) for part in self.not_understood),
            *(("note", text) for text in self.notes),
            *(("warning", text) for text in self.warnings),
        ]
        instead = any(use.replaces for use in self.indexes)
        used = [
            (use.name, use.files, size(use.bytes), use.groups)
            + ((use.replaces or None, size(use.instead_of) if use.replaces else None) if instead else ())
            for use in self.indexes
        ]
        columns = ("used", "files", "size", "leaves groups", *(("in place of files", "of about") if instead else ()))
        unused = [(name, why.code, why.reason) for name, why in self.not_used.items()]
        grids = [Grid(columns, used), Grid(("not used", "code", "why"), unused)]
        return View(f"version {self.version}: {self.where if self.where is not None else 'all rows'}", facts, grids)


def explain(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> Explanation:
    """Return how a query would be answered.

    The indexes are asked; no rows are read.

    :raises InvalidPredicate: if the predicate cannot be read.
    :raises UnknownColumn: if a name is that of no column of the table.
    """
    names = snapshot.data.columns if columns is None else resolve(columns, snapshot.data.columns, "columns")
    return explain_plan(plan_read(snapshot, filter_of(snapshot, where), names), names)


def explain_plan(
    plan: ReadPlan, names: Sequence[str], *, by_blocks: bool = True, opens_files: bool = True
) -> Explanation:
    """Return the explanation of a plan that was made.

    :param names: the columns that were asked for. :param by_blocks: tell which blocks indexes leave, by files' footers.
    :param opens_files: whether footers of the table's files may be read at all.
    """
    snapshot = plan.snapshot
    all_files, files_read = snapshot.state.files(DATA_TREE), plan.files
    read = [file for files in files_read.values() for file in files]
    bytes_read, partitions = sum(file.bytes for file in read), len(snapshot.state.partitions)
    choice, left = plan.block_choice, known_blocks(plan) if by_blocks and opens_files else None
    notes = [] if left is None else [_blocks_left(left, not snapshot.has_spark, choice)]
    if left is not None and not snapshot.has_spark:
        choice = left  # Arrow reads them whatever they save
    if choice is not None:
        bytes_read += choice.bytes - sum(read.file.bytes for read in choice.reads)
    gained = compare_with_statistics(plan) if opens_files else None
    partitions_read = len({group[0] for group in plan.groups})
    keys = None if any(k is None for k in plan.groups.values()) else sum(len(k or ()) for k in plan.groups.values())
    return Explanation(
        version=snapshot.state.version,
        where=None if plan.where is None else plan.where.text,
        columns=tuple(names),
        nothing_matches=plan.nothing_matches,
        partitions_read=partitions_read,
        partitions_skipped=partitions - partitions_read,
        groups_read=len(files_read),
        groups_skipped=len(snapshot.groups()) - len(files_read),
        files_read=len(read),
        files_skipped=len(all_files) - len(read),
        bytes_read=bytes_read,
        bytes_skipped=sum(file.bytes for file in all_files) - bytes_read,
        record_keys=keys,
        indexes=plan.used,
        not_used=dict(plan.not_used),
        not_understood=() if plan.predicate is None else reasons(plan.predicate),
        warnings=plan.warnings,
        blocks_read=0 if choice is None else choice.blocks,
        blocks_skipped=0 if choice is None else choice.skipped,
        notes=(*(() if gained is None else (gained,)), *notes, *external_reader_notes(read)),
    )


def _blocks_left(left: BlockChoice, by_arrow: bool, choice: BlockChoice | None) -> str:
    """Return the note on the blocks that indexes leave, and who reads them."""
    rows = "" if left.rows is None else f", {left.rows[0]:,} of {left.rows[1]:,} rows"
    note = (
        f"blocks_left: {left.blocks:,} of {left.blocks + left.skipped:,} blocks of {counted(len(left.reads), 'file')} "
        f"can hold such rows{rows}, {format_bytes(left.bytes)} of {format_bytes(left.instead_of)} of their columns"
    )
    if by_arrow or (choice is not None and len(choice.reads) == len(left.reads)):
        return note
    some = "these files" if choice is None else "the smaller of these files"
    return f"{note}; Spark reads {some} as a whole"


# --- Which files hold rows that satisfy a predicate -----------------------------------------------------------------


@dataclass(frozen=True)
class LocatedFile:
    """A file that can hold matching rows.

    :param path: absolute for a registered source, otherwise relative to the table.
    :param indexed: whether an index says so; otherwise no index covers the file, and it may have no such row.
    :param rows: the rows of the whole file; ``None`` if not known.
    :param matches: how many of its rows satisfy the predicate, if they were counted.
    """

    path: str
    partition: str
    bytes: int
    rows: int | None
    indexed: bool
    matches: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return asdict(self)


def locate_files(snapshot: Snapshot, where: Filter | None, count: bool = False) -> ResultList[LocatedFile]:
    """Return the files that can hold rows which satisfy a predicate, by path.

    Every file that holds such a row is among them.

    :param count: read these files and count; those without a match are left out.
    :raises InvalidPredicate: for counting by file where the predicate speaks of whole rows.
    :raises InvalidInput: for counting by file where rows of several files are merged.
    """
    tree = snapshot.data
    if count and not tree.by_id:
        raise InvalidInput(
            "Rows of this table are merged from several files, so they cannot be counted by file.",
            hint="Leave count out, or count rows with read(where).",
        )
    plan = plan_read(snapshot, where)
    if count and where is not None and of_whole_rows(where.predicate):
        raise InvalidPredicate(
            f"Rows are not counted by file for {where.text!r}, which speaks of whole rows.",
            hint="Name the columns in place of *, or leave count out.",
        )
    used = [snapshot.state.index(use.name) for use in plan.used if use.name in snapshot.state.indexes]
    matches: dict[tuple[str, str], int] | None = None
    if count:
        names = [*(name for name in tree.columns if name in plan.columns or name in tree.partition_by), GROUP_ID]
        rows = scan(snapshot, tree, plan.files, names)
        if where is not None:
            rows = rows.where(where.text)
        counted_rows = rows.groupBy(column(GROUP_ID)).agg(F.count("*")).collect() if plan.groups else ()
        groups = {row[0]: row[1] for row in counted_rows}
        matches = {key: groups[key[1]] for key in plan.groups if key[1] in groups}
    located = [
        LocatedFile(
            path=file.path,
            partition=file.partition,
            bytes=file.bytes,
            rows=file.rows if file.rows >= 0 else None,
            indexed=any(entry.covers(key) for entry in used),
            matches=None if matches is None else matches[key],
        )
        for key, files in plan.files.items()
        for file in files
        if matches is None or key in matches
    ]
    return ResultList(sorted(located, key=lambda file: file.path), _view_located)


def _view_located(files: Sequence[LocatedFile]) -> View:
    rows = [
        (
            file.partition,
            file.rows,
            size(file.bytes),
            file.matches,
            "an index" if file.indexed else "not indexed",
            file.path,
        )
        for file in files
    ]
    heading = f"{counted(len(files), 'file')} that can hold such rows"
    return View(heading, grids=[Grid(("partition", "rows", "size", "matches", "found by", "file"), rows)])


# --- partitions, indexes and history of a table -----------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionInfo(Printed):
    """A partition: its bucket count and live files.

    ``rows`` is the number of rows where ``exact``, else the highest that it can be: deltas replace rows of files under
    them, which a commit counts where it reads them for an index, and a compaction settles. Of a source's files without
    a count ``rows`` has none. ``count`` has both bounds.
    """

    buckets: int | None
    rows: int
    bytes: int
    files: int
    count: RowCount = NO_ROWS

    @property
    def exact(self) -> bool:
        """True if ``rows`` is the number of rows, and no bound of it."""
        return self.count.exact is not None

    def view(self) -> View:
        facts = [("buckets", self.buckets), ("rows", self.count.text), ("size", size(self.bytes))]
        return View(counted(self.files, "file"), facts)


@dataclass(frozen=True)
class HistoryEntry(Printed):
    """A commit. ``instant`` is ``yyyyMMddHHmmssSSS`` in UTC."""

    version: int
    instant: str
    operation: str
    txn_id: str
    metrics: dict[str, Any]

    def view(self) -> View:
        facts = [("instant", instant_text(self.instant)), ("transaction", self.txn_id)]
        return View(f"version {self.version}: {self.operation}", [*facts, *metric_facts(self.metrics)])


@dataclass(frozen=True, repr=False)
class IndexInfo(Printed):
    """An index as the table's version shows it. ``lagging`` counts the file groups that it does not cover.

    ``engine`` is who keeps it: ``lakeindex``, or ``hudi`` for one of a Hudi table's own, which has no file of this
    package. Its state is then Hudi's too: ``building``, ``refused`` (a definition that makes writes fail) or
    ``vanished``.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    included: tuple[str, ...]
    properties: dict[str, str]
    state: str
    deferred: bool
    lagging: int
    definition: IndexDefinition
    engine: str = OWN_ENGINE

    def view(self) -> View:
        covers = f"all but {counted(self.lagging, 'file group')}" if self.lagging else "all of the table"
        whole = self.definition.view()
        return View(whole.heading, [("state", self.state), ("covers", covers), *whole.facts])


@dataclass(frozen=True)
class IndexStatus(Printed):
    """The coverage and the size of an index.

    ``covered`` and ``lagging`` count data files and their bytes, by file groups: where an index lags behind in a
    group, all files of the group count as lagging. ``files`` and ``bytes`` are the index's own. ``refreshed`` is the
    version of the last commit that built or refreshed it, ``None`` if none did; the instants are
    ``yyyyMMddHHmmssSSS`` in UTC.
    """

    covered_files: int
    covered_bytes: int
    lagging_files: int
    lagging_bytes: int
    files: int
    bytes: int
    created: int
    created_at: str | None
    refreshed: int | None
    refreshed_at: str | None

    def view(self) -> View:
        def files(count: int, bytes_: int) -> str:
            return f"{counted(count, 'file')}, {size(bytes_)}"

        def version(number: int | None, instant: str | None) -> str | None:
            return None if number is None else f"version {number}, {instant_text(instant) or 'at an unknown time'}"

        facts = [
            ("covers", files(self.covered_files, self.covered_bytes)),
            ("lags behind in", files(self.lagging_files, self.lagging_bytes) if self.lagging_files else None),
            ("created", version(self.created, self.created_at)),
            ("refreshed", version(self.refreshed, self.refreshed_at)),
        ]
        return View(f"index of {files(self.files, self.bytes)}", facts)


def status_of(timeline: Timeline, state: State, name: str) -> IndexStatus:
    """Return the status of an index.

    :raises IndexNotFound: if there is no index of that name.
    """
    entry = state.index(name)
    covered: list[int] = []
    lagging: list[int] = []
    for file in state.files(DATA_TREE):
        (covered if entry.covers(file.group_key) else lagging).append(file.bytes)
    index_bytes = [file.bytes for file in state.files(entry.definition.tree)]
    # What was created empty was not brought up to date by that.
    empty = entry.definition.deferred and entry.refreshed == entry.created
    return IndexStatus(
        covered_files=len(covered),
        covered_bytes=sum(covered),
        lagging_files=len(lagging),
        lagging_bytes=sum(lagging),
        files=len(index_bytes),
        bytes=sum(index_bytes),
        created=entry.created,
        created_at=_instant(timeline, entry.created),
        refreshed=None if empty else entry.refreshed,
        refreshed_at=None if empty else _instant(timeline, entry.refreshed),
    )


def _instant(timeline: Timeline, version: int) -> str | None:
    commit = timeline.read(version)
    return None if commit is None else commit.instant


def partitions_of(state: State) -> ResultMap[PartitionInfo]:
    """Return the bucket count and the live files of each partition, by path."""
    partitions = {}
    for one in partition_statistics(state):
        if one.path in state.partitions:
            rows = one.count.most if one.count.most is not None else one.rows
            partitions[one.path] = PartitionInfo(one.buckets, rows, one.bytes, one.files, one.count)
    return ResultMap(partitions, _view_partitions)


def _view_partitions(partitions: Mapping[str, PartitionInfo]) -> View:
    rows = [
        (path or ALL_ROWS, p.buckets, Figure(p.count.text), size(p.bytes), p.files) for path, p in partitions.items()
    ]
    grid = Grid(("partition", "buckets", "rows", "size", "files"), rows)
    return View(counted(len(partitions), "partition"), grids=[grid])


def indexes_of(state: State, hudi: HudiIndexes | None = None) -> ResultMap[IndexInfo]:
    """Return what each index is and how far it lags, by name.

    :param hudi: of a Hudi table, what it says of its own indexes: those that the log does not know come too.
    """
    indexes = {
        name: IndexInfo(
            name=name,
            kind=entry.definition.kind,
            columns=entry.definition.columns,
            included=entry.definition.included,
            properties=entry.definition.properties,
            state=entry.state,
            deferred=entry.definition.deferred,
            lagging=0 if entry.definition.engine != OWN_ENGINE else len(entry.lag),
            definition=entry.definition,
            engine=entry.definition.engine,
        )
        for name, entry in state.indexes.items()
    }
    if hudi is not None:
        indexes = _with_hudi(indexes, hudi)
    return ResultMap(dict(sorted(indexes.items())), view_indexes)


def _with_hudi(indexes: dict[str, IndexInfo], hudi: HudiIndexes) -> dict[str, IndexInfo]:
    """Return indexes with the states that those of Hudi have now, and with those that the log does not know."""
    known = set[str]()
    for name, info in list(indexes.items()):
        if info.engine == OWN_ENGINE:
            continue
        there = hudi.of(info.definition)
        known.add("" if there is None else there.partition)
        indexes[name] = replace(info, state="vanished" if there is None else there.state)
    for one in hudi.indexes.values():
        if one.partition in known:
            continue
        name = one.partition if one.name in indexes else one.name
        properties = {key: value for key, value in (("using", one.using), ("expr", one.function)) if value is not None}
        definition = IndexDefinition(
            name, one.kind, one.columns, one.partition, properties={**one.options, **properties}
        )
        indexes[name] = IndexInfo(
            name, one.kind, one.columns, (), definition.properties, one.state, False, 0, definition, HUDI
        )
    return indexes


def view_indexes(indexes: Mapping[str, IndexInfo]) -> View:
    """Return the view of indexes, a row each."""
    rows = [
        (
            name,
            one.kind,
            one.state if one.state != "active" or not one.lagging else f"{counted(one.lagging, 'file group')} behind",
            one.columns,
            one.included,
            "deferred" if one.deferred else "with the data",
        )
        for name, one in indexes.items()
    ]
    grid = Grid(("index", "kind", "state", "columns", "included", "kept"), rows)
    return View(counted(len(indexes), "index", "indexes"), grids=[grid])


def history_of(
    timeline: Timeline, version: int, after: int = -1, operation: str | None = None
) -> ResultList[HistoryEntry]:
    """Return the commits up to ``version``, oldest first.

    :param after: only those behind this version.
    :param operation: only those of one.
    """
    entries = [
        HistoryEntry(commit.version, commit.instant, commit.operation, commit.txn_id, dict(commit.metrics))
        for commit in timeline.commits(after=after, until=version)
        if operation is None or commit.operation == operation
    ]
    return ResultList(entries, _view_history)


def _view_history(entries: Sequence[HistoryEntry]) -> View:
    rows = [
        (
            exact(one.version),
            instant_text(one.instant),
            one.operation,
            one.metrics.get("rows"),
            one.metrics.get("files"),
            size(one.metrics.get("bytes")),
            one.txn_id,
        )
        for one in entries
    ]
    columns = ("version", "instant (UTC)", "operation", "rows", "files", "size", "transaction")
    return View(counted(len(entries), "commit"), grids=[Grid(columns, rows, newest_last=True)])


# --- a whole table ----------------------------------------------------------------------------------------------------


def view_table(uri: str, state: State) -> View:
    """Return the view of a table as of a version."""
    table, files = state.table, state.files(DATA_TREE)
    definition, partitions = table.view(), partitions_of(state)
    facts = [
        ("as of", f"{instant_text(state.instant)} UTC"),
        ("rows", sum((one.count for one in partitions.values()), NO_ROWS).text),
        ("size", f"{size(sum(file.bytes for file in files))} in {counted(len(files), 'file')}"),
        ("partitions", len(partitions) if table.partition_by else None),
        *definition.facts,
        ("features", [*state.reader_features, *(f"{name} (writers)" for name in state.writer_features)]),
        *(("window", f"{one.holder} holds {one.scope_text}") for one in state.windows.values()),
    ]
    indexes = view_indexes(indexes_of(state))
    return View(f"{uri}, version {state.version}", facts, [*definition.grids, *indexes.grids])
