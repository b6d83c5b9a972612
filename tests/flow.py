"""How far one write and one read go: ``python -m tests.flow``, with ``--calls`` every function in its order.

Each function of ``spark_apps`` counts at its first call, comprehensions and lambdas apart. Printed is how many files
the calls enter, and how often they come back to a file that they had left: what a newcomer opens who follows them.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from spark_apps import IndexedTable
from tests.spark.local import local_session

PACKAGE = Path(__file__).resolve().parents[1] / "spark_apps"
Called = list[tuple[str, str]]
"""Files, below the package, and functions in them, in the order of their first calls."""


def followed(work: Callable[[], Any]) -> Called:
    """Return what work calls, in all threads."""
    called: Called = []
    known: set[CodeType] = set()
    inside = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in known or code.co_name.startswith("<") or not code.co_filename.startswith(inside):
            return
        known.add(code)
        file = code.co_filename.removeprefix(inside)
        if file != "moved.py" and not file.endswith("__init__.py"):
            called.append((file, code.co_qualname if sys.version_info >= (3, 11) else code.co_name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return called


def files_and_returns(called: Called) -> tuple[int, int]:
    """Return how many files calls enter, and how often they come back to one."""
    stays = [file for at, (file, _) in enumerate(called) if at == 0 or called[at - 1][0] != file]
    return len(set(stays)), len(stays) - len(set(stays))


def main(show_calls: bool) -> None:
    """Follow a second upsert and a second read of a small table, without an index and with one."""
    spark = local_session()
    with tempfile.TemporaryDirectory() as folder:
        rows = [spark.createDataFrame([(i, f"p{i % 2}", city) for i in range(6)], "id long, p string, city string")
                for city in ("oslo", "bern", "lima")]  # fmt: skip
        IndexedTable.create(spark, folder, rows[0].schema, ["id"], ["p"], buckets=2).upsert(rows[0])
        works: dict[str, tuple[Any, str]] = {"an upsert": (rows[1], ""), "a read": (None, "id = 3 AND p = 'p1'"),
                 "an upsert with an index": (rows[2], ""), "a read by an index": (None, "city = 'lima'")}  # fmt: skip
        IndexedTable.load(spark, folder).read("id = 3").collect()
        for name, (batch, where) in works.items():
            if name == "an upsert with an index":
                IndexedTable.load(spark, folder).create_index("by_city", "secondary", ["city"])
            table = IndexedTable.load(spark, folder)
            called = followed(lambda: table.read(where).collect() if batch is None else table.upsert(batch))  # noqa: B023
            files, returns = files_and_returns(called)
            lines = [f"{name}: {len(called)} functions in {files} files, {returns} returns"]
            lines += [f"    {file} {function}" for file, function in called if show_calls]
            sys.stdout.write("\n".join(lines) + "\n")
    spark.stop()


if __name__ == "__main__":
    main("--calls" in sys.argv)
