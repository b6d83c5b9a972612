"""DuckDB, in process, over sorted Parquet files of its own.

Its cache of file contents is off unless a call asks for it; what it knows of files' footers it may keep.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.measure import weight
from benchmarks.peers.serve import serve

_MEMORY = "4GB"
_ROW_GROUP = 50_000
_session: dict[str, Any] = {}


def _db() -> Any:
    if "db" not in _session:
        _session["db"] = duckdb.connect(config={"memory_limit": _MEMORY})
        _session["db"].execute("SET enable_external_file_cache = false")
    return _session["db"]


def copy(
    source: str, folder: str, by: Sequence[str], columns: Sequence[str] = ("*",), codec: str = "zstd"
) -> dict[str, int]:
    """Writes the rows of a glob of Parquet files sorted, as one file."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    _db().execute(f"SET temp_directory = '{folder}.tmp'")
    _db().execute(
        f"COPY (SELECT {', '.join(columns)} FROM read_parquet('{source}') ORDER BY {', '.join(by)}) "
        f"TO '{folder}/rows.parquet' (FORMAT parquet, COMPRESSION {codec}, ROW_GROUP_SIZE {_ROW_GROUP})"
    )
    return weight(Path(folder))


def keys(path: str) -> dict[str, int]:
    """Takes keys (column ``id``) into memory, in the order of the file."""
    _db().execute(f"CREATE OR REPLACE TABLE keys AS SELECT row_number() OVER () AS n, id FROM read_parquet('{path}')")
    _session["keys"] = [key for (key,) in _db().execute("SELECT id FROM keys ORDER BY n").fetchall()]
    return {"rows": len(_session["keys"])}


def many(folder: str, first: int, count: int, cache: bool = False) -> dict[str, Any]:
    """The rows of so many keys, as an Arrow table."""
    _db().execute(f"CREATE OR REPLACE TEMP TABLE asked AS SELECT id FROM keys WHERE n > {first} LIMIT {count}")
    _cache(cache)
    begun = time.perf_counter()
    matches = _db().execute(f"SELECT t.* FROM '{folder}/rows.parquet' t JOIN asked USING (id)").to_arrow_table()
    return {"seconds": time.perf_counter() - begun, "rows": matches.num_rows}


def one(folder: str, number: int, cache: bool = False) -> dict[str, Any]:
    """The row of one key."""
    key = _session["keys"][number]
    _cache(cache)
    begun = time.perf_counter()
    matches = _db().execute(f"SELECT * FROM '{folder}/rows.parquet' WHERE id = ?", [key]).fetchall()
    return {"seconds": time.perf_counter() - begun, "rows": len(matches)}


def query(sql: str) -> dict[str, Any]:
    """Rows that a statement gives, fetched."""
    return {"rows": len(_db().execute(sql).fetchall())}


def _cache(enabled: bool) -> None:
    _db().execute(f"SET enable_external_file_cache = {str(enabled).lower()}")


if __name__ == "__main__":
    serve({"copy": copy, "keys": keys, "many": many, "one": one, "query": query}, Path(__file__).with_suffix(".txt"))
