"""What a covering index stages: a build, a refresh, a compaction; always new files, never a changed one.

A refresh indexes the files that are new by lineage, and writes anew the entry files in which rows of files lie that are
gone. Entries of one bucket can differ in their columns, so a compaction either merges the schemas with the files or
merges only files of like schema (Hyperspace's proposal, its two approaches).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec.structs import replace
from pyspark.sql import functions as F

from spark_apps.indexes.columns import among
from spark_apps.indexes.covering_definition import BOUNDS, DEFAULTS, LAYOUT, has_lineage, held, schema_of, with_schema
from spark_apps.indexes.covering_entries import (
    columns_of,
    holders,
    lacking,
    read_entries,
    rows_of,
    stage_entries,
    stages_of,
)
from spark_apps.indexes.estimating import rows_about
from spark_apps.indexes.handler import IndexContext, IndexPlan, IndexWork
from spark_apps.indexes.lineage import (
    LINEAGE,
    Coverage,
    carrier,
    carriers,
    entry_files,
    indexable,
    stage_id,
)
from spark_apps.layout import range_buckets
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.compact import CompactMode
from spark_apps.mergetree.schema import column, struct_type
from spark_apps.mergetree.write import refused_nulls
from spark_apps.storage.errors import InvalidInput, VerificationFailed
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import (
    AddFile,
    AnyAction,
    Cover,
    PutIndex,
    RemoveFile,
    Write,
    definition_scope,
    shard_scope,
)

_COUNTED = ("parquet", "orc")
"""Formats of sources whose files tell how many rows Spark makes of them."""

_SAMPLED = 20_000
"""From about so many values the bounds of ranges are taken: of 100 buckets each is right within a fifth, mostly."""


def coverage(context: IndexContext) -> Coverage:
    """What the index covers."""
    return Coverage.of(context.snapshot.state.files(context.definition.tree))


def plan(context: IndexContext, mode: str, partitions: Sequence[str] | None) -> IndexPlan:
    """What a build or refresh would read."""
    name = context.definition.name
    if mode == "quick":
        return IndexPlan(name, mode, (), 0, 0, "a quick refresh reads and writes no entries")
    can = indexable(context.snapshot)
    known = Coverage() if mode == "full" else coverage(context)
    new = {
        group: file
        for group, file in can.items()
        if file.lineage not in known.lineages and (partitions is None or group[0] in partitions)
    }
    gone = known.lineages - {file.lineage for file in can.values()}
    reason = f"{len(new)} of {len(can)} files are new to the index, {len(gone)} that it tells of are gone"
    return IndexPlan(name, mode, tuple(new), len(new), sum(file.bytes for file in new.values()), reason)


# --- building and refreshing ---------------------------------------------------------------------------------------


def build(context: IndexContext) -> IndexWork:
    """Entries of all files that can be told of."""
    files = list(indexable(context.snapshot).values())
    context = _laid(context, files)
    added = _index(context, files)
    metrics = {"files": len(files), "entries": _rows(added)}
    return _work(context, [*_changed(context), *added, _cover(context)], metrics)


def rebuild(context: IndexContext) -> IndexWork:
    """All anew. The merged schema then knows only what is held now."""
    state = context.snapshot.state
    definition = with_schema(context.table, context.definition, anew=True)
    context = IndexContext(context.snapshot, definition, context.directory)
    old = [RemoveFile(file.tree, file.path) for file in state.files(definition.tree)]
    built = build(context)
    return _work(context, [*old, *built.actions], built.metrics)


def _laid(context: IndexContext, files: Sequence[DataFile]) -> IndexContext:
    """The same, for entries that are all written anew: where they are laid by ranges, with bounds that deal the rows
    of some files in like numbers. Reads one column."""
    definition = context.definition
    if definition.properties.get(LAYOUT) != "ranges":
        return context
    name, values = definition.columns[0], list[Any]()
    kind = parse_type(struct_type(context.table.fields)[name].dataType.simpleString())
    if files:
        part = _SAMPLED / max(sum(map(rows_about, files)), 1)
        some = rows_of(context.snapshot, files, [name]).select(column(name)).sample(min(1.0, part), seed=1)
        if kind.kind in ("date", "timestamp", "timestamp_ntz"):
            # Python knows the years from 1 to 9999 only, in any time zone one less.
            some = some.where(F.year(column(name)).between(2, 9998))
        with refused_nulls():
            values = [row[0] for row in some.collect()]
    bounds = range_buckets.between(values, kind, definition.shards)
    found = replace(definition, properties={**definition.properties, BOUNDS: bounds})
    return IndexContext(context.snapshot, found, context.directory)


def catch_up(context: IndexContext, partitions: Sequence[str] | None, *, again: bool) -> IndexWork:
    """Entries of files that are new, none of files that are gone.

    :param again: whether files that are covered are read again, in these partitions.
    :raises InvalidInput: if files are gone and the index has no lineage.
    """
    known = coverage(context)
    live = {file.lineage: file for file in indexable(context.snapshot).values()}

    def wanted(file: DataFile) -> bool:
        return partitions is None or file.partition in partitions

    gone = (known.lineages - live.keys()) | known.dropped
    if again:
        gone |= known.lineages & {lineage for lineage, file in live.items() if wanted(file)}
    new = [
        file for lineage, file in live.items() if wanted(file) and (lineage not in known.lineages or lineage in gone)
    ]
    if new and not entry_files(context.snapshot.state.files(context.definition.tree)):
        context = _laid(context, new)
    changed = _changed(context)
    lag = context.snapshot.state.index(context.definition.name).lag
    behind = any(partitions is None or group[0] in partitions for group in lag)
    if not (new or gone or changed or behind):
        return IndexWork()
    if gone and not has_lineage(context.definition):
        if context.snapshot.state.index(context.definition.name).state == "creating":
            return rebuild(context)  # a build, and the table was compacted meanwhile
        raise InvalidInput(
            f"{len(gone)} files that the index {context.definition.name!r} tells of are gone (or to be read again), "
            "and it has no lineage, so that their rows cannot be told from the others.",
            hint="Refresh it with mode='full'; an index made with the property lineage='true' can drop them.",
        )
    actions = _index(context, new)
    metrics = {"files": len(new), "entries": _rows(actions), "removed_files": len(gone)}
    actions += _without(context, known, gone)
    return _work(context, [*changed, *actions, _cover(context, partitions)], metrics)


def _changed(context: IndexContext) -> list[AnyAction]:
    """The definition, where it is not what the log has."""
    entry = context.snapshot.state.index(context.definition.name)
    return [] if entry.definition == context.definition else [PutIndex(context.definition, entry.state)]


def _index(context: IndexContext, files: Sequence[DataFile]) -> list[AnyAction]:
    """Entries of data files, and the carrier that says so."""
    if not files:
        return []
    with_schema(context.table, context.definition, anew=False)  # refuses a name with two types
    columns, stage = held(context.table, context.definition), stage_id(context.directory)
    rows = rows_of(context.snapshot, files, columns)
    stages = {str(bucket): {stage} for bucket in range(context.definition.shards)}
    staged = stage_entries(context, rows, columns, "entries", stages, sum(max(file.rows, 0) for file in files))
    _check_counts(context, files, staged)
    added: list[AnyAction] = list(staged)
    # Other columns that entries of the index have: of a file that lacks them it can tell all the same.
    others = [name for name in schema_of(context.definition).names if not among([name], columns)]
    told = _parts(stage, columns, files, lacking(context.snapshot, files, others))
    return [*added, _carrier(context, "coverage", told)]


def _check_counts(context: IndexContext, files: Sequence[DataFile], staged: Sequence[AddFile]) -> None:
    """:raises VerificationFailed: if there are not as many entries as rows, where the log tells how many these are."""
    source = context.table.source
    if (source is not None and source.format not in _COUNTED) or any(file.rows < 0 for file in files):
        return
    entries, rows = _rows(staged), sum(file.rows for file in files)
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
    alike: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        alike.setdefault(tuple(lacks.get(file.lineage, ())), []).append(file)
    found = Coverage()
    for names, some in sorted(alike.items()):
        found |= Coverage.single(stage, columns, names, some)
    return found


def _without(context: IndexContext, known: Coverage, gone: AbstractSet[int]) -> list[AnyAction]:
    """What takes all entries of some files out, and brings what is known of the others up to date."""
    files = context.snapshot.state.files(context.definition.tree)
    removed: list[DataFile] = []
    added: list[AnyAction] = []
    if gone:
        stages = {part.stage for part in known.parts if (part.lineages.keys() | part.dropped) & gone}
        removed = holders(context, [file for file in entry_files(files) if stages & stages_of(file)], gone)
        for number, (columns, some) in enumerate(_by_columns(removed).items()):
            rows = read_entries(context, some, _stored(context, columns), without=gone)
            added += stage_entries(context, rows, columns, f"kept-{number}", _stages(some), _entries(some))
    left = _looked_through(context, known.without(gone))
    if gone or left is not known:
        old = carriers(files)
        if left.parts != Coverage.of(old).parts:
            removed = [*removed, *old]
            added += [_carrier(context, "coverage-left", left)] if left else []
    return [*(RemoveFile(file.tree, file.path) for file in removed), *added]


def _looked_through(context: IndexContext, known: Coverage) -> Coverage:
    """What is covered; columns that have come to the index are looked for in the files covered before."""
    before = context.snapshot.state.index(context.definition.name).definition
    fresh = [name for name in schema_of(context.definition).names if not among([name], schema_of(before).names)]
    if not fresh:
        return known
    live = {file.lineage: file for file in indexable(context.snapshot).values()}
    found = Coverage()
    for part in known.parts:
        files = [live[lineage] for lineage in part.lineages]
        more = lacking(context.snapshot, files, fresh)
        all_lacking = {lineage: (*part.lacks, *names) for lineage, names in more.items()}
        found |= _parts(part.stage, part.columns, files, all_lacking)
    return found


# --- compaction ----------------------------------------------------------------------------------------------------


def compact(context: IndexContext, mode: CompactMode) -> IndexWork:
    """Merges entry files bucket by bucket: all (``full``) or those below ``small_bytes`` (``quick``); a bucket with one
    such file is left alone. Rows of files that are gone are dropped on the way."""
    files = context.snapshot.state.files(context.definition.tree)
    chosen = _chosen(context, entry_files(files), mode)
    if not chosen:
        return IndexWork()
    known = coverage(context)
    live = {file.lineage for file in indexable(context.snapshot).values()}
    gone = known.lineages - live if has_lineage(context.definition) else frozenset[int]()
    added: list[AnyAction] = []
    for number, (columns, some) in enumerate(sorted(chosen.items())):
        rows = read_entries(context, some, _stored(context, columns), without=gone | known.dropped)
        added += stage_entries(context, rows, columns, f"merged-{number}", _stages(some), _entries(some))
    merged = [file for some in chosen.values() for file in some]
    metrics = {
        "files_before": len(merged), "files_after": len(added), "bytes_before": sum(file.bytes for file in merged),
        "bytes_after": sum(action.bytes for action in added if isinstance(action, AddFile)), "rows": _rows(added),
    }  # fmt: skip
    merged_paths = {file.path for file in merged}
    others = [file for file in entry_files(files) if file.path not in merged_paths]
    left = coverage_left(known, gone, others)
    old = carriers(files)
    if len(old) > 1 or left.parts != Coverage.of(old).parts:
        merged += old
        added += [_carrier(context, "coverage", left)] if left else []
    actions = [*(RemoveFile(file.tree, file.path) for file in merged), *added]
    return _work(context, actions, metrics)


def _chosen(
    context: IndexContext, files: Sequence[DataFile], mode: CompactMode
) -> dict[tuple[str, ...], list[DataFile]]:
    """Columns of the merged files -> the files to merge, of one or more buckets."""
    properties = {**DEFAULTS, **context.definition.properties}
    small = int(properties["small_bytes"])
    wanted: dict[tuple[str, tuple[str, ...]], list[DataFile]] = {}
    for file in files:
        if mode == "full" or file.bytes < small:
            like = tuple(sorted(columns_of(file))) if properties["optimize_schema"] == "same" else ()
            wanted.setdefault((file.group, like), []).append(file)
    found: dict[tuple[str, ...], list[DataFile]] = {}
    for some in wanted.values():
        if len(some) > 1:
            columns = tuple(dict.fromkeys(name for file in some for name in columns_of(file)))
            found.setdefault(_ordered(context, columns), []).extend(some)
    return found


def _ordered(context: IndexContext, columns: Collection[str]) -> tuple[str, ...]:
    """Columns in the order of the index's schema, so that the same ones are alike."""
    return tuple(name for name in schema_of(context.definition).names if name in columns)


