"""What :mod:`tests.spark.scenario` is told to do, and what has to come out, worked out in Python."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from spark_apps.jobs.bundle import Bundle, make_bundle
from tests.spark.jobs import CITIES, upsert, write_rows


def steps(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Create, write, index, write again, refresh, compact, rescale, verify."""
    first, second = (
        write_rows(folder / "first.parquet", range(60), 1),
        write_rows(folder / "second.parquet", range(40, 80), 2),
    )
    delete = {**upsert(first), "source": None, "batches": [{"operation": "delete", "where": "id = 7"}]}
    secondary = {"name": "by_city", "kind": "secondary", "columns": ["city"], "deferred": True}
    return [
        ("write_table", upsert(first, create=True)),
        ("build_index", {"name": "keys", "kind": "record"}),
        ("build_index", secondary),
        ("refresh_index", {"name": "by_city"}),
        ("write_table", upsert(second)),
        ("write_table", delete),
        ("refresh_index", {"name": "by_city"}),
        ("compact_index", {"name": None, "mode": "full"}),
        ("compact_index", {"name": "by_city", "mode": "full"}),
        ("rescale_buckets", {"buckets": 3}),
        ("verify_index", {}),
    ]


def expected_rows() -> list[list[Any]]:
    """The rows that the table holds in the end, sorted."""
    newest = {n: 2 if n >= 40 else 1 for n in range(80) if n != 7}
    return sorted([n, f"2026-11-{1 + n % 2:02d}", CITIES[(n + ts) % 3], ts] for n, ts in newest.items())


def bundle_with_scenario(cache: Path) -> Bundle:
    """The bundle of the apps, with the scenario among its programs."""
    made = make_bundle(cache)
    shutil.copyfile(Path(__file__).with_name("scenario.py"), made.folder / "scenario.py")
    return made
