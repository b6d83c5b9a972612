"""The example DAGs in their order, each with its progress and a line of what it shows.

It drives Airflow through its API and looks at the table through a Spark session of its own; the work itself is the
DAGs'.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from airflow_provider_index.testing import AirflowClient
from spark_apps import IndexedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAGS = (
    "flights_initial_load",
    "flights_december",
    "flights_nightly",
    "flights_rescale",
    "flights_correction",
)
MORE_DAGS = ("flights_sql", "flights_sources")
_TIMEOUT = 900
_RESTING = ("success", "failed", "upstream_failed", "skipped", "removed")


@dataclass
class Story:
    """What is run, and what it has come to. ``versions`` maps a DAG to the table's version after it."""

    client: AirflowClient
    warehouse: Path
    spark: SparkSession
    console: Console
    versions: dict[str, int] = field(default_factory=dict)
    verified: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Index -> what its last verification by a task found."""
    refusal: str = ""
    tries: int = 0

    @property
    def location(self) -> Path:
        """The folder of the table of flights."""
        return self.warehouse / "demo" / "flights"

    def table(self, after: str | None = None) -> IndexedTable:
        """Return the table at its newest version, or as a DAG left it."""
        return IndexedTable.load(self.spark, self.location, version=self.versions[after] if after else None)

    def mark(self, dag_id: str) -> None:
        """Remember the table's newest version as the one that a DAG left."""
        self.versions[dag_id] = self.table().version


def run_all(story: Story, *, everything: bool = False) -> None:
    """Run the DAGs, one after the other. :param everything: those beside the main job as well."""
    story.client.wait_for_dags(*DAGS, *(MORE_DAGS if everything else ()))
    _step(story, "flights_initial_load", "Eleven months are loaded by spark-submit, four kinds of index built", _loaded)
    _step(story, "flights_december", "December comes by days: a delivery, a commit", _delivered)
    _step(story, "flights_nightly", "Nightly upkeep: compaction, refresh, verification, cleaning", _kept)
    with timed(story.console, "A rescale with a stop-write window, and a writer that runs into it"):
        rescale_while_another_writes(story)
        story.mark("flights_rescale")
        _shows(story, _rescaled(story))
    if everything:
        _step(story, "flights_sql", "Index statements in SQL", _stated)
        _step(story, "flights_sources", "Delta and Iceberg copies are registered and indexed in place", _registered)


def index_lake(story: Story, folder: Path) -> bool:
    """Run the DAG that indexes the Delta table by its name; return whether the table is as it was.

    :param folder: of the table.
    """
    client, dag_id = story.client, "flights_lake"
    client.wait_for_dags(dag_id)
    before = _listed(folder)
    _watch(story, dag_id, client.trigger(dag_id))
    same = _listed(folder) == before
    was = "the table's files are as they were" if same else "THE TABLE'S FILES ARE OTHERS"
    _shows(story, f"{was}: log and index are in the warehouse, and found by its name.")
    return same


