"""MERGE, UPDATE and DELETE of Delta tables by delta-spark: each is run on twin tables, with indexes and without.

Rows and what the commit says of itself are equal, and the target's scans keep the files that can hold a row of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.optimizer import many_keys
from tests.connectors.comparing import watched
from tests.spark_apps.small_tables import in_order

pytestmark = pytest.mark.usefixtures("delta")

FILES, ROWS = 8, 800


def key(row: int) -> int:
    """Return the key of a row: keys are unique, and those of each file from nearly all of the range."""
    return row * 7919 % ROWS


@pytest.fixture(scope="module", params=[True, False], ids=["vectors", "rewritten"])
def twins(request, spark, tmp_path_factory) -> tuple[str, str, str]:
    """Two equal tables of 8 files, the first of them indexed, and a small one of keys."""
    home = tmp_path_factory.mktemp("twins")
    on = str(request.param).lower()
    columns = ("id", f"id * 7919 % {ROWS} AS key", "cast(id % 97 AS int) AS n", "'a' AS s")
    rows = spark.range(ROWS).selectExpr(*columns).repartitionByRange(FILES, "id")
    indexed, plain, keys = (str(home / name) for name in ("with", "without", "keys"))
    for path in (indexed, plain):
        rows.write.format("delta").option("delta.enableDeletionVectors", on).save(path)
    spark.sql(f"SELECT * FROM {values(120, 520)}").repartition(1).write.format("delta").save(keys)
    IndexedTable.register(spark, indexed, "delta").create_index("by_key", "secondary", ["key"])
    return indexed, plain, keys


def values(*rows: int) -> str:
    """Return a source of the keys of some rows, and of one that the table does not have."""
    given = ", ".join(f"({key(row)}L, {row})" for row in rows)
    return f"(SELECT * FROM VALUES {given}, ({5000 + rows[0]}L, 4) s(key, m))"


def merge(source: str, *clauses: str, on: str = "t.key = s.key") -> str:
    return f"MERGE INTO {{t}} t USING {source} s ON {on} {' '.join(clauses)}"


MATCHED = "WHEN MATCHED THEN UPDATE SET n = s.m"
NOT_MATCHED = "WHEN NOT MATCHED THEN INSERT (id, key, n, s) VALUES (s.key, s.key, s.m, 'new')"

MANY = f"(SELECT 7000L + id AS key, 1 AS m FROM range(12000) UNION ALL SELECT * FROM {values(119, 121)})"
"""More keys than come to the driver, of which few are in the table."""
NARROW = (
    f"(SELECT IF(id < 5, NULL, cast(7000 + id AS int)) AS key, 1 AS m FROM range(12000) UNION ALL SELECT {key(122)}, 2)"
)
"""The same, of another type of whole numbers, and with nulls."""

STATEMENTS = [
    (merge(values(117, 518, 519), MATCHED, NOT_MATCHED), True),
    (merge(values(217, 218), MATCHED, on="t.key = s.key AND t.n < 50"), True),
    (merge(values(317, 518), NOT_MATCHED), True),
    (merge(values(318, 619), "WHEN MATCHED AND s.m = 318 THEN DELETE", MATCHED), True),
    (merge("{source}", MATCHED, NOT_MATCHED), True),
    (merge("(SELECT key, m FROM {source} WHERE rand() >= 0 LIMIT 10)", MATCHED), True),
    (merge(MANY, MATCHED), True),
    (merge(MANY, "WHEN MATCHED AND t.n > 20 THEN DELETE", on="t.key <=> s.key AND t.s = 'a'"), True),
    (merge(NARROW, MATCHED), True),
    (f"UPDATE {{t}} SET s = 'b' WHERE key IN ({key(121)}, {key(521)})", True),
    (f"DELETE FROM {{t}} WHERE key = {key(123)}", True),
    # From here on all files may be others than the index covers.
    (f"UPDATE {{t}} SET n = n + 1 WHERE key = {key(122)} OR n = 7", False),
    (merge(values(124), MATCHED, "WHEN NOT MATCHED BY SOURCE AND t.n = 9 THEN DELETE"), False),
]
"""Each with whether its target is pruned."""


def test_given_an_index_then_commands_do_what_they_do_without(spark, twins, monkeypatch):
    seen = watched(monkeypatch)
    indexed, plain, keys = twins
    monkeypatch.setattr(many_keys, "SAMPLED_KEYS", 100)  # the table is read sooner than more are looked up
    spark.conf.set("spark.lakeindex.joinKeys.worth", "0")
    for statement, pruned in STATEMENTS:
        del seen[:]
        for path in (indexed, plain):
            spark_apps.disable(spark)
            if path == indexed:
                spark_apps.enable(spark, sources=[path])
            spark.sql(statement.format(t=f"delta.`{path}`", source=f"delta.`{keys}`"))
        spark_apps.disable(spark)
        rows = [in_order(spark.read.format("delta").load(path).collect()) for path in (indexed, plain)]
        assert rows[0] == rows[1], statement
        assert metrics(indexed) == metrics(plain), statement
        assert not any(decision.failed for decision in seen), (statement, seen)
        kept = [one.scanned for one in seen if one.address.endswith("with") and one.scanned]
        reasons = [(one.reason, one.keys) for one in seen]
        assert bool(kept) is pruned and all(left < all_of_them for all_of_them, left in kept), (statement, reasons)
    spark.conf.unset("spark.lakeindex.joinKeys.worth")


def metrics(path: str) -> dict[str, str]:
    """Return what the newest commit of a table says of its rows and files."""
    newest = max(Path(path, "_delta_log").glob("*.json"))
    said = [json.loads(line) for line in newest.read_text().splitlines()]
    found = next(line["commitInfo"]["operationMetrics"] for line in said if "commitInfo" in line)
    return {
        name: text for name, text in found.items() if not name.endswith(("Ms", "Bytes", "BytesAdded", "BytesRemoved"))
    }


def test_given_a_commit_between_planning_and_commit_then_a_merge_is_refused_as_without(spark, twins):
    refused = []
    for path in twins[:2]:
        spark_apps.disable(spark)
        named = f"delta.`{path}`"
        spark.sql(f"ALTER TABLE {named} SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
        if path == twins[0]:
            spark_apps.enable(spark, sources=[path])
        refused.append(merged_beside(spark, path))
    spark_apps.disable(spark)

    assert refused[0] == refused[1] and refused[0]


def merged_beside(spark, path: str) -> str:
    """Merge into a table, where another's commit of a row that matches lands meanwhile; return the error's class."""
    named = f"delta.`{path}`"
    spark.sql(f"INSERT INTO {named} VALUES (9, {key(118)}, 1, 'other')")
    commit = max(Path(path, "_delta_log").glob("*.json"))
    aside = commit.with_name("aside")
    commit.rename(aside)
    for checksum in commit.parent.glob(f"*{commit.stem}*.crc"):
        checksum.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    there, lands = str(aside), str(commit)

    def landing(number: int) -> int:
        import os

        if not os.path.exists(lands):
            os.link(there, lands)
        return number

    spark.udf.register("landing", landing, "int")
    try:
        spark.sql(
            f"MERGE INTO {named} t USING (SELECT {key(117)}L AS key UNION ALL SELECT {key(118)}L) s "
            "ON t.key = s.key WHEN MATCHED THEN UPDATE SET n = landing(n)"
        )
    except Exception as error:  # noqa: BLE001 - which one is what is compared
        return str(error).split("]", 1)[0].split(".", 1)[0]
    finally:
        assert commit.exists()
    return ""
