"""What the documents say exists: errors, links, make targets, commands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from airflow_provider_index import operators, sensors, task_groups
from spark_apps.storage import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

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


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    unreached = [p.name for p in (ROOT / "docs").glob("*.md") if f"](docs/{p.name})" not in readme]
    assert unreached == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_and_public_name_of_a_page_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    public = {*operators.__all__, *sensors.__all__, *task_groups.__all__}
    assert set(re.findall(r"`(\w+(?:Operator|Sensor))\b", text)) <= public
