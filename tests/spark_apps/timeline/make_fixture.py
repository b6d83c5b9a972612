"""Made ``table_of_format_1``, which every version of this package to come must read. It is not made anew: a later
format gets a fixture of its own beside it. Run as ``python -m tests.spark_apps.timeline.make_fixture <folder>``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark_apps.timeline import log, windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort
from tests.simulation import work
from tests.simulation.store import SimulatedStore

A, B = work.PARTITIONS


def main(folder: Path) -> None:
    world = work.World()
    store = SimulatedStore(world.objects)
    job = work.Job(world, store, Timeline(store, lambda: world.objects.now))
    for txn, partition, changes, maintain in (
        ("load-a", A, {"0": 1, "1": 2, "2": 3}, True),
        ("load-b", B, {"0": 4, "1": 5}, True),
        ("more-a", A, {"0": 6, "2": None, "3": 7}, False),
    ):
        world.effects[txn] = work.changing(partition, dict(changes))
        work.upsert(job, txn, partition, dict(changes), maintain=maintain)
        world.objects.now += 60
    work.rescale_in_window(job, "rescale", A, 3)
    work.compact(job, "compact", A, "0")
    job.begin("upsert", "dead")
    abort(job.timeline, "dead", 1, "taken for dead")
    log.write_checkpoint(store, job.timeline.refresh())
    log.INLINE_ACTIONS = 1
    world.effects["over-b"] = work.overwriting(B, {"5": 9})
    work.overwrite(job, "over-b", B, {"5": 9})
    work.restore(job.timeline, job.timeline.refresh().version - 1, txn_id="restore")
    world.objects.now += 60
    work.clean(job, "clean", 6, 0.0, 1000.0)
    windows.open_window(job.timeline, "somebody", partitions=(B,), seconds=60, txn_id="open")
    for key, (body, _) in world.objects.bodies.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
