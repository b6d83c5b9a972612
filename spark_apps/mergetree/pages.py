"""Reads pages of index files for their checksums alone, before a query is built on them.

A page that is damaged shows when Spark reads it, in the midst of the user's query, when it is too late to read the
table's files instead. So the columns that a query needs are read once beforehand: by the driver, or where that is much
by a Spark job; and not again as long as the file is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from spark_apps.mergetree.blockfiles import open_blocks, store_options
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.intact import Identity, identity_of
from spark_apps.mergetree.sessions import cores
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile

DRIVER_BYTES = 256 * 1024 * 1024
"""So many bytes of pages are read by the driver, more by a Spark job."""

_AT_ONCE = 4
"""Reading pages is work for a core, and each reader holds a column chunk."""

_BATCH_ROWS = 65_536
_MOST_REMEMBERED = 200_000
_ASKED = "file int, path string, size bigint, rows bigint, columns array<string>"

_sound: dict[tuple[str, str, Identity | None], frozenset[str]] = {}
"""Files, and those of their columns whose pages were found undamaged."""


@dataclass(frozen=True)
class Pages:
    """The pages of some columns of a file. ``bytes``: how many these are, about."""

    file: DataFile
    columns: frozenset[str]
    bytes: int


def damaged_pages(snapshot: Snapshot, wanted: Sequence[Pages]) -> dict[str, str]:
    """Path -> what is wrong, of the files in which a page of these columns is damaged.

    Pages that were found undamaged in this process are not read again. The files must have passed
    :func:`~spark_apps.mergetree.intact.check_intact`.
    """
    fresh = [pages for pages in wanted if pages.columns - _sound.get(_key(snapshot, pages), frozenset())]
    asked = [
        {
            "file": number,
            "path": snapshot.store.spark_path(pages.file.path),
            "size": pages.file.bytes,
            "rows": pages.file.rows,
            "columns": sorted(pages.columns - _sound.get(_key(snapshot, pages), frozenset())),
        }
        for number, pages in enumerate(fresh)
    ]
    options = store_options(snapshot)
    if sum(pages.bytes for pages in fresh) <= DRIVER_BYTES:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            faults = dict(enumerate(pool.map(lambda one: fault_of(one, options), asked)))
    else:
        faults = _by_spark(snapshot, asked, options)
    if len(_sound) > _MOST_REMEMBERED:
        _sound.clear()
    for number, pages in enumerate(fresh):
        if faults[number] is None:
            key = _key(snapshot, pages)
            _sound[key] = _sound.get(key, frozenset()) | pages.columns
    return {fresh[number].file.path: fault for number, fault in faults.items() if fault is not None}


def _key(snapshot: Snapshot, pages: Pages) -> tuple[str, str, Identity | None]:
    return snapshot.store.uri, pages.file.path, identity_of(snapshot, pages.file.path)


def _by_spark(
    snapshot: Snapshot, asked: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> dict[int, str | None]:
    def check(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for one in batch.to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"file": pa.array([one["file"]], pa.int32()), "fault": pa.array([fault_of(one, options)])},
                    schema=pa.schema([("file", pa.int32()), ("fault", pa.string())]),
                )

    rows = [[one[name.split()[0]] for name in _ASKED.split(", ")] for one in asked]
    spread = inline(snapshot.spark, rows, _ASKED).repartition(min(len(rows), 4 * cores(snapshot.spark)))
    found = spread.mapInArrow(check, "file int, fault string").collect()
    return {row.file: row.fault for row in found}


def fault_of(one: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """What is wrong with the pages of some columns of a file, if anything is.

    :param one: ``path`` and ``size`` of the file, ``rows`` that it has, ``columns`` to read.
    """
    import pyarrow as pa

    try:
        reader, _ = open_blocks("parquet", one["path"], one["size"], options)
        rows = sum(
            batch.num_rows
            for batch in reader.iter_batches(_BATCH_ROWS, columns=list(one["columns"]), use_threads=False)
        )
    except (pa.ArrowException, OSError) as error:
        return str(error).strip().split("\n")[0] or repr(error)
    return None if rows == one["rows"] else f"it has {rows:,} rows, the log says {one['rows']:,}"
