"""The readers that Spark is needed for, and what indexes keep in a log that handlers alone understand: a small share of
the search of ``test_log.py``, over the logs of tables that Spark has made."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import spark_apps.sql
from spark_apps import IncludedColumns, IndexedTable
from spark_apps.datasource import IndexedDataSource
from spark_apps.storage.errors import LakeIndexError
from tests.hostile.grammar import VALUES, Place, places, planted
from tests.hostile.test_log import ALL, seed
from tests.hostile.watching import Watch

pytestmark = pytest.mark.by_turn(16)

SCHEMA = "p string, id bigint, city string"
WHERE = "city = 'c1' AND id > 3"
HELD = ("properties", "extra", "options", "session")
"""Fields whose values only the code of an index or a source understands."""


def _rows(spark: Any, count: int) -> Any:
    return spark.createDataFrame([("ab"[n % 2], n, f"c{n % 3}") for n in range(count)], SCHEMA)


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keyed table and a source below one warehouse, with an index of each kind."""
    root = tmp_path_factory.mktemp("spark-readers")
    table = IndexedTable.create(spark, root / "lake" / "keyed", SCHEMA, ["id"], partition_by=["p"], buckets=1)
    table.upsert(_rows(spark, 12))
    table.create_index("rec", "record")
    table.create_index("sec", "secondary", ["city"])
    _rows(spark, 40).coalesce(1).write.parquet(str(root / "lake" / "source"))
    source = IndexedTable.register(spark, root / "lake" / "source")
    source.create_index("blocks", "compact", ["city"])
    source.create_index("cov", "covering", ["city"], included=IncludedColumns(include=["id"]))
    source.create_index("ordered", "covering", ["id"], properties={"layout": "ranges"})
    (root / "outside").mkdir()
    (root / "outside" / "rows").write_bytes(b"secret")
    return root


def _read(spark: Any, uri: str) -> None:
    IndexedTable.load(spark, uri).read(where=WHERE).collect()


def _verify(spark: Any, uri: str) -> None:
    table = IndexedTable.load(spark, uri)
    for name in table.indexes:
        table.verify(name)


def _explain(spark: Any, uri: str) -> None:
    str(IndexedTable.load(spark, uri).explain(where=WHERE))


def _statements(spark: Any, uri: str) -> None:
    table, warehouse = Path(uri).name, str(Path(uri).parent)
    index = "sec" if table == "keyed" else "cov"
    for text in (
        f"SHOW FORMATTED INDEXES ON {table}",
        f"DESCRIBE INDEX {index} ON {table}",
        f"SHOW INDEXES ON {table}",
    ):
        spark_apps.sql.run(spark, text, warehouse=warehouse)


def _source(_spark: Any, uri: str) -> None:
    source = IndexedDataSource({"path": uri, "where": WHERE})
    reader = source.reader(source.schema())
    for part in reader.partitions():
        for batch in reader.read(part):
            batch.to_pylist()


def _plain_query(spark: Any, uri: str) -> None:
    name = Path(uri).name
    spark_apps.enable(spark, sources=[uri] if name == "source" else ())
    try:
        if name == "source":
            spark.read.parquet(uri).where(WHERE).collect()
        else:
            IndexedTable.load(spark, uri).frame().where(WHERE).collect()
            spark_apps.enable(spark, warehouse=Path(uri).parents[1])
            spark.sql(f"SELECT * FROM lake.{name} WHERE {WHERE}").collect()
    finally:
        spark_apps.disable(spark)


READERS: dict[str, tuple[Callable[[Any, str], None], int]] = {
    "data source": (_source, 120),
    "load and explain": (_explain, 10),
    "statements": (_statements, 4),
    "read": (_read, 4),
    "plain query": (_plain_query, 4),
    "verify": (_verify, 2),
}
"""Each with how many bad values it is given, of which one in two stands in :data:`HELD`."""


FOUND: dict[str, tuple[tuple[Any, ...], ...]] = {
    "verify": (
        ("extra", "columns", "NaN"), ("extra", "columns", ["x"]), ("extra", "columns", []),
        ("fields", 1, "name", "town"), ("fields", 2, "name", "town"),
    )
}  # fmt: skip
"""Reader -> the ends of a place and a value that it failed on once: tried each time."""


def cases(logs: list[Path], reader: str, count: int, die: random.Random) -> Iterator[tuple[Path, Place, Any]]:
    every = [(log, place) for log in logs for place in places(json.loads(log.read_bytes()))]
    for *end, value in FOUND.get(reader, ()):
        log, place = next((log, place) for log, place in every if list(place[-len(end) :]) == end)
        yield log, place, value
    held = [(log, place) for log, place in every if set(place) & set(HELD)]
    for number in range(count):
        log, place = die.choice(held if number % 2 else every)
        yield log, place, die.choice(VALUES)


@pytest.mark.parametrize("reader", READERS)
def test_given_a_log_of_an_index_with_a_bad_value_when_read_then_refused_or_harmless(
    spark: Any, made: Path, tmp_path: Path, reader: str
) -> None:
    read, count = READERS[reader]
    die, wrong = random.Random(seed()), []
    logs = sorted(made.rglob("_index/timeline/*.json"))
    uris = [str(made / "lake" / name) for name in ("keyed", "source")]
    for uri in uris:
        read(spark, uri)  # as it should be
    watch = Watch(made / "lake", [made / "outside"])
    shutil.copytree(made / "lake", tmp_path / "lake")
    for log, place, value in cases(logs, reader, count * (20 if ALL else 1), die):
        uri = uris["_indexes" in log.parts]
        body = log.read_bytes()
        try:
            log.write_bytes(msgspec.json.encode(planted(json.loads(body), place, value)))
        except (msgspec.EncodeError, OverflowError):
            continue
        fault = ""
        try:
            with watch.on():
                read(spark, uri)
        except LakeIndexError as error:
            fault = "" if str(made) in str(error) or type(error).__name__ != "LogDamaged" else f"no table: {error}"
        except Exception as error:  # noqa: BLE001 - what must not be
            fault = f"{type(error).__name__}: {error!s:.300}"
        finally:
            log.write_bytes(body)
        if reader == "data source" and watch.seen:  # Spark itself talks to its own process
            fault = f"touched {watch.seen[:3]}"
        if fault:
            wrong.append(
                f"{log.parent.parent.parent.name} {log.stem[-2:]} {'.'.join(map(str, place))} = {value!r:.60}: {fault}"
            )
    watch.close()
    assert not wrong, f"seed {seed()}: " + "\n".join(wrong[:30])
