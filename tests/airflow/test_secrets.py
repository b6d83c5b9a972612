"""Secrets of connections and of a task's own arguments, looked for wherever a run leaves something: while its task is
deferred and its driver works, and afterwards, when another task has failed with them in its statement."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from airflow_provider_index.testing import DagRunReport
from tests.airflow.lake import SECRET, STORAGE_SECRET, Lake
from tests.airflow.test_deferring import DEFERRED, drivers
from tests.airflow.test_page import token
from tests.spark.clusters import free_port, looked_at
from tests.sweep import Sweep, files_below, wait_until

pytestmark = pytest.mark.heavy

PLANTED = {
    name: f"planted-{number}b7e05"
    for number, name in enumerate(
        ("storage text", "storage", "conf", "keytab", "java", "account", "address", "reader", "statement")
    )
}  # fmt: skip
ACCOUNT = "spark.hadoop.fs.azure.account.key.kms.dfs.core.windows.net"
BUCKET = "spark.hadoop.fs.s3a.bucket.kms-data.secret.key"
KEYTAB = base64.b64encode(PLANTED["keytab"].encode()).decode()
ENVIRONMENT = {"spark of the environment": SECRET, "storage of the environment": STORAGE_SECRET}
"""Of connections that every process of this Airflow was given in its environment, its drivers excepted."""
EVERYTHING = {**PLANTED, **ENVIRONMENT, "keytab as given": KEYTAB}
TRIGGERS = """
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
with create_session() as session:
    for one in session.query(Trigger):
        print(one.classpath, one.kwargs)
