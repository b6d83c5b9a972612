"""The page in this process, over tables on disk, for users of Airflow's own auth manager."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from starlette.testclient import TestClient

from airflow_provider_index.ui.access import in_environment
from airflow_provider_index.ui.app import create_app
from airflow_provider_index.ui.overview import TableCache
from tests.airflow_provider_index.ui import lakes

Pages = Callable[..., TestClient]


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A busy table, an empty one, one with a name that is HTML, one with two broken logs, and no more."""
    folder = tmp_path_factory.mktemp("warehouse")
    lakes.busy(folder / "sales" / "orders", time.time(), days=5)
    lakes.make(folder / "sales" / "empty", indexes=(lakes.BY_KEY,))
    lakes.make(folder / "sales" / "<script>alert(1)<&'")
    lakes.damage(folder / "ops" / "damaged")
    return folder


def connect(
    monkeypatch: pytest.MonkeyPatch,
    conn_id: str,
    warehouse: Path | str,
    *,
    conn_type: str = "index_table_store",
    **extra: Any,
) -> None:
    fields = {"conn_type": conn_type, "extra": {"warehouse": str(warehouse), **extra}}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """Makes a client that a user of a role looks with; the page knows the connections of the environment."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
        monkeypatch.delenv(name)
    create_auth_manager()

    def made(role: str | None = "op", table_cache: TableCache | None = None) -> TestClient:
        app = create_app(table_cache, connections=lambda: in_environment(os.environ))
        if role != "nobody":
            app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="ann", role=role)
        return TestClient(app)

    yield made
