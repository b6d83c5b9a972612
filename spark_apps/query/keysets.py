"""What a predicate says about the values of some columns: a finite set of keys, nothing at all, or no bound.

"Cannot prune" and "nothing matches" are different types, so that neither can be taken for an empty set. Key
sets are supersets: a row that satisfies the predicate has a key in the set; the predicate is still applied to the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.indexes.ranges import Range
from spark_apps.query.tree import (
    And,
    Comparison,
    Fixed,
    In,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    less,
    reasons,
)

DEFAULT_LIMIT = 100_000
_MEETINGS = 4
"""So many times the limit of keys, boxes are held against boxes at most for one AND."""
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class KeySet:
    """Every matching row has one of these keys: tuples of values in the order of ``columns``, ``None`` for null."""

    columns: tuple[str, ...]
    keys: frozenset[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class CannotPrune:
    """The predicate does not bound the keys; ``reason`` says why, for ``explain``."""

    reason: str


@dataclass(frozen=True, slots=True)
class NothingMatches:
    """No row whatever satisfies the predicate."""


def keys_for(
    predicate: Predicate, columns: Sequence[str], limit: int = DEFAULT_LIMIT
) -> KeySet | CannotPrune | NothingMatches:
    """The keys that rows satisfying a predicate can have.

    :param columns: the key's columns by their names in the table, in order.
    :param limit: more keys than this are "cannot prune".
    """
    boxes = _Solver(tuple(columns), limit).boxes(predicate, wanted=True)
    if not boxes:
        return NothingMatches()
    for place, column in enumerate(columns):
        if any(box[place].values is None for box in boxes):
            why = "; ".join(reasons(predicate)[:3])
            return CannotPrune(f"no finite set of values for column {column!r}" + (f" ({why})" if why else ""))
    keys: set[tuple[Any, ...]] = set()
    for box in boxes:
        size = 1
        for domain in box:
            size *= len(domain.values or ())
        if size <= limit:
            keys.update(itertools.product(*(domain.values or () for domain in box)))
        if size > limit or len(keys) > limit:
            return CannotPrune(f"more than {limit:,} keys")
    return KeySet(tuple(columns), frozenset(keys)) if columns else CannotPrune("no columns were asked for")


def may_match(predicate: Predicate, values: Mapping[str, Any]) -> bool:
    """Whether a row with these values can satisfy the predicate; columns not given may hold anything.

    For partitions: a ``False`` means that no row of a partition with these (normalized) values matches. A value may be
    a :class:`~spark_apps.indexes.ranges.Range`: then it means that no row with a value in it does.
    """
    return True in outcomes(predicate, values)


# --- key sets -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Domain:
    """What one column may hold: some values, or (``None``) whatever passes all tests."""

    values: frozenset[Any] | None = None
    tests: tuple[Callable[[Any], bool], ...] = ()

    def meet(self, other: _Domain) -> _Domain:
        if self.values is None and other.values is None:
            return _Domain(None, (*self.tests, *other.tests))
        if self.values is not None and other.values is not None:
            return _Domain(self.values & other.values)
        values, tests = (self.values, other.tests) if self.values is not None else (other.values, self.tests)
        assert values is not None
        return _Domain(frozenset(value for value in values if all(test(value) for test in tests)))


_ANYTHING = _Domain()
# One domain per column; the rows of a box are those whose every column lies in its domain.
_Box = tuple[_Domain, ...]


@dataclass(frozen=True, slots=True)
class _Solver:
    """Finds boxes that together hold every row for which a predicate has the wanted outcome."""

    columns: tuple[str, ...]
    limit: int

    def boxes(self, node: Predicate, wanted: bool) -> list[_Box]:
        match node:
            case Not():
                return self.boxes(node.part, not wanted)
            case And() | Or():
                parts = [self.boxes(part, wanted) for part in node.parts]
                return self._all(parts) if isinstance(node, And) == wanted else self._any(parts)
            case Fixed():
                return self._everything() if node.outcome is wanted else []
            case Opaque():
                return self._everything()
        domain = _domain(node, wanted)
        if domain.values is not None and not domain.values:
            return []
        return [tuple(domain if column == node.column else _ANYTHING for column in self.columns)]

    def _everything(self) -> list[_Box]:
        return [(_ANYTHING,) * len(self.columns)]

    def _any(self, parts: Iterable[list[_Box]]) -> list[_Box]:
        """The union. Boxes that bound one and the same column, by values, become one."""
        single: dict[int, set[Any]] = {}
        others: list[_Box] = []
        for box in itertools.chain.from_iterable(parts):
            bounded = [place for place, domain in enumerate(box) if domain is not _ANYTHING]
            values = box[bounded[0]].values if len(bounded) == 1 else None
            if not bounded:
                return [box]
            if values is None:
                others.append(box)
            else:
                single.setdefault(bounded[0], set()).update(values)
        for place, values_of_place in single.items():
            box_of_place = [_ANYTHING] * len(self.columns)
            box_of_place[place] = _Domain(frozenset(values_of_place))
            others.append(tuple(box_of_place))
        return others if len(others) <= self.limit else self._everything()

    def _all(self, parts: list[list[_Box]]) -> list[_Box]:
        """The intersection. Where it would become too large, or take too long to find, one side alone is a superset of
        it."""
        parts.sort(key=len)
        met = self._everything()
        spent = 0
        for boxes in parts:
            # Each of thousands of conditions that hold an OR would be held against all that was left of those before.
            spent += len(met) * len(boxes)
            if len(met) * len(boxes) <= self.limit and spent <= _MEETINGS * self.limit:
                pairs = (tuple(map(_Domain.meet, one, other)) for one, other in itertools.product(met, boxes))
                met = [box for box in pairs if all(domain.values is None or domain.values for domain in box)]
        return met


def _domain(node: Comparison | In | IsNull, wanted: bool) -> _Domain:
    """The values of the node's column for which it has the outcome."""
    match node:
        case IsNull():
            return _Domain(frozenset((None,))) if wanted else _Domain(None, (_is_value,))
        case In():
            if wanted:
                return _Domain(node.values)
            if node.has_null:
                return _Domain(frozenset())
            # Spark's sets tell -0.0 from 0.0 where its comparisons do not, so floats are not excluded.
            kept = frozenset(value for value in node.values if not isinstance(value, float))
            return _Domain(None, (lambda value: value is not None and value not in kept,))
        case Comparison(op="=" | "<=>"):
            return _equal(node, wanted)
    op = node.op if wanted else _OPPOSITE[node.op]
    return _Domain(None, (lambda value: value is not None and _compare(value, op, node.literal),))


