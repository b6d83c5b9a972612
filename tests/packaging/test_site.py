"""The site of the documents: made without a warning, with every public name, it fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import reference

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    config = ROOT / "docs" / "mkdocs" / "mkdocs.yml"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(config), "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.by_turn(4)
class TestSite:
    def test_every_public_name_stands_on_its_page_of_the_reference(self, site: Path) -> None:
        for page in reference.PAGES:
            html = (site / "reference" / f"{page.file}.html").read_text(encoding="utf-8")
            names = {re.sub(r"^.*\.", "", name) for name in re.findall(r'<h2 id="([\w.]+)"', html)}
            assert names == {name.rpartition(".")[2] for name in reference.names(page)}, page.file

    @pytest.mark.parametrize("page", ["operators", "sensors", "task_groups"])
    def test_every_operator_and_sensor_is_shown_with_a_dag_that_the_tests_run(self, site: Path, page: str) -> None:
        html = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        without = [
            re.sub(r"<.*", "", part)
            for part in html.split('<h2 id="')[1:]
            if "dags_examples/" not in part and ".base." not in part[:80] and "TimelineSensor" not in part[:80]
        ]
        assert without == []

    def test_no_page_fetches_anything_from_elsewhere(self, site: Path) -> None:
        fetched = {
            address
            for page in site.rglob("*.html")
            for address in re.findall(
                r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)",
                page.read_text(encoding="utf-8"),
            )
        }
        assert fetched == set()
        assert (site / "search" / "search_index.js").exists() and (site / "search" / "frame.js").exists()
