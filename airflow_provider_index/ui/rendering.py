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

from airflow_provider_index.ui import commits, overview, pictures, words

_HERE = Path(__file__).parent


def render(template: str, status_code: int = 200, /, **values: Any) -> HTMLResponse:
    """A page out of one of the templates."""
    return HTMLResponse(environment().get_template(template).render(values), status_code)


@cache
def environment() -> Environment:
    """The templates, with the page's words as filters. Everything is escaped, whatever a file is called."""
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        size=words.size,
        number=words.number,
        plural=lambda count, *forms: words.plural(count, *forms),
        span=words.span,
        when=when,
        of_instant=words.of_instant,
        moment=words.moment,
        query=query,
        short=short,
    )
    found.globals.update(
        style_version=hashlib.sha256((_HERE / "static" / "page.css").read_bytes()).hexdigest()[:12],
        lane_words=commits.LANE_WORDS,
        sorts=overview.SORTS,
        page_sizes=overview.PAGE_SIZES,
        timeline_picture=pictures.timeline_picture,
        bucket_picture=pictures.bucket_picture,
        partitions_a_page=24,
        most_of_a_row=50,
        now=time.time,
    )
    return found


def when(moment: datetime) -> Markup:
    """A time as people say it, with the exact one to hover over."""
    exact = f"{words.day_and_time(moment)} UTC"
    said = words.ago(moment, time.time())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), exact, said)


def query(values: dict[str, Any], **others: Any) -> str:
    """The part of an address behind the question mark; what is ``None`` or empty is left out."""
    return urlencode({name: value for name, value in {**values, **others}.items() if value not in (None, "")})


def short(text: str, most: int = 40) -> str:
    """A long name with its middle left out, so that both of its ends can be seen."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[-(most - 1 - head) :]}"
