"""The page in a real API server: found by Airflow's plugin manager, open to those who may read connections only."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from airflow_provider_index.ui.app import static_names
from tests.airflow.lake import Lake
from tests.airflow_provider_index.ui import lakes

pytestmark = pytest.mark.by_turn(16, whole=True, first=2)

OF_TABLES = ("", "?conn=lake", "tables?conn=lake&table=shown.orders", "nothing")
ROUTES = (*OF_TABLES, "operators", "operators?name=WriteTableOperator", *(f"static/{n}" for n in static_names()))


@pytest.fixture(scope="module")
def shown(lake: Lake) -> Lake:
    timeline = lakes.make(lake.warehouse / "shown" / "orders", indexes=(lakes.BY_CITY,))
    lakes.write(timeline, "dt=2026-11-20", [4000] * 4)
    return lake


@pytest.fixture
def browser(shown: Lake) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{shown.airflow.url}/lakeindex/", timeout=60, trust_env=False) as client:
        yield client


def token(lake: Lake, username: str) -> str:
    client = lake.airflow.client_of(username)
    try:
        return client.login()
    finally:
        client.close()


def test_airflow_has_loaded_the_plugin_and_shows_it_in_its_navigation(shown: Lake) -> None:
    plugins = {plugin["name"]: plugin for plugin in shown.client.get("plugins", limit=100)["plugins"]}

    (view,) = plugins["lakeindex"]["external_views"]
    assert (view["destination"], view["url_route"], view["href"]) == ("nav", "lakeindex", "/lakeindex/")
    errors = shown.client.get("plugins/importErrors")["import_errors"]
    # It is found twice where a checkout with its metadata is on the path beside the installed package.
    ours = [error for error in errors if "airflow-provider-index" in error["source"]]
    assert [error for error in ours if "already registered" not in error["error"]] == []


def test_every_route_asks_for_a_login_and_those_of_tables_for_the_right_to_read_connections(
    shown: Lake, browser: httpx.Client
) -> None:
    answers = {}
    for who in (None, "vera", "ulf", "olga", "admin"):
        proof = token(shown, who) if who else ""
        for how in ("cookie", "header"):
            browser.cookies.clear()
            headers = {}
            if who and how == "cookie":
                browser.cookies.set("_token", proof)
            elif who:
                headers = {"Authorization": f"Bearer {proof}"}
            answers[who, how] = [browser.get(route, headers=headers).status_code for route in ROUTES]

    seen = [404 if route == "nothing" else 200 for route in ROUTES]
    for how in ("cookie", "header"):
        assert answers[None, how] == [401] * len(ROUTES)
        refused = [403 if route in OF_TABLES else 200 for route in ROUTES]
        assert answers["vera", how] == answers["ulf", how] == refused
        assert answers["olga", how] == answers["admin", how] == seen


def test_a_connection_in_the_database_is_found_and_its_tables_are_shown(shown: Lake, browser: httpx.Client) -> None:
    extra = f'{{"warehouse": "{shown.warehouse / "shown"}"}}'
    shown.client.post("connections", {"connection_id": "kept_in_db", "conn_type": "index_table_store", "extra": extra})
    headers = {"Authorization": f"Bearer {token(shown, 'olga')}"}

    overview = browser.get("", params={"conn": "kept_in_db"}, headers=headers).text
    detail = browser.get("tables", params={"conn": "kept_in_db", "table": "orders"}, headers=headers)

    assert ">orders</a>" in overview
    assert ">lake</a>" in overview
    assert detail.status_code == 200
    assert "1 commit behind" in detail.text
