"""What stands in the folder of a job: whoever can write to the table's log can write there, and who waits for the job,
or cancels it, reads it with its own rights."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_provider_index.links import DriverLogLink, SparkUILink, web_address
from airflow_provider_index.reporting import Reporting
from airflow_provider_index.submission import JobWatch, Submission, cancel
from spark_apps.jobs.job import ErrorDocument, rebuild_error
from spark_apps.jobs.job_folder import BegunAttempt, JobFolder, JobHeartbeat, end_job
from spark_apps.storage.errors import JobFailed, LakeIndexError, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import locate
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.transactions import Transaction, begin

NO_LINKS = [
    "javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "data:text/html,<b>",
    "vbscript:x", "file:///etc/passwd", "//host/x", "/x", "http:host", "http://", "https:///x", "http://user:pw@host/",
    "http://host\n.evil", "http://host/<script>", 'http://host/"onload=', "http://host/'", "http://ho st/", "x" * 5000,
    "http://host:port/", "http://host:99999/", "http://[::1", "\x00http://host", "http://\u202ehost/", "ftp://h/",
    "http://host\u2028/", "http://@host", "HTTP://", "http://\u0430pple.com/",
]  # fmt: skip
LINKS = ["http://10.0.0.7:4040", "https://proxy/proxy/application_1_0001/", "http://[::1]:4040/jobs/?x=1&y=%20",
         "HTTPS://Host.example/a_b~c"]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Timeline:
    definition = TableDefinition("t", (Field("id", "bigint"),), ("id",))
    return create_table(Store(tmp_path / "wh/mine"), definition, [])[0]


def attempt(timeline: Timeline, txn_id: str) -> Transaction:
    return begin(timeline, operation="upsert", txn_id=txn_id)


@pytest.mark.parametrize("text", NO_LINKS)
def test_given_a_sign_of_life_whose_page_is_no_web_address_then_no_link_is_made_of_it(
    table: Timeline, text: str
) -> None:
    folder = JobFolder(table.store, "job")
    beat = JobHeartbeat(1.0, "at work", ui=text, history=text, log=text)
    folder.write_heartbeat(beat)
    watch = JobWatch(Submission("job", table.store.uri, "lake"), monotonic=iter(range(0, 10_000, 100)).__next__)
    watch._beat = ("seen",)

    line = watch.tend(folder)

    class Operator(Reporting):
        pass

    operator, pushed = Operator(), Pushed()
    operator.show_pages({"ti": pushed}, beat)
    operator.spark_ui_url = operator.spark_history_url = operator.driver_log_url = text
    assert watch.ui == "" and line == "at work" and pushed.values == []
    assert SparkUILink().get_link(operator, ti_key=None) == "" == web_address(text)
    assert DriverLogLink().get_link(operator, ti_key=None) == ""


class Pushed:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def xcom_push(self, key: str, value: Any) -> None:
        self.values.append(value)


@pytest.mark.parametrize("text", LINKS)
def test_given_spark_s_page_then_the_link_leads_there(text: str) -> None:
    assert web_address(text) == text


def test_given_a_phase_of_many_lines_and_control_characters_then_the_log_has_one_plain_line() -> None:
    beat = JobHeartbeat(1.0, "ok\n[2026-01-01] ERROR forged \x1b[31m\u202e" + "x" * 9999, 1, 2, "a\nb", 1e308, 1e308)
    line = beat.line()
    assert line.isprintable() and len(line) < 600
    assert JobHeartbeat(1.0, "p", 1, 2, seconds_left=-5.0).line() == "p: 1 of 2"


@pytest.mark.parametrize("where", ["{wh}/theirs", "{wh}/mine/../theirs", "{wh}/nothing", "{wh}-beside/at/all", "{wh}",
                                   "s3://bucket/t", "memory:///t", "", "file://{wh}/theirs", "{wh}/mine2"])  # fmt: skip
def test_given_a_note_that_names_another_log_then_whoever_cancels_neither_opens_nor_makes_it_and_ends_his_own(
    table: Timeline, tmp_path: Path, where: str
) -> None:
    definition = table.head.table
    theirs, beside = (create_table(Store(tmp_path / "wh" / name), definition, [])[0] for name in ("theirs", "mine2"))
    victims = [attempt(timeline, "t-1") for timeline in (theirs, beside)]
    own = attempt(table, "t-1")
    folder = JobFolder(table.store, "job")
    folder.note_attempt(BegunAttempt(where.format(wh=tmp_path / "wh"), "t-1", victims[0].attempt))
    folder.note_attempt(BegunAttempt(table.store.uri, "t-1", own.attempt))
    before = sorted(path for path in tmp_path.rglob("*") if table.store.uri not in str(path))
    opened: list[str] = []

    def open_log(uri: str) -> Store:
        opened.append(uri)
        return Store(uri)

    assert [held.log for held in end_job(folder, open_log, "killed")] == [table.store.uri]
    assert opened == [table.store.uri]
    assert not any(t.refresh().is_aborted("t-1", v.attempt) for t, v in zip((theirs, beside), victims, strict=True))
    assert sorted(path for path in tmp_path.rglob("*") if table.store.uri not in str(path)) == before


def test_given_a_note_that_cannot_be_read_then_the_others_are_ended_all_the_same(table: Timeline) -> None:
    own = attempt(table, "t-1")
    folder = JobFolder(table.store, "job")
    for number, body in enumerate((b"", b"{", b"[]", b'{"log": 7}', b"\xff\xfe", b'{"log":"x","txn_id":"y"}')):
        table.store.put(folder.key(f"attempt-{number}.json"), body)
    folder.note_attempt(BegunAttempt(table.store.uri, "t-1", own.attempt))

    cancel(Submission("job", table.store.uri, "lake"), {}, None, logging.getLogger(), "killed")

    assert folder.cancelled() == "killed" and table.refresh().is_aborted("t-1", own.attempt)


def test_given_a_job_of_statements_then_attempts_in_the_tables_that_they_name_are_ended_wherever_these_lie(
    table: Timeline, tmp_path: Path
) -> None:
    source = tmp_path / "raw/trips"
    beside = create_table(Store(locate(source).default_log()), table.head.table, [])[0]
    folder = JobFolder(Store(tmp_path / "warehouse"), "job")
    for timeline in (table, beside):
        folder.note_attempt(BegunAttempt(timeline.store.uri, "t-1", attempt(timeline, "t-1").attempt))
    tables = (table.store.uri, str(source))
    job = msgspec.convert(Submission("job", folder.store.uri, "lake", tables=tables).to_dict(), Submission)

    assert end_job(folder, Store, "killed") == []
    assert len(end_job(folder, Store, "killed", job.tables)) == 2


@pytest.mark.parametrize("kind", ["_CarriesReceipt", "Any", "annotations", "__name__", "SystemExit", "", "no.such"])
def test_given_an_answer_of_an_error_that_is_none_of_ours_then_it_is_told_as_a_failed_job(kind: str) -> None:
    error = rebuild_error(ErrorDocument(kind, "m"))
    assert type(error) is JobFailed and error.message == f"The Spark app failed with {kind}: m"


@pytest.mark.parametrize("kind", [LakeIndexError, TableNotFound, JobFailed])
def test_given_an_answer_of_an_error_of_ours_then_it_is_that_one_with_its_words(kind: type[LakeIndexError]) -> None:
    error = rebuild_error(ErrorDocument(kind.__name__, "m", outcome="o", hint="h"))
    assert (type(error), error.message, error.outcome, error.hint) == (kind, "m", "o", "h")
