"""What the page says of the worth of indexes, of a table's health, and the advice that it gives when it is asked."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from airflow_provider_index.ui import details
from airflow_provider_index.ui.overview import TableCache
from airflow_provider_index.ui.pictures import worth_picture
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.timeline.windows import open_window
from spark_apps.workload.query_log import FOLDER
from spark_apps.workload.worth import DAYS, read_worth
from tests.airflow_provider_index.ui import lakes
from tests.airflow_provider_index.ui.conftest import Pages, connect
from tests.compatibility.lake import unpack

DAY = 86_400.0
LOGGED = {"query_log": "on"}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: Pages) -> Pages:
    connect(monkeypatch, "lake", tmp_path)
    return pages


def detail(lake: Pages, **query: str) -> str:
    answer = lake().get("/tables", params={"conn": "lake", "table": "t", **query})
    assert answer.status_code == 200, answer.text
    return answer.text


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_given_a_query_log_then_each_index_shows_its_queries_what_it_spared_and_its_upkeep(
    lake: Pages, tmp_path: Path
) -> None:
    clock = lakes.Clock(time.time() - 3 * DAY)
    timeline = lakes.make(tmp_path / "t", indexes=(lakes.BY_KEY, lakes.BY_CITY), clock=clock, properties=LOGGED)
    lakes.write(timeline, "dt=1", [24 * lakes.MB], maintained=(lakes.BY_CITY,))
    used, spared = (("by_city", "secondary"),), {"by_city": 1000 * lakes.MB, "gone": 5}
    # Before the index was made it was another one of its name.
    lakes.asked(timeline, time.time() - 4 * DAY, weight=90.0, used=used, spared=spared)
    lakes.asked(timeline, time.time() - 2 * DAY, weight=30.0, used=used, spared=spared)
    unused = (("by_city", "secondary", "<b>no_gain</b>"), ("by_key", "record", "no_keys"))
    lakes.asked(timeline, time.time(), weight=12.0, unused=unused)
    lakes.asked(timeline, time.time() + 400 * DAY, weight=1e9, used=used)
    timeline.store.put(f"{FOLDER}/20260101T000000-{'0' * 16}.jsonl", b"{\n")

    html = detail(lake)
    card = words(html[html.index('id="index-by_city"') : html.index("</article>", html.index('id="index-by_city"'))])

    assert "Upkeep 2.0 MB written by 1 of the last 2 commits" in card
    assert f"Asked by 42 of 132 queries in {DAYS} days Used by 30 Not used 12× &lt;b&gt;no_gain&lt;/b&gt;" in card
    assert "Saved 30.0 GB" in card and "at most 30.0 GB" in card
    assert html.count("<polyline") == 2 and "<b>" not in html and "gone" not in card
    assert "12× no_keys" in words(html)


def test_given_days_when_drawn_then_the_best_reaches_the_top_and_the_newest_stands_right() -> None:
    picture = worth_picture([0.0, 50.0, 100.0])

    assert picture.points == "0.0,44.0 120.0,23.0 240.0,2.0" and picture.most == 100
    assert worth_picture([0.0] * 3).points == "0.0,44.0 120.0,44.0 240.0,44.0"


def test_given_a_log_larger_than_is_read_then_it_says_so_and_judges_no_index(
    lake: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = lakes.make(tmp_path / "t", indexes=(lakes.BY_CITY,), properties=LOGGED)
    lakes.write(timeline, "dt=1", [lakes.MB], maintained=(lakes.BY_CITY,))
    for hours in range(3):
        lakes.asked(timeline, time.time() - 3600 * hours, weight=30.0)
    assert "None of 90 queries in 30 days used by_city." in words(detail(lake))

    monkeypatch.setattr("spark_apps.workload.worth.MAX_PAGE_OBJECTS", 2)
    text = words(detail(lake))

    assert "only its newest lines are counted" in text and "● healthy" in text
    read = read_worth(timeline.store, LOGGED, {})
    assert read is not None and (read.queries, read.whole) == (60, False)


def test_a_table_s_health_is_the_worst_that_is_known_of_it(lake: Pages, tmp_path: Path) -> None:
    clock = lakes.Clock(time.time() - DAY)
    timeline = lakes.make(tmp_path / "t", indexes=(lakes.BY_CITY,), clock=clock)
    seen = []

    def look() -> str:
        seen.append(words(detail(lake)))
        overview = lake(table_cache=TableCache()).get("/").text
        return words(
            overview[
                overview.index('<tr class="table">') : overview.index("</tr>", overview.index('<tr class="table">'))
            ]
        )

    assert "▲ empty" in look() and "It has no rows: the load that created it may have failed" in seen[-1]
    lakes.write(timeline, "dt=1", [lakes.MB], maintained=(lakes.BY_CITY,))
    assert "● healthy" in look() and "Its indexes cover all of it" in seen[-1]
    lakes.write(timeline, "dt=1", [lakes.MB])
    assert "▲ behind" in look()
    assert re.search(r"The index by_city does not cover 1 file group, 1.0 MB, for (24 h|1 d)", seen[-1])
    open_window(timeline, "<i>ann</i>", seconds=60)
    assert "✕ stopped" in look() and "The stop-write window of &lt;i&gt;ann&lt;/i&gt; is " in seen[-1]


def test_given_no_query_log_then_the_page_says_how_to_keep_one(lake: Pages, tmp_path: Path) -> None:
    lakes.make(tmp_path / "t", indexes=(lakes.BY_CITY,))

    text = words(detail(lake))

    assert "keeps no query log" in text and "Asked" not in text and "Ask which indexes" not in text


def test_given_a_query_log_that_cannot_be_read_then_the_page_says_so_and_not_that_there_is_none(
    lake: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = lakes.make(tmp_path / "t", indexes=(lakes.BY_CITY,), properties=LOGGED)
    lakes.asked(timeline, time.time(), weight=30.0)

    def fails(*_: object) -> None:
        raise StorageUnavailable("The store does not answer.")

    monkeypatch.setattr(details, "worth_of", fails)

    text = words(detail(lake))

    assert "The query log cannot be read" in text and "The store does not answer." in text
    assert "keeps no query log" not in text and "Asked" not in text


def test_advice_is_given_when_it_is_asked_for_with_statements_to_copy(lake: Pages, tmp_path: Path) -> None:
    unpack(tmp_path)
    timeline = lakes.load(tmp_path / "trips")
    lakes.asked(timeline, time.time() - 3600, weight=10_000.0, predicate="tip = 1.5")

    plain = lake().get("/tables", params={"conn": "lake", "table": "trips"}).text
    advised = lake().get("/tables", params={"conn": "lake", "table": "trips", "advice": "1"}).text

    assert "CREATE INDEX" not in plain
    copied = re.search(r'<pre class="copy" tabindex="0">(.*?)</pre>', advised, re.S)
    assert copied is not None and "CREATE INDEX `" in copied[1] and copied[1].strip().endswith(";")
    assert "For 10,000 queries in" in words(advised)


def test_given_a_source_or_a_damaged_table_then_no_advice_is_given_and_the_reason_is(
    lake: Pages, tmp_path: Path
) -> None:
    lakes.register(tmp_path / "_indexes" / "trips", "/etc", [5])
    timeline = lakes.make(tmp_path / "t", indexes=(lakes.BY_CITY,), properties=LOGGED)
    lakes.write(timeline, "dt=1", [lakes.MB])
    lakes.asked(timeline, time.time(), weight=50.0, predicate="amount = 3")

    assert "No advice can be given here" in detail(lake, advice="1")
    source = lake().get("/tables", params={"conn": "lake", "table": "trips", "advice": "1"}).text
    assert "a registered source, whose files this server does not read" in source
