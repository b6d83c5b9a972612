"""The top of the repository holds what a repository needs, and nothing that was left there."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "airflow_provider_index",
    "spark_apps",
    "dags_examples",
    "tests",
    "benchmarks",
    "docs",
    "constraints",
    "packaging",
    ".ci",
}
FILES = {
    ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md",
    "constraints.txt", "pyproject.toml", "setup.cfg", "setup.py",
}  # fmt: skip


def test_given_the_files_that_are_committed_then_each_has_its_place() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    # Of a copy without git, such as an unpacked sdist, only what is there by name can be looked at.
    paths = listed.stdout.split("\n") if listed.returncode == 0 else [path.name for path in ROOT.glob("*.py")]

    assert {path.partition("/")[0] for path in paths if path} <= PACKAGES | FILES
