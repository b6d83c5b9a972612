"""A driver that makes a call of a table's own maintenance, and is killed by -9 at a named point of it.

It works in the JVM of the test that started it, so it begins in a second, and what the JVM was asked for goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from spark_apps import IndexedTable
from spark_apps.actions.native_maintenance import MaintainSource
from spark_apps.storage.store import SOURCE_ROOTS
from spark_apps.timeline.transactions import Transaction
from tests.simulation.driver import session

POINTS = ("before the call", "during the call", "after the call", "after the receipt")
OFTEN = POINTS if os.environ.get("FAULTS") == "all" else ("after the call",)
"""The points of calls beside the one of each format that is killed at all of them; with FAULTS=all, these are too."""
ROOT = Path(__file__).parents[2]
_SECONDS_OF_CALL = 0.4


def run_killed(spark: Any, table: IndexedTable, call: str, arguments: dict[str, Any], txn: str, point: str) -> None:
    """Let a driver make a call, and return when it is killed at a point."""
    gateway = spark.sparkContext._gateway.gateway_parameters
    env = {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.auth_token,
        "PYTHONPATH": str(ROOT),
    }
    source = table.definition.source
    assert source is not None
    given = json.dumps([table.uri, source.location, call, arguments, txn, point])
    done = subprocess.run(
        [sys.executable, "-m", "tests.connectors.killed", given], cwd=ROOT, env=env, capture_output=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at(point: str) -> None:
    """Let this process die there."""
    made, committed = MaintainSource._made, Transaction.commit

    def make(self: Any, *arguments: Any) -> Any:
        if point == "before the call":
            _die()
        if point == "during the call":
            threading.Timer(_SECONDS_OF_CALL, _die).start()
        result = made(self, *arguments)
        if point in ("during the call", "after the call"):
            _die()
        return result

    def commit(self: Any, *arguments: Any, **named: Any) -> Any:
        receipt = committed(self, *arguments, **named)
        _die()
        return receipt

    MaintainSource._made = make  # type: ignore[method-assign]
    Transaction.commit = commit  # type: ignore[method-assign]


if __name__ == "__main__":
    uri, location, call, arguments, txn, point = json.loads(sys.argv[1])
    _die_at(point)
    allowed = {SOURCE_ROOTS: [location]}  # as a connection of Airflow's says it
    IndexedTable.load(session(), uri, options=allowed).maintain_source(call, arguments, txn_id=txn)
