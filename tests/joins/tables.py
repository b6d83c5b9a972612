"""The tables that drawn joins read, once as the rule knows them and once as plain files in a session without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import spark_apps
from spark_apps import IndexedTable
from spark_apps.optimizer import join_keys, session
from tests.differential.tally import Tally
from tests.joins.drawing import Drawing

ROWS, FILES = 96, 6
_QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
_SETTINGS = {**_QUICK, join_keys.WORTH: "0", join_keys.MAX_SECONDS: "20"}
_COLUMNS = "id bigint, k int, n int, s string"


class Tables:
    """A registered source, a keyed table by name and as a frame, small files and a frame in memory, in two sessions."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.alone = spark, spark.newSession()
        self._kept: list[Any] = []
        self._settings = {name: spark.conf.get(name, None) for name in _SETTINGS}
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
            self.alone.conf.set(name, value)
        rows = spark.range(0, ROWS, 1, FILES).selectExpr(
            "id", "IF(id % 17 = 16, NULL, cast(id / 4 AS int)) AS k",
            "IF(id % 19 = 7, NULL, cast(id % 24 AS int)) AS n",
            "IF(id % 23 = 5, NULL, concat('c', cast(id / 4 AS int))) AS s",
        )  # fmt: skip
        for name in ("facts", "plain"):
            rows.write.parquet(str(folder / name))
        spark.range(0, 12, 1, 1).selectExpr(
            "cast(id * 2 AS int) AS k", "cast(id AS int) AS n", "concat('c', id) AS s"
        ).write.parquet(str(folder / "small"))
        source = IndexedTable.register(spark, folder / "facts")
        trips = IndexedTable.create(spark, folder / "lake" / "trips", _COLUMNS, ["id"], buckets=2)
        trips.upsert(rows.where("id < 90"))
        for table in (source, trips):
            table.create_index("by_k", kind="secondary", columns=["k"])
            table.create_index("by_s", kind="compact", columns=["s"])
            table.create_index("by_both", kind="secondary", columns=["k", "n"])
        trips.upsert(rows.where("id >= 80").selectExpr("id", "k", "n", "s"))
        spark_apps.enable(spark, folder)
        self._name(spark, folder / "facts", spark.table("lake.trips"), trips.frame(), folder / "small")
        plain = self.alone.read.parquet(str(folder / "plain"))
        self._name(self.alone, folder / "plain", plain, plain, folder / "small")

    def _name(self, spark: Any, facts: Path, trips: Any, frame: Any, small: Path) -> None:
        kept = spark.read.parquet(str(small)).where("n % 3 <> 1").cache()
        kept.count()
        self._kept.append(kept)
        views = {"facts": spark.read.parquet(str(facts)), "small_files": spark.read.parquet(str(small)),
                 "trips": trips, "trips_frame": frame, "kept": kept}  # fmt: skip
        for name, rows in views.items():
            rows.createOrReplaceTempView(name)

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        spark_apps.disable(self.spark)
        for name, value in self._settings.items():
            self.spark.conf.unset(name)
            if value is not None:
                self.spark.conf.set(name, value)

    def compare(self, seed: int, tally: Tally) -> None:
        """Ask a drawn query of both sessions, and count what became of its keys."""
        drawn = Drawing(seed).query()
        rewriter, _ = session._ENABLED[session._key(self.spark)]
        before = rewriter.newest_query()
        rows = _answer(self.spark, drawn.text)
        scans = [scan for query in rewriter._queries if query > before for scan in rewriter.decisions(query)]
        alone = _answer(self.alone, drawn.text)
        if alone == _REFUSED:
            tally.add("queries", "refused")  # by a value without a cast, whose row the rule may leave out
            return
        assert rows == alone, f"{len(rows)} rows, {len(alone)} by Spark alone: {drawn.text}"
        failed = [scan for scan in scans if scan.failed]
        assert not failed, f"{failed[0].reason}: {drawn.text}"
        keys = [scan.keys for scan in scans if scan.keys]
        tally.add("queries", "with rows" if rows else "without rows")
        tally.add("keys", "taken" if any("not taken" not in one for one in keys) else "not taken" if keys else "none")
        for word in drawn.words:
            tally.add(word.partition(" ")[0], word.partition(" ")[2])


_REFUSED = ["refused"]


def _answer(spark: Any, query: str) -> list[str]:
    """Return the rows of a query, sorted; or that Spark refuses it: it has no plan for it, or a value has no cast."""
    try:
        return sorted(map(str, spark.sql(query).collect()))
    except (Py4JJavaError, PySparkException):
        return _REFUSED
