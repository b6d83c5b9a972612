"""The page under whoever may send requests to it, and over logs that anybody may have written: every answer keeps its
headers, shows no more than the user may see, and holds nothing of a log as HTML."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from airflow_provider_index.ui import access, app, overview
from airflow_provider_index.ui.overview import TableCache
from airflow_provider_index.ui.tables import Readers
from spark_apps.storage.errors import LogDamaged
from spark_apps.timeline.windows import open_window
from tests.airflow_provider_index.ui import lakes
from tests.airflow_provider_index.ui.conftest import Pages, connect, pages

pytestmark = pytest.mark.by_turn(8)

__all__ = ["pages"]

PLANTED = "<img src=x onerror=alert(1)>\"'`</title></script>"
BAD: list[Any] = [
    PLANTED,
    "",
    "x",
    "\u00b2\u00b2\u00b2",
    "../../../etc/passwd",
    "a\x00b",
    "\ud83d\ude00\u202e",
    None,
    True,
    -1,
    2**63,
    -(2**70),
    1e308,
    1e-300,
    [],
    {},
    [[[]]],
    ["x"] * 3,
    {"a": {"b": "c"}},
]


def guarded(answer: Any, most: int = 500) -> str:
    """What every answer has to be. :returns: its text."""
    assert answer.status_code < most, answer.text[:300]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "cache-control" in answer.headers and "referrer-policy" in answer.headers
    assert "<img src=x" not in answer.text and "<script" not in answer.text
    return str(answer.text)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a document, objects and lists too."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copied = copy.deepcopy(document)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The commits of a table that has one of everything that the page shows."""
    folder = tmp_path_factory.mktemp("pattern") / "t"
    timeline = lakes.make(folder, indexes=(lakes.BY_CITY, lakes.BY_KEY))
    lakes.write(timeline, "dt=2026-11-20", [1000, 2000], maintained=(lakes.BY_KEY,), txn_id="a")
    open_window(timeline, "holder", seconds=900)
    paths = sorted((folder / "_index/timeline").glob("*.json"))
    return [json.loads(path.read_text()) for path in paths]


def put(folder: Path, commits: list[Any]) -> None:
    (folder / "_index/timeline").mkdir(parents=True)
    for number, commit in enumerate(commits):
        (folder / f"_index/timeline/{number:020d}.json").write_text(json.dumps(commit))


def test_given_logs_with_a_bad_value_in_each_of_their_fields_then_each_is_at_worst_one_row_that_says_so(
    pages: Pages, pattern: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "db0/good", pattern)
    tried = 0
    for number, commit in enumerate(pattern):
        for path in places(commit):
            bad = BAD[tried % len(BAD)]
            put(
                tmp_path / f"db{tried % 7}/bad{tried}",
                [*pattern[:number], changed(commit, path, bad), *pattern[number + 1 :]],
            )
            tried += 1
    connect(monkeypatch, "lake", tmp_path)
    client = pages(table_cache=TableCache(patience=60, threads=2))

    for order in ("name", "lag", "small", "size", "changed"):
        text = guarded(client.get(f"/?per=1000&sort={order}"))
        assert text.count('<tr class="table') == tried + 1
    assert tried > 150 and re.search(r"db0\.good</a></th>\s*<td[^>]*>table", text)
    for number in range(0, tried, 5):
        guarded(client.get(f"/tables?conn=lake&table=db{number % 7}.bad{number}"), 504)


def test_given_one_commit_whose_instant_is_no_time_then_the_overview_shows_all_other_tables(
    pages: Pages, pattern: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "good", pattern)
    put(tmp_path / "bad", [*pattern[:-1], {**pattern[-1], "instant": "x"}])
    put(tmp_path / "odd", pattern)
    (tmp_path / "odd/_index/timeline/\u00b2\u00b2\u00b2.json").write_text("{}")
    connect(monkeypatch, "lake", tmp_path)
    client = pages(table_cache=TableCache(patience=30))

    text = guarded(client.get("/?sort=changed"))
    assert text.count('<tr class="table">') == 3 and text.count("cannot be read") >= 1 and 'class="trouble"' in text
    assert guarded(client.get("/tables?conn=lake&table=bad"), 504)


class Panic(BaseException):
    """As a native library ends a call."""


