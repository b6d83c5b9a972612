"""Access to the page: for a user that Airflow knows, with the right to read the connection behind what is shown.

The right is the one that Airflow asks for when a user reads a connection (``GET`` on connections, of that very id),
so it exists in every auth manager and needs no setting up. With ``[lakeindex] page_resource`` it is the right to read a
view of that name instead, which may be given to roles that shall not see connections.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails

from airflow_provider_index.compat import conf
from airflow_provider_index.hooks.table_store import TableStoreHook


def may_read(user: Any, conn_id: str | None) -> bool:
    """Return whether a user may see the tables of a connection; of connections at large, if none is named."""
    resource = conf.get("lakeindex", "page_resource", fallback="")
    if resource:
        return bool(get_auth_manager().is_authorized_custom_view(method="GET", resource_name=resource, user=user))
    details = None if conn_id is None else ConnectionDetails(conn_id=conn_id, **_team(conn_id))
    return bool(get_auth_manager().is_authorized_connection(method="GET", details=details, user=user))


def readable(user: Any, conn_ids: Iterable[str]) -> list[str]:
    """Return those of some connections whose tables a user may see."""
    return [conn_id for conn_id in conn_ids if may_read(user, conn_id)]


def _team(conn_id: str) -> dict[str, Any]:
    if not conf.getboolean("core", "multi_team", fallback=False):
        return {}
    from airflow.models import Connection

    return {"team_name": Connection.get_team_name(conn_id)}


# --- Which connections have tables to show --------------------------------------------------------------------------


_ENV = "AIRFLOW_CONN_"


def known_connections() -> list[str]:
    """Return the ids of all table store connections, sorted; each once, as the configuration or database spells it."""
    named = [name.strip() for name in conf.get("lakeindex", "connections", fallback="").split(",") if name.strip()]
    return each_once([*named, *_in_database()], in_environment(os.environ))


def each_once(spelled: Iterable[str], lowered: Iterable[str]) -> list[str]:
    """Return ids of connections, sorted: those that are spelled somewhere, and others whose case is lost."""
    names = set(spelled)
    known = {name.lower() for name in names}
    return sorted({*names, *(name for name in lowered if name not in known)})


def in_environment(environ: Mapping[str, str]) -> list[str]:
    """Return the ids of the table store connections among environment variables.

    They are in lower case: their case is lost there.
    """
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
        query = select(Connection.conn_id).where(Connection.conn_type == TableStoreHook.conn_type)
        return list(session.scalars(query))
