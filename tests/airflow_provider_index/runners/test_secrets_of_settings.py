"""What every channel does with each name and value of the table of secrets: the command line, the driver's environment,
the job, files and their modes, drivers elsewhere, Airflow's masks. Starts nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec.structs
import pytest

from airflow_provider_index.runners.cluster_mode import for_elsewhere
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner
from spark_apps.jobs.job import Job
from spark_apps.storage.errors import InvalidInput
from tests.spark_apps.storage.names_of_secrets import OPEN_NAMES, OPEN_VALUES, SECRET_NAMES, SECRET_VALUES

SPOKEN = {"spark.executor.extraJavaOptions", "spark.jars", "spark.files"}
"""Of the table's settings those that can only be given on a command line."""


def command(folder: Path, **fields: Any) -> list[str]:
    settings = SparkSettings(**{"master": "local[1]", **fields})
    runner = SparkSubmitRunner(settings, logging.getLogger("test"))
    return runner._command("spark-submit", Job("tested", "/table"), folder / "apps.zip", ["app.py"], folder)


def environment(monkeypatch: pytest.MonkeyPatch, ambient: dict[str, str], **fields: Any) -> dict[str, str]:
    monkeypatch.setattr("os.environ", ambient)
    return SparkSubmitRunner(SparkSettings(**fields), logging.getLogger("test"))._environment()


def connection(**extra: Any) -> Any:
    return SimpleNamespace(
        conn_id="c", conn_type="spark", host="local[1]", port=None, login=None, password=None, extra_dejson=extra
    )


def test_given_any_secrets_name_then_its_value_goes_with_the_job_and_not_on_the_command_line(tmp_path: Path) -> None:
    conf = {name: f"hunter-{n}" for n, name in enumerate(SECRET_NAMES)}

    assert [word for word in command(tmp_path, conf=conf) if "hunter" in word] == []
    assert SparkSettings(conf=conf).secret_conf == conf
    assert set(conf.values()) <= set(SparkSettings(conf=conf).secrets())


def test_given_any_other_name_then_it_stands_on_the_command_line_as_it_is(tmp_path: Path) -> None:
    conf = dict.fromkeys(OPEN_NAMES, "plain")

    assert {f"{name}=plain" for name in OPEN_NAMES} <= set(command(tmp_path, conf=conf))
    for name, value in OPEN_VALUES:
        assert f"{name}={value}" in command(tmp_path, conf={name: value})


def test_given_a_value_with_a_secret_then_it_is_not_on_the_command_line_or_refused(tmp_path: Path) -> None:
    for n, (name, value, secret) in enumerate(SECRET_VALUES):
        settings = SparkSettings(conf={name: value})
        assert secret in settings.secrets()
        if name in SPOKEN:
            with pytest.raises(InvalidInput, match=name) as caught:
                command(tmp_path, conf={name: value})
            assert "hunt" not in str(caught.value)
            continue
        folder = tmp_path / str(n)
        folder.mkdir()
        assert "hunt" not in " ".join(command(folder, conf={name: value})), value
        assert name in settings.secret_conf or name in settings.secret_java_options


def test_given_options_of_java_with_a_secret_then_they_go_by_a_file_of_the_owners_alone(tmp_path: Path) -> None:
    settings = "-Xmx1g -Djavax.net.ssl.keyStorePassword='hunt \"er\\2'"

    spoken = command(tmp_path, conf={"spark.driver.extraJavaOptions": settings})

    (path,) = tmp_path.iterdir()
    assert f'spark.driver.extraJavaOptions="@{path}"' in spoken
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == '"-Xmx1g"\n"-Djavax.net.ssl.keyStorePassword=hunt \\"er\\\\2"\n'


@pytest.mark.parametrize("option", ["repositories", "jars", "files", "archives"])
def test_given_an_option_of_spark_submit_with_a_secret_then_it_is_refused(option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option} of the Spark connection 'c'") as caught:
        SparkSettings.from_connection(connection(**{option: "https://ada:hunter2@repository/x"}))
    assert "hunter2" not in str(caught.value)


def test_given_a_variable_for_executors_that_holds_a_secret_then_a_standalone_cluster_gets_it_not(
    tmp_path: Path,
) -> None:
    conf = {"spark.executorEnv.DB_PASSWD": "hunter2"}

    for make in (
        lambda: SparkSettings(master="spark://h:7077", conf=conf).check("c"),
        lambda: command(tmp_path, master="spark://h:7077", conf=conf),
    ):
        with pytest.raises(InvalidInput, match=r"spark\.executorEnv\.DB_PASSWD.*page of the master") as caught:
            make()
        assert "hunter2" not in str(caught.value)
    SparkSettings(master="spark://h:7077", conf={"spark.executorEnv.LANG": "C"}).check("c")
    SparkSettings(master="local[2]", conf=conf).check("c")


