"""What Airflow stores of an operator's rendered arguments: as its task runner renders and redacts them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk._shared.secrets_masker import redact, reset_secrets_masker
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields

from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.masking import shown_by_airflow
from airflow_provider_index.operators import BuildIndexOperator, IndexSQLOperator, WriteTableOperator
from airflow_provider_index.sensors import IndexStateSensor

AZURE = "spark.hadoop.fs.azure.account.key.acmekms.dfs.core.windows.net"
RENDERED = "{{ params.held }}"


@pytest.fixture(autouse=True)
def masks() -> Any:
    reset_secrets_masker()
    yield
    reset_secrets_masker()


def stored(operator: Any, **params: Any) -> dict[str, Any]:
    """What goes to Airflow's database when the task begins."""
    context: Any = {"params": params, "ti": SimpleNamespace(map_index=-1), "task": operator}
    operator.render_template_fields(context, operator.get_template_env())
    return dict(_serialize_rendered_fields(context["task"]))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"conf": {AZURE: RENDERED, "spark.x": "1"}, "sql": "a"}, {"conf": {AZURE: "***", "spark.x": "1"}}),
        ({"conf": {"spark.my.uri": f"https://ada:{RENDERED}@h/x"}, "sql": "a"}, {"conf": {"spark.my.uri": "https://ada:***@h/x"}}),
        ({"conf": {"spark.driver.extraJavaOptions": f"-Dx.Passwd={RENDERED} -Da=b"}, "sql": "a"},
         {"conf": {"spark.driver.extraJavaOptions": "-Dx.Passwd=*** -Da=b"}}),
        ({"options": {"header.X-Api-Key": RENDERED}, "source": "/a"}, {"options": {"header.X-Api-Key": "***"}}),
        ({"source": f"https://b/x?sig={RENDERED}"}, {"source": "https://b/x?sig=***"}),
        ({"sql": f"SELECT * FROM jdbc OPTIONS (password '{RENDERED}')"},
         {"sql": "SELECT * FROM jdbc OPTIONS (password '***')"}),
        ({"create": {"schema": "id int", "properties": {"x.token": RENDERED}}, "sql": "a"},
         {"create": {"properties": {"x.token": "***"}, "schema": "id int"}}),
        ({"batches": [{"sql": f"password = '{RENDERED}'"}]}, {"batches": [{"sql": "password = '***'"}]}),
        ({"batches": [{"sql": f"x OPTIONS (password '{RENDERED}')"}]},
         {"batches": [{"sql": "x OPTIONS (password '***')"}]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mapped", [False, True])
def test_given_a_secret_from_a_template_then_its_rendered_field_holds_stars(
    fields: dict[str, Any], shown: dict[str, Any], mapped: bool
) -> None:
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        operator = WriteTableOperator(task_id="t", table="/t", **fields)
    if mapped:  # as a mapped task instance has it: made anew, and then rendered
        operator = operator.prepare_for_execution()

    rendered = stored(operator, held="hunter2-planted")

    assert "hunter2" not in json.dumps(rendered)
    assert {name: rendered[name] for name in shown} == shown


def test_given_a_mapped_task_then_what_it_is_expanded_over_is_hidden_as_well() -> None:
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        mapped = WriteTableOperator.partial(task_id="t", table="/t", sql="a").expand(conf=[{AZURE: "hunter2-planted"}])
    operator = mapped.unmap({"conf": {AZURE: "hunter2-planted"}})

    assert _serialize_rendered_fields(operator)["conf"] == {AZURE: "***"}


def test_given_a_literal_in_the_dag_then_it_is_hidden_in_every_kind_of_task() -> None:
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        tasks = [
            BuildIndexOperator(task_id="b", table="/t", index="i", kind="record", conf={AZURE: "hunter2-planted"}),
            IndexSQLOperator(task_id="s", sql="CREATE TABLE t USING csv OPTIONS (password 'hunter3-planted')"),
            IndexStateSensor(task_id="i", table="s3://AKID:hunter4@lake/t", index="i", states=["active"]),
        ]
    for task in tasks:
        assert "hunter" not in json.dumps(stored(task))


def test_given_a_connection_then_every_secret_in_it_is_hidden_from_logs_from_the_first_reading_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {
        "azure_storage_account_key": "planted-1",
        "endpoint": "http://ada:planted-2@h",
        "aws_region": "eu-west-1",
    }
    conf = {AZURE: "planted-3", "spark.driver.extraJavaOptions": "-Dx.password=planted-4", "spark.y": "left-as-it-is"}
    extra = {"conf": json.dumps(conf), "keytab": "cGxhbnRlZC01", "runner_options": {"api_key": "planted-6"}}
    secrets = {
        "tables": {"conn_type": "index_table_store", "extra": {"storage_options": json.dumps(options)}},
        "spark_x": {"conn_type": "spark", "host": "sc://h:1/;token=planted-7", "password": "planted-8", "extra": extra},
    }
    for name, one in secrets.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(one))
    hook = TableStoreHook("tables")

    assert hook.storage_options == options
    hook.spark_settings("spark_x")

    redacted = redact(
        " ".join([*(f"planted-{n}" for n in (1, 2, 3, 4, 6, 8)), "cGxhbnRlZC01", "eu-west-1 left-as-it-is"])
    )
    assert redacted == "*** *** *** *** *** *** *** eu-west-1 left-as-it-is"


def test_given_secrets_in_the_fields_for_them_then_airflows_connection_api_shows_none_and_both_hooks_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {
        "storage_options": '{"aws_region": "eu-west-1"}',
        "secret_storage_options": '{"azure_storage_account_key": "planted-1"}',
    }
    spark = {
        "conf": {"spark.y": "1"},
        "secret_conf": json.dumps({AZURE: "planted-2"}),
        "secret_keytab": "planted-3",
        "secret_runner_options": {"x": "planted-4"},
    }
    for name, conn_type, extra in (("TABLES", "index_table_store", tables), ("SPARK_X", "index_runner", spark)):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": conn_type, "extra": extra}))
        shown = by_api(extra)
        assert "planted" not in shown and ("eu-west-1" in shown or "spark.y" in shown)

    hook = TableStoreHook("tables")
    settings = hook.spark_settings("spark_x")

    assert hook.storage_options == {"aws_region": "eu-west-1", "azure_storage_account_key": "planted-1"}
    assert settings.conf == {"spark.y": "1", AZURE: "planted-2"} and settings.keytab == "planted-3"
    assert settings.runner_options == {"x": "planted-4"}
    assert (shown_by_airflow(tables, "storage_options"), shown_by_airflow(spark, "conf", "runner_options")) == ("", "")


def test_given_secrets_in_other_fields_then_the_connections_test_says_that_airflows_api_shows_them() -> None:
    extra = {"storage_options": '{"azure_storage_account_key": "planted-1"}', "conf": {AZURE: "planted-2"}}
    assert by_api(extra).count("planted") == 2  # or the advice is wrong

    warning = shown_by_airflow(extra, "storage_options", "conf", "runner_options")

    assert "secret_storage_options, secret_conf." in warning and "planted" not in warning


def by_api(extra: dict[str, Any]) -> str:
    """What Airflow's API answers of a connection's extra, with Airflow's default settings."""
    from airflow._shared import secrets_masker
    from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse

    masker = secrets_masker._secrets_masker()
    before = masker.sensitive_variables_fields, masker.replacer
    # Nor does the API know what the logs of a task of this process hide, whose masker is the same before Airflow 3.2.
    masker.sensitive_variables_fields, masker.replacer = list(secrets_masker.DEFAULT_SENSITIVE_FIELDS), None
    try:
        return str(ConnectionResponse.redact_extra(json.dumps(extra)))
    finally:
        masker.sensitive_variables_fields, masker.replacer = before
