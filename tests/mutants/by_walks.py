"""Plants faults in turn and walks until a walk differs from its model: ``python -m tests.mutants.by_walks``.

``ONLY`` (a list of names; by default all faults that name a walk); ``SEEDS`` (a list; by default the walk that the
fault names): the walks that are tried, in this order. A walk that finds a fault stands in ``results.json`` beside the
tests that do. What walks draw changes with their code, so the seed that is named may have to be looked for again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.__main__ import known, record, say
from tests.mutants.planting import ROOT, Fault, faults, planted_copy

LONGEST_SECONDS = 3600
_DIFFERS = re.compile(r"^seed (\d+): FAILED", re.MULTILINE)


def walks_until_found(fault: Fault, seeds: Sequence[int], folder: Path) -> int | None:
    """Plant a fault in a copy of the code and return the first seed whose walk differs from its model.

    :param folder: where the copy is made; taken away afterwards.
    :raises RuntimeError: if the walks could not be done.
    """
    with planted_copy(fault, folder) as copy:
        # With the engines that read what is published.
        wanted = {"SEEDS": ",".join(map(str, seeds)), "FIRST": "1", "PROCESSES": "1", "MINUTES": "55",
                  "BENCH_FOLDER": os.environ.get("BENCH_FOLDER", str(ROOT / ".bench"))}  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(copy), **wanted}
        command = [sys.executable, "-m", "tests.differential", "walks"]
        run = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    found = _DIFFERS.search(run.stdout)
    if found is None and run.returncode:
        raise RuntimeError(
            f"{fault.name}: the walks ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
        )
    return None if found is None else int(found[1])


def main() -> int:
    only = [name.strip() for name in os.environ.get("ONLY", "").split(",") if name.strip()]
    listed = [fault for fault in faults() if (fault.name in only if only else fault.walk is not None)]
    given = [int(seed) for seed in os.environ.get("SEEDS", "").split(",") if seed]
    unfound = []
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        for fault in listed:
            seeds = given or ([] if fault.walk is None else [fault.walk])
            seed = walks_until_found(fault, seeds, Path(folder)) if seeds else None
            say(f"{fault.name}: {'no walk finds it' if seed is None else f'walk {seed}'}")
            if seed is None:
                unfound.append(fault.name)
            elif known().get(fault.name, {}).get("fault") == fault.digest:
                record(fault.name, {**known()[fault.name], "walk": seed})
    return 1 if unfound else 0


if __name__ == "__main__":
    sys.exit(main())
