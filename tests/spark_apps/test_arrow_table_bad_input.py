"""Tables whose log is damaged or newer, that change while they are read, and keys that are none, or very many."""

from __future__ import annotations

import datetime as dt
import json
import random
import resource
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_apps
from spark_apps.storage.errors import (
    InvalidSchema,
    LogDamaged,
    NewerFormat,
    SnapshotExpired,
    StorageError,
    TableNotFound,
)
from spark_apps.timeline import cleaning
from spark_apps.timeline.log import commit_key
from tests.spark_apps.timeline.plain_rows import PlainRows


@pytest.fixture
def table(tmp_path: Path) -> PlainRows:
    rng = random.Random(1)
    table = PlainRows(tmp_path / "t", partitioned=False, properties={})
    for first in (0, 20):
        table.write("insert", None, [table.row(n, None, rng) for n in range(first, first + 20)])
    table.write("upsert", None, [table.row(n, None, rng) for n in (3, 4)], [5])
    return table


def rows(opened: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in opened.read().to_pylist()), key=repr)


def test_given_a_log_with_a_damaged_commit_then_it_is_refused_by_its_name(table: PlainRows) -> None:
    path = Path(table.store.uri) / commit_key(2)
    whole = path.read_bytes()
    for body in (b"", whole[:-9], b"[]", whole.replace(b'"version":2', b'"version":7')):
        path.write_bytes(body)
        with pytest.raises(LogDamaged, match="ersion 2 "):
            spark_apps.open_table(table.store.uri)
    path.write_bytes(json.dumps({"format": 9, "version": 2, "news": 1}).encode())
    with pytest.raises(NewerFormat, match=r"format 9; this package reads up to format 2.*Install a newer"):
        spark_apps.open_table(table.store.uri)
    path.unlink()
    with pytest.raises(LogDamaged):
        spark_apps.open_table(table.store.uri)
    path.write_bytes(whole)
    assert rows(spark_apps.open_table(table.store.uri)) == table.expected(3)
    for neither in (Path(table.store.uri).parent / "nothing", Path(table.store.uri) / "data"):
        with pytest.raises(TableNotFound):
            spark_apps.open_table(neither)


def test_given_a_version_that_expires_while_it_is_read_then_the_file_that_is_gone_is_named(table: PlainRows) -> None:
    opened = spark_apps.open_table(table.store.uri)
    reader = opened.batches()
    first = reader.read_next_batch()
    table.fold()
    cleaning.clean(table.log, retain_versions=1, retain_seconds=0, presumed_dead_seconds=0)

    assert 0 < first.num_rows < len(table.rows)
    with pytest.raises(StorageError, match=r"is gone.*Load the table again"):
        reader.read_all()
    with pytest.raises(SnapshotExpired):
        spark_apps.open_table(table.store.uri, version=opened.version)
    assert rows(spark_apps.open_table(table.store.uri)) == table.expected(4)


def test_given_keys_of_another_type_then_they_are_refused_or_are_the_same_number(table: PlainRows) -> None:
    opened = spark_apps.open_table(table.store.uri)
    for none in (
        ["3"],
        [3.5],
        [dt.date(2024, 1, 1)],
        [b"3"],
        [(3, 4)],
        [True],
        [2**70],
        [Decimal(3)],
        pa.array(["3"]),
        pa.array([3.5]),
    ):
        with pytest.raises(InvalidSchema):
            opened.lookup(none)
    for same in ([3], pa.array([3], pa.int8()), pa.array([3], pa.uint64()), pa.table({"id": [3]}), [None, 3], {3}):
        assert opened.lookup(same)["id"].to_pylist() == [3], same
    with pytest.raises(InvalidSchema):
        opened.lookup(pa.table({"other": [3]}))


MANY = """
import resource, sys, time
import pyarrow as pa
import spark_apps
table = spark_apps.open_table(sys.argv[1])
keys = pa.array(range(-5_000_000, 5_000_000), pa.int64())
before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
found = table.lookup(keys, ["id"])
print(found.num_rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, time.monotonic() - begun)
"""


@pytest.mark.by_turn(16)
def test_given_ten_million_keys_then_all_rows_are_found_within_bounded_memory(table: PlainRows) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY, table.store.uri], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, mebibytes, _ = done.stdout.split()
    assert int(count) == len(table.rows)
    # The keys themselves take 76 MiB, and a table of hashes of them several times that.
    assert int(mebibytes) < 1_000, done.stdout
