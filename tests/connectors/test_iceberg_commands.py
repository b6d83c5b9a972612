"""MERGE, UPDATE and DELETE of Iceberg tables by Iceberg's own connector: each is run with an index and without.

Rows and what the snapshot says of itself are equal, and the target's scans keep the files that can hold a row of it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps.optimizer import many_keys
from tests.connectors import iceberg_tables
from tests.connectors.comparing import watched
from tests.connectors.iceberg_tables import MERGE_ON_READ, make, registered
from tests.spark_apps.small_tables import in_order

pytestmark = pytest.mark.usefixtures("iceberg")
FILES, ROWS = 8, 800
MODES = {"merge-on-read": MERGE_ON_READ, "copy-on-write": dict.fromkeys(MERGE_ON_READ, "copy-on-write")}


def key(row: int) -> int:
    return iceberg_tables.key(row, ROWS)


SOURCE = f"(SELECT * FROM VALUES ({key(117)}L, 1), ({key(518)}L, 2), ({key(519)}L, 3), (5000L, 4) s(key, m))"
MATCHED = "WHEN MATCHED THEN UPDATE SET n = s.m"
NOT_MATCHED = "WHEN NOT MATCHED THEN INSERT (id, key, n, rider) VALUES (s.key, s.key, s.m, 'new')"

STATEMENTS = [
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key {MATCHED} {NOT_MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key AND t.n < 50 {MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key WHEN MATCHED AND s.m = 1 THEN DELETE {MATCHED}", 2),
    (f"MERGE INTO {{t}} t USING {SOURCE} s ON t.key = s.key {MATCHED} WHEN NOT MATCHED BY SOURCE THEN DELETE", None),
    (f"MERGE INTO {{t}} t USING prod.db.changes s ON t.key = s.key {MATCHED} {NOT_MATCHED}", 2),
    (f"UPDATE {{t}} SET rider = 'b' WHERE key IN ({key(117)}, {key(518)})", 2),
    ("UPDATE {t} SET n = 1 WHERE key IN (SELECT key FROM prod.db.changes WHERE m < 3)", 2),
    (f"UPDATE {{t}} SET n = n + 1 WHERE key = {key(117)} OR n = 7", None),
    (f"DELETE FROM {{t}} WHERE key = {key(117)}", 1),
    ("DELETE FROM {t} WHERE key IN (SELECT key FROM prod.db.changes)", 2),
]
# More keys than come to the driver: of an Iceberg table, which is pinned.
STATEMENTS += [
    (f"MERGE INTO {{t}} t USING prod.db.many s ON t.key = s.key {MATCHED}", 2),
    ("DELETE FROM {t} WHERE key IN (SELECT key FROM prod.db.many)", 2),
]
COUNTS = ("added-records", "deleted-records", "added-data-files", "deleted-data-files", "added-position-deletes")


@pytest.fixture(scope="module", params=MODES)
def twins(request, spark, iceberg) -> tuple[str, str, str]:
    """Two equal tables of 8 files, and the log of the first one's indexes."""
    names = [f"prod.db.{request.param.replace('-', '_')}_{which}" for which in ("with", "without")]
    for name in names:
        make(spark, name, FILES, ROWS, **MODES[request.param])
    spark.sql(f"CREATE OR REPLACE TABLE prod.db.changes USING iceberg AS SELECT * FROM {SOURCE}")
    many = f"SELECT * FROM {SOURCE} UNION ALL SELECT if(id < 3, null, id + 5000000000), 1 FROM range(12000)"
    spark.sql(f"CREATE OR REPLACE TABLE prod.db.many USING iceberg AS {many}")
    table = registered(spark, names[0])
    table.create_index("by_key", "secondary", ["key"])
    return names[0], names[1], table._handle.timeline.store.uri


@pytest.mark.parametrize(("statement", "kept"), STATEMENTS, ids=range(len(STATEMENTS)))
def test_given_an_index_then_a_command_does_what_it_does_without(spark, twins, statement, kept, monkeypatch):
    names, log = twins[:2], twins[2]
    seen = watched(monkeypatch)
    monkeypatch.setattr(many_keys, "SAMPLED_KEYS", 100)  # the table is read sooner than more are looked up
    spark.conf.set("spark.lakeindex.joinKeys.worth", "0")
    first = [snapshots(spark, name)[0][0] for name in names]
    try:
        for name in names:
            spark_apps.disable(spark)
            if name == names[0]:
                spark_apps.enable(spark, sources=[log])
            spark.sql(statement.format(t=name))
        spark_apps.disable(spark)
        indexed, plain = (in_order(spark.table(name).collect()) for name in names)
        assert indexed == plain
        counts = [summary(spark, name) for name in names]
        assert counts[0] == counts[1]
    finally:
        spark_apps.disable(spark)
        spark.conf.unset("spark.lakeindex.joinKeys.worth")
        for name, snapshot in zip(names, first, strict=True):
            spark.sql(f"CALL prod.system.rollback_to_snapshot('{name.removeprefix('prod.')}', {snapshot})")
    assert not any(decision.failed for decision in seen), [decision.reason for decision in seen]
    scanned = [decision.scanned for decision in seen if decision.scanned]
    if kept is not None:
        assert scanned and {count for _, count in scanned} <= set(range(1, kept + 1)), (scanned, seen)


def snapshots(spark: Any, name: str) -> list[Any]:
    return spark.sql(f"SELECT snapshot_id, summary FROM {name}.snapshots ORDER BY committed_at").collect()


def summary(spark: Any, name: str) -> dict[str, str]:
    """Return what the newest snapshot of a table says of its rows and files."""
    said = snapshots(spark, name)[-1][1]
    return {count: said.get(count) for count in COUNTS}


@pytest.mark.by_turn(2)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_given_a_commit_between_planning_and_commit_then_a_merge_ends_as_without(spark, twins, isolation, tmp_path):
    names, log = twins[:2], twins[2]
    ended = []
    for name in names:
        first = snapshots(spark, name)[0][0]
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.merge.isolation-level' = '{isolation}')")
        spark_apps.disable(spark)
        if name == names[0]:
            spark_apps.enable(spark, sources=[log])
        ended.append(merged_beside(spark, name, tmp_path))
        spark_apps.disable(spark)
        spark.sql(f"CALL prod.system.rollback_to_snapshot('{name.removeprefix('prod.')}', {first})")

    assert ended[0] == ended[1] and bool(ended[0]) == (isolation == "serializable")


def merged_beside(spark: Any, name: str, folder: Path) -> str:
    """Merge into a table while another thread commits a row that matches; return the error's kind."""
    begun, met = folder / f"{name}.begun", folder / f"{name}.met"

    def wait_for(path: Path) -> None:
        for _ in range(1200):
            if path.exists():
                return
            time.sleep(0.05)

    def insert() -> None:
        wait_for(begun)
        spark.newSession().sql(f"INSERT INTO {name} VALUES (9, {key(118)}, 1, 'other')")
        met.touch()

    def slow(number: int) -> int:
        begun.touch()
        wait_for(met)
        return number

    spark.udf.register("slowly", slow, "int")
    other = threading.Thread(target=insert)
    other.start()
    try:
        spark.sql(
            f"MERGE INTO {name} t USING (SELECT {key(117)}L AS key UNION ALL SELECT {key(118)}L) s "
            "ON t.key = s.key WHEN MATCHED THEN UPDATE SET n = slowly(n)"
        )
    except Exception as error:  # noqa: BLE001 - which one is what is compared
        text = str(error)
        return "conflict" if "conflicting" in text or "Cannot commit" in text else text
    finally:
        other.join()
        assert met.exists()
    return ""
