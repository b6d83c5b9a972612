"""Advice on the indexes of a table: which to create, to keep and to drop for what is asked, and what each is worth.

Nothing is done: the answer is a table for people, and statements to run. Follows Hyperspace's roadmap (choosing columns
by the observed query pattern) and Hive's Index Design (cost-based selection).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from spark_apps.advisor.candidates import candidates
from spark_apps.advisor.choice import choose
from spark_apps.advisor.hypothetical import columns_to_sample, definition_of, trial_of
from spark_apps.advisor.limits import (
    MAX_BYTES,
    MAX_SHARE_OF_TABLE,
    MAX_SHOWN_CHARACTERS,
    MAX_SHOWN_QUERIES,
    MIN_BUDGET_BYTES,
    MIN_SAVED_SHARE,
)
from spark_apps.advisor.pricing import Priced, Pricing
from spark_apps.advisor.questions import Questions, questions_of, workload_of
from spark_apps.advisor.sample import columns_only_spark_reads, read_sample
from spark_apps.advisor.statements import create_statement, drop_statement
from spark_apps.advisor.upkeep import Changes, changes_of, nightly_minutes
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.registry import available, columns_gone
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput, UnsupportedSource
from spark_apps.storage.printing import Grid, Printed, View, counted, size, span
from spark_apps.storage.sizes import parse_bytes, parse_minutes
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE
from spark_apps.workload.asked import AskedQuery, Workload
from spark_apps.workload.query_log import PROPERTY, log_settings, read_log

logger = logging.getLogger(__name__)

Action = Literal["create", "keep", "drop"]


@dataclass(frozen=True)
class Helped:
    """Queries that an index helps.

    :param query: their predicate without literals. :param bytes_a_day: that they would read more without it.
    """

    query: str
    bytes_a_day: float


@dataclass(frozen=True)
class Proposal:
    """A proposal for one index, with the figures.

    :param statement: to run; ``None`` where nothing is to be done. :param bytes: that the index holds, or would hold.
    :param build_seconds: that building it takes. :param minutes: that keeping it takes a day.
    :param spared_a_day: bytes a day that it saves queries, beside the other indexes that are proposed.
    :param share: which part of what all queries read without indexes that is. :param helps: those that it helps most.
    """

    action: Action
    index: str
    kind: str
    columns: tuple[str, ...]
    included: tuple[str, ...]
    reason: str
    statement: str | None
    bytes: int
    build_seconds: float
    minutes: float
    spared_a_day: float
    share: float
    helps: tuple[Helped, ...] = ()


@dataclass(frozen=True, repr=False)
class Advice(Printed):
    """Advice on the indexes of a table; nothing of it is done.

    :param table: its address. :param version: that it was made of. :param queries: that were asked, in ``days``.
    :param read_a_day: bytes a day that these read without any index, ``now`` with those that there are, ``then`` with
        those that are proposed: estimates. :param budget: that was given.
    :param sampled: file groups that indexes were tried over, of ``groups``.
    :param candidates: indexes that were priced. :param left_out: why queries were not counted -> how many.
    """

    table: str
    version: int
    queries: float
    days: float
    proposals: tuple[Proposal, ...]
    read_a_day: float = 0.0
    read_a_day_now: float = 0.0
    read_a_day_then: float = 0.0
    budget: Mapping[str, float | None] | None = None
    sampled: int = 0
    groups: int = 0
    candidates: int = 0
    left_out: Mapping[str, float] | None = None
    remark: str = ""

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements that follow the advice: creations come first, so that no query loses an index meanwhile."""
        ordered = sorted(self.proposals, key=lambda one: one.action == "drop")
        return tuple(one.statement for one in ordered if one.statement is not None)

    @property
    def reasons(self) -> dict[str, str]:
        """Index -> why it is to be created, kept or dropped, with the figures."""
        return {one.index: one.reason for one in self.proposals}

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom."""
        return {**asdict(self), "statements": list(self.statements), "reasons": self.reasons}

    def view(self) -> View:
        saved = self.read_a_day_now - self.read_a_day_then
        facts = [
            ("asked", f"{counted(round(self.queries), 'query', 'queries')} in {self.days:.3g} days"),
            ("read a day now", size(self.read_a_day_now) if self.queries else None),
            ("and then", f"{size(self.read_a_day_then)}, {_percent(saved, self.read_a_day_now)} less"
             if self.proposals else None),
            ("tried over", f"{self.sampled:,} of {counted(self.groups, 'file group')}" if self.candidates else None),
            *((f"not counted, {reason}", f"{round(count):,}") for reason, count in (self.left_out or {}).items()),
        ]  # fmt: skip
        rows = [
            (
                one.action, one.index, one.kind, one.columns, one.included, size(one.bytes), span(one.build_seconds),
                f"{one.minutes:.1f} min", size(one.spared_a_day), f"{one.share:.0%}",
            )
            for one in self.proposals
        ]  # fmt: skip
        names = (
            "what",
            "index",
            "kind",
            "columns",
            "included",
            "size",
            "build",
            "upkeep a day",
            "saves a day",
            "share",
        )
        helped = [(one.index, each.query, size(each.bytes_a_day)) for one in self.proposals for each in one.helps]
        return View(
            f"advice on {self.table}, version {self.version}",
            facts,
            [Grid(names, rows), Grid(("index", "helps queries", "saved a day"), helped)],
            [self.remark] if self.remark else [],
            [f"{statement};" for statement in self.statements],
        )


def advise(
    snapshot: Snapshot,
    timeline: Timeline,
    workload: Workload | Iterable[AskedQuery] | None = None,
    budget: Mapping[str, Any] | None = None,
    most_bytes: int = MAX_BYTES,
) -> Advice:
    """Return which indexes a table should have for what is asked of it.

    Reads some columns of a sample of file groups. Nothing is written.

    :param timeline: of the table. :param workload: what was asked, of this table or of several; what the table's own
        log of queries has, if not given.
    :param budget: ``bytes`` that indexes may hold in all (a third of the table's if not given, without a limit if
        ``None``), ``minutes`` of upkeep a day (without a limit if not given).
    :param most_bytes: that the sample takes, about.
    :raises InvalidInput: for a budget or a workload that is none.
    :raises UnsupportedSource: naming what only Spark's own reader reads rightly.
    :raises StorageError: naming a file that is gone or damaged.
    """
    if snapshot.external is not None:
        snapshot.external.check(())
    limits = _limits(budget, sum(file.bytes for file in snapshot.state.files(DATA_TREE)))
    given = read_log(snapshot.store) if workload is None else workload_of(workload)
    source = snapshot.table.source
    asked = given.of_table(snapshot.store.uri, *(() if source is None else (source.location,)))
    version, uri = snapshot.state.version, snapshot.store.uri
    if not asked:
        why = "Nothing is known of what is asked of the table, so nothing is proposed."
        if workload is None:
            share = log_settings(snapshot.table.properties).share
            why += (
                " Its query log is empty so far." if share else f" It keeps no query log: set its property {PROPERTY!r}"
                " to 'on' or 'sampled', and ask again when queries were asked, or give queries."
            )  # fmt: skip
        return Advice(uri, version, 0, 0, (), budget=_budget_of(limits), remark=why)
    questions = questions_of(snapshot, asked)
    if not questions.all:
        why = "Of none of the queries it is known what they ask, so nothing is proposed."
        return Advice(
            uri, version, asked.weight, questions.days, (), budget=_budget_of(limits), left_out=questions.left_out,
            remark=why,
        )  # fmt: skip
    return _Advising(snapshot, changes_of(timeline), questions, limits, most_bytes).advice()


class _Advising:
    """Advice while it is made."""

    def __init__(
        self, snapshot: Snapshot, changes: Changes, questions: Questions, limits: tuple[float, float], most_bytes: int
    ) -> None:
        self._snapshot = snapshot
        self._changes = changes
        self._questions = questions
        self._limits = limits
        self._table_bytes = sum(file.bytes for file in snapshot.state.files(DATA_TREE))
        given = candidates(snapshot, questions, snapshot.state.indexes)
        definitions = []
        for number, one in enumerate(given, 1):
            try:
                definitions.append(definition_of(snapshot, one, number))
            except (InvalidInput, UnsupportedSource):
                continue  # a type that the kind does not hold
        try:
            self._sample = read_sample(snapshot, columns_to_sample(snapshot, definitions), most_bytes)
        except UnsupportedSource:
            by_spark = columns_only_spark_reads(snapshot, columns_to_sample(snapshot, definitions))
            if not by_spark:
                raise
            definitions = [one for one in definitions if by_spark.isdisjoint(columns_to_sample(snapshot, [one]))]
            self._sample = read_sample(snapshot, columns_to_sample(snapshot, definitions), most_bytes)
        logger.info("Advice: %s are tried over %s of %s.", counted(len(definitions), "candidate"),
                    counted(len(self._sample.groups), "file group"), f"{self._sample.of:,}")  # fmt: skip
        self._priced = [*self._there()]
        for number, definition in enumerate(definitions, 1):
            try:
                self._priced.append(self._new(definition))
            except InvalidInput as error:  # a kind of another package, whose code makes no files in memory
                logger.info("Advice: %s of kind %s is not tried: %s", definition.name, definition.kind, error)
                continue
            what, held = f"{definition.kind} on {', '.join(definition.columns)}", size(self._priced[-1].bytes)
            logger.info("Advice: %d of %d tried: %s would hold about %s.", number, len(definitions), what, held)
        self._pricing = Pricing(snapshot, questions.all, self._priced, self._sample)

    def _there(self) -> list[Priced]:
        """Return the indexes that the table has, as far as they may go.

        None that keys are unique by.
        """
        there = []
        for name, entry in sorted(self._snapshot.state.indexes.items()):
            handler = available(entry.definition.kind)
            if handler is None or handler.unique_keys or not entry.active or not handler.own_storage:
                continue
            if columns_gone(self._snapshot.table, entry.definition):
                continue  # no query can use it, and what keeping it takes is not known
            context = IndexContext(self._snapshot, entry.definition, "")
            if not self._snapshot.has_spark and handler.expressions(self._snapshot.table, entry.definition):
                continue  # only a session computes what it saves
            build = handler.priced(context, handler.plan(context))
            held = sum(file.bytes for file in self._snapshot.state.files(entry.definition.tree))
            minutes = nightly_minutes(handler, build, self._changes, self._table_bytes)
            there.append(Priced(name, entry.definition.kind, None, held, 0.0, minutes))
        return there

    def _new(self, definition: Any) -> Priced:
        handler, trial = available(definition.kind), trial_of(self._snapshot, definition, self._sample)
        assert handler is not None
        minutes = nightly_minutes(handler, trial.build, self._changes, self._table_bytes)
        return Priced(definition.name, definition.kind, trial, trial.bytes, trial.build.estimated_seconds, minutes)

    def advice(self) -> Advice:
        pricing, priced = self._pricing, self._priced
        read = pricing.read
        costs = [(one.bytes, one.minutes) for one in priced]
        chosen = choose(costs, self._limits, pricing.saved, MIN_SAVED_SHARE * read)
        there = frozenset(number for number, one in enumerate(priced) if one.there)
        proposals = [self._chosen(number, chosen, read) for number in sorted(chosen)]
        proposals += [self._dropped(number, chosen, read) for number in sorted(there - chosen)]
        remark = ""
        if not proposals:
            remark = "No index would save these queries much, so nothing is proposed."
        elif chosen == there:
            remark = "The table has the indexes that suit these queries."
        return Advice(
            table=self._snapshot.store.uri, version=self._snapshot.state.version, queries=self._questions.queries,
            days=self._questions.days, proposals=tuple(proposals), read_a_day=read,
            read_a_day_now=read - pricing.saved(there), read_a_day_then=read - pricing.saved(chosen),
            budget=_budget_of(self._limits), sampled=len(self._sample.groups), groups=self._sample.of,
            candidates=sum(not one.there for one in priced), left_out=self._questions.left_out, remark=remark,
        )  # fmt: skip

    def _helps(self, number: int, chosen: frozenset[int]) -> tuple[float, tuple[Helped, ...]]:
        groups = self._pricing.helped(number, chosen)
        ordered = sorted(groups.items(), key=lambda item: -item[1])[:MAX_SHOWN_QUERIES]
        helped = tuple(Helped(self._questions.shapes[group][:MAX_SHOWN_CHARACTERS], gain) for group, gain in ordered)
        return sum(groups.values()), helped

    def _chosen(self, number: int, chosen: frozenset[int], read: float) -> Proposal:
        one = self._priced[number]
        saved, helped = self._helps(number, chosen)
        reason = (
            f"saves about {size(saved)} a day, {_percent(saved, read)} of what these queries read without indexes; "
            f"holds {'' if one.there else 'about '}{size(one.bytes)}, takes {one.minutes:.1f} minutes of upkeep a day"
        )
        if not one.there:
            reason += f" and {span(one.build_seconds)} to build"
        return self._proposal("keep" if one.there else "create", number, reason, saved, read, helped)

    def _dropped(self, number: int, chosen: frozenset[int], read: float) -> Proposal:
        one = self._priced[number]
        alone, beside = self._pricing.saved({number}), self._helps(number, chosen)[0]
        held = f"it holds {size(one.bytes)} and takes {one.minutes:.1f} minutes of upkeep a day"
        if alone <= MIN_SAVED_SHARE * read:
            reason = f"saves about {size(alone)} a day, {_percent(alone, read)} of what these queries read; {held}"
        elif beside <= MIN_SAVED_SHARE * read:
            reason = f"saves about {size(beside)} a day beside the others; {held}"
        else:
            reason = f"saves about {size(beside)} a day beside the others, and the budget is better spent; {held}"
        return self._proposal("drop", number, reason, beside, read, ())

    def _proposal(
        self, action: Action, number: int, reason: str, saved: float, read: float, helped: tuple[Helped, ...]
    ) -> Proposal:
        one, uri = self._priced[number], self._snapshot.store.uri
        definition = self._snapshot.state.index(one.name).definition if one.trial is None else one.trial.definition
        statement = None
        if action == "create":
            statement = create_statement(uri, definition)
        elif action == "drop":
            statement = drop_statement(uri, one.name)
        return Proposal(
            action, one.name, one.kind, definition.columns, definition.included, reason, statement, one.bytes,
            one.build_seconds, one.minutes, saved, saved / read if read else 0.0, helped,
        )  # fmt: skip


def _limits(budget: Mapping[str, Any] | None, table_bytes: int) -> tuple[float, float]:
    """Return the bytes and minutes of a budget. :raises InvalidInput: if it is none."""
    given = {} if budget is None else budget
    if not isinstance(given, Mapping) or not set(given) <= {"bytes", "minutes"}:
        raise InvalidInput(f"The budget is {budget!r}.", hint='Give {"bytes": "5GB", "minutes": 20}, or one of them.')
    held, minutes = (
        given.get("bytes", max(MAX_SHARE_OF_TABLE * table_bytes, float(MIN_BUDGET_BYTES))),
        given.get("minutes"),
    )
    return (
        float("inf") if held is None else held if isinstance(held, float) else parse_bytes(held, "The budget's bytes"),
        float("inf") if minutes is None else parse_minutes(minutes, "The budget's minutes"),
    )


def _budget_of(limits: Sequence[float]) -> dict[str, float | None]:
    return {
        name: None if limit == float("inf") else limit for name, limit in zip(("bytes", "minutes"), limits, strict=True)
    }


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"
