"""The libraries that the apps need beside Spark, with their native parts, packed for a cluster that has none of them.

The wheels are those of the cluster's platform and Python, in the versions that are installed here. No Spark.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from spark_apps.jobs.environment import LIBRARIES
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput

ARCHIVE = "environment.zip"
"""Name of the packed environment; Spark unpacks it into a folder ``environment`` (``--archives …#environment``)."""

PLATFORM = "manylinux_2_28_x86_64"
_GLIBC = re.compile(r"manylinux_2_(\d+)_(\w+)")
_OLDEST_GLIBC = 17
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SKIPPED = {"__pycache__", "tests", "include", "bin"}


def pack_environment(
    target: Path, platform: str = PLATFORM, python: str | None = None, spark_connect: bool = False
) -> list[str]:
    """Write the packed environment to the file ``target``.

    :param platform: of the cluster's machines, as pip names it.
    :param python: the cluster's Python, ``"3.11"``; the one that runs by default.
    :param spark_connect: with what a client of Spark Connect needs.
    :returns: what it holds, as ``name==version``.
    :raises EnvironmentMismatch: if a wheel cannot be had for that platform and Python.
    """
    python = python or f"{sys.version_info[0]}.{sys.version_info[1]}"
    if re.fullmatch(r"3\.\d+", python) is None:
        raise InvalidInput(f"{python!r} is no version of Python.", hint="Write it as 3.11.")
    packages = requirements() + (_connect_requirements() if spark_connect else [])
    with tempfile.TemporaryDirectory(prefix="index-environment-") as folder:
        _install(Path(folder), packages, platform, python)
        _zip(Path(folder), target)
    return packages


def requirements() -> list[str]:
    """Return the libraries of the apps, each at the version that is installed here."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in sorted(LIBRARIES)]


def _connect_requirements() -> list[str]:
    names = ("pandas", "numpy", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
    try:
        return [f"{name}=={importlib.metadata.version(name)}" for name in names]
    except importlib.metadata.PackageNotFoundError as error:
        raise EnvironmentMismatch(
            f"{error.name} is not installed here, and a client of Spark Connect needs it.",
            hint="Install here: pip install pyspark-client.",
        ) from error


def _install(folder: Path, packages: list[str], platform: str, python: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(folder), "--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", python]
    for name in _platforms(platform):
        command += ["--platform", name]
    done = subprocess.run([*command, *packages], capture_output=True, text=True)
    if done.returncode != 0:
        last = next(
            (line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), done.stderr[-500:]
        )
        raise EnvironmentMismatch(
            f"pip found no wheels for {platform} and Python {python}: {last.removeprefix('ERROR:').strip()}",
            hint="Check the platform's name and the Python version, and that pip reaches a package index from here.",
        )


def _platforms(platform: str) -> list[str]:
    """Return the platform, and those whose wheels run on it as well: pip takes each at its word."""
    match = _GLIBC.fullmatch(platform)
    if match is None:
        return [platform]
    newest, machine = int(match[1]), match[2]
    return [*(f"manylinux_2_{n}_{machine}" for n in range(newest, _OLDEST_GLIBC - 1, -1)), f"manylinux2014_{machine}"]


def _zip(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in _files(folder):
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
            # Spark unpacks with the modes that stand here; libraries are mapped, so they have to be readable.
            info.external_attr = 0o644 << 16
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _SKIPPED & set(path.relative_to(folder).parts[:-1]) and path.suffix != ".pyc":
            yield path
