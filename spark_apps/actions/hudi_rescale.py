"""Bucket counts of a Hudi table of the bucket index: its rules and its rescale, by ``partition_bucket_index_manager``.

The rules and the rescale are Hudi's (RFC-89); one receipt a transaction is the log's, and a stop-write window keeps
this package's other work away. Rows are compared as a whole before and after. Some releases answer a query that does
not ask for the hash field with no rows once a table has rules of partitions (apache/hudi#19487), so one is asked
before: of a table that has rules, of itself, else of a table of a few rows that is made for it. And it is asked after.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from spark_apps.actions.bucket_rules import RuleVersion, view_rules
from spark_apps.actions.hudi_indexing import OnHudi
from spark_apps.actions.limits import RESCALE_WINDOW_SECONDS
from spark_apps.actions.rescale import PartitionRescale, RescalePlan, estimate, own_window
from spark_apps.actions.template import Attempt, StagedChanges, TableHandle, run
from spark_apps.engine.pyspark_names import DataFrame, F
from spark_apps.layout.rules import DEFAULT_ENGINE, BucketRules, Expressions, parse_expressions
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources.hudi_calls import HudiCalls
from spark_apps.storage.errors import AlreadyCommitted, InvalidInput, InvalidRule, JobFailed, VerificationFailed
from spark_apps.storage.names import quote
from spark_apps.storage.printing import ResultList
from spark_apps.timeline import windows
from spark_apps.timeline.hudi_indexes import BucketRule, read_rules
from spark_apps.timeline.model import CONFIG_SCOPE, DATA_TREE, Receipt, Write
from spark_apps.timeline.operations import RESCALE, Operation
from spark_apps.timeline.transactions import attempts, end_earlier, find_receipt, read_requested

logger = logging.getLogger(__name__)

INDEX_TYPE = "hoodie.index.type"
BUCKETS = "hoodie.bucket.index.num.buckets"
HASH_FIELD = "hoodie.bucket.index.hash.field"
PRUNING = "hoodie.bucket.index.query.pruning"
"""Hudi's setting of a reader; ``false`` is the way round apache/hudi#19487."""

MISSING_ROWS = "apache/hudi#19487"
_ROLLBACK = "hudi_rollback"
"""In the inputs of an attempt: the instant that its transaction takes back."""
_WRITES = ("commit", "deltacommit", "replacecommit")
_PENDING = ("clustering", "compaction", "logcompaction")
_TARGET = re.compile(r"^\s*(?P<partition>.*\S)\s+=>\s+(?P<buckets>\d+)\s*$")
_OF_BUCKET = re.compile(r"0000\d{4}-")
"""The name of a file of the bucket index: ids of other indexes are random and hardly begin so."""


@dataclass(frozen=True)
class HudiRules:
    """A change of the rules, in the words of Hudi's procedure.

    :param buckets: the default count. :param overwrite: rules in the place of those there are.
    :param add: rules before those there are. :param rollback: the instant of a change that is taken back.
    """

    buckets: int | None = None
    rule: str | None = None
    overwrite: str | None = None
    add: str | None = None
    rollback: str | None = None

    @classmethod
    def of(
        cls, buckets: int | None, rule: str | None, expressions: Expressions | None, add: Expressions | None
    ) -> HudiRules:
        """Return new rules as they were given to ``rescale``. :raises InvalidRule: if they cannot be used."""
        if expressions is not None and add is not None:
            raise InvalidInput("Rules to add and rules to put in their place were given.", hint="Give one of the two.")

        def text(given: Expressions | None) -> str | None:
            return None if given is None else BucketRules(rule or DEFAULT_ENGINE, given, buckets or 1).text

        return cls(buckets, rule, text(expressions), text(add))

    def argument(self) -> str:
        """Return the arguments of the procedure, but for the table and the dry run."""
        if self.rollback is not None:
            return f"rollback => '{self.rollback}'"
        rules = self.overwrite if self.add is None else self.add
        said = f"{'overwrite' if self.add is None else 'add'} => {_quoted(rules or '')}"
        count = "" if self.buckets is None or self.add is not None else f", bucket_number => {self.buckets}"
        return f"{said}{count}, rule => {_quoted(self.rule or DEFAULT_ENGINE)}"


