"""Which connections have tables to show: those of type ``index_table_store`` that this API server can find.

Airflow's database and the environment can be listed. A secrets backend cannot, so ``[lakeindex] connections = a,b``
names what only such a one holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from airflow_provider_index.compat import conf
from airflow_provider_index.hooks.table_store import TableStoreHook

_ENV = "AIRFLOW_CONN_"


def known_connections() -> list[str]:
    """Ids of all table store connections, sorted; each once, as it is spelled in the configuration or database."""
    named = [name.strip() for name in conf.get("lakeindex", "connections", fallback="").split(",") if name.strip()]
    found: dict[str, str] = {}
    for conn_id in [*named, *_in_database(), *in_environment(os.environ)]:
        found.setdefault(conn_id.lower(), conn_id)
    return sorted(found.values())


def in_environment(environ: Mapping[str, str]) -> list[str]:
    """Ids of the table store connections among environment variables, in lower case: their case is lost there."""
    return [
        name.removeprefix(_ENV).lower()
        for name, value in environ.items()
        if name.startswith(_ENV) and _type_of(value) == TableStoreHook.conn_type
    ]


def _type_of(value: str) -> str:
    text = value.strip()
    if not text.startswith("{"):
        return text.partition(":")[0].replace("-", "_")
    try:
        fields = json.loads(text)
    except ValueError:
        return ""
    return str(fields.get("conn_type", "")).replace("-", "_") if isinstance(fields, dict) else ""


def _in_database() -> list[str]:
    from airflow.models import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        wanted = select(Connection.conn_id).where(Connection.conn_type == TableStoreHook.conn_type)
        return list(session.scalars(wanted))
