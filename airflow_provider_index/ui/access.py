"""Who may look: a user that Airflow knows, with the right to read the connection behind what is shown.

The right is the one that Airflow asks for when somebody reads a connection (``GET`` on connections, of that very id),
so it exists in every auth manager and needs no setting up. With ``[lakeindex] page_resource`` it is the right to read a
view of that name instead, which may be given to roles that shall not see connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails

from airflow_provider_index.compat import conf


def may_read(user: Any, conn_id: str | None) -> bool:
    """Whether a user may see the tables of a connection; of connections at large, if none is named."""
    resource = conf.get("lakeindex", "page_resource", fallback="")
    if resource:
        return bool(get_auth_manager().is_authorized_custom_view(method="GET", resource_name=resource, user=user))
    details = None if conn_id is None else ConnectionDetails(conn_id=conn_id, **_team(conn_id))
    return bool(get_auth_manager().is_authorized_connection(method="GET", details=details, user=user))


def readable(user: Any, conn_ids: Iterable[str]) -> list[str]:
    """Those of some connections whose tables a user may see."""
    return [conn_id for conn_id in conn_ids if may_read(user, conn_id)]


def _team(conn_id: str) -> dict[str, Any]:
    if not conf.getboolean("core", "multi_team", fallback=False):
        return {}
    from airflow.models import Connection

    return {"team_name": Connection.get_team_name(conn_id)}
