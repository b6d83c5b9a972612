"""An Airflow that is too old is named with the range and the reason, before anything of it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def import_beside(folder: Path, distribution: str, version: str) -> subprocess.CompletedProcess[str]:
    """Import the provider where a release of Airflow is installed that cannot even be imported."""
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (folder / "airflow").mkdir(exist_ok=True)
    (folder / "airflow" / "__init__.py").write_text("raise ImportError('planted')\n")
    return subprocess.run(
        [sys.executable, "-c", "import airflow_provider_index.operators"],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("distribution", "version", "reason"),
    [
        ("apache-airflow-core", "3.0.6", "the Task SDK of Airflow 3.0 has no hooks"),
        ("apache-airflow-core", "3.1.7", "this release of 3.1 was not run"),
        ("apache-airflow-core", "2.11.2", "the Task SDK (airflow.sdk), which Airflow 2 has not"),
    ],
)
def test_given_an_older_airflow_when_imported_then_the_range_and_the_reason_are_named(
    tmp_path: Path, distribution: str, version: str, reason: str
) -> None:
    done = import_beside(tmp_path, distribution, version)

    assert done.returncode == 1
    assert (
        f"EnvironmentMismatch: airflow-provider-index runs on Airflow 3.1.8 and newer, and Airflow {version} is "
        in (done.stderr)
    )
    assert reason in done.stderr and "Nothing was changed. Install Airflow 3.1.8 or newer" in done.stderr


def test_given_a_supported_airflow_when_imported_then_only_airflow_itself_can_fail(tmp_path: Path) -> None:
    done = import_beside(tmp_path, "apache-airflow-core", "3.4.0")

    assert "ImportError: planted" in done.stderr and "EnvironmentMismatch" not in done.stderr
