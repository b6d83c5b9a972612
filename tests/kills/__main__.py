"""The whole matrix, one cell after another: ``python -m tests.kills``; goes on where it stopped.

``CELLS`` (a list such as ``worker_killed x write``): these alone, whatever was done; ``MINUTES`` (240): when to stop.
What was seen stands in ``.kills/state.json``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from tests.kills.cells import EVENTS, WORKS, Cell
from tests.kills.ground import ground
from tests.spark.clusters import standalone_cluster
from tests.spark.local import local_session

STATE = Path(".kills/state.json")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    seen: dict[str, dict[str, str]] = json.loads(STATE.read_text()) if STATE.exists() else {}
    names = [f"{event} x {work}" for event in EVENTS for work in WORKS]
    given = [name.strip() for name in os.environ.get("CELLS", "").split(",") if name.strip()]
    left = given or [name for name in names if name not in seen]
    until = time.monotonic() + 60 * float(os.environ.get("MINUTES", "240"))
    # Only this event needs executors of their own; all others are told apart better where the driver works alone.
    far = [name for name in left if name.startswith("executor_killed")]
    near = [name for name in left if name not in far]
    if near:
        run(near, {}, "local[2]", until, seen)
    if far:
        with standalone_cluster(Path(tempfile.mkdtemp(prefix="cluster"))) as cluster:
            run(far, cluster.conf, cluster.master, until, seen)
    for name in given or names:
        say(f"{name:40} {seen.get(name, {}).get('said', 'not run')}")
    failed = [name for name in given or names if not seen.get(name, {}).get("ok")]
    say(f"{len(given or names) - len(failed)} of {len(given or names)} cells hold")
    return 1 if failed else 0


def run(names: list[str], conf: Mapping[str, str], master: str, until: float, seen: dict[str, dict[str, str]]) -> None:
    """Runs cells on one Airflow, and notes what was seen of each."""
    spark = local_session()
    folder = Path(tempfile.mkdtemp(prefix="kills"))
    with ground(folder, master, conf) as here:
        dags = {Cell.dag_of(event, work) for event in EVENTS.values() for work in WORKS.values()}
        here.airflow.client.wait_for_dags(*dags)
        for name in names:
            if time.monotonic() > until:
                break
            event, work = name.split(" x ")
            started, ok, cell = time.monotonic(), "", Cell(here, spark, EVENTS[event], WORKS[work])
            try:
                said, ok = cell.run(), "yes"
            except Exception as error:  # noqa: BLE001 - what a cell finds is reported, and the others go on
                said = f"NOT SO: {error}"
                say(traceback.format_exc())
                cell.let_go()
                say(cell.story())
            seen[name] = {"ok": ok, "said": f"{said} ({time.monotonic() - started:.0f} s)"}
            say(f"{name}: {seen[name]['said']}")
            STATE.parent.mkdir(exist_ok=True)
            STATE.write_text(json.dumps(seen, indent=1))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
