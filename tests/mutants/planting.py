"""One planted fault: read from the list, put into a copy of the code, and searched for by its tests."""

from __future__ import annotations

import contextlib
import hashlib
import keyword
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("airflow_provider_index", "spark_apps")
LIST = Path(__file__).with_name("faults.toml")
RESULTS = Path(__file__).with_name("results.json")

COPIED = (*PACKAGES, "dags_examples", "packaging", "tests", "benchmarks", "docs")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "pyproject.toml", "setup.cfg",
         "setup.py", "constraints.txt")  # fmt: skip
ONE_RUN_SECONDS = 900
_FOUND = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A change of one place that breaks a promise.

    :param promise: what does not hold any more with it.
    :param file: path from the root; ``replace`` stands in it exactly once, and ``by`` takes its place.
    :param tests: what pytest is given: files, or tests of them, where the fault should be found.
    :param environment: more variables for these tests, such as how much of a search runs.
    :param walk: the seed of a walk (``make walks``) that finds it too, looked for by :mod:`tests.mutants.by_walks`.
    """

    name: str
    promise: str
    file: str
    replace: str
    by: str
    tests: tuple[str, ...]
    environment: Mapping[str, str]
    walk: int | None = None

    @property
    def room(self) -> str:
        """The package that the fault is put into."""
        return self.file.rpartition("/")[0]

    @property
    def digest(self) -> str:
        """Return what tells this fault from another of its name; other names of files and variables change nothing."""
        numbers: dict[str, str] = {}

        def numbered(word: re.Match[str]) -> str:
            return word[0] if keyword.iskeyword(word[0]) else numbers.setdefault(word[0], f"_{len(numbers)}")

        shape = re.sub(r"[A-Za-z_]\w*", numbered, f"{self.replace}\0{self.by}")
        return hashlib.sha256(shape.encode()).hexdigest()[:12]

    def stands_in(self, root: Path) -> bool:
        """Whether the code has the place, once."""
        path = root / self.file
        return path.is_file() and path.read_text(encoding="utf-8").count(self.replace) == 1

    def planted(self, root: Path) -> str:
        """Return the text of the file with the fault in it.

        :raises SyntaxError: if that is no code any more, which whatever imports it would find.
        """
        text = (root / self.file).read_text(encoding="utf-8").replace(self.replace, self.by)
        if self.file.endswith(".py"):
            compile(text, self.file, "exec")
        return text


def faults() -> list[Fault]:
    """All faults of the list."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["fault"]
    return [
        Fault(
            one["name"],
            one["promise"],
            one["file"],
            one["replace"],
            one["by"],
            tuple(one["tests"]),
            one.get("environment", {}),
            one.get("walk"),
        )
        for one in listed
    ]


def rooms() -> list[str]:
    """Both packages and all packages within them, as paths from the root."""
    folders = [folder for name in PACKAGES for folder in (ROOT / name).rglob("__init__.py")]
    return sorted(str(folder.parent.relative_to(ROOT)) for folder in folders)


@contextlib.contextmanager
def planted_copy(fault: Fault, folder: Path) -> Iterator[Path]:
    """Give a copy of the code with a fault in it, which is taken away afterwards."""
    copy = folder / "tree"
    shutil.rmtree(copy, ignore_errors=True)
    try:
        for name in COPIED:  # with what is compiled, which counts for files as old as they were
            shutil.copytree(ROOT / name, copy / name, symlinks=True)
        for name in FILES:
            shutil.copy(ROOT / name, copy / name)
        (copy / fault.file).write_text(fault.planted(ROOT), encoding="utf-8")
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def search(fault: Fault, folder: Path) -> list[str]:
    """Plants a fault in a copy of the code and runs its tests; returns all that failed, by their node ids.

    :param folder: where the copy is made; taken away afterwards.
    :raises RuntimeError: if the tests could not be run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not heavy", "-p", "no:cacheprovider", *fault.tests]
    with planted_copy(fault, folder) as copy:
        # Before the code that this environment has installed; all tests, whichever turn they run in.
        environment = {**os.environ, "PYTHONPATH": str(copy), "TURN": "all", **fault.environment}
        run = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=ONE_RUN_SECONDS, check=False
        )
    failed = sorted(set(_FOUND.findall(run.stdout)))
    if run.returncode not in (0, 1) or bool(failed) != bool(run.returncode):
        raise RuntimeError(
            f"{fault.name}: pytest ended with {run.returncode}:\n{run.stdout[-3000:]}{run.stderr[-2000:]}"
        )
    return failed
