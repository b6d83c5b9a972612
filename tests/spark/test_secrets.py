"""Secrets that a Spark Connect server would show are not sent to it; what it hides goes there and is left nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.session import ON_ITS_PAGE
from spark_apps.storage.errors import InvalidInput
from tests.spark import jobs
from tests.spark.clusters import ConnectServer

ACCOUNT = "spark.hadoop.fs.azure.account.key.kms.dfs.core.windows.net"
PLANTED = "planted-6d21e9"


def holding(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and PLANTED.encode() in path.read_bytes()]


def test_given_a_server_that_would_show_a_secret_then_it_is_told_none_and_what_it_hides_goes_there(
    server: ConnectServer, tmp_path: Path
) -> None:
    conf = {"spark.sql.shuffle.partitions": "2", "spark.hadoop.fs.s3a.secret.key": PLANTED}
    source = jobs.write_rows(tmp_path / "rows.parquet", range(20), 1)
    arguments = jobs.upsert(source, create=True)

    with pytest.raises(InvalidInput, match=r"fs\.azure\.account\.key\.kms") as caught:
        jobs.run(_on(server, {**conf, ACCOUNT: PLANTED}), "write_table", tmp_path / "t", arguments)
    told = jobs.run(_on(server, conf), "write_table", tmp_path / "t", arguments)
    allowed = {**conf, ACCOUNT: PLANTED, ON_ITS_PAGE: "true"}
    jobs.run(_on(server, allowed), "build_index", tmp_path / "t", {"name": "keys", "kind": "record"})

    assert "spark.redaction.regex" in caught.value.hint and PLANTED not in str(caught.value)
    assert told["metrics"]["rows"] == 20
    assert PLANTED not in server.log.read_text(errors="replace") and holding(tmp_path) == []


def _on(server: ConnectServer, conf: dict[str, str]) -> SparkSettings:
    return SparkSettings(master=server.address, token=server.token, conf=conf)
