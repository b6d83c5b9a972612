"""A table written by one Spark is read, written and verified by each other one that ``make matrix`` made here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.matrix.environments import ENVIRONMENTS
from tests.matrix.installing import HOME, ROOT, is_made

MADE = [each.name for each in ENVIRONMENTS if each.name.startswith("spark-") and is_made(each)]


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.skipif(len(MADE) < 2, reason="make matrix SETUP=1 makes the environments, and fewer than two are there")
def test_given_a_table_of_each_spark_then_each_other_reads_writes_and_verifies_it(tmp_path: Path) -> None:
    (tmp_path / "names").write_text(json.dumps(MADE))
    for what in ("write", "continue"):
        for name in MADE:
            command = [HOME / name / "bin" / "python", "-m", "tests.matrix.crossing", what, tmp_path, name]
            settings = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{name}, {what}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
