"""Changes of a table's bucket rules: an overwrite, an addition or a rollback, and the rules that a table has.

It writes nothing; :mod:`spark_apps.actions.rescale` carries a change out.

Follows Hudi's RFC-89: every change is a config version of its own, the newest one comes first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.layout.rules import DEFAULT_ENGINE, BucketRules, Expressions, HashingConfig, parse_expressions
from spark_apps.storage.errors import InvalidInput, InvalidRule, LogDamaged
from spark_apps.storage.printing import Grid, ResultList, View, counted, instant_text
from spark_apps.timeline import model
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.state import PartitionEntry, State


@dataclass(frozen=True)
class RuleVersion:
    """A config of the bucket rules of a table, as the log holds it.

    :param instant: when it came into force: the instant of its commit; zeros for the one the table was made with.
    :param rule: name of the rule engine.
    :param expressions: the rules in the document's string form.
    :param rules: the same as pairs of expression and count, in the order in which they are tried.
    :param default: the count where no rule of any version matches, if this version is the newest.
    """

    instant: str
    rule: str
    expressions: str
    rules: tuple[tuple[str, int], ...]
    default: int


def rule_versions(state: State) -> ResultList[RuleVersion]:
    """Return the configs in force, newest first, which is the order in which they are tried; no engine is loaded."""
    versions = [
        RuleVersion(
            entry.instant,
            entry.rule,
            entry.expressions or "",
            tuple((rule.expression, rule.count) for rule in parse_expressions(entry.expressions or "")),
            entry.default,
        )
        for entry in reversed(state.configs)
    ]
    return ResultList(versions, view_rules)


def view_rules(versions: Sequence[RuleVersion]) -> View:
    """Return the view of rules, a row each."""
    rows = [
        (instant_text(version.instant) if version.instant.strip("0") else "at first", version.rule, expression, count)
        for version in versions
        for expression, count in (*version.rules, *([("otherwise", version.default)] if version is versions[0] else ()))
    ]
    return View(
        f"{counted(len(versions), 'version')} of the bucket rules, tried in this order",
        grids=[Grid(("since", "engine", "partitions", "buckets"), rows)],
    )


@dataclass(frozen=True)
class Change:
    """The config as it will be, and the actions that make it so.

    :param actions: none, if the config stays as it is.
    :param takes_back: instant of the config that is taken back, if one is.
    """

    config: HashingConfig
    actions: tuple[model.AnyAction, ...]
    takes_back: str | None = None


class RuleChange(ABC):
    """A change of the rules, before it is known what the table has."""

    @abstractmethod
    def applied_to(self, state: State) -> Change:
        """Return the change of a table's rules.

        :raises InvalidRule: (or InvalidInput) if it cannot be made.
        """

    def settled(self, state: State) -> RuleChange:
        """Return the change in a form that means the same however the table's rules change from now on."""
        return self

    def target(self, path: str, entry: PartitionEntry, now: HashingConfig, change: Change) -> int:
        """Return the count that a partition of the table gets."""
        return change.config.count_for(path)


@dataclass(frozen=True)
class NewRules(RuleChange):
    """New rules for a table, by the document's ``overwrite`` or ``add``.

    Either way the new rules come first and those of older configs stay below them, as in the document: what newer
    rules do not match, older ones still decide. So one change can be taken back without touching another.

    :param buckets: the default count; the present one if not given.
    :param expressions: rules of the new config. :param add: the same, of the newest config's engine if none is given.
    """

    buckets: int | None = None
    rule: str | None = None
    expressions: Expressions | None = None
    add: Expressions | None = None

    def applied_to(self, state: State) -> Change:
        _configs(state)
        now = HashingConfig.of(state.configs)
        rules = self._rules(now.newest).check(partition_types(state.table))
        if rules.says_as(now.newest):
            return Change(now, ())
        entry = model.HashingConfig("", rules.default, rules.rule, rules.text or None)
        return Change(now.with_rules("9" * 17, rules), (model.PutHashingConfig(entry),))

    def _rules(self, newest: BucketRules) -> BucketRules:
        if self.add is not None and self.expressions is not None:
            raise InvalidInput("Rules to add and rules to put in their place were given.", hint="Give one of the two.")
        default = newest.default if self.buckets is None else self.buckets
        if self.add is not None:
            added = BucketRules(self.rule or (newest.rule if newest.rules else DEFAULT_ENGINE), self.add, default)
            if not added.rules:
                raise InvalidRule("There are no rules to add.", hint="Give rules like \\d{4}-11-11,256.")
            return added
        if self.expressions is not None:
            return BucketRules(self.rule or DEFAULT_ENGINE, self.expressions, default)
        if self.rule not in (None, newest.rule):
            raise InvalidRule(f"The rule engine {self.rule!r} was given without rules.", hint="Give expressions.")
        return newest if default == newest.default else BucketRules(newest.rule, None, default)


