"""Builds what is published, from a copy of the sources: a wheel and a source distribution; and installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("airflow_provider_index", "spark_apps", "dags_examples")
FILES = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
MORE = ("LICENSE", "constraints.txt")

_BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist'); build_meta.build_sdist('dist')"


def copy_sources(to: Path) -> Path:
    """Copy what a build reads."""
    for folder in (*PACKAGES, "docs"):
        copytree(ROOT / folder, to / folder, ignore=ignore_patterns("__pycache__"))
    for file in (*FILES, *MORE):
        copyfile(ROOT / file, to / file)
    return to


def build(source: Path, url: str = "") -> tuple[Path, Path]:
    """Build a copy of the sources; return the wheel and the source distribution. :param url: of the project's page."""
    (source / "dist").mkdir()
    environment = {**os.environ, "PROJECT_URL": url}
    subprocess.run([sys.executable, "-c", _BUILD], cwd=source, env=environment, check=True, timeout=120, stdout=-3)
    (wheel,), (archive,) = (source / "dist").glob("*.whl"), (source / "dist").glob("*.tar.gz")
    return wheel, archive


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
