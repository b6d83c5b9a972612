"""The page itself: its routes, who may see them, and what they answer when something cannot be read.

It only reads, needs no JavaScript, and sends no script. Every route, the style sheet too, asks first who the user is,
and every route that shows tables, what this user may see.
"""

from __future__ import annotations

import hashlib
import logging
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as ReadTimeout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from airflow_provider_index.ui import access, formatting, pictures
from airflow_provider_index.ui.access import known_connections
from airflow_provider_index.ui.commits import LANE_WORDS
from airflow_provider_index.ui.details import Detail, DetailQuery, read_detail
from airflow_provider_index.ui.limits import ADVICE_SECONDS, DETAIL_SECONDS, MAX_ADDRESS_CHARACTERS, PAGE_SIZES
from airflow_provider_index.ui.operators import known_operators, operator_page, with_code
from airflow_provider_index.ui.overview import (
    SORTS,
    Overview,
    OverviewQuery,
    TableCache,
    in_trouble,
    read_overview,
)
from airflow_provider_index.ui.tables import Lake
from spark_apps.storage.errors import InvalidName, LakeIndexError, NotFound
from spark_apps.storage.secrets import hide_address
from spark_apps.storage.units import format_duration

logger = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_STATIC = _FOLDER / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}

_PLAIN_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:4rem auto;padding:0 1rem;color-scheme:light dark}"
)
_PLAIN_HASH = b64encode(hashlib.sha256(_PLAIN_STYLE.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self' 'sha256-{hash}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY.format(hash=_PLAIN_HASH),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Viewer:
    """A user of the page, and the connections whose tables this user may see."""

    def __init__(self, conn_ids: list[str], name_of: Callable[[str], str | None]) -> None:
        self.conn_ids = conn_ids
        self._name_of = name_of

    def lake(self, conn_id: str) -> Lake:
        """Return the tables of a connection.

        :raises HTTPException: 403 if it is not one that the user may see; the answer does not say whether there is one.
        :raises LakeIndexError: if it cannot be used.
        """
        spelled = self._name_of(conn_id)
        if spelled is None:
            raise HTTPException(403, f"You may not see tables of a connection {conn_id[:100]!r}, or there is none.")
        return Lake.of(spelled)


def viewer(request: Request, user: GetUserDep) -> Viewer:
    """Return the user's rights.

    :raises HTTPException: 401 from Airflow if there is no user, 403 if there is nothing that this user may see.
    """
    known = request.app.state.connections()
    allowed = access.readable(user, known)
    if not allowed and not (not known and access.may_read(user, None)):
        raise HTTPException(403, "You may not see lake tables: that takes the right to read their connection.")
    # Airflow finds a connection of the environment whatever the case of its name; others by their very name, which goes
    # first where two differ in nothing else.
    spelled = {conn_id.lower(): conn_id for conn_id in allowed}
    return Viewer(allowed, lambda asked: asked if asked in allowed else spelled.get(asked.lower()))


ViewerDep = Annotated[Viewer, Depends(viewer)]


def create_app(
    table_cache: TableCache | None = None, connections: Callable[[], list[str]] = known_connections
) -> FastAPI:
    """Return the app that Airflow mounts.

    :param table_cache: keeps what was read of tables between requests; a new one by default.
    :param connections: returns the ids of the connections whose tables can be shown.
    """
    app = FastAPI(
        title="Lake tables", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)]
    )
    app.state.connections = connections
    known = table_cache or TableCache()

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            response = await call_next(request)
        except Exception:
            # Above this only Starlette's own answer is left, which is bare text without these headers.
            logger.exception("A page could not be made")
            response = plain_page(503, "The page could not be made. See the server's log.")
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        return plain_page(error.status_code, str(error.detail))

    @app.get("/")
    def overview(request: Request, who: ViewerDep) -> HTMLResponse:
        return _overview(known, who, request)

    @app.get("/tables")
    def table(request: Request, who: ViewerDep) -> HTMLResponse:
        return _table(known, who, request)

    @app.get("/operators")
    def operators(name: str = "") -> HTMLResponse:
        try:
            view = operator_page(name) if name else None
        except KeyError:
            raise HTTPException(404, "There is no such operator in the installed release.") from None
        return render("operators.html", names=known_operators(), view=view)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _FILES:
            raise HTTPException(404, "There is no such file.")
        path = _FILES[name]
        kept = {"Cache-Control": "private, max-age=3600"}
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=kept)

    @app.get("/{path:path}")
    def nothing(path: str, who: ViewerDep) -> Response:
        raise HTTPException(404, "There is no such page.")

    return app


