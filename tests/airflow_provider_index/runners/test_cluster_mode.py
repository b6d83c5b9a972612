"""What would be submitted to YARN and Kubernetes: the command line, the file that goes along, and what is refused.

No such cluster runs here; a stand-in for ``spark-submit`` writes down what it was given.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import msgspec.structs
import pytest

from airflow_provider_index.runners.cluster_mode import ClusterModeRunner
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.job import Job
from spark_apps.storage.errors import InvalidInput, JobFailed

TABLE = "s3://lake/t"
JOB = Job("refresh_index", TABLE, {"name": "by_city"}, {"aws_region": "eu-central-1"}, job_id="Job_7", jobs_at=TABLE)

STAND_IN = f"""#!{sys.executable}
import json, os, sys
given = sys.argv[1:]
files = given[given.index("--files") + 1].split(",") if "--files" in given else []
here = [path for path in files if os.path.exists(path)]
call = {{"given": given, "files": {{os.path.basename(path): open(path).read() for path in here}},
        "modes": [oct(os.stat(path).st_mode & 0o777) for path in here]}}
with open(os.environ["CALLS"], "a") as out:
    out.write(json.dumps(call) + "\\n")
print("INFO Client: Submitted application application_1700000000000_0042")
sys.exit(int(os.environ.get("CODE", "0")))
"""


class Submitted:
    """What the stand-in was given, call by call."""

    def __init__(self, folder: Path) -> None:
        self.binary = folder / "spark-submit"
        self.binary.write_text(STAND_IN)
        self.binary.chmod(0o755)
        self._calls = folder / "calls"
        self.env = {"CALLS": str(self._calls)}

    def settings(self, master: str, **fields: Any) -> SparkSettings:
        environment = {**self.env, **fields.pop("environment", {})}
        return SparkSettings(
            master=master, deploy_mode="cluster", binary=str(self.binary), environment=environment, **fields
        )

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []


@pytest.fixture
def submitted(tmp_path: Path) -> Submitted:
    return Submitted(tmp_path)


def runner(settings: SparkSettings) -> ClusterModeRunner:
    return ClusterModeRunner(settings, logging.getLogger("test"))


def pairs(given: list[str], option: str) -> list[str]:
    return [given[n + 1] for n, word in enumerate(given) if word == option]


def test_given_kubernetes_then_pod_apps_and_job_are_named_and_nobody_waits(submitted: Submitted) -> None:
    settings = submitted.settings(
        "k8s://https://h:6443",
        conf={"spark.kubernetes.namespace": "lake", "spark.kubernetes.container.image": "spark:4.2.0"},
        options={"driver-memory": "2g", "files": "s3a://lake/log4j2.properties"},
        environment={"LANG": "C.UTF-8"},
        bundle="s3a://lake/apps/0.1.0",
    )

    handle = runner(settings).submit(JOB)

    (call,) = submitted.calls()
    given = call["given"]
    assert handle == "lake:index-refresh-index-job-7-driver"
    assert given[:4] == ["--master", "k8s://https://h:6443", "--name", "refresh_index"]
    assert pairs(given, "--deploy-mode") == ["cluster"]
    conf = dict(pair.split("=", 1) for pair in pairs(given, "--conf"))
    assert conf["spark.kubernetes.driver.pod.name"] == "index-refresh-index-job-7-driver"
    assert conf["spark.kubernetes.submission.waitAppCompletion"] == "false"
    assert conf["spark.kubernetes.driverEnv.LANG"] == conf["spark.executorEnv.LANG"] == "C.UTF-8"
    assert conf["spark.kubernetes.container.image"] == "spark:4.2.0"
    assert pairs(given, "--files")[-1].startswith("s3a://lake/log4j2.properties,")
    assert given[-4:] == [
        "--py-files", "s3a://lake/apps/0.1.0/spark_apps.zip", "s3a://lake/apps/0.1.0/refresh_index.py", "job.json",
    ]  # fmt: skip


BY_OPERATOR = {"yarn_resourcemanager_webapp_address": "127.0.0.1:1"}
"""The address of a REST API where nobody listens: with it Airflow's own operator submits, from its release 6.2 on."""


