"""Which bucket count a new partition gets: the rules of one config, how they are written, the history of configs.

Follows the partition-level bucket index document (Hudi's RFC-89): rules are tried in their order
and the first that matches decides, newer configs before older ones, else the default. What an expression means is the
engine's part (:mod:`spark_apps.layout.engines`); that existing partitions keep their counts is the timeline's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_apps.layout.engines import Matcher, check_length, engine_named
from spark_apps.layout.hashing import check_bucket_count
from spark_apps.storage.errors import InvalidRule
from spark_apps.timeline import hashing
from spark_apps.timeline.model import HashingConfig as ConfigEntry

DEFAULT_ENGINE = "regex"

Expressions = str | Sequence[tuple[str, int]]
"""Rules as a user gives them: the document's string form, or pairs of expression and count."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One expression, in the engine's language, and the bucket count of the partitions that it matches."""

    expression: str
    count: int


@dataclass(frozen=True)
class BucketRules:
    """The rules of one config.

    :param rule: the engine's name.
    :param expressions: the document's string form ``expression,count;expression,count``, or pairs of
        expression and count, or nothing at all. Kept as the string form.
    :param default: the count of a partition that no rule matches.
    :raises InvalidRule: for an unknown engine, an expression that it refuses, or a count that is none.

    In the string form the *last* comma of a rule stands before its count, so ``\\d{1,2},8`` needs no escape.
    Rules are separated by semicolons. ``\\;`` and ``\\,`` are a semicolon and a comma of the expression, in the pairs
    too; any other backslash reaches the engine as it is, together with the character after it (``\\\\;`` is a
    backslash pair and then the end of the rule). Blanks before an expression and around a count do not count, and
    the last rule may end with a semicolon.
    """

    rule: str
    expressions: Expressions | None
    default: int
    rules: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    _matchers: tuple[Matcher, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        engine = engine_named(self.rule)
        check_bucket_count(self.default, "The default bucket count")
        if isinstance(self.expressions, str):
            rules = parse_expressions(self.expressions)
        else:
            rules = _structured(self.expressions or ())
            object.__setattr__(self, "expressions", render_expressions(rules))
        for rule in rules:
            check_length(rule.expression)
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "_matchers", tuple(engine.compile(rule.expression) for rule in rules))

    def __reduce__(self) -> tuple[type[BucketRules], tuple[Any, ...]]:
        return BucketRules, (self.rule, self.expressions, self.default)  # compiled patterns do not travel

    @property
    def text(self) -> str:
        """The rules in the string form."""
        assert isinstance(self.expressions, str)
        return self.expressions

    def says_as(self, other: BucketRules) -> bool:
        """Whether two are the same rules, however they were written."""
        return (self.rule, self.rules, self.default) == (other.rule, other.rules, other.default)

    def check(self, columns: Mapping[str, str]) -> BucketRules:
        """The rules themselves, if they fit a table with these partition columns (name -> Spark type).

        :raises InvalidRule: naming the rule that does not.
        """
        for rule in self.rules:
            engine_named(self.rule).check(rule.expression, columns)
        return self

    def matched(self, partition_path: str) -> Rule | None:
        """The first rule that matches a partition path, or ``None``."""
        for rule, matches in zip(self.rules, self._matchers, strict=True):
            if matches(partition_path):
                return rule
        return None

    def count_for(self, partition_path: str) -> int:
        """The bucket count of a new partition: that of the first rule that matches its path, else the default."""
        rule = self.matched(partition_path)
        return self.default if rule is None else rule.count


@dataclass(frozen=True)
class HashingConfig:
    """All configs a table has had, oldest first, each with the instant that put it in force.

    Newer expressions come before older ones; when none matches, the default of the newest config holds.
    """

    versions: tuple[tuple[str, BucketRules], ...]

    def __post_init__(self) -> None:
        instants = [instant for instant, _ in self.versions]
        if not instants or any(later <= earlier for earlier, later in itertools.pairwise(instants)):
            raise InvalidRule(
                f"A hashing config needs versions with rising instants, not {instants}.",
                hint="Add each change with the instant of its commit.",
            )

    @property
    def newest(self) -> BucketRules:
        return self.versions[-1][1]

    def with_rules(self, instant: str, rules: BucketRules) -> HashingConfig:
        """The config after a change.

        :raises InvalidRule: when the instant is not later than the newest.
        """
        return HashingConfig((*self.versions, (instant, rules)))

    def count_for(self, partition_path: str) -> int:
        """The bucket count of a new partition."""
        for _, rules in reversed(self.versions):
            if (rule := rules.matched(partition_path)) is not None:
                return rule.count
        return self.newest.default

    def to_json(self) -> str:
        """The text of the document's ``<instant>.hashing_config`` file: every version under its instant."""
        entries = (ConfigEntry(at, rules.default, rules.rule, rules.text or None) for at, rules in self.versions)
        return hashing.config_body(entries).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> HashingConfig:
        """Read such a file.

        :raises InvalidRule: when it is not one, or holds a rule that cannot be used here.
        """
        return cls.of(hashing.read_config(text))

    @classmethod
    def of(cls, entries: Iterable[ConfigEntry]) -> HashingConfig:
        """The config of the entries that the log holds. :raises InvalidRule: if an engine is not known here."""
        return cls(tuple((e.instant, BucketRules(e.rule, e.expressions or "", e.default)) for e in entries))


