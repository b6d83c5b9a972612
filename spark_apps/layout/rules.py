"""Bucket counts of new partitions: the rules of one config, how they are written, the history of configs.

These follow the partition-level bucket index document (Hudi's RFC-89): rules are tried in their order and the first
that matches decides, newer configs before older ones, else the default. An engine defines what an expression means; the
timeline keeps the counts of existing partitions.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_apps.layout.hashing import check_bucket_count
from spark_apps.layout.partitions import parse_partition_path
from spark_apps.layout.plugins import Plugins
from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import InvalidRule
from spark_apps.timeline import hashing_config
from spark_apps.timeline.model import HashingConfig as ConfigEntry

GROUP = "airflow_provider_index.rule_engines"
"""Entry points: name of the engine -> class derived from :class:`RuleEngine`."""

ALLOWED = "AIRFLOW_PROVIDER_INDEX_RULE_ENGINES"
"""Environment variable: dotted paths of engine classes, separated by commas, that may be loaded."""

_MAX_EXPRESSION = 10_000

Matcher = Callable[[str], bool]
"""Whether a rule matches a partition, by its canonical path."""


class RuleEngine(ABC):
    """A language of bucket rules. One object serves all tables and threads: keep no state."""

    @abstractmethod
    def compile(self, expression: str) -> Matcher:
        """Return the test of partition paths that an expression describes.

        Paths are escaped as Hive does: ``dt=2024-11-11/r=x``.

        :raises InvalidRule: if the expression cannot be used.
        """

    def check(self, expression: str, columns: Mapping[str, str]) -> None:
        """Check an expression against the table that it is given to.

        :param columns: the table's partition columns and their Spark types.
        :raises InvalidRule: if it does not fit them.
        """
        return None


def check_length(expression: str) -> None:
    """Check the length of an expression.

    :raises InvalidRule: for an expression of more than 10,000 characters.
    """
    if len(expression) > _MAX_EXPRESSION:
        raise InvalidRule(
            f"The expression of a bucket rule is {len(expression)} characters long, more than {_MAX_EXPRESSION}.",
            hint="Write several rules.",
        )


class RegexEngine(RuleEngine):
    """Regular expressions, searched for **anywhere** in the canonical partition path, as the document's engine does.

    So ``11-11`` matches ``dt=2024-11-11``; write ``^…$`` to match the whole path. RE2 runs in time linear in the path
    whatever the pattern; what it lacks (look-around, back references) is refused.
    """

    def compile(self, expression: str) -> Matcher:
        import re2

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


# --- range ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(?P<moment>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?)(?![\w.:-])"
    r"|(?P<number>[+-]?\d+(?:\.\d+)?)(?![\w.:-])"
    r"|'(?P<text>(?:[^']|'')*)'"
    r"|(?P<and>and\b)"
    r"|`(?P<quoted>(?:[^`]|``)+)`"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|<|>|=))",
    re.IGNORECASE,
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_RANGE_HINT = (
    "Write comparisons of partition columns joined by 'and', such as 2024-11-01 <= dt < 2024-12-01 and region = 'eu'."
)


@dataclass(frozen=True)
class _Bound:
    column: str
    sign: str
    value: dt.datetime | decimal.Decimal | str

    def matches(self, text: str | None) -> bool:
        """Test whether a partition column's value, as its text in the path, is on the right side of the bound."""
        value = None if text is None else self._like_bound(text)
        return value is not None and _SIGNS[self.sign](value, self.value)

    def _like_bound(self, text: str) -> Any:
        """Return the text as a value of the bound's type; ``None`` if it is none."""
        if isinstance(self.value, str):
            return text
        if isinstance(self.value, decimal.Decimal):
            return _number(text) if _NUMBER.fullmatch(text) else None
        return _moment(text)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of columns that it can be compared with."""
        if isinstance(self.value, str):
            return ("string",)
        if isinstance(self.value, decimal.Decimal):
            return ("tinyint", "smallint", "int", "bigint", "decimal", "float", "double", "string")
        return ("date", "timestamp", "timestamp_ntz", "string")


class RangeEngine(RuleEngine):
    """Typed bounds on partition columns: ``2024-11-01 <= dt < 2024-12-01 and 3 < hour <= 5``.

    Comparisons (``< <= > >= =``) joined by ``and``; a column with a bound on either side, or on both. A date or
    timestamp is written bare (``2024-11-01``, ``2024-11-01 08:30``; timestamps of a path are UTC), so is a number; text
    in single quotes, one inside doubled. A value that is null, or cannot be read as the bound's type, does not match. A
    text column may hold dates or numbers. Names of columns are case-insensitive; backquotes allow any name.
    """

    def compile(self, expression: str) -> Matcher:
        bounds = _bounds(expression)

        def matches(partition_path: str) -> bool:
            values = {name.lower(): text for name, text in parse_partition_path(partition_path).items()}
            return all(bound.matches(values.get(bound.column)) for bound in bounds)

        return matches

    def check(self, expression: str, columns: Mapping[str, str]) -> None:
        types = {name.lower(): parse_type(text) for name, text in columns.items()}
        for bound in _bounds(expression):
            if bound.column not in types:
                raise InvalidRule(
                    f"The rule {expression!r} speaks of {bound.column!r}, which is no partition column.",
                    hint=f"The partition columns are: {', '.join(columns) or 'none'}.",
                )
            if types[bound.column].kind not in bound.kinds:
                raise InvalidRule(
                    f"The rule {expression!r} compares {bound.column!r}, of type {types[bound.column].text!r}, with "
                    f"the {_kind_of(bound.value)} {bound.value}.",
                    hint="Write dates bare as 2024-11-01, numbers bare, and text in single quotes.",
                )


def _kind_of(value: object) -> str:
    return "text" if isinstance(value, str) else "number" if isinstance(value, decimal.Decimal) else "date"


def _bounds(expression: str) -> tuple[_Bound, ...]:
    comparisons: list[list[tuple[str, str]]] = [[]]
    position, text = 0, expression.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise _no_range(expression, f"{text[position:].strip()[:20]!r} is not understood")
        kind = str(token.lastgroup)
        if kind == "and":
            comparisons.append([])
        else:
            comparisons[-1].append((kind, token[kind]))
        position = token.end()
    return tuple(bound for parts in comparisons for bound in _comparison(expression, parts))


def _comparison(expression: str, parts: Sequence[tuple[str, str]]) -> list[_Bound]:
    """Return the bounds of ``value < column <= value``, ``column < value`` or ``value < column``."""
    operands, signs = parts[::2], [text for _, text in parts[1::2]]
    columns = [n for n, (kind, _) in enumerate(operands) if kind in ("name", "quoted")]
    alternate = [(kind == "sign") for kind, _ in parts] == [n % 2 == 1 for n in range(len(parts))]
    if not alternate or len(parts) not in (3, 5) or len(columns) != 1 or (len(parts) == 5 and columns != [1]):
        raise _no_range(expression, "a comparison holds one column and a bound before it, behind it, or both")
    if len(signs) == 2 and (signs[0][0] != signs[1][0] or "=" in signs):
        raise _no_range(expression, f"{signs[0]} and {signs[1]} do not make a range")
    index = columns[0]
    kind, name = operands[index]
    column = (name.replace("``", "`") if kind == "quoted" else name).lower()
    bounds = []
    for n, operand in enumerate(operands):
        if n != index:
            sign = signs[min(n, index)]
            bounds.append(_Bound(column, _MIRRORED[sign] if n < index else sign, _value(expression, *operand)))
    return bounds


def _value(expression: str, kind: str, text: str) -> dt.datetime | decimal.Decimal | str:
    if kind == "text":
        return text.replace("''", "'")
    if kind == "number":
        number = _number(text)
        if number is None:
            raise _no_range(expression, f"there is no number {text[:50]}")
        return number
    moment = _moment(text)
    if moment is None:
        raise _no_range(expression, f"there is no {text}")
    return moment


def _number(text: str) -> decimal.Decimal | None:
    """Return a number; ``None`` for one beyond all that Python knows, as 1e99999999999999999999."""
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        return None


def _moment(text: str) -> dt.datetime | None:
    if not _MOMENT.fullmatch(text):
        return None
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def _no_range(expression: str, reason: str) -> InvalidRule:
    return InvalidRule(f"The range {expression!r} of a bucket rule cannot be used: {reason}.", hint=_RANGE_HINT)


# --- finding them ---------------------------------------------------------------------------------------------------

_ENGINES: Plugins[RuleEngine] = Plugins(
    "rule engine",
    RuleEngine,  # type: ignore[type-abstract]
    GROUP,
    ALLOWED,
    {"regex": RegexEngine(), "range": RangeEngine()},
    f"{__name__}.allow",
)


def find_engine(name: str) -> RuleEngine:
    """Return the engine of this name.

    :raises InvalidRule: if there is none, naming those that are known.
    """
    return _ENGINES.find(name)


def register(name: str, engine: RuleEngine) -> None:
    """Register an engine in this process.

    :raises InvalidRule: if the name is taken: tables persist it.
    """
    _ENGINES.register(name, engine)


def allow(*classes: str) -> None:
    """Allow engines named by these dotted class paths (``package.module.Class``) to be loaded in this process."""
    _ENGINES.allow(*classes)


# --- Which bucket count a new partition gets ------------------------------------------------------------------------


DEFAULT_ENGINE = "regex"

Expressions = str | Sequence[tuple[str, int]]
"""Rules as a user gives them: the document's string form, or pairs of expression and count."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An expression, in the engine's language, and the bucket count of the partitions that it matches."""

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

    In the string form the *last* comma of a rule is the one before its count, so ``\\d{1,2},8`` needs no escape.
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
        engine = find_engine(self.rule)
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
        """Test whether two are the same rules, however they were written."""
        return (self.rule, self.rules, self.default) == (other.rule, other.rules, other.default)

    def check(self, columns: Mapping[str, str]) -> BucketRules:
        """Return the rules themselves, if they fit a table with these partition columns (name -> Spark type).

        :raises InvalidRule: if one does not fit, naming it.
        """
        for rule in self.rules:
            find_engine(self.rule).check(rule.expression, columns)
        return self

    def matched(self, partition_path: str) -> Rule | None:
        """Return the first rule that matches a partition path, or ``None``."""
        for rule, matches in zip(self.rules, self._matchers, strict=True):
            if matches(partition_path):
                return rule
        return None

    def count_for(self, partition_path: str) -> int:
        """Return the bucket count of a new partition, by the first rule that matches its path, else the default."""
        rule = self.matched(partition_path)
        return self.default if rule is None else rule.count


@dataclass(frozen=True)
class HashingConfig:
    """The configs that a table has had, oldest first, each with the instant that put it in force.

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
        """Return the config after a change.

        :raises InvalidRule: if the instant is not later than the newest.
        """
        return HashingConfig((*self.versions, (instant, rules)))

    def count_for(self, partition_path: str) -> int:
        """Return the bucket count of a new partition."""
        for _, rules in reversed(self.versions):
            if (rule := rules.matched(partition_path)) is not None:
                return rule.count
        return self.newest.default

    def to_json(self) -> str:
        """Return the text of the document's ``<instant>.hashing_config`` file: every version under its instant."""
        entries = (ConfigEntry(at, rules.default, rules.rule, rules.text or None) for at, rules in self.versions)
        return hashing_config.config_body(entries).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> HashingConfig:
        """Read such a file.

        :raises InvalidRule: if it is not one, or holds a rule that this process cannot use.
        """
        return cls.of(hashing_config.read_config(text))

    @classmethod
    def of(cls, entries: Iterable[ConfigEntry]) -> HashingConfig:
        """Return the config of the entries that the log holds.

        :raises InvalidRule: if an engine is not known in this process.
        """
        return cls(tuple((e.instant, BucketRules(e.rule, e.expressions or "", e.default)) for e in entries))


# --- the string form ----------------------------------------------------------------------------------------


def parse_expressions(text: str) -> tuple[Rule, ...]:
    """Return the rules of the string form; see :class:`BucketRules` for its grammar.

    :raises InvalidRule: if a rule lacks an expression or a count, or its count is none; names the rule.
    """
    parts = _split(text, ";")
    if not parts[-1].strip():
        parts.pop()
    return tuple(_parse_rule(part, number) for number, part in enumerate(parts, 1))


def render_expressions(rules: Iterable[Rule]) -> str:
    """Return the string form of rules, from which :func:`parse_expressions` makes the same rules."""
    return ";".join(
        "".join("\\;" if token == ";" else token for token in _tokens(rule.expression)) + f",{rule.count}"
        for rule in rules
    )


def _tokens(text: str) -> Iterator[str]:
    """Yield single characters, and a backslash together with the one behind it."""
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
    """Return the expression for the engine: escaped commas and semicolons are those signs, all else stays."""
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
            hint="Write the count after the last comma of a rule, as in \\d{4}-11-11,256.",
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
    """Test whether the backslashes at the end are pairs, so that none would take along what follows."""
    return (len(expression) - len(expression.rstrip("\\"))) % 2 == 0
