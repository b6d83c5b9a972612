"""Where pyspark is not installed, what needs it says so, and how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.compatibility.lake import unpack

WORK = """
import sys


class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Gone())
import spark_apps
from spark_apps.storage.errors import EnvironmentMismatch

table = spark_apps.open_table(sys.argv[1])
doors = {
    "advise": lambda: table.advise([]),
    "hypothetical": lambda: table.explain("tip = 1.5", hypothetical=[{"kind": "secondary", "columns": ["tip"]}]),
    "IndexedTable": lambda: spark_apps.IndexedTable,
    "enable": lambda: spark_apps.enable,
    "sql": lambda: spark_apps.sql.run,
    "register_data_source": lambda: spark_apps.register_data_source,
}
for name, door in doors.items():
    try:
        door()
    except EnvironmentMismatch as error:
        assert "pyspark" in error.message and "pip install pyspark" in error.hint, error
        print(name)
print(table.read("tip = 1.5").num_rows >= 0, table.explain("tip = 1.5").files_read >= 0)
"""


def test_given_no_pyspark_then_each_door_that_needs_it_names_it_and_how_to_install_it(tmp_path: Path) -> None:
    unpack(tmp_path)

    done = subprocess.run([sys.executable, "-c", WORK, str(tmp_path / "trips")], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "advise", "hypothetical", "IndexedTable", "enable", "sql", "register_data_source", "True", "True",
    ]  # fmt: skip