"""


@dataclass
class Seen:
    """A run, and what was seen while it went on."""

    report: DagRunReport
    sweep: Sweep
    folder: Path
    left: list[Any] = field(default_factory=list)
    triggers: str = ""
    drivers: list[str] = field(default_factory=list)


def make_connections(lake: Lake, page: int, events: Path) -> None:
    local = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djavax.net.ssl.keyStorePassword={PLANTED['java']}",
    }
    extras: dict[str, dict[str, Any]] = {
        "secret_lake": {
            "warehouse": str(lake.warehouse),
            "spark_conn_id": "secret_spark",
            "storage_options": json.dumps({"aws_secret_access_key": PLANTED["storage text"]}),
            "secret_storage_options": {"azure_storage_account_key": PLANTED["storage"]},
        },
        "secret_spark": {
            "conf": looked_at(page, events),
            "secret_conf": json.dumps({**local, BUCKET: PLANTED["conf"]}),
            "keytab": KEYTAB,
            "environment": {"SPARK_LOCAL_IP": "127.0.0.1"},
            "driver-memory": "1g",
        },
        "vault": {"held": {name: PLANTED[name] for name in ("account", "address", "reader", "statement")}},
    }
    kinds = {"secret_lake": "index_table_store", "secret_spark": "index_runner", "vault": "generic"}
    for conn_id, extra in extras.items():
        host = "local[2]" if conn_id == "secret_spark" else None
        body = {"connection_id": conn_id, "conn_type": kinds[conn_id], "host": host, "extra": json.dumps(extra)}
        lake.client.post("connections", body)


@pytest.fixture(scope="module")
def seen(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("secretive")
    (folder / "events").mkdir()
    (folder / "rows.csv").write_text("id\n1\n")
    port = free_port()
    make_connections(lake, port, folder / "events")
    temporary = Path(tempfile.gettempdir())

    def folders() -> Iterable[Path]:
        some = (lake.warehouse / "db" / "secretive", lake.airflow.home / "logs" / "index_drivers", folder)
        return [*some, *temporary.glob("index-job-*"), *temporary.glob("hsperfdata_*")]

    with Sweep(EVERYTHING, folders, [f"http://127.0.0.1:{port}"]) as sweep:
        run_id = lake.trigger("secretive", {"source": str(folder / "rows.csv")})
        assert lake.client.wait_for_task("secretive", run_id, "write", DEFERRED) == "deferred"
        wait_until(lambda: any("/environment" in one for one in sweep.seen), 120)
        seen_run = Seen(DagRunReport("secretive", run_id, "running"), sweep, folder)
        # As the database holds them, decrypted.
        seen_run.triggers = lake.ask(TRIGGERS)
        seen_run.drivers = [
            word
            for [job_id] in [[path.name for path in (lake.warehouse / "db/secretive/_index/jobs").iterdir()]]
            for process in drivers(job_id)
            for word in (*process.cmdline(), *process.environ().values())
        ]
        seen_run.report = lake.client.wait("secretive", run_id, timeout=300)
    seen_run.left = sweep.holding(files_below(*folders(), lake.airflow.home))
    return seen_run


def test_while_a_driver_works_no_process_trigger_or_open_file_tells_a_secret(seen: Seen) -> None:
    sweep = seen.sweep
    assert "JobTrigger" in seen.triggers and "secretive" in seen.triggers
    assert sweep.names_in(seen.triggers) == []
    assert seen.drivers and sweep.names_in("\n".join(seen.drivers)) == []
    # Airflow's own processes were given two connections by their environment; nobody has them on a command line.
    assert {one.partition(" in the environment of ")[0] for one in sweep.processes} == set(ENVIRONMENT)
    assert sweep.open_files == set()
    # What Java notes of itself, for its owner alone, is called by the number of its process.
    private = {one for one in sweep.private_files if not re.fullmatch(r"java in \d+", one)}
    assert private == {"java in java-options-0", "keytab in keytab"}


def test_sparks_page_and_event_log_know_the_settings_and_hide_the_secrets(seen: Seen) -> None:
    assert seen.sweep.shows("/environment") and seen.sweep.shows("/sql") and seen.sweep.on_pages == set()
    logs = [path.read_text() for path in (seen.folder / "events").iterdir()]
    assert len(logs) == 2 and seen.sweep.names_in("\n".join(logs)) == []
    for log in logs:
        [update, *_] = [json.loads(line) for line in log.splitlines() if "SparkListenerEnvironmentUpdate" in line]
        settings = {**update["Spark Properties"], **update["Hadoop Properties"]}
        hidden = {name for name, value in settings.items() if "redacted" in value}
        assert {ACCOUNT, ACCOUNT.removeprefix("spark.hadoop."), BUCKET, "spark.my.jdbc"} <= hidden
        assert settings["spark.sql.shuffle.partitions"] == "2"


def test_afterwards_no_log_xcom_database_or_table_tells_one(lake: Lake, seen: Seen) -> None:
    run_id, names_in = seen.report.run_id, seen.sweep.names_in
    assert seen.report.tasks == {"write": "success", "broken": "failed"}
    receipt = lake.client.xcom("secretive", run_id, "write")
    assert receipt["operation"] == "upsert" and names_in(json.dumps(receipt)) == []
    # Logs, drivers' logs, XCom, rendered templates and serialized DAGs: Airflow keeps all in its home and its database.
    assert any("index_drivers" in path.parts for path in lake.airflow.home.rglob("*"))
    assert seen.left == []
    rows = lake.database_rows()
    assert "secretive" in rows and names_in(rows) == []
    for task in ("write", "broken"):
        assert names_in(lake.client.log("secretive", run_id, task)) == []
    assert "OPTIONS (password '***')" in lake.client.log("secretive", run_id, "broken")


def test_the_api_shows_no_secret_of_rendered_fields_and_connections(lake: Lake, seen: Seen) -> None:
    run = f"dags/secretive/dagRuns/{quote(seen.report.run_id, safe='')}/taskInstances"
    fields = {task: lake.client.get(f"{run}/{task}")["rendered_fields"] for task in ("write", "broken")}
    assert fields["write"]["conf"] == {ACCOUNT: "***", "spark.my.jdbc": "postgresql://ada:***@database/x"}
    assert fields["write"]["options"]["header.X-Api-Key"] == "***"
    assert fields["broken"]["sql"].endswith("OPTIONS (password '***')")
    assert seen.sweep.names_in(json.dumps(fields)) == []
    for who in ("admin", "olga"):
        client = lake.airflow.client_of(who)
        shown = [json.loads(client.get(f"connections/{one}")["extra"]) for one in ("secret_lake", "secret_spark")]
        client.close()
        assert seen.sweep.names_in(json.dumps(shown)) == []
        assert shown[0]["storage_options"] == shown[1]["secret_conf"] == shown[1]["keytab"] == "***"


def test_the_page_of_the_tables_shows_none(lake: Lake, seen: Seen) -> None:
    headers = {"Authorization": f"Bearer {token(lake, 'olga')}"}
    with httpx.Client(
        base_url=f"{lake.airflow.url}/lakeindex/", timeout=60, trust_env=False, headers=headers
    ) as browser:
        overview = browser.get("", params={"conn": "secret_lake"})
        detail = browser.get("tables", params={"conn": "secret_lake", "table": "db.secretive"})
    assert overview.status_code == detail.status_code == 200 and "db.secretive" in detail.text
    assert seen.sweep.names_in(overview.text + detail.text) == []