def _overview(table_cache: TableCache, who: Viewer, request: Request) -> HTMLResponse:
    chosen = OverviewQuery.of(request.query_params)
    conn_id = request.query_params.get("conn") or (who.conn_ids[0] if who.conn_ids else "")
    overview: Overview | None = None
    trouble = ""
    if conn_id:
        try:
            lake = who.lake(conn_id)
            conn_id, overview = lake.conn_id, read_overview(table_cache, lake, chosen)
        except LakeIndexError as error:
            trouble = " ".join(part for part in (error.message, error.hint) if part)
        except HTTPException:
            raise
        except Exception as error:
            logger.exception("The connection %r cannot be used", conn_id)
            trouble = f"It could not be read ({type(error).__name__}). See the server's log."

    def page(view: Overview | None) -> HTMLResponse:
        return render(
            "overview.html", conn_ids=who.conn_ids, conn_id=conn_id, view=view, chosen=chosen, trouble=trouble
        )

    try:
        return page(overview)
    except Exception:
        if overview is None:
            raise
        logger.exception("Some table of the connection %r cannot be shown", conn_id)
        return page(_without_bad(overview, page))


def _without_bad(overview: Overview, page: Callable[[Overview], HTMLResponse]) -> Overview:
    """Return an overview in which each table that cannot be shown says so, in place of what it holds."""
    summaries = []
    for summary in overview.summaries:
        try:
            page(replace(overview, summaries=(summary,)))
        except Exception as error:  # noqa: BLE001 - the row says so; the whole was logged
            summary = in_trouble(summary, error)
        summaries.append(summary)
    return replace(overview, summaries=tuple(summaries))


def _table(table_cache: TableCache, who: Viewer, request: Request) -> HTMLResponse:
    name = request.query_params.get("table", "")[:MAX_ADDRESS_CHARACTERS]
    conn_id = request.query_params.get("conn") or (who.conn_ids[0] if who.conn_ids else "")
    lake: Lake | None = None
    query = DetailQuery.of(request.query_params)
    patience = ADVICE_SECONDS if query.advice else DETAIL_SECONDS
    try:
        if not name:
            raise InvalidName("No table was named.", hint="Choose one from the list.")
        lake = readable_lake = who.lake(conn_id)
        reading = table_cache.readers(lake).submit(
            lambda: read_detail(readable_lake, name, query, table_cache.helpers(readable_lake))
        )
        detail: Detail = reading.result(patience)
        return render("table.html", conn_id=readable_lake.conn_id, view=detail)
    except (NotFound, InvalidName) as error:
        return _sorry(404, conn_id, name, error.message, error.hint)
    except (ReadTimeout, TimeoutError):
        return _sorry(504, conn_id, name, f"Its store gave no answer within {patience:g} s.", "Try again later.")
    except LakeIndexError as error:
        reason = error.message if lake is None else lake.reason(error)
        return _sorry(503, conn_id, name, reason, error.hint)
    except HTTPException:
        raise
    except Exception as error:
        logger.exception("The table %r of the connection %r cannot be shown", name, conn_id)
        return _sorry(503, conn_id, name, f"It could not be read ({type(error).__name__}).", "See the server's log.")


def _sorry(status: int, conn_id: str, name: str, reason: str, hint: str) -> HTMLResponse:
    return render("sorry.html", status, conn_id=conn_id, name=name, reason=reason, hint=hint)


def plain_page(status: int, text: str) -> HTMLResponse:
    """Return a page without a style sheet, for those who may not even see that."""
    return render("plain.html", status, status=status, text=text, style=_PLAIN_STYLE)


def static_names() -> list[str]:
    """Return the files beside the pages."""
    return list(_FILES)


# --- templates --------------------------------------------------------------------------------------------------------


def render(template: str, status_code: int = 200, /, **values: Any) -> HTMLResponse:
    """Return a page out of one of the templates."""
    return HTMLResponse(environment().get_template(template).render(values), status_code)


@cache
def environment() -> Environment:
    """Return the templates, with the page's words as filters. Everything is escaped, whatever a file is called."""
    jinja = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(
        address=hide_address,
        size=formatting.size,
        number=formatting.number,
        plural=lambda count, *forms: formatting.plural(count, *forms),
        span=format_duration,
        when=formatting.when,
        of_instant=formatting.of_instant,
        moment=formatting.moment,
        query=formatting.query,
        with_code=with_code,
        short=formatting.short,
    )
    jinja.globals.update(
        style_version=hashlib.sha256((_FOLDER / "static" / "page.css").read_bytes()).hexdigest()[:12],
        lane_words=LANE_WORDS,
        sorts=SORTS,
        page_sizes=PAGE_SIZES,
        timeline_picture=pictures.timeline_picture,
        bucket_picture=pictures.bucket_picture,
        worth_picture=pictures.worth_picture,
        partitions_a_page=24,
        most_of_a_row=50,
        now=time.time,
    )
    return jinja
