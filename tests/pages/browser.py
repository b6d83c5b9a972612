"""The page in a real Chromium, inside a real Airflow: `make pages` runs this, since not every machine has a browser.

``SHOTS=folder`` keeps the pictures of what was seen.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import Select, WebDriverWait

from airflow_provider_index.testing import LocalAirflow
from tests.airflow_provider_index.ui import lakes

pytestmark = pytest.mark.timeout(900)
MANY = 1000
SHOTS = os.environ.get("SHOTS", "")

# Of each text that can be seen: its colour and the colours under it, up to the first that hides what is below.
_CONTRAST = """
const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const light = c => { const f = c.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
const under = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
  if (c[3] === 1) return c; } return parse(getComputedStyle(document.documentElement).backgroundColor); };
const bad = [];
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
  const box = e.getBoundingClientRect(), style = getComputedStyle(e);
  if (!box.width || !box.height || style.visibility === 'hidden' || e.closest('.off, .vh, .skip, option')) continue;
  const [a, b] = [light(parse(style.color)), light(under(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) bad.push(e.className + ' "' + e.textContent.trim().slice(0, 30) + '" ' + ratio.toFixed(2));
}
return bad;
"""


_LOADED = "const t = performance.getEntriesByType('navigation')[0]; return t.responseEnd - t.startTime;"


class Browser:
    """A Chromium of a test's own."""

    def __init__(self, airflow: LocalAirflow) -> None:
        self.airflow = airflow
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
                 "--hide-scrollbars")  # fmt: skip
        for flag in flags:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        self.screen()

    def screen(self, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def login(self, username: str) -> None:
        """By Airflow's own form."""
        self.driver.get(f"{self.airflow.url}/auth/login")
        self.find("input[name=username]").send_keys(username)
        self.find("input[name=password]").send_keys(self.airflow.passwords[username])
        self.find("button[type=submit]").click()
        WebDriverWait(self.driver, 60).until(lambda driver: "/auth/login" not in driver.current_url)

    def open(self, path: str = "", **query: Any) -> None:
        """A page of ours, outside of Airflow's frame."""
        self.driver.get(f"{self.airflow.url}/lakeindex/{path}?{urlencode(query)}")

    def find(self, selector: str) -> Any:
        return WebDriverWait(self.driver, 60).until(lambda driver: driver.find_element(By.CSS_SELECTOR, selector))

    def follow(self, selector: str) -> None:
        """Click what leads to another page, and be there: a click may return before anything of that page is."""
        left = self.find("html")
        self.find(selector).click()
        WebDriverWait(self.driver, 60).until(staleness_of(left))
        complete = "return document.readyState === 'complete'"
        WebDriverWait(self.driver, 60).until(lambda driver: driver.execute_script(complete))

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def troubles(self) -> list[str]:
        """What the browser complains of: refused styles and scripts, files that are missing."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def shoot(self, name: str) -> None:
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(SHOTS) / f"{name}.png"))


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    folder = tmp_path_factory.mktemp("lake")
    (folder / "dags").mkdir()
    lakes.busy(folder / "sales" / "shop" / "orders", time.time())
    lakes.make(folder / "sales" / "shop" / "empty", indexes=(lakes.BY_KEY,))
    lakes.damage(folder / "sales" / "ops" / "damaged")
    lakes.several(folder / "sales")
    lakes.many(folder / "many", MANY)
    (folder / "bare").mkdir()
    raw = folder / "raw"
    for source, rows in SOURCES.items():
        lakes.register(raw / "_indexes" / source, raw / source, rows)
    connections: dict[str, Any] = {
        name: {"conn_type": "index_table_store", "extra": {"warehouse": str(folder / name)}}
        for name in ("sales", "many", "bare")
    }
    connections["sales"]["extra"]["listed_tables"] = [str(raw / "_indexes"), str(raw / "gone")]
    with LocalAirflow(folder / "dags", connections=connections, users={"vera": "viewer", "olga": "op"}) as airflow:
        yield airflow


@pytest.fixture(scope="session")
def started(airflow: LocalAirflow) -> Iterator[Browser]:
    browser = Browser(airflow)
    browser.login("olga")
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(started: Browser) -> Browser:
    started.screen()
    started.driver.get_log("browser")
    return started


SOURCES = {"flights_delta": [200_000, 135_751], "flights_iceberg": [200_000, -1], "clicks_csv": [-1]}
ORDERS = {"conn": "sales", "table": "shop.orders"}
PAGES: list[tuple[str, str, dict[str, Any]]] = [
    ("overview", "", {"conn": "sales"}),
    ("table", "tables", ORDERS),
    ("thousand", "", {"conn": "many"}),
    ("bare", "", {"conn": "bare"}),
    ("empty", "tables", {"conn": "sales", "table": "shop.empty"}),
    ("damaged", "tables", {"conn": "sales", "table": "ops.damaged"}),
]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1200, 900), (360, 780)], ids=["wide", "narrow"])
@pytest.mark.parametrize(("name", "path", "query"), PAGES, ids=[page[0] for page in PAGES])
def test_a_page_fits_its_screen_can_be_read_and_has_its_headings(
    browser: Browser, name: str, path: str, query: dict[str, Any], width: int, height: int, dark: bool
) -> None:
    browser.screen(width, height, dark)
    browser.open(path, **query)
    browser.shoot(f"{name}-{'dark' if dark else 'light'}-{width}")

    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.driver.execute_script(_CONTRAST) == []
    assert len(browser.all("h1")) == 1
    assert all(head.get_attribute("scope") for head in browser.all("table th"))
    assert [one for one in browser.troubles() if "503" not in one] == []


def test_airflow_shows_the_page_in_its_own_frame_and_a_click_leads_to_a_table(browser: Browser) -> None:
    browser.driver.get(f"{browser.airflow.url}/plugin/lakeindex")
    browser.driver.switch_to.frame(browser.find("iframe"))
    browser.follow(".tabs a[href*=sales]")
    Select(browser.find("select[name=sort]")).select_by_value("size")
    browser.follow(".filter button")
    browser.driver.switch_to.default_content()
    browser.shoot("airflow-overview")
    browser.driver.switch_to.frame(browser.find("iframe"))
    browser.follow("tbody a[href*='orders']")

    assert browser.find("h1").text == "shop.orders"
    assert len(browser.all(".timeline a.commit")) == 60
    browser.driver.switch_to.default_content()
    browser.shoot("airflow-table")


def test_sources_outside_of_the_warehouse_stand_in_the_overview_and_lead_to_their_pages(browser: Browser) -> None:
    browser.open("", conn="sales")
    rows = {row.find_element(By.CSS_SELECTOR, "th").text.split("\n")[0]: row.text for row in browser.all("tr.table")}
    assert "335,751" in rows["flights_delta outside the warehouse"]
    assert "≥ 200,000" in rows["flights_iceberg outside the warehouse"]
    assert "not known" in rows["clicks_csv outside the warehouse"]
    browser.follow("a[href*=flights_delta]")
    assert browser.find("h1").text == "flights_delta"


def test_a_mark_says_what_its_commit_was_and_leads_to_it_in_the_list(browser: Browser) -> None:
    browser.open("tables", **ORDERS)
    browser.find(".commits > summary").click()
    newest = browser.all(".timeline a.commit")[-1]

    title = newest.find_element(By.CSS_SELECTOR, "title").get_attribute("textContent")
    assert title.startswith("Version ")
    newest.click()
    number = title.removeprefix("Version ").partition(":")[0]
    assert browser.driver.current_url.endswith(f"#v{number}")
    assert browser.find("tr:target th").text == number
    boxes = [mark.rect["x"] for mark in browser.all(".timeline a.commit .hit")]
    assert boxes == sorted(boxes)


def test_without_javascript_filters_and_pages_work(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open("", conn="many")
        assert len(browser.all("tr.table")) == 50
        browser.follow("a[rel=next]")
        assert "Page 2 of 20" in browser.find(".pager").text
        browser.find("input[name=q]").send_keys("table_0042")
        browser.follow("form button")
        assert [row.text for row in browser.all("tr.table th")] == ["db2.table_0042"]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_thousand_tables_are_there_within_two_seconds(browser: Browser, record_property: Any) -> None:
    browser.open("", conn="many", per=1000)
    for per in (50, 1000):
        browser.open("", conn="many", per=per)
        # Until the browser has all of it; how long it then draws depends on what else its machine does.
        seconds = browser.driver.execute_script(_LOADED) / 1000
        assert seconds < 2, f"{MANY} tables, {per} a page"
        record_property(f"seconds_{per}", seconds)
    assert len(browser.all("tr.table")) == MANY


def test_a_user_without_the_right_sees_nothing_of_it(airflow: LocalAirflow) -> None:
    browser = Browser(airflow)
    try:
        browser.open()
        assert browser.find("h1").text == "Please log in"
        browser.login("vera")
        browser.open()
        assert browser.find("h1").text == "Not for you"
        browser.open("tables", **ORDERS)
        assert browser.find("h1").text == "Not for you"
        assert "orders" not in browser.driver.page_source
    finally:
        browser.driver.quit()
