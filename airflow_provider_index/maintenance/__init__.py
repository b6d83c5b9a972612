"""Maintenance of many tables by policy: :func:`index_maintenance` makes the DAG.

Names are handed on when they are asked for, so that the operators, which this package uses, may be imported first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_index.maintenance.factory import index_maintenance

__all__ = ["index_maintenance"]


def __getattr__(name: str) -> Any:
    if name == "index_maintenance":
        from airflow_provider_index.maintenance.factory import index_maintenance

        return index_maintenance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
