"""Delta tables of a real Hive metastore on loopback, by several clients that each know the name alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.on_metastore import ROWS
from tests.connectors.servers import catalog_servers

pytestmark = [pytest.mark.usefixtures("delta"), pytest.mark.by_turn(4)]


def run(step: str, address: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.connectors.on_metastore", step, address, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_given_a_hive_metastore_then_its_delta_table_is_indexed_by_name_and_each_client_finds_the_index(
    tmp_path: Path,
) -> None:
    (tmp_path / "indexes").mkdir()
    [third] = [number for number in range(ROWS) if number * 7919 % ROWS == 3]
    try:
        with catalog_servers(tmp_path / "servers") as servers:
            address = servers.metastore()
            made = run("make", address, tmp_path)
            assert made["log"].startswith(f"{tmp_path}/indexes/_indexes/spark_catalog/db/trips-")
            [ids, (files, kept)] = made["found"]
            assert ids == [third] and kept == 1 < files

            written = run("write", address, tmp_path)
            assert written["found"] == made["found"]
            rows = sorted([third, 7, ROWS])
            assert written["merged"][0] == rows

            followed = run("follow", address, tmp_path)
            assert followed["before"] == written["merged"] and followed["verified"]
            [ids, (files, kept)] = followed["after"]
            assert (ids, followed["view"]) == (rows, [files, kept]) and kept < files
            assert followed["dropped"]
    except ConnectionError as error:
        pytest.skip(f"CONNECTORS NOT TESTED: the servers' jars: {error}")
