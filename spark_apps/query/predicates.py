"""Predicates: the tree that one becomes, what it says about the values of columns, and whether Spark can evaluate it.

The tree holds only what can be decided from a column's own values, and an ``Opaque`` rest. Every node is true, false
or null for a row, as in SQL. Literals are already in the form in which they compare exactly with values of their
column, so this module knows nothing of casts; :mod:`spark_apps.query.parsing` reads the SQL.

"Cannot prune" and "nothing matches" are different types, so that neither can be taken for an empty set. Key sets are
supersets: a row that satisfies the predicate has a key in the set; the predicate is still applied to the rows.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spark_apps.engine.pyspark_names import T, spark_errors
from spark_apps.engine.spark_utils import errors_expected
from spark_apps.engine.spark_versions import message_of
from spark_apps.indexes.computed import shown_key
from spark_apps.indexes.ranges import Range, Summary
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.limits import MAX_EQUAL_VALUES, MAX_KEY_ALTERNATIVES, MAX_KEYS
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, UnknownColumn

# One NaN for all: sets and tuples compare by identity first, so keys that hold it are equal as in Spark.
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Fixed:
    """Has one outcome whatever the row: ``True``, ``False`` or null (``col = NULL``)."""

    outcome: bool | None
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Through:
    """Conclusions from a comparison of a column to an expression of it (:mod:`spark_apps.query.monotone`).

    :param where_true: is true of the expression wherever the comparison is true; :param where_false: where it is false.
    """

    where_true: Predicate
    where_false: Predicate


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op literal``; ``op`` is one of ``= <=> < <= > >=`` and the literal is not null."""

    column: str
    op: str
    literal: Any
    through: tuple[Through, ...] = ()


