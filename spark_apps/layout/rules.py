"""Which bucket count a new partition gets: rule engines, the rules of one config, and the history of configs.

Follows the partition-level bucket index document: rules are tried in their order and the first that matches
decides, newer configs before older ones, else the default. Existing partitions keep their counts; that is the
timeline's part.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_apps.layout.hashing import check_bucket_count
from spark_apps.storage.errors import InvalidRule

DEFAULT_ENGINE = "regex"
_MAX_PATTERN = 10_000

# What an engine makes of one expression: a test of a partition path. It raises InvalidRule for a bad one.
Matcher = Callable[[str], bool]
Engine = Callable[[str], Matcher]


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
    Rules are separated by semicolons; ``\\;`` is a semicolon of the expression, and a backslash always takes
    the character after it along (``\\\\;`` ends a rule with a backslash pair). Backslashes reach the engine
    as they are: to a regular expression ``\\;`` is a semicolon anyway. Blanks before an expression and around
    a count do not count, and the last rule may end with a semicolon.
    """

    rule: str
    expressions: str | Sequence[tuple[str, int]] | None
    default: int
    rules: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    _matchers: tuple[Matcher, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        engine = _engine(self.rule)
        check_bucket_count(self.default, "The default bucket count")
        if isinstance(self.expressions, str):
            rules = parse_expressions(self.expressions)
        else:
            rules = _structured(self.expressions or ())
            object.__setattr__(self, "expressions", render_expressions(rules))
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "_matchers", tuple(engine(rule.expression) for rule in rules))

    def __reduce__(self) -> tuple[type[BucketRules], tuple[Any, ...]]:
        return BucketRules, (self.rule, self.expressions, self.default)  # compiled patterns do not travel

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
        versions = {
            instant: {"expression": rules.expressions, "rule": rules.rule, "default": rules.default}
            for instant, rules in self.versions
        }
        return json.dumps(versions, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> HashingConfig:
        """Read such a file.

        :raises InvalidRule: when it is not one.
        """
        try:
            found = sorted(json.loads(text).items())
            return cls(tuple((instant, _from_fields(fields)) for instant, fields in found))
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            if isinstance(error, InvalidRule):
                raise
            raise InvalidRule(
                f"This is not a hashing config: {error}.",
                hint="It is JSON: {instant: {expression, rule, default}}.",
            ) from error


def _from_fields(fields: dict[str, Any]) -> BucketRules:
    default = fields["default"]
    return BucketRules(
        fields["rule"],
        fields["expression"],
        int(default) if isinstance(default, str) and default.isascii() and default.isdigit() else default,
    )


# --- the string form ----------------------------------------------------------------------------------------


def parse_expressions(text: str) -> tuple[Rule, ...]:
    """The rules of the string form; see :class:`BucketRules` for its grammar.

    :raises InvalidRule: naming the rule that lacks an expression or a count, or whose count is none.
    """
    parts = list(_split(text))
    if parts and not parts[-1].strip():
        parts.pop()
    return tuple(_parse_rule(part, number) for number, part in enumerate(parts, 1))


def render_expressions(rules: Iterable[Rule]) -> str:
    """The string form of rules: semicolons of an expression that are not escaped yet are."""
    return ";".join("\\;".join(_split(rule.expression)) + f",{rule.count}" for rule in rules)


def _split(text: str) -> Iterable[str]:
    """Cut at the semicolons that no backslash precedes; a backslash takes the next character along."""
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == ";":
            yield text[start:position]
            start = position + 1
        position += 1
    yield text[start:]


def _parse_rule(part: str, number: int) -> Rule:
    expression, comma, count = part.rpartition(",")
    expression, count = expression.lstrip(), count.strip()
    if not comma or not expression:
        raise InvalidRule(
            f"Bucket rule {number}, {part!r}, is not of the form expression,count.",
            hint="Write rules like \\d{4}-11-11,256;-12-,64; a semicolon inside an expression is \\;.",
        )
    if not (count.removeprefix("-").isascii() and count.removeprefix("-").isdigit() and len(count) < 20):
        raise InvalidRule(
            f"Bucket rule {number}, {part!r}, ends with {count!r}, not with a bucket count.",
            hint="After the last comma of a rule stands its count, as in \\d{4}-11-11,256.",
        )
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
        rules.append(Rule(pair[0], check_bucket_count(pair[1], f"The count of bucket rule {number}")))
    return tuple(rules)


def _pairs_up(expression: str) -> bool:
    """Whether the backslashes at the end are pairs, so that none would take along what follows."""
    return (len(expression) - len(expression.rstrip("\\"))) % 2 == 0


# --- engines ------------------------------------------------------------------------------------------------


def register_engine(name: str, engine: Engine) -> None:
    """Add an engine under a new name.

    :raises InvalidRule: when the name is taken: tables persist it.
    """
    if _ENGINES.setdefault(name, engine) is not engine:
        raise InvalidRule(f"The rule engine {name!r} exists already.", hint="Choose another name.")


def _engine(name: str) -> Engine:
    try:
        return _ENGINES[name]
    except KeyError:
        raise InvalidRule(
            f"There is no rule engine named {name!r}.", hint=f"Known are: {', '.join(sorted(_ENGINES))}."
        ) from None


def _regex(expression: str) -> Matcher:
    """Regular expressions, searched for anywhere in the canonical partition path (``dt=2024-11-11``,
    escaped).

    RE2 runs in time linear in the path whatever the pattern; what it lacks (look-around, back references) is refused.
    """
    import re2

    if len(expression) > _MAX_PATTERN:
        raise InvalidRule(
            f"The pattern of a bucket rule is {len(expression)} characters long, more than {_MAX_PATTERN}.",
            hint="Write several rules.",
        )
    options = re2.Options()
    options.log_errors = False
    try:
        search = re2.compile(expression, options=options).search
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InvalidRule(
            f"The pattern {expression!r} of a bucket rule cannot be used: {reason}.",
            hint="Patterns follow RE2 (github.com/google/re2/wiki/Syntax), which has neither look-around nor back "
            "references, so that no pattern can run for ever.",
        ) from error
    return lambda partition_path: search(partition_path) is not None


_ENGINES: dict[str, Engine] = {"regex": _regex}
