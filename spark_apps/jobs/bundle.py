"""The apps as Spark takes them, one zip for ``--py-files`` and the programs beside it; and the libraries they need.

The apps are made from the installed package. Beside each module the zip holds it compiled, for a Python of the version
that made it; any other reads the source. A bundle is made once for each content, in the user's cache, under the hash of
that content; so two versions never mix and parallel tasks may make the same one at once.

The libraries are packed with their native parts for a cluster that has none of them: the wheels are those of the
cluster's platform and Python, in the versions that are installed beside this package. No Spark.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import marshal
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_apps.jobs.environment import DISTRIBUTION, LIBRARIES, cache_directory, is_own, make_own_folder
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput

_SKIPPED = {"__pycache__"}
_COMPLETE = "complete"
"""File of a bundle's folder that seals the others: a digest of them all, and of what they were made of."""
# Zip entries carry a time; one that never changes makes equal content equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
# What begins a compiled module that is valid whatever the time of its source (PEP 552, unchecked).
_UNCHECKED = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
# Later ones write an object according to how many hold it, so that equal modules come out unequal.
_MARSHAL_VERSION = 2


@dataclass(frozen=True)
class Bundle:
    """The folder of the apps, ready to be submitted. ``digest`` identifies its content."""

    folder: Path
    digest: str

    @property
    def archive(self) -> Path:
        """The zip of the package."""
        return self.folder / "spark_apps.zip"

    def program(self, name: str) -> Path:
        """Return the file to submit for the app ``name``.

        :raises EnvironmentMismatch: if the installed package has no such app.
        """
        path = self.folder / f"{name}.py"
        if not path.exists():
            raise EnvironmentMismatch(
                f"The installed package has no app named {name!r}.",
                hint=f"Reinstall {DISTRIBUTION}: what Airflow asks for and what is installed are of two versions.",
            )
        return path


def make_bundle(cache: str | os.PathLike[str] | None = None) -> Bundle:
    """Return the bundle of the installed apps; make it if it is not in the cache yet.

    :param cache: a folder to keep bundles in, by default one in the user's cache (``XDG_CACHE_HOME``).
    """
    files = _package_files()
    digest = _digest(files)
    place = Path(cache or cache_directory())
    if cache is None:
        make_own_folder(place)
    folder = place / f"bundle-{digest[:16]}"
    if folder.exists() and not is_own(folder):
        folder = place / f"bundle-{digest[:16]}-{os.geteuid()}"  # another user's, in a cache that several share
    if not _is_whole(folder, digest):
        _write(folder, files, digest)
    return Bundle(folder, digest)


def _is_whole(folder: Path, digest: str) -> bool:
    """Test whether a folder is this user's own and holds the bundle of its name, as it was made."""
    if not is_own(folder):
        return False
    try:
        return (folder / _COMPLETE).read_text(encoding="ascii") == _seal(folder, digest)
    except (OSError, UnicodeDecodeError):
        return False


def _seal(folder: Path, digest: str) -> str:
    """Return a digest of the files of a bundle's folder.

    :raises OSError: if one is not this user's own.
    """
    seal = hashlib.sha256(digest.encode())
    for path in sorted(folder.iterdir()):
        if path.name == _COMPLETE:
            continue
        if not is_own(path):
            raise PermissionError(f"{path} is another user's")
        seal.update(f"{path.name}\0".encode())
        seal.update(hashlib.sha256(path.read_bytes()).digest())
    return seal.hexdigest()


def _package_files() -> list[tuple[str, Path]]:
    root = Path(__file__).parents[1]
    files = [
        (f"{root.name}/{path.relative_to(root).as_posix()}", path)
        for path in root.rglob("*")
        if path.is_file() and not _SKIPPED & set(path.parts) and path.suffix != ".pyc"
    ]
    return sorted(files)


def _digest(files: list[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _write(folder: Path, files: list[tuple[str, Path]], digest: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".bundle-", dir=folder.parent))
    try:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in files:
                content = path.read_bytes()
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
                if path.suffix == ".py":
                    compiled = zipfile.ZipInfo(f"{name}c", _EPOCH)
                    archive.writestr(compiled, _compiled(name, content), zipfile.ZIP_DEFLATED)
                # A program is copied beside the zip, so that the folder it is started from, which Python puts
                # in front of its import path, holds nothing that could be taken for another module.
                if path.parent.name == "programs" and path.suffix == ".py" and _is_program(path):
                    shutil.copyfile(path, draft / path.name)
        (draft / "spark_apps.zip").write_bytes(buffer.getvalue())
        for path in draft.iterdir():
            path.chmod(0o644)
        (draft / _COMPLETE).write_text(_seal(draft, digest), encoding="ascii")
        (draft / _COMPLETE).chmod(0o644)
        draft.chmod(0o755)
        _put_in_place(draft, folder, digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put_in_place(draft: Path, folder: Path, digest: str) -> None:
    """Give a bundle its name; one that is there and not as it was made goes."""
    for _ in range(3):
        try:
            draft.replace(folder)
        except OSError:
            # Another process was first: a whole one is as good as this.
            if _is_whole(folder, digest):
                return
            aside = Path(tempfile.mkdtemp(prefix=".bundle-", dir=folder.parent))
            folder.replace(aside / "old")
            shutil.rmtree(aside, ignore_errors=True)
        else:
            return
    raise EnvironmentMismatch(
        f"The bundle {folder} is not as it was made, and cannot be made again.", hint="Remove the folder."
    )


def _compiled(name: str, source: bytes) -> bytes:
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True), _MARSHAL_VERSION)
    return _UNCHECKED + importlib.util.source_hash(source) + code


def _is_program(path: Path) -> bool:
    return not path.name.startswith("__") and "\nif __name__ == " in path.read_text(encoding="utf-8")


# --- the libraries of the apps ----------------------------------------------------------------------------------------


ARCHIVE = "environment.zip"
"""Name of the packed environment; Spark unpacks it into a folder ``environment`` (``--archives …#environment``)."""

PLATFORM = "manylinux_2_28_x86_64"
_GLIBC = re.compile(r"manylinux_2_(\d+)_(\w+)")
_OLDEST_GLIBC = 17
_NOT_PACKED = {"__pycache__", "tests", "include", "bin"}


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
    """Return the libraries of the apps, each at the version that is installed beside this package."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in sorted(LIBRARIES)]


def required_libraries() -> list[str]:
    """Return the libraries of the apps with the oldest version of each, as the metadata of this package asks for them.

    :raises EnvironmentMismatch: if this package is not installed, only on the import path.
    """
    try:
        asked = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise EnvironmentMismatch(
            f"{error.name} is on the import path, and is not installed: what it requires is not known.",
            hint=f"Install it: pip install {DISTRIBUTION}, or make venv in a clone.",
        ) from error
    return sorted(line for line in asked if re.split(r"[^\w-]", line)[0] in LIBRARIES)


def _connect_requirements() -> list[str]:
    names = ("pandas", "numpy", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
    try:
        return [f"{name}=={importlib.metadata.version(name)}" for name in names]
    except importlib.metadata.PackageNotFoundError as error:
        raise EnvironmentMismatch(
            f"{error.name} is not installed on this machine, and a client of Spark Connect needs it.",
            hint="Install it: pip install pyspark-client.",
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
            hint="Check the platform's name and the Python version, and that pip reaches a package index.",
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
            # Spark unpacks with the modes of the archive; libraries are mapped, so they have to be readable.
            info.external_attr = 0o644 << 16
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _NOT_PACKED & set(path.relative_to(folder).parts[:-1]) and path.suffix != ".pyc":
            yield path
