"""What the documents and the package say of versions is what ``make matrix`` ran."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from airflow_provider_index.__main__ import main
from spark_apps.storage.supported import FIRST_SPARK_BEYOND, OLDEST_SPARK, SPARK_RANGE
from tests.matrix import results
from tests.matrix.environments import ENVIRONMENTS, SUITES
from tests.matrix.installing import CONSTRAINTS, ROOT, pins
from tests.matrix.results import PAGE, known, page, record
from tests.matrix.running import Result, files

CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "packaging" / "lakeindex" / "setup.cfg")


def test_the_page_shows_what_ran() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, known()) == text
    assert set(known()) <= {environment.name for environment in ENVIRONMENTS}
    assert known(), "nothing was recorded: RECORD=1 make matrix"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and a page of a test's own: the page."""
    (tmp_path / "page.md").write_text("Before.\n\n<!-- made by python -m tests.matrix -->\n\n<!-- end -->\n\nAfter.\n")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    return tmp_path / "page.md"


def ran(part: str, passed: int, failed: int = 0) -> Result:
    return Result("2026-11-24", part, "a turn", passed, failed, 0, 1)


def test_given_parts_of_a_suite_then_they_stand_together_until_all_of_it_has_run(scratch: Path) -> None:
    versions = {"python": "3.11.7"}
    for part, passed, failed, cell in (
        ("3 of 3", 5, 0, "5 passed (part 3 of 3)"),
        ("1 of 3", 7, 1, "12 passed, **1 failed** (parts 1, 3 of 3)"),
        ("1 of 3", 8, 0, "13 passed (parts 1, 3 of 3)"),
        ("2 of 3", 1, 0, "14 passed"),
        ("2 of 4", 2, 0, "2 passed (part 2 of 4)"),
        ("all", 20, 0, "20 passed"),
        ("1 of 3", 7, 1, "20 passed"),
    ):
        record("spark-3.5", versions, "tables", ran(part, passed, failed))
        assert f"| spark-3.5 | python 3.11.7 | {cell} | 2026-11-24 |\n\n<!-- end -->\n\nAfter." in scratch.read_text()

    record("spark-3.5", {"python": "3.11.8"}, "faults", ran("all", 4))

    assert "| spark-3.5 | python 3.11.8 | 4 passed | 2026-11-24 |" in scratch.read_text()


def test_each_environment_is_pinned_by_name_and_version() -> None:
    assert {path.stem for path in CONSTRAINTS.glob("*.txt")} == {environment.name for environment in ENVIRONMENTS}
    for environment in ENVIRONMENTS:
        lines = pins(environment).read_text().splitlines()
        assert lines and all(re.fullmatch(r"[\w.-]+==[\w.+!]+", line) for line in lines), environment.name


def test_each_environment_pins_a_provider_of_spark_that_fits_its_spark() -> None:
    for environment in ENVIRONMENTS:
        pinned = dict(line.split("==") for line in pins(environment).read_text().split())
        provider, client = pinned["apache-airflow-providers-apache-spark"], pinned.get("pyspark-client")
        # From 6.0 on it requires the client, which shares files with pyspark.
        assert (client is not None) == (int(provider.partition(".")[0]) >= 6), environment.name
        assert client in (None, pinned.get("pyspark", client)), environment.name


def test_the_check_names_what_is_installed_of_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    said = capsys.readouterr().out
    for name in ("pyspark", "apache-airflow-providers-apache-spark"):
        assert f"{name} {version(name)}" in said


def test_each_environment_is_made_with_the_releases_that_it_asks_for() -> None:
    for environment in ENVIRONMENTS:
        pinned = dict(line.split("==") for line in pins(environment).read_text().split())
        for asked in environment.requirements:
            name, exact, release = re.sub(r"\[.*?\]", "", asked).partition("==")
            assert not exact or pinned[name] == release, (environment.name, asked)


def test_the_range_of_spark_is_one_everywhere() -> None:
    sparks = [each.name.removeprefix("spark-") for each in ENVIRONMENTS if each.name.startswith("spark-")]
    oldest, beyond = ".".join(map(str, OLDEST_SPARK)), FIRST_SPARK_BEYOND[0]
    assert f"{sparks[0]} to {sparks[-1]}" == SPARK_RANGE and sparks[0] == oldest
    assert f"pyspark>={oldest},<{beyond}" in CONFIG["options.extras_require"]["spark"].split()
    assert f"| Spark | {SPARK_RANGE} |" in PAGE.read_text(encoding="utf-8")


def test_each_suite_has_tests_and_each_environment_suites() -> None:
    for name, suite in SUITES.items():
        assert bool(files(suite)) is not bool(suite.module), name
        assert all((ROOT / path).exists() for path in suite.paths), name
    assert all(set(environment.suites) <= set(SUITES) for environment in ENVIRONMENTS)
