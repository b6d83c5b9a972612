"""Covering indexes: some columns of the rows, bucketed and sorted by the indexed ones, read in place of the files.

An index answers for a data file's column only if it holds it or the data file lacks it; rows of files that are gone
are filtered out by lineage, files that came since are scanned, and what lies over a file in its group is merged.
Follows Hyperspace's proposal, whose included columns come and go.

A build, a refresh and a compaction always write new files. A refresh indexes the files that are new by lineage, and
writes anew the entry files in which rows of files lie that are gone. Entries of one bucket can differ in their columns,
so a compaction either merges the schemas with the files or merges only files of like schema (the proposal's two
approaches).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import F
from spark_apps.indexes.computed import columns_in, expressions_in, fields_in, with_key_types
from spark_apps.indexes.covering import index_files, scan
from spark_apps.indexes.covering.definition import (
    BOUNDS,
    CHANGEABLE,
    DEFAULTS,
    LAYOUT,
    complete_definition,
    evolve_definition,
    fields_of,
    has_lineage,
    held_columns,
    indexed_columns,
    schema_of,
    with_entry_types,
    with_schema,
)
from spark_apps.indexes.covering.index_files import (
    columns_of,
    files_holding,
    find_null_columns,
    read_entries,
    rows_of,
    stage_entries,
    stages_of,
)
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    Changes,
    CoveringScan,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    PredicateProbe,
    VerificationReport,
    estimated_rows,
)
from spark_apps.indexes.included_columns import IncludedColumns, intersect_names
from spark_apps.indexes.lineage import (
    LINEAGE,
    Coverage,
    carrier,
    carriers,
    entry_files,
    indexable,
    stage_id,
)
from spark_apps.layout import hashing
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.schema import column, column_types
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import CompactMode, translate_spark_errors
from spark_apps.storage.errors import InvalidInput, VerificationFailed
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import (
    AddFile,
    AnyAction,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    RemoveFile,
    TableDefinition,
    Write,
    definition_scope,
    shard_scope,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# --- building, refreshing, compacting ---------------------------------------------------------------------------------


_COUNTED_FORMATS = ("parquet", "orc")
"""Formats of sources whose files tell how many rows Spark makes of them."""

_SAMPLE_SIZE = 20_000
"""From about so many values the bounds of ranges are taken: of 100 buckets each is right within a fifth, mostly."""


def coverage(context: IndexContext) -> Coverage:
    """Return what the index covers."""
    return Coverage.of(context.snapshot.state.files(context.definition.tree))


def plan_index(context: IndexContext, mode: str, partitions: Sequence[str] | None) -> IndexPlan:
    """Return what a build or refresh would read."""
    name = context.definition.name
    if mode == "quick":
        return IndexPlan(name, mode, (), 0, 0, "a quick refresh reads and writes no entries")
    indexable_files = indexable(context.snapshot)
    covered = Coverage() if mode == "full" else coverage(context)
    new = {
        group: file
        for group, file in indexable_files.items()
        if file.lineage not in covered.lineages and (partitions is None or group[0] in partitions)
    }
    gone = covered.lineages - {file.lineage for file in indexable_files.values()}
    reason = f"{len(new)} of {len(indexable_files)} files are new to the index, {len(gone)} that it tells of are gone"
    return IndexPlan(name, mode, tuple(new), len(new), sum(file.bytes for file in new.values()), reason)


# --- Build and refresh ------------------------------------------------------------------------------------------------


def build_index(context: IndexContext) -> IndexWork:
    """Stage entries of all files that can be covered."""
    files = list(indexable(context.snapshot).values())
    context = _with_bounds(context, files)
    added = _index(context, files)
    metrics = {"files": len(files), "entries": _row_count(added)}
    return _work(context, [*_changed_definition(context), *added, _cover(context)], metrics)


def rebuild_index(context: IndexContext) -> IndexWork:
    """Stage all entries anew.

    The merged schema then knows only what is held now.
    """
    state = context.snapshot.state
    definition = with_schema(context.table, context.definition, anew=True)
    context = IndexContext(context.snapshot, definition, context.directory)
    old = [RemoveFile(file.tree, file.path) for file in state.files(definition.tree)]
    built = build_index(context)
    return _work(context, [*old, *built.actions], built.metrics)


def _with_bounds(context: IndexContext, files: Sequence[DataFile]) -> IndexContext:
    """Return the context with bounds that deal rows of some files in like numbers, where entries are laid by ranges.

    For entries that are all written anew. Reads one column.
    """
    definition = context.definition
    if definition.properties.get(LAYOUT) != "ranges":
        return context
    name, values = indexed_columns(context.table, definition)[0], list[Any]()
    column_type = parse_type(column_types(fields_in(context.table, definition))[name])
    if files:
        part = _SAMPLE_SIZE / max(sum(map(estimated_rows, files)), 1)
        sample = rows_of(context, files, [name]).select(column(name)).sample(min(1.0, part), seed=1)
        if column_type.kind in ("date", "timestamp", "timestamp_ntz"):
            # Python knows the years from 1 to 9999 only, in any time zone one less.
            sample = sample.where(F.year(column(name)).between(2, 9998))
        with translate_spark_errors():
            values = [row[0] for row in sample.collect()]
    bounds = hashing.between_bounds(values, column_type, definition.shards)
    with_bounds = replace(definition, properties={**definition.properties, BOUNDS: bounds})
    return IndexContext(context.snapshot, with_bounds, context.directory)


def catch_up(context: IndexContext, partitions: Sequence[str] | None, *, again: bool) -> IndexWork:
    """Stage entries of files that are new, none of files that are gone.

    :param again: whether files that are covered are read again, in these partitions.
    :raises InvalidInput: if files are gone and the index has no lineage.
    """
    known_coverage = coverage(context)
    live = {file.lineage: file for file in indexable(context.snapshot).values()}

    def selected(file: DataFile) -> bool:
        return partitions is None or file.partition in partitions

    gone = (known_coverage.lineages - live.keys()) | known_coverage.dropped
    if again:
        gone |= known_coverage.lineages & {lineage for lineage, file in live.items() if selected(file)}
    new = [
        file
        for lineage, file in live.items()
        if selected(file) and (lineage not in known_coverage.lineages or lineage in gone)
    ]
    if new and not entry_files(context.snapshot.state.files(context.definition.tree)):
        context = _with_bounds(context, new)
    changed = _changed_definition(context)
    lag = context.snapshot.state.index(context.definition.name).lag
    behind = any(partitions is None or group[0] in partitions for group in lag)
    if not (new or gone or changed or behind):
        return IndexWork()
    if gone and not has_lineage(context.definition):
        if context.snapshot.state.index(context.definition.name).state == "creating":
            return rebuild_index(context)  # a build, and the table was compacted meanwhile
        raise InvalidInput(
            f"{len(gone)} files that the index {context.definition.name!r} tells of are gone (or to be read again), "
            "and it has no lineage, so that their rows cannot be told from the others.",
            hint="Refresh it with mode='full'; an index made with the property lineage='true' can drop them.",
        )
    actions = _index(context, new)
    metrics = {"files": len(new), "entries": _row_count(actions), "removed_files": len(gone)}
    actions += _remove_entries(context, known_coverage, gone)
    return _work(context, [*changed, *actions, _cover(context, partitions)], metrics)


def _changed_definition(context: IndexContext) -> list[AnyAction]:
    """Return the definition, where it is not what the log has."""
    entry = context.snapshot.state.index(context.definition.name)
    return [] if entry.definition == context.definition else [PutIndex(context.definition, entry.state)]


def _index(context: IndexContext, files: Sequence[DataFile]) -> list[AnyAction]:
    """Stage entries of data files, and the carrier that covers them."""
    if not files:
        return []
    with_schema(context.table, context.definition, anew=False)  # refuses a name with two types
    columns, stage = held_columns(context.table, context.definition), stage_id(context.directory)
    rows = rows_of(context, files, columns)
    stages = {str(bucket): {stage} for bucket in range(context.definition.shards)}
    staged = stage_entries(context, rows, columns, "entries", stages, sum(max(file.rows, 0) for file in files))
    _check_counts(context, files, staged)
    added: list[AnyAction] = list(staged)
    # Other columns that entries of the index have: of a file that lacks them it can tell all the same.
    other_columns = [name for name in schema_of(context.definition).names if not intersect_names([name], columns)]
    covered = _parts(stage, columns, files, find_null_columns(context, files, other_columns))
    return [*added, _carrier(context, "coverage", covered)]


def _check_counts(context: IndexContext, files: Sequence[DataFile], staged: Sequence[AddFile]) -> None:
    """Refuse entries that are not as many as the rows, where the log knows how many these are.

    :raises VerificationFailed: if there are not as many entries as rows, where the log tells how many these are.
    """
    source = context.table.source
    if (source is not None and source.format not in _COUNTED_FORMATS) or any(file.rows < 0 for file in files):
        return
    entries, rows = _row_count(staged), sum(file.rows for file in files)
    if entries != rows:
        raise VerificationFailed(
            f"The index {context.definition.name!r} would hold {entries:,} entries for {rows:,} rows of {len(files)} "
            "files.",
            outcome="Nothing was changed.",
            hint="Try again; if the figures differ again, verify the table's files.",
        )


def _parts(
    stage: str, columns: Sequence[str], files: Iterable[DataFile], lacks: Mapping[int, Sequence[str]]
) -> Coverage:
    by_lacking: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        by_lacking.setdefault(tuple(lacks.get(file.lineage, ())), []).append(file)
    parts = Coverage()
    for names, like_files in sorted(by_lacking.items()):
        parts |= Coverage.single(stage, columns, names, like_files)
    return parts


def _remove_entries(context: IndexContext, known_coverage: Coverage, gone: AbstractSet[int]) -> list[AnyAction]:
    """Take all entries of some files out, and bring what is known of the others up to date."""
    files = context.snapshot.state.files(context.definition.tree)
    removed: list[DataFile] = []
    added: list[AnyAction] = []
    if gone:
        stages = {part.stage for part in known_coverage.parts if (part.lineages.keys() | part.dropped) & gone}
        removed = files_holding(context, [file for file in entry_files(files) if stages & stages_of(file)], gone)
        for number, (columns, like_files) in enumerate(_by_columns(removed).items()):
            rows = read_entries(context, like_files, _stored(context, columns), without=gone)
            added += stage_entries(
                context, rows, columns, f"kept-{number}", _stages(like_files), _entry_count(like_files)
            )
    remaining = _with_new_columns(context, known_coverage.without(gone))
    if gone or remaining is not known_coverage:
        old = carriers(files)
        if remaining.parts != Coverage.of(old).parts:
            removed = [*removed, *old]
            added += [_carrier(context, "coverage-left", remaining)] if remaining else []
    return [*(RemoveFile(file.tree, file.path) for file in removed), *added]


def _with_new_columns(context: IndexContext, known_coverage: Coverage) -> Coverage:
    """Return the coverage, with columns that are new to the index looked for in the files covered before."""
    before = context.snapshot.state.index(context.definition.name).definition
    new_columns = [
        name for name in schema_of(context.definition).names if not intersect_names([name], schema_of(before).names)
    ]
    if not new_columns:
        return known_coverage
    live = {file.lineage: file for file in indexable(context.snapshot).values()}
    completed = Coverage()
    for part in known_coverage.parts:
        files = [live[lineage] for lineage in part.lineages]
        null_columns = find_null_columns(context, files, new_columns)
        all_lacking = {lineage: (*part.lacks, *names) for lineage, names in null_columns.items()}
        completed |= _parts(part.stage, part.columns, files, all_lacking)
    return completed


# --- Compaction -------------------------------------------------------------------------------------------------------


def compact_index(context: IndexContext, mode: CompactMode) -> IndexWork:
    """Merge entry files bucket by bucket: all (``full``) or those below ``small_bytes`` (``quick``).

    A bucket with one such file is left alone. Rows of files that are gone are dropped on the way.
    """
    files = context.snapshot.state.files(context.definition.tree)
    chosen = _files_to_merge(context, entry_files(files), mode)
    if not chosen:
        return IndexWork()
    known_coverage = coverage(context)
    live = {file.lineage for file in indexable(context.snapshot).values()}
    gone = known_coverage.lineages - live if has_lineage(context.definition) else frozenset[int]()
    added: list[AnyAction] = []
    for number, (columns, like_files) in enumerate(sorted(chosen.items())):
        rows = read_entries(context, like_files, _stored(context, columns), without=gone | known_coverage.dropped)
        added += stage_entries(
            context, rows, columns, f"merged-{number}", _stages(like_files), _entry_count(like_files)
        )
    merged = [file for like_files in chosen.values() for file in like_files]
    metrics = {
        "files_before": len(merged), "files_after": len(added), "bytes_before": sum(file.bytes for file in merged),
        "bytes_after": sum(action.bytes for action in added if isinstance(action, AddFile)), "rows": _row_count(added),
    }  # fmt: skip
    merged_paths = {file.path for file in merged}
    others = [file for file in entry_files(files) if file.path not in merged_paths]
    remaining = remaining_coverage(known_coverage, gone, others)
    old = carriers(files)
    if len(old) > 1 or remaining.parts != Coverage.of(old).parts:
        merged += old
        added += [_carrier(context, "coverage", remaining)] if remaining else []
    actions = [*(RemoveFile(file.tree, file.path) for file in merged), *added]
    return _work(context, actions, metrics)


def _files_to_merge(
    context: IndexContext, files: Sequence[DataFile], mode: CompactMode
) -> dict[tuple[str, ...], list[DataFile]]:
    """Return columns of the merged files -> the files to merge, of one or more buckets."""
    properties = {**DEFAULTS, **context.definition.properties}
    small = int(properties["small_bytes"])
    candidates: dict[tuple[str, tuple[str, ...]], list[DataFile]] = {}
    for file in files:
        if mode == "full" or file.bytes < small:
            like_columns = tuple(sorted(columns_of(file))) if properties["optimize_schema"] == "same" else ()
            candidates.setdefault((file.group, like_columns), []).append(file)
    by_columns: dict[tuple[str, ...], list[DataFile]] = {}
    for bucket_files in candidates.values():
        if len(bucket_files) > 1:
            columns = tuple(dict.fromkeys(name for file in bucket_files for name in columns_of(file)))
            by_columns.setdefault(_in_schema_order(context, columns), []).extend(bucket_files)
    return by_columns


def _in_schema_order(context: IndexContext, columns: Collection[str]) -> tuple[str, ...]:
    """Return columns in the order of the index's schema, so that the same ones are alike."""
    return tuple(name for name in schema_of(context.definition).names if name in columns)


