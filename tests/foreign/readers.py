"""Reads a published table by each engine; DuckDB and its extension have to be of one release."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import duckdb_extension_delta
import polars
import polars_deltalake
import pyarrow as pa

from benchmarks.peers.serve import serve


@cache
def _duckdb() -> Any:
    """A session with the extension, which comes as a wheel."""
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    session.execute(f"LOAD '{extension}'")
    session.execute("SET TimeZone = 'UTC'")
    return session


def _by_duckdb(folder: str) -> pa.Table:
    answer = _duckdb().execute(f"SELECT * FROM delta_scan('{folder}')").arrow()
    return answer if isinstance(answer, pa.Table) else answer.read_all()


ENGINES: dict[str, Callable[[str], pa.Table]] = {
    "duckdb": _by_duckdb,
    "polars-deltalake": lambda folder: polars_deltalake.scan_delta(folder).collect().to_arrow(),
    "deltalake": lambda folder: pa.table(deltalake.DeltaTable(folder).scan()),
    "polars": lambda folder: polars.scan_delta(folder).collect().to_arrow(),
}


def rows(folder: str, engine: str) -> dict[str, Any]:
    """The rows of a table, each as text, in order; or the engine's own words where it declines."""
    try:
        table = ENGINES[engine](folder)
    except Exception as error:  # noqa: BLE001 - an engine that declines answers too
        return {"declined": f"{type(error).__name__}: {error}"[:300]}
    return {"rows": sorted(repr(tuple(_plain(value) for value in row.values())) for row in table.to_pylist())}


def opened(folder: str) -> dict[str, Any]:
    """The rows that ``open_table`` gives as a frame of Polars: all, and those of one key."""
    import spark_apps

    table = spark_apps.open_table(folder)
    frame = table.to_polars()
    assert isinstance(frame, polars.DataFrame) and frame.columns == table.schema.names
    one = table.to_polars("id >= 0 AND id < 1000", ["id"])
    assert one.schema == {"id": polars.Int64}
    ids = frame.filter((polars.col("id") >= 0) & (polars.col("id") < 1000))["id"]
    assert sorted(one["id"].to_list()) == sorted(ids.to_list())
    return {"rows": sorted(repr(tuple(_plain(value) for value in row)) for row in frame.rows())}


def matching(
    folder: str, engines: list[str], names: list[str], asked: list[dict[str, Any] | None]
) -> dict[str, list[dict[str, Any]]]:
    """What each engine answers to each question: the rows of a table, or those that satisfy a comparison."""
    return {engine: [_answer(folder, engine, names, one) for one in asked] for engine in engines}


def _answer(folder: str, engine: str, names: list[str], asked: dict[str, Any] | None) -> dict[str, Any]:
    """Rows, each as text, in order; or the engine's own words where it declines."""
    try:
        table = _matching(folder, engine, asked) if asked else ENGINES[engine](folder)
    except Exception as error:  # noqa: BLE001 - an engine that declines answers too
        return {"declined": f"{type(error).__name__}: {error}"[:300]}
    return {"rows": sorted(repr(tuple(_plain(row[name]) for name in names)) for row in table.to_pylist())}


def _matching(folder: str, engine: str, asked: dict[str, Any]) -> pa.Table:
    if engine == "duckdb":
        answer = _duckdb().execute(f"SELECT * FROM delta_scan('{folder}') WHERE {asked['duck']}").arrow()
        return answer if isinstance(answer, pa.Table) else answer.read_all()
    scanned = polars_deltalake.scan_delta(folder) if engine == "polars-deltalake" else polars.scan_delta(folder)
    column = polars.col(asked["name"])
    if asked["text"] is None:
        return scanned.filter(column.is_null()).collect().to_arrow()
    value = polars.lit(_value(asked["type"], asked["text"]))
    compare = {"=": column.eq, "<": column.lt, "<=": column.le, ">": column.gt, ">=": column.ge}[asked["operator"]]
    return scanned.filter(compare(value)).collect().to_arrow()


def _value(type: str, text: str) -> Any:
    """A value of a type as Spark names it, from its text."""
    if type.startswith("decimal"):
        return Decimal(text)
    kinds: dict[str, Callable[[str], Any]] = {
        "string": str, "boolean": lambda given: given == "True", "date": dt.date.fromisoformat,
        "timestamp": dt.datetime.fromisoformat,
    }  # fmt: skip
    return kinds.get(type, int)(text)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


if __name__ == "__main__":
    serve({"rows": rows, "matching": matching, "opened": opened}, Path(__file__).with_suffix(".txt"))
