"""The apps as Spark takes them: one zip for ``--py-files`` and the programs beside it.

They are made from the installed package. Beside each module the zip holds it compiled, for a Python of the version that
made it; any other reads the source. A bundle is made once for each content, in the user's cache, under the hash of that
content; so two versions never mix and parallel tasks may make the same one at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from spark_apps.jobs.environment import DISTRIBUTION, cache_directory
from spark_apps.storage.errors import EnvironmentMismatch

_SKIPPED = {"__pycache__"}
# Zip entries carry a time; one that never changes makes equal content equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
# What begins a compiled module that is valid whatever the time of its source (PEP 552, unchecked).
_UNCHECKED = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
# Later ones write an object according to how many hold it, so that equal modules come out unequal.
_MARSHAL_VERSION = 2


@dataclass(frozen=True)
class Bundle:
    """The folder of the apps, ready to be submitted. ``digest`` tells one content from another."""

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
    folder = Path(cache or cache_directory()) / f"bundle-{digest[:16]}"
    if not (folder / "complete").exists():
        _write(folder, files)
    return Bundle(folder, digest)


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


def _write(folder: Path, files: list[tuple[str, Path]]) -> None:
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
                # A program stands beside the zip, so that the folder it is started from, which Python puts
                # in front of its import path, holds nothing that could be taken for another module.
                if name.count("/") == 1 and path.suffix == ".py" and _is_program(path):
                    shutil.copyfile(path, draft / path.name)
        (draft / "spark_apps.zip").write_bytes(buffer.getvalue())
        (draft / "complete").touch()
        draft.chmod(0o755)
        draft.replace(folder)
    except OSError:
        # Another process was first, or left half a bundle behind: a whole one is as good as this.
        if not (folder / "complete").exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _compiled(name: str, source: bytes) -> bytes:
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True), _MARSHAL_VERSION)
    return _UNCHECKED + importlib.util.source_hash(source) + code


def _is_program(path: Path) -> bool:
    return not path.name.startswith("__") and "\nif __name__ == " in path.read_text(encoding="utf-8")
