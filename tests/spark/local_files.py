"""Files of the local disk for the Spark of the tests, without a process for each.

Without its native library, which pyspark does not bring, Hadoop starts ``chmod`` for every file and folder that it
makes: a write of a few rows takes ten such processes, and they a tenth of the time of the tests. ``LocalFiles.java``
leaves the permissions to the umask. It is compiled once for an environment; where there is no compiler, Spark starts
``chmod`` as ever.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from spark_apps.jobs.environment import java_home

SOURCE = Path(__file__).parent / "LocalFiles.java"
JAR = Path(sys.prefix) / "local-files.jar"
SETTINGS = {"spark.hadoop.fs.file.impl": "tests.spark.LocalFiles"}


@functools.cache
def compiled() -> bool:
    """Return whether the jar is there: made now unless it was made from this source before."""
    import pyspark

    compiler = java_home() / "bin" / "javac"
    if JAR.exists() and JAR.stat().st_mtime >= SOURCE.stat().st_mtime:
        return True
    if not compiler.exists():
        return False
    jars = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory(dir=JAR.parent) as folder:
        command = [compiler, "-proc:none", "-cp", f"{jars}/*", "-d", folder, SOURCE]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
        made = Path(folder) / JAR.name
        with zipfile.ZipFile(made, "w") as jar:
            for path in Path(folder).rglob("*.class"):
                jar.write(path, path.relative_to(folder))
        made.replace(JAR)
    return True


@contextlib.contextmanager
def on_class_path() -> Iterator[dict[str, str]]:
    """Have a JVM that is started within the block find the class, and give the settings that make Spark use it.

    It goes to the end of the class path: in front of it, the archive of classes (``archive.py``) would not fit.
    """
    if not compiled():
        yield {}
        return
    before = os.environ.get("SPARK_DIST_CLASSPATH")
    os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join([*filter(None, [before]), str(JAR)])
    try:
        yield dict(SETTINGS)
    finally:
        del os.environ["SPARK_DIST_CLASSPATH"]
        if before is not None:
            os.environ["SPARK_DIST_CLASSPATH"] = before
