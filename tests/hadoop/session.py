"""A Spark whose ``hdfs://`` is like HDFS, on the disk (``LikeHdfs.java``), and a mount table of ``viewfs``."""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from spark_apps.jobs.environment import java_home
from tests.spark.local import local_session

SOURCE = Path(__file__).parent / "LikeHdfs.java"
NAME_NODE = "hdfs://names"


def settings(folder: Path) -> dict[str, str]:
    """The settings of Spark: below ``folder`` lie the mounts ``/disk`` and ``/hdfs`` of ``viewfs://lake``."""
    for name in ("disk", "hdfs"):
        (folder / name).mkdir(exist_ok=True)
    mounts = "spark.hadoop.fs.viewfs.mounttable.lake.link"
    return {
        "spark.hadoop.fs.hdfs.impl": "tests.hadoop.LikeHdfs",
        "spark.hadoop.fs.AbstractFileSystem.hdfs.impl": "tests.hadoop.LikeHdfs$Context",
        f"{mounts}./disk": f"file://{folder}/disk",
        f"{mounts}./hdfs": f"{NAME_NODE}{folder}/hdfs",
    }


def jar(folder: Path) -> Path:
    """Compile the class, once for a folder."""
    import pyspark

    made = folder / "like-hdfs.jar"
    if not made.exists():
        jars = Path(pyspark.__file__).parent / "jars"
        with tempfile.TemporaryDirectory(dir=folder) as classes:
            compiler = java_home() / "bin" / "javac"
            subprocess.run([compiler, "-proc:none", "-cp", f"{jars}/*", "-d", classes, SOURCE], check=True)
            with zipfile.ZipFile(f"{made}.new", "w") as packed:
                for path in Path(classes).rglob("*.class"):
                    packed.write(path, path.relative_to(classes))
        Path(f"{made}.new").replace(made)
    return made


def session(folder: Path) -> Any:
    """Start Spark."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jar(folder)} pyspark-shell"
    return local_session(quiet="OFF", **{name.replace(".", "__"): text for name, text in settings(folder).items()})
