"""Keys of a join's other side, with them and without.

TPC-H's lineitem, as its generator wrote it, is a registered source with a covering index by the part's key in buckets
by hash; part is a file of Spark's. The same joins are asked in a session with the rule, in one whose keys of joins are
turned off (``spark.lakeindex.joinKeys.enabled``), and in one of the same Spark without the rule. Some parts have few
keys; of others the keys are taken and leave nothing out.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, interleaved, timed
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS, WITHOUT, PLAIN = "with keys", "without keys", "plain Spark"
_ROWS_A_SCALE = 200_000
"""Of what other questions have, for each 1 of TPC-H's scale: so that a quick run is of scale 1."""
_BUCKETS = 32
_ASKED = """SELECT count(*), sum(CAST(l_quantity AS DOUBLE)), max(l_comment), max(l_shipinstruct)
FROM lineitem JOIN part ON l_partkey = p_partkey WHERE {}"""
QUESTIONS = {
    "spared: few parts": _ASKED.format("p_brand = 'Brand#23' AND p_container = 'MED BOX' AND p_size < 10"),
    "nothing: parts of every bucket": _ASKED.format("p_brand = 'Brand#23' AND p_container = 'MED BOX'"),
    "nothing: more parts than keys are taken of": _ASKED.format("p_size < 25"),
}


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a question."""
    scale = 10.0 if arguments.full else max(0.01, round(arguments.rows / _ROWS_A_SCALE, 2))
    with workplace("4g") as (spark, folder):
        sessions = _sessions(spark, folder, scale)
        for title, query in QUESTIONS.items():
            report.say(f"{query} — keys: {_taken(sessions[OURS], query)}")
            cases = {name: partial(_answer, session, query) for name, session in sessions.items()}
            timings = interleaved(cases, arguments.repeats)
            if len({timing.counts["rows"] for timing in timings}) > 1:
                raise ValueError(f"the sessions do not agree on {title}: {[timing.counts for timing in timings]}")
            report.timings(f"{title} (scale {scale:g})", timings, OURS)
            report.verdict(19, title, timings[0].median / timings[1].median)


def _sessions(spark: SparkSession, folder: Path, scale: float) -> dict[str, SparkSession]:
    """Index lineitem, and return the sessions in which the questions are asked."""
    import spark_apps
    from spark_apps import IndexedTable
    from spark_apps.optimizer.join_keys import ENABLED

    for name in ("lineitem", "part"):
        (folder / name).mkdir()
        (folder / name / f"{name}.parquet").hardlink_to(data.whole_tpch(scale) / f"{name}.parquet")
    IndexedTable.register(spark, folder / "lineitem").create_index(
        "by_part",
        "covering",
        ["l_partkey"],
        included=["l_quantity", "l_comment", "l_shipinstruct"],
        properties={"buckets": str(_BUCKETS)},
    )
    sessions = {OURS: spark, WITHOUT: spark.newSession(), PLAIN: spark.newSession()}
    sessions[WITHOUT].conf.set(ENABLED, "false")
    for name, session in sessions.items():
        if name != PLAIN:
            spark_apps.enable(session)
        for source in ("lineitem", "part"):
            session.read.parquet(str(folder / source)).createOrReplaceTempView(source)
    return sessions


def _taken(session: SparkSession, query: str) -> str:
    import spark_apps

    return "; ".join(str(scan.keys) for scan in spark_apps.explain(query, session).scans if scan.keys) or "none"


def _answer(session: Any, query: str) -> Answer:
    rows: list[Any] = []
    seconds = timed(lambda: rows.extend(session.sql(query).collect()))
    return Answer({"rows": int(rows[0][0])}, seconds)
