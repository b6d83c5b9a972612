"""Plugin that Airflow's plugin manager finds: the page's app below ``/lakeindex``, and its entry in the navigation.

Every process of Airflow loads plugins, also those that parse DAGs; so the app itself, and FastAPI with it, is imported
when the first request comes, which happens in the API server only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_index.compat import conf

try:
    from airflow.sdk.plugins_manager import AirflowPlugin
except ImportError:  # before Airflow 3.2
    from airflow.plugins_manager import AirflowPlugin

PREFIX = "/lakeindex"
"""Path below the API server's address where the page is."""

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PageApp:
    """The page as an ASGI app that is made when it is first asked."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if self._app is None:
            from airflow_provider_index.ui.app import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


def page_path() -> str:
    """Return the path of the page as a browser sees it, with the path below which the API server itself may be."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + PREFIX


class LakeIndexPlugin(AirflowPlugin):
    """The page "Lake tables" in the navigation's "Browse"."""

    name = "lakeindex"
    fastapi_apps = [{"app": PageApp(), "url_prefix": PREFIX, "name": "Lake tables"}]
    external_views = [
        {
            "name": "Lake tables",
            "href": f"{page_path()}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "lakeindex",
            "icon": f"{page_path()}/static/icon.svg",
            "icon_dark_mode": f"{page_path()}/static/icon-dark.svg",
        }
    ]
