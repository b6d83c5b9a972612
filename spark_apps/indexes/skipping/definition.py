"""The parts of a skipping index as they are written, what is kept of which expression, and its properties.

A part is ``minmax(ts)``: a kind of summary, and in parentheses a column, a nested field or an expression. The types of
expressions are those that Spark gave when the index was made; the definition keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spark_apps.indexes.computed import types_of
from spark_apps.indexes.expressions import Expression, NotIndexable, is_comparable, parse
from spark_apps.indexes.limits import MAX_LISTED_VALUES
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.schema import column_types
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput, InvalidSchema
from spark_apps.timeline.model import IndexDefinition, TableDefinition

KINDS = ("minmax", "values", "bloom", "ngrams", "nulls", "counts")
"""The summaries that there are."""

MAX_VALUES = "most_values"
"""Property: of a file with more distinct values than this, ``values`` keeps none."""

FALSE_POSITIVES = "false_positive_rate"
"""Property: how often ``bloom`` takes a value for one that a file may hold, if it does not."""

GRAM_BYTES = "gram_bytes"
"""Property: the bytes of text in one entry of ``ngrams``."""

GRANULARITY = "granularity"
"""Property: what a record is kept of, a data file or each of its row groups too."""

TYPES = "expression_types"
"""Property, written with the definition: the Spark types of the expressions, in their order."""

GRANULARITIES = ("file", "row_group")

DEFAULTS = {MAX_VALUES: "64", FALSE_POSITIVES: "0.002", GRAM_BYTES: "4", GRANULARITY: GRANULARITIES[0]}

_WITH_ROW_GROUPS = ("parquet", "delta", "iceberg")
_MIN_RATE = 1e-6
_PART = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """An expression, and the summaries that are kept of it."""

    expression: Expression
    kinds: frozenset[str]
    type: ColumnType

    @property
    def comparable(self) -> bool:
        return is_comparable(self.type.text)


@dataclass(frozen=True)
class Settings:
    """The properties of an index, as numbers."""

    most_values: int
    false_positives: float
    gram_bytes: int
    row_groups: bool = False


def settings_of(properties: Mapping[str, str], label: str) -> Settings:
    """Return the properties as numbers.

    :raises InvalidInput: if one is not what it can be.
    """
    return Settings(
        _whole_number(properties, MAX_VALUES, 1, MAX_LISTED_VALUES, label),
        _rate(properties, label),
        _whole_number(properties, GRAM_BYTES, 2, 16, label),
        keeps_row_groups(properties, label),
    )


def keeps_row_groups(properties: Mapping[str, str], label: str) -> bool:
    """Return whether there are records of row groups beside those of files.

    :raises InvalidInput: if the property says neither.
    """
    text = properties.get(GRANULARITY, DEFAULTS[GRANULARITY])
    if text not in GRANULARITIES:
        raise InvalidInput(
            f"{label} has {GRANULARITY} = {text!r}.", hint=f"Give {' or '.join(map(repr, GRANULARITIES))}."
        )
    return text == GRANULARITIES[1]


def _whole_number(properties: Mapping[str, str], name: str, least: int, most: int, label: str) -> int:
    text = properties.get(name, DEFAULTS[name])
    if not text.isdecimal() or not text.isascii() or len(text) > 6 or not least <= int(text) <= most:
        raise InvalidInput(
            f"{label} has {name} = {text!r}.", hint=f"Give a whole number from {least} to {most:,}; by default it is "
            f"{DEFAULTS[name]}.",
        )  # fmt: skip
    return int(text)


def _rate(properties: Mapping[str, str], label: str) -> float:
    text = properties.get(FALSE_POSITIVES, DEFAULTS[FALSE_POSITIVES])
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not _MIN_RATE <= rate <= 0.5:
        raise InvalidInput(
            f"{label} has {FALSE_POSITIVES} = {text!r}.",
            hint=f"Give a number from {_MIN_RATE} to 0.5; by default it is {DEFAULTS[FALSE_POSITIVES]}.",
        )
    return rate


def checked_properties(given: Mapping[str, str], label: str) -> dict[str, str]:
    """Return the properties, completed; those with a point in their name are the user's own.

    :raises InvalidInput: if one is not known, or not what it can be.
    """
    known = {*DEFAULTS, TYPES}
    unknown = sorted(name for name in given if name not in known and "." not in name)
    if unknown:
        raise InvalidInput(
            f"The index property {unknown[0]!r} is not one of kind 'skipping'.",
            hint=f"Known are {', '.join(DEFAULTS)}; notes of your own have a point in their name, as 'team.owner'.",
        )
    settings_of(given, label)
    return {**DEFAULTS, **given}


# --- Parts ------------------------------------------------------------------------------------------------------------


def read_parts(texts: Sequence[str], types: Mapping[str, str], label: str) -> list[tuple[str, Expression]]:
    """Return what is written in the parts of an index, in their order: a kind of summary, and the expression.

    :param types: the table's columns and their Spark types.
    :raises InvalidInput: if one is no part, or its expression cannot be indexed.
    """
    parts: list[tuple[str, Expression]] = []
    for text in texts:
        match = _PART.fullmatch(text)
        kind = match[1].lower() if match else ""
        if match is None or kind not in KINDS:
            raise InvalidInput(
                f"{label} does not say what is kept: {text!r}.",
                hint=f"Write one of {', '.join(KINDS)} with a column or an expression, as in 'minmax(ts)' or "
                "'values(lower(city))'.",
            )
        try:
            parts.append((kind, parse(match[2], types)))
        except NotIndexable as error:
            raise InvalidInput(
                f"{label} cannot keep {text!r}: {error}.",
                hint="Use columns, nested fields, and expressions of them that always give the same for a row.",
            ) from error
    return parts


def shown_part(kind: str, expression: Expression) -> str:
    """Return a part as the definition of an index has it."""
    shown = expression.shown
    return f"{kind}{shown}" if shown.startswith("(") and shown.endswith(")") else f"{kind}({shown})"


@lru_cache(maxsize=256)
def _parts_of(
    types: tuple[tuple[str, str], ...], columns: tuple[str, ...]
) -> tuple[tuple[Expression, frozenset[str]], ...]:
    by_text: dict[str, tuple[Expression, set[str]]] = {}
    for kind, expression in read_parts(columns, dict(types), "An index"):
        by_text.setdefault(expression.text, (expression, set()))[1].add(kind)
    return tuple((expression, frozenset(kinds)) for expression, kinds in by_text.values())


def parts_of(table: TableDefinition, definition: IndexDefinition) -> tuple[Part, ...]:
    """Return what an index keeps, each expression once.

    :raises InvalidInput: if the definition is none that was made by :func:`read_parts` over columns that there are, or
        has other types than expressions.
    """
    types = column_types(table.fields)
    read = _parts_of(tuple(types.items()), definition.columns)
    computed = iter(_types(definition))
    parts = []
    for expression, kinds in read:
        text = types[expression.column] if expression.column is not None else next(computed, None)
        if text is None:
            raise InvalidInput(
                f"The index {definition.name!r} does not state the type of {expression.shown}.",
                hint="Drop the index, and create it again.",
            )
        parts.append(Part(expression, kinds, parse_type(text)))
    return tuple(parts)


def _types(definition: IndexDefinition) -> list[str]:
    try:
        types = json.loads(definition.properties.get(TYPES, "[]"))
    except (ValueError, RecursionError):
        types = None
    if not isinstance(types, list) or not all(isinstance(text, str) for text in types):
        raise InvalidInput(
            f"The index {definition.name!r} has no list of types in its property {TYPES!r}.",
            hint="Drop the index, and create it again.",
        )
    return types


def with_types(snapshot: Snapshot, definition: IndexDefinition, label: str) -> dict[str, str]:
    """Return the properties of an index with the types that Spark gives its expressions.

    :raises InvalidInput: if Spark cannot evaluate one.
    """
    read = _parts_of(tuple(column_types(snapshot.table.fields).items()), definition.columns)
    computed = [expression for expression, _ in read if not expression.column]
    if not computed:
        return definition.properties
    types = [kind.simpleString() for kind in types_of(snapshot, computed, label)]
    return {**definition.properties, TYPES: json.dumps(types)}


def check_granularity(table: TableDefinition, definition: IndexDefinition, label: str) -> None:
    """Check that files of a table have row groups, where records of these are to be kept.

    :raises InvalidInput: naming the format of a source whose files have none.
    """
    source = table.source
    if source is None or source.format in _WITH_ROW_GROUPS or not keeps_row_groups(definition.properties, label):
        return
    raise InvalidInput(
        f"{label} has {GRANULARITY} = {GRANULARITIES[1]!r}, and files of format {source.format!r} have no row groups.",
        hint=f"Leave {GRANULARITY!r} out: a record is kept of each file.",
    )


def check_types(table: TableDefinition, definition: IndexDefinition, label: str) -> None:
    """Check that what is to be kept can be kept of values of these types.

    :raises InvalidSchema: naming the expression.
    """
    for part in parts_of(table, definition):
        more = part.kinds - {"nulls", "counts"}
        if more and not part.comparable:
            raise InvalidSchema(
                f"{label} keeps {min(more)} of {part.expression.shown}, which is of type {part.type.text}: its values "
                "are not compared one by one.",
                hint="Of such a column nulls and counts can be kept; of its fields more.",
            )
        if "ngrams" in part.kinds and part.type.kind != "string":
            raise InvalidSchema(
                f"{label} keeps ngrams of {part.expression.shown}, which is of type {part.type.text}.",
                hint="Texts are found in strings.",
            )
