"""What the documents and the package say of versions is what ``make matrix`` ran."""

from __future__ import annotations

import configparser
import re

from spark_apps.storage.supported import FIRST_SPARK_BEYOND, OLDEST_SPARK, SPARK_RANGE
from tests.matrix.environments import ENVIRONMENTS, SUITES
from tests.matrix.installing import CONSTRAINTS, ROOT, pins
from tests.matrix.results import PAGE, known, page
from tests.matrix.running import files

CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")


def test_the_page_shows_what_ran() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, known()) == text
    assert set(known()) <= {environment.name for environment in ENVIRONMENTS}
    assert known(), "nothing was recorded: RECORD=1 make matrix"


def test_each_environment_is_pinned_by_name_and_version() -> None:
    assert {path.stem for path in CONSTRAINTS.glob("*.txt")} == {environment.name for environment in ENVIRONMENTS}
    for environment in ENVIRONMENTS:
        lines = pins(environment).read_text().splitlines()
        assert lines and all(re.fullmatch(r"[\w.-]+==[\w.+!]+", line) for line in lines), environment.name


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