@pytest.mark.parametrize("cluster", [{}, BY_OPERATOR])
def test_given_yarn_then_the_job_goes_along_as_a_private_file_that_is_gone_afterwards(
    submitted: Submitted, cluster: dict[str, str]
) -> None:
    handle = runner(submitted.settings("yarn", options={"queue": "night"}, cluster=cluster)).submit(JOB)

    (call,) = submitted.calls()
    assert handle == "application_1700000000000_0042"
    job = json.loads(call["files"]["job.json"])
    assert (job["program"], job["job_id"], job["detached"]) == ("refresh_index", "Job_7", True)
    assert job["storage_options"] == {"aws_region": "eu-central-1"}
    assert "result" not in job and "process_group" not in job
    assert call["modes"] == ["0o600"]
    assert not Path(pairs(call["given"], "--files")[-1]).exists()
    conf = dict(pair.split("=", 1) for pair in pairs(call["given"], "--conf"))
    assert conf["spark.yarn.submit.waitAppCompletion"] == "false" and conf["spark.yarn.maxAppAttempts"] == "1"
    assert pairs(call["given"], "--queue") == ["night"]
    assert call["given"][-2].endswith("/refresh_index.py") and Path(call["given"][-2]).exists()


@pytest.mark.parametrize(
    ("job", "conf", "named"),
    [
        ({"storage_options": {"aws_secret_access_key": "x"}}, {}, "storage option aws_secret_access_key"),
        ({"storage_options": {"account_key": "x"}}, {}, "storage option account_key"),
        ({}, {"spark.hadoop.fs.s3a.secret.key": "x"}, "setting spark.hadoop.fs.s3a.secret.key"),
    ],
)
def test_given_a_secret_that_would_travel_in_a_file_then_nothing_is_submitted(
    submitted: Submitted, job: dict[str, Any], conf: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as caught:
        runner(submitted.settings("yarn", conf=conf)).submit(msgspec.structs.replace(JOB, **job))

    assert "role" in caught.value.hint
    assert submitted.calls() == []


def test_given_options_for_a_driver_with_a_role_then_they_travel_in_place_of_the_keys(submitted: Submitted) -> None:
    keys = msgspec.structs.replace(JOB, storage_options={"aws_secret_access_key": "planted"})
    settings = submitted.settings("yarn", runner_options={"storage_options": {"aws_region": "eu-west-1"}})

    runner(settings).submit(keys)

    assert "planted" not in json.dumps(submitted.calls())
    assert json.loads(submitted.calls()[0]["files"]["job.json"])["storage_options"] == {"aws_region": "eu-west-1"}


@pytest.mark.parametrize("cluster", [{}, BY_OPERATOR])
def test_given_a_spark_submit_that_fails_then_its_words_are_said(submitted: Submitted, cluster: dict[str, str]) -> None:
    with pytest.raises(JobFailed, match=r"status 9.*Submitted application"):
        runner(submitted.settings("yarn", environment={"CODE": "9"}, cluster=cluster)).submit(JOB)


def test_given_a_cluster_that_does_not_answer_then_an_app_counts_as_running_and_its_end_as_asked_for(
    submitted: Submitted, caplog: pytest.LogCaptureFixture
) -> None:
    app = "application_1700000000000_0042"
    silent = runner(submitted.settings("yarn", cluster=BY_OPERATOR))

    assert silent.status(app).running
    silent.cancel(app)
    assert f"not asked to end {app}" in caplog.text


def test_given_a_pod_when_cancelled_then_spark_submit_is_asked_to_end_it(submitted: Submitted) -> None:
    runner(submitted.settings("k8s://https://h:6443")).cancel("lake:index-x-driver")

    (call,) = submitted.calls()
    assert call["given"] == ["--master", "k8s://https://h:6443", "--kill", "lake:index-x-driver"]
