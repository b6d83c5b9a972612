"""An archive of the classes that Spark loads, so that each JVM maps them in place of loading them one by one.

``make venv`` has it made once (``python -m tests.spark.archive``); every Spark of the tests starts with it in half
the time.

A JVM that the archive does not fit, such as one of another Java, starts without it. See the JDK's page on class data
sharing.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from spark_apps.jobs.environment import CLASS_ARCHIVES, java_home

BASE, ARCHIVE = CLASS_ARCHIVES
DDL = "id bigint, city string, dt string, ts bigint"


def _java() -> Path:
    return java_home() / "bin" / "java"


def _own_classes(java: Path) -> bool:
    """Whether a Java has an archive of its own classes."""
    shown = subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, check=False)
    return shown.returncode == 0


def make() -> None:
    """Make the archive, of the classes that a few actions on a small table load."""
    for old in (ARCHIVE, BASE):
        old.unlink(missing_ok=True)
    options = f" -XX:ArchiveClassesAtExit={ARCHIVE}"
    if not _own_classes(_java()):
        subprocess.run([_java(), "-Xshare:dump", f"-XX:SharedArchiveFile={BASE}"], capture_output=True, check=True)
        options += f" -XX:SharedArchiveFile={BASE}"

    from tests.spark.local import SMALL, local_session

    plain = SMALL["spark.driver.extraJavaOptions"]
    java = f"{plain}{options} -Xlog:cds*=off"
    # The class path of every Spark: the archive fits one that goes on behind it.
    session = local_session(quiet="OFF", plain_files=True, spark__driver__extraJavaOptions=java)
    with tempfile.TemporaryDirectory() as folder:
        _work(session, Path(folder))
    # The JVM writes the archive when it ends, which takes longer than this process would wait.
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=300)


def _work(session: Any, folder: Path) -> None:
    from spark_apps import IndexedTable
    from tests.spark_apps.frames import frame

    def rows(first: int) -> Any:
        return frame(session, [(n, f"c{n % 5}", "ab"[n % 2], n) for n in range(first, first + 20)], DDL)

    table = IndexedTable.create(
        session, folder / "t", DDL, ["id"], partition_by=["dt"], ordering_column="ts", buckets=2
    )
    table.upsert(rows(0))
    table.create_index("by_city", "secondary", ["city"])
    table.create_index("blocks", "compact", ["city"])
    table.upsert(rows(10))
    table.delete("id = 3")
    table.compact()
    table.read("city = 'c1'").collect()
    table.verify("by_city")


if __name__ == "__main__":
    make()
