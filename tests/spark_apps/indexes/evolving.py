"""A folder of files whose columns come and go, written without Spark, and the rows that a reader should see of it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from spark_apps.layout.hashing import bucket_id

ORDER = ("c0", "pad", "c1", "c2", "c3", "c4", "c5")
"""Columns in the order in which they came into being; a CSV file has those up to the last that it knows."""

_TYPES = {"c0": pa.int64(), "pad": pa.string(), "c1": pa.string(), "c2": pa.string(), "c3": pa.int64()}


def value(column: str, number: int) -> Any:
    """A row's value: numbers in c0, c3, c4, c5 (some null), texts in c1 and c2, and a long text that takes room,
    however it is compressed."""
    if column == "c0":
        return number
    if column == "pad":
        return "".join(hashlib.sha256(f"{number} {n}".encode()).hexdigest() for n in range(32))
    if column in ("c1", "c2"):
        return None if number % 7 == 3 else f"{column} of {number}"
    return None if number % 5 == 2 else number * 10 + int(column[1])


@dataclass
class Folder:
    """Files by name: (columns, numbers of the rows)."""

    path: Path
    form: str
    files: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = field(default_factory=dict)

    def write(self, name: str, columns: str, numbers: range | list[int]) -> None:
        """(Re)writes a file with ``columns`` (as "c0 c1") beside the padding."""
        names = tuple(name for name in ORDER if name == "pad" or name in columns.split())
        self.files[name] = (names, tuple(numbers))
        self.path.mkdir(parents=True, exist_ok=True)
        rows = [{column: value(column, number) for column in names} for number in numbers]
        target = self.path / f"{name}.{self.form}"
        before = target.stat().st_mtime_ns if target.exists() else None
        if self.form in ("parquet", "orc"):
            schema = pa.schema([(column, _TYPES.get(column, pa.int64())) for column in names])
            table = pa.Table.from_pylist(rows, schema)
            pq.write_table(table, target) if self.form == "parquet" else orc.write_table(table, target)
        elif self.form == "json":
            target.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            known = ORDER[: max(ORDER.index(column) for column in names) + 1]
            with target.open("w", newline="") as out:
                writer = csv.writer(out)
                writer.writerow(known)
                writer.writerows([row.get(column) for column in known] for row in rows)
        if before is not None and target.stat().st_mtime_ns == before:
            os.utime(target, ns=(before + 1_000_000, before + 1_000_000))

    def remove(self, name: str) -> None:
        del self.files[name]
        (self.path / f"{name}.{self.form}").unlink()

    def rows(self, columns: list[str], numbers: set[int] | None = None) -> list[tuple[Any, ...]]:
        """What a reader should see: null where a file lacks a column."""
        values = [
            tuple(value(column, number) if column in names else None for column in columns)
            for names, some in self.files.values()
            for number in some
            if numbers is None or number in numbers
        ]
        return sorted(values, key=repr)


def in_bucket(bucket: int, count: int, start: int) -> list[int]:
    """Numbers that an index over c0 with two buckets keeps in one of them."""
    keys: list[int] = []
    while len(keys) < count:
        if bucket_id((start,), 2, "xxhash64", ["bigint"]) == bucket:
            keys.append(start)
        start += 1
    return keys
