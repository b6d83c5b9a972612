"""Operators that advise which indexes a table should have, and that measure later what came of it.

They read the table's query log and a sample of its files in the worker; no Spark is started, and nothing is changed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from airflow_provider_index.arguments import (
    declares_arguments,
    mapping,
)
from airflow_provider_index.compat import AirflowSkipException
from airflow_provider_index.links import page_url
from airflow_provider_index.operators.base import TableOperator
from spark_apps.storage.errors import InvalidInput

if TYPE_CHECKING:
    from spark_apps.arrow_table import OpenTable
    from spark_apps.storage.store import ObjectStore

_DAY = 86_400.0


class AdviseIndexesOperator(TableOperator):
    """Advises which indexes to create and to drop for what the table's query log says was asked.

    The table keeps that log where its property ``query_log`` is ``on`` or ``sampled``. Where nothing would change, the
    task is skipped.

    ::

        AdviseIndexesOperator(task_id="advise", table="shop.orders", budget_bytes="5GB", budget_minutes=20)

    :param budget_bytes: that all indexes of the table may hold, such as ``5GB``; a third of the table by default.
    :param budget_minutes: of upkeep a day; without a limit by default.
    :param judge_after_days: an index is not proposed to be dropped before it has been there for this many days.

    Returns the advice. Hands on, each under an XCom key of its own: ``sql`` (the statements, for an
    :class:`~airflow_provider_index.operators.IndexSQLOperator`), ``promised`` (index that is to be created -> bytes a
    day that it would save, for :class:`MeasureAdviceOperator`), ``markdown`` (for the body of an ``ApprovalOperator``)
    and ``svg`` (the same as a picture).
    """

    @declares_arguments
    def __init__(
        self,
        *,
        budget_bytes: str | None = None,
        budget_minutes: float | None = None,
        judge_after_days: float = 14.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from airflow_provider_index.maintenance.advice_picture import markdown, svg

        opened = self.hook.open(self.table)
        limits = {"bytes": self.budget_bytes, "minutes": self.budget_minutes}
        advised = opened.advise(budget={name: limit for name, limit in limits.items() if limit is not None})
        self.log.info("%s", advised)
        dropped = [one.index for one in advised.proposals if one.action == "drop"]
        waiting = [name for name in dropped if _days_there(opened, name) < self.judge_after_days]
        crowded_out = _crowded_out(advised, waiting)
        proposals = [one for one in advised.proposals if one.index not in {*waiting, *crowded_out}]
        statements = [one.statement for one in sorted(proposals, key=lambda one: one.action == "drop") if one.statement]
        if not statements:
            if crowded_out:
                raise AirflowSkipException(
                    f"The budget has no room beside {', '.join(waiting)}, not there long enough to be dropped."
                )
            raise AirflowSkipException(advised.remark or "The table has the indexes that suit its queries.")
        # As JSON, for that is what goes through XCom.
        advice = {**json.loads(json.dumps(advised.to_dict())), "statements": statements}
        kept = {one.index for one in proposals}
        advice["proposals"] = [one for one in advice["proposals"] if one["index"] in kept]
        shown = {
            "sql": ";\n".join(statements),
            "promised": {one.index: one.spared_a_day for one in proposals if one.action == "create"},
            "markdown": markdown(self.table, advice, waiting, page_url(self.location(), self.table_conn_id)),
            "svg": svg(self.table, advice),
        }
        self.push(context, **shown)
        return advice


class MeasureAdviceOperator(TableOperator):
    """Measures, by the table's query log, what indexes saved since they were created, beside what was promised.

    An index that saved its queries less than a part of that is to be taken back. One that cannot be measured, for
    nothing was asked since or the table keeps no query log, stays. Skips where none is to be taken back.

    ::

        MeasureAdviceOperator(
            task_id="measure",
            table="shop.orders",
            promised="{{ ti.xcom_pull(task_ids='advise', key='promised') }}",
            least=0.5,
        )

    :param promised: index -> bytes a day, as :class:`AdviseIndexesOperator` returned them.
    :param least: which part of what was promised an index has to save to stay.

    Hands on, each under an XCom key of its own: ``judged`` (of each index ``promised_a_day``, ``measured_a_day`` in
    bytes, ``None`` if unknown, ``verdict`` and ``reason``), ``markdown``, and ``sql``, which drops those that are to be
    taken back. Returns the names of these.
    """

    @declares_arguments
    def __init__(self, *, promised: Annotated[Any, mapping], least: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.judged: list[dict[str, Any]] = []

    def check_arguments(self) -> None:
        super().check_arguments()
        if isinstance(self.promised, Mapping):
            for name, promised in self.promised.items():
                if isinstance(promised, bool) or not isinstance(promised, int | float) or not 0 <= promised < math.inf:
                    raise InvalidInput(
                        f"promised[{name!r}] is {promised!r}.", hint="Give what AdviseIndexesOperator returned."
                    )

    def work(self, context: Mapping[str, Any]) -> list[str]:
        from airflow_provider_index.maintenance.advice_picture import measured_markdown
        from spark_apps.storage.names import quote

        opened = self.hook.open(self.table)
        measured = measured_a_day(opened, self.hook.log_store(self.table), self.promised)
        self.judged = judged = [
            self._judged(name, promised, measured.get(name)) for name, promised in self.promised.items()
        ]
        there = opened.indexes
        back = [one["index"] for one in judged if one["verdict"] == "taken back" and one["index"] in there]
        shown = measured_markdown(self.table, judged, page_url(self.location(), self.table_conn_id))
        self.log.info("%s", shown)
        self.push(context, markdown=shown, judged=judged)
        if not back:
            raise AirflowSkipException("No index is to be taken back.")
        drops = (f"DROP INDEX {quote(name)} ON {quote(opened.uri)}" for name in back)
        self.push(context, sql=";\n".join(drops))
        return back

    def _judged(self, name: str, promised: float, measured: float | None) -> dict[str, Any]:
        from spark_apps.storage.units import format_bytes

        verdict, reason = "kept", "nothing is known of what was asked since"
        if measured is not None:
            share = f"{measured / promised:.0%} of" if promised else "beside"
            reason = (
                f"saved {format_bytes(round(measured))} a day, {share} the {format_bytes(round(promised))} promised"
            )
            verdict = "kept" if measured >= self.least * promised else "taken back"
        return {"index": name, "promised_a_day": promised, "measured_a_day": measured, "verdict": verdict,
                "reason": reason}  # fmt: skip


def measured_a_day(opened: OpenTable, log: ObjectStore, names: Mapping[str, Any]) -> dict[str, float]:
    """Return index -> bytes a day that it saved since it was created, as far as the query log shows.

    :param log: the folder of the table's log.
    """
    from spark_apps.workload.query_log import PROPERTY, read_log

    groups = list(read_log(log))
    # Of the days after the log was switched off nothing is known.
    on = opened.definition.properties.get(PROPERTY, "off").lower() != "off"
    until = time.time() if on else max((group.last.timestamp() for group in groups), default=0.0)
    measured = {}
    for name in names:
        created = _created(opened, name)
        if created is None or not any(group.last.timestamp() >= created for group in groups):
            continue
        first = min(group.first.timestamp() for group in groups)
        days = max((until - max(created, first)) / _DAY, 1 / 24)
        # Not what an index of the same name saved before, which was dropped meanwhile.
        since = read_log(log, datetime.fromtimestamp(created, UTC))
        measured[name] = sum(group.spared.get(name, 0.0) for group in since) / days
    return measured


def _crowded_out(advised: Any, waiting: Collection[str]) -> set[str]:
    """Return the indexes that are not created yet, for the budget has no room beside those that wait to be dropped.

    :param advised: the advice.
    """
    if not waiting:
        return set()
    limits = {name: limit for name, limit in (advised.budget or {}).items() if limit is not None}
    held = [one for one in advised.proposals if one.action == "keep" or one.index in waiting]
    out = set()
    for one in sorted(advised.proposals, key=lambda one: -one.spared_a_day):
        if one.action != "create":
            continue
        if all(sum(getattr(each, name) for each in (*held, one)) <= limit for name, limit in limits.items()):
            held.append(one)
        else:
            out.add(one.index)
    return out


def _days_there(opened: OpenTable, name: str) -> float:
    """Return for how many days an index has been there; without end where its commit is not known any more."""
    created = _created(opened, name)
    return float("inf") if created is None else (time.time() - created) / _DAY


def _created(opened: OpenTable, name: str) -> float | None:
    """Return when the newest index of a name was created, in seconds since 1970; ``None`` if that is not known."""
    from spark_apps.timeline.log import seconds_of

    instant = opened.index_status(name).created_at if name in opened.indexes else None
    return None if instant is None else seconds_of(instant)
