"""Places of rows, by a record index, for keys given as Python values or as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_apps.indexes.keyed.entries import EntryHandler
from spark_apps.indexes.keyed.lookup import lookup_table
from spark_apps.indexes.keyed.matching import keys_to_arrow, kinds_of, normalize_column
from spark_apps.indexes.registry import find
from spark_apps.layout.types import ColumnType, normalize
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import InvalidInput, InvalidSchema


def look_up(snapshot: Snapshot, keys: Any, index: str | None = None) -> Any:
    """Return the entries of a record index for record keys.

    :param keys: an Arrow array (of a key of one column), an Arrow table or batch whose columns are those of the key, or
        Python values: one each, or tuples.
    :param index: name of a record index; the only one if not given.
    :returns: an Arrow table of the keys found, once each: the key columns and ``__index_partition``, and
        ``__index_group`` where no hash of the key tells a row's file group.
    :raises InvalidInput: if there is no such index, or it does not cover all rows.
    :raises InvalidSchema: if a key is not one.
    :raises StorageError: if a file of the index is missing or damaged.
    """
    name = _only_record_index(snapshot) if index is None else index
    entry = snapshot.state.index(name)
    handler = find(entry.definition.kind)
    if not isinstance(handler, EntryHandler) or entry.definition.kind != "record":
        raise InvalidInput(
            f"The index {name!r} is of kind {entry.definition.kind!r}, which does not tell where a key lives.",
            hint="Ask a record index, or read(where).",
        )
    if entry.lag:
        raise InvalidInput(
            f"The index {name!r} does not cover {len(entry.lag)} file groups, and would miss keys there.",
            hint=f"Run refresh_index({name!r}), or read(where), which looks there too.",
        )
    tree = handler.tree(snapshot.table, entry.definition)
    return lookup_table(snapshot, tree, _table(tree, keys), entry.definition.shards).table


def _only_record_index(snapshot: Snapshot) -> str:
    names = [name for name, entry in snapshot.state.indexes.items() if entry.definition.kind == "record"]
    if len(names) != 1:
        raise InvalidInput(
            f"The table has {len(names)} record indexes.", hint="Create one with create_index, or name one of them."
        )
    return names[0]


def _table(tree: Tree, keys: Any) -> Any:
    import pyarrow as pa

    names, kinds = tree.hash_fields, kinds_of(tree, tree.hash_fields)
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = pa.table([keys], names=["" if len(names) > 1 else names[0]])
    if isinstance(keys, (pa.Table, pa.RecordBatch)):
        if missing := [name for name in names if keys.schema.names.count(name) != 1]:
            raise InvalidSchema(f"The keys have no column {missing[0]!r}.", hint=f"Give ({', '.join(names)}).")
        columns = [_cast(keys.column(name), kind, name) for name, kind in zip(names, kinds, strict=True)]
        return pa.table(columns, names=list(names))
    rows = [_checked(key if isinstance(key, (tuple, list)) else (key,), kinds) for key in keys]
    return keys_to_arrow(tree, rows)


def _checked(key: Sequence[Any], kinds: Sequence[ColumnType]) -> tuple[Any, ...]:
    if len(key) != len(kinds):
        raise InvalidSchema(f"The key {key!r} has {len(key)} values, not {len(kinds)}.", hint="Give one a column.")
    return tuple(map(normalize, key, kinds))


def _cast(values: Any, kind: ColumnType, name: str) -> Any:
    import pyarrow as pa

    stored_type = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    try:
        if not _is_compatible(stored_type, kind):
            raise pa.ArrowInvalid(f"{stored_type} values")
        return normalize_column(values, kind)
    except pa.ArrowException as error:
        raise InvalidSchema(
            f"Keys of type {values.type} are not values of the column {name!r}, of type {kind.text!r}: {error}.",
            hint="Cast them first.",
        ) from error


def _is_compatible(stored_type: Any, kind: ColumnType) -> bool:
    """Tell whether Arrow values of a type represent values of a Spark type: a number is no string, nor the reverse."""
    import pyarrow.types as pt

    if kind.kind == "string":
        return bool(pt.is_string(stored_type) or pt.is_large_string(stored_type) or pt.is_string_view(stored_type))
    if kind.kind == "binary":
        return bool(
            pt.is_binary(stored_type) or pt.is_large_binary(stored_type) or pt.is_fixed_size_binary(stored_type)
        )
    if kind.kind == "boolean":
        return bool(pt.is_boolean(stored_type))
    if kind.kind == "date":
        return bool(pt.is_date32(stored_type))
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return bool(pt.is_timestamp(stored_type)) and (kind.kind == "timestamp" or stored_type.tz is None)
    number = pt.is_integer(stored_type) or (pt.is_floating(stored_type) and kind.kind in ("float", "double"))
    return bool(number or (pt.is_decimal(stored_type) and kind.kind == "decimal"))
