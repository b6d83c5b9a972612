"""What a folder's tests share begins with the first of them and ends behind the last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from contextlib import contextmanager
from pathlib import Path
import pytest
from tests.folders import kept_for_folder

EVENTS = Path(__file__).parents[1] / "events"

def note(event):
    with EVENTS.open("a") as file:
        file.write(event + " ")

@contextmanager
def running(modules):
    note("+" + ",".join(module.__name__[-6:] for module in modules))
    yield "it"
    note("-")

@pytest.fixture(scope="module")
def shared(request):
    return kept_for_folder(request, "shared", running)
"""
TEST = """
def test_one(shared):
    assert shared == "it"

def test_two(shared):
    from pathlib import Path
    with (Path(__file__).parents[1] / "events").open("a") as file:
        file.write(__name__[-6:] + " ")
"""


@pytest.mark.by_turn(8)
def test_given_two_folders_then_what_each_shares_is_started_once_and_ended_before_the_next(tmp_path: Path) -> None:
    for folder, modules in (("a", ("test_1", "test_2")), ("b", ("test_3",))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "conftest.py").write_text(CONFTEST)
        for module in modules:
            (tmp_path / folder / f"{module}.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert (tmp_path / "events").read_text().split() == [
        "+test_1,test_2",
        "test_1",
        "test_2",
        "-",
        "+test_3",
        "test_3",
        "-",
    ]
