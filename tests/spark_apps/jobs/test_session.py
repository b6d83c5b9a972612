"""The session of an app: what the storage options add to its settings, and which versions may meet."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import (
    EVENT_LOG,
    ON_ITS_PAGE,
    REDACTED,
    REMOTE,
    WITHOUT_TLS,
    _of_storage,
    check_redaction,
    check_session,
    check_statements,
    check_tls,
    silence_statements,
    start_session,
)
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput
from spark_apps.storage.secrets import REDACTION, SPARKS_REDACTION, hide
from tests.spark_apps.storage.names_of_secrets import OPEN_NAMES, SECRET_NAMES

S3A = "spark.hadoop.fs.s3a."
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "aws_region": "eu-west-1"}


def conf(options: dict[str, Any], job_conf: dict[str, str] | None = None, set_elsewhere: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    job = Job("verify_index", "s3://lake/t", storage_options=options, spark_conf=job_conf or {})
    return _of_storage(job, set_elsewhere.__contains__)


def test_given_storage_options_then_the_session_is_told() -> None:
    settings = conf(KEYS)

    assert settings[S3A + "secret.key"] == "s" and settings[S3A + "endpoint.region"] == "eu-west-1"


def test_given_a_setting_of_ones_own_then_it_wins() -> None:
    assert S3A + "endpoint.region" not in conf(KEYS, {S3A + "endpoint.region": "us-east-1"})
    assert S3A + "endpoint.region" not in conf(KEYS, set_elsewhere={S3A + "endpoint.region"})


@pytest.mark.parametrize("own", [S3A + "secret.key", S3A + "access.key"])
def test_given_keys_of_ones_own_then_they_are_not_mixed_with_others(own: str) -> None:
    settings = conf(KEYS, {own: "mine"})

    assert not {S3A + "access.key", S3A + "secret.key", S3A + "aws.credentials.provider"} & settings.keys()
    assert settings[S3A + "endpoint.region"] == "eu-west-1"


@pytest.mark.parametrize(
    ("running", "remote", "fits"),
    [
        ("4.2.0", False, True),
        ("4.2.1", False, False),
        ("4.1.0", False, False),
        ("4.2.0", True, True),
        ("4.3.0", True, True),
        ("4.2.9-SNAPSHOT", True, True),
        ("4.1.1", True, False),
        ("3.5.6", True, False),
    ],
)
def test_versions_that_may_meet(monkeypatch: pytest.MonkeyPatch, running: str, remote: bool, fits: bool) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    if fits:
        check_session(running, remote)
        return
    with pytest.raises(EnvironmentMismatch, match=running) as caught:
        check_session(running, remote)
    assert "4.2.0" in str(caught.value) and "pip install" in caught.value.hint


@pytest.mark.parametrize(
    ("remote", "token", "refused"),
    [
        ("sc://spark.example:15002", None, True),
        ("sc://10.0.0.7:15002/;user_id=ada", None, True),
        ("sc://spark.example:15002/;use_ssl=false", None, True),
        ("sc://localhost.example:15002", None, True),
        ("sc://spark.example:15002/;use_ssl=true", None, False),
        ("sc://spark.example:15002/;user_id=ada;use_ssl=True", None, False),
        ("sc://spark.example:15002", "t-1", False),
        ("sc://spark.example:15002/;token=t-1", None, False),
        ("sc://localhost:15002", None, False),
        ("sc://127.0.0.9", None, False),
        ("sc://[::1]:15002", None, False),
    ],
)
def test_given_a_server_on_another_host_without_tls_then_no_secret_goes_there(
    remote: str, token: str | None, refused: bool
) -> None:
    check_tls(remote, token, dict.fromkeys(OPEN_NAMES, "x"), {"where": "account_key = 7"})
    held: list[tuple[dict[str, str], dict[str, Any], str]] = [({name: "hunter2"}, {}, name) for name in SECRET_NAMES]
    for conf, arguments, said in [*held, ({}, {"source": {"options": {"password": "hunter2"}}}, "arguments")]:
        if not refused:
            check_tls(remote, token, conf, arguments)
            continue
        with pytest.raises(InvalidInput) as caught:
            check_tls(remote, token, conf, arguments)
        assert said in caught.value.message and WITHOUT_TLS in caught.value.hint and "use_ssl" in caught.value.hint
        assert "hunter2" not in str(caught.value)


def test_given_a_server_that_shows_a_secret_on_its_page_then_it_gets_none_and_the_hint_is_a_pattern_that_hides_it() -> (
    None
):
    azure = "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net"
    conf = {azure: "hunter2", "spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.x": "1"}

    with pytest.raises(InvalidInput) as caught:
        check_redaction(SPARKS_REDACTION, False, conf)

    assert azure in caught.value.message and "s3a" not in caught.value.message and "hunter2" not in str(caught.value)
    assert f"{REDACTION} or give" in caught.value.hint and ON_ITS_PAGE in caught.value.hint
    check_redaction(REDACTION, False, conf)
    with pytest.raises(InvalidInput, match=r"spark\.my\.jdbc") as caught:
        check_redaction("(?i)city", False, {"spark.my.jdbc": "postgresql://ada:hunter2@h/x"})
    [pattern] = re.findall(rf"{REDACTED}=(.+) or give it", caught.value.hint)
    check_redaction(pattern, False, {"spark.my.jdbc": "postgresql://ada:hunter2@h/x"})
    assert re.search(pattern, "My.City") and hide(caught.value.hint) == caught.value.hint
    check_redaction(SPARKS_REDACTION, False, {"spark.hadoop.fs.s3a.secret.key": "hunter2"})


def test_given_a_server_with_an_event_log_then_it_gets_no_secret_however_it_hides_them_and_is_told_both_settings() -> (
    None
):
    hidden = {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.x": "1"}

    with pytest.raises(InvalidInput, match=r"fs\.s3a\.secret\.key\.") as caught:
        check_redaction(REDACTION, True, hidden)
    assert f"with {EVENT_LOG}=false or give" in caught.value.hint and REDACTED not in caught.value.hint

    with pytest.raises(InvalidInput, match=r"secret\.key, spark\.my\.jdbc\.") as caught:
        check_redaction(SPARKS_REDACTION, True, {**hidden, "spark.my.jdbc": "postgresql://ada:hunter2@h/x"})
    assert f"with {EVENT_LOG}=false and {REDACTED}={REDACTION}|" in caught.value.hint
    assert hide(caught.value.hint) == caught.value.hint and "hunter2" not in str(caught.value)
    check_redaction(SPARKS_REDACTION, True, {"spark.x": "1"})


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"source": {"options": {"header.X-Api-Key": "hunter2"}}}, r"source\.options\.header\.X-Api-Key"),
        ({"batches": [{"sql": "x OPTIONS (password 'hunter2')"}]}, r"batches\[0\]\.sql"),
        ({"source": {"paths": ["https://b/x?sig=hunter2hunter2"]}}, r"source\.paths\[0\]"),
    ],
)
def test_given_a_secret_in_a_jobs_arguments_then_no_server_gets_it_that_shows_statements(
    arguments: dict[str, Any], where: str
) -> None:
    job = Job("write_table", "/t", arguments, spark_conf={REMOTE: "sc://localhost:1"})

    with pytest.raises(InvalidInput, match=where) as caught:
        start_session(job)

    assert ON_ITS_PAGE in caught.value.hint and "hunter2" not in str(caught.value)
    check_statements({"where": "account_key = 7", "create": {"record_key": ["id"]}})


def test_given_the_python_of_spark_3_5_then_it_goes_to_no_connect_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    check_session("3.5.9")
    for running in ("3.5.9", "4.2.0"):
        with pytest.raises(EnvironmentMismatch, match=r"3\.5\.9; over Spark Connect .* 4\.0 or newer"):
            check_session(running, remote=True)


def test_given_a_failed_statement_then_pyspark_writes_nothing_past_our_filters() -> None:
    # Spark 3.5 has no such logger.
    PySparkLogger = pytest.importorskip("pyspark.logger").PySparkLogger

    logger, written = PySparkLogger.getLogger("SQLQueryContextLogger"), []
    handler = logging.Handler()
    handler.emit = written.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        logger.disabled = False  # a program that ran in this process may have silenced it
        logger.exception("planted", context={"queryContext": "planted"})
        assert len(written) == 1, "or there is nothing to silence"
        silence_statements()
        PySparkLogger.getLogger("SQLQueryContextLogger").exception("planted", context={})
        assert len(written) == 1
    finally:
        logger.disabled = False
        logger.removeHandler(handler)