def remaining_coverage(covered: Coverage, gone: Collection[int], others: Sequence[DataFile]) -> Coverage:
    """Return the coverage after a compaction that dropped rows, while ``others`` were left as they are."""
    stages_left = frozenset(stage for file in others for stage in stages_of(file))
    forgotten = {
        lineage
        for part in covered.parts
        if part.stage not in stages_left
        for lineage in (part.lineages.keys() & frozenset(gone)) | part.dropped
    }
    return covered.voiding(gone).without(forgotten)


# --- Actions ----------------------------------------------------------------------------------------------------------


def _by_columns(files: Iterable[DataFile]) -> dict[tuple[str, ...], list[DataFile]]:
    by_columns: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        by_columns.setdefault(columns_of(file), []).append(file)
    return dict(sorted(by_columns.items()))


def _stages(files: Iterable[DataFile]) -> dict[str, set[str]]:
    by_bucket: dict[str, set[str]] = {}
    for file in files:
        by_bucket.setdefault(file.group, set()).update(stages_of(file))
    return by_bucket


def _entry_count(files: Iterable[DataFile]) -> int:
    return sum(file.rows for file in files)


def _stored(context: IndexContext, columns: Sequence[str]) -> list[str]:
    return [*columns, LINEAGE] if has_lineage(context.definition) else list(columns)


