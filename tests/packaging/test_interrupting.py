"""A run that is interrupted ends as interrupted, whatever became of the interrupt on its way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = "from tests.conftest import pytest_runtest_call"
TEST = """
def test_cut_off():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise ConnectionError("as py4j tells of it")

def test_that_would_be_next():
    pass
"""


@pytest.mark.by_turn(8)
def test_given_an_interrupt_that_became_an_error_of_py4j_then_the_run_ends_and_no_test_has_failed(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_interrupted.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert "no tests ran" in done.stdout and "failed" not in done.stdout