class Rollback(RuleChange):
    """Takes one change of the rules back.

    A partition that the change gave its count, and nothing later another one, gets the count from before. One that was
    made, or counted anew, after the change gets what the remaining rules say, if its count came from the rules.

    :param instant: of the config to take back; the newest if not given.
    """

    def __init__(self, timeline: Timeline, instant: str | None = None) -> None:
        self._timeline = timeline
        self._instant = instant
        self._before: dict[str, dict[str, PartitionEntry]] = {}

    def applied_to(self, state: State) -> Change:
        known = [entry.instant for entry in _configs(state)]
        instant = self._instant or known[-1]
        if instant not in known:
            raise InvalidRule(
                f"There is no change of the bucket rules of {instant!r} to take back.",
                hint=f"Changes in force: {', '.join(known[1:]) or 'none'}. table.bucket_rules() shows them.",
            )
        if instant == known[0]:
            raise InvalidRule(
                "The rules that the table was made with cannot be taken back; there is no other change.",
                hint="Give the table other rules by a rescale.",
            )
        remaining = HashingConfig.of(entry for entry in state.configs if entry.instant != instant)
        return Change(remaining, (model.DropHashingConfig(instant),), instant)

    def settled(self, state: State) -> RuleChange:
        return Rollback(self._timeline, self.applied_to(state).takes_back)

    def target(self, path: str, entry: PartitionEntry, now: HashingConfig, change: Change) -> int:
        count, instant = entry.buckets or 1, change.takes_back
        assert instant is not None
        if entry.since < instant:
            return count
        if entry.since == instant:
            before = self._partitions_before(instant).get(path)
            return count if before is None else before.buckets or 1
        return change.config.count_for(path) if now.count_for(path) == count else count

    def _partitions_before(self, instant: str) -> dict[str, PartitionEntry]:
        """Return the partitions as they were before a change of the rules; looked up once for each change."""
        if instant not in self._before:
            self._before[instant] = self._timeline.rebuild(self._timeline.newest_by(instant) - 1).partitions
        return self._before[instant]


def _configs(state: State) -> list[model.HashingConfig]:
    """Return the configs in force, oldest first; a table with buckets has one from its first commit on.

    :raises LogDamaged: if there is none: the log was not written by this package, or not by it alone.
    """
    if not state.configs:
        raise LogDamaged(
            f"The log has no bucket rules as of version {state.version}: no commit of it has a hashing config.",
            hint="The commit that creates a table puts one beside it (PutHashingConfig). Write the table anew with "
            "IndexedTable.create, or add the config to that commit.",
        )
    return state.configs


def partition_types(table: model.TableDefinition) -> dict[str, str]:
    """Return the Spark type of each partition column."""
    types = {field.name: field.type for field in table.fields}
    return {name: types[name] for name in table.partition_by}


def check_agrees(state: State, given: Mapping[str, Any]) -> None:
    """Refuse rules, counts and a hash that a writer brings, unless they are the table's.

    The rules that the table was made with are the table's too, so that a task that makes its table where there is none
    goes on working after a rescale.

    :param given: arguments of ``IndexedTable.create``; those left out agree.
    :raises InvalidRule: naming both.
    """
    table = state.table
    for name, present in (
        ("hash_function", table.hash_function),
        ("hash_fields", table.hash_fields or table.record_key),
    ):
        brought = given.get(name)
        if brought is not None and _plain(brought) != _plain(present):
            raise InvalidRule(
                f"The table has the {name} {_plain(present)!r}; the writer brings {_plain(brought)!r}.",
                hint="It is fixed when a table is made, since rows are found by it: leave it out of the write.",
            )
    if table.bucketed and not _rules_agree(state, given):
        newest = _configs(state)[-1]
        brought_rules = f"{given.get('bucket_expressions') or 'none'} ({given.get('bucket_rule') or DEFAULT_ENGINE})"
        raise InvalidRule(
            f"The table has the bucket rules {newest.expressions or 'none'} ({newest.rule}) and {newest.default} "
            f"buckets where none matches; the writer brings {brought_rules} and {given.get('buckets', 'no')} buckets.",
            hint="Rules and counts belong to the table: change them by a rescale, and leave them out of the write.",
        )


def _plain(value: str | Iterable[str]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)


def _rules_agree(state: State, given: Mapping[str, Any]) -> bool:
    expressions, engine, count = (given.get(name) for name in ("bucket_expressions", "bucket_rule", "buckets"))
    configs = _configs(state)
    for entry in (configs[0], configs[-1]):
        known = HashingConfig.of([entry]).newest
        default = known.default if count is None else count
        if expressions is None and engine is None:
            agrees = default == known.default
        else:
            agrees = BucketRules(engine or DEFAULT_ENGINE, expressions, default).says_as(known)
        if agrees:
            return True
    return False
