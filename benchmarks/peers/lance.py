"""Lance, in process, over a data set of its own with a B-tree as scalar index.

Its format is its own: columns are encoded, and not compressed with zstd.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.measure import weight
from benchmarks.peers.serve import serve

_session: dict[Any, Any] = {}


def copy(
    source: str, folder: str, by: Sequence[str], columns: Sequence[str] | None = None, codec: str = ""
) -> dict[str, int]:
    """Writes the rows of a folder of Parquet files sorted, with a B-tree over the first of ``by``; no codec applies."""
    rows = ds.dataset(source, format="parquet").to_table(columns=list(columns) if columns else None)
    made = lance.write_dataset(rows.sort_by([(name, "ascending") for name in by]), folder, mode="overwrite")
    made.create_scalar_index(by[0], "BTREE")
    return weight(Path(folder), "")


def keys(path: str) -> dict[str, int]:
    """Takes keys (column ``id``) into memory, in the order of the file."""
    _session["keys"] = pq.read_table(path, columns=["id"])["id"].combine_chunks()
    return {"rows": len(_session["keys"])}


def many(folder: str, first: int, count: int) -> dict[str, Any]:
    """The rows of so many keys, through the index."""
    keys = _session["keys"].slice(first, count).to_pylist()
    rows = _rows(folder, cache=True)
    begun = time.perf_counter()
    matches = rows.to_table(filter="id IN ({})".format(",".join(f"'{key}'" for key in keys)))
    return {"seconds": time.perf_counter() - begun, "rows": matches.num_rows}


def one(folder: str, number: int, cache: bool = False) -> dict[str, Any]:
    """The row of one key; with its cache of the pages of the index or without."""
    key = _session["keys"][number].as_py()
    rows = _rows(folder, cache)
    begun = time.perf_counter()
    matches = rows.to_table(filter=f"id = '{key}'").to_pylist()
    return {"seconds": time.perf_counter() - begun, "rows": len(matches)}


def _rows(folder: str, cache: bool) -> Any:
    """The data set, opened once."""
    dataset_key = (folder, cache)
    if dataset_key not in _session:
        _session[dataset_key] = lance.dataset(folder, index_cache_size_bytes=None if cache else 0)
    return _session[dataset_key]


if __name__ == "__main__":
    serve({"copy": copy, "keys": keys, "many": many, "one": one}, Path(__file__).with_suffix(".txt"))