# --- the string form ----------------------------------------------------------------------------------------


def parse_expressions(text: str) -> tuple[Rule, ...]:
    """The rules of the string form; see :class:`BucketRules` for its grammar.

    :raises InvalidRule: naming the rule that lacks an expression or a count, or whose count is none.
    """
    parts = _split(text, ";")
    if not parts[-1].strip():
        parts.pop()
    return tuple(_parse_rule(part, number) for number, part in enumerate(parts, 1))


def render_expressions(rules: Iterable[Rule]) -> str:
    """The string form of rules, from which :func:`parse_expressions` makes the same rules."""
    return ";".join(
        "".join("\\;" if token == ";" else token for token in _tokens(rule.expression)) + f",{rule.count}"
        for rule in rules
    )


def _tokens(text: str) -> Iterator[str]:
    """Single characters, and a backslash together with the one behind it."""
    position = 0
    while position < len(text):
        token = text[position : position + (2 if text[position] == "\\" else 1)]
        yield token
        position += len(token)


def _split(text: str, sign: str) -> list[str]:
    """Cut at the signs that no backslash takes along."""
    parts = [""]
    for token in _tokens(text):
        if token == sign:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def _unescaped(expression: str) -> str:
    """The expression that the engine is given: escaped commas and semicolons are those signs, all else stays."""
    return "".join(token[1] if token in ("\\;", "\\,") else token for token in _tokens(expression))


def _parse_rule(part: str, number: int) -> Rule:
    *before, count = _split(part, ",")
    expression, count = ",".join(before).lstrip(), count.strip()
    if not expression:
        raise InvalidRule(
            f"Bucket rule {number}, {part!r}, is not of the form expression,count.",
            hint="Write rules like \\d{4}-11-11,256;-12-,64; a semicolon inside an expression is \\; and a comma \\,.",
        )
    if not (count.removeprefix("-").isascii() and count.removeprefix("-").isdigit() and len(count) < 20):
        raise InvalidRule(
            f"Bucket rule {number}, {part!r}, ends with {count!r}, not with a bucket count.",
            hint="After the last comma of a rule stands its count, as in \\d{4}-11-11,256.",
        )
    expression = _unescaped(expression)
    return Rule(expression, check_bucket_count(int(count), f"The count of bucket rule {number}, {part!r},"))


def _structured(pairs: Sequence[tuple[str, int]]) -> tuple[Rule, ...]:
    rules = []
    for number, pair in enumerate(pairs, 1):
        shaped = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not shaped or not isinstance(pair[0], str) or not pair[0]:
            raise InvalidRule(
                f"Bucket rule {number}, {pair!r}, is not a pair of expression and count.",
                hint="Give rules like [('\\\\d{4}-11-11', 256)].",
            )
        if pair[0] != pair[0].lstrip() or not _pairs_up(pair[0]):
            raise InvalidRule(
                f"Bucket rule {number}, {pair[0]!r}, begins with a blank or ends in half an escape.",
                hint="Write a blank that matters as [ ] and a backslash as two.",
            )
        rules.append(Rule(_unescaped(pair[0]), check_bucket_count(pair[1], f"The count of bucket rule {number}")))
    return tuple(rules)


def _pairs_up(expression: str) -> bool:
    """Whether the backslashes at the end are pairs, so that none would take along what follows."""
    return (len(expression) - len(expression.rstrip("\\"))) % 2 == 0
