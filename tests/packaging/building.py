"""Builds what is published, from a copy of the sources: a wheel and a source distribution of each of the two
distributions; and installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns

ROOT = Path(__file__).resolve().parents[2]
LAKE = "packaging/lakeindex"
PACKAGES = ("airflow_provider_index", "dags_examples")
"""What the distribution for Airflow holds; the lake's holds ``spark_apps``."""
FILES = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
MORE = ("LICENSE", "constraints.txt")

_BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist'); build_meta.build_sdist('dist')"


@dataclass(frozen=True)
class Built:
    """What one distribution is published as."""

    wheel: Path
    archive: Path


def copy_sources(to: Path) -> Path:
    """Copy what both builds read."""
    for folder in (*PACKAGES, "spark_apps", "docs", "packaging"):
        copytree(
            ROOT / folder, to / folder, symlinks=True, ignore=ignore_patterns("__pycache__", "*.egg-info", "build")
        )
    for file in (*FILES, *MORE):
        copyfile(ROOT / file, to / file)
    return to


def build(source: Path, url: str = "") -> tuple[Built, Built]:
    """Build a copy of the sources; return what is for Airflow, and what is for the lake alone.

    :param url: of the project's page.
    """
    return _build(source, url), _build(source / LAKE, url)


def _build(folder: Path, url: str) -> Built:
    (folder / "dist").mkdir()
    environment = {**os.environ, "PROJECT_URL": url}
    subprocess.run([sys.executable, "-c", _BUILD], cwd=folder, env=environment, check=True, timeout=120, stdout=-3)
    (wheel,), (archive,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return Built(wheel, archive)


def install(folder: Path, *requirements: Path | str, constraints: Path | None = None) -> Path:
    """Make an environment that has some distributions and what they need; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    pinned = ["--constraint", str(constraints)] if constraints else []
    # pip counts what lies on the import path as installed, these sources among it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([*pip, *pinned, *map(str, requirements)], check=True, timeout=800, env=environment)
    return python
