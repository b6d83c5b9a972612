"""How long 100,000 rows take into a DataFrame and out of one by Arrow: ``python -m tests.matrix.arrow_ways``.

Asked of two environments in turns, the median of each, and the ratio: what Spark 3.5 needs, which has neither way of
its own, beside a newer one. ``OLD`` (spark-3.5), ``NEW`` (spark-4.2), ``ROUNDS`` (9).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from tests.matrix.installing import HOME, ROOT

ROWS = 100_000


def ask() -> None:
    """Answer each line of standard input with the seconds in and out, in this environment's Spark."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    from spark_apps.engine.spark_versions import from_arrow, to_arrow
    from tests.spark.local import COMPILED, local_session, session_with

    spark: Any = local_session(quiet="OFF")
    with session_with(spark, COMPILED):
        rows = spark.range(0, ROWS, 1, 2).select(
            "id", F.concat(F.lit("key "), F.col("id")).alias("s"), (F.col("id") / 7).alias("x"),
            F.expr("cast(id * 1.01 AS decimal(18,2)) AS d"), F.expr("timestamp_seconds(id) AS at"),
        ).cache()  # fmt: skip
        assert rows.count() == ROWS
        for _ in sys.stdin:
            started = time.perf_counter()
            table = to_arrow(rows)
            out = time.perf_counter() - started
            started = time.perf_counter()
            assert from_arrow(spark, table, rows.schema).agg(F.sum("id")).collect()[0][0] == sum(range(ROWS))
            into = time.perf_counter() - started
            assert isinstance(table, pa.Table) and table.num_rows == ROWS
            sys.stdout.write(f"{json.dumps([into, out])}\n")
            sys.stdout.flush()
    spark.stop()


def main() -> int:
    names = [os.environ.get("OLD", "spark-3.5"), os.environ.get("NEW", "spark-4.2")]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = [
        subprocess.Popen(
            [HOME / name / "bin" / "python", "-m", "tests.matrix.arrow_ways", "ask"], cwd=ROOT, env=settings,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for name in names
    ]  # fmt: skip
    times: list[list[list[float]]] = [[], []]
    for number in range(4 + int(os.environ.get("ROUNDS", "9"))):
        for process, timings in zip(asked, times, strict=True):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if number >= 4:  # warm by then
                timings.append(answer)
    for process in asked:
        process.communicate()
    for position, way in enumerate(("into a DataFrame", "out of one")):
        old, new = (statistics.median(each[position] for each in timings) for timings in times)
        sys.stdout.write(
            f"{ROWS:,} rows {way}: {names[0]} {old:.3f} s, {names[1]} {new:.3f} s, ratio {old / new:.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(ask() if sys.argv[1:] == ["ask"] else main())