def _carrier(context: IndexContext, folder: str, covered: Coverage) -> AddFile:
    version = context.snapshot.state.version
    directory = f"{context.directory}/{folder}"
    return carrier(context.snapshot.store, context.definition.tree, directory, covered, version)


def _cover(context: IndexContext, partitions: Sequence[str] | None = None) -> MarkCovered:
    paths = None if partitions is None else tuple(partitions)
    return MarkCovered(context.definition.tree, context.snapshot.state.version, paths)


def _row_count(actions: Iterable[AnyAction]) -> int:
    return sum(action.rows for action in actions if isinstance(action, AddFile))


def _work(context: IndexContext, actions: Sequence[AnyAction], metrics: Mapping[str, Any]) -> IndexWork:
    """Return the work with the scopes that it writes.

    All that changes entry files excludes each other.
    """
    tree = context.definition.tree
    group_by_path = {file.path: file.group for file in context.snapshot.state.files(tree)}
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    groups = {action.group for action in actions if isinstance(action, AddFile)}
    groups |= {group_by_path[action.path] for action in removes}
    writes = [Write(shard_scope(tree, group), "fold" if removes else "backdated") for group in sorted(groups)]
    if removes:
        writes.append(Write(definition_scope(context.definition.name), "fold"))
    return IndexWork(tuple(actions), tuple(writes), metrics=metrics)


