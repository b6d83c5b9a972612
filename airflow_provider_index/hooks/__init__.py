"""The hook of the connection type ``index_table_store``."""

from __future__ import annotations

from airflow_provider_index.hooks.table_store import TableStoreHook

__all__ = ["TableStoreHook"]
