"""Secrets planted in all that a Spark connection and a job hold, and looked for wherever a run leaves something: on a
standalone cluster with its driver attached and detached, over Spark Connect, and with a driver in the cluster.

Spark's own page and its event log are those of the real Spark, read while it works and afterwards.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.program import ON_ITS_PAGE
from spark_apps.storage.errors import InvalidInput
from tests.spark import jobs
from tests.spark.clusters import ConnectServer, Standalone, connect_server, free_port, looked_at
from tests.spark.local import JVM
from tests.sweep import Sweep, files_below, wait_until

pytestmark = pytest.mark.heavy

ACCOUNT = "spark.hadoop.fs.azure.account.key.kms.dfs.core.windows.net"
PLANTED = {
    name: f"planted-{number}d21e9"
    for number, name in enumerate(
        ("account", "s3a", "bucket", "header", "address", "option", "java", "keytab", "storage", "reader", "statement")
    )
}  # fmt: skip
CONF = {
    ACCOUNT: PLANTED["account"],
    "spark.hadoop.fs.s3a.secret.key": PLANTED["s3a"],
    "spark.hadoop.fs.s3a.bucket.kms-data.secret.key": PLANTED["bucket"],
    "spark.hadoop.my.header.X-Api-Key": PLANTED["header"],
    "spark.my.jdbc": f"postgresql://ada:{PLANTED['address']}@database/x",
    "spark.my.options": f"-Da=b -Dmy.pwd={PLANTED['option']}",
}
JAVA = f"{JVM} -Djavax.net.ssl.keyStorePassword={PLANTED['java']} -Dmy.sas={PLANTED['java']}"
STORAGE = {"aws_secret_access_key": PLANTED["storage"]}
# Long enough to be looked at, and with a secret of the statement's own.
SLOW = "SELECT id, concat('', reflect('java.lang.Thread', 'sleep', bigint(2500))) AS note FROM range(0, 2, 1, 2)"
WRITE = {
    "create": {"schema": "id bigint, note string", "record_key": ["id"], "buckets": 1},
    "batches": [{"operation": "upsert", "sql": SLOW}],
}
BROKEN = {"batches": [{"operation": "upsert", "sql": f"SELECT * FRM jdbc OPTIONS (password '{PLANTED['statement']}')"}]}


@dataclass(frozen=True)
class Run:
    """What a run logged, and what was seen of it."""

    sweep: Sweep
    events: str
    answers: str
    left: list[tuple[Path, list[str]]]


@contextmanager
def watched(folder: Path, *pages: str, events: Path | None = None, also: tuple[Path, ...] = ()) -> Iterator[Any]:
    """A sweep over a folder, the private folders of jobs and what Java leaves of itself."""
    temporary = Path(tempfile.gettempdir())

    def folders() -> list[Path]:
        return [folder, *also, *temporary.glob("index-job-*"), *temporary.glob("hsperfdata_*")]

    answers: list[Any] = []
    runs: list[Run] = []
    with Sweep(PLANTED, folders, pages) as sweep:
        yield sweep, answers, runs
    event_log = "\n".join(path.read_text() for path in (events or folder / "events").rglob("*") if path.is_file())

    def left() -> list[tuple[Path, list[str]]]:
        return sweep.holding(files_below(*folders()))

    with suppress(AssertionError):  # a detached driver has reported how it ended, and is ending
        wait_until(lambda: not left())
    runs.append(Run(sweep, event_log, json.dumps(answers, default=str), left()))


def caught(kind: type[Exception], settings: SparkSettings, table: Path, arguments: Any, **fields: Any) -> Any:
    with pytest.raises(kind) as refused:
        jobs.run(settings, "write_table", table, arguments, **fields)
    return [str(refused.value), getattr(refused.value, "hint", "")]


@pytest.fixture(scope="module")
def on_cluster(cluster: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "events").mkdir()
    port = free_port()
    conf = {
        **cluster.conf,
        **looked_at(port, folder / "events"),
        **CONF,
        "spark.driver.extraJavaOptions": JAVA,
        "spark.local.dir": str(folder / "local"),
    }
    settings = SparkSettings(
        master=cluster.master,
        conf=conf,
        options={"driver-memory": "600m"},
        environment={"SPARK_LOCAL_IP": "127.0.0.1"},
        keytab=base64.b64encode(PLANTED["keytab"].encode()).decode(),
        driver_logs=str(folder / "logs"),
    )
    rows = jobs.write_rows(folder / "rows.parquet", range(20), 1)
    read = jobs.upsert(rows)
    read["source"]["options"] = {"api_key": PLANTED["reader"]}
    pages = (f"http://127.0.0.1:{port}", *cluster.pages)
    with watched(folder, *pages, also=(cluster.work.parent,)) as (_, answers, runs):
        answers.append(jobs.run(settings, "write_table", folder / "t", WRITE, storage_options=STORAGE))
        answers.append(
            caught(
                InvalidInput, settings, folder / "t", {**read, **BROKEN, "several": True},
                storage_options=STORAGE, detached=True,
            )
        )  # fmt: skip
    return runs[0]


def test_given_a_standalone_cluster_then_no_process_file_or_page_tells_a_secret(on_cluster: Run) -> None:
    sweep = on_cluster.sweep
    assert {"write_table.py", "org.apache.spark.executor.CoarseGrainedExecutorBackend"} <= sweep.seen
    assert sweep.shows("/environment") and sweep.shows("/sql") and sweep.shows("/json/")
    assert (sweep.processes, sweep.open_files, sweep.on_pages) == (set(), set(), set())
    check_private(sweep, "java in java-options-0", "keytab in keytab")
    check_events(on_cluster)


def test_given_a_standalone_cluster_then_receipts_errors_and_logs_tell_none_and_nothing_is_left(
    on_cluster: Run,
) -> None:
    assert on_cluster.sweep.names_in(on_cluster.answers) == [] and on_cluster.left == []
    assert '"operation": "upsert"' in on_cluster.answers and "OPTIONS (password '***')" in on_cluster.answers


def check_private(sweep: Sweep, *expected: str) -> None:
    """What is in files of the owner's alone is what has to be, beside what Java notes of itself for its owner."""
    assert {one for one in sweep.private_files if not re.fullmatch(r"java in \d+", one)} == set(expected)


