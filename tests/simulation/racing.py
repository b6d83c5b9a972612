"""One of several real processes that commit to one table as fast as they can; run as a program of its own.

``python -m tests.simulation.racing <uri> <options as JSON> <name> <commits>``: waits for the file ``go`` of the table,
then prints one line of JSON with the versions that it got.
"""

from __future__ import annotations

import json
import sys
import time

from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, AddFile, PutPartition, Write, group_scope
from spark_apps.timeline.transactions import begin


def main(uri: str, options: str, name: str, commits: int) -> None:
    store = Store(uri, json.loads(options))
    timeline = Timeline.load(store)
    store.put(f"ready/{name}", b"")
    while store.head("go") is None:
        time.sleep(0.02)
    versions = {}
    for number in range(commits):
        txn = f"{name}.{number}"
        transaction = begin(timeline, operation="upsert", txn_id=txn)
        path = f"{transaction.data_folder('work')}/rows.json"
        store.put(path, txn.encode())
        # All write to the same group: appends commute, so every one must get in.
        actions = [PutPartition("", 1), AddFile(DATA_TREE, "", "0", path, "delta", 1, len(txn))]
        versions[txn] = transaction.commit(actions, writes=(Write(group_scope("", "0")),)).version
    sys.stdout.write(json.dumps(versions) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
