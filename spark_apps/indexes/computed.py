"""Expressions in place of an index's columns: how its definition has them, and what Spark makes of them.

The definition names an expression among its columns as people write it; two properties say what it takes to use them:
the type that Spark gave each when the index was made, and the stamp of the session that computes its values. All values
in one index are of that one session: another neither adds any nor uses them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, F, StructField, StructType, spark_errors
from spark_apps.engine.spark_versions import message_of
from spark_apps.indexes.handler import CannotPrune
from spark_apps.indexes.stamps import stamp_of
from spark_apps.layout.hashing import check_hash_types
from spark_apps.mergetree.schema import check_key_types, column, column_types, resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.names import RESERVED_PREFIX
from spark_apps.timeline.features import EXPRESSIONS
from spark_apps.timeline.model import Field, IndexDefinition, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from spark_apps.indexes.expressions import Expression

STAMP = "expression_stamp"
"""Property, written with the definition: the stamp of the session that computes the values."""

_KEY_MARK = "\x1f"
"""The beginning of the name of an expression's values, which sets it apart from the names of columns."""

_SIGNS = frozenset("()+-*./%=<>|&")
"""A name that holds none of these, and is that of no column, is a name that was mistaken."""

_SHOWN = 200

_NAMELESS_TYPE = "CANNOT_PARSE_DATATYPE"
"""What pyspark says of the type of an expression that it cannot read, such as a text of indeterminate collation."""


@dataclass(frozen=True)
class Indexed:
    """A column or an expression that an index is over.

    :param name: as the definition has it.
    :param expression: ``None`` of a column.
    :param type: the Spark type that an expression had when the index was made; empty while it is not known.
    :param number: its place among them.
    """

    name: str
    expression: Expression | None = None
    type: str = ""
    number: int = 0

    @property
    def key(self) -> str:
        """The name of its values, in entries and where predicates are held against them."""
        return self.name if self.expression is None else self.expression.key

    @property
    def stored(self) -> str:
        """The name of its values in files of the index, which no column of a table has."""
        return self.name if self.expression is None else f"{RESERVED_PREFIX}value_{self.number}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns in it."""
        return (self.name,) if self.expression is None else self.expression.columns


def read_columns(definition: IndexDefinition, types: Mapping[str, str], label: str) -> tuple[Indexed, ...]:
    """Return what the columns of a definition are: those of the table by its spelling, else expressions.

    What its properties list as an expression is one, even if a column of the table has its text for a name.

    :param types: the table's columns and their Spark types.
    :raises UnknownColumn: if one is neither.
    :raises InvalidInput: if an expression cannot be indexed, or one is given twice.
    """
    names, listed = definition.columns, _listed_expressions(definition)
    known = {name.lower() for name in types}

    def is_column(name: str) -> bool:
        plain = not isinstance(name, str) or name.lower() in known or _SIGNS.isdisjoint(name)
        return plain and name not in listed

    if all(map(is_column, names)):
        return tuple(map(Indexed, resolve(names, types, label)))
    from spark_apps.indexes.expressions import NotIndexable, parse  # its library is slow to import

    found: list[Indexed] = []
    for name in names:
        if is_column(name):
            found.append(Indexed(resolve([name], types, label)[0]))
            continue
        try:
            expression = parse(name, types)
        except NotIndexable as error:
            shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
            raise InvalidInput(
                f"{label} cannot be over {shown!r}: {error}.",
                hint="Use columns, nested fields, and expressions of them that always give the same for a row.",
            ) from error
        column = expression.column
        found.append(Indexed(expression.shown, expression) if column is None else Indexed(column))
    for at, one in enumerate(found):
        # A column of such a name is another thing, but the definition has only the name to distinguish them by.
        if any(one.key == other.key or one.name == other.name for other in found[:at]):
            raise InvalidInput(f"{label} names {one.name!r} twice.", hint="Name it once.")
    return tuple(found)


def _listed_expressions(definition: IndexDefinition) -> frozenset[str]:
    """Return the names of a definition's columns that its properties list as expressions."""
    try:
        listed = json.loads(definition.properties.get(EXPRESSIONS, "{}"))
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(listed) if isinstance(listed, dict) else frozenset()


