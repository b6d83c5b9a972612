"""Rule engines: what the expression of a bucket rule means, and which partitions it matches.

``regex`` and ``range`` are built in. A user's engine is a class, offered under the entry point group
:data:`GROUP` or allowed by its dotted path (:func:`allow`, or the environment variable :data:`ALLOWED`); a table that
names one never makes its code load by itself.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.layout.partitions import parse_partition_path
from spark_apps.layout.plugins import Plugins
from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import InvalidRule

GROUP = "airflow_provider_index.rule_engines"
"""Entry points: name of the engine -> class derived from :class:`RuleEngine`."""

ALLOWED = "AIRFLOW_PROVIDER_INDEX_RULE_ENGINES"
"""Environment variable: dotted paths of engine classes, separated by commas, that may be loaded."""

_MAX_EXPRESSION = 10_000

Matcher = Callable[[str], bool]
"""Whether a rule matches a partition, by its canonical path."""


class RuleEngine(ABC):
    """How the expressions of bucket rules are read. One object serves all tables and threads: keep no state."""

    @abstractmethod
    def compile(self, expression: str) -> Matcher:
        """The test of partition paths (``dt=2024-11-11/r=x``, escaped as Hive does) that an expression stands for.

        :raises InvalidRule: if the expression cannot be used.
        """

    def check(self, expression: str, columns: Mapping[str, str]) -> None:
        """Holds an expression against a table when it is given to it.

        :param columns: the table's partition columns and their Spark types.
        :raises InvalidRule: if it does not fit them.
        """
        return None


def check_length(expression: str) -> None:
    """:raises InvalidRule: for an expression of more than 10,000 characters."""
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
        """Whether a partition column's value, as its text in the path, lies on the right side."""
        value = None if text is None else self._like_bound(text)
        return value is not None and _SIGNS[self.sign](value, self.value)

    def _like_bound(self, text: str) -> Any:
        """The text as a value of the bound's type; ``None`` if it is none."""
        if isinstance(self.value, str):
            return text
        if isinstance(self.value, decimal.Decimal):
            return decimal.Decimal(text) if _NUMBER.fullmatch(text) else None
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
    stands in single quotes, one inside doubled. A value that is null, or cannot be read as the bound's type, does not
    match. A text column may hold dates or numbers. Names of columns are case-insensitive; backquotes allow any name.
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
    """The bounds of ``value < column <= value``, ``column < value`` or ``value < column``."""
    operands, signs = parts[::2], [text for _, text in parts[1::2]]
    columns = [n for n, (kind, _) in enumerate(operands) if kind in ("name", "quoted")]
    alternate = [(kind == "sign") for kind, _ in parts] == [n % 2 == 1 for n in range(len(parts))]
    if not alternate or len(parts) not in (3, 5) or len(columns) != 1 or (len(parts) == 5 and columns != [1]):
        raise _no_range(expression, "a comparison holds one column and a bound before it, behind it, or both")
    if len(signs) == 2 and (signs[0][0] != signs[1][0] or "=" in signs):
        raise _no_range(expression, f"{signs[0]} and {signs[1]} do not make a range")
    place = columns[0]
    kind, name = operands[place]
    column = (name.replace("``", "`") if kind == "quoted" else name).lower()
    bounds = []
    for n, operand in enumerate(operands):
        if n != place:
            sign = signs[min(n, place)]
            bounds.append(_Bound(column, _MIRRORED[sign] if n < place else sign, _value(expression, *operand)))
    return bounds


def _value(expression: str, kind: str, text: str) -> dt.datetime | decimal.Decimal | str:
    if kind == "text":
        return text.replace("''", "'")
    if kind == "number":
        return decimal.Decimal(text)
    moment = _moment(text)
    if moment is None:
        raise _no_range(expression, f"there is no {text}")
    return moment


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


def engine_named(name: str) -> RuleEngine:
    """The engine of this name. :raises InvalidRule: naming those that are known."""
    return _ENGINES.find(name)


def register(name: str, engine: RuleEngine) -> None:
    """Makes an engine known in this process. :raises InvalidRule: if the name is taken: tables persist it."""
    _ENGINES.register(name, engine)


def allow(*classes: str) -> None:
    """Lets engines named by these dotted class paths (``package.module.Class``) be loaded in this process."""
    _ENGINES.allow(*classes)
