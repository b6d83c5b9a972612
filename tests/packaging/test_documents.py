"""What the documents say exists: errors, links, make targets, commands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from airflow_provider_index import operators, sensors, task_groups
from dags_examples import quickstart
from spark_apps.storage import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

README = PAGES[0].read_text(encoding="utf-8")
ERRORS = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.LakeIndexError) and not name.startswith("_")
}


def test_every_error_stands_in_the_tree_that_opens_its_module_and_on_the_page_of_errors() -> None:
    page = set(re.findall(r"`([A-Z]\w+)`", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")))
    tree = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"LakeIndexError"}
    assert page == set(ERRORS)
    assert tree == set(ERRORS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_listed_on_the_first_one() -> None:
    first = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    unreached = [p.name for p in (ROOT / "docs").glob("*.md") if p.name != "index.md" and f"]({p.name})" not in first]
    assert unreached == []
    assert "](docs/index.md)" in README


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 120


def test_the_readme_shows_what_the_quickstart_prints() -> None:
    [shown] = re.findall(r"```console\n\$ make quickstart\n(.*?)```", README, flags=re.DOTALL)
    labels = [line[:10].strip() for line in shown.splitlines()]
    assert labels == ["A table", "The query", "Before", "An index", "After", "Verify", "", ""]
    assert f"The query  {quickstart.QUERY}\n" in shown
    assert f"{quickstart.ROWS:,} trips" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_and_public_name_of_a_page_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    public = {*operators.__all__, *sensors.__all__, *task_groups.__all__}
    assert set(re.findall(r"`(\w+(?:Operator|Sensor))\b", text)) <= public