def _equal(node: Comparison, wanted: bool) -> _Domain:
    if wanted:
        return _Domain(frozenset((node.literal,)))
    if isinstance(node.literal, bool):
        other = {not node.literal} | ({None} if node.op == "<=>" else set())
        return _Domain(frozenset(other))
    if node.op == "=":
        return _Domain(None, (lambda value: value is not None and value != node.literal,))
    return _Domain(None, (lambda value: value is None or value != node.literal,))


def _is_value(value: Any) -> bool:
    return value is not None


def _compare(value: Any, op: str, literal: Any) -> bool:
    match op:
        case "<":
            return less(value, literal)
        case ">":
            return less(literal, value)
        case "<=":
            return not less(literal, value)
        case ">=":
            return not less(value, literal)
    return not less(value, literal) and not less(literal, value)


# --- known values -------------------------------------------------------------------------------------------

_ALL_OUTCOMES: frozenset[bool | None] = frozenset((True, False, None))


def outcomes(node: Predicate, values: Mapping[str, Any]) -> frozenset[bool | None]:
    """The outcomes that a predicate can have for a row of which some values are known."""
    match node:
        case Fixed():
            return frozenset((node.outcome,))
        case Opaque():
            return _ALL_OUTCOMES
        case Not():
            return frozenset(None if one is None else not one for one in outcomes(node.part, values))
        case And() | Or():
            return _joined([outcomes(part, values) for part in node.parts], strong=isinstance(node, Or))
    if node.column not in values:
        return _ALL_OUTCOMES
    value = values[node.column]
    return _within(node, value) if isinstance(value, Range) else frozenset((_outcome(node, value),))


def _within(node: Comparison | In | IsNull, held: Range) -> frozenset[bool | None]:
    """The outcomes for values of a range."""
    found: set[bool | None] = {_outcome(node, None)} if held.nulls else set()
    if not held.values:
        return frozenset(found)
    match node:
        case IsNull():
            found.add(False)
        case In():
            within = any(_compare(held.low, "<=", one) and _compare(one, "<=", held.high) for one in node.values)
            found |= {True, None if node.has_null else False} if within else {_outcome(node, held.low)}
        case Comparison(op="=" | "<=>"):
            # One end alone says true only if both do; between two ends that say false a true may lie.
            ends = {_compare(held.low, "=", node.literal), _compare(held.high, "=", node.literal)}
            within = _compare(held.low, "<=", node.literal) and _compare(node.literal, "<=", held.high)
            found |= ends | {within}
        case _:
            found |= {_compare(held.low, node.op, node.literal), _compare(held.high, node.op, node.literal)}
    return frozenset(found)


def _joined(parts: list[frozenset[bool | None]], strong: bool) -> frozenset[bool | None]:
    """Of OR (``strong`` true) or AND (false): one strong part decides, else a null, else all are weak."""
    found: set[bool | None] = set()
    if any(strong in part for part in parts):
        found.add(strong)
    if all(part & {None, not strong} for part in parts) and any(None in part for part in parts):
        found.add(None)
    if all((not strong) in part for part in parts):
        found.add(not strong)
    return frozenset(found)


def _outcome(node: Comparison | In | IsNull, value: Any) -> bool | None:
    if isinstance(node, IsNull):
        return value is None
    if isinstance(node, In):
        if value is None:
            return None
        if any(_compare(value, "=", one) for one in node.values):
            return True
        return None if node.has_null else False
    if node.op == "<=>":
        return value is not None and _compare(value, "=", node.literal)
    return None if value is None else _compare(value, node.op, node.literal)
