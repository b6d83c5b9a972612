"""Everything that reads what others wrote into a table's folder, each as a call that a test can make.

``READERS`` is what the search of ``test_log.py`` plants bad values under. What opens a log or decodes a document, and
is run by none of these, makes ``test_readers.py`` fail unless ``ELSEWHERE`` says where it is held.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_index import conditions
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.maintenance import report
from airflow_provider_index.operators.windows import EndExpiredWindowsOperator
from airflow_provider_index.triggers import events
from airflow_provider_index.triggers import timeline as waiting
from airflow_provider_index.triggers.polling import load_watched
from airflow_provider_index.ui import details, overview
from airflow_provider_index.ui.tables import Lake, Readers, TableName
from spark_apps.datasource import IndexedDataSource
from spark_apps.indexes.lineage import Coverage
from spark_apps.jobs.job_folder import JobFolder, end_attempts
from spark_apps.maintenance import survey
from spark_apps.maintenance.policies import Policy, TableEntry
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning, restore, statistics, windows
from spark_apps.timeline.files import Positions
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.maintenance_records import read_done, read_last
from spark_apps.timeline.transactions import Transaction, begin, find_receipt, is_presumed_dead, live_requests, resume
from spark_apps.workload.query_log import read_log

CONNECTION = "hostile"
_HELPERS = Readers(2)


def everything(state: Any) -> None:
    """What the log alone says of a table."""
    if state.dropped:
        return
    statistics.table_statistics(state)
    statistics.partition_statistics(state)
    for file in state.file_set:
        Positions.of(file)
    for entry in state.indexes.values():
        Coverage.of(state.files(entry.definition.tree))


def read_manifests(store: Store) -> None:
    timeline = Timeline.load(store)
    for requested in live_requests(timeline):
        transaction = Transaction(timeline, requested, timeline.head)
        for stage in requested.stages:
            transaction.staged(stage)


def read_jobs(store: Store) -> None:
    folder = JobFolder(store, "j")
    for ask in (folder.attempts, folder.cancelled, folder.leased_until):
        ask()
    beat = folder.heartbeat()
    if beat is not None:
        beat.line()


def end_job(store: Store) -> None:
    """As a job is cancelled; a note may name any log, of which the caller opens only those of its own tables."""
    end_attempts(JobFolder(store, "j").attempts(), lambda _: store, "cancelled")


def read_by_arrow(store: Store) -> None:
    """As the data source does in Spark's Python workers: plan, then read each row."""
    source = IndexedDataSource({"path": store.uri, "where": "id = 1 AND p = 'a'"})
    reader = source.reader(source.schema())
    for part in reader.partitions():
        for batch in reader.read(part):
            batch.to_pylist()


def read_by_arrow_of_old(store: Store) -> None:
    source = IndexedDataSource({"path": store.uri, "as_of": "2026-01-01T12:00Z"})
    source.reader(source.schema()).partitions()


def trigger_classes() -> list[type[waiting.TimelineTrigger]]:
    """All triggers that look at a log."""
    classes: list[Any] = [waiting.TimelineTrigger]
    for one in classes:
        classes += one.__subclasses__()
    return classes[1:]


_ARGUMENTS = {"after": -1, "epoch": 0, "silent_seconds": 60.0, "index": "by_id", "states": ["active"], "txn_id": "load",
              "where": "false"}  # fmt: skip


def look_as_triggers_do(store: Store) -> None:
    """What the poller does in a round: open, refresh, and one look of each kind of trigger that waits."""
    timeline = load_watched(store)
    waiting._refresh(timeline)
    refused: list[LakeIndexError] = []
    for kind in trigger_classes():
        shared = {"table": store.uri, "table_conn_id": CONNECTION, "poll_interval": 1.0, "deadline": 2e9}
        wanted = {name for name in kind.__init__.__annotations__ if name in _ARGUMENTS}  # type: ignore[misc]
        trigger = kind(**shared, **{name: _ARGUMENTS[name] for name in wanted})
        try:
            trigger.evaluate(timeline)
        except LakeIndexError as error:  # each waiter hears of its own; the others look all the same
            refused.append(error)
    if refused:
        raise refused[0]


