"""Writers that race: processes of their own that commit to one table as fast as they can, and whether all got in.

``python -m benchmarks.racing <table> <name> <commits>`` is one of them: it waits for the object ``go`` in the table's
folder, and prints the version that each of its transactions was told, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, AddFile, PutPartition, Write, group_scope
from spark_apps.timeline.transactions import begin

_PATIENCE_SECONDS = 120.0


def race(store: Store, writers: int, commits: int) -> tuple[dict[str, int], float]:
    """Lets so many processes make so many commits each, all to one file group of the table at ``store``.

    :returns: transaction -> the version it was told, and the seconds from the start of all to the end of the last.
    """
    command = [sys.executable, "-m", "benchmarks.racing", store.uri]
    root = Path(__file__).parents[1]
    racers = [
        subprocess.Popen([*command, f"writer{number}", str(commits)], cwd=root, stdout=subprocess.PIPE, text=True)
        for number in range(writers)
    ]
    try:
        end = time.monotonic() + _PATIENCE_SECONDS
        while len(store.list("ready")) < writers:
            if time.monotonic() > end or any(racer.poll() for racer in racers):
                raise RuntimeError("The writers do not start.")
            time.sleep(0.05)
        begun = time.perf_counter()
        store.put("go", b"")
        answers = [racer.communicate()[0] for racer in racers]
        seconds = time.perf_counter() - begun
    finally:
        for racer in racers:
            if racer.poll() is None:
                racer.kill()
                racer.wait()
    versions: dict[str, int] = {}
    for answer in answers:
        versions |= json.loads(answer)
    return versions, seconds


def lost(store: Store, versions: dict[str, int], expected: int) -> int:
    """How many of the commits that were asked for are not in the log, once each, as the version that was told."""
    log = {commit.txn_id: commit.version for commit in Timeline.load(store).commits()}
    files = {file.path for file in Timeline.load(store).head.files(DATA_TREE)}
    kept = [txn for txn, version in versions.items() if log.get(txn) == version and any(f"/{txn}." in p for p in files)]
    return expected - len(kept)


def main(uri: str, name: str, commits: int) -> None:
    store = Store(uri)
    timeline = Timeline.load(store)
    store.put(f"ready/{name}", b"")
    while store.head("go") is None:
        time.sleep(0.02)
    versions = {}
    for number in range(commits):
        txn_id = f"{name}.{number}"
        transaction = begin(timeline, operation="upsert", txn_id=txn_id)
        path = f"{transaction.data_folder('work')}/part-0.parquet"
        store.put(path, b"rows")
        actions = [PutPartition("dt=000", 1), AddFile(DATA_TREE, "dt=000", "0", path, "delta", 1, 4)]
        # Appends to one group commute, so every one must get in.
        versions[txn_id] = transaction.commit(actions, writes=(Write(group_scope("dt=000", "0")),)).version
    print(json.dumps(versions))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
