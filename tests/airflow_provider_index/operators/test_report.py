"""The report on tables, and the mail that Airflow's own notifier makes of it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.operators import ReportTablesOperator
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.windows import open_window
from tests.airflow_provider_index.ui import lakes
from tests.mail import mailbox

DAY = 86_400.0
LOGGED = {"query_log": "on"}
SECRET = "the-secret-of-the-lake"


class Pushed(dict[str, Any]):
    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self[key]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    extra = {"warehouse": str(tmp_path), "storage_options": {"aws_secret_access_key": SECRET}}
    connection = {"conn_type": "index_table_store", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    return tmp_path


def report(*tables: str) -> tuple[list[dict[str, Any]], Pushed]:
    pushed = Pushed()
    operator = ReportTablesOperator(task_id="report", tables=tables, table_conn_id="lake")
    return operator.execute({"ti": pushed}), pushed


def test_given_tables_then_those_to_look_at_come_first_each_with_what_its_indexes_were_worth(lake: Path) -> None:
    clock = lakes.Clock(time.time() - 3 * DAY)
    asked = lakes.make(lake / "sales" / "asked", indexes=(lakes.BY_KEY, lakes.BY_CITY), clock=clock, properties=LOGGED)
    lakes.write(asked, "dt=1", [24 * lakes.MB], maintained=(lakes.BY_CITY, lakes.BY_KEY))
    used, spared = (("by_city", "secondary"),), {"by_city": 1000 * lakes.MB}
    lakes.asked(asked, time.time() - DAY, weight=30.0, used=used, spared=spared)
    lakes.asked(asked, time.time(), weight=12.0, unused=(("by_city", "secondary", "<i>no_gain</i>"),))
    open_window(lakes.make(lake / "sales" / "quiet", clock=clock), "<b>ann's</b> {{ 6 * 7 }}", seconds=60)
    lakes.make(lake / "other" / "left")
    lakes.make(lake / "sales" / "new", clock=clock)

    rows, pushed = report("sales.*", "other.gone")

    assert [(row["name"], row["health"]["word"]) for row in rows] == [
        ("sales.quiet", "stopped"),
        ("sales.new", "empty"),
        ("sales.asked", "healthy"),
    ]
    assert rows[1]["health"]["reason"].startswith("It has no rows: the load that created it may have failed")
    [by_city, by_key] = rows[2]["indexes"]
    assert (by_city["name"], by_city["asked"], by_city["used"], by_city["spared"]) == ("by_city", 42, 30, 30e9)
    assert (by_key["name"], by_key["asked"]) == ("by_key", 0) and rows[2]["queries"] == 42
    html = pushed["html"]
    assert (
        "<td>&lt;i&gt;no_gain&lt;/i&gt;</td>" in html
        and "&lt;b&gt;ann&#39;s&lt;/b&gt; {{ 6 * 7 }}" in html
        and "<b>" not in html
    )
    assert re.search(r'<td align="right">42</td><td align="right">30</td><td align="right">30.0 GB</td>', html)
    text = pushed["text"]
    assert text.startswith(
        "*3 tables: 2 need a look, 1 could not be looked at.* Their indexes saved queries 30.0 GB.\n"
    )
    assert "window of &lt;b&gt;ann's&lt;/b&gt; {{ 6 * 7 }} is " in text
    assert (
        "• `by_city` (secondary), " in text
        and ": asked by 42, used by 30, saved 30.0 GB; not used for &lt;i&gt;" in text
    )
    assert "Not looked at: other.gone. " in text and "other.left" not in text + html


def test_given_a_query_log_that_cannot_be_read_or_none_then_the_report_says_which(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.make(lake / "a" / "none", indexes=(lakes.BY_CITY,))
    lakes.make(lake / "a" / "off", indexes=(lakes.BY_CITY,), properties=LOGGED)

    def fails(*_: object) -> None:
        raise StorageUnavailable(f"The store does not take {SECRET}.")

    monkeypatch.setattr("spark_apps.workload.worth.read_log", lambda *_, **__: fails())
    rows, pushed = report("a.*")

    remarks = {row["name"]: row["remark"] for row in rows}
    assert remarks["a.none"].startswith("It keeps no query log")
    assert remarks["a.off"] == "Its query log cannot be read. The store does not take ***."
    assert "Asked" in pushed["html"] and "asked by" not in pushed["text"] and SECRET not in str(pushed)


def test_given_a_table_that_fails_unforeseen_then_it_is_named_without_secrets_and_no_other_is_left_out(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.make(lake / "a" / "one")
    lakes.make(lake / "a" / "two")
    load = Timeline.load

    def fails(store: Any, *more: Any, **options: Any) -> Timeline:
        if store.uri.rstrip("/").endswith("one"):
            raise ValueError(f"bad luck with {SECRET}")
        return load(store, *more, **options)

    monkeypatch.setattr("airflow_provider_index.maintenance.report.Timeline.load", fails)
    rows, pushed = report("a.*")

    assert [row["name"] for row in rows] == ["a.two"]
    assert "Not looked at: a.one. ValueError: bad luck with ***" in pushed["text"]
    assert "<li>a.one: ValueError: bad luck with ***</li>" in pushed["html"]


def test_given_no_table_then_it_says_what_to_name(lake: Path) -> None:
    with pytest.raises(AirflowFailException, match="List at least one table"):
        report()


def test_the_report_is_sent_by_airflow_s_own_notifier(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team")
    # What a log says is no template, whoever reads it.
    open_window(lakes.make(lake / "sales" / "orders", indexes=(lakes.BY_CITY,)), "{{ 6 * 7 }}", seconds=0.001)
    time.sleep(0.01)
    _, pushed = report("sales.orders")

    with mailbox() as box:
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(box.connection))
        SmtpNotifier(
            from_email="airflow@example.org",
            to="lake@example.org",
            subject="Lake tables",
            html_content="{{ ti.xcom_pull(task_ids='report', key='html') }}",
        )({"ti": pushed})

    [message] = box.messages
    body = message.get_body(("html",))
    assert message["Subject"] == "Lake tables" and body is not None
    assert '<a href="https://airflow.example/team/lakeindex/tables?table=' in body.get_content()
    assert "sales.orders</a>: stopped" in body.get_content() and "window of {{ 6 * 7 }} is " in body.get_content()