def watch_events(store: Store) -> None:
    trigger = events.CommitEventTrigger(table=store.uri, table_conn_id=CONNECTION, operations=["*"], after_version=-1)
    trigger.connect()
    trigger.new_events(None)


def maintained(store: Store) -> survey.MaintainedTable:
    warehouse = Warehouse(str(Path(store.uri).parent))
    entry = TableEntry(table=store.uri, policy=Policy())
    return survey.MaintainedTable("table", store.uri, entry, CONNECTION, warehouse)


def overview_card(store: Store) -> None:
    """A card tells what is wrong, and raises nothing."""
    lake = Lake(CONNECTION, str(Path(store.uri).parent))
    card = overview.read_summary(lake, TableName("table", store.uri))
    if card.trouble.startswith("What its log says cannot be shown"):
        raise AssertionError(card.trouble)


def page_of_table(store: Store) -> None:
    lake = Lake(CONNECTION, str(Path(store.uri).parent))
    details.read_detail(lake, store.uri, details.DetailQuery(), _HELPERS)


def end_windows(store: Store) -> None:
    operator = EndExpiredWindowsOperator(task_id="end", table_conn_id=CONNECTION)
    timeline = TableStoreHook(CONNECTION).timeline(store.uri)
    operator._end_windows("table", timeline, "me")


def drain(store: Store) -> None:
    timeline = Timeline.load(store)
    for requested in live_requests(timeline):
        is_presumed_dead(timeline, requested, 60.0)
    for epoch in timeline.head.windows:
        conditions.writers_drained(timeline, epoch)


READERS: dict[str, Callable[[Store], object]] = {
    "load": lambda store: everything(Timeline.load(store).head),
    "warehouse": lambda store: [everything(table.state()) for table in Warehouse(str(Path(store.uri).parent)).tables()
                                if table.state() is not None],
    "history": lambda store: list(Timeline.load(store).commits()),
    "age": lambda store: statistics.age_of_version((timeline := Timeline.load(store)), timeline.head.version),
    "as of": lambda store: Timeline.load(store).at(as_of="2026-01-01T12:00Z"),
    "windows": lambda store: windows.end_expired(Timeline.load(store), "me"),
    "manifests": read_manifests,
    "jobs": read_jobs,
    "end of a job": end_job,
    "queries": lambda store: read_log(store).to_dict(),
    "notes": lambda store: (read_last(store), read_done(store)),
    "begin": lambda store: begin(Timeline.load(store), operation="upsert", txn_id="open"),
    "resume": lambda store: resume(Timeline.load(store), "open", 1),
    "receipt": lambda store: (find_receipt(Timeline.load(store), "load"),
                              Warehouse(str(Path(store.uri).parent)).receipt(store.uri, "load")),
    "drain": drain,
    "restore": lambda store: restore.restore(Timeline.load(store), 0),
    "plan of cleaning": lambda store: cleaning.plan(Timeline.load(store), retain_versions=1, retain_seconds=0.0),
    "clean": lambda store: cleaning.clean(
        Timeline.load(store), retain_versions=1, retain_seconds=0.0, presumed_dead_seconds=0.0
    ),
    "triggers": look_as_triggers_do,
    "watcher": watch_events,
    "operator": end_windows,
    "survey": lambda store: survey.survey_table(maintained(store)),
    "report": lambda store: report.html([report.report_on(maintained(store))]),
    "overview": overview_card,
    "page": page_of_table,
    "data source": read_by_arrow,
    "data source as of": read_by_arrow_of_old,
}  # fmt: skip


@contextmanager
def connected(warehouse: Path) -> Iterator[None]:
    """The connection that triggers and operators read."""
    name = f"AIRFLOW_CONN_{CONNECTION.upper()}"
    os.environ[name] = json.dumps({"conn_type": "index_table_store", "extra": {"warehouse": str(warehouse)}})
    try:
        yield
    finally:
        del os.environ[name]
