"""The rescale by hand on a real scheduler: what the person sees who is to approve it, a reject, and an approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_apps.timeline.model import DATA_TREE
from tests.airflow.lake import Lake
from tests.airflow.tables import make

pytestmark = pytest.mark.heavy

EXAMPLES = ("maintenance",)


@pytest.fixture(scope="module")
def lines(lake: Lake) -> Path:
    for name in ("kept", "rescaled"):
        make(lake.warehouse / "lines" / name, 1)
    return lake.warehouse / "lines"


def asked(lake: Lake, table: str) -> str:
    """A run that has come to wait for a person."""
    return lake.run_until_asked("rescale_by_hand", {"table": table, "expressions": "dt=d1,4", "partitions": ["dt=d1"]})


def test_given_a_reject_when_the_run_ends_then_no_commit_was_made_and_no_window_opened(lake: Lake, lines: Path) -> None:
    before = sorted(path for path in (lines / "kept").rglob("*") if path.is_file())
    run_id = asked(lake, "lines.kept")
    form = lake.client.asked("rescale_by_hand", run_id, "approve")
    assert form["subject"] == "Rescale this table?" and form["options"] == ["Approve", "Reject"]
    assert form["body"].startswith("`lines.kept`")
    assert "before     1 buckets" in form["body"] and "after      4 buckets" in form["body"] and "█" in form["body"]
    assert lake.client.xcom("rescale_by_hand", run_id, "preview", "svg").startswith("<svg")

    lake.client.answer("rescale_by_hand", run_id, "approve", "Reject")
    report = lake.client.wait("rescale_by_hand", run_id, timeout=600)
    assert report.state == "success"
    assert {state for task, state in report.tasks.items() if task.startswith("quiet.")} == {"skipped"}
    assert sorted(path for path in (lines / "kept").rglob("*") if path.is_file()) == before


def test_given_an_approval_when_the_run_ends_then_the_partition_has_its_count_the_rows_stayed_and_the_window_is_closed(
    lake: Lake, lines: Path
) -> None:
    run_id = asked(lake, "lines.rescaled")
    timeline = lake.timeline("lines/rescaled")
    assert not timeline.head.windows  # nothing waits for a person while writers are kept out
    version = timeline.head.version

    lake.client.answer("rescale_by_hand", run_id, "approve", "Approve")
    report = lake.client.wait("rescale_by_hand", run_id, timeout=400)
    assert report.state == "success", lake.client.describe(report)
    timeline.refresh()
    assert [commit.operation for commit in timeline.commits(after=version)] == [
        "open_window",
        "rescale",
        "close_window",
    ]
    assert {path: entry.buckets for path, entry in timeline.head.partitions.items()} == {"dt=d0": 1, "dt=d1": 4}
    moved = timeline.head.files(DATA_TREE, "dt=d1")
    assert {file.kind for file in moved} == {"base"} and sum(file.rows for file in moved) == 20
