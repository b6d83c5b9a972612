"""One client of a Hive metastore with Delta tables, ``python -m tests.connectors.on_metastore STEP ADDRESS FOLDER``.

A session's own catalog is set when its JVM starts, so each client is a process. What it has found stands as JSON
in its last line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import spark_apps
from spark_apps import IndexedTable
from tests.connectors.releases import connected_session

NAME = "db.trips"
ROWS = 400


def asked(spark: Any, number: int) -> list[Any]:
    """Return the ids found by plain SQL, and the files of the connector's plan and those kept."""
    query = f"SELECT id FROM {NAME} WHERE n = {number} ORDER BY id"
    [scan] = spark_apps.explain(query, spark).scans
    return [[row.id for row in spark.sql(query).collect()], scan.scanned]


def make(spark: Any, folder: Path) -> dict[str, Any]:
    """Make a table by its name, and index it by its name."""
    spark.sql("CREATE DATABASE db")
    spark.sql(f"CREATE TABLE {NAME} (id BIGINT, n BIGINT) USING delta LOCATION '{folder}/trips'")
    rows = spark.range(ROWS).selectExpr("id", f"id * 7919 % {ROWS} AS n")
    rows.repartitionByRange(4, "id").write.insertInto(NAME)
    spark.sql(f"CREATE VIEW db.some AS SELECT * FROM {NAME} WHERE id >= 10")
    table = IndexedTable.register(spark, NAME, record_key=["id"])
    table.create_index("by_n", "secondary", ["n"])
    return {"log": table.uri, "found": asked(spark, 3)}


def write(spark: Any, _: Path) -> dict[str, Any]:
    """Be another client: find the index by the name alone, change rows by MERGE."""
    found = asked(spark, 3)
    spark.sql(
        f"MERGE INTO {NAME} t USING (SELECT * FROM VALUES (7L, 3L), ({ROWS}L, 3L) AS s(id, n)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    return {"found": found, "merged": asked(spark, 3)}


def follow(spark: Any, _: Path) -> dict[str, Any]:
    """Be the first client again, in another process: refresh the index; then the table is dropped."""
    table = IndexedTable.load(spark, NAME)
    before = asked(spark, 3)
    table.refresh_index("by_n")
    verified = table.verify("by_n").ok
    [scan] = spark_apps.explain("SELECT id FROM db.some WHERE n = 3", spark).scans
    after = asked(spark, 3)
    spark.sql(f"DROP TABLE {NAME}")
    try:
        IndexedTable.load(spark, NAME)
        dropped = ""
    except spark_apps.storage.errors.LakeIndexError as error:
        dropped = type(error).__name__
    return {"before": before, "verified": verified, "view": scan.scanned, "after": after, "dropped": dropped}


def main() -> None:
    step, address, folder = sys.argv[1:]
    home = Path(folder) / step
    home.mkdir()
    given = {"spark__sql__catalogImplementation": "hive", "spark__hadoop__hive__metastore__uris": address}
    spark = connected_session(home, ["delta"], **given)
    spark_apps.enable(spark, warehouse=f"{folder}/indexes")
    found = {"make": make, "write": write, "follow": follow}[step](spark, Path(folder))
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    spark.stop()


if __name__ == "__main__":
    main()
