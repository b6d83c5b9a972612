"""Nightly upkeep of many tables, described in Python.

What a table is due for, its limits say; what a night does of it, the budget; the log of the task `plan` gives the
reason for everything else.
"""

from __future__ import annotations

from airflow_provider_index.maintenance import index_maintenance

dag = index_maintenance(
    "maintenance_nightly",
    schedule="0 1 * * *",
    tables=[
        # The first entry that fits a table counts.
        {"table": "sales.orders", "weight": 3, "compact": {"small_files": 8}},
        {"table": "sales.*"},
        {"table": "archive.*", "compact": False, "verify": {"every": "28d"}},
    ],
    defaults={
        "refresh": {"lag_commits": 1},
        "compact": {"small_files": 20, "small_size": "32MB", "tombstones": "20%"},
        "clean": {"every": "20h", "retain_versions": 10, "retain": "7d"},
        "verify": {"every": "6d"},
    },
    budget={"bytes": "500GB", "minutes": 180},
    tables_at_once=2,
)