def rules_of(handle: TableHandle, snapshot: Snapshot) -> ResultList[RuleVersion]:
    """Return the rules of the table's bucket index, newest first; Hudi tries those of the newest alone."""
    calls = HudiCalls(handle.spark, snapshot.table, handle.source_options)
    versions = [
        RuleVersion(
            one.instant, one.rule, one.expressions,
            tuple((rule.expression, rule.count) for rule in parse_expressions(one.expressions)),
            one.default_bucket_number,
        )
        for one in read_rules(calls.store)
    ]  # fmt: skip
    return ResultList(versions, view_rules)


class RescaleHudi(OnHudi):
    """Gives the partitions of a Hudi table of the bucket index the counts of other rules, by Hudi.

    :param timeline: by which a try finds what an earlier one of its transaction has begun.
    """

    operation: ClassVar[Operation] = RESCALE

    def __init__(self, rules: HudiRules, options: Mapping[str, Any] | None) -> None:
        super().__init__(options)
        self.rules = rules

    def validate(self, snapshot: Snapshot) -> None:
        self.calls(snapshot)  # what fits is found by the work: an earlier try may have done it

    def _settled(self, snapshot: Snapshot, calls: HudiCalls) -> HudiRules:
        """Return the change with what the table has, checked.

        :raises InvalidInput: (or a subclass) for one that Hudi would refuse, or half do.
        """
        there = read_rules(calls.store)
        if self.rules.rollback is not None:
            if self.rules.rollback not in [one.instant for one in there]:
                raise InvalidRule(
                    f"There is no change of the bucket rules of {self.rules.rollback!r} to take back.",
                    hint=f"Changes in force: {', '.join(one.instant for one in there) or 'none'}.",
                )
            if calls.instants(*_WRITES)[-1] != self.rules.rollback:
                raise InvalidInput(
                    f"Hudi takes back its newest commit alone, and others came after {self.rules.rollback}.",
                    hint="Give the partitions other rules by a rescale.",
                )
            return self.rules
        said = self._said(snapshot, calls)
        if said.get(INDEX_TYPE, "").upper() != "BUCKET" and not _has_buckets(snapshot):
            raise InvalidInput(
                f"{calls.uri} is no table of Hudi's bucket index.",
                hint=f"{INDEX_TYPE} is set to BUCKET when a table is made, in its properties or by its writers.",
            )
        if self.rules.add is not None and not there:
            raise InvalidInput(
                "Hudi adds rules to rules alone, and this table has one count for all of its partitions.",
                hint="Give bucket_expressions the first time (Hudi's overwrite), and add afterwards.",
            )
        if self.rules.add is None and self.rules.overwrite is None:
            raise InvalidInput("No rules were given.", hint="Give bucket_expressions, add or rollback.")
        default = self.rules.buckets or (there[0].default_bucket_number if there else _count(said.get(BUCKETS)))
        if default is None:
            raise InvalidInput(
                "Hudi must know the count that the table's partitions have had so far.",
                hint=f"Give buckets=…, as {BUCKETS} of the writers says.",
            )
        if self.rules.add is not None:
            return replace(self.rules, buckets=default, rule=there[0].rule)
        return replace(self.rules, buckets=default)

    def _said(self, snapshot: Snapshot, calls: HudiCalls) -> dict[str, str]:
        """Return the settings of the bucket index: the session's, the catalog's, the table's."""
        names = (INDEX_TYPE, BUCKETS, HASH_FIELD)
        of_table = calls.table_properties()
        said = {name: calls.spark.conf.get(name, None) or of_table.get(name) for name in names}
        return {name: value for name, value in said.items() if value}

    def plan(self, snapshot: Snapshot) -> RescalePlan:
        """Return which partitions Hudi would write anew, by its dry run."""
        calls = self.calls(snapshot)
        rules, there = self._settled(snapshot, calls), read_rules(calls.store)
        if rules.rollback is not None:
            before = there[1] if len(there) > 1 else None
            default, text = (before.default_bucket_number, before.expressions) if before else (0, "")
            return RescalePlan((), 0, default, there[0].rule, text, True, takes_back=rules.rollback, estimated_from="")
        targets = self._dry_run(snapshot, calls, rules)
        now = _present(there, rules.buckets or 1)
        rescaled = [_partition(snapshot, calls, path, now.count_for(path), count) for path, count in targets.items()]
        newest = _as_it_will_be(there, rules)
        changes = not there or not newest.says_as(_present(there, 1))
        known = _partitions(snapshot, calls)
        seconds, source = estimate(snapshot.spark, sum(one.bytes for one in rescaled))
        return RescalePlan(
            tuple(rescaled), max(len(known) - len(rescaled), 0), newest.default, newest.rule, newest.text, changes,
            seconds, source,
        )  # fmt: skip

    def _dry_run(self, snapshot: Snapshot, calls: HudiCalls, rules: HudiRules) -> dict[str, int]:
        [row] = self._call(snapshot, calls, rules, dry_run=True)
        found = (_TARGET.match(line) for part in (row[2] or "").split(";") for line in part.splitlines())
        return {one["partition"]: int(one["buckets"]) for one in found if one is not None}

    def _call(self, snapshot: Snapshot, calls: HudiCalls, rules: HudiRules, dry_run: bool) -> list[Any]:
        said = {INDEX_TYPE: "BUCKET", **self._said(snapshot, calls)}
        options = _quoted(",".join(f"{name}={value}" for name, value in said.items()))
        with calls.named() as table:
            rows = calls.sql(
                f"CALL partition_bucket_index_manager(table => {_quoted(table.replace('`', ''))}, {rules.argument()}, "
                f"dry_run => {str(dry_run).lower()}, options => {options})"
            )
        if len(rows) != 1 or rows[0][0] != "SUCCESS":
            raise JobFailed(f"Hudi answered {[tuple(row) for row in rows]} to a rescale of {calls.uri}.")
        return rows

    def work(self, attempt: Attempt) -> StagedChanges | None:
        started = time.monotonic()
        snapshot = attempt.snapshot
        calls = self.calls(snapshot)
        there = read_rules(calls.store)
        timeline, txn_id = attempt.transaction.timeline, attempt.transaction.txn_id
        tried = any(number < attempt.transaction.attempt for _, number in attempts(timeline, txn_id))
        if (found := self._done_before(there, tried, calls)) is not None:
            return found
        rules = self._settled(snapshot, calls)
        metrics: dict[str, Any] = {"engine": "hudi"}
        if rules.rollback is None:
            metrics["partitions"] = len(self._dry_run(snapshot, calls, rules))
        self._check_nothing_pending(calls)
        attempt.phase("ask a query that does not ask for the hash field")
        self._ask_before(attempt, calls, bool(there))
        before, instants = _digest(calls), set(calls.instants(*_WRITES))
        attempt.phase("rescale by Hudi")
        try:
            self._call(snapshot, calls, rules, dry_run=False)
        except JobFailed as error:
            if {one.instant for one in read_rules(calls.store)} == {one.instant for one in there}:
                raise JobFailed(error.message, outcome="The rules are as they were.") from error
            logger.warning("Hudi has changed the rules and said: %s", error.message)
        after, made = read_rules(calls.store), sorted(set(calls.instants(*_WRITES)) - instants)
        attempt.phase("compare the rows")
        metrics |= self._compared(calls, before, made, rules)
        metrics |= {
            "instant": made[-1] if made else rules.rollback,
            "rules": after[0].expressions if after else "",
            "default": after[0].default_bucket_number if after else rules.buckets,
            "seconds": round(time.monotonic() - started, 3),
            **self._ask_after(snapshot, calls),
        }
        return StagedChanges(writes=[Write(CONFIG_SCOPE, "replace")], metrics=metrics)

    def _done_before(self, there: list[BucketRule], tried: bool, calls: HudiCalls) -> StagedChanges | None:
        """Return what there is to commit where an earlier try has done the work, or it was done by another."""
        rules = self.rules
        if rules.rollback is not None:
            gone = rules.rollback not in [one.instant for one in there]
            if not (tried and gone):
                return None
        else:
            if not there or (rules.buckets or there[0].default_bucket_number) != there[0].default_bucket_number:
                return None
            text = rules.overwrite
            if rules.add is not None:
                text = ";".join([rules.add, *(one.expressions for one in there[1:2])])
            if text != there[0].expressions or (rules.add is not None and not tried):
                return None
        found = {"engine": "hudi", "found": True, "instant": there[0].instant if there else None}
        return StagedChanges(writes=[Write(CONFIG_SCOPE, "replace")], metrics=found, idle=not tried)

    def _check_nothing_pending(self, calls: HudiCalls) -> None:
        pending = calls.pending(*_PENDING)
        if pending:
            time_, action = pending[0]
            raise InvalidInput(
                f"A {action} of Hudi's, {time_}, is planned and not done: until it is, writes to its files fail.",
                hint=f"Finish it (run_{action} with op => 'execute'), or take it back, and rescale then.",
            )

    def _ask_before(self, attempt: Attempt, calls: HudiCalls, has_rules: bool) -> None:
        """Refuse to work where queries would lose rows by the rescale."""
        if has_rules:
            lost = _lost(self._as_asked(attempt.snapshot, calls), self._hash_fields(calls))
        else:
            folder = attempt.folder("question")
            path = attempt.transaction.timeline.store.spark_path(folder)
            lost = _lost(calls.asked_of_a_small_table(path, attempt.transaction.txn_id), {"id", "p"})
        if lost is None:
            return
        raise InvalidInput(
            f"This release of Hudi answers a query that does not ask for the hash field with no rows, once a table has "
            f"rules of partitions ({MISSING_ROWS}): asked {lost.text}, {lost.answered:,} of {lost.there:,} rows came.",
            hint=f"Set {PRUNING} to false in every reader of the table, and in this job's conf, or rescale by a "
            "release that answers it.",
        )

    def _as_asked(self, snapshot: Snapshot, calls: HudiCalls) -> DataFrame:
        """Return the table as queries read it that know of its bucket index, as those by a catalog do."""
        return calls.rows_as_read({INDEX_TYPE: "BUCKET", **self._said(snapshot, calls)})

    def _ask_after(self, snapshot: Snapshot, calls: HudiCalls) -> dict[str, Any]:
        lost = _lost(self._as_asked(snapshot, calls), self._hash_fields(calls))
        if lost is None:
            needed = (calls.spark.conf.get(PRUNING, None) or "").lower() == "false"
            return {"readers_need": f"{PRUNING}=false ({MISSING_ROWS})"} if needed else {}
        raise VerificationFailed(
            f"After the rescale {calls.uri} answers {lost.text} with {lost.answered:,} of {lost.there:,} rows "
            f"({MISSING_ROWS}).",
            outcome="Hudi has committed the rescale; all rows are there.",
            hint=f"Set {PRUNING} to false in every reader, or take the rescale back: rollback=True.",
        )

    def _hash_fields(self, calls: HudiCalls) -> set[str]:
        given = calls.spark.conf.get(HASH_FIELD, None) or calls.table_properties().get(HASH_FIELD)
        keys = given.split(",") if given else calls.state().record_key
        return {*keys, *calls.state().settings.get("hoodie.table.partition.fields", "").split(",")}

    def _compared(self, calls: HudiCalls, before: Digest, made: list[str], rules: HudiRules) -> dict[str, Any]:
        after = _digest(calls)
        if after == before and len(made) <= 1:
            return {"rows": after.rows}
        if len(made) > 1:
            raise VerificationFailed(
                f"Others wrote to {calls.uri} while it was rescaled: {', '.join(made)}. What they wrote into "
                "partitions that were rescaled may be lost.",
                outcome="Hudi has committed the rescale.",
                hint="Stop the table's writers before a rescale; compare the rows of these instants.",
            )
        raise VerificationFailed(
            f"{calls.uri} had {before.rows:,} rows before the rescale and has {after.rows:,} now, or other ones.",
            outcome="Hudi has committed the rescale.",
            hint="Take it back at once: rollback=True.",
        )


