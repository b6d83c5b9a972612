"""The worked examples of CONTRIBUTING.md: each leads where it says, and all of them work in a copy of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
COPIED = ("airflow_provider_index", "spark_apps", "dags_examples", "tests", "benchmarks", "docs")
_EXAMPLE = re.compile(
    r"^ *`([\w/.]+)`, (new|(?:after|before) `([^\n]+)`):\n\n( *)```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE
)
_MOST_FILES = 4


@dataclass(frozen=True)
class Example:
    """A piece of code and where it goes: into a new file, or after or before a line of one."""

    chapter: str
    file: str
    where: str
    line: str
    code: str


def examples() -> list[Example]:
    """Return the pieces of code of the page, in its order."""
    pieces = []
    for chapter in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        for match in _EXAMPLE.finditer(chapter):
            margin = len(match[4])
            code = "".join(line[margin:] for line in match[5].splitlines(keepends=True))
            where = match[2].partition(" ")[0]
            pieces.append(Example(chapter.partition("\n")[0], match[1], where, match[3] or "", code))
    return pieces


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"{example.file}-{example.where}")
def test_a_piece_goes_where_the_page_says(example: Example) -> None:
    path = ROOT / example.file
    if example.where == "new":
        assert not path.exists() and path.parent.is_dir()
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines.count(example.line) == 1, f"{example.file} has not the line, once, that the page names"


def test_no_addition_takes_more_than_four_files_beside_its_test() -> None:
    files: dict[str, set[str]] = {}
    for example in examples():
        if not example.file.startswith("tests/"):
            files.setdefault(example.chapter, set()).add(example.file)
    assert len(files) == 5
    assert {chapter: len(each) for chapter, each in files.items() if len(each) > _MOST_FILES} == {}


@pytest.mark.heavy
def test_all_examples_work_in_a_copy_of_the_tree(tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.cfg"):
        shutil.copy(ROOT / name, tmp_path)
    zones = re.search(r"```python\n(from typing.*?class ZoneHandler.*?)```", _page_on_kinds(), re.DOTALL)
    assert zones is not None
    (tmp_path / "spark_apps/indexes/block/zone.py").write_text(zones[1], encoding="utf-8")
    for example in examples():
        _apply(example, tmp_path)

    own_tests = [example.file for example in examples() if example.file.startswith("tests/")]
    ran = _python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *own_tests)
    assert f"{len(own_tests)} passed" in ran

    asked = _python(tmp_path, "-m", "benchmarks", "--only", "log", "--repeats", "2")
    assert "Knowing a table" in asked


def _page_on_kinds() -> str:
    return (ROOT / "docs" / "handlers.md").read_text(encoding="utf-8")


def _apply(example: Example, tree: Path) -> None:
    path = tree / example.file
    if example.where == "new":
        path.write_text(example.code, encoding="utf-8")
        return
    pieces = [f"{example.line}\n", example.code]
    text = "".join(pieces if example.where == "after" else reversed(pieces))
    path.write_text(path.read_text(encoding="utf-8").replace(f"{example.line}\n", text, 1), encoding="utf-8")


def _python(tree: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
