"""MERGE, UPDATE and DELETE of Delta tables by delta-spark: each is run on twin tables, with indexes and without.

Rows and what the commit says of itself are equal, and the target's scans keep the files that can hold a row of it.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable

FILES, ROWS = 8, 800


@pytest.fixture(scope="module", autouse=True)
def delta(connectors: frozenset[str]) -> None:
    assert "delta" in connectors


@pytest.fixture(scope="module", params=[True, False], ids=["vectors", "rewritten"])
def templates(request, spark, tmp_path_factory) -> tuple[str, str]:
    """Two equal tables of 8 files, the first of them indexed; each test takes copies."""
    home = tmp_path_factory.mktemp("templates")
    rows = spark.range(ROWS).selectExpr("id", f"id * 7919 % {ROWS} AS key", "cast(id % 97 AS int) AS n", "'a' AS s")
    on = str(request.param).lower()
    for name in ("with", "without"):
        frame = rows.repartitionByRange(FILES, "id").write.format("delta")
        frame.option("delta.enableDeletionVectors", on).save(str(home / name))
    return str(home / "with"), str(home / "without")


def key(row: int) -> int:
    return row * 7919 % ROWS


@pytest.fixture
def twins(spark, templates, tmp_path) -> tuple[str, str]:
    import shutil

    for name, path in zip(("with", "without"), templates, strict=True):
        shutil.copytree(path, tmp_path / name)
    indexed = str(tmp_path / "with")
    IndexedTable.register(spark, indexed, "delta").create_index("by_key", "secondary", ["key"])
    return indexed, str(tmp_path / "without")


SOURCE = f"(SELECT * FROM VALUES ({key(117)}L, 1), ({key(518)}L, 2), ({key(519)}L, 3), (5000L, 4) s(key, m))"
MATCHED = "WHEN MATCHED THEN UPDATE SET n = s.m"
NOT_MATCHED = "WHEN NOT MATCHED THEN INSERT (id, key, n, s) VALUES (s.key, s.key, s.m, 'new')"

STATEMENTS = [
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key {MATCHED} {NOT_MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key AND t.n < 50 {MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key {NOT_MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key WHEN MATCHED AND s.m = 1 THEN DELETE {MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key {MATCHED} WHEN NOT MATCHED BY SOURCE THEN DELETE", None),
    (f"MERGE INTO {{t}} t USING {{source}} s ON t.key = s.key {MATCHED} {NOT_MATCHED}", 2),
    (f"UPDATE {{t}} SET s = 'b' WHERE key IN ({key(117)}, {key(518)})", 2),
    (f"UPDATE {{t}} SET n = n + 1 WHERE key = {key(117)} OR n = 7", None),
    (f"DELETE FROM {{t}} WHERE key = {key(117)}", 1),
    ("DELETE FROM {t} WHERE key IN (SELECT key FROM {source})", None),
]
METRICS = ("numTargetRows", "numOutputRows", "numUpdatedRows", "numDeletedRows", "numCopiedRows", "numSourceRows")


@pytest.mark.parametrize(("statement", "kept"), STATEMENTS, ids=range(len(STATEMENTS)))
def test_given_an_index_then_a_command_does_what_it_does_without(spark, twins, tmp_path, statement, kept, monkeypatch):
    source = str(tmp_path / "source")
    spark.sql(f"SELECT * FROM {SOURCE}").repartition(1).write.format("delta").save(source)
    seen = watched(monkeypatch)
    spark.conf.set("spark.lakeindex.joinKeys.worth", "0")
    for path in twins:
        spark_apps.disable(spark)
        if path == twins[0]:
            spark_apps.enable(spark, sources=[path])
        spark.sql(statement.format(t=f"delta.`{path}`", source=f"delta.`{source}`"))
    spark_apps.disable(spark)
    spark.conf.unset("spark.lakeindex.joinKeys.worth")

    indexed, plain = (sorted(map(tuple, spark.read.format("delta").load(path).collect())) for path in twins)
    assert indexed == plain
    first, second = (metrics(path) for path in twins)
    assert first == second
    assert not any(decision.failed for decision in seen)
    scanned = [decision.scanned for decision in seen if decision.address.endswith("with") and decision.scanned]
    if kept is not None:
        assert scanned and {count for _, count in scanned} <= set(range(1, kept + 1)), scanned


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is decided on scans from now on."""
    from spark_apps.optimizer.rewriting import Rewriter

    seen: list[Any] = []
    settle = Rewriter._settle

    def settled(self: Any, request: Any, number: int, scan: Any, query: Any, keys: Any) -> None:
        before = len(query.decisions)
        settle(self, request, number, scan, query, keys)
        seen.extend(query.decisions[before:])

    monkeypatch.setattr(Rewriter, "_settle", settled)
    return seen


def metrics(path: str) -> dict[str, str]:
    """Return what the newest commit of a table says of its rows and files."""
    newest = max(Path(path, "_delta_log").glob("*.json"))
    said = [json.loads(line) for line in newest.read_text().splitlines()]
    found = next(line["commitInfo"]["operationMetrics"] for line in said if "commitInfo" in line)
    return {
        name: text for name, text in found.items() if not name.endswith(("Ms", "Bytes", "BytesAdded", "BytesRemoved"))
    }


@pytest.mark.parametrize("isolation", ["Serializable", "WriteSerializable"])
def test_given_a_commit_between_planning_and_commit_then_a_merge_is_refused_as_without(spark, twins, isolation):
    refused = []
    for path in twins:
        spark_apps.disable(spark)
        named = f"delta.`{path}`"
        spark.sql(f"ALTER TABLE {named} SET TBLPROPERTIES ('delta.isolationLevel' = '{isolation}')")
        if path == twins[0]:
            spark_apps.enable(spark, sources=[path])
        refused.append(merged_beside(spark, named))
    spark_apps.disable(spark)

    assert refused[0] == refused[1] and refused[0]


def merged_beside(spark, named: str) -> str:
    """Merge into a table while another commits a row that matches; return the error's class."""
    met = threading.Event()

    def slow(number: int) -> int:
        import time

        time.sleep(6)
        return number

    spark.udf.register("slowly", slow, "int")

    def insert() -> None:
        import time

        time.sleep(3)
        spark.newSession().sql(f"INSERT INTO {named} VALUES (9, {key(118)}, 1, 'other')")
        met.set()

    other = threading.Thread(target=insert)
    other.start()
    try:
        spark.sql(
            f"MERGE INTO {named} t USING (SELECT {key(117)}L AS key UNION ALL SELECT {key(118)}L) s "
            "ON t.key = s.key WHEN MATCHED THEN UPDATE SET n = slowly(n)"
        )
    except Exception as error:  # noqa: BLE001 - which one is what is compared
        return str(error).split("]", 1)[0].split(".", 1)[0]
    finally:
        other.join()
        assert met.is_set()
    return ""
