"""What works on one table at the same time, each as a job that is tried again with backoff, as Airflow does it.

Hourly upserts, nightly compactions of two DAGs, a backfill of old days, a rescale. A job tells how often each of its
works was tried and what stood in the way. As a program it is one of several processes, each with its own Spark:
``python -m tests.races.together <job> <uri> <rounds>`` prints one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_apps import IndexedTable
from spark_apps.storage.errors import CommitRefused, DrainTimeout
from tests.spark.local import local_session

DDL = "id bigint, p string, v bigint"
KEYS = 40
"""Each writer has so many keys of its own; a half of each stands in each of two partitions."""

OLD, HOT, CALM = "old", "hot", "calm"
BACKOFF = 0.3


@dataclass
class JobProgress:
    """How a job went: tries of each work, and how often each kind of refusal was met."""

    job: str
    tries: list[int] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    left: int = 0
    """File groups that compactions left out because of others."""

    @property
    def most_tries(self) -> int:
        return max(self.tries, default=0)


def persist(progress: JobProgress, work: Callable[[], Any], most: int = 12) -> Any:
    """Tries a work until it is done, with a pause that doubles. Airflow's pauses are minutes; here they are shorter."""
    refused = Counter(progress.refused)
    for number in range(1, most + 1):
        try:
            receipt = work()
        except (CommitRefused, DrainTimeout) as error:
            refused[type(error).__name__] += 1
            progress.refused = dict(refused)
            if number == most:
                raise
            time.sleep(BACKOFF * min(2 ** (number - 1), 16) * random.uniform(0.5, 1.0))
            continue
        progress.tries.append(number)
        progress.commits += receipt.version is not None
        progress.left += receipt.metrics.get("groups_left", 0)
        return receipt
    raise AssertionError("unreachable")


# --- the jobs: each is given a session, a table's location and a number of rounds -----------------------------------


def upserts(spark: Any, uri: str, rounds: int, writer: int = 0) -> JobProgress:
    """Writes all its keys anew, round after round; the value is the round's number."""
    progress = JobProgress(f"upserts of writer {writer}")
    for number in range(rounds):
        rows = spark.sql(
            f"SELECT id + {writer * KEYS} AS id, if(id % 2 = 0, '{HOT}', '{CALM}') AS p, {number}L AS v "
            f"FROM range({KEYS})"
        )
        persist(progress, lambda rows=rows: IndexedTable.load(spark, uri).upsert(rows))
    return progress


def compactions(spark: Any, uri: str, rounds: int) -> JobProgress:
    """Folds the whole table, again and again, as the nightly DAG does and a second one beside it."""
    progress = JobProgress("compactions")
    for _ in range(rounds):
        persist(progress, lambda: IndexedTable.load(spark, uri).compact(mode="full"))
    return progress


def backfills(spark: Any, uri: str, rounds: int) -> JobProgress:
    """Replaces an old day by what it should have been; the value is the round's number."""
    progress = JobProgress("backfills")
    for number in range(rounds):
        rows = spark.sql(f"SELECT id + 100000 AS id, '{OLD}' AS p, {number}L AS v FROM range({KEYS})")
        persist(progress, lambda rows=rows: IndexedTable.load(spark, uri).insert_overwrite(rows))
    return progress


def rescales(spark: Any, uri: str, rounds: int) -> JobProgress:
    """Gives the busy partition other counts, each in a window of its own, for which the writers wait."""
    progress = JobProgress("rescales")
    for number in range(rounds):
        count = 3 if number % 2 == 0 else 2

        def rescale(count: int = count) -> Any:
            table = IndexedTable.load(spark, uri)
            # Who began before the window is waited for some seconds; then the next try comes.
            return table.rescale(add=f"p={HOT},{count}", partitions=[f"p={HOT}"], drain_seconds=20)

        persist(progress, rescale)
    return progress


JOBS: dict[str, Callable[..., JobProgress]] = {
    "upserts-0": lambda *given: upserts(*given, writer=0),
    "upserts-1": lambda *given: upserts(*given, writer=1),
    "compactions-a": compactions,
    "compactions-b": compactions,
    "backfills": backfills,
    "rescales": rescales,
}


def make(spark: Any, uri: str) -> None:
    """The table that all work on: small files in three partitions, and an index kept with the data."""
    table = IndexedTable.create(spark, uri, DDL, ["id"], ["p"], buckets=2)
    table.create_index("by_v", "secondary", ["v"])
    upserts(spark, uri, 1, 0)
    upserts(spark, uri, 1, 1)
    backfills(spark, uri, 1)


def expected(rounds: dict[str, int]) -> dict[int, tuple[str, int]]:
    """The rows at the end: of each key the last round's value."""
    rows = {}
    for writer in (0, 1):
        last = max(rounds.get(f"upserts-{writer}", 1), 1) - 1
        rows |= {number + writer * KEYS: (HOT if number % 2 == 0 else CALM, last) for number in range(KEYS)}
    last = max(rounds.get("backfills", 1), 1) - 1
    return rows | {number + 100000: (OLD, last) for number in range(KEYS)}


def table_of(progress: list[JobProgress]) -> str:
    """The counts, for people."""
    lines = [f"{'job':24} {'works':>5} {'commits':>7} {'tries':>5} {'most':>4} {'left out':>8}  refused"]
    lines += [
        f"{one.job:24} {len(one.tries):>5} {one.commits:>7} {sum(one.tries):>5} {one.most_tries:>4} {one.left:>8}  "
        f"{', '.join(f'{name} {count}' for name, count in sorted(one.refused.items())) or 'never'}"
        for one in progress
    ]
    return "\n".join(lines)


def main(job: str, uri: str, rounds: int) -> None:
    spark = local_session(cores=1, memory="1g")
    progress = JOBS[job](spark, uri, rounds)
    sys.stdout.write(json.dumps(asdict(progress)) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
