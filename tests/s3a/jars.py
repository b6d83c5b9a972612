"""Hadoop's S3A file system for the Spark of tests.

No Python package is made of it; the source distribution of ``sagemaker-pyspark`` (Apache License 2.0) brings
``hadoop-aws`` 3.3.1 with the SDK that it was built with. That release is older than the Hadoop of Spark 4, whose
default durations (``60s``) it cannot read, so these are given as numbers here. Users give Spark the ``hadoop-aws`` of
its own Hadoop.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

REQUIREMENT = "sagemaker-pyspark==1.4.5"
HOME = Path(__file__).parents[2] / ".s3a"
"""The jars are kept here between runs."""

JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")

NUMBERS = {
    f"spark.hadoop.fs.s3a.{name}": value
    for name, value in {
        "threads.keepalivetime": "60",
        "connection.establish.timeout": "5000",
        "connection.timeout": "200000",
        "multipart.purge.age": "86400",
    }.items()
}


def jars() -> list[Path]:
    """Return the jars, fetched by pip unless they are there.

    :raises subprocess.CalledProcessError: if pip cannot have them.
    """
    if not all((HOME / name).exists() for name in JARS):
        HOME.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*command, "--dest", folder, REQUIREMENT], check=True)
            (archive,) = Path(folder).glob("*.tar.gz")
            _unpack(archive, Path(folder))
    return [HOME / name for name in JARS]


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        for member in packed:
            name = member.name.rpartition("/")[2]
            source = packed.extractfile(member) if name in JARS else None
            if source is not None:
                part = folder / name
                with part.open("wb") as target:
                    while chunk := source.read(1 << 20):
                        target.write(chunk)
                part.replace(HOME / name)
