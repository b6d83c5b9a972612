"""Takes the keys of a join's other side while a query is planned, so that indexes of a scan can be asked for them.

A join compares a column of a scan with values that are known only when the query runs: those of a small table, or of
one that an index has narrowed down. Where they can be had cheaply they become a predicate of the scan, which prunes as
any other does; the join stays as Spark has it. Which joins let rows without such a key be left out, and where the keys
come from, is found by ``join_keys.java``; this module decides which are worth it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from spark_apps.engine.spark_utils import setting
from spark_apps.layout.types import ColumnType, date_or_time, parse_type
from spark_apps.optimizer.limits import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_SECONDS,
    DEFAULT_WORTH,
    FEW_SAMPLED,
    MANY_KEYS_WORTH,
    MAX_KEYS,
    SAMPLED_KEYS,
)
from spark_apps.optimizer.many_keys import ManyKeys, NotFound, Planned, check_few_first, halves_of
from spark_apps.query.planning import ReadPlan, plan_seconds, prunes_by, read_seconds
from spark_apps.query.predicates import Filter, predicate_of_keys
from spark_apps.query.reading import any_of
from spark_apps.timeline.model import DATA_TREE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.indexes.handler import Key
    from spark_apps.timeline.files import GroupKey

logger = logging.getLogger(__name__)

ENABLED = "spark.lakeindex.joinKeys.enabled"
MAX_BYTES = "spark.lakeindex.joinKeys.maxBytes"
MAX_SECONDS = "spark.lakeindex.joinKeys.maxSeconds"
WORTH = "spark.lakeindex.joinKeys.worth"
"""Settings of a session: whether keys are taken, of sides of how many bytes, how long a query waits for them, and how
many times as long reading must take as finding them (0: keys are taken at any size)."""

_JOB_SECONDS = 0.3
"""What a job that finds a few keys takes, beyond reading."""

_ANY_SECONDS = 3600
"""How long jobs may take that are worth any time."""


@dataclass(frozen=True)
class KeySide:
    """The part of a join's other side that has the keys of some columns of a scan, or more keys than the side has.

    :param types: of the scan's columns. :param null_safe: whether a null meets a null (``<=>``), by column.
    :param kind: values of the query itself (``local``), a frame in memory (``cached``), ``files``, a scan that
        this package plans (``planned``), or a scan that is to be decided on before (``undecided``); a frame of which
        a checkpoint was made (``checkpoint``), and files of a version of a table (``pinned``).
    :param rows: of the part, by estimate. :param filtered: whether only some of them have keys of the side.
    :param loaded: whether a cached frame is in memory. :param deterministic: whether it would be the same made anew.
    :param scan: that is to be decided on.
    """

    number: int
    columns: tuple[str, ...]
    types: tuple[str, ...]
    null_safe: tuple[bool, ...]
    kind: str
    bytes: int
    rows: int = 0
    filtered: bool = False
    loaded: bool = True
    deterministic: bool = True
    scan: int = -1

    def __str__(self) -> str:
        return ", ".join(self.columns)


@dataclass
class JoinKeys:
    """The keys that are taken for the scans of one request.

    :param request: the ``ScanRequest`` of ``index_rule.java``. :param settle: decides on a scan, unless it was.
    """

    spark: SparkSession
    request: Any
    settle: Callable[[int], None]
    _waited: float = 0.0

    def narrowed(
        self,
        number: int,
        plan: ReadPlan,
        planned: Planned,
        seconds: Callable[[ReadPlan], float] | None = None,
        kinds: Collection[str] | None = None,
    ) -> tuple[ReadPlan, str | None, str | None]:
        """Return what is read of a scan, narrowed down by keys of joins, which were taken or why not, and a filter.

        The filter, SQL or ``None``, lets rows with these keys pass, by which Parquet passes over pages.

        :param plan: what is read by the query's own filters. :param planned: plans with a narrower one.
        :param seconds: estimates how long reading what a plan names takes.
        :param kinds: of sides that give the same keys whenever they are asked, where no others will do.
        """
        if plan.nothing_matches or str(setting(self.spark, ENABLED, "true")).lower() != "true":
            return plan, None, None
        try:
            return self._narrowed(number, plan, planned, seconds or plan_seconds, kinds)
        except Exception as error:  # noqa: BLE001 - without them the scan is read as its own filters leave it
            logger.warning("Keys of joins are not taken for the scan of %s: %s", plan.snapshot.store.uri, error)
            return plan, f"not taken: {type(error).__name__}: {error}", None

    def _narrowed(
        self,
        number: int,
        plan: ReadPlan,
        planned: Planned,
        seconds: Callable[[ReadPlan], float],
        kinds: Collection[str] | None,
    ) -> tuple[ReadPlan, str | None, str | None]:
        notes, filters = [], list[str]()
        among: frozenset[GroupKey] | None = None
        for side in self._sides(number, plan):
            if kinds is not None and side.kind not in kinds:
                notes.append(f"keys of {side} not taken: they could be others when the command reads them")
                continue
            keys = self._keys(side, partial(seconds, plan))
            if isinstance(keys, _Many):
                try:
                    plan, count, among = self._looked_up(side, keys, plan, partial(_within, planned, among), seconds)
                    notes.append(f"{count:,} of {side}, looked up by a job")
                except NotFound as why:
                    notes.append(f"keys of {side} not taken: {keys.reason}, and {why}")
                continue
            if isinstance(keys, str):
                notes.append(f"keys of {side} not taken: {keys}")
                continue
            with_keys = partial(_with_keys, planned, plan, side, among)
            if kinds is not None and len(keys) > 2 * FEW_SAMPLED and not self._at_any_size:
                try:
                    check_few_first(keys, plan, with_keys, seconds)
                except NotFound as why:
                    notes.append(f"keys of {side} not taken: {why}")
                    continue
            plan = with_keys(keys)
            notes.append(f"{len(keys):,} of {side}")
            filters += _filters(side, keys)
        return plan, "; ".join(notes) or None, " AND ".join(filters) or None

    def _looked_up(
        self, side: KeySide, many: _Many, plan: ReadPlan, planned: Planned, seconds: Callable[[ReadPlan], float]
    ) -> tuple[ReadPlan, int, frozenset[GroupKey]]:
        """Return what is read of a scan where a job looks the keys of a side up; see :class:`ManyKeys`.

        :raises NotFound: if that is not worth its time.
        """
        if side.kind == "local" and self.request.explained():  # others were not looked into
            raise NotFound("EXPLAIN runs nothing")
        worth = 0.0 if self._at_any_size else MANY_KEYS_WORTH
        keys = ManyKeys(self.request, side, plan, planned, seconds, worth)
        indexes = keys.indexes()
        sample = self._sample(side) if many.sample is None else many.sample
        index, saved = keys.best_of(indexes, [filter_of_keys(side, half) for half in halves_of(sample)])
        limit = setting(self.spark, MAX_SECONDS, None)  # what was not set by the user is for keys on the driver
        most = (_ANY_SECONDS if self._at_any_size else saved / 2) if limit is None else float(limit)
        return keys.narrowed(index, most)

    def _sample(self, side: KeySide) -> frozenset[Key]:
        """Return some keys of a side, any of them.

        :raises NotFound: if they are not there in time.
        """
        most = float(setting(self.spark, MAX_SECONDS, str(DEFAULT_MAX_SECONDS)) or 0)
        answer = json.loads(self.request.keys(side.number, SAMPLED_KEYS, int(most * 1000)))
        keys = str(answer["unknown"]) if "unknown" in answer else keys_of(side, answer["keys"])
        if isinstance(keys, str):
            raise NotFound(keys)
        return keys

    def _sides(self, number: int, plan: ReadPlan) -> list[KeySide]:
        """Return the sides with keys that the table is pruned by, those that cost nothing first.

        Scans that they are made of are decided on before; of a small table as a whole only where the scan's own filters
        leave all of it, for else it is the small table that is pruned.
        """
        sides = self._useful(number, plan)
        undecided = [
            side
            for side in sides
            if side.kind == "undecided" and (side.filtered or (not plan.used and side.bytes <= self._most))
        ]
        if undecided:
            # Of two tables the larger one is pruned by keys of the smaller one.
            size = sum(file.bytes for file in plan.snapshot.state.files(DATA_TREE))
            for side in undecided:
                if side.bytes < size:
                    self.settle(side.scan)
            sides = self._useful(number, plan)
        known = [side for side in sides if side.kind != "undecided"]
        return sorted(known, key=lambda side: (side.kind != "local", side.bytes))

    def _useful(self, number: int, plan: ReadPlan) -> list[KeySide]:
        sides = msgspec.json.decode(self.request.sides(number), type=list[KeySide])
        return [side for side in sides if prunes_by(plan.snapshot, plan.predicate, side.columns, plan.columns)]

    @property
    def _at_any_size(self) -> bool:
        return float(setting(self.spark, WORTH, str(DEFAULT_WORTH)) or 0) == 0

    @property
    def _most(self) -> int:
        return int(setting(self.spark, MAX_BYTES, str(DEFAULT_MAX_BYTES)) or 0)

    def _keys(self, side: KeySide, saved_by: Callable[[], float]) -> frozenset[Key] | _Many | str:
        """Return the keys of a side, that they are many, or why they are not taken.

        :param saved_by: estimates the seconds that reading what is left takes.
        """
        seconds = 0.0
        if side.kind != "local":
            refused = self._refusal(side)
            if refused is not None:
                return refused
            worth = float(setting(self.spark, WORTH, str(DEFAULT_WORTH)) or 0)
            saved, cost = saved_by(), _JOB_SECONDS + read_seconds(self.spark, side.bytes)
            if saved < worth * cost:
                return f"finding them takes about {cost:.2g} s, and reading what is left {saved:.2g} s"
            most = float(setting(self.spark, MAX_SECONDS, str(DEFAULT_MAX_SECONDS)) or 0)
            seconds = min(most - self._waited, saved / worth if worth else most)
            if seconds <= 0:
                return f"{self._waited:.2g} s were spent on keys of this query"
        began = time.monotonic()
        try:
            answer = json.loads(self.request.keys(side.number, MAX_KEYS + 1, int(seconds * 1000)))
        finally:
            self._waited += time.monotonic() - began if seconds else 0.0
        if "unknown" in answer:
            return str(answer["unknown"])
        if len(answer["keys"]) > MAX_KEYS:
            some = keys_of(side, answer["keys"])
            return some if isinstance(some, str) else _Many(f"they are more than {MAX_KEYS:,}", some)
        return keys_of(side, answer["keys"])

    def _refusal(self, side: KeySide) -> _Many | str | None:
        """Return why a side is not looked into, or that it has many keys."""
        if self.request.explained():
            return "EXPLAIN runs nothing"
        if not side.loaded:
            return "the cached frame of the other side is not in memory"
        if not side.deterministic:
            return "the cached frame of the other side would be another one if it were made anew"
        if side.bytes > self._most:
            reason = f"the other side is read from {side.bytes:,} bytes, and {self._most:,} is the limit"
            return _Many(reason) if setting(self.spark, MAX_BYTES, None) is None else reason
        if side.rows > MAX_KEYS and not side.filtered and side.kind != "planned":
            return _Many(f"the other side has about {side.rows:,} rows")
        return None


@dataclass(frozen=True)
class _Many:
    """More keys than come to the driver.

    :param sample: some of them, ``None`` where none was taken.
    """

    reason: str
    sample: frozenset[Key] | None = None


def _with_keys(
    planned: Planned, plan: ReadPlan, side: KeySide, among: frozenset[GroupKey] | None, keys: frozenset[Key]
) -> ReadPlan:
    """Plan a read of rows with some keys of a side."""
    asked = filter_of_keys(side, keys)
    return planned(asked if plan.where is None else plan.where & asked, among)


def _within(
    planned: Planned, first: frozenset[GroupKey] | None, where: Filter | None, among: Collection[GroupKey] | None = None
) -> ReadPlan:
    """Plan a read among file groups that a side before has left."""
    if first is None or among is None:
        return planned(where, first if among is None else among)
    return planned(where, first & set(among))


def keys_of(side: KeySide, rows: list[list[Any]]) -> frozenset[Key] | str:
    """Return the keys that rows of a side are, without those that meet no row; or why they are not known."""
    types = [parse_type(text) for text in side.types]
    keys = set()
    try:
        for row in rows:
            key = tuple(_value(value, kind) for value, kind in zip(row, types, strict=True))
            met = zip(key, types, side.null_safe, strict=True)
            if all(safe if value is None else _fits(value, kind) for value, kind, safe in met):
                keys.add(key)
    except OverflowError:
        return "a day or time among them is outside of the years 1 to 9999"
    return frozenset(keys)


def _value(value: Any, kind: ColumnType) -> Any:
    if value is None:
        return None
    if kind.kind in ("date", "timestamp", "timestamp_ntz"):
        return date_or_time(value, kind.kind)
    return Decimal(value) if kind.kind == "decimal" else value


def _fits(value: Any, kind: ColumnType) -> bool:
    return not kind.is_integer or kind.limits[0] <= value <= kind.limits[1]


def filter_of_keys(side: KeySide, keys: frozenset[Key]) -> Filter:
    """Return a filter that asks for one of a side's keys."""
    predicate = predicate_of_keys(side.columns, keys, side.null_safe)
    return Filter(predicate, f"{side} IN ({len(keys):,} keys of a join)", sql=False)


def _filters(side: KeySide, keys: frozenset[Key]) -> list[str]:
    """Return SQL conditions that rows with these keys satisfy, of columns of which Parquet can use one."""
    conditions = []
    for position, (column, text, null_safe) in enumerate(zip(side.columns, side.types, side.null_safe, strict=True)):
        condition = None if null_safe else any_of(column, parse_type(text), {key[position] for key in keys})
        if condition is not None:
            conditions.append(condition)
    return conditions