def check_events(run: Run) -> None:
    """The event log knows the settings, and hides their values."""
    assert run.sweep.names_in(run.events) == []
    [update, *_] = [json.loads(line) for line in run.events.splitlines() if "SparkListenerEnvironmentUpdate" in line]
    settings = {**update["Spark Properties"], **update["Hadoop Properties"]}
    hidden = {name for name, value in settings.items() if "redacted" in value}
    assert {*CONF, ACCOUNT.removeprefix("spark.hadoop."), "spark.my.jdbc"} <= hidden
    assert settings["spark.sql.shuffle.partitions"] == "2"
    assert "SparkListenerSQLExecutionStart" in run.events


@pytest.fixture(scope="module")
def over_connect(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """On a server that was started with what the refusal by another one says."""
    folder = tmp_path_factory.mktemp("connect-secrets")
    rows = jobs.write_rows(folder / "rows.parquet", range(2), 1)
    read = jobs.upsert(rows, create=True)
    outcomes: dict[str, Any] = {}
    outcomes["refused"] = caught(InvalidInput, _on(server, CONF), folder / "t", WRITE)
    hint = outcomes["refused"][1]
    [pattern] = re.findall(r"spark\.redaction\.regex=(.+) or give it", hint)
    read["source"]["options"] = {"api_key": PLANTED["reader"]}
    # The page is still looked at, and no event log is written.
    [event_log] = re.findall(r"with (spark\.eventLog\.enabled)=false and", hint)
    with (
        connect_server(
            folder / "server", server.token, {"spark.redaction.regex": pattern, event_log: "false"}
        ) as hiding,
        watched(folder, hiding.page, events=hiding.events) as (_, answers, runs),
    ):
        settings = _on(hiding, CONF)
        answers.append(jobs.run(settings, "write_table", folder / "t", WRITE, storage_options=STORAGE))
        answers.append(caught(InvalidInput, settings, folder / "u", read, storage_options=STORAGE))
        answers.append(caught(InvalidInput, settings, folder / "t", BROKEN))
    outcomes["hiding"] = runs[0]
    with watched(folder, server.page, events=server.events) as (_, answers, runs):
        allowed = _on(server, {**CONF, ON_ITS_PAGE: "true"})
        answers.append(jobs.run(allowed, "write_table", folder / "u", read))
        answers.append(caught(InvalidInput, allowed, folder / "u", BROKEN))
    outcomes["showing"] = runs[0]
    return outcomes


def test_given_a_server_that_would_show_secrets_then_it_is_told_none(over_connect: dict[str, Any]) -> None:
    [said, hint] = over_connect["refused"]
    assert "fs.azure.account.key.kms" in said and "spark.redaction.regex" in hint
    assert over_connect["hiding"].sweep.names_in(said + hint) == []


def test_given_a_server_that_was_started_as_the_error_says_then_it_and_its_clients_tell_no_secret(
    over_connect: dict[str, Any],
) -> None:
    run = over_connect["hiding"]
    assert run.sweep.shows("/environment") and run.sweep.shows("/connect/") and run.sweep.shows("/sql")
    assert {"write_table.py"} <= run.sweep.seen
    assert (run.sweep.processes, run.sweep.open_files, run.sweep.on_pages) == (set(), set(), set())
    check_private(run.sweep)
    assert run.sweep.names_in(run.answers) == [] and (run.events, run.left) == ("", [])
    assert "source.options.api_key" in run.answers and "batches[0].sql" in run.answers


def test_given_a_server_that_is_allowed_to_show_them_then_it_does(over_connect: dict[str, Any]) -> None:
    """So what finds nothing above can find something, and what is refused has to be."""
    run = over_connect["showing"]
    # Spark's own pattern knows the name of "s3a", and hides it on the page alone.
    assert {"account", "s3a", "reader", "statement"} <= set(run.sweep.names_in(run.events))
    assert run.sweep.names_in(run.answers) == [] and "OPTIONS (password '***')" in run.answers


def _on(server: ConnectServer, conf: dict[str, str]) -> SparkSettings:
    conf = {"spark.sql.shuffle.partitions": "2", **conf}
    return SparkSettings(master=server.address, token=server.token, conf=conf)


IN_THE_CLUSTER = f"""#!{sys.executable}
import os, shutil, subprocess, sys
from spark_apps.jobs import environment
given, home = sys.argv[1:], os.environ["CLUSTER"]
files = given[given.index("--files") + 1].split(",")
os.makedirs(home, mode=0o700)
for path in files:
    shutil.copy(path, home)
keytab = given[given.index("--keytab") + 1]
with open(keytab) as content, open(home + "/keytab-of-submission", "w") as out:
    modes = [oct(os.stat(path).st_mode & 0o777) for path in (keytab, os.path.dirname(keytab))]
    print(*modes, len(content.read()), file=out)
for name, value in (("--master", "local[1]"), ("--deploy-mode", "client")):
    given[given.index(name) + 1] = value
at = given.index("--files")
del given[at:at + 2]
log = os.open(home + "/stdout", os.O_WRONLY | os.O_CREAT, 0o600)
submit = str(environment.spark_home() / "bin" / "spark-submit")
subprocess.Popen([submit, *given], cwd=home, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
print("Submitted application application_1700000000000_0042")
"""
"""Stands for a cluster: the driver that it starts gets the files that were submitted, and nothing else."""


@pytest.fixture(scope="module")
def in_the_cluster(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cluster-mode")
    (folder / "events").mkdir()
    binary = folder / "spark-submit"
    binary.write_text(IN_THE_CLUSTER)
    binary.chmod(0o755)
    port = free_port()
    settings = SparkSettings(
        master="yarn",
        deploy_mode="cluster",
        binary=str(binary),
        environment={"CLUSTER": str(folder / "container"), "SPARK_LOCAL_IP": "127.0.0.1"},
        conf={
            **looked_at(port, folder / "events"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.showConsoleProgress": "false",
        },
        options={"driver-memory": "600m"},
        keytab=base64.b64encode(PLANTED["keytab"].encode()).decode(),
        runner_options={"storage_options": {"aws_region": "eu-west-1"}},
    )
    with watched(folder, f"http://127.0.0.1:{port}") as (_, answers, runs):
        for name, value in {**CONF, "spark.driver.extraJavaOptions": JAVA}.items():
            refused = replace(settings, conf={**settings.conf, name: value})
            answers.append(caught(InvalidInput, refused, folder / "t", WRITE, storage_options=STORAGE))
        answers.append(caught(InvalidInput, settings, folder / "t", BROKEN, storage_options=STORAGE))
        answers.append(jobs.run(settings, "write_table", folder / "t", WRITE, storage_options=STORAGE))
        answers.append((folder / "container" / "keytab-of-submission").read_text())
    return runs[0]


def test_given_a_driver_in_the_cluster_then_it_is_told_no_secret_and_nothing_of_it_tells_one(
    in_the_cluster: Run,
) -> None:
    sweep = in_the_cluster.sweep
    assert "write_table.py" in sweep.seen and sweep.shows("/environment") and sweep.shows("/sql")
    assert (sweep.processes, sweep.open_files, sweep.on_pages) == (set(), set(), set())
    # Submitting uploads the keytab from a file of its owner's alone, too soon gone to be seen each time.
    sweep.private_files.discard("keytab in keytab")
    check_private(sweep)
    assert f"0o600 0o700 {len(PLANTED['keytab'])}" in in_the_cluster.answers
    assert sweep.names_in(in_the_cluster.events + in_the_cluster.answers) == [] and in_the_cluster.left == []
    assert '"operation": "upsert"' in in_the_cluster.answers and "argument batches[0].sql" in in_the_cluster.answers
    assert in_the_cluster.answers.count("would carry secrets") == len(CONF) + 2