@dataclass(frozen=True)
class Digest:
    """The number of rows and a sum of their hashes: two tables of the same rows have the same."""

    rows: int
    hashes: int


@dataclass(frozen=True)
class Lost:
    """A question, how many rows came, and how many there are."""

    text: str
    answered: int
    there: int


def _digest(calls: HudiCalls) -> Digest:
    frame = calls.rows_as_read()
    columns = [F.col(quote(name)) for name in frame.columns if not name.startswith("_hoodie_")]
    found = frame.agg(F.count("*").alias("n"), F.sum(F.xxhash64(*columns).cast("decimal(38,0)")).alias("h")).head()
    assert found is not None
    return Digest(int(found["n"]), int(found["h"] or 0))


def _lost(frame: DataFrame, hash_fields: set[str]) -> Lost | None:
    """Ask for the rows of one value of a column that is no hash field; return what is lost, ``None`` if nothing is.

    How many there are is counted by a scan without a filter.
    """
    names = [
        field.name for field in frame.schema.fields
        if field.dataType.typeName() in ("string", "integer", "long", "date") and field.name not in hash_fields
        and not field.name.startswith("_hoodie_")
    ]  # fmt: skip
    if not names:
        return None
    column = F.col(quote(names[0]))
    one = frame.select(F.max(column).alias("value")).head()
    if one is None or one["value"] is None:
        return None
    there = frame.agg(F.count(F.when(column == F.lit(one["value"]), 1)).alias("n")).head()
    answered = frame.where(column == F.lit(one["value"])).count()
    assert there is not None
    return None if answered == there["n"] else Lost(f"{names[0]} = {one['value']!r}", answered, int(there["n"]))


