"""What the SQL operator tells its app, what it refuses before Spark starts, and what it does not do twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators import IndexSQLOperator, WriteTableOperator
from airflow_provider_index.sensors import TableRowSensor
from spark_apps.sql.statements import DeleteFrom
from spark_apps.storage.errors import InvalidInput, InvalidStatement
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.transactions import begin


def operator(sql: str, **fields: Any) -> IndexSQLOperator:
    return IndexSQLOperator(task_id="t", sql=sql, **fields)


def context() -> dict[str, Any]:
    return {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, max_tries=0)}


def test_the_script_goes_to_the_app_and_makes_the_transaction() -> None:
    one = operator("DROP TABLE `/t`")

    assert one.arguments() == {"sql": "DROP TABLE `/t`"}
    assert one.location() == ""
    assert one.inputs() != operator("DROP TABLE `/u`").inputs()
    assert one.inputs() == operator("DROP TABLE `/t`", conf={"spark.a": "1"}).inputs()


def test_the_script_is_a_template_and_may_be_a_file() -> None:
    assert "sql" in IndexSQLOperator.template_fields and "table" not in IndexSQLOperator.template_fields
    assert IndexSQLOperator.template_ext == (".sql",)


def test_a_mistake_fails_before_spark_is_asked_for() -> None:
    with pytest.raises(InvalidStatement, match="Line 2, column 8"):
        operator("SHOW INDEXES ON t;\nDELETE t").work(context())


def test_the_app_is_told_how_many_rows_go_to_xcom_or_where_they_are_written() -> None:
    assert operator("SELECT 1", max_rows=5).arguments() == {"sql": "SELECT 1", "max_rows": 5}
    assert "output_path" in IndexSQLOperator.template_fields
    assert operator("SELECT 1", output_path="s3://b/x").arguments() == {"sql": "SELECT 1", "output_path": "s3://b/x"}


@pytest.mark.parametrize(
    ("sql", "fields", "words"),
    [
        ("SELECT 1; SELECT 2", {"output_path": "/x"}, "holds 2 queries"),
        ("DROP TABLE t", {"output_path": "/x"}, "holds 0 queries"),
        ("SELECT 1", {"max_rows": 0}, "max_rows is 0"),
        ("SELECT 1", {"max_rows": "many"}, "max_rows"),
    ],
)
def test_an_answer_that_has_nowhere_to_go_is_refused_before_spark_is_asked_for(
    sql: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        operator(sql, **fields).work(context())


def test_a_query_is_not_taken_for_done(tmp_path: Path) -> None:
    create_table(Store(tmp_path / "t"), TableDefinition("x", (Field("id", "int"),), ("id",)))

    assert not operator("SELECT 1").commits()
    assert operator(f"UPDATE `{tmp_path}/t` SET id = 1; SELECT 1").commits()
    assert operator(f"UPDATE `{tmp_path}/t` SET id = 1; SELECT 1").tables_of_jobs() == (f"{tmp_path}/t",)


def test_a_table_belongs_into_the_statements() -> None:
    with pytest.raises(InvalidInput, match="takes no table"):
        operator("DROP TABLE t", table="t")


def test_a_script_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"sql is \[.*not text"):
        operator(["DROP TABLE t"]).work(context())  # type: ignore[arg-type]


def test_what_has_committed_already_is_handed_on_without_spark(tmp_path: Path) -> None:
    script = f"CREATE TABLE `{tmp_path}/t` (id int) USING indexed TBLPROPERTIES (primaryKey = 'id')"
    task = operator(script)
    definition = TableDefinition("x", (Field("id", "int"),), ("id",))
    create_table(Store(tmp_path / "t"), definition, txn_id=f"{transaction_id(context(), task.inputs)}.001")

    [answer] = task.work(context())

    assert (answer["statement"], answer["location"]) == ("CREATE TABLE", f"{tmp_path}/t")
    assert (answer["receipt"]["version"], answer["receipt"]["operation"]) == (0, "create")


def test_an_attempt_that_was_left_behind_is_aborted_before_the_next(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), TableDefinition("x", (Field("id", "int"),), ("id",)))
    task = operator(f"DROP INDEX x ON `{tmp_path}/t`")
    left = begin(timeline, operation="drop_index", txn_id=f"{transaction_id(context(), task.inputs)}.001")

    with pytest.raises(InvalidInput, match="where Spark is"):  # this Airflow has no Spark connection
        task.work(context())

    assert timeline.refresh().is_aborted(left.txn_id, left.attempt)


def test_a_task_that_is_killed_ends_its_attempt_by_a_commit(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), TableDefinition("x", (Field("id", "int"),), ("id",)))
    task = operator(f"DROP INDEX x ON `{tmp_path}/t`")
    with pytest.raises(InvalidInput, match="where Spark is"):
        task.work(context())
    at_work = begin(timeline, operation="drop_index", txn_id=f"{transaction_id(context(), task.inputs)}.001")

    task.on_kill()

    assert timeline.refresh().is_aborted(at_work.txn_id, at_work.attempt)


# --- Parameters -------------------------------------------------------------------------------------------------------


def test_given_parameters_then_the_app_is_given_literals_whatever_they_hold() -> None:
    city = {"city": "x' OR '1' = '1"}
    one = operator("DELETE FROM t WHERE city = :city", parameters=city)

    [statement] = one.statements()
    assert (
        one.arguments()["sql"] == f"DELETE FROM t WHERE city = CAST(X'{city['city'].encode().hex().upper()}' AS STRING)"
    )
    assert statement.words == DeleteFrom.words
    assert one.inputs() != operator("DELETE FROM t WHERE city = :city", parameters={"city": "x"}).inputs()
    assert "parameters" in IndexSQLOperator.template_fields


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"town": "x"}, "asks for the parameter :city"), ({"city": "x", "n": 1}, "'n' is given"), ({}, ":city"),
     ({"city": ["x"]}, "list, which cannot be bound")],
)  # fmt: skip
def test_given_parameters_that_do_not_fit_then_they_are_refused_before_spark_is_asked_for(
    parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        operator("DELETE FROM t WHERE city = :city", parameters=parameters).work(context())


def test_given_parameters_of_a_write_then_each_batch_has_its_own_bound() -> None:
    batches = [
        {"operation": "delete", "where": "city = :city"},
        {"sql": "SELECT :n AS n", "operation": "upsert", "parameters": {"n": 5}},
    ]
    one = WriteTableOperator(task_id="t", table="/t", batches=batches, parameters={"city": "o'hare"})

    first, second = one.arguments()["batches"]
    assert (first["where"], first["sql"]) == ("city = CAST(X'6F2768617265' AS STRING)", None)
    assert second["sql"] == "SELECT 5 AS n" and "parameters" not in first and "parameters" not in second
    with pytest.raises(InvalidInput, match="asks for the parameter :city"):
        WriteTableOperator(task_id="t", table="/t", operation="delete", where="a = :city", parameters={}).arguments()


def test_given_parameters_of_a_sensor_then_the_trigger_has_them_bound() -> None:
    sensor = TableRowSensor(task_id="t", table="/t", where="city = :city", parameters={"city": "sfo"})
    trigger = sensor.trigger(context(), table="/t", table_conn_id="lake", poll_interval=1, deadline=0)

    assert trigger.serialize()[1]["where"] == "city = 'sfo'"
    assert "parameters" in TableRowSensor.template_fields