THROWN = [
    ValueError("x"),
    KeyError(),
    RecursionError(),
    MemoryError(),
    OverflowError(PLANTED),
    UnicodeDecodeError("x", b"", 0, 1, PLANTED),
    AssertionError(),
    LogDamaged(PLANTED),
    TypeError(),
    Panic(),
    SystemExit(3),
    TimeoutError(),
    StopIteration(),
]


@pytest.mark.parametrize("error", THROWN, ids=lambda error: type(error).__name__)
def test_given_whatever_is_thrown_while_one_table_is_read_then_it_is_one_row(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    for name in ("good", "bad"):
        lakes.make(tmp_path / name)
    connect(monkeypatch, "lake", tmp_path)
    read = overview._read

    def throwing(timeline: Any, table: Any, now: float) -> Any:
        if table.name == "bad":
            raise error
        return read(timeline, table, now)

    monkeypatch.setattr(overview, "_read", throwing)
    shown = TableCache(patience=2)
    text = guarded(pages(table_cache=shown).get("/"))
    assert "v0," in text and text.count('class="trouble"') == 1

    monkeypatch.setattr(overview, "_read", read)
    monkeypatch.setattr(app, "read_detail", lambda *_: (_ for _ in ()).throw(error))
    guarded(pages(table_cache=shown).get("/tables?conn=lake&table=bad"), 505)


@pytest.mark.by_turn(1)
def test_given_a_card_that_cannot_be_drawn_then_the_others_are(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.make(tmp_path / "good")
    lakes.write(lakes.make(tmp_path / "bad"), "dt=2026-11-20", [77_777])
    connect(monkeypatch, "lake", tmp_path)
    size = app.environment().filters["size"]

    def failing(count: float) -> str:
        if count == 77_777:
            raise ValueError("no such size")
        return str(size(count))

    monkeypatch.setitem(app.environment().filters, "size", failing)
    monkeypatch.setattr("airflow_provider_index.ui.overview._totals", lambda cards: None)

    text = guarded(pages(table_cache=TableCache(patience=30)).get("/"))

    assert "v0," in text and text.count("cannot be shown (ValueError)") == 1


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("route", ["/", "/tables?conn=lake&table=t", "/static/page.css", "/nothing"])
def test_given_an_error_where_none_is_expected_then_the_answer_has_its_headers_and_tells_nothing(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    connect(monkeypatch, "lake", tmp_path)
    client = pages()
    monkeypatch.setattr(access, "readable", lambda *_: (_ for _ in ()).throw(RuntimeError("s3cret")))

    answer = TestClient(client.app, raise_server_exceptions=False).get(route)

    assert "s3cret" not in guarded(answer, 504)


@pytest.mark.parametrize(
    "extra",
    [
        "[]",
        '"x"',
        '{"warehouse": 7}',
        '{"warehouse": ["a"]}',
        '{"warehouse": "s3://["}',
        '{"warehouse": "ftp://x/y"}',
        '{"warehouse": "/x", "storage_options": 7}',
        "{",
        '{"warehouse": "/\\u0000"}',
    ],
)
def test_given_a_connection_that_makes_no_sense_then_the_page_says_so(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "index_table_store", "extra": extra}))
    client = TestClient(pages().app, raise_server_exceptions=False)
    for route in ("/", "/?conn=lake", "/tables?conn=lake&table=t"):
        guarded(client.get(route), 504)


# --- requests ---------------------------------------------------------------------------------------------------

WORDS = [
    "--5",
    "-",
    "9" * 9,
    "9" * 500,
    "\u0663",
    "1e3",
    "0x10",
    "",
    " 1 ",
    "-1",
    "NaN",
    PLANTED,
    "%00",
    "\ud7ff",
    "a" * 3000,
    "../" * 90,
    "'; DROP TABLE t; --",
    "{{913*977}}",
    "${913*977}",
    "(a+)+$" * 50,
    "%s%n",
    "\r\nSet-Cookie: a=b",
]


def test_given_any_text_in_any_parameter_then_every_route_answers(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.write(lakes.make(tmp_path / "t", indexes=(lakes.BY_CITY,)), "dt=2026-11-20", [1000])
    connect(monkeypatch, "lake", tmp_path)
    client = TestClient(pages(table_cache=TableCache(patience=30)).app, raise_server_exceptions=False)
    started = time.monotonic()
    for word in WORDS:
        for name in ("q", "show", "sort", "page", "per", "conn", "x" * 100):
            answer = client.get("/", params={name: word})
            assert str(913 * 977) not in guarded(answer)
            assert not answer.cookies
        for name in ("before", "partition", "p"):
            guarded(client.get("/tables", params={"conn": "lake", "table": "t", name: word}))
        guarded(client.get("/tables", params={"conn": "lake", "table": word}), 504)
        guarded(client.get("/static/" + word.replace("\r\n", "")[:200]))
    assert time.monotonic() - started < 60


OUTSIDE = [
    "../secret",
    "..",
    ".",
    "/",
    "//",
    "/etc",
    "secret",
    "{root}/../secret",
    "file://{root}/../secret",
    "file:secret",
    "{root}/lake/../../secret",
    "{secret}",
    "file://{secret}",
    "lake/..%2f..%2fsecret",
    "a/../../secret",
    "_indexes",
    "_indexes._indexes.t",
    "{root}",
    "{root}/",
    "s3://bucket/t",
    "memory:///t",
    "http://127.0.0.1/x",
    "t\x00",
    "t\n",
    "t/_index",
    "t._index.timeline",
    "\\..\\secret",
    "~/secret",
    "a.b.c.d.e",
    ".t",
    "t.",
    "s3://[",
]


@pytest.mark.parametrize("asked", OUTSIDE)
def test_given_an_address_outside_of_the_warehouse_then_no_store_is_asked_and_nothing_told(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    root, secret = tmp_path / "lake", tmp_path / "secret"
    lakes.make(root / "t")
    lakes.make(secret)
    lakes.make(secret / "t")
    connect(monkeypatch, "lake", root)
    before = sorted(map(str, tmp_path.rglob("*")))

    answer = pages().get("/tables", params={"conn": "lake", "table": asked.format(root=root, secret=secret)})

    guarded(answer, 504)
    assert answer.status_code in (404, 503)
    assert sorted(map(str, tmp_path.rglob("*"))) == before


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND"]
)
def test_given_another_method_than_get_then_nothing_is_done_and_nothing_told(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    lakes.make(tmp_path / "t")
    connect(monkeypatch, "lake", tmp_path)
    before = sorted(map(str, tmp_path.rglob("*")))
    for role in ("op", "nobody"):
        for route in ("/", "/tables?conn=lake&table=t", "/static/page.css", "/x/y"):
            answer = pages(role).request(method, route, content=b"x" * 100_000)
            assert answer.status_code in (401, 404, 405) and "v0," not in guarded(answer)
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_given_a_user_who_may_read_one_connection_then_no_other_is_shown_named_or_told_apart_from_none(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "theirs"):
        lakes.make(tmp_path / name / f"of_{name}")
        connect(monkeypatch, name, tmp_path / name)
    monkeypatch.setattr(access, "may_read", lambda user, conn_id: conn_id == "mine")
    client = pages()

    own = guarded(client.get("/"))
    assert "of_mine" in own and "theirs" not in own
    asked = ["theirs", "THEIRS", "Theirs", " theirs", "theirs ", "nothing", "th\u0435irs", "theirs\x00", "mine\ntheirs"]
    for conn_id in asked:
        for route, params in (
            ("/", {}),
            ("/tables", {"table": "of_theirs"}),
            ("/tables", {"table": f"{tmp_path}/theirs/of_theirs"}),
        ):
            answer = client.get(route, params={"conn": conn_id, **params})
            assert answer.status_code == 403, conn_id
            assert (
                guarded(answer).replace(repr(conn_id), "")
                == guarded(client.get(route, params={"conn": "other", **params}))
                .replace("'other'", "")
                .replace(repr(conn_id), "")
                or "&#" in answer.text
            )
            assert "of_theirs" not in answer.text
    for conn_id in ("mine", "MINE"):
        answer = client.get("/tables", params={"conn": conn_id, "table": f"{tmp_path}/theirs/of_theirs"})
        assert answer.status_code in (403, 404)


@pytest.mark.by_turn(1)
def test_given_a_panic_in_a_reader_s_thread_then_the_thread_works_on() -> None:
    readers = Readers(1)

    def panics() -> None:
        raise Panic

    for _ in range(5):
        with pytest.raises(LogDamaged.__mro__[1]):
            readers.submit(panics).result(5)
    assert readers.submit(lambda: 7).result(5) == 7
