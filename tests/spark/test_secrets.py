"""Secrets planted in all that a Spark connection and a job hold, and looked for wherever a run leaves something: on a
standalone cluster with its driver attached and detached; and what a Spark Connect server is told.

Spark's own page and its event log are those of the real Spark, read while it works and afterwards.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.session import ON_ITS_PAGE
from spark_apps.storage.errors import InvalidInput, JobFailed
from tests.spark import jobs
from tests.spark.clusters import ConnectServer, Standalone, free_port, looked_at
from tests.sweep import Sweep, wait_until

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
SENT = "planted-6d21e9"
JAVA = f"-XX:TieredStopAtLevel=1 -Djavax.net.ssl.keyStorePassword={PLANTED['java']} -Dmy.sas={PLANTED['java']}"
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
    """What a run told, and what was seen of it."""

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
    told = "\n".join(path.read_text() for path in (events or folder / "events").rglob("*") if path.is_file())

    def left() -> list[tuple[Path, list[str]]]:
        return sweep.holding(path for one in folders() for path in one.rglob("*"))

    with suppress(AssertionError):  # a detached driver has told how it ended, and is ending
        wait_until(lambda: not left())
    runs.append(Run(sweep, told, json.dumps(answers, default=str), left()))


def caught(kind: type[Exception], settings: SparkSettings, table: Path, arguments: Any, **fields: Any) -> Any:
    with pytest.raises(kind) as found:
        jobs.run(settings, "write_table", table, arguments, **fields)
    return [str(found.value), getattr(found.value, "hint", "")]


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
                JobFailed, settings, folder / "t", {**read, **BROKEN, "several": True},
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
    [told, *_] = [json.loads(line) for line in run.events.splitlines() if "SparkListenerEnvironmentUpdate" in line]
    settings = {**told["Spark Properties"], **told["Hadoop Properties"]}
    hidden = {name for name, value in settings.items() if "redacted" in value}
    assert {*CONF, ACCOUNT.removeprefix("spark.hadoop."), "spark.my.jdbc"} <= hidden
    assert settings["spark.sql.shuffle.partitions"] == "2"
    assert "SparkListenerSQLExecutionStart" in run.events


def holding(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SENT.encode() in path.read_bytes()]


def test_given_a_server_that_would_show_a_secret_then_it_is_told_none_and_what_it_hides_goes_there(
    server: ConnectServer, tmp_path: Path
) -> None:
    conf = {"spark.sql.shuffle.partitions": "2", "spark.hadoop.fs.s3a.secret.key": SENT}
    source = jobs.write_rows(tmp_path / "rows.parquet", range(20), 1)
    arguments = jobs.upsert(source, create=True)

    with pytest.raises(InvalidInput, match=r"fs\.azure\.account\.key\.kms") as caught:
        jobs.run(_on(server, {**conf, ACCOUNT: SENT}), "write_table", tmp_path / "t", arguments)
    told = jobs.run(_on(server, conf), "write_table", tmp_path / "t", arguments)
    allowed = {**conf, ACCOUNT: SENT, ON_ITS_PAGE: "true"}
    jobs.run(_on(server, allowed), "build_index", tmp_path / "t", {"name": "keys", "kind": "record"})

    assert "spark.redaction.regex" in caught.value.hint and SENT not in str(caught.value)
    assert told["metrics"]["rows"] == 20
    assert SENT not in server.log.read_text(errors="replace") and holding(tmp_path) == []


def _on(server: ConnectServer, conf: dict[str, str]) -> SparkSettings:
    return SparkSettings(master=server.address, token=server.token, conf=conf)