def indexed_by(table: TableDefinition, definition: IndexDefinition) -> tuple[Indexed, ...]:
    """Return what an index is over, in the order of its columns.

    :raises InvalidInput: if its definition is not one that :func:`with_types` gave over columns that there are.
    """
    stored_types = definition.properties.get(EXPRESSIONS)
    if stored_types is None:
        return tuple(map(Indexed, definition.columns))
    from spark_apps.indexes.expressions import NotIndexable  # its library is slow to import

    try:
        return _indexed(tuple(column_types(table.fields).items()), definition.columns, stored_types)
    except (NotIndexable, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"The expressions of the index {definition.name!r} cannot be read: {error}.",
            hint="Drop the index, and create it again.",
        ) from error


@lru_cache(maxsize=256)
def _indexed(types: tuple[tuple[str, str], ...], columns: tuple[str, ...], stored_types: str) -> tuple[Indexed, ...]:
    kinds = json.loads(stored_types)
    if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
        raise ValueError(f"its property {EXPRESSIONS!r} does not state their types")
    from spark_apps.indexes.expressions import parse

    known = dict(types)
    return tuple(
        Indexed(name, parse(name, known), kinds[name], number) if name in kinds else Indexed(name)
        for number, name in enumerate(columns)
    )


def columns_in(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the table's columns that an index is over, or that its expressions are made of."""
    return tuple(dict.fromkeys(name for one in indexed_by(table, definition) for name in one.columns))


def expressions_in(table: TableDefinition, definition: IndexDefinition) -> dict[str, str]:
    """Return the expressions that an index is over, in their canonical texts, with their types."""
    return {one.expression.text: one.type for one in indexed_by(table, definition) if one.expression is not None}


def fields_in(table: TableDefinition, definition: IndexDefinition) -> tuple[Field, ...]:
    """Return the columns of a table, and of the expressions that an index is over their values in its files."""
    computed = [Field(one.stored, one.type) for one in indexed_by(table, definition) if one.expression is not None]
    return (*table.fields, *computed)


def columns_for(found: Sequence[Indexed], names: Iterable[str]) -> tuple[str, ...]:
    """Return the table's columns that values of these names in files of an index are made of."""
    computed = {one.stored: one.columns for one in found if one.expression is not None}
    return tuple(dict.fromkeys(each for name in names for each in computed.get(name, (name,))))


def values_for(found: Sequence[Indexed], names: Iterable[str]) -> list[Column]:
    """Return the values of these names in files of an index, made of rows of the table."""
    computed = {one.stored: one.expression.text for one in found if one.expression is not None}
    return [F.expr(computed[name]).alias(name) if name in computed else column(name) for name in names]


def split_properties(found: Sequence[Indexed], properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split properties of an index over these columns and expressions into the user's, and those of this module.

    Of an expression whose type Spark was not asked for, the second say that it is one.
    """
    if all(one.expression is None for one in found):
        return dict(properties), {}
    given = {name: value for name, value in properties.items() if name not in (EXPRESSIONS, STAMP)}
    unknown = {one.name: "" for one in found if one.expression is not None}
    written = {name: properties[name] for name in (EXPRESSIONS, STAMP) if name in properties}
    return given, {EXPRESSIONS: json.dumps(unknown), **written}


def with_types(
    snapshot: Snapshot, definition: IndexDefinition, label: str
) -> tuple[IndexDefinition, dict[str, DataType]]:
    """Return a definition with the types that Spark gives its expressions and this session's stamp, and these types.

    :raises InvalidInput: if Spark cannot evaluate one.
    """
    found = [one for one in read_columns(definition, column_types(snapshot.table.fields), label)
             if one.expression is not None]  # fmt: skip
    if not found:
        return definition, {}
    expressions = [one.expression for one in found if one.expression is not None]
    types = dict(zip([one.name for one in found], types_of(snapshot, expressions, label), strict=True))
    texts = {name: kind.simpleString() for name, kind in types.items()}
    stamped = json.dumps(stamp_of(snapshot.spark, expressions), sort_keys=True)
    properties = {**definition.properties, EXPRESSIONS: json.dumps(texts), STAMP: stamped}
    return replace(definition, properties=properties), types


def with_key_types(
    snapshot: Snapshot, definition: IndexDefinition, label: str, floating: bool = False
) -> IndexDefinition:
    """Return what :func:`with_types` does, of expressions whose values are hashed and looked up.

    :param floating: whether these may be floats and doubles.
    :raises InvalidSchema: for a type of which that cannot be done.
    """
    completed, types = with_types(snapshot, definition, label)
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    check_key_types(schema, schema.names, label, floating)
    check_hash_types([kind.simpleString() for kind in types.values()], definition.hash_function)
    return completed


def types_of(snapshot: Snapshot, expressions: Sequence[Expression], label: str) -> list[DataType]:
    """Return the types that Spark gives expressions over a table's rows.

    :raises InvalidInput: if it cannot evaluate one.
    """
    rows = snapshot.spark.createDataFrame([], snapshot.data.schema)
    types: list[DataType] = []
    for expression in expressions:
        try:
            types.append(rows.selectExpr(expression.text).schema[0].dataType)
        except spark_errors() as error:
            said, hint = message_of(error), "Correct the expression."
            if _NAMELESS_TYPE in said:
                said = "Spark gives it no type that has a name, as where texts of different collations meet."
                hint = "Let all texts in the expression have one collation."
            raise InvalidInput(f"{label} cannot keep {expression.shown}: {said}", hint=hint) from error
    return types


def other_session(snapshot: Snapshot, definition: IndexDefinition) -> str | None:
    """Return why this session may compute other values of expressions than an index holds; ``None`` if it cannot."""
    found = indexed_by(snapshot.table, definition)
    stamped = [one.expression for one in found if one.expression is not None and one.expression.stamped]
    if not stamped:
        return None
    if not snapshot.has_spark:
        return "it holds values of expressions, which Spark computes"
    current = stamp_of(snapshot.spark, stamped)
    try:
        stored = json.loads(definition.properties.get(STAMP, "{}"))
    except (ValueError, RecursionError):
        stored = None
    if current == stored:
        return None
    names = sorted({*current, *stored}) if isinstance(stored, dict) else []
    differing = [f"{name} is {current.get(name, '')!r}, and was {stored.get(name, '')!r}" for name in names
                 if current.get(name) != stored.get(name)]  # fmt: skip
    return f"its expressions were computed by another session ({'; '.join(differing) or 'unknown'})"


def usable_of(snapshot: Snapshot, definition: IndexDefinition) -> tuple[Indexed, ...] | CannotPrune:
    """Return what an index is over whose values mean the same in this session, in its order.

    A session of another kind compares no values of expressions; those of columns and fields it does.
    """
    found = indexed_by(snapshot.table, definition)
    why = other_session(snapshot, definition)
    if why is None:
        return found
    usable = tuple(one for one in found if one.expression is None or not one.expression.stamped)
    return usable or CannotPrune(why, "session_differs" if snapshot.has_spark else "no_session")


def cannot_use(snapshot: Snapshot, definition: IndexDefinition) -> CannotPrune | None:
    """Return why this session does not use an index over expressions whole; ``None`` if it may."""
    why = other_session(snapshot, definition)
    return None if why is None else CannotPrune(why, "session_differs" if snapshot.has_spark else "no_session")


def check_computes(snapshot: Snapshot, definition: IndexDefinition) -> None:
    """Check that this session computes the values of an index over expressions as those that the index holds.

    :raises InvalidInput: if it may compute others, naming what differs.
    """
    if (why := other_session(snapshot, definition)) is not None:
        raise InvalidInput(
            f"Entries of the index {definition.name!r} cannot be made in this session: {why}.",
            outcome="Nothing was changed.",
            hint="Use such a session, or drop the index and create it again.",
        )


def is_computed(name: str) -> bool:
    """Return whether a name, among those whose values a predicate is checked against, is that of an expression."""
    return name.startswith(_KEY_MARK)


def shown_key(name: str) -> str:
    """Return the name of an entry's values without the mark that sets expressions apart from columns."""
    return name.removeprefix(_KEY_MARK)
