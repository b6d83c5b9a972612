"""The wheels as a user gets them: built from a copy of the sources, installed with all they depend on into an empty
environment, where neither the sources nor this environment's libraries are visible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_apps.jobs.environment import java_home
from spark_apps.version import __version__
from tests.documents import DOCS, blocks
from tests.packaging.building import PACKAGES, ROOT, Built, build, copy_sources, install

URL = "https://forge.example/lake/airflow-provider-index"

# Installing takes half a minute from a near registry and some minutes from a far one.
pytestmark = [pytest.mark.heavy, pytest.mark.airflow, pytest.mark.timeout(900)]

# Every public module of the provider: importing all of them is what a large DAG folder does.
PUBLIC = ("operators", "sensors", "triggers", "hooks", "task_groups", "runners")


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and a folder to work in."""

    python: Path
    home: Path

    def run(self, *arguments: str, first: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run its interpreter, with ``first`` as the first entry of the import path."""
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "PYTHON"))}
        variables |= {
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "PYTHONPATH": str(first or ""),
        }
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.home,
            env=variables,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def prints(self, code: str) -> str:
        """What ``code`` prints; it must succeed."""
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    """Wheels and source distributions, as somebody publishes them who names the project's page."""
    return build(copy_sources(tmp_path_factory.mktemp("source")), URL)


@pytest.fixture(scope="module")
def installed(built: tuple[Built, Built], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    wheels = [each.wheel for each in built]
    python = install(tmp_path_factory.mktemp("installed"), *wheels, constraints=ROOT / "constraints.txt")
    return Installed(python, tmp_path_factory.mktemp("home"))


def test_the_wheels_hold_all_files_of_their_packages_and_no_others(built: tuple[Built, Built]) -> None:
    source = built[0].wheel.parent.parent
    for each, packages in zip(built, (PACKAGES, ("spark_apps",)), strict=True):
        there = {
            path.relative_to(source).as_posix()
            for package in packages
            for path in (source / package).rglob("*")
            if path.is_file()
        }
        packed = {name for name in zipfile.ZipFile(each.wheel).namelist() if ".dist-info/" not in name}
        assert packed == there


def test_all_are_accepted_by_what_uploads_them(built: tuple[Built, Built], tmp_path: Path) -> None:
    python = install(tmp_path, "twine")
    files = [file for each in built for file in (each.wheel, each.archive)]

    done = subprocess.run([python, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)

    assert done.returncode == 0 and done.stdout.count("PASSED") == 4, done.stdout


def test_the_lake_s_wheel_brings_no_airflow_and_no_spark_and_its_source_distribution_makes_the_same_wheel(
    built: tuple[Built, Built], tmp_path: Path
) -> None:
    from_wheel = Installed(install(tmp_path / "wheel", built[1].wheel, constraints=ROOT / "constraints.txt"), tmp_path)
    again = install(tmp_path / "again", "setuptools<81", "wheel")
    pip = [sys.executable, "-m", "pip", "--python", str(again), "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(built[1].archive)], check=True)

    code = "import importlib.metadata as m; print(*sorted({d.metadata['Name'].lower() for d in m.distributions()}))"
    names = from_wheel.prints(code).split()
    assert "lakeindex" in names and len(names) <= 14, names
    assert not [name for name in names if "airflow" in name or "spark" in name]
    (rebuilt,) = tmp_path.glob("lakeindex-*.whl")
    assert zipfile.ZipFile(rebuilt).namelist() == zipfile.ZipFile(built[1].wheel).namelist()


def test_the_first_page_of_the_lake_s_wheel_runs_where_nothing_else_is_installed(
    built: tuple[Built, Built], tmp_path: Path
) -> None:
    python = install(tmp_path / "empty", f"{built[1].wheel}[spark]", constraints=ROOT / "constraints.txt")
    page = [block.text for block in blocks(DOCS / "lakeindex.md") if block.language == "python"]
    script = tmp_path / "page.py"
    script.write_text("\n".join(page).replace("/tmp/own", str(tmp_path / "own")), encoding="utf-8")

    variables = {"JAVA_HOME": str(java_home()), "PATH": os.environ["PATH"], "PYSPARK_PYTHON": str(python)}
    done = subprocess.run([python, script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1000", done.stderr


def test_the_dag_of_the_first_page_is_read_where_the_wheels_are_installed(installed: Installed) -> None:
    [dag] = [block.text for block in blocks(ROOT / "README.md") if "with DAG(" in block.text]
    (installed.home / "first_page.py").write_text(dag, encoding="utf-8")

    done = installed.run(str(installed.home / "first_page.py"))
    assert done.returncode == 0, done.stderr


def test_all_that_is_imported_comes_from_the_environment_and_not_from_the_sources(
    installed: Installed,
) -> None:
    names = ", ".join((*PACKAGES, "spark_apps"))
    places = installed.prints(f"import {names}\nprint(*(list(p.__path__)[0] for p in ({names})))").split()
    assert [installed.python.parent.parent in Path(place).parents for place in places] == [True] * 3


def test_airflow_shows_the_provider_whole(installed: Installed) -> None:
    done = installed.run("-m", "airflow", "providers", "get", "airflow-provider-index", "--full", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert f'"{__version__}"' in done.stdout
    for part in ("airflow_provider_index.operators.indexes", "index_table_store", "lakeindex", "TablePageLink"):
        assert part in done.stdout


def test_airflow_lists_the_provider_with_its_version(installed: Installed) -> None:
    done = installed.run("-m", "airflow", "providers", "list", "--output", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout[done.stdout.index("[") :])
    versions = {row["package_name"]: row["version"] for row in rows}
    assert versions["airflow-provider-index"] == __version__


def test_every_public_name_can_be_imported_and_neither_pyspark_nor_pyarrow_is(installed: Installed) -> None:
    modules = [f"airflow_provider_index.{name}" for name in PUBLIC]
    output = installed.prints(
        "import importlib, json, sys\n"
        f"names = [n for m in {modules} for n in importlib.import_module(m).__all__ "
        "if getattr(sys.modules[m], n) is not None]\n"
        "print(json.dumps([names, sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))]))"
    )
    names, heavy = json.loads(output.splitlines()[-1])
    assert {
        "BuildIndexOperator",
        "IncrementalRefreshOperator",
        "CompactIndexOperator",
        "BucketRescaleOperator",
    } <= {*names}
    assert heavy == []


def test_a_dag_that_imports_everything_is_parsed_without_pyspark_and_pyarrow(installed: Installed) -> None:
    dag = installed.home / "everything.py"
    imports = "\n".join(f"from airflow_provider_index.{name} import *" for name in PUBLIC)
    dag.write_text(
        f"from airflow.sdk import DAG\n{imports}\n"
        "with DAG('everything'):\n"
        "    BuildIndexOperator(task_id='build', table='/lake/t', index='i', kind='record')\n"
        "import sys\n"
        "print(sorted({'pyspark', 'pyarrow'} & set(sys.modules)))\n"
    )
    done = installed.run(str(dag))
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


def test_the_example_dags_are_found_copied_and_parsed_without_pyspark_and_never_overwrite(
    installed: Installed,
) -> None:
    folder = Path(installed.run("-m", "airflow_provider_index", "examples").stdout.strip())
    assert installed.python.parent.parent in folder.parents
    copied = installed.run("-m", "airflow_provider_index", "examples", "--copy-to", "dags").stdout.split()
    lying = {path for pattern in ("*/*.py", "*/*.yaml") for path in folder.glob(pattern) if path.parent.name != "demo"}
    assert {Path(name).name for name in copied} == {path.name for path in lying} - {"__init__.py"}
    heavy = installed.prints(
        "import runpy, sys\n"
        f"for file in {[name for name in copied if name.endswith('.py')]}: runpy.run_path(file)\n"
        "print(sorted({'pyspark', 'pyarrow'} & set(sys.modules)))"
    )
    assert heavy.splitlines()[-1] == "[]"
    again = installed.run("-m", "airflow_provider_index", "examples", "--copy-to", "dags")
    assert again.returncode == 1
    assert "already. Nothing was changed. Name another folder" in again.stderr


def test_every_bundled_app_is_there_to_be_submitted(installed: Installed) -> None:
    output = installed.prints(
        "import json\nfrom spark_apps.jobs.bundle import make_bundle\n"
        "b = make_bundle()\n"
        "print(json.dumps([str(b.archive), sorted(p.stem for p in b.folder.glob('*.py'))]))"
    )
    archive, programs = json.loads(output)
    packed = set(zipfile.ZipFile(archive).namelist())
    assert {"spark_apps/__init__.py", "spark_apps/storage/errors.py"} <= packed
    assert {
        "build_index",
        "refresh_index",
        "compact_index",
        "rescale_buckets",
        "write_table",
        "verify_index",
    } <= {*programs}


@pytest.mark.parametrize(("file", "hides"), [("__init__.py", True), ("job.py", False)])
def test_a_package_named_spark_apps_hides_ours_and_a_folder_of_scripts_does_not(
    installed: Installed, tmp_path: Path, file: str, hides: bool
) -> None:
    (tmp_path / "spark_apps").mkdir()
    (tmp_path / "spark_apps" / file).touch()
    done = installed.run("-c", "import airflow_provider_index", first=tmp_path)
    assert ("EnvironmentMismatch: The folder" in done.stderr) is hides, done.stderr
    assert (done.returncode != 0) is hides
