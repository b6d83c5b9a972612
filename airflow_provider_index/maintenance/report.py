"""A report on tables for people who do not look at the page: how each one is, and what its indexes were worth.

As HTML for an e-mail and as text for a chat, which Airflow's notifiers send: see
dags_examples/maintenance/weekly_report.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_provider_index.links import page_url
from airflow_provider_index.maintenance.health import Health, behind_since, health_of
from spark_apps.maintenance.survey import MaintainedTable
from spark_apps.storage.errors import LakeIndexError, TableNotFound
from spark_apps.storage.printing import counted, printable
from spark_apps.storage.secrets import hide, known_secrets
from spark_apps.storage.units import format_bytes
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.statistics import table_statistics
from spark_apps.workload.worth import worth_of

SHOWN = 50
"""How many tables are shown, those that a person should look at first."""

SHOWN_INDEXES = 20
"""How many indexes of each are shown, those that saved most first."""

_SEVERITY = ("bad", "warn", "good")


@dataclass(frozen=True)
class IndexReport:
    """The worth of one index; the figures of queries are ``None`` if none are known.

    :param bytes: that it holds. :param asked: queries for which it was thought of. :param used: those that used it.
    :param spared: bytes that it saved them. :param unused: why the others did not use it, the most frequent first.
    """

    name: str
    kind: str
    state: str
    bytes: int
    asked: float | None = None
    used: float | None = None
    spared: float | None = None
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableReport:
    """The state of one table.

    :param link: to its page; empty where Airflow does not know its own address.
    :param queries: of it in the last ``days``, ``None`` if none are known; ``remark`` says why.
    :param indexes: those that saved most first.
    """

    name: str
    location: str
    link: str
    health: Health
    bytes: int
    indexes: tuple[IndexReport, ...]
    queries: float | None = None
    days: int = 0
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return asdict(self)


def report_on(table: MaintainedTable) -> TableReport:
    """Report on one table.

    :raises LakeIndexError: if its log cannot be read. The report says where a query log cannot be.
    """
    log = table.warehouse.log_of(table.location)
    if log is None:
        raise TableNotFound(f"There is no log of a table at {table.location}.", hint="Check the name.")
    timeline, secrets = Timeline.load(log), known_secrets(table.warehouse.options)
    state, now = timeline.head, time.time()
    statistics = table_statistics(state)
    remark = "It keeps no query log, so what its indexes are worth is not known."
    try:
        worth = worth_of(timeline, state, now=now)
        if worth is not None:
            remark = "" if worth.whole else "Only the newest lines of its query log are counted."
    except LakeIndexError as error:
        worth, remark = None, f"Its query log cannot be read. {hide(error.message, secrets)}"
    uses = {} if worth is None else worth.indexes
    indexes = []
    for name, index in statistics.indexes.items():
        use = uses.get(name)
        known: dict[str, Any] = {} if use is None else {
            "asked": use.asked, "used": use.used, "spared": sum(use.bytes_spared),
            "unused": tuple(sorted(use.unused, key=lambda code: (-use.unused[code], code))[:3]),
        }  # fmt: skip
        indexes.append(IndexReport(name, index.kind, index.state, index.tree.bytes, **known))
    link = page_url(table.location, table.conn_id)
    return TableReport(
        table.name,
        table.location,
        link if link.startswith("http") else "",
        health_of(statistics, state.windows.values(), behind_since(timeline, statistics, now), now, worth),
        statistics.data.bytes,
        tuple(sorted(indexes, key=lambda one: (-(one.spared or 0), one.name))),
        None if worth is None else worth.queries,
        0 if worth is None else worth.days,
        remark,
    )


def in_order(reports: Sequence[TableReport]) -> list[TableReport]:
    """Return the reports, those of tables that a person should look at first, and of these the largest."""
    return sorted(reports, key=lambda one: (_SEVERITY.index(one.health.level), -one.bytes, one.name))


def html(reports: Sequence[TableReport], missed: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report for an e-mail; whatever a log says is escaped in it.

    :param reports: in the order in which they are shown.
    :param missed: names of tables and patterns that could not be looked at, each with the reason.
    """
    return _rendered("report.html", reports, missed)


def text(reports: Sequence[TableReport], missed: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report for a chat, in Slack's markup; parameters as of :func:`html`."""
    return _rendered("report.txt", reports, missed)


def _rendered(template: str, reports: Sequence[TableReport], missed: Sequence[tuple[str, str]]) -> str:
    concerns = sum(one.health.level != "good" for one in reports)
    said = [
        *([counted(concerns, "needs a look", "need a look")] if concerns else ()),
        *([f"{len(missed):,} could not be looked at"] if missed else ()),
    ]
    return _environments()[template].get_template(template).render(
        heading=f"{counted(len(reports), 'table')}: {', '.join(said) or 'all healthy'}.",
        spared=sum(index.spared or 0 for one in reports for index in one.indexes),
        reports=reports[:SHOWN], more=max(0, len(reports) - SHOWN), missed=missed[:SHOWN],
        more_missed=max(0, len(missed) - SHOWN), shown_indexes=SHOWN_INDEXES,
    )  # fmt: skip


@cache
def _environments() -> dict[str, Environment]:
    environments = {
        "report.html": Environment(autoescape=True),
        "report.txt": Environment(autoescape=False, finalize=_for_slack),
    }
    for jinja in environments.values():
        jinja.loader = FileSystemLoader(Path(__file__).parent / "templates")
        jinja.undefined, jinja.trim_blocks, jinja.lstrip_blocks = StrictUndefined, True, True
        jinja.filters.update(size=partial(format_bytes, short=True), number="{:,.0f}".format, counted=counted)
    return environments


def _for_slack(value: Any) -> str:
    """Return a value as text of one line, with the three signs escaped by which Slack's markup begins something."""
    return printable(str(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
