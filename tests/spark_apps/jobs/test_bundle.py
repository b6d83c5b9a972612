"""The bundle of apps: the same for the same content, complete, made once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_apps.jobs import bundle as bundles
from spark_apps.jobs.bundle import Bundle, _is_whole, make_bundle
from spark_apps.storage.errors import EnvironmentMismatch

pytestmark = pytest.mark.by_turn(8)

PROGRAMS = (
    "build_index",
    "refresh_index",
    "compact_index",
    "rescale_buckets",
    "write_table",
    "verify_index",
    "drop_index",
)


def test_two_bundles_of_one_content_are_equal_to_the_byte(tmp_path: Path) -> None:
    one, two = make_bundle(tmp_path / "one"), make_bundle(tmp_path / "two")

    assert one.digest == two.digest
    assert one.archive.read_bytes() == two.archive.read_bytes()


def test_it_holds_all_programs_and_the_package_can_be_imported_from_it(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)

    assert all(bundle.program(name).exists() for name in PROGRAMS)
    assert imported_from(bundle.archive, tmp_path)


def test_its_modules_are_compiled_and_a_python_of_another_version_reads_the_source(tmp_path: Path) -> None:
    archive = make_bundle(tmp_path).archive
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(foreign, "w") as other:
        for name in whole.namelist():
            content = whole.read(name)
            other.writestr(name, b"\x00\x00\r\n" + content[4:] if name.endswith(".pyc") else content)

    assert imported_from(archive, tmp_path).endswith("spark_apps/timeline/log.pyc")
    assert imported_from(foreign, tmp_path).endswith("spark_apps/timeline/log.py")


def imported_from(archive: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import spark_apps.timeline.log as m; print(m.__file__)"],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert done.stdout.startswith(str(archive))
    return done.stdout.strip()


def test_it_is_made_once_even_by_many_at_a_time(tmp_path: Path) -> None:
    made: list[Bundle] = []
    threads = [threading.Thread(target=lambda: made.append(make_bundle(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({bundle.folder for bundle in made}) == 1
    assert [path.name for path in tmp_path.iterdir()] == [made[0].folder.name]
    assert zipfile.ZipFile(made[0].archive).testzip() is None
    written = made[0].archive.stat().st_mtime_ns
    assert make_bundle(tmp_path).archive.stat().st_mtime_ns == written


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMismatch, match="no app named 'make_coffee'"):
        make_bundle(tmp_path).program("make_coffee")


@pytest.mark.by_turn(1)
def test_given_a_bundle_in_the_cache_that_another_could_have_changed_then_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [one for one in bundles._package_files() if one[0].endswith(("build_index.py", "version.py"))]
    monkeypatch.setattr(bundles, "_package_files", lambda: few)
    bundle = make_bundle(tmp_path)
    good, made = bundle.archive.read_bytes(), bundle.archive.stat().st_ino
    assert make_bundle(tmp_path).archive.stat().st_ino == made, "it is taken as long as it is as it was made"
    changes: dict[str, Callable[[Path], object]] = {
        "a longer zip": lambda folder: (folder / "spark_apps.zip").write_bytes(good + b"more"),
        "a zip that others may write": lambda folder: (folder / "spark_apps.zip").chmod(0o666),
        "one more module": lambda folder: (folder / "another.py").write_text("import os"),
        "another program": lambda folder: (folder / "build_index.py").write_text("import os"),
        "no seal": lambda folder: (folder / "complete").write_text(""),
        "a folder that others may write": lambda folder: folder.chmod(0o777),
        "a link": lambda folder: [
            (folder / "spark_apps.zip").rename(tmp_path / "theirs.zip"),
            (folder / "spark_apps.zip").symlink_to(tmp_path / "theirs.zip"),
        ],
    }
    for number, (what, change) in enumerate(changes.items()):
        folder = tmp_path / f"copy-{number}"
        shutil.copytree(bundle.folder, folder)
        assert _is_whole(folder, bundle.digest), what
        change(folder)
        assert not _is_whole(folder, bundle.digest), what
    changes["another program"](bundle.folder)
    changes["one more module"](bundle.folder)

    again = make_bundle(tmp_path)

    assert again.folder == bundle.folder and again.archive.read_bytes() == good
    assert not (again.folder / "another.py").exists() and _is_whole(again.folder, again.digest)
    assert not list(tmp_path.glob(".bundle-*"))
