"""Small sources for tests, written by others' libraries, and what proves that nobody else wrote to them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

CITIES = ("rome", "oslo", "lima")


def people(first: int, count: int, city: str | None = None) -> pa.Table:
    """Rows (id, city, note) with ids from ``first`` on; the city, if not given, goes round."""
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array([city or CITIES[n % 3] for n in ids], pa.string()),
            "note": pa.array([None if n % 5 == 0 else f"note {n}" for n in ids], pa.string()),
        }
    )


def write(path: Path, rows: pa.Table) -> Path:
    """A Parquet file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return path


def digest(folder: Path) -> str:
    """Names, bytes and times of everything below a folder."""
    hasher = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        hasher.update(f"{path.relative_to(folder)}\0{status.st_mtime_ns}\0".encode())
        hasher.update(path.read_bytes() if path.is_file() else b"")
    return hasher.hexdigest()


def rows_of(frame: DataFrame | Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset."""
    rows = frame.collect() if isinstance(frame, DataFrame) else frame
    return Counter(tuple(row) for row in rows)


def arrow_rows(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows of an Arrow table as a multiset; times as Spark shows them in UTC."""
    columns = [[_naive(value) for value in column.to_pylist()] for column in rows.columns]
    return Counter(zip(*columns, strict=True)) if rows.num_rows else Counter()


def _naive(value: Any) -> Any:
    return value.astimezone(dt.UTC).replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
