"""Makes the environments below ``.matrix``, which are kept, and made anew when what they are made of changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.matrix.environments import Environment

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".matrix"
CONSTRAINTS = ROOT / "constraints"


class NotMade(Exception):
    """Says why an environment could not be made."""


def pins(environment: Environment) -> Path:
    """Return the file that pins what is installed: ``name==version``, a line each."""
    return CONSTRAINTS / f"{environment.name}.txt"


def prepare(environment: Environment) -> Path:
    """Return the Python of an environment, made now unless it is there as its pins have it.

    :raises NotMade: if there is no such Python here, or the packages could not be installed.
    """
    home, stamp = HOME / environment.name, HOME / environment.name / ".ready"
    python = home / "bin" / "python"
    if stamp.exists() and stamp.read_text() == _digest(environment):
        return python
    base = _find_python(environment.python)
    if base is None:
        raise NotMade(f"no Python {environment.python} was found here")
    shutil.rmtree(home, ignore_errors=True)
    _run([base, "-m", "venv", home])
    asked = [f"{ROOT}[{','.join(environment.extras)}]", *environment.requirements]
    pinned = ["--constraint", pins(environment)] if pins(environment).exists() else []
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned, "--editable", *asked])
    if not pinned:
        pins(environment).parent.mkdir(exist_ok=True)
        pins(environment).write_text("".join(f"{line}\n" for line in _freeze(python)))
    stamp.write_text(_digest(environment))
    return python


def versions(environment: Environment, python: Path) -> dict[str, str]:
    """Return the releases that an environment has of what it is there for, and its Python's."""
    told = {"python": _run([python, "-c", "import platform; print(platform.python_version())"]).strip()}
    frozen = dict(line.split("==") for line in _freeze(python))
    return told | {name: frozen[name] for name in environment.versions if name in frozen}


def _freeze(python: Path) -> list[str]:
    lines = _run([python, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"]).split()
    return sorted((line for line in lines if re.fullmatch(r"[\w.-]+==[\w.+!]+", line)), key=str.lower)


def _digest(environment: Environment) -> str:
    pinned = pins(environment).read_text() if pins(environment).exists() else ""
    said = "\n".join((environment.python, *environment.extras, *environment.requirements, pinned))
    return hashlib.sha256(f"{said}\n{(ROOT / 'setup.cfg').read_text()}".encode()).hexdigest()


def _find_python(version: str) -> str | None:
    """Return a Python of that minor version: this one, one on the path, or one of pyenv's."""
    if version == ".".join(map(str, sys.version_info[:2])):
        return os.path.realpath(sys.executable)
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return shutil.which(f"python{version}") or (str(pyenv[-1]) if pyenv else None)


def _run(command: list[str | Path]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        told = "\n".join(
            line for line in f"{done.stdout}\n{done.stderr}".splitlines() if not line.startswith("WARNING")
        )
        raise NotMade(f"{' '.join(map(str, command[:6]))} …: {told[-2000:]}")
    return done.stdout
