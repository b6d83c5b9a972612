"""The file of records that a skipping index would have, made in memory of the files of a sample.

Records and filters are made by the code of a build, so that their bytes are known, and the kind's own code looks into
them. What an expression gives, Spark alone knows: without a session such a part has no records.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import xxhash

from spark_apps.advisor.in_memory import FilesInMemory
from spark_apps.advisor.sample import Sample
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.skipping.collecting import collect_of_rows
from spark_apps.indexes.skipping.definition import Part, Settings, parts_of, settings_of
from spark_apps.indexes.skipping.records import Known, written
from spark_apps.indexes.skipping.row_groups import divide
from spark_apps.indexes.skipping.skipping import RECORDS, bounded
from spark_apps.indexes.stamps import stamp_of
from spark_apps.timeline.files import DataFile

logger = logging.getLogger(__name__)


def record_files(context: IndexContext, sample: Sample, files_of_table: int) -> tuple[FilesInMemory, int]:
    """Return the file of records that a skipping index would have of the files of a sample.

    And about how many bytes that of all files of the table would have: records take the less, packed, the more of them
    are alike, and so each further file is counted as those of the second half of the sample.
    """
    snapshot, definition = context.snapshot, context.definition
    settings = settings_of(definition.properties, f"The index {definition.name!r}")
    files = [file for _, file, _, _ in sample.files]
    units = _units(context, sample, files) if settings.row_groups else {}
    found = {part: of_files for part in parts_of(context.table, definition)
             if (of_files := _found(context, sample, part, settings, units)) is not None}  # fmt: skip
    expressions = [part.expression for part in found]
    stamp = stamp_of(snapshot.spark, expressions) if any(one.stamped for one in expressions) else {}

    def joined(each: Sequence[tuple[int, Known]], lineage: int, rows: int, groups: tuple[Known, ...] = ()) -> Known:
        filters = {(at, kind): bits for at, one in each for (_, kind), bits in one.filters.items()}
        return Known(lineage, rows, stamp, tuple(one.columns[0] for _, one in each), filters, groups)

    known = []
    for at, (_, file, start, end) in enumerate(sample.files):
        each = [(number, of_files[at]) for number, of_files in enumerate(found.values())]
        groups = tuple(
            joined([(number, one.row_groups[unit]) for number, one in each], file.lineage, described.rows)
            for unit, described in enumerate(units.get(file.lineage, ()) if each else ())
        )
        whole = joined(each, file.lineage, end - start, groups)
        known.append(bounded(whole, file) if groups else whole)

    def of_some(some: Sequence[Known]) -> bytes:
        texts, types = [one.text for one in expressions], [part.type.text for part in found]
        return written(texts, types, settings.gram_bytes, some)

    data, half = of_some(known), of_some(known[: len(known) // 2])
    further = (len(data) - len(half)) / max(len(known) - len(known) // 2, 1)
    in_filters = sum(bits.nbytes for one in known for bits in one.filters.values()) / max(len(known), 1)
    unread = in_filters * (1 / sample.depth - 1)
    about = len(data) + max(files_of_table - len(known), 0) * further + files_of_table * unread
    # Headers are remembered by their paths, and another state of the table has other ones.
    path = f"_index/hypothetical/{definition.tree}/{xxhash.xxh3_128_hexdigest(data)}"
    file = DataFile(definition.tree, "", RECORDS, path, "base", len(known), len(data), snapshot.state.version)
    return FilesInMemory((file,), {path: data}), round(about)


def _units(context: IndexContext, sample: Sample, files: Sequence[DataFile]) -> dict[int, tuple[DataFile, ...]]:
    """Return the row groups of the files of a sample, as files of their own; of files of which all rows are read."""
    rows = {file.lineage: end - start for _, file, start, end in sample.files}
    return {
        lineage: each.units
        for lineage, each in divide(context.snapshot, files).items()
        if rows[lineage] == sum(unit.rows for unit in each.units)
    }


def _found(
    context: IndexContext, sample: Sample, part: Part, settings: Settings, units: Mapping[int, Sequence[DataFile]]
) -> list[Known] | None:
    """Return what is found of a part in the files of a sample; ``None`` where only Spark could compute it."""
    import pyarrow as pa

    key = part.expression.text, part.kinds, settings
    if key not in sample.found:
        sample.found[key] = None
        if part.expression.column is not None or context.snapshot.has_spark:
            files = [(file, sample.rows.slice(start, end - start)) for _, file, start, end in sample.files]
            try:
                sample.found[key] = collect_of_rows(context.snapshot, part, settings, files, units)
            except spark_errors(pa.ArrowException) as error:
                logger.info("What is kept of %s is not known: %s", part.expression.shown, error)
    found: list[Known] | None = sample.found[key]
    return found
