"""Makes the environments below ``.matrix``, which are kept, and made anew when what they are made of changes."""

from __future__ import annotations

import configparser
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
LAKE = ROOT / "packaging" / "lakeindex"
CONSTRAINTS = ROOT / "constraints"


class NotMade(Exception):
    """Says why an environment could not be made. :param without_python: there is no Python of its version here."""

    def __init__(self, why: str, without_python: bool = False) -> None:
        super().__init__(why)
        self.without_python = without_python


def pins(environment: Environment) -> Path:
    """Return the file that pins what is installed: ``name==version``, a line each."""
    return CONSTRAINTS / f"{environment.name}.txt"


def is_made(environment: Environment) -> bool:
    """Tell whether an environment is there as its pins have it."""
    stamp = HOME / environment.name / ".ready"
    return stamp.exists() and stamp.read_text() == _digest(environment)


def prepare(environment: Environment) -> Path:
    """Return the Python of an environment, made now unless it is there as its pins have it.

    :raises NotMade: if there is no such Python here, or the packages could not be installed.
    """
    home, stamp = HOME / environment.name, HOME / environment.name / ".ready"
    python = home / "bin" / "python"
    if is_made(environment):
        return python
    base = _find_python(environment.python)
    if base is None:
        raise NotMade(f"no Python {environment.python} was found here", without_python=True)
    shutil.rmtree(home, ignore_errors=True)
    _run([base, "-m", "venv", home])
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    extras = f"[{','.join(environment.extras)}]" if environment.extras else ""
    asked = ["--editable", LAKE, "--editable", f"{ROOT}{extras}", *environment.requirements]
    if pins(environment).exists():
        _run([*install, "--constraint", pins(environment), *asked])
    else:
        _run([*install, *_pinned_like_ours(environment, home), *asked])
        pins(environment).parent.mkdir(exist_ok=True)
        pins(environment).write_text("".join(f"{line}\n" for line in _freeze(python)))
    stamp.write_text(_digest(environment))
    return python


def versions(environment: Environment, python: Path) -> dict[str, str]:
    """Return the releases that an environment has of what it is there for, and its Python's."""
    interpreter = {"python": _run([python, "-c", "import platform; print(platform.python_version())"]).strip()}
    frozen = dict(line.split("==") for line in _freeze(python))
    return interpreter | {name: frozen[name] for name in environment.versions if name in frozen}


def _pinned_like_ours(environment: Environment, home: Path) -> list[str | Path]:
    """Return options by which all but what the environment asks for is as in ``constraints.txt``, if it can be."""
    own = {re.split(r"[\[=<>!~]", asked)[0].lower() for asked in environment.requirements}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    path = home / "constraints.txt"
    path.write_text("".join(f"{line}\n" for line in lines if line.partition("==")[0].lower() not in own))
    asked = [LAKE, f"{ROOT}[{','.join(environment.extras)}]", *environment.requirements]
    try:
        _run([home / "bin" / "python", "-m", "pip", "install", "--quiet", "--dry-run", "--constraint", path, *asked])
    except NotMade:
        return []
    return ["--constraint", path]


def _freeze(python: Path) -> list[str]:
    lines = _run([python, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"]).split()
    others = [line for line in lines if not re.match(r"(airflow-provider-index|lakeindex)==", line)]
    return sorted((line for line in others if re.fullmatch(r"[\w.-]+==[\w.+!]+", line)), key=str.lower)


def _digest(environment: Environment) -> str:
    pinned = pins(environment).read_text() if pins(environment).exists() else ""
    said = (environment.python, *environment.requirements, pinned, *_declared(environment.extras))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _declared(extras: tuple[str, ...]) -> list[str]:
    """Return what both distributions ask for with some extras, those that they name included."""
    provider, lake = configparser.ConfigParser(), configparser.ConfigParser()
    provider.read(ROOT / "setup.cfg")
    lake.read(LAKE / "setup.cfg")
    declared, left = [each["options"]["install_requires"] for each in (provider, lake)], list(extras)
    for extra in left:
        lines = provider["options.extras_require"][extra].split("\n")
        declared += [*lines, lake.get("options.extras_require", extra, fallback="")]
        own = [line.partition("[")[2].strip(" ]") for line in lines if line.startswith("airflow-provider-index[")]
        left += [name for names in own for name in names.split(",") if name not in left]
    return sorted(line for line in "\n".join(declared).split("\n") if line and not line.startswith("#"))


def _find_python(version: str) -> str | None:
    """Return a Python of that minor version: this one, one of pyenv's (whose name on the path may lead nowhere), or one
    on the path.
    """
    if version == ".".join(map(str, sys.version_info[:2])):
        return os.path.realpath(sys.executable)
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(pyenv[-1]) if pyenv else shutil.which(f"python{version}")


def _run(command: list[str | Path]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        output = "\n".join(
            line for line in f"{done.stdout}\n{done.stderr}".splitlines() if not line.startswith("WARNING")
        )
        raise NotMade(f"{' '.join(map(str, command[:6]))} …: {output[-2000:]}")
    return done.stdout