# --- the handler ------------------------------------------------------------------------------------------------------


_HOLDS_ROWS = CannotPrune("it holds rows to read in place of the files, it does not point into them")


class CoveringHandler(IndexHandler):
    """The kind that holds rows of the table with some of its columns."""

    kind: ClassVar[str] = "covering"
    by_key: ClassVar[bool] = False
    maintains: ClassVar[bool] = False
    changeable: ClassVar[frozenset[str]] = CHANGEABLE

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        return complete_definition(table, definition)

    def complete(self, snapshot: Snapshot, definition: IndexDefinition) -> IndexDefinition:
        if not expressions_in(snapshot.table, definition):
            return definition
        typed = with_key_types(snapshot, definition, f"The index {definition.name!r}", floating=True)
        return with_entry_types(snapshot.table, typed)

    def evolve(
        self,
        table: TableDefinition,
        definition: IndexDefinition,
        mode: Literal["incremental", "full", "quick"],
        included: IncludedColumns | None,
        schema: str | StructType | None,
    ) -> tuple[IndexDefinition, TableDefinition]:
        return evolve_definition(table, definition, mode, included, schema)

    def tree(self, table: TableDefinition, definition: IndexDefinition) -> None:
        return None

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        # Entries written before a column was left out still have it, and would pass for a new column of its name.
        return tuple(
            dict.fromkeys([*held_columns(table, definition), *(field.name for field in fields_of(definition))])
        )

    def asked_by(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return columns_in(table, definition)

    def expressions(self, table: TableDefinition, definition: IndexDefinition) -> Mapping[str, str]:
        return expressions_in(table, definition)

    def reads(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return ()

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        return plan_index(context, mode, partitions)

    def build(self, context: IndexContext) -> IndexWork:
        return build_index(context)

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        return IndexWork()

    def refresh(
        self,
        context: IndexContext,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Sequence[str] | None = None,
    ) -> IndexWork:
        if mode == "quick":
            lag = context.snapshot.state.index(context.definition.name).lag
            return IndexWork(metrics={"lagging_groups": len(lag)})
        if mode == "full" and partitions is None:
            return rebuild_index(context)
        return catch_up(context, partitions, again=mode == "full")

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        return compact_index(context, mode)

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        return _HOLDS_ROWS

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        return _HOLDS_ROWS

    def substitute(
        self,
        context: IndexContext,
        probe: PredicateProbe | None,
        columns: Sequence[str],
        groups: Collection[GroupKey],
    ) -> CoveringScan | CannotPrune:
        return scan.substitute(context, probe, columns, groups)

    def verify(self, context: IndexContext) -> VerificationReport:
        return index_files.verify(context)