def _listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the files of a folder, each with its size and the time of its last change."""
    files = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in files}


def rescale_while_another_writes(story: Story) -> None:
    """Start a writer as soon as the window is open: it must be refused once, and succeed after."""
    client = story.client
    rescale = client.trigger("flights_rescale")
    client.wait_for_task("flights_rescale", rescale, "quiet.drained", timeout=300)
    correction = client.trigger("flights_correction")
    for dag_id, run_id in (("flights_rescale", rescale), ("flights_correction", correction)):
        _watch(story, dag_id, run_id)
    [row] = client.task_instances("flights_correction", correction)
    story.tries = row["try_number"]
    lines = client.log("flights_correction", correction, "correct", 1).splitlines()
    story.refusal = next((line for line in reversed(lines) if "holds a stop-write window" in line), "")


@contextlib.contextmanager
def timed(console: Console, what: str) -> Iterator[None]:
    """Print what is being done, and how long it took."""
    started = time.monotonic()
    console.print(f"[bold]{what} …[/]")
    yield
    console.print(f"  [dim]{time.monotonic() - started:.1f} s[/]")


def _step(story: Story, dag_id: str, what: str, shows: Callable[[Story], str]) -> None:
    with timed(story.console, what):
        run_id = story.client.trigger(dag_id)
        _watch(story, dag_id, run_id)
        story.mark(dag_id)
        if "verify" in story.client.task_states(dag_id, run_id):
            story.verified = story.client.xcom(dag_id, run_id, "verify")
        _shows(story, shows(story))


def _watch(story: Story, dag_id: str, run_id: str) -> None:
    """Print each task when it has ended, until the run has. :raises SystemExit: the run failed."""
    seen: set[tuple[str, int]] = set()
    deadline = time.monotonic() + _TIMEOUT
    with story.console.status(dag_id) as status:
        while True:
            rows = story.client.task_instances(dag_id, run_id)
            resting = all(row["state"] in _RESTING for row in rows)
            state = story.client.run_state(dag_id, run_id) if resting else "running"
            for row in sorted(rows, key=lambda row: row["end_date"] or ""):
                name = row["task_id"] if row["map_index"] < 0 else f"{row['task_id']}[{row['map_index']}]"
                key = row["task_id"], row["map_index"]
                if row["state"] in ("success", "failed") and key not in seen:
                    seen.add(key)
                    tries = f", at try {row['try_number']}" if row["try_number"] > 1 else ""
                    story.console.print(f"  {dag_id}.{name}: {row['duration']:.1f} s{tries}", markup=False)
            running = ", ".join(row["task_id"] for row in rows if row["state"] == "running")
            status.update(f"{dag_id}: {len(seen)} of {len(rows)} tasks, running {running or 'none'}")
            if state in ("success", "failed"):
                break
            if time.monotonic() > deadline:
                raise SystemExit(f"{dag_id} is still {state} after {_TIMEOUT} s.")
            time.sleep(1)
    if state != "success":
        raise SystemExit(story.client.describe(story.client.wait(dag_id, run_id)))


def _shows(story: Story, line: str) -> None:
    story.console.print(f"  [green]→[/] {line}")


# --- what each step shows, in a line --------------------------------------------------------------------------


def _loaded(story: Story) -> str:
    table = story.table()
    sizes = (f"{name} ({info.kind}) {_size(table.index_status(name).bytes)}" for name, info in table.indexes.items())
    return f"{rows_of(table):,} rows of {_size(bytes_of(table))} in {files_of(table)} files; {', '.join(sizes)}."


def _delivered(story: Story) -> str:
    table = story.table()
    since = [entry for entry in table.history() if entry.version > story.versions["flights_initial_load"]]
    done = ", ".join(f"{count} {name}" for name, count in Counter(entry.operation for entry in since).items())
    lagging = [name for name, info in table.indexes.items() if info.lagging]
    return (
        f"{done} commits, each with its rows and its entries in by_key and by_tailnum: {files_of(table)} files now. "
        f"{' and '.join(lagging)} lag behind; queries scan what they lack."
    )


def _kept(story: Story) -> str:
    before, table = story.table("flights_december"), story.table()
    entries = ", ".join(f"{name} {report['entries']:,}" for name, report in story.verified.items())
    return (
        f"{files_of(before)} files became {files_of(table)}, one for each bucket of a month; all indexes agree with a "
        f"full scan (entries: {entries})."
    )


def _rescaled(story: Story) -> str:
    before, after = story.table("flights_nightly").partitions, story.table().partitions
    changed = (f"{path} {before[path].buckets} to {info.buckets}" for path, info in after.items()
               if info.buckets != before[path].buckets)  # fmt: skip
    return (
        f"buckets: {', '.join(changed)}. The writer was refused while the window was open, nothing of it was written, "
        f"and it came through at try {story.tries}."
    )


def _stated(story: Story) -> str:
    names = ", ".join(f"{name} ({info.kind})" for name, info in story.table().indexes.items())
    return f"one script of five statements; the indexes are {names}."


def _registered(story: Story) -> str:
    return "neither table was written to: log and index are beside each, in _indexes."


def rows_of(table: IndexedTable) -> int:
    """Return how many rows the table's files hold before merging."""
    return sum(one.rows for one in table.partitions.values())


def files_of(table: IndexedTable) -> int:
    """Return how many files hold the table's rows."""
    return sum(one.files for one in table.partitions.values())


def bytes_of(table: IndexedTable) -> int:
    """Return how large the files of the table's rows are."""
    return sum(one.bytes for one in table.partitions.values())


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"
