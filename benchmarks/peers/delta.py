"""Delta, by ``deltalake``: its own engine, and DuckDB over the files that its log names."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake

from benchmarks.measure import weight
from benchmarks.peers.serve import serve

_session: dict[Any, Any] = {}


def copy(
    source: str, folder: str, by: Sequence[str], columns: Sequence[str] | None = None, codec: str = "zstd"
) -> dict[str, int]:
    """Writes the rows of Parquet files z-ordered by some columns; the files before that are removed."""
    batches = ds.dataset(source, format="parquet").scanner(columns=list(columns) if columns else None)
    written = WriterProperties(compression=codec.upper())
    write_deltalake(folder, batches.to_reader(), mode="overwrite", writer_properties=written)
    table = DeltaTable(folder)
    table.optimize.z_order(list(by), writer_properties=written, max_concurrent_tasks=2)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    return weight(Path(folder))


def keys(path: str) -> dict[str, int]:
    """Takes keys (column ``id``) into memory, in the order of the file."""
    _session["keys"] = pq.read_table(path, columns=["id"])["id"].combine_chunks()
    return {"rows": len(_session["keys"])}


def many(folder: str, first: int, count: int) -> dict[str, Any]:
    """The rows of so many keys: PyArrow over the files that the log names."""
    asked = _session["keys"].slice(first, count)
    rows = _files(folder)
    begun = time.perf_counter()
    matches = rows.to_table(filter=ds.field("id").isin(asked))
    return {"seconds": time.perf_counter() - begun, "rows": matches.num_rows}


def one(folder: str, number: int) -> dict[str, Any]:
    """The row of one key, by its own engine."""
    return query(folder, f"SELECT * FROM t WHERE id = '{_session['keys'][number].as_py()}'")


def query(folder: str, sql: str, engine: str = "deltalake") -> dict[str, Any]:
    """Rows that a statement on ``t`` gives, by its own engine or by DuckDB; the table is loaded before."""
    table, files = _table(folder), _files(folder)
    begun = time.perf_counter()
    if engine == "duckdb":
        rows = duckdb.connect().register("t", files).execute(sql).to_arrow_table()
    else:
        rows = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
    return {"seconds": time.perf_counter() - begun, "rows": rows.num_rows}


def _table(folder: str) -> DeltaTable:
    if folder not in _session:
        _session[folder] = DeltaTable(folder)
    table: DeltaTable = _session[folder]
    return table


def _files(folder: str) -> Any:
    if (folder, "files") not in _session:
        _session[folder, "files"] = _table(folder).to_pyarrow_dataset()
    return _session[folder, "files"]


if __name__ == "__main__":
    serve({"copy": copy, "keys": keys, "many": many, "one": one, "query": query}, Path(__file__).with_suffix(".txt"))
