"""Delta tables by ``deltalake``, an engine without Spark: made, merged into and counted.

Runs in the environment of the peer "delta".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.serve import serve

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

_CODEC = "ZSTD"


def make(table: str, folder: str, partition_by: Sequence[str] = ()) -> dict[str, Any]:
    """A table in the folder ``table`` of the rows of a folder of Parquet files."""
    from deltalake import write_deltalake

    write_deltalake(table, _rows(folder), partition_by=list(partition_by) or None, writer_properties=_properties())
    return _size(_open(table))


def merge(table: str, changes: str, on: Sequence[str]) -> dict[str, Any]:
    """MERGE of a folder of Parquet files: rows replace those that are equal in the columns ``on``, others are new."""
    target = _open(table)
    same = " AND ".join(f't."{name}" = s."{name}"' for name in on)
    begun = time.perf_counter()
    done = (
        target.merge(_rows(changes), same, source_alias="s", target_alias="t", writer_properties=_properties())
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    return {"seconds": time.perf_counter() - begun, "files": done["num_target_files_added"]}


def count(table: str, where: str = "true") -> dict[str, Any]:
    """How many rows a table has that satisfy a predicate."""
    return {"rows": _ask(table, f"SELECT count(*) AS found FROM t WHERE {where}")[0]["found"]}


def _ask(table: str, query: str) -> list[dict[str, Any]]:
    import pyarrow as pa
    from deltalake import QueryBuilder

    result = QueryBuilder().register("t", _open(table)).execute(query)
    return pa.table(result.read_all()).to_pylist()


def _rows(folder: str) -> Any:
    """The rows as a stream, so that memory does not decide."""
    import pyarrow.dataset as ds

    return ds.dataset(folder, format="parquet").scanner().to_reader()


def _open(table: str) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(table)


def _size(table: DeltaTable) -> dict[str, Any]:
    import pyarrow as pa

    sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    return {"files": len(sizes), "bytes": sum(sizes)}


def _properties() -> WriterProperties:
    from deltalake import WriterProperties

    return WriterProperties(compression=_CODEC)


if __name__ == "__main__":
    serve({"make": make, "merge": merge, "count": count}, Path(__file__).with_name("delta.txt"))
