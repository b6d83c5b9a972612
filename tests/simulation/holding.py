"""A holder of a stop-write window that writes under it until it is refused; run as a program of its own.

``python -m tests.simulation.holding <uri> <seconds>``: prints the epoch, each version that it committed, then the name
of the error that ended it, and that of the error it gets when it then tries to renew.
"""

from __future__ import annotations

import sys

from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.timeline import windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, AddFile, PutPartition, Receipt, Write, group_scope
from spark_apps.timeline.transactions import begin


def write(timeline: Timeline, text: str, window: int | None) -> Receipt:
    """One file in one commit."""
    transaction = begin(timeline, operation="upsert", window=window)
    path = f"{transaction.data_folder('work')}/rows.txt"
    timeline.store.put(path, text.encode())
    actions = [PutPartition("", 1), AddFile(DATA_TREE, "", "0", path, "delta", 1, len(text))]
    return transaction.commit(actions, writes=(Write(group_scope("", "0")),))


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(uri: str, seconds: float) -> None:
    timeline = Timeline.load(Store(uri))
    window = windows.open_window(timeline, "the holder", seconds=seconds, at_most=seconds)
    say(window.epoch)
    try:
        while True:
            say(write(timeline, "of the holder", window.epoch).version)
    except LakeIndexError as error:
        say(type(error).__name__)
    try:
        windows.renew(timeline, window.epoch)
    except LakeIndexError as error:
        say(type(error).__name__)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
