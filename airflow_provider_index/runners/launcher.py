"""Starts the real ``spark-submit``: what Airflow's hook is given as its ``spark_binary``.

The hook says neither which process it starts nor in which group or environment. So it starts this file, by a script of
two lines that :mod:`airflow_provider_index.runners.by_provider` writes; it makes a group of its own, says its number,
leaves out what the app may not see, and becomes ``spark-submit``. It imports nothing of this package.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ORDER = "launch.json"
"""Name of the file that says what to start: ``program``, ``keep`` (names of variables), ``set`` (variables), ``folder``
to work in. It holds no secret."""
GROUP = "group"
"""Name of the file that then has the number of the process group."""


def main(folder: str, *arguments: str) -> None:
    """Become the program that the order in the folder names, with these arguments."""
    private = Path(folder)
    order = json.loads((private / ORDER).read_text(encoding="utf-8"))
    # The hook leaves the task's own standard input open, by which Airflow's task speaks to its supervisor.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.setsid()
    draft = private / f"{GROUP}.new"
    draft.write_text(str(os.getpid()))
    draft.rename(private / GROUP)
    kept = {name: os.environ[name] for name in order["keep"] if name in os.environ}
    os.chdir(order["folder"])
    os.execve(order["program"], [order["program"], *arguments], {**kept, **order["set"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
