"""Turns what was read into HTML: the templates, always escaping, and the words that they use."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from airflow_provider_index.ui import commits, formatting, overview, pictures
from spark_apps.storage.units import format_duration

_FOLDER = Path(__file__).parent


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
        size=formatting.size,
        number=formatting.number,
        plural=lambda count, *forms: formatting.plural(count, *forms),
        span=format_duration,
        when=when,
        of_instant=formatting.of_instant,
        moment=formatting.moment,
        query=query,
        short=short,
    )
    jinja.globals.update(
        style_version=hashlib.sha256((_FOLDER / "static" / "page.css").read_bytes()).hexdigest()[:12],
        lane_words=commits.LANE_WORDS,
        sorts=overview.SORTS,
        page_sizes=overview.PAGE_SIZES,
        timeline_picture=pictures.timeline_picture,
        bucket_picture=pictures.bucket_picture,
        partitions_a_page=24,
        most_of_a_row=50,
        now=time.time,
    )
    return jinja


def when(moment: datetime) -> Markup:
    """Return a time as people say it, with the exact one to hover over."""
    exact = f"{formatting.day_and_time(moment)} UTC"
    text = formatting.ago(moment, time.time())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), exact, text)


def query(values: dict[str, Any], **others: Any) -> str:
    """Return the part of an address behind the question mark; what is ``None`` or empty is left out."""
    return urlencode({name: value for name, value in {**values, **others}.items() if value not in (None, "")})


def short(text: str, most: int = 40) -> str:
    """Return a long name with its middle left out, so that both of its ends can be seen."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[-(most - 1 - head) :]}"
