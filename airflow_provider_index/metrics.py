"""Figures for Airflow's own metrics, under the names that docs/metrics.md lists.

They go to StatsD, Datadog or OpenTelemetry, as Airflow is set up.

Only what a receipt or a plan says is counted; the lag of indexes is read from the log once a task, and only where
Airflow sends metrics at all. A figure that cannot be had never fails a task.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider_index.compat import Stats, conf, prepare_stats
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from spark_apps.maintenance.demand import Demand

logger = logging.getLogger(__name__)

PREFIX = "lakeindex"

METRICS: dict[str, tuple[str, str, str]] = {
    "commits": ("counter", "table, operation, index", "commits that tasks have made"),
    "nothing_to_do": ("counter", "table, operation, index", "tasks that found nothing to do and committed nothing"),
    "rows_written": ("counter", "table, operation, index", "rows in the files that commits have added"),
    "tombstones_written": ("counter", "table, operation, index", "rows among them that remove a key"),
    "files_written": ("counter", "table, operation, index", "files that commits have added"),
    "bytes_written": ("counter", "table, operation, index", "bytes of these files"),
    "files_read": ("counter", "table", "files that a query had to read, by the plan given to `record_reading`"),
    "files_pruned": ("counter", "table", "files that the query did not read, because of indexes and partitions"),
    "bytes_read": ("counter", "table", "bytes that the query had to read"),
    "bytes_pruned": ("counter", "table", "bytes that the query did not have to read"),
    "table_version": ("gauge", "table", "newest version, after a task's commit"),
    "index_lag_groups": ("gauge", "table, index", "file groups that an index does not fully cover"),
    "index_lag_versions": (
        "gauge",
        "table, index",
        "versions since the oldest state of such a file group that the index covers",
    ),
    "index_lag_bytes": ("gauge", "table, index", "bytes of data files that queries scan because of this lag"),
    "index_queries": (
        "gauge",
        "table, index",
        "queries a day that asked for an index, when maintenance was last planned",
    ),
    "index_bytes_spared": ("gauge", "table, index", "bytes a day that it saved them"),
    "task_duration": (
        "timing",
        "operator, table",
        "from a task's start to its receipt, including the time in the triggerer",
    ),
    "wait": ("timing", "sensor, table", "how long a sensor has waited, whether it succeeded or not"),
    "errors": ("counter", "operator, table, error", "tasks that ended with an error of this package, by its class"),
    "events": ("counter", "trigger, table", "events that watchers have sent"),
    "watch_failures": ("counter", "trigger, table", "checks of watchers that failed and will be repeated"),
}
"""Name (behind ``lakeindex.``) -> kind, tags, meaning. Timings are in milliseconds."""

_WRITTEN = {"rows": "rows_written", "tombstones": "tombstones_written", "files": "files_written",
            "bytes": "bytes_written"}  # fmt: skip
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


def enabled() -> bool:
    """Return whether this Airflow sends metrics."""
    return any(
        conf.getboolean("metrics", name, fallback=False) for name in ("statsd_on", "statsd_datadog_enabled", "otel_on")
    )


def label(table: str) -> str:
    """Return a table as the value of a tag: its name, or the last two folders of its location."""
    if "/" not in table:
        return _UNFIT.sub("_", table)
    parts = [part for part in table.partition("://")[2 if "://" in table else 0].split("/") if part]
    return _UNFIT.sub("_", ".".join(parts[-2:]))


def record_receipt(receipt: Mapping[str, Any], table: str, index: str | None = None) -> None:
    """Count one commit, or that there was nothing to do."""
    tags = {"table": label(table), "operation": str(receipt["operation"]), "index": index or ""}
    if receipt.get("version") is None:
        _send("incr", "nothing_to_do", 1, tags)
        return
    _send("incr", "commits", 1, tags)
    for key, name in _WRITTEN.items():
        value = (receipt.get("metrics") or {}).get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            count(name, value, **tags)


def record_state(state: State, table: str) -> None:
    """Show a table's version, and how far each of its indexes lags behind."""
    name = label(table)
    gauge("table_version", state.version, table=name)
    groups = state.groups(DATA_TREE)
    for index, entry in state.indexes.items():
        uncovered_bytes = sum(
            file.bytes
            for group, through in entry.lag.items()
            for file in groups.get(group, ())
            if file.sequence_number > through
        )
        oldest = min(entry.lag.values(), default=state.version)
        tags = {"table": name, "index": index}
        gauge("index_lag_groups", len(entry.lag), **tags)
        gauge("index_lag_versions", state.version - max(oldest, 0), **tags)
        gauge("index_lag_bytes", uncovered_bytes, **tags)


def record_demand(demand: Demand, table: str) -> None:
    """Show how often each index of a table was asked for, and what it saved, by the table's query log."""
    for index, one in demand.indexes.items():
        tags = {"table": label(table), "index": index}
        gauge("index_queries", one.queries / demand.days, **tags)
        gauge("index_bytes_spared", one.bytes_a_day, **tags)


def record_reading(plan: Any, table: str) -> None:
    """Count what a query reads and does not read.

    :param plan: what ``IndexedTable.explain`` returned, or its ``to_dict()`` as a task got it by XCom.
    :param table: the table, as operators take it.
    """
    figures = plan if isinstance(plan, Mapping) else plan.to_dict()
    for key, name in (("read", "read"), ("skipped", "pruned")):
        count(f"files_{name}", int(figures[f"files_{key}"]), table=label(table))
        count(f"bytes_{name}", int(figures[f"bytes_{key}"]), table=label(table))


def record_duration(operator: str, table: str, seconds: float) -> None:
    """Show how long a task took."""
    timing("task_duration", seconds, operator=operator, table=label(table))


def record_wait(sensor: str, table: str, seconds: float) -> None:
    """Show how long a sensor has waited."""
    timing("wait", seconds, sensor=sensor, table=label(table))


def record_error(operator: str, table: str, error: BaseException) -> None:
    """Count a task that failed."""
    count("errors", operator=operator, table=label(table), error=type(error).__name__)


# --- one figure --------------------------------------------------------------------------------------------------


def count(name: str, by: int = 1, /, **tags: str) -> None:
    """Add to a counter."""
    if by:
        _send("incr", name, by, tags)


def gauge(name: str, value: float, **tags: str) -> None:
    """Set a gauge: once with tags, and once with their values in its name, for collectors that know no tags."""
    _send("gauge", name, value, tags)
    _send("gauge", ".".join([name, *tags.values()]), value, {})


def timing(name: str, seconds: float, **tags: str) -> None:
    """Send a duration."""
    _send("timing", name, seconds * 1000, tags)


def _send(kind: str, name: str, value: float, tags: Mapping[str, str]) -> None:
    labels = {key: text for key, text in tags.items() if text}
    prepare()
    try:
        if kind == "incr":
            Stats.incr(f"{PREFIX}.{name}", count=int(value), tags=labels)
        elif kind == "gauge":
            Stats.gauge(f"{PREFIX}.{name}", value, tags=labels)
        else:
            Stats.timing(f"{PREFIX}.{name}", value, tags=labels)
    except (OSError, ValueError) as error:  # a collector that is gone, or a name that Airflow's settings refuse
        logger.warning("The metric %s.%s could not be sent: %s", PREFIX, name, error)


@cache
def prepare() -> None:
    """Let this process send metrics as Airflow's settings say.

    Since Airflow 3.2 only the processes of tasks are set up for it by themselves: neither triggers nor
    ``dag.test()`` are.
    """
    prepare_stats()
