"""What the page says of good and bad tables, to whom, and that no address leads it out of a warehouse."""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from airflow_provider_index.links import page_url
from airflow_provider_index.ui import access
from airflow_provider_index.ui.app import static_names
from airflow_provider_index.ui.overview import TableCache
from airflow_provider_index.ui.tables import TableName
from spark_apps.timeline.model import IndexDefinition, PutIndex, Write, definition_scope
from spark_apps.timeline.transactions import begin
from tests.airflow_provider_index.ui import lakes
from tests.airflow_provider_index.ui.conftest import Pages, connect
from tests.spark_apps.timeline.plain_rows import PlainRows

pytestmark = pytest.mark.by_turn(6)

ROUTES = [
    "/",
    "/?conn=lake&q=a",
    "/tables?conn=lake&table=sales.orders",
    "/nothing",
    *(f"/static/{n}" for n in static_names()),
    "/operators",
    "/operators?name=WriteTableOperator",
]
OF_NO_TABLE = tuple(route for route in ROUTES if route.startswith(("/static/", "/operators")))
"""They show what the package is, to whoever is logged in."""


@pytest.fixture
def lake(warehouse: Path, monkeypatch: pytest.MonkeyPatch, pages: Pages) -> Pages:
    connect(monkeypatch, "lake", warehouse)
    return pages


def table(name: str) -> str:
    return f"/tables?conn=lake&table={name}"


# --- who may look --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_login_every_route_answers_401(lake: Pages, route: str) -> None:
    assert lake("nobody").get(route).status_code == 401


