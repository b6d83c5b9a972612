"""Covering indexes: some columns of the rows, bucketed and sorted by the indexed ones, read in place of the files.

An index answers for a data file's column only if it holds it or the data file lacks it; rows of files that are gone
are filtered out by lineage, files that came since are scanned, and later deltas of a file's group are merged.
Follows Hyperspace's proposal, whose included columns come and go.

A build, a refresh and a compaction always write new files. A refresh indexes the files that are new by lineage, and
rewrites the entry files that hold rows of files which are gone. Entries of one bucket can differ in their columns,
so a compaction either merges the schemas with the files or merges only files of like schema (the proposal's two
approaches).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import F
from spark_apps.indexes.comparison import ArrowReader, Comparison
from spark_apps.indexes.computed import expressions_in, fields_in, with_key_types
from spark_apps.indexes.covering import index_files, scan
from spark_apps.indexes.covering.definition import (
    BOUNDS,
    CHANGEABLE,
    DEFAULTS,
    LAYOUT,
    SCHEMA,
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
from spark_apps.indexes.file_kinds import Entries, FileKind, covered_by, own_files
from spark_apps.indexes.handler import (
    CannotPrune,
    CoveringScan,
    IndexContext,
    PredicateProbe,
    estimated_rows,
)
from spark_apps.indexes.included_columns import IncludedColumns, intersect_names
from spark_apps.indexes.limits import BOUNDS_SAMPLE_ROWS
from spark_apps.indexes.lineage import (
    LINEAGE,
    Coverage,
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
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    definition_scope,
    shard_scope,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# --- building, refreshing, compacting ---------------------------------------------------------------------------------


_COUNTED_FORMATS = ("parquet", "orc")
"""Formats of sources whose files state how many rows Spark makes of them."""


def _with_bounds(context: IndexContext, definition: IndexDefinition, files: Sequence[DataFile]) -> IndexDefinition:
    """Return a definition with bounds by which each range gets about as many rows, where the layout is by ranges.

    For entries that are all written anew. Reads one column.
    """
    if definition.properties.get(LAYOUT) != "ranges":
        return definition
    name, values = indexed_columns(context.table, definition)[0], list[Any]()
    column_type = parse_type(column_types(fields_in(context.table, definition))[name])
    if files:
        part = BOUNDS_SAMPLE_ROWS / max(sum(map(estimated_rows, files)), 1)
        sample = rows_of(context, files, [name]).select(column(name)).sample(min(1.0, part), seed=1)
        if column_type.kind in ("date", "timestamp", "timestamp_ntz"):
            # Python knows the years from 1 to 9999 only, in any time zone one less.
            sample = sample.where(F.year(column(name)).between(2, 9998))
        with translate_spark_errors():
            values = [row[0] for row in sample.collect()]
    bounds = hashing.between_bounds(values, column_type, definition.shards)
    return replace(definition, properties={**definition.properties, BOUNDS: bounds})


def _check_counts(context: IndexContext, files: Sequence[DataFile], staged: Sequence[AddFile]) -> None:
    """Refuse entries that are not as many as the rows, where the log knows how many these are.

    :raises VerificationFailed: if they are more or fewer.
    """
    source = context.table.source
    if (source is not None and source.format not in _COUNTED_FORMATS) or any(file.rows < 0 for file in files):
        return
    entries, rows = sum(action.rows for action in staged), sum(file.rows for file in files)
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


def _rewritten(
    context: IndexContext, files: Mapping[tuple[str, ...], Sequence[DataFile]], without: AbstractSet[int]
) -> list[AddFile]:
    """Stage the entries of some files anew, those of each list together.

    :param files: columns -> the files that have them. :param without: data files whose entries are left out.
    """
    added: list[AddFile] = []
    for number, (columns, like_files) in enumerate(sorted(files.items())):
        read = [*columns, LINEAGE] if has_lineage(context.definition) else list(columns)
        rows, expected = read_entries(context, like_files, read, without=without), sum(file.rows for file in like_files)
        added += stage_entries(context, rows, columns, f"rewritten-{number}", _stages(like_files), expected)
    return added


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


# --- Entry files ------------------------------------------------------------------------------------------------------


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


# --- the handler ------------------------------------------------------------------------------------------------------


_HOLDS_ROWS = CannotPrune("it holds rows to read in place of the files, it does not point into them")


class CoveringHandler(FileKind):
    """The kind that holds rows of the table with some of its columns."""

    kind: ClassVar[str] = "covering"
    changeable: ClassVar[frozenset[str]] = CHANGEABLE
    found: ClassVar[frozenset[str]] = frozenset({BOUNDS, SCHEMA})

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

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        # Entries written before a column was left out still have it, and would pass for a new column of its name.
        return tuple(
            dict.fromkeys([*held_columns(table, definition), *(field.name for field in fields_of(definition))])
        )

    # --- Build, refresh, compaction -----------------------------------------------------------------------------------

    def redefined(self, context: IndexContext, files: Sequence[DataFile], anew: bool) -> IndexDefinition:
        # Of entries that are all made anew the merged schema knows what is held now alone.
        definition = with_schema(context.table, context.definition, anew=True) if anew else context.definition
        first = files and not entry_files(own_files(context))
        return _with_bounds(context, definition, files) if anew or first else definition

    def entries(self, context: IndexContext, files: Sequence[DataFile]) -> Entries:
        with_schema(context.table, context.definition, anew=False)  # refuses a name with two types
        columns, stage = held_columns(context.table, context.definition), stage_id(context.directory)
        stages = {str(bucket): {stage} for bucket in range(context.definition.shards)}
        expected = sum(max(file.rows, 0) for file in files)
        staged = stage_entries(context, rows_of(context, files, columns), columns, "entries", stages, expected)
        _check_counts(context, files, staged)
        # The index also answers for columns of its other entries that a file lacks: they are null.
        others = [name for name in schema_of(context.definition).names if not intersect_names([name], columns)]
        covered = _parts(stage, columns, files, find_null_columns(context, files, others))
        return Entries(staged, {"entries": sum(action.rows for action in staged)}, covered)

    def void(self, coverage: Coverage, live: AbstractSet[int]) -> AbstractSet[int]:
        return (coverage.lineages - live) | coverage.dropped

    def without(self, context: IndexContext, lineages: AbstractSet[int]) -> Entries | None:
        name = context.definition.name
        if lineages and not has_lineage(context.definition):
            if context.snapshot.state.index(name).state == "creating":
                return None  # a build, and the table was compacted meanwhile
            raise InvalidInput(
                f"{len(lineages)} files that the index {name!r} covers are gone (or to be read again), and it has no "
                "lineage, so that it cannot tell which rows are theirs.",
                hint="Refresh it with mode='full'; an index made with the property lineage='true' can drop them.",
            )
        files, known = own_files(context), covered_by(context)
        stages = {part.stage for part in known.parts if (part.lineages.keys() | part.dropped) & lineages}
        removed = files_holding(context, [file for file in entry_files(files) if stages & stages_of(file)], lineages)
        added = _rewritten(context, _by_columns(removed), lineages)
        return Entries(added, coverage=_with_new_columns(context, known.without(lineages)), removed=removed)

    def merged(self, context: IndexContext, mode: Literal["quick", "full"], gone: AbstractSet[int]) -> Entries | None:
        files = entry_files(own_files(context))
        chosen = _files_to_merge(context, files, mode)
        if not chosen:
            return None
        known, gone = covered_by(context), gone if has_lineage(context.definition) else frozenset()
        added = _rewritten(context, chosen, gone | known.dropped)
        merged = [file for like_files in chosen.values() for file in like_files]
        paths = {file.path for file in merged}
        remaining = remaining_coverage(known, gone, [file for file in files if file.path not in paths])
        return Entries(added, coverage=remaining, removed=merged)

    def writes(self, context: IndexContext, actions: Sequence[AnyAction], mode: WriteMode) -> tuple[Write, ...]:
        # All that changes entry files excludes each other.
        tree = context.definition.tree
        group_by_path = {file.path: file.group for file in own_files(context)}
        groups = {action.group for action in actions if isinstance(action, AddFile)}
        groups |= {group_by_path[action.path] for action in actions if isinstance(action, RemoveFile)}
        writes = [Write(shard_scope(tree, group), mode) for group in sorted(groups)]
        if mode == "fold":
            writes.append(Write(definition_scope(context.definition.name), "fold"))
        return tuple(writes)

    # --- Queries ------------------------------------------------------------------------------------------------------

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        return _HOLDS_ROWS

    def answer(self, context: IndexContext, probe: PredicateProbe) -> CannotPrune:
        return _HOLDS_ROWS

    def substitute(
        self,
        context: IndexContext,
        probe: PredicateProbe | None,
        columns: Sequence[str],
        groups: Collection[GroupKey],
    ) -> CoveringScan | CannotPrune:
        return scan.substitute(context, probe, columns, groups)

    def comparison(self, context: IndexContext, reader: ArrowReader | None = None) -> Comparison | None:
        return index_files.comparison(context, reader)
