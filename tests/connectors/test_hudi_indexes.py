"""Hudi's own indexes under the actions of all indexes: each trap of Hudi's first, and then what is done about it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.storage import errors
from spark_apps.storage.store import Store
from spark_apps.timeline.hudi_indexes import read_indexes
from tests.connectors.hudi_tables import CATALOG, SMALL
from tests.connectors.releases import CONNECTORS

IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
LOCK = {"hoodie.write.lock.provider": IN_PROCESS}
KEPT = "hoodie.metadata.global.record.level.index.enable"
OWN = {
    **{name: value for name, value in SMALL.items() if name != "hoodie.metadata.enable"},
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "2",
}
"""The settings of small tables that have a metadata table."""
ROWS = 60


@pytest.fixture
def session(hudi: Any) -> Any:
    """A session whose tables have a metadata table, without a lock provider."""
    spark = hudi.newSession()
    for name, value in {
        "spark.sql.catalog.spark_catalog": hudi.conf.get("spark.sql.catalog.spark_catalog"),
        **OWN,
    }.items():
        spark.conf.set(name, value)
    return spark


class Own:
    """A Hudi table of 60 rows that was made by SQL, and what its folder says."""

    def __init__(self, spark: Any, path: Any, kind: str) -> None:
        self.spark, self.path, self.name = spark, str(path), f"own_{kind}"
        spark.sql(f"DROP TABLE IF EXISTS {self.name}")
        spark.sql(
            f"CREATE TABLE {self.name} (id BIGINT, v INT, city STRING) USING hudi TBLPROPERTIES (type = '{kind}', "
            f"primaryKey = 'id', preCombineField = 'v') LOCATION '{path}'"
        )
        self.sql(f"INSERT INTO {{t}} SELECT id, cast(id AS int) AS v, concat('c$', id % 7) AS city FROM range({ROWS})")

    def sql(self, statement: str) -> Any:
        return self.spark.sql(statement.replace("{t}", self.name)).collect()

    def lock(self) -> None:
        for name, value in LOCK.items():
            self.spark.conf.set(name, value)

    @property
    def partitions(self) -> set[str]:
        return set(read_indexes(Store(self.path)).partitions) - {"files", "column_stats"}

    def write(self, **more: str) -> None:
        """Write a row as a job of its own that knows nothing of indexes."""
        options = {
            **OWN, **LOCK, "hoodie.table.name": self.name, "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "v", "hoodie.datasource.write.operation": "upsert",
            **{name.replace("__", "."): value for name, value in more.items()},
        }  # fmt: skip
        rows = self.spark.sql("SELECT 1000L AS id, 1 AS v, 'x' AS city")
        rows.write.format("hudi").options(**options).mode("append").save(self.path)


@pytest.fixture(params=["cow", "mor"])
def own(session: Any, tmp_path: Any, request: Any) -> Any:
    table = Own(session, tmp_path / "t", request.param)
    yield table
    session.sql(f"DROP TABLE IF EXISTS {table.name}")


@pytest.fixture
def cow(session: Any, tmp_path: Any) -> Any:
    table = Own(session, tmp_path / "t", "cow")
    yield table
    session.sql(f"DROP TABLE IF EXISTS {table.name}")


def test_given_no_lock_provider_then_hudi_builds_nothing_and_the_setting_is_named(cow: Own) -> None:
    with pytest.raises(Exception, match=r"hoodie\.write\.lock\.provider|Failed to create write client"):
        cow.sql("CREATE INDEX record_index ON {t} (id)")
    table = IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    with pytest.raises(errors.InvalidInput, match=r"needs a lock provider; hoodie\.write\.lock\.provider is not set"):
        table.create_index("by_id", "hudi:record")
    assert cow.partitions == set() and table.version == 0

    receipt = table.create_index("by_id", "hudi:record", properties=LOCK)
    assert receipt.metrics["lock_provider"] == IN_PROCESS and cow.partitions == {"record_index"}


def test_given_a_hudi_table_then_its_own_indexes_are_built_seen_compared_and_dropped(own: Own) -> None:
    own.lock()
    table = IndexedTable.register(own.spark, own.path, "hudi", record_key=["id"])
    with pytest.raises(errors.InvalidInput, match="finds files through its record index"):
        table.create_index("by_city", "hudi:secondary", ["city"])
    plan = table.create_index("by_id", "hudi:record", plan_only=True)
    assert plan.files > 0 and own.partitions == set()

    record = table.create_index("by_id", "hudi:record", txn_id="build-1")
    assert own.partitions == {"record_index"}
    assert record.metrics["partition"] == "record_index" and record.metrics["instant"].isdigit()
    # A try that comes after the one that committed, and one of a task that was cleared.
    assert table.create_index("by_id", "hudi:record", txn_id="build-1").version == record.version
    again = table.create_index("by_id", "hudi:record", if_not_exists=True, txn_id="build-2")
    assert again.version is None and again.metrics["found"]
    with pytest.raises(errors.IndexExists):
        table.create_index("by_id", "hudi:record")

    table.create_index("by_city", "hudi:secondary", ["city"])
    assert own.partitions == {"record_index", "secondary_index_by_city"}
    seen = IndexedTable.load(own.spark, own.path).indexes
    assert {
        name: (one.engine, one.kind, one.columns, one.state)
        for name, one in seen.items()
        if one.kind != "hudi:column_stats"
    } == {
        "by_id": ("hudi", "hudi:record", ("id",), "active"),
        "by_city": ("hudi", "hudi:secondary", ("city",), "active"),
    }
    assert not [file for name in seen for file in table.snapshot.state.files(f"index/{name}")]

    own.spark.conf.set(KEPT, "true")
    own.sql("UPDATE {t} SET city = 'moved$' WHERE id < 5")
    own.sql("UPDATE {t} SET city = null WHERE id = 9")
    own.sql("DELETE FROM {t} WHERE id = 7")
    for name in ("by_id", "by_city"):
        report = table.verify(name)
        assert report.ok, report
        assert (report.rows, report.entries) == (ROWS - 1, ROWS - 1), report
    table.create_index("by_v", "hudi:secondary", ["v"])
    report = table.verify("by_v")
    assert report.ok and (report.rows, report.entries) == (2 * (ROWS - 1), 2 * (ROWS - 1)), report

    with pytest.raises(errors.InvalidInput, match="by_city"):
        table.drop_index("by_id")
    table.drop_index("by_city")
    table.drop_index("by_v")
    table.drop_index("by_id", txn_id="drop")
    assert own.partitions == set() and not {"by_id", "by_city"} & set(table.indexes)
    assert table.drop_index("by_id", txn_id="drop").metrics["partition"] == "record_index"


def test_given_an_index_that_sql_made_then_it_is_seen_verified_and_dropped_as_ours_are(cow: Own) -> None:
    cow.lock()
    cow.sql("CREATE INDEX record_index ON {t} (id)")
    table = IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    assert table.indexes["record_index"].engine == "hudi" and table.verify("record_index").ok
    with pytest.raises(errors.IndexExists, match="if_not_exists"):
        table.create_index("by_id", "hudi:record")
    taken = table.create_index("by_id", "hudi:record", if_not_exists=True)
    assert taken.version is not None and taken.metrics["found"]
    assert table.indexes["by_id"].kind == "hudi:record" and "record_index" not in table.indexes
    table.drop_index("by_id")
    assert cow.partitions == set()


def test_given_a_writer_without_its_setting_then_the_index_vanishes_and_a_refresh_builds_it_again(cow: Own) -> None:
    cow.lock()
    table = IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    table.create_index("by_id", "hudi:record")
    cow.write(**{KEPT.replace(".", "__"): "false"})
    assert cow.partitions == set()  # and neither the writer nor SHOW INDEXES said a word

    table = IndexedTable.load(cow.spark, cow.path)
    assert table.indexes["by_id"].state == "vanished"
    report = table.verify("by_id")
    assert not report.ok and "vanished" in str(report.differences)
    receipt = table.refresh_index("by_id")
    assert receipt.metrics["was"] == "vanished" and receipt.version is not None
    assert cow.partitions == {"record_index"} and table.verify("by_id").ok
    assert table.refresh_index("by_id").version is None  # Hudi's own REFRESH INDEX does nothing, also where this does


def test_given_hudis_refresh_then_it_answers_and_does_nothing(cow: Own) -> None:
    cow.sql("REFRESH INDEX there_is_none ON {t}")
    table = IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    with pytest.raises(errors.IndexNotFound):
        table.refresh_index("there_is_none")


def test_given_a_create_index_that_was_refused_then_writes_fail_and_builds_name_the_definition_that_it_left(
    session: Any, tmp_path: Any
) -> None:
    own = Own(session, tmp_path / "t", "mor")
    own.sql("UPDATE {t} SET v = 0 WHERE id < 5")
    with pytest.raises(Exception, match="index"):  # for want of a lock provider
        own.sql("CREATE INDEX low ON {t} USING column_stats(city) OPTIONS(expr = 'lower')")
    own.lock()
    table = IndexedTable.register(own.spark, own.path, "hudi", record_key=["id"])
    assert table.indexes["low"].state == "refused"
    with pytest.raises(errors.InvalidInput, match="every write of this table fails"):
        table.create_index("by_id", "hudi:record")
    with pytest.raises(Exception, match="Hoodie"):
        own.sql("UPDATE {t} SET v = 1 WHERE id < 5")


def test_given_statistics_and_filters_of_files_then_they_are_built_and_dropped_by_hudis_service(cow: Own) -> None:
    cow.lock()
    table = IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    assert table.indexes["column_stats"].engine == "hudi" and table.verify("column_stats").ok
    table.create_index("filters", "hudi:bloom_filters")
    assert "bloom_filters" in read_indexes(Store(cow.path)).partitions
    with pytest.raises(errors.InvalidInput, match="not compared"):
        table.verify("filters")
    table.drop_index("filters")
    table.drop_index("column_stats")
    assert cow.partitions == set() and "column_stats" not in read_indexes(Store(cow.path)).partitions
    table.create_index("stats", "hudi:column_stats", ["v"])
    assert "column_stats" in read_indexes(Store(cow.path)).partitions and table.verify("stats").ok


def test_given_a_hudi_table_then_what_hudi_has_no_word_for_is_refused_before_it_is_asked(cow: Own) -> None:
    cow.lock()
    table = IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    for kind, columns, more, said in (
        ("hudi:other", [], {}, "Hudi has no index of kind"),
        ("hudi:record", ["city"], {}, "over the record key"),
        ("hudi:record", [], {"deferred": True}, "has no deferred"),
        ("hudi:secondary", ["nothing"], {}, "no column 'nothing'"),
        ("hudi:expression", ["city"], {}, "needs what it keeps"),
        ("hudi:column_stats", ["v"], {"properties": {"expr": "lower"}}, "no property 'expr'"),
    ):
        with pytest.raises(errors.InvalidInput, match=said):
            table.create_index("i", kind, columns, **more)
    keyed = IndexedTable.create(cow.spark, f"{cow.path}_keyed", "id bigint", ["id"])
    with pytest.raises(errors.InvalidInput, match="registered Hudi tables"):
        keyed.create_index("i", "hudi:record")
    assert cow.partitions == set() and table.version == 0


def test_given_the_operators_then_hudi_builds_once_through_retries_and_clears_and_drops(
    cow: Own, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs in a Spark of their own, as Airflow starts them, beside this test's session."""
    from airflow_provider_index.operators import BuildIndexOperator, DropIndexOperator, VerifyIndexOperator
    from tests.airflow_provider_index.operators.plain_table import Memory, context

    IndexedTable.register(cow.spark, cow.path, "hudi", record_key=["id"])
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", '{"conn_type": "index_table_store"}')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK", '{"conn_type": "spark", "host": "local[2]"}')
    provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    conf = {
        "spark.jars.packages": CONNECTORS["hudi"].packages["3.5"],
        "spark.sql.extensions": CONNECTORS["hudi"].extension,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        **CONNECTORS["hudi"].settings,
        **{f"spark.{name}": value for name, value in (OWN | {"hoodie.write.lock.provider": provider}).items()},
    }
    common: dict[str, Any] = {"table": cow.path, "table_conn_id": "lake", "spark_conn_id": "spark", "conf": conf}
    build = BuildIndexOperator(task_id="build", index="by_id", kind="hudi:record", **common)
    memory = Memory()
    first = build.execute(context("build", memory=memory))
    assert first["metrics"]["lock_provider"] == provider and cow.partitions == {"record_index"}
    assert build.execute(context("build", memory=memory))["version"] == first["version"]  # without Spark
    cleared = build.execute(context("build", memory=memory, tries=1))
    assert cleared["version"] is None and cleared["metrics"]["found"]

    reports = VerifyIndexOperator(task_id="verify", index=["by_id"], **common).execute(context("verify"))
    assert reports["by_id"]["ok"] and reports["by_id"]["rows"] == ROWS
    DropIndexOperator(task_id="drop", index="by_id", **common).execute(context("drop"))
    assert cow.partitions == set()
