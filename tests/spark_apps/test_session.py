"""The session of an app: what the storage options add to its settings, and which versions may meet."""

from __future__ import annotations

from typing import Any

import pytest

from spark_apps.job import Job
from spark_apps.session import _of_storage, check_session
from spark_apps.storage.errors import EnvironmentMismatch

S3A = "spark.hadoop.fs.s3a."
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "aws_region": "eu-west-1"}


def conf(options: dict[str, Any], job_conf: dict[str, str] | None = None, set_elsewhere: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    job = Job("verify_index", "s3://lake/t", storage_options=options, spark_conf=job_conf or {})
    return _of_storage(job, set_elsewhere.__contains__)


def test_given_storage_options_then_the_session_is_told() -> None:
    told = conf(KEYS)

    assert told[S3A + "secret.key"] == "s" and told[S3A + "endpoint.region"] == "eu-west-1"


def test_given_a_setting_of_ones_own_then_it_wins() -> None:
    assert S3A + "endpoint.region" not in conf(KEYS, {S3A + "endpoint.region": "us-east-1"})
    assert S3A + "endpoint.region" not in conf(KEYS, set_elsewhere={S3A + "endpoint.region"})


@pytest.mark.parametrize("own", [S3A + "secret.key", S3A + "access.key"])
def test_given_keys_of_ones_own_then_they_are_not_mixed_with_others(own: str) -> None:
    told = conf(KEYS, {own: "mine"})

    assert not {S3A + "access.key", S3A + "secret.key", S3A + "aws.credentials.provider"} & told.keys()
    assert told[S3A + "endpoint.region"] == "eu-west-1"


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
