"""After each step of random histories, engines that know nothing of this package read the rows that were published."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.peers import Peer, environment
from spark_apps.timeline.delta import checkpoints as delta_checkpoints
from spark_apps.timeline.delta.publishing import published, rewrite_log
from spark_apps.timeline.model import Field
from tests.spark_apps.timeline.plain_rows import PARTITIONS, PlainRows

pytestmark = pytest.mark.heavy

READ = ("duckdb", "polars-deltalake", "deltalake")
DECLINED = {"polars": ("column mapping", "reader features", "Hive schema")}
"""Engines that read a part of what is published, and say so of the rest."""


@pytest.fixture(scope="module")
def readers() -> Iterator[Peer]:
    python = environment("foreign", Path(__file__).with_name("readers.txt"))
    with Peer("foreign", module="tests.foreign.readers", python=python) as started:
        yield started


def texts(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(tuple(v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for v in row)) for row in rows)


def step(table: PlainRows, number: int, rng: random.Random) -> None:
    """One step of a history, of rows, files or columns."""
    partition = rng.choice(PARTITIONS) if table.partition_by else None
    there = [key for where, key in table.rows if where == partition]
    some = rng.sample(there, min(len(there), rng.randint(0, 4)))
    fresh = [1000 * number + key for key in range(rng.randint(1, 9))]
    kind = rng.choice(["insert", "upsert", "upsert", "delete", "compact", "restore", "add", "rename", "rewrite"])
    if kind == "insert":
        table.write("insert", partition, [table.row(key, partition, rng) for key in fresh])
    elif kind == "upsert":
        table.write("upsert", partition, [table.row(key, partition, rng) for key in [*some, *fresh]])
    elif kind == "delete" and some:
        table.write("delete", partition, [], some)
    elif kind == "compact":
        table.fold()
    elif kind == "restore":
        table.restore(rng.choice(list(table.versions)))
    elif kind == "add":
        table.define(fields=(*table.table.fields, Field(f"c{number}", "bigint")))
    elif kind == "rewrite":
        rewrite_log(table.log)
    elif kind == "rename" and not table.partition_by:
        renamed = [replace(f, name=f"r{number}", stored="name") if f.stored_name == "name" else f
                   for f in table.table.fields]  # fmt: skip
        table.define(fields=tuple(renamed))


@pytest.mark.parametrize("seed", range(8))
def test_given_a_random_history_then_each_engine_reads_what_is_published(
    readers: Peer, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_checkpoints, "EVERY", 3)
    rng, tally = random.Random(seed), Counter[str]()
    table = PlainRows(tmp_path, partitioned=bool(seed & 1), positions=bool(seed & 2))
    for number in range(10):
        step(table, number, rng)
        state = published(table.log)
        assert state is not None and state.version is not None
        expected = texts(table.expected(state.version))
        for engine in (*READ, *DECLINED):
            answer = readers("rows", folder=str(tmp_path), engine=engine).value
            if "declined" in answer:
                assert any(words in answer["declined"] for words in DECLINED.get(engine, ())), answer
            else:
                assert answer["rows"] == expected, engine
                tally[engine] += 1
        newest = texts(table.expected(table.log.head.version))
        assert readers("opened", folder=str(tmp_path)).value["rows"] == newest
    assert all(tally[engine] == 10 for engine in READ)
