"""What the code imports, both setup.cfg declare, constraints.txt pins and docs/dependencies.md explains agree."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from importlib.metadata import distributions as installed
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.by_turn(12)

ROOT = Path(__file__).resolve().parents[2]
OWN = {"airflow_provider_index", "spark_apps", "dags_examples", "benchmarks", "tests"}

PAGE = ROOT / "docs" / "dependencies.md"
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")
LAKE = configparser.ConfigParser()
LAKE.read(ROOT / "packaging" / "lakeindex" / "setup.cfg")


PEERS = {ROOT / "benchmarks" / "peers", ROOT / "tests" / "foreign"}
"""Run in environments of their own, of what the lists beside them name."""


def distributions(text: str) -> set[str]:
    """The distributions named in one list of setup.cfg."""
    lines = (line.strip() for line in text.splitlines())
    names = {re.split(r"[><=~!\[;]", line)[0].strip() for line in lines if line and not line.startswith("#")}
    return {canonical(name) for name in names} - {"airflow-provider-index", "lakeindex"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: str) -> dict[str, str]:
    """Top-level modules of others that are imported below ``folder``, each with a file that does."""
    importers: dict[str, str] = {}
    for path in (ROOT / folder).rglob("*.py"):
        if PEERS & {*path.parents}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in OWN and top not in sys.stdlib_module_names:
                    importers[top] = path.relative_to(ROOT).as_posix()
    return importers


ON_THE_LAKE = distributions(LAKE["options"]["install_requires"])
REQUIRED = ON_THE_LAKE | distributions(CONFIG["options"]["install_requires"])
EXTRAS = {
    name: distributions(text + LAKE.get("options.extras_require", name, fallback=""))
    for name, text in CONFIG["options.extras_require"].items()
}
DEMO = REQUIRED | EXTRAS["spark"] | EXTRAS["jdk"] | EXTRAS["lake"] | EXTRAS["demo"]
TEST = DEMO | EXTRAS["openlineage"] | EXTRAS["sql"] | EXTRAS["test"]

# What comes with a declared one, as a part of it or as what it is built on.
BROUGHT_ALONG = {
    "apache-airflow-core": "apache-airflow",
    "apache-airflow-task-sdk": "apache-airflow",
    "apache-airflow-providers-standard": "apache-airflow",
    "asgiref": "apache-airflow",
    "fastapi": "apache-airflow",
    "httpx": "apache-airflow",
    "jinja2": "apache-airflow",
    "jsonschema": "apache-airflow",
    "markupsafe": "apache-airflow",
    "pendulum": "apache-airflow",
    "sqlalchemy": "apache-airflow",
    "starlette": "apache-airflow",
    "py4j": "pyspark",
    "pyroaring": "pyiceberg",
    "botocore": "moto",
    "boto3": "moto",
    "requests": "moto",
    "openlineage-python": "apache-airflow-providers-openlineage",
    "openlineage-integration-common": "apache-airflow-providers-openlineage",
}


@pytest.mark.parametrize(
    ("folder", "declared"),
    [
        ("airflow_provider_index", REQUIRED | EXTRAS["lake"] | EXTRAS["openlineage"]),
        ("spark_apps", ON_THE_LAKE | EXTRAS["spark"] | EXTRAS["jdk"] | EXTRAS["lake"] | EXTRAS["sql"]),
        ("dags_examples", DEMO),
        ("tests", TEST),
        ("benchmarks", TEST | EXTRAS["bench"]),
    ],
)
def test_everything_imported_is_declared(folder: str, declared: set[str]) -> None:
    providers = packages_distributions()
    missing = {}
    for module, path in imported(folder).items():
        names = {canonical(name) for name in providers.get(module, [f"(nobody's) {module}"])}
        if not {BROUGHT_ALONG.get(name, name) for name in names} & declared:
            missing[module] = (path, sorted(names))
    assert missing == {}


def test_everything_declared_for_use_is_imported() -> None:
    providers = packages_distributions()
    modules = {**imported("airflow_provider_index"), **imported("spark_apps")}
    used = {canonical(name) for module in modules for name in providers.get(module, [])}
    assert {name for name in REQUIRED if not name.startswith("apache-airflow")} <= used


def test_everything_declared_is_pinned_and_has_its_reason_on_the_page_of_dependencies() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    pinned = {canonical(name) for name in pins}
    table = "\n".join(re.findall(r"^\| (.+?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    explained = {canonical(name) for name in re.findall(r"[A-Za-z][\w-]+", table)}
    declared = REQUIRED | set().union(*EXTRAS.values())
    assert declared - pinned == set()
    assert declared - explained == set()
    assert pins["pyspark"] == pins["pyspark-client"]


@pytest.mark.by_turn(1)
def test_every_pin_is_for_the_oldest_python_that_is_promised() -> None:
    oldest = (3, 11, 0)
    assert CONFIG["options"]["python_requires"] == LAKE["options"]["python_requires"] == ">=3.11"
    pins = {canonical(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = {canonical(each.metadata["Name"]): each.metadata.get("Requires-Python", "") for each in installed()}
    assert len(pins & wanted.keys()) > 100
    for name in pins & wanted.keys():
        for release in re.findall(r">=?\s*(3[\d.]*)", wanted[name]):
            assert tuple(map(int, release.strip(".").split("."))) <= oldest, (name, wanted[name])


def test_an_engine_s_environment_is_made_of_pinned_packages() -> None:
    lists = sorted(path for folder in PEERS for path in folder.glob("*.txt"))
    assert lists
    for path in lists:
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in path.read_text().split()), path