def _present(there: list[BucketRule], default: int) -> BucketRules:
    if not there:
        return BucketRules(DEFAULT_ENGINE, None, default)
    newest = there[0]
    return BucketRules(newest.rule, newest.expressions, newest.default_bucket_number)


def _as_it_will_be(there: list[BucketRule], rules: HudiRules) -> BucketRules:
    text = rules.overwrite or ""
    if rules.add is not None:
        text = ";".join([rules.add, there[0].expressions])
    return BucketRules(rules.rule or DEFAULT_ENGINE, text, rules.buckets or 1)


def _partitions(snapshot: Snapshot, calls: HudiCalls) -> set[str]:
    base = f"{calls.uri}/"
    paths = (file.path.removeprefix("file://").removeprefix(base) for file in snapshot.state.files(DATA_TREE))
    return {path.rpartition("/")[0] for path in paths}


def _partition(snapshot: Snapshot, calls: HudiCalls, path: str, now: int, count: int) -> PartitionRescale:
    files = [file for file in snapshot.state.files(DATA_TREE) if f"/{path}/" in file.path]
    return PartitionRescale(path, now, count, len(files), sum(file.bytes for file in files))


def _has_buckets(snapshot: Snapshot) -> bool:
    """Return whether every file has a bucket's number in its name, as those of the bucket index have."""
    names = [file.path.rpartition("/")[2] for file in snapshot.state.files(DATA_TREE)]
    return bool(names) and all(_OF_BUCKET.match(name) for name in names)


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def rescale_hudi(
    handle: TableHandle,
    rules: HudiRules,
    *,
    newest: bool = False,
    txn_id: str | None = None,
    window: int | None = None,
    drain_seconds: float = 600.0,
) -> Receipt:
    """Run a rescale inside the window of epoch ``window``, or inside one of its own over the whole table.

    :param newest: take back the newest change of the rules.
    """
    timeline = handle.timeline
    timeline.refresh()
    earlier = None if txn_id is None else find_receipt(timeline, txn_id)
    if earlier is not None:
        return earlier
    if newest:
        rules = replace(rules, rollback=_newest(handle, txn_id))
    action = RescaleHudi(rules, handle.source_options)
    inputs = None if rules.rollback is None else {_ROLLBACK: rules.rollback}
    if window is not None:
        return run(handle, action, txn_id=txn_id, window=window, inputs=inputs)
    with own_window(timeline, None, txn_id, drain_seconds) as epoch:
        if txn_id is not None:
            with _committed_already():  # then its receipt is what the run returns
                end_earlier(timeline, txn_id)
        windows.drain(timeline, epoch, seconds=drain_seconds, renew_seconds=RESCALE_WINDOW_SECONDS)
        return run(
            handle, action, txn_id=txn_id, window=epoch, renew_seconds=RESCALE_WINDOW_SECONDS, inputs=inputs
        )  # fmt: skip


@contextmanager
def _committed_already() -> Iterator[None]:
    try:
        yield
    except AlreadyCommitted:
        pass


def settled(handle: TableHandle, rules: HudiRules, newest: bool) -> RescaleHudi:
    """Return the action that would do a change, for its plan."""
    if newest:
        rules = replace(rules, rollback=_newest(handle, None))
    return RescaleHudi(rules, handle.source_options)


def _newest(handle: TableHandle, txn_id: str | None) -> str:
    """Return the instant that a rollback takes back: the one that an earlier try has settled, else the newest."""
    timeline = handle.timeline
    for txn, attempt in [] if txn_id is None else attempts(timeline, txn_id):
        settled = read_requested(timeline, txn, attempt).inputs.get(_ROLLBACK)
        if isinstance(settled, str):
            return settled
    there = read_rules(HudiCalls(handle.spark, timeline.head.table, handle.source_options).store)
    if not there:
        raise InvalidRule("The table has no bucket rules to take back.", hint="It has one count for all partitions.")
    return there[0].instant
