"""A table opened on a store that is slow, refuses for a while, or gives half of what was asked for: its rows, or an
error that names the file; never other rows."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps.storage import store as storage
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store
from tests.compatibility.lake import EXPECTED, unpack
from tests.compatibility.values import plain
from tests.simulation.poor_s3 import AWAY, BUSY, CUT, HALF, SLOW, poor_s3
from tests.simulation.s3 import BUCKET, s3_server

pytestmark = [pytest.mark.servers, pytest.mark.by_turn(12)]

URI = f"s3://{BUCKET}/trips"
ROWS = EXPECTED["tables"]["trips"]["rows"]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    lake = unpack(tmp_path_factory.mktemp("lake"))
    with s3_server() as options:
        store = Store(URI, options)
        for path in sorted((lake / "trips").rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                store.put(path.relative_to(lake / "trips").as_posix(), path.read_bytes())
        yield options


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of the store tries again twice, at once, instead of for three minutes."""
    backoff = {"init_backoff": dt.timedelta(milliseconds=5), "max_backoff": dt.timedelta(milliseconds=10), "base": 2}
    retries = {"max_retries": 2, "retry_timeout": dt.timedelta(seconds=5), "backoff": backoff}
    monkeypatch.setattr(storage, "from_url", partial(storage.from_url, retry_config=retries))


def in_order(rows: Any) -> list[Any]:
    return sorted((plain(row) for row in rows), key=lambda row: repr(sorted(row.items())))


@pytest.mark.parametrize("fault", [SLOW, BUSY])
def test_given_a_store_that_answers_late_or_refuses_for_a_while_then_the_rows_are_all_there(
    s3: dict[str, str], impatient: None, fault: str
) -> None:
    with poor_s3(s3, fault) as options:
        table = spark_apps.open_table(URI, options=options)
        assert in_order(table.read().to_pylist()) == in_order(ROWS)
        assert in_order(table.lookup([3, 5]).to_pylist()) == in_order(row for row in ROWS if row["id"] in (3, 5))


@pytest.mark.parametrize("fault", [AWAY, HALF, CUT])
def test_given_a_store_that_gives_no_more_than_half_of_a_file_then_the_error_names_it_and_no_rows_come(
    s3: dict[str, str], impatient: None, fault: str
) -> None:
    with poor_s3(s3, fault) as options:
        table, begun = spark_apps.open_table(URI, options=options), time.monotonic()
        names = {Path(file.path).name for file in table.snapshot.state.files("data")}
        for ask in (table.read, lambda: table.read("id = 3"), lambda: table.lookup([3]), lambda: list(table.batches())):
            with pytest.raises(StorageError) as refused:
                ask()
            assert any(name in str(refused.value) for name in names), refused.value
        assert time.monotonic() - begun < 30


def test_given_a_store_that_does_not_answer_in_time_then_the_reader_does_not_wait_for_ever(
    s3: dict[str, str], impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spark_apps.open_table(URI, options=s3)
    monkeypatch.setattr("tests.simulation.poor_s3._SLOW_SECONDS", 3.0)
    with poor_s3(s3, SLOW) as options:
        begun = time.monotonic()
        with pytest.raises(StorageError):
            spark_apps.open_table(URI, options={**options, "timeout": "200ms"})
        assert time.monotonic() - begun < 10
    assert table.read().num_rows == len(ROWS)
