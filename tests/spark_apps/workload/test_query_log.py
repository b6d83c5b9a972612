"""The query log: what is written is read again, it stays within its bounds, and its failures hurt nobody."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_apps.storage.errors import InvalidInput, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.workload import query_log
from spark_apps.workload.asked import AskedQuery
from spark_apps.workload.query_log import FOLDER, LogSettings, QueryLog, erase, log_settings, read_log
from tests.airflow_provider_index.operators.plain_table import make_table

ON = LogSettings(share=1.0)


def line(number: int = 0, table: str = "t", **more: Any) -> bytes:
    where = f"city = 'c{number}'"
    return AskedQuery(table=table, asked=datetime.now(UTC), predicate=where, shape="city = ?", **more).to_document()


def objects(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*"))


@pytest.fixture
def log() -> Iterator[QueryLog]:
    made = QueryLog(linger=0.01, interval=0.01)
    yield made
    made.flush()


def test_given_lines_when_written_then_they_are_read_again_from_one_object_a_process(
    log: QueryLog, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    assert not read_log(store)
    for number in range(30):
        log.add(store, ON, line(number, weight=2.0))
        if number % 10 == 0:
            log.flush()
    log.flush()
    asked = read_log(store)
    assert (asked.lines, asked.weight, asked.refused) == (30, 60.0, {})
    assert [group.shape.table for group in asked] == [store.uri]
    assert len(objects(tmp_path)) == 1


def test_given_more_than_it_may_hold_when_written_then_the_oldest_go(
    log: QueryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_log, "MAX_OBJECT_BYTES", 2_000)
    store, bounded = Store(tmp_path), LogSettings(1.0, days=2, bytes=20_000)
    now = datetime.now(UTC)
    for days in (1, 3):
        name = f"{now - timedelta(days=days):%Y%m%dT%H%M%S}-{'0' * 16}.jsonl"
        store.put(f"{FOLDER}/{name}", line(days))
    store.put(f"{FOLDER}/of-others.txt", b"stays")
    log.add(store, bounded, line())
    log.flush()
    kept = [path.name for path in objects(tmp_path)]
    assert f"{now - timedelta(days=1):%Y%m%d}" in kept[0] and len(kept) == 3
    for number in range(400):
        log.add(store, bounded, line(number))
        if number % 10 == 0:
            log.flush()
    log.flush()
    assert 10_000 < sum(path.stat().st_size for path in objects(tmp_path)) <= 20_000 + 3 * 2_000
    assert (tmp_path / FOLDER / "of-others.txt").exists()
    newest = [predicate for group in read_log(store) for predicate in group.predicates]
    assert "city = 'c399'" in newest or read_log(store).lines > 16


class Failing(Store):
    """A store that takes no object."""

    def put(self, key: str, data: bytes) -> None:
        raise StorageUnavailable("The store is full.")


def test_given_a_store_that_fails_when_written_then_one_warning_tells_and_it_is_tried_again_later(
    log: QueryLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path)
    for number in range(5):
        log.add(failing, ON, line(number))
        log.flush()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "queries go on without it" in caplog.text and "full" in caplog.text
    monkeypatch.setattr(query_log, "_RETRY_SECONDS", 0.0)
    log._logs[failing.uri].paused_until = 0.0
    log.add(Store(tmp_path), ON, line(7))
    log.flush()
    assert read_log(Store(tmp_path)).lines >= 1


def test_given_a_store_that_does_not_answer_when_queries_go_on_then_none_waits_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    class Slow(Store):
        def put(self, key: str, data: bytes) -> None:
            answers.wait(30)
            super().put(key, data)

    monkeypatch.setattr(query_log, "MAX_WAITING_BYTES", 50_000)
    log, store, longest = QueryLog(linger=0.0, interval=0.0), Slow(tmp_path), 0.0
    for number in range(2_000):
        began = time.perf_counter()
        log.add(store, ON, line(number))
        longest = max(longest, time.perf_counter() - began)
    assert longest < 1.0  # a call to the store takes thirty seconds
    assert log._logs[store.uri].waiting_bytes <= 50_000
    answers.set()
    log.flush()
    assert 0 < read_log(store).lines < 2_000


def test_given_a_process_that_ends_or_was_forked_then_its_lines_are_there_once(tmp_path: Path) -> None:
    program = (
        "import atexit, os, sys\nfrom spark_apps.storage.store import Store\n"
        "from spark_apps.workload import query_log as q\n"
        "from tests.spark_apps.workload.test_query_log import line\n"
        "q.QUERY_LOG.add(Store(sys.argv[1]), q.LogSettings(1.0), line(1, asked_by=q.asker()))\n"
        "if os.fork() == 0:\n"  # as Airflow runs a task: what is registered from here on is done at its end
        "    atexit._clear()\n"
        "    q.QUERY_LOG.add(Store(sys.argv[1]), q.LogSettings(1.0), line(2, asked_by='child'))\n"
        "    atexit._run_exitfuncs()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    environment = {"AIRFLOW_CTX_DAG_ID": "trips", "AIRFLOW_CTX_TASK_ID": "daily", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, env=environment, timeout=60)
    [group] = read_log(Store(tmp_path))
    assert group.asked_by == {"trips.daily": 1.0, "child": 1.0}


def test_given_a_log_that_was_erased_when_a_process_goes_on_then_it_writes_its_new_lines_alone(
    log: QueryLog, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    for number in range(3):
        log.add(store, ON, line(number))
        log.flush()
    assert erase(store) == 1 and not objects(tmp_path)

    log.add(store, ON, line(7))
    log.flush()

    assert [b"c7" in path.read_bytes() and b"c0" not in path.read_bytes() for path in objects(tmp_path)] == [True]
    assert read_log(store).lines == 1


def test_given_a_log_that_others_wrote_to_when_read_then_what_is_no_line_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "t")
    key = f"{FOLDER}/20260101T000000-{{:016x}}.jsonl"
    bad = b"\n".join([line(1), b"{", b"\xff\xfe", b"[" * 5_000, line(2)[:-9], b"x" * (2 << 20), b"", line(3, "/other")])
    store.put(key.format(1), bad)
    store.put(key.format(2), b"\n" * (8 << 20))
    store.put(f"{FOLDER}/../odd.json".replace("../", "x/"), line(4))
    (tmp_path / "secret").write_bytes(line(5))
    (tmp_path / "t" / key.format(3)).symlink_to(tmp_path / "secret")
    asked = read_log(store)
    assert asked.lines == 2 and {group.shape.table for group in asked} == {store.uri}
    assert asked.refused == {
        "a damaged line": 4, "a line that is too long": 1, "an object that is no part of the log": 1,
        "an object that cannot be read": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    "properties",
    [
        {"query_log": "maybe"}, {"query_log": "sampled", "query_log.sample": "0"}, {"query_log.sample": "2"},
        {"query_log.sample": "nan"}, {"query_log.literals": "no"}, {"query_log.retention_days": "0"},
        {"query_log.retention_days": "-1"}, {"query_log.max_bytes": "much"}, {"query_log.sampel": "0.1"},
    ],
)  # fmt: skip
def test_given_a_property_that_is_none_when_checked_then_it_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="query_log"):
        log_settings(properties)


def test_settings_are_those_of_the_properties() -> None:
    assert log_settings({}).share == log_settings({"query_log": "off"}).share == 0.0
    assert log_settings({"query_log": "ON"}) == LogSettings(1.0)
    given = {"query_log": "sampled", "query_log.sample": "0.25", "query_log.literals": "false",
             "query_log.retention_days": "7", "query_log.max_bytes": "5MB"}  # fmt: skip
    assert log_settings(given) == LogSettings(0.25, False, 7, 5_000_000)
    log = QueryLog()
    drawn = sum(log.drawn(log_settings(given)) for _ in range(4_000))
    assert 800 < drawn < 1_200
    assert not log.drawn(LogSettings()) and log.drawn(ON)


def test_given_a_table_with_a_log_when_asked_from_a_shell_then_it_tells_what_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spark_apps.cli.app import run

    make_table(tmp_path / "t")
    assert run(["asked", str(tmp_path / "t"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 0
    Store(tmp_path / "t").put(f"{FOLDER}/20260101T000000-{'0' * 16}.jsonl", line(4, used=(("by_city", "secondary"),)))
    assert run(["asked", str(tmp_path / "t")]) == 0
    told = capsys.readouterr().out
    assert "city = ?" in told and "by_city" in told and "c4" not in told
