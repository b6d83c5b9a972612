"""The site of the documents: made without a warning, with every public name, it fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import reference

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "docs" / "mkdocs" / "mkdocs.yml"
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")


@pytest.mark.by_turn(24)
def test_the_site_has_every_public_name_and_an_example_of_every_operator_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(CONFIG), "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    for page in reference.PAGES:
        names = {re.sub(r"^.*\.", "", name) for name in re.findall(r'<h2 id="([\w.]+)"', text(tmp_path, page.file))}
        assert names == {name.rpartition(".")[2] for name in reference.names(page)}, page.file
    assert [name for page in ("operators", "sensors", "task_groups") for name in without_example(tmp_path, page)] == []
    fetched = {address for page in tmp_path.rglob("*.html") for address in FETCHED.findall(page.read_text("utf-8"))}
    assert fetched == set()
    assert {"search_index.js", "frame.js"} <= {path.name for path in (tmp_path / "search").iterdir()}


def text(site: Path, page: str) -> str:
    return (site / "reference" / f"{page}.html").read_text(encoding="utf-8")


def without_example(site: Path, page: str) -> list[str]:
    """The names of a page of the reference that no example DAG uses; base classes have none."""
    parts = text(site, page).split('<h2 id="')[1:]
    names = [part.partition('"')[0] for part in parts if "dags_examples/" not in part]
    bases = (".base.", ".connected.")
    return [name for name in names if not any(base in name for base in bases) and not name.endswith(".TimelineSensor")]