@dataclass(frozen=True, slots=True)
class In:
    """``column IN (values)``. With ``has_null`` the list held a null too, so the outcome is never false.

    Without values it is what a comparison becomes that no value of the column's type can meet (``int =
    1.5``).
    """

    column: str
    values: frozenset[Any]
    has_null: bool = False
    through: tuple[Through, ...] = ()


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; null stays null."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two or more parts."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two or more parts."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that the tree does not decide: it may be true, false or null for any row.

    :param text: its SQL, for people.
    :param columns: the table's columns in it.
    :param reason: why it was not understood.
    :param whole: it is about rows as a whole (``hash(*)``), so it means what it says only where the table's columns,
        and no others, are in their declared order.
    :param same: has the same outcome for every row, and speaks of expressions that an index holds values of.
    :param implied: is true wherever this is true.
    """

    text: str
    columns: frozenset[str]
    reason: str
    whole: bool = False
    same: Predicate | None = None
    implied: Holds | None = None


@dataclass(frozen=True, slots=True)
class Holds:
    """``column LIKE '…'``, as far as it is known: the column's value begins with one text and holds others.

    Only :attr:`Opaque.implied` is one.
    """

    column: str
    texts: tuple[str, ...]
    begins: str = ""


Predicate = Fixed | Comparison | In | IsNull | Not | And | Or | Opaque


@dataclass(frozen=True, slots=True)
class Filter:
    """The condition of a query: the tree by which it is planned, and its text for people and for Spark.

    :param sql: whether the text is Spark's SQL for the tree; else it is for people alone.
    :param parsed: whether the text was read; else the tree is opaque, for that would take too long.
    """

    predicate: Predicate
    text: str
    sql: bool = True
    parsed: bool = True

    def __str__(self) -> str:
        return self.text

    def __and__(self, other: Filter) -> Filter:
        parts = (*conjuncts(self.predicate), *conjuncts(other.predicate))
        # A comment at the end of a text would swallow what follows it, so both together are for people.
        return Filter(And(parts), f"({self.text}) AND ({other.text})", sql=False)


def conjuncts(predicate: Predicate | None) -> tuple[Predicate, ...]:
    """Return the conditions that a predicate joins by AND."""
    return () if predicate is None else predicate.parts if isinstance(predicate, And) else (predicate,)


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Return all nodes, parents before their parts."""
    stack = [predicate]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (And, Or)):
            stack.extend(reversed(node.parts))
        elif isinstance(node, Not):
            stack.append(node.part)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the columns that a reader needs to apply the predicate, by their names in the table."""
    columns: set[str] = set()
    for node in walk(predicate):
        if isinstance(node, (Comparison, In, IsNull)):
            columns.add(node.column)
        elif isinstance(node, (Fixed, Opaque)):
            columns |= node.columns
    return frozenset(columns)


def of_whole_rows(predicate: Predicate) -> bool:
    """Return whether a part of the predicate is about rows as a whole; see :attr:`Opaque.whole`."""
    return any(isinstance(node, Opaque) and node.whole for node in walk(predicate))


def reasons(predicate: Predicate) -> tuple[str, ...]:
    """Return why parts of the predicate cannot prune, each once, for ``explain``."""
    opaque = (node for node in walk(predicate) if isinstance(node, Opaque) and node.same is None)
    texts = (f"{node.text}: {node.reason}" for node in opaque)
    return tuple(dict.fromkeys(texts))


def predicate_of_keys(
    names: Sequence[str], keys: Collection[tuple[Any, ...]], null_safe: Sequence[bool] = ()
) -> Predicate:
    """Return a predicate that holds for all rows with one of some keys.

    Perhaps for others too, where keys are of several columns and many.

    :param null_safe: whether a null of a key meets one of the column, by column; no null does if it is not given.
    """
    safe = null_safe or (False,) * len(names)
    parts = [_among(name, {key[at] for key in keys}, safe[at]) for at, name in enumerate(names)]
    if len(names) > 1 and 1 < len(keys) <= MAX_KEY_ALTERNATIVES:
        singles = ([_among(name, {key[at]}, safe[at]) for at, name in enumerate(names)] for key in keys)
        parts.append(Or(tuple(And(tuple(each)) for each in singles)))
    return And(tuple(parts)) if len(parts) > 1 else parts[0]


def _among(column: str, values: set[Any], null_safe: bool) -> Predicate:
    # Where nulls meet, an outer join of the other side may have made one that its rows lack.
    listed = In(column, frozenset(value for value in values if value is not None))
    return Or((listed, IsNull(column))) if null_safe else listed


def less(left: Any, right: Any) -> bool:
    """Return ``left < right`` as Spark orders values of one column: NaN equals itself and is above every number."""
    if isinstance(left, float) and math.isnan(left):
        return False
    if isinstance(right, float) and math.isnan(right):
        return True
    return bool(left < right)


# --- What a predicate says of the values of columns -------------------------------------------------------------------


_MEETINGS = 4
"""How often the limit of keys boxes are intersected for one AND, at most."""
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What a comparison is with its sides exchanged; those that are not in it stay."""
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class KeySet:
    """Every matching row has one of these keys: tuples of values in the order of ``columns``, ``None`` for null."""

    columns: tuple[str, ...]
    keys: frozenset[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class UnboundedKeys:
    """The predicate does not bound the keys; ``reason`` says why, and ``code`` in a word, for ``explain``."""

    reason: str
    code: str = "no_keys"


@dataclass(frozen=True, slots=True)
class NothingMatches:
    """No row whatever satisfies the predicate."""


def keys_for(
    predicate: Predicate, columns: Sequence[str], limit: int = MAX_KEYS
) -> KeySet | UnboundedKeys | NothingMatches:
    """Return the keys that rows satisfying a predicate can have.

    :param columns: the key's columns by their names in the table, in order.
    :param limit: more keys than this are "cannot prune".
    """
    boxes = _Solver(tuple(columns), limit).boxes(predicate, outcome=True)
    if not boxes:
        return NothingMatches()
    for position, column in enumerate(columns):
        if any(box[position].values is None for box in boxes):
            why = "; ".join(reasons(predicate)[:3])
            return UnboundedKeys(
                f"no finite set of values for column {shown_key(column)!r}" + (f" ({why})" if why else "")
            )
    keys: set[tuple[Any, ...]] = set()
    for box in boxes:
        size = 1
        for domain in box:
            size *= len(domain.values or ())
        if size <= limit:
            keys.update(itertools.product(*(domain.values or () for domain in box)))
        if size > limit or len(keys) > limit:
            return UnboundedKeys(f"more than {limit:,} keys", "too_many_keys")
    return KeySet(tuple(columns), frozenset(keys)) if columns else UnboundedKeys("no columns were asked for")


def may_match(predicate: Predicate, values: Mapping[str, Any]) -> bool:
    """Return whether a row with these values can satisfy the predicate; columns not given may hold anything.

    For partitions: a ``False`` means that no row of a partition with these (normalized) values matches. A value may be
    a :class:`~spark_apps.indexes.ranges.Range`: then it means that no row with a value in it does.
    """
    return True in outcomes(predicate, values)


def always_matches(predicate: Predicate, values: Mapping[str, Any]) -> bool:
    """Return whether every row with these values satisfies the predicate."""
    return outcomes(predicate, values) == {True}


def said_of(predicate: Predicate, column: str) -> Predicate:
    """Return what a predicate demands of one column, whatever the others hold: nothing where these may decide."""
    match predicate:
        case And():
            return And(tuple(said_of(part, column) for part in predicate.parts))
        case Not(part=Or(parts=parts)):
            return And(tuple(said_of(Not(part), column) for part in parts))
        case Or() | Not() if any(isinstance(n, Opaque) for n in walk(predicate)) or columns_of(predicate) != {column}:
            return Fixed(True)
        case Opaque():
            return Fixed(True) if predicate.same is None else said_of(predicate.same, column)
        case Comparison() | In() | IsNull() if predicate.column != column:
            return Fixed(True)
    return predicate


def of_columns(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """Return what a predicate demands of some columns, whatever the others hold: true wherever it is true."""
    match predicate:
        case And():
            return And(tuple(of_columns(part, columns) for part in predicate.parts))
        case Or():
            return Or(tuple(of_columns(part, columns) for part in predicate.parts))
    understood = not any(isinstance(node, Opaque) for node in walk(predicate))
    return predicate if understood and columns_of(predicate) <= set(columns) else Fixed(True)


# --- key sets ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Domain:
    """The values that one column may hold: some, or (``None``) whatever passes all tests."""

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
# One domain per column; the rows of a box are those whose every column is in its domain.
_Box = tuple[_Domain, ...]


@dataclass(frozen=True, slots=True)
class _Solver:
    """Finds boxes that together hold every row for which a predicate has the wanted outcome."""

    columns: tuple[str, ...]
    limit: int

    def boxes(self, node: Predicate, outcome: bool) -> list[_Box]:
        match node:
            case Not():
                return self.boxes(node.part, not outcome)
            case And() | Or():
                parts = [self.boxes(part, outcome) for part in node.parts]
                return self._all(parts) if isinstance(node, And) == outcome else self._any(parts)
            case Fixed():
                return self._everything() if node.outcome is outcome else []
            case Opaque() if node.same is not None and not columns_of(node.same).isdisjoint(self.columns):
                return self.boxes(node.same, outcome)
            case Opaque():
                return self._everything()
        domain = _domain(node, outcome)
        if domain.values is not None and not domain.values:
            return []
        own = [tuple(domain if column == node.column else _ANYTHING for column in self.columns)]
        through = () if isinstance(node, IsNull) else node.through
        concluded = [each.where_true if outcome else each.where_false for each in through]
        of_expressions = [one for one in concluded if not columns_of(one).isdisjoint(self.columns)]
        return self._all([own, *(self.boxes(one, True) for one in of_expressions)]) if of_expressions else own

    def _everything(self) -> list[_Box]:
        return [(_ANYTHING,) * len(self.columns)]

    def _any(self, parts: Iterable[list[_Box]]) -> list[_Box]:
        """Return the union of boxes.

        Boxes that bound one and the same column, by values, become one.
        """
        single: dict[int, set[Any]] = {}
        others: list[_Box] = []
        for box in itertools.chain.from_iterable(parts):
            bounded = [position for position, domain in enumerate(box) if domain is not _ANYTHING]
            values = box[bounded[0]].values if len(bounded) == 1 else None
            if not bounded:
                return [box]
            if values is None:
                others.append(box)
            else:
                single.setdefault(bounded[0], set()).update(values)
        for position, position_values in single.items():
            position_box = [_ANYTHING] * len(self.columns)
            position_box[position] = _Domain(frozenset(position_values))
            others.append(tuple(position_box))
        return others if len(others) <= self.limit else self._everything()

    def _all(self, parts: list[list[_Box]]) -> list[_Box]:
        """Return the intersection of boxes.

        Where it would become too large, or take too long to find, one side alone is a superset of it.
        """
        parts.sort(key=len)
        met = self._everything()
        spent = 0
        for boxes in parts:
            # Each of thousands of conditions that hold an OR would be held against all that was left of those before.
            spent += len(met) * len(boxes)
            if len(met) * len(boxes) <= self.limit and spent <= _MEETINGS * self.limit:
                pairs = (tuple(map(_Domain.meet, box, other_box)) for box, other_box in itertools.product(met, boxes))
                met = [box for box in pairs if all(domain.values is None or domain.values for domain in box)]
        return met


def _domain(node: Comparison | In | IsNull, outcome: bool) -> _Domain:
    """Return the values of the node's column for which it has the outcome."""
    match node:
        case IsNull():
            return _Domain(frozenset((None,))) if outcome else _Domain(None, (lambda value: value is not None,))
        case In():
            if outcome:
                return _Domain(node.values)
            if node.has_null:
                return _Domain(frozenset())
            # Spark's sets distinguish -0.0 from 0.0 where its comparisons do not, so floats are not excluded.
            kept = frozenset(value for value in node.values if not isinstance(value, float))
            return _Domain(None, (lambda value: value is not None and value not in kept,))
        case Comparison(op="=" | "<=>"):
            return _equal(node, outcome)
    op = node.op if outcome else _OPPOSITE[node.op]
    return _Domain(None, (lambda value: value is not None and _compare(value, op, node.literal),))


def _equal(node: Comparison, outcome: bool) -> _Domain:
    if outcome:
        return _Domain(frozenset((node.literal,)))
    if isinstance(node.literal, bool):
        other = {not node.literal} | ({None} if node.op == "<=>" else set())
        return _Domain(frozenset(other))
    if node.op == "=":
        return _Domain(None, (lambda value: value is not None and value != node.literal,))
    return _Domain(None, (lambda value: value is None or value != node.literal,))


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


# --- known values ------------------------------------------------------------------------------------------

_ALL_OUTCOMES: frozenset[bool | None] = frozenset((True, False, None))


def outcomes(node: Predicate, values: Mapping[str, Any]) -> frozenset[bool | None]:
    """Return the outcomes that a predicate can have for a row of which some values are known."""
    match node:
        case Fixed():
            return frozenset((node.outcome,))
        case Opaque():
            return _of_opaque(node, values)
        case Not():
            return frozenset(None if outcome is None else not outcome for outcome in outcomes(node.part, values))
        case And() | Or():
            return _joined([outcomes(part, values) for part in node.parts], strong=isinstance(node, Or))
    if isinstance(node, IsNull) or not node.through:
        return _of_column(node, values)
    return _of_column(node, values) - _ruled_out(node.through, values)


def _of_column(node: Comparison | In | IsNull, values: Mapping[str, Any]) -> frozenset[bool | None]:
    """Return the outcomes by what is known of the column itself."""
    if node.column not in values:
        return _ALL_OUTCOMES
    value = values[node.column]
    if isinstance(value, Summary):
        return _summarised(node, value)
    return _within(node, value) if isinstance(value, Range) else frozenset((_outcome(node, value),))


def _ruled_out(through: Iterable[Through], values: Mapping[str, Any]) -> frozenset[bool | None]:
    """Return the outcomes that a comparison cannot have by what is known of expressions of its column."""
    ruled_out = set[bool | None]()
    for each in through:
        for outcome, of_expression in ((True, each.where_true), (False, each.where_false)):
            if True not in outcomes(of_expression, values):
                ruled_out.add(outcome)
    return frozenset(ruled_out)


def _of_opaque(node: Opaque, values: Mapping[str, Any]) -> frozenset[bool | None]:
    possible = _ALL_OUTCOMES if node.same is None else outcomes(node.same, values)
    if node.implied is not None and node.implied.column in values and not _may_hold(node.implied, values):
        possible -= {True}
    return possible


def _may_hold(node: Holds, values: Mapping[str, Any]) -> bool:
    """Return whether a row with these values can have the texts."""
    value = values[node.column]
    if isinstance(value, Range):
        return value.values and _may_begin(node, value)
    if not isinstance(value, Summary):
        return _has_texts(node, value)
    if not value.filled:
        return False
    if value.values is not None and not any(_has_texts(node, each) for each in value.values):
        return False
    if value.span is not None and not _may_begin(node, value.span):
        return False
    return value.may_contain is None or all(map(value.may_contain, (*node.texts, node.begins)))


def _may_begin(node: Holds, span: Range) -> bool:
    if isinstance(span.high, str) and span.high < node.begins:
        return False
    return not (isinstance(span.low, str) and span.low[: len(node.begins)] > node.begins)


def _has_texts(node: Holds, value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, str):
        return True  # bytes that are no text
    return value.startswith(node.begins) and all(text in value for text in node.texts)


def _summarised(node: Comparison | In | IsNull, known: Summary) -> frozenset[bool | None]:
    """Return the outcomes for values of which a summary is known."""
    possible: set[bool | None] = {_outcome(node, None)} if known.nulls else set()
    if not known.filled:
        return frozenset(possible)
    if isinstance(node, IsNull):
        return frozenset(possible | {False})
    if known.values is not None:
        possible |= {_outcome(node, value) for value in known.values}
        if isinstance(node, In) and any(isinstance(value, float) and value == 0 for value in known.values):
            # Spark's sets distinguish -0.0 from 0.0 where its comparisons do not.
            possible.add(None if node.has_null else False)
        return frozenset(possible)
    of_values: set[bool | None] = {True, False, None} if isinstance(node, In) and node.has_null else {True, False}
    if known.span is not None:
        of_values = set(_within(node, known.span))
    if not _may_equal(node, known):
        of_values = (of_values - {True}) or {False}
    return frozenset(possible | of_values)


def _may_equal(node: Comparison | In, known: Summary) -> bool:
    """Return whether a value that a node asks for can be among those of a summary."""
    if isinstance(node, In):
        if len(node.values) > MAX_EQUAL_VALUES:
            return True
        sought: Iterable[Any] = node.values
    elif node.op in ("=", "<=>"):
        sought = (node.literal,)
    else:
        return True
    return any(_may_be(value, known) for value in sought)


def _may_be(value: Any, known: Summary) -> bool:
    if known.may_equal is not None and not known.may_equal(value):
        return False
    return known.may_contain is None or not isinstance(value, str) or known.may_contain(value)


def _within(node: Comparison | In | IsNull, span: Range) -> frozenset[bool | None]:
    """Return the outcomes for values of a range."""
    possible: set[bool | None] = {_outcome(node, None)} if span.nulls else set()
    if not span.values:
        return frozenset(possible)
    match node:
        case IsNull():
            possible.add(False)
        case In():
            within = _has_value_within(node.values, span)
            possible |= {True, None if node.has_null else False} if within else {_outcome(node, span.low)}
        case Comparison(op="=" | "<=>"):
            # One end alone says true only if both do; between two ends that say false there may be a true.
            ends = {_compare(span.low, "=", node.literal), _compare(span.high, "=", node.literal)}
            within = _compare(span.low, "<=", node.literal) and _compare(node.literal, "<=", span.high)
            possible |= ends | {within}
        case _:
            possible |= {_compare(span.low, node.op, node.literal), _compare(span.high, node.op, node.literal)}
    return frozenset(possible)


def _has_value_within(values: frozenset[Any], span: Range) -> bool:
    ordered = _in_order(values)
    if ordered is None:
        return any(_compare(span.low, "<=", value) and _compare(value, "<=", span.high) for value in values)
    position = bisect_left(ordered, span.low)
    return position < len(ordered) and not ordered[position] > span.high


@lru_cache(maxsize=64)
def _in_order(values: frozenset[Any]) -> list[Any] | None:
    """Return values in their order, for a list may be held against thousands of ranges; ``None`` if they have none."""
    try:
        return None if any(isinstance(value, float) for value in values) else sorted(values)
    except TypeError:
        return None


def _joined(parts: list[frozenset[bool | None]], strong: bool) -> frozenset[bool | None]:
    """Return the outcomes of OR (``strong`` true) or AND (false).

    One strong part decides, else a null, else all are weak.
    """
    possible: set[bool | None] = set()
    if any(strong in part for part in parts):
        possible.add(strong)
    if all(part & {None, not strong} for part in parts) and any(None in part for part in parts):
        possible.add(None)
    if all((not strong) in part for part in parts):
        possible.add(not strong)
    return frozenset(possible)


def _outcome(node: Comparison | In | IsNull, value: Any) -> bool | None:
    if isinstance(node, IsNull):
        return value is None
    if isinstance(node, In):
        if value is None:
            return None
        if value in node.values:
            return True
        if isinstance(value, float) and any(_compare(value, "=", listed) for listed in node.values):
            return True
        return None if node.has_null else False
    if node.op == "<=>":
        return value is not None and _compare(value, "=", node.literal)
    return None if value is None else _compare(value, node.op, node.literal)


# --- Asks Spark whether it can evaluate a predicate on a table's columns -------------------------------------------


def check_predicate(snapshot: Snapshot, predicate: str) -> None:
    """Check that Spark can evaluate a predicate on the table's columns.

    :raises InvalidPredicate: if the predicate cannot be read.
    :raises UnknownColumn: naming what Spark said.
    """
    if not predicate.strip():
        raise InvalidPredicate("The predicate is empty.", hint="To act on all rows, write 'true'.")
    with translate_predicate_errors(snapshot, predicate):
        checked = snapshot.spark.createDataFrame([], snapshot.data.schema).where(predicate)
        assert isinstance(checked.schema, T.StructType)


@contextmanager
def translate_predicate_errors(snapshot: Snapshot, predicate: str) -> Iterator[None]:
    """Turn what Spark says of a predicate that is put into a plan into an error of this package.

    :raises InvalidPredicate: if the predicate cannot be read.
    :raises UnknownColumn: if a name is that of no column of the table.
    """
    try:
        with errors_expected():
            yield
    except spark_errors() as error:
        first = message_of(error)
        kind: type[InvalidInput] = UnknownColumn if "UNRESOLVED_COLUMN" in str(error) else InvalidPredicate
        raise kind(
            f"The predicate {predicate!r} cannot be used: {first}",
            hint=f"The table's columns are: {', '.join(snapshot.data.columns)}.",
        ) from error
