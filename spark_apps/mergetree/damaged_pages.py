"""Pages of index files that are damaged, found by their checksums: on the driver for few of them, by Spark for many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from spark_apps.engine.spark_utils import cores, inline
from spark_apps.mergetree.blocks import access_options, on_driver_alone
from spark_apps.mergetree.integrity import Identity, identity_of
from spark_apps.mergetree.limits import MAX_DRIVER_PAGE_BYTES, MAX_UNDAMAGED_FILES
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.parquet.listed import open_address
from spark_apps.timeline.files import DataFile

_THREADS = 4
"""Reading pages is work for a core, and each reader holds a column chunk."""

_BATCH_ROWS = 65_536
_REQUEST_COLUMNS = "file int, path string, size bigint, rows bigint, columns array<string>"

_UNDAMAGED: dict[tuple[str, str, Identity | None], frozenset[str]] = {}
"""Files, and those of their columns whose pages were found undamaged."""


@dataclass(frozen=True)
class Pages:
    """The pages of some columns of a file: about ``bytes`` of them."""

    file: DataFile
    columns: frozenset[str]
    bytes: int


def damaged_pages(snapshot: Snapshot, page_sets: Sequence[Pages]) -> dict[str, str]:
    """Return path -> fault, of the files in which a page of these columns is damaged.

    Pages that were found undamaged in this process are not read again. The files must have passed
    :func:`~spark_apps.mergetree.integrity.check_intact`.
    """
    unchecked = [pages for pages in page_sets if pages.columns - _UNDAMAGED.get(_key(snapshot, pages), frozenset())]
    requests = [
        {
            "file": number,
            "path": snapshot.store.spark_path(pages.file.path),
            "size": pages.file.bytes,
            "rows": pages.file.rows,
            "columns": sorted(pages.columns - _UNDAMAGED.get(_key(snapshot, pages), frozenset())),
        }
        for number, pages in enumerate(unchecked)
    ]
    options = access_options(snapshot)
    if sum(pages.bytes for pages in unchecked) <= MAX_DRIVER_PAGE_BYTES or on_driver_alone(snapshot):
        with ThreadPoolExecutor(_THREADS) as pool:
            faults = dict(enumerate(pool.map(lambda request: fault_of(request, options), requests)))
    else:
        faults = _by_spark(snapshot, requests, options)
    if len(_UNDAMAGED) > MAX_UNDAMAGED_FILES:
        _UNDAMAGED.clear()
    for number, pages in enumerate(unchecked):
        if faults[number] is None:
            key = _key(snapshot, pages)
            _UNDAMAGED[key] = _UNDAMAGED.get(key, frozenset()) | pages.columns
    return {unchecked[number].file.path: fault for number, fault in faults.items() if fault is not None}


def _key(snapshot: Snapshot, pages: Pages) -> tuple[str, str, Identity | None]:
    return snapshot.store.uri, pages.file.path, identity_of(snapshot, pages.file.path)


def _by_spark(
    snapshot: Snapshot, requests: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> dict[int, str | None]:
    def check(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for request in batch.to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"file": pa.array([request["file"]], pa.int32()), "fault": pa.array([fault_of(request, options)])},
                    schema=pa.schema([("file", pa.int32()), ("fault", pa.string())]),
                )

    rows = [[request[name.split()[0]] for name in _REQUEST_COLUMNS.split(", ")] for request in requests]
    distributed = inline(snapshot.spark, rows, _REQUEST_COLUMNS).repartition(min(len(rows), 4 * cores(snapshot.spark)))
    faults = distributed.mapInArrow(check, "file int, fault string").collect()
    return {row.file: row.fault for row in faults}


def fault_of(request: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the pages of some columns of a file; ``None`` if nothing is.

    :param request: ``path`` and ``size`` of the file, ``rows`` that it has, ``columns`` to read.
    """
    import pyarrow as pa

    try:
        reader = open_address(request["path"], request["size"], options).reader
        rows = sum(
            batch.num_rows
            for batch in reader.iter_batches(_BATCH_ROWS, columns=list(request["columns"]), use_threads=False)
        )
    except (pa.ArrowException, OSError) as error:
        return str(error).strip().split("\n")[0] or repr(error)
    return None if rows == request["rows"] else f"it has {rows:,} rows, the log says {request['rows']:,}"