def test_given_a_variable_with_a_secret_in_the_connection_then_it_is_refused() -> None:
    secrets = [(name, "hunter2") for name in SECRET_NAMES] + [(name, value) for name, value, _ in SECRET_VALUES]
    for name, value in secrets:
        with pytest.raises(InvalidInput, match="holds a secret") as caught:
            SparkSettings.from_connection(connection(environment={name: value}))
        assert "hunt" not in str(caught.value)
    others = dict.fromkeys(OPEN_NAMES, "x")
    assert SparkSettings.from_connection(connection(environment=others)).environment == others


def test_given_the_workers_variables_then_the_driver_sees_those_of_stores_and_spark_and_no_other_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept_back = {
        **{name: "x" for name in SECRET_NAMES if name.isupper() and not name.startswith("AWS_")},
        "AIRFLOW_CONN_LAKE": "x", "AIRFLOW_VAR_X": "x", "AIRFLOW__CORE__LOAD_EXAMPLES": "x", "AIRFLOW__X__Y_CMD": "x",
        "_AIRFLOW_WWW_USER_PASSWORD": "x", "DATABASE_URL": "postgres://ada:hunter2@db/x", "BROKER": "redis://:p@h/0",
    }  # fmt: skip
    passed_on = {
        **dict.fromkeys([name for name in OPEN_NAMES if name.isupper()], "x"),
        "AWS_SECRET_ACCESS_KEY": "x", "AZURE_CLIENT_SECRET": "x", "AWS_SESSION_TOKEN": "x", "MSI_SECRET": "x",
        "HTTPS_PROXY": "http://ada:hunter2@proxy:3128", "HADOOP_CREDSTORE_PASSWORD": "x", "AIRFLOW_HOME": "/a",
    }  # fmt: skip

    assert environment(monkeypatch, {**kept_back, **passed_on}) == passed_on
    settings = environment(
        monkeypatch, {**kept_back}, pass_environment=("API_KEY", "AIRFLOW_VAR_X"), environment={"A": "b"}
    )
    assert settings == {"API_KEY": "x", "A": "b"}


@pytest.mark.parametrize("given", [["API_KEY", "DB_PASSWD"], "API_KEY, DB_PASSWD"])
def test_given_names_of_variables_to_pass_then_a_connection_holds_them_as_a_list_or_as_text(given: Any) -> None:
    settings = SparkSettings.from_connection(connection(**{"pass-environment": given}))

    assert settings.pass_environment == ("API_KEY", "DB_PASSWD")


def test_given_a_driver_elsewhere_then_every_secret_is_refused_by_name_and_every_other_setting_taken() -> None:
    settings = SparkSettings(conf=dict.fromkeys(OPEN_NAMES, "x"))
    assert for_elsewhere(Job("tested", "/table", storage_options={"aws_region": "x"}), settings).detached
    secrets = [(name, "hunter2") for name in SECRET_NAMES] + [(name, value) for name, value, _ in SECRET_VALUES]
    for name, value in secrets:
        for job, settings in (
            (Job("tested", "/table", {"source": {"options": {name: value}}}), SparkSettings()),
            (Job("tested", "/table"), SparkSettings(conf={name: value})),
            (Job("tested", "/table", spark_conf={name: value}), SparkSettings()),
            (Job("tested", "/table", storage_options={name: value}), SparkSettings()),
        ):
            with pytest.raises(InvalidInput) as caught:
                for_elsewhere(job, settings)
            assert name in str(caught.value) and "hunt" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"arguments": {"batches": [{"sql": "SELECT 1"}, {"sql": "x OPTIONS (password 'hunter2')"}]}},
            r"batches\[1\]\.sql",
        ),
        ({"arguments": {"source": {"paths": ["https://b/x?sig=hunter2hunter2"]}}}, r"argument source\.paths\[0\]"),
        ({"arguments": {"sql": "SET my.api.token = hunter2"}}, "argument sql"),
        ({"table": "s3://AKID:hunter2@lake/t"}, "address of the table"),
    ],
)
def test_given_a_driver_elsewhere_then_a_secret_in_an_argument_is_refused_by_where_it_stands(
    fields: dict[str, Any], named: str
) -> None:
    job = msgspec.structs.replace(Job("tested", "/table"), **fields)

    with pytest.raises(InvalidInput, match=named) as caught:
        for_elsewhere(job, SparkSettings())

    assert "hunter2" not in str(caught.value)
