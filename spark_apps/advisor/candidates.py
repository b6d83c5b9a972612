"""Indexes that may serve a workload: made of the columns that its queries bound, join, sum and order by."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from spark_apps.advisor.limits import MAX_CANDIDATES, MAX_KEYS
from spark_apps.advisor.questions import Question, Questions
from spark_apps.indexes.ranges import NOTHING
from spark_apps.indexes.registry import available, others
from spark_apps.indexes.skipping.definition import shown_part
from spark_apps.layout.hashing import can_bound
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.schema import quote
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.predicates import KeySet, Opaque, Predicate, columns_of, keys_for, may_match, walk

_PLAIN = re.compile(r"[^A-Za-z0-9_]+")
_COMPARED = ("string", "date", "boolean", "timestamp", "timestamp_ntz", "decimal", "binary")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Given = dict[str, Any]
"""An index as :func:`~spark_apps.advisor.hypothetical.definition_of` takes it."""


def candidates(snapshot: Snapshot, questions: Questions, taken: Collection[str] = ()) -> list[Given]:
    """Return the indexes that may serve a workload, without those that the table has.

    :param taken: names that are not free.
    """
    made = _Candidates(snapshot, questions)
    for question in questions.all:
        made.of_question(question)
    made.joined()
    return made.named({name.lower() for name in taken})


class _Candidates:
    """Candidates while they are made: each with the bytes a day of the queries that asked for it."""

    def __init__(self, snapshot: Snapshot, questions: Questions) -> None:
        self._snapshot = snapshot
        self._questions = questions
        self._types = {field.name: parse_type(field.type) for field in snapshot.table.fields}
        self._partitions = frozenset(snapshot.table.partition_by) if snapshot.table.source is None else frozenset()
        self._others = others()
        self._weights: dict[tuple[Any, ...], float] = {}
        self._parts: dict[str, float] = {}
        self._covering: dict[tuple[str, str], dict[str, float]] = {}

    def of_question(self, question: Question) -> None:
        weight = question.a_day
        equal, bounded, texts = self._bounds(question.predicate)
        for name in equal:
            if self._is_key_type(name):
                self._add("secondary", (name,), weight=weight)
            self._add("compact", (name,), weight=weight * 0.5)
        pair = [name for name in equal if self._is_key_type(name)][:2]
        if len(pair) == 2:
            self._add("secondary", tuple(pair), weight=weight * 0.5)
        key = self._snapshot.table.record_key
        if key and set(key) <= set(equal) and self._record_is_free():
            self._add("record", (), weight=weight)
        for name in equal:
            self._part(f"bloom({_shown(name)})", weight)
        for name in (*equal, *bounded):
            self._part(f"minmax({_shown(name)})", weight)
        for kind, handler in self._others.items():
            for columns in handler.proposed(self._snapshot.table, equal, bounded):
                self._add(kind, tuple(columns), weight=weight)
        for name in texts:
            self._part(f"ngrams({_shown(name)})", weight)
        self._of_expressions(question.predicate, weight)
        for name, layout in self._leading(question, equal, bounded):
            included = tuple(one for one in question.columns if one != name)
            self._add("covering", (name,), included, layout, weight=weight)
            joined = self._covering.setdefault((name, layout), {})
            for one in included:
                joined[one] = joined.get(one, 0.0) + weight

    def _bounds(self, predicate: Predicate | None) -> tuple[list[str], list[str], list[str]]:
        """Return the columns of which a predicate allows some values, only a range, and only texts that hold others."""
        equal, bounded, texts = list[str](), list[str](), list[str]()
        if predicate is None:
            return equal, bounded, texts
        for name in sorted(columns_of(predicate)):
            if name in self._partitions or name not in self._types:
                continue
            if isinstance(keys_for(predicate, (name,), MAX_KEYS), KeySet):
                equal.append(name)
            elif not may_match(predicate, {name: NOTHING}):
                bounded.append(name)
        for node in walk(predicate):
            if isinstance(node, Opaque) and node.implied is not None and node.implied.column in self._types:
                texts.append(node.implied.column)
        return equal, bounded, list(dict.fromkeys(texts))

    def _of_expressions(self, predicate: Predicate | None, weight: float) -> None:
        """Add what a skipping index could keep of the expressions that a predicate compares."""
        if predicate is None:
            return
        held = {node.implied.column for node in walk(predicate) if isinstance(node, Opaque) and node.implied}
        for one in self._questions.expressions.values():
            kinds = ["ngrams"] if one.key in held else []
            if isinstance(keys_for(predicate, (one.key,), MAX_KEYS), KeySet):
                kinds += ["bloom", "minmax"]
            elif not may_match(predicate, {one.key: NOTHING}):
                kinds += ["minmax"]
            for kind in kinds:
                self._part(shown_part(kind, one), weight)

    def _leading(self, question: Question, equal: Sequence[str], bounded: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Yield the columns that a covering index of a query could be laid by, and how."""
        led = False
        for name in (*equal, *bounded):
            if self._is_key_type(name):
                led = True
                yield name, "ranges" if can_bound(self._types[name]) else "hash"
        for name in (*question.join_keys[:1], *(() if led else question.group_keys[:1])):
            if self._is_key_type(name) and name not in self._partitions:
                yield name, "buckets"
        for name in question.order[:1]:
            if not led and self._is_key_type(name) and can_bound(self._types[name]):
                yield name, "ranges"

    def _is_key_type(self, name: str) -> bool:
        kind: ColumnType = self._types[name]
        return kind.is_integer or kind.kind in _COMPARED

    def _record_is_free(self) -> bool:
        table = self._snapshot.table
        there = (available(entry.definition.kind) for entry in self._snapshot.state.indexes.values())
        return not table.bucketed and not any(handler is not None and handler.unique_keys for handler in there)

    def _add(
        self, kind: str, columns: tuple[str, ...], included: tuple[str, ...] = (), layout: str = "", *, weight: float
    ) -> None:
        key = (kind, columns, tuple(sorted(included)), layout)
        self._weights[key] = self._weights.get(key, 0.0) + weight

    def _part(self, text: str, weight: float) -> None:
        self._parts[text] = self._parts.get(text, 0.0) + weight
        self._add("skipping", (text,), weight=weight)

    def joined(self) -> None:
        """Add candidates that serve several queries: one skipping index, and covering ones by the same column."""
        if len(self._parts) > 1:
            self._add("skipping", tuple(sorted(self._parts)), weight=sum(self._parts.values()))
        for (name, layout), included in self._covering.items():
            weight = sum(included.values()) / max(len(included), 1)
            self._add("covering", (name,), tuple(included), layout, weight=weight)

    def named(self, taken: set[str]) -> list[Given]:
        """Return the candidates that weigh most, each under a name of its own."""
        there = {_key_of(entry.definition) for entry in self._snapshot.state.indexes.values()}
        ordered = sorted((-weight, key) for key, weight in self._weights.items() if key not in there)
        given: list[Given] = []
        used = set(taken)
        for _, (kind, columns, included, layout) in ordered[:MAX_CANDIDATES]:
            name = _name(kind, columns, used)
            used.add(name.lower())
            one: Given = {"kind": kind, "columns": list(columns), "name": name}
            if included:
                one["included"] = [column for column in self._snapshot.data.columns if column in included]
            if layout:
                one["properties"] = {"layout": layout}
            given.append(one)
        return given


def _key_of(definition: Any) -> tuple[Any, ...]:
    layout = definition.properties.get("layout", "hash") if definition.kind == "covering" else ""
    return definition.kind, definition.columns, tuple(sorted(definition.included)), layout


def _shown(name: str) -> str:
    """Return a column as a part of a skipping index names it."""
    return name if _PLAIN_NAME.fullmatch(name) else quote(name)


def _name(kind: str, columns: Sequence[str], used: Collection[str]) -> str:
    """Return a free name for an index, made of what it is over."""
    names = [re.sub(r"^\w+\(|\)$", "", one) if kind == "skipping" else one for one in columns] or ["key"]
    parts = [_PLAIN.sub("_", name).strip("_").lower() or "column" for name in dict.fromkeys(names)]
    stem = {"skipping": "skip", "covering": "cover", "compact": "blocks"}.get(kind, "by")
    plain = f"{stem}_{'_'.join(parts[:3])}"[:100]
    numbers = iter(range(2, len(used) + 3))
    name = plain
    while name.lower() in used:
        name = f"{plain}_{next(numbers)}"
    return name
