"""Advice on a real scheduler: what the person sees who is to approve it, the index that is built, and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spark_apps.storage.store import Store
from spark_apps.workload.asked import AskedQuery
from spark_apps.workload.query_log import FOLDER
from tests.airflow.lake import Lake
from tests.airflow.test_killing import wait_until
from tests.compatibility.lake import unpack

pytestmark = pytest.mark.heavy

EXAMPLES = ("maintenance",)


def test_given_an_approval_then_the_index_is_built_measured_and_taken_back_for_it_spared_nothing(lake: Lake) -> None:
    folder = lake.warehouse / "advised"
    folder.mkdir()
    unpack(folder)
    store, now = Store(folder / "trips"), datetime.now(UTC)
    # Its queries come after the index, and none of them uses it.
    asked = AskedQuery(
        table=store.uri, asked=now + timedelta(hours=1), predicate="tip = 1.5", shape="tip = ?", weight=10_000.0
    )
    store.put(f"{FOLDER}/{now:%Y%m%dT%H%M%S}-{'0' * 16}.jsonl", asked.to_document() + b"\n")
    timeline = lake.timeline("advised/trips")
    version = timeline.head.version

    run_id = lake.run_until_asked("index_advice", {"table": "advised.trips", "measure_after_days": 0})
    form = lake.client.asked("index_advice", run_id, "approve")
    assert form["subject"] == "Change the indexes of this table?" and "advised.trips" in form["body"]
    assert "CREATE INDEX" in form["body"] and "█" in form["body"] and "10,000 queries" in form["body"]
    assert lake.client.xcom("index_advice", run_id, "advise", "svg").startswith("<svg")
    assert timeline.refresh().version == version

    lake.client.answer("index_advice", run_id, "approve", "Approve")
    report = lake.client.wait("index_advice", run_id, timeout=600)
    assert report.state == "success", lake.client.describe(report)
    [judged] = lake.client.xcom("index_advice", run_id, "measure", "judged")
    assert (judged["measured_a_day"], judged["verdict"]) == (0, "taken back") and judged["promised_a_day"] > 0
    timeline.refresh()
    operations = [commit.operation for commit in timeline.commits(after=version)]
    assert operations[-2:] == ["create_index", "drop_index"]  # others, which spare nothing, were dropped before
    assert judged["index"] not in timeline.head.indexes


def test_given_a_week_then_a_report_on_the_tables_is_mailed_once_the_task_has_succeeded(lake: Lake) -> None:
    folder = lake.warehouse / "reported"
    folder.mkdir()
    unpack(folder)

    lake.run("weekly_report", {"tables": ["reported.*"], "to": "ann@example.org"})

    # The notifier runs once the task's success is known.
    assert wait_until(lambda: any(one["To"] == "ann@example.org" for one in lake.mailbox.messages), 60)
    [message] = [one for one in lake.mailbox.messages if one["To"] == "ann@example.org"]
    body = message.get_body(("html",))
    assert body is not None and "reported.trips" in body.get_content()
