"""``python -m spark_apps bundle``: what lies where afterwards, what is printed, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_apps.__main__ import main
from spark_apps.jobs.bundle import pack_environment
from spark_apps.jobs.environment import LIBRARIES
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput
from spark_apps.version import __version__


def bundle(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spark_apps", "bundle", *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_given_a_folder_then_programs_and_zip_lie_in_one_named_after_their_content(tmp_path: Path) -> None:
    done = bundle("--to", str(tmp_path))

    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.iterdir()
    assert made.name.startswith(f"{__version__}-")
    assert {"spark_apps.zip", "refresh_index.py", "write_table.py"} <= {path.name for path in made.iterdir()}
    assert "__main__.py" not in {path.name for path in made.iterdir()}
    extra = next(json.loads(line) for line in done.stdout.splitlines() if line.strip().startswith("{"))
    assert extra == {"bundle": f"file://{made}"}


def test_given_it_twice_then_what_lies_there_is_left_as_it_is(tmp_path: Path) -> None:
    main(["bundle", "--to", str(tmp_path)])
    (made,) = tmp_path.iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in made.iterdir()}

    assert main(["bundle", "--to", str(tmp_path)]) == 0
    assert {path.name: path.stat().st_mtime_ns for path in made.iterdir()} == before


@pytest.mark.parametrize("text", ["nothing like JSON", "[1]"])
def test_given_options_that_are_no_object_then_it_says_so(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "options.json").write_text(text)

    assert main(["bundle", "--to", str(tmp_path), "--options", str(tmp_path / "options.json")]) == 1
    assert "options.json" in capsys.readouterr().err


def test_given_a_platform_that_nobody_makes_wheels_for_then_pip_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMismatch, match=r"plan9_mips and Python 3\.11"):
        pack_environment(tmp_path / "environment.zip", "plan9_mips", "3.11")
    with pytest.raises(InvalidInput, match=r"'three' is no version"):
        pack_environment(tmp_path / "environment.zip", python="three")


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.by_turn(16)
def test_given_another_platform_then_its_libraries_are_packed_with_their_native_parts(tmp_path: Path) -> None:
    held = pack_environment(tmp_path / "environment.zip", "manylinux_2_28_aarch64", "3.12")

    names = zipfile.ZipFile(tmp_path / "environment.zip").namelist()
    assert {name.partition("==")[0] for name in held} == set(LIBRARIES)
    for module in LIBRARIES.values():
        assert any(name.partition("/")[0].partition(".")[0] == module for name in names), module
    assert any(name.startswith("msgspec/") and "312" in name and "aarch64" in name for name in names)