def coverage_left(known: Coverage, gone: Collection[int], others: Sequence[DataFile]) -> Coverage:
    """The coverage after a compaction that dropped rows, while ``others`` were left as they are."""
    there = frozenset(stage for file in others for stage in stages_of(file))
    out = {
        lineage
        for part in known.parts
        if part.stage not in there
        for lineage in (part.lineages.keys() & frozenset(gone)) | part.dropped
    }
    return known.voiding(gone).without(out)


# --- actions -------------------------------------------------------------------------------------------------------


def _by_columns(files: Iterable[DataFile]) -> dict[tuple[str, ...], list[DataFile]]:
    found: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        found.setdefault(columns_of(file), []).append(file)
    return dict(sorted(found.items()))


def _stages(files: Iterable[DataFile]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in files:
        found.setdefault(file.group, set()).update(stages_of(file))
    return found


def _entries(files: Iterable[DataFile]) -> int:
    return sum(file.rows for file in files)


def _stored(context: IndexContext, columns: Sequence[str]) -> list[str]:
    return [*columns, LINEAGE] if has_lineage(context.definition) else list(columns)


def _carrier(context: IndexContext, folder: str, told: Coverage) -> AddFile:
    version = context.snapshot.state.version
    directory = f"{context.directory}/{folder}"
    return carrier(context.snapshot.store, context.definition.tree, directory, told, version)


def _cover(context: IndexContext, partitions: Sequence[str] | None = None) -> Cover:
    paths = None if partitions is None else tuple(partitions)
    return Cover(context.definition.tree, context.snapshot.state.version, paths)


def _rows(actions: Iterable[AnyAction]) -> int:
    return sum(action.rows for action in actions if isinstance(action, AddFile))


def _work(context: IndexContext, actions: Sequence[AnyAction], metrics: Mapping[str, Any]) -> IndexWork:
    """The work with the scopes that it writes. All that changes entry files excludes each other."""
    tree = context.definition.tree
    there = {file.path: file.group for file in context.snapshot.state.files(tree)}
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    groups = {action.group for action in actions if isinstance(action, AddFile)}
    groups |= {there[action.path] for action in removes}
    writes = [Write(shard_scope(tree, group), "fold" if removes else "backdated") for group in sorted(groups)]
    if removes:
        writes.append(Write(definition_scope(context.definition.name), "fold"))
    return IndexWork(tuple(actions), tuple(writes), metrics=metrics)