@pytest.mark.parametrize("role", [None, "viewer", "user"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_user_who_may_not_read_connections_gets_403_on_every_route_of_tables(
    lake: Pages, route: str, role: str | None
) -> None:
    answer = lake(role).get(route)

    assert answer.status_code == (200 if route in OF_NO_TABLE else 403)
    assert "sales" not in answer.text


@pytest.mark.parametrize("role", ["op", "admin"])
def test_a_user_who_may_read_connections_sees_all(lake: Pages, role: str) -> None:
    statuses = {route: lake(role).get(route).status_code for route in ROUTES}

    assert statuses.pop("/nothing") == 404
    assert set(statuses.values()) == {200}


def test_a_view_of_its_own_may_be_the_right_instead(lake: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LAKEINDEX__PAGE_RESOURCE", "Lake tables")

    assert lake("viewer").get("/").status_code == 200
    assert lake(None).get("/").status_code == 403


@pytest.mark.by_turn(1)
def test_a_user_sees_the_tables_of_those_connections_only_that_he_may_read(
    lake: Pages, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "payroll", warehouse)

    def may(_: object, *, method: str, user: object, details: ConnectionDetails | None = None) -> bool:
        return details is None or details.conn_id == "lake"

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_connection", may)

    assert lake().get(table("sales.orders")).status_code == 200
    assert lake().get("/tables?conn=payroll&table=sales.orders").status_code == 403
    assert "payroll" not in lake().get("/").text


def test_a_connection_that_is_not_a_table_store_is_refused_like_one_that_is_not_there(
    lake: Pages, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "other", warehouse, conn_type="postgres")

    for conn_id in ("other", "missing"):
        assert lake().get(f"/tables?conn={conn_id}&table=sales.orders").status_code == 403
        assert lake().get(f"/?conn={conn_id}").status_code == 403


@pytest.mark.by_turn(1)
def test_given_a_connection_with_capital_letters_then_its_pages_are_shown_by_its_name_in_any_case(
    lake: Pages, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for conn_id in ("lake", "LAKE", "Lake"):
        assert lake().get(f"/tables?conn={conn_id}&table=sales.orders").status_code == 200, conn_id
    assert access.each_once(["Sales-Lake", "sales-lake", "B"], ["sales-lake", "b", "other"]) == [
        "B", "Sales-Lake", "other", "sales-lake",
    ]  # fmt: skip


def test_given_a_warehouse_with_a_password_in_its_address_then_no_page_shows_it(
    lake: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = tmp_path / "lake;sig=hunter22"
    guarded.mkdir()
    connect(monkeypatch, "guarded", guarded)

    shown = lake().get("/?conn=guarded").text

    assert "lake;sig=***" in shown and "hunter22" not in shown
    named = TableName("db.t", "s3://key:hunter22@bucket/lake/db/t")
    assert named.link == "db.t" and TableName("db.t", "s3://bucket/db/t").link == "s3://bucket/db/t"
    assert "hunter22" not in page_url(named.location, "guarded")


# --- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        "/etc",
        "../outside/t",
        "sales/../../outside/t",
        "{warehouse}/../outside/t",
        "{warehouse}x/t",
        "{warehouse}",
        "{warehouse}/",
        "file://{warehouse}/../outside/t",
        "s3://bucket/t",
        "http://169.254.169.254/latest/meta-data",
        "memory:///t",
        "sales..orders",
        "sales.%2e%2e",
        "a.b.c.d.e",
        "_index",
        "sales.orders._index",
        "\n",
    ],
)
def test_no_address_leads_out_of_the_warehouse_and_none_makes_a_folder(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    inside, outside = tmp_path / "warehouse", tmp_path / "outside"
    lakes.make(inside / "sales" / "orders")
    lakes.make(outside / "t")
    lakes.make(tmp_path / "warehousex" / "t")
    connect(monkeypatch, "lake", inside)
    before = sorted(tmp_path.rglob("*"))

    answer = pages().get("/tables", params={"conn": "lake", "table": asked.format(warehouse=inside)})

    assert answer.status_code == 404
    assert "Record key" not in answer.text
    assert sorted(tmp_path.rglob("*")) == before


def test_a_table_is_found_by_its_name_and_by_its_location(lake: Pages, warehouse: Path) -> None:
    for asked in ("sales.empty", f"{warehouse}/sales/empty", f"file://{warehouse}/sales/empty"):
        assert "<h1>sales.empty</h1>" in lake().get("/tables", params={"conn": "lake", "table": asked}).text


@pytest.mark.by_turn(1)
def test_what_others_named_is_text_and_not_html(lake: Pages) -> None:
    overview = lake().get("/").text
    link = re.search(r'href="(tables\?[^"]*script[^"]*)"', overview)
    assert link is not None
    detail = lake().get("/" + link[1].replace("&amp;", "&"))

    assert detail.status_code == 200
    for text in (overview, detail.text, lake().get("/", params={"q": "<script>alert(2)"}).text):
        assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in detail.text


def test_no_script_is_sent_or_allowed(lake: Pages) -> None:
    for route in ROUTES:
        answer = lake().get(route)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "unsafe" not in policy
        assert " style=" not in answer.text
        assert not re.search(r"<script|javascript:|\son\w+=", answer.text)
        assert answer.headers["x-content-type-options"] == "nosniff"


# --- what it says --------------------------------------------------------------------------------------------------


def row(text: str, name: str) -> str:
    """The words of the row of a table or index."""
    match = re.search(rf"<tr[^>]*>(?:(?!</tr>).)*>{re.escape(name)}</a>.*?</tr>", text, re.S)
    assert match is not None, f"no row of {name}"
    return " ".join(re.sub(r"<[^>]+>", " ", match[0]).split())


def test_the_overview_shows_tables_with_their_indexes_and_how_far_they_lag(lake: Pages, warehouse: Path) -> None:
    text = lake().get("/").text
    state = lakes.load(warehouse / "sales" / "orders").head

    orders = row(text, "sales.orders")
    assert f"v{state.version}," in orders
    assert "writes stopped" in orders
    assert f"{len(state.files('data')):,}" in orders
    assert re.search(r"by_city secondary ▲ \d+ commits behind for \d+ d", row(text, "by_city"))
    assert "by_key record ● fresh" in row(text, "by_key")
    assert "Version 2 is missing from the log" in text


@pytest.mark.by_turn(1)
def test_given_sources_beside_the_warehouse_then_those_that_the_connection_lists_are_shown(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lakes.make(tmp_path / "warehouse" / "sales" / "orders")
    raw, far = tmp_path / "raw", tmp_path / "far"
    lakes.register(tmp_path / "warehouse/sales/_indexes/inside", tmp_path / "warehouse/sales/inside", [5])
    lakes.register(raw / "_indexes" / "delta", raw / "delta", [1000, 24])
    lakes.register(raw / "_indexes" / "iceberg", raw / "iceberg", [1000, -1])
    lakes.register(raw / "_indexes" / "trips", raw / "trips", [-1])
    lakes.register(far / "_indexes" / "riders", far / "riders", [7])
    lakes.register(far / "_indexes" / "secret", far / "secret", [7])
    lakes.make(tmp_path / "elsewhere" / "t")
    listed = [raw / "_indexes", far / "riders", tmp_path / "elsewhere" / "t", tmp_path / "gone", far / "new/_indexes"]
    connect(monkeypatch, "lake", tmp_path / "warehouse", listed_tables=json.dumps([str(one) for one in listed]))
    before = sorted(tmp_path.rglob("*"))
    page = pages()
    text = page.get("/").text

    delta = row(text, "delta")
    assert "delta outside the warehouse parquet source v0" in delta and " 1,024 2.0 MB 2 " in delta
    assert " ≥ 1,000 2.0 MB 2 " in row(text, "iceberg") and " not known 1.0 MB 1 " in row(text, "trips")
    assert "outside" not in row(text, "sales.inside") and " 7 1.0 MB 1 " in row(text, "riders")
    assert " table v0" in row(text, "t") and "There is no table at" in row(text, "gone")
    assert "secret" not in text and "8 tables" in text

    def status(table: Path | str) -> int:
        return page.get("/tables", params={"conn": "lake", "table": str(table)}).status_code

    for shown in (raw / "_indexes" / "delta", far / "riders", far / "_indexes" / "riders", raw / "trips"):
        assert status(shown) == 200, shown
    for hidden in (
        far / "_indexes" / "secret", far / "secret", raw / "other", tmp_path / "gone", tmp_path, raw / "_indexes",
        f"{raw}/_indexes/../../far/_indexes/secret", f"{raw}/_indexes/delta/_index", f"{raw}/_indexes/",
    ):  # fmt: skip
        assert status(hidden) == 404, hidden
    assert sorted(tmp_path.rglob("*")) == before


def test_given_rows_that_nobody_has_counted_then_the_page_gives_a_bound_and_after_a_compaction_the_number(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, "lake", tmp_path)
    timeline = lakes.make(tmp_path / "t", buckets=1)
    lakes.write(timeline, "dt=1", [90_000])
    text = pages().get("/").text
    assert " 1,000 90.0 kB 1 " in row(text, "t") and "≤" not in text

    lakes.write(timeline, "dt=1", [900], tombstones=4)
    table = pages(table_cache=TableCache()).get("/").text
    assert " ≤ 1,006 90.9 kB 2 2 4" in row(table, "t") and "Between 996 and 1,006" in table
    detail = pages().get("/tables", params={"conn": "lake", "table": "t"}).text
    assert "≤ 1,006" in detail and "1,010 in files" in " ".join(re.sub(r"<[^>]+>", " ", detail).split())


def test_a_table_page_shows_the_log_what_is_at_work_sizes_and_plans(lake: Pages, warehouse: Path) -> None:
    text = lake().get(table("sales.orders")).text
    state = lakes.load(warehouse / "sales" / "orders").head

    assert text.count('<a class="commit"') == text.count('<tr id="v') == min(60, state.version + 1)
    assert f"Version {state.version}: open_window" in text
    assert "taken back by a restore, or dropped with its table" in text
    for words in (
        "rescale_2026 (tomás@example.org)",
        "sales.nightly.compact",
        "merge the files 3 of 16",
        "write the rows 11 of 16",
        "left for later",
        "It was verified 2 days ago",
        "over_budget",
        "× the mean",
    ):
        assert words in text
    assert "sales.erase" in text
    assert text.count("<figure>") == len(state.partitions)


def test_a_table_that_other_engines_read_says_how_far(
    lake: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "bare", tmp_path)
    rng, rows = random.Random(1), PlainRows(tmp_path / "open" / "orders", partitioned=False)
    rows.write("insert", None, [rows.row(number, None, rng) for number in range(4)])
    rows.write("delete", None, [], [3])
    page = lake().get("/tables", params={"conn": "bare", "table": "open.orders"}).text
    assert "Published as delta" in page and "version 1, 1 commits behind: The file group" in page


def test_older_commits_are_on_further_pages(lake: Pages) -> None:
    first = lake().get(table("sales.orders")).text
    older = re.search(r'href="(tables\?[^"#]*before=(\d+))#log-h" rel="prev"', first)
    assert older is not None

    text = lake().get("/" + older[1].replace("&amp;", "&")).text

    assert f'id="v{int(older[2]) - 1}"' in text
    assert 'id="v0"' in text
    assert 'rel="next"' in text


def test_an_empty_table_and_an_empty_warehouse_say_so(
    lake: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "bare", tmp_path)

    assert "The table has no rows yet" in lake().get(table("sales.empty")).text
    assert "There are no tables yet" in lake().get("/?conn=bare").text


def test_a_damaged_log_is_told_on_its_own_page_and_hides_no_other_table(lake: Pages) -> None:
    answer = lake().get(table("ops.damaged"))

    assert answer.status_code == 503
    assert "Version 2 is missing from the log" in answer.text
    assert "sales.orders" in lake().get("/").text


def test_a_warehouse_that_is_not_there_is_told_and_not_made(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "lake", tmp_path / "gone")

    assert "cannot be reached" in pages().get("/").text
    assert pages().get(table("sales.orders")).status_code == 503
    assert not (tmp_path / "gone").exists()


def test_a_store_that_cannot_be_reached_is_told_in_time_and_without_its_secrets(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_access_key_id": "AKIAPLANTED",
        "aws_secret_access_key": "planted-7d11",
        "allow_http": "true",
        "aws_region": "eu-central-1",
    }
    connect(monkeypatch, "lake", "s3://bucket/lake", storage_options=options)
    table_cache = TableCache(patience=1.0)
    started = time.monotonic()

    text = pages(table_cache=table_cache).get("/").text

    assert time.monotonic() - started < 5
    assert "cannot be reached" in text
    assert "PLANTED" not in text.upper()


def test_one_table_whose_store_hangs_holds_up_no_other(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.make(tmp_path / "good")
    lakes.make(tmp_path / "hangs")
    pipe = tmp_path / "hangs" / "_index" / "timeline" / f"{1:020d}.json"
    os.mkfifo(pipe)  # opening it waits until somebody writes
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "_index").symlink_to("_index")  # leads to itself, which every look at it ends with
    connect(monkeypatch, "lake", tmp_path)
    client = pages(table_cache=TableCache(patience=1.0))
    started = time.monotonic()

    text = client.get("/").text

    try:
        assert time.monotonic() - started < 3
        assert "v0," in row(text, "good")
        assert "no answer yet" in row(text, "hangs")
        assert "cannot be read" in row(text, "odd")
    finally:
        pipe.open("w").close()


# --- many ----------------------------------------------------------------------------------------------------------


def test_many_tables_are_shown_in_pages_filtered_and_sorted_and_quickly(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.many(tmp_path, 200)
    connect(monkeypatch, "lake", tmp_path)
    client = pages(table_cache=TableCache(patience=30))

    whole = client.get("/?per=1000").text
    assert whole.count('<tr class="table">') == 200
    started = time.monotonic()
    first = client.get("/").text
    assert time.monotonic() - started < 1.0
    assert first.count('<tr class="table">') == 50
    assert "Page 1 of 4" in first
    assert client.get("/?page=4").text.count('<tr class="table">') == 50
    assert client.get("/?q=TABLE_0042").text.count('<tr class="table">') == 1
    behind = client.get("/?show=concerns&per=1000").text
    assert behind.count('<tr class="table">') == len([n for n in range(200) if n == 0 or (n > 1 and n % 3 == 0)])
    assert "No table matches" in client.get("/?q=nosuch").text


def test_a_new_commit_is_seen_when_the_table_is_asked_again(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = lakes.make(tmp_path / "t")
    connect(monkeypatch, "lake", tmp_path)
    client = pages(table_cache=TableCache(fresh=0.0))
    assert "v0," in row(client.get("/").text, "t")

    lakes.write(timeline, "dt=2026-11-20", [1000])

    assert "v1," in row(client.get("/").text, "t")


def test_given_an_index_of_hudis_own_then_the_page_says_who_keeps_it_and_nothing_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: Pages
) -> None:
    timeline = lakes.register(tmp_path / "w/db/_indexes/trips", tmp_path / "w/db/trips", [5])
    by_id = IndexDefinition("by_id", "hudi:record", ("id",), "i1", addresses="file")
    put = begin(timeline, operation="create_index", txn_id="hudi")
    put.commit([PutIndex(by_id, covered=True)], writes=[Write(definition_scope("by_id"), "replace")])
    connect(monkeypatch, "lake", tmp_path / "w")
    text = pages().get(f"/tables?conn=lake&table={timeline.store.uri}").text

    card = text.partition('id="index-by_id"')[2].partition("</article>")[0]
    assert "Hudi's own" in card and "by Hudi, in its metadata table" in card
    assert "Tombstones" not in card and "fresh" not in card
