"""Polars, in process, over sorted Parquet files of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.measure import weight
from benchmarks.peers.serve import serve

_ROW_GROUP = 50_000
_session: dict[str, Any] = {}


def copy(
    source: str, folder: str, by: Sequence[str], columns: Sequence[str] | None = None, codec: str = "zstd"
) -> dict[str, int]:
    """Writes the rows of a glob of Parquet files sorted, as one file."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    rows = pl.scan_parquet(source)
    if columns:
        rows = rows.select(columns)
    rows.sort(by).sink_parquet(Path(folder) / "rows.parquet", compression=codec, row_group_size=_ROW_GROUP)
    return weight(Path(folder))


def keys(path: str) -> dict[str, int]:
    """Takes keys (column ``id``) into memory, in the order of the file."""
    _session["keys"] = pl.read_parquet(path, columns=["id"])
    return {"rows": _session["keys"].height}


def many(folder: str, first: int, count: int) -> dict[str, Any]:
    """The rows of so many keys."""
    asked = _session["keys"].slice(first, count)
    begun = time.perf_counter()
    matches = _rows(folder).join(asked.lazy(), on="id", how="semi").collect()
    return {"seconds": time.perf_counter() - begun, "rows": matches.height}


def one(folder: str, number: int) -> dict[str, Any]:
    """The row of one key."""
    key = _session["keys"].item(number, "id")
    begun = time.perf_counter()
    matches = _rows(folder).filter(pl.col("id") == key).collect().rows()
    return {"seconds": time.perf_counter() - begun, "rows": len(matches)}


def query(folder: str, sql: str) -> dict[str, Any]:
    """Rows that a statement on ``t``, the folder's rows, gives."""
    context = pl.SQLContext(t=_rows(folder))
    return {"rows": context.execute(sql, eager=True).height}


def _rows(folder: str) -> pl.LazyFrame:
    return pl.scan_parquet(Path(folder) / "rows.parquet")


if __name__ == "__main__":
    serve({"copy": copy, "keys": keys, "many": many, "one": one, "query": query}, Path(__file__).with_suffix(".txt"))
