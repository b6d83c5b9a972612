"""DuckDB, in process, over Parquet files."""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.peers.serve import serve


def count(folder: str) -> dict[str, int]:
    """Rows of the files of a folder."""
    [rows] = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [f"{folder}/*.parquet"]).fetchone() or (0,)
    return {"rows": rows}


if __name__ == "__main__":
    serve({"count": count}, Path(__file__).with_suffix(".txt"))
