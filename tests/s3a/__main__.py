"""Tables whose rows lie on S3, written and read by Spark: ``python -m tests.s3a``, a process that has S3A's jars.

``HISTORIES`` (3): seeds from 0 on of random histories of keyed tables (:mod:`tests.differential`), each answer compared
with another engine's; ``SEEDS`` (a list): these alone; ``MINUTES`` (20): when to stop. First the check of the storage.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from spark_apps.jobs.job import Job
from spark_apps.programs.check_storage import check_storage
from spark_apps.storage.credentials import hadoop_settings
from tests.differential.keyed import Keyed
from tests.differential.session import small
from tests.differential.tally import Tally
from tests.s3a.jars import NUMBERS, jars
from tests.simulation.s3 import BUCKET, s3_server
from tests.spark.local import local_session


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def session(options: dict[str, str]) -> Any:
    """A Spark that reaches the server as the storage options say."""
    settings = {**NUMBERS, **hadoop_settings(f"s3://{BUCKET}", options).conf}
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, jars()))} pyspark-shell"
    return local_session(quiet="OFF", **{name.replace(".", "__"): value for name, value in settings.items()})


def check(spark: Any, options: dict[str, str]) -> None:
    """Both stacks reach the server and see what the other wrote.

    :raises AssertionError: naming what cannot be done.
    """
    job = Job("check_storage", f"s3://{BUCKET}/check", storage_options=options)
    reaches = list(check_storage(spark, job).value)
    failed = [reach for reach in reaches if not reach["ok"]]
    assert not failed, failed
    say(f"the check of the storage: {len(reaches)} of {len(reaches)} ok")


def main() -> int:
    given = os.environ.get("SEEDS")
    # Every third is of a registered source, whose writers here write to disks.
    every = [seed for seed in range(1_000) if seed % 3 != 2][: int(os.environ.get("HISTORIES", "3"))]
    seeds = [int(text) for text in given.split(",")] if given else every
    until = time.monotonic() + 60 * float(os.environ.get("MINUTES", "20"))
    done, tally = [], Tally()
    with s3_server() as options:
        spark = session(options)
        check(spark, options)
        for seed in seeds:
            if time.monotonic() > until:
                break
            begun = time.monotonic()
            with small(spark, compiled=False, row_groups=seed % 2 and 5):
                path: Any = f"s3://{BUCKET}/{seed}/lake/table"
                Keyed(spark, path, seed, tally, steps=3, plain=0.5, options=options).run()
            say(f"seed {seed}: {time.monotonic() - begun:.1f} s")
            done.append(seed)
        spark.stop()
    say(f"{tally}\n{len(done)} histories agree, rows on S3 by Spark, seeds {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
