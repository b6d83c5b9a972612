"""Makes a table: checks the definition whole before anything is written, then writes version 0."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from spark_apps.actions.bucket_rules import partition_types
from spark_apps.actions.template import TableHandle
from spark_apps.actions.upsert_plan import group_rows
from spark_apps.indexes.registry import find
from spark_apps.layout.hashing import check_hash
from spark_apps.layout.rules import BucketRules
from spark_apps.mergetree.buckets import check_user_function
from spark_apps.mergetree.schema import check_key_types, check_partition_types, resolve, struct_type, table_fields
from spark_apps.storage.errors import InvalidInput, InvalidSchema
from spark_apps.storage.store import ObjectStore
from spark_apps.storage.unwritten import UNWRITTEN_HINT, check_unwritten
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import HashingConfig as ConfigEntry
from spark_apps.timeline.model import IndexDefinition, PutHashingConfig, PutIndex, Receipt, TableDefinition
from spark_apps.timeline.tombstones import tombstone_days
from spark_apps.workload.query_log import log_settings

GROUPS_BY = "record"
"""The kind of index, and its name, by which a table without buckets finds its file groups."""

_WITHOUT_ORDER = (T.MapType, T.ArrayType, T.StructType, T.BinaryType)


def define(
    schema: T.StructType | str,
    record_key: Sequence[str],
    *,
    partition_by: Sequence[str] = (),
    ordering_column: str | None = None,
    merge_by: str = "commit",
    bucketed: bool = True,
    hash_fields: Sequence[str] | None = None,
    hash_function: str = "xxhash64",
    write_mode: str = "merge_on_read",
    properties: Mapping[str, str] | None = None,
    positions: bool = False,
) -> TableDefinition:
    """Return a table's definition from a user's arguments.

    :raises InvalidInput: (or a subclass) naming the argument that cannot be used.
    """
    _check_lists(record_key=record_key, partition_by=partition_by, hash_fields=hash_fields)
    if not record_key:
        raise InvalidInput("record_key names no column.", hint="A keyed table needs at least one.")
    _check_choice("merge_by", merge_by, ("commit", "ordering"))
    _check_choice("write_mode", write_mode, ("merge_on_read", "copy_on_write"))
    _check_positions(positions, merge_by, write_mode)
    fields = table_fields(schema, ())
    names = [field.name for field in fields]
    key = resolve(record_key, names, "record_key")
    partitions = resolve(partition_by or (), names, "partition_by")
    hashed = resolve(hash_fields or key, names, "hash_fields")
    ordering = None if ordering_column is None else resolve([ordering_column], names, "ordering_column")[0]
    fields = table_fields(schema, key)
    struct = struct_type(fields)
    check_key_types(struct, key, "record_key")
    check_partition_types(struct, partitions)
    group_rows(dict(properties or {}))
    tombstone_days(dict(properties or {}))
    check_unwritten("property", dict(properties or {}), UNWRITTEN_HINT)
    log_settings(dict(properties or {}))
    _check_roles(struct, key, partitions, hashed, ordering, merge_by)
    check_hash({name: struct[name].dataType.simpleString() for name in hashed}, hash_function)
    return TableDefinition(
        table_id=secrets.token_hex(8),
        fields=fields,
        record_key=key,
        partition_by=partitions,
        ordering_column=ordering,
        merge_by=merge_by,  # type: ignore[arg-type]
        write_mode=write_mode,  # type: ignore[arg-type]
        hash_fields=hashed,
        hash_function=hash_function,
        bucketed=bucketed,
        properties=dict(properties or {}),
        positions=positions,
    )


def create(
    spark: SparkSession,
    store: ObjectStore,
    definition: TableDefinition,
    rules: BucketRules | None,
    txn_id: str | None = None,
) -> tuple[TableHandle, Receipt]:
    """Write version 0; without bucket rules the table is made with the index that finds its file groups.

    :raises TableExists: if there is a table.
    :raises InvalidRule: if a rule does not fit its partition columns.
    """
    if rules is None:
        given = IndexDefinition(GROUPS_BY, GROUPS_BY, (), secrets.token_hex(6), comment="finds the file groups")
        index = PutIndex(find(GROUPS_BY).validate(definition, given), covered=True)
        timeline, receipt = create_table(store, definition, [index], txn_id=txn_id)
        return TableHandle(spark, timeline), receipt
    rules.check(partition_types(definition))
    types = {field.name: field.type for field in definition.fields}
    check_user_function(spark, {name: types[name] for name in definition.hash_fields}, definition.hash_function)
    config = ConfigEntry("", rules.default, rules.rule, rules.text or None)
    timeline, receipt = create_table(store, definition, [PutHashingConfig(config)], txn_id=txn_id)
    return TableHandle(spark, timeline), receipt


def _check_lists(**given: Sequence[str] | None) -> None:
    for name, names in given.items():
        if isinstance(names, str):
            raise InvalidInput(f"{name} is the text {names!r}.", hint=f"Give a list: [{names!r}].")


def _check_positions(positions: bool, merge_by: str, write_mode: str) -> None:
    if positions and (merge_by, write_mode) != ("commit", "merge_on_read"):
        raise InvalidInput(
            f"Positions were asked for with merge_by {merge_by!r} and write_mode {write_mode!r}, which have none.",
            hint="They say which rows a delta replaces: with merge_by 'commit' and write_mode 'merge_on_read' alone.",
        )


def _check_roles(
    struct: T.StructType,
    key: Sequence[str],
    partitions: Sequence[str],
    hashed: Sequence[str],
    ordering: str | None,
    merge_by: str,
) -> None:
    """Check that each column can have the roles that it is given."""
    stray = next((name for name in hashed if name not in key), None)
    if stray is not None:
        raise InvalidInput(
            f"hash_fields names {stray!r}, which is not part of the record key.",
            hint="Only fields of the record key can place a row, for they never change.",
        )
    if len(partitions) == len(struct.fields):
        raise InvalidSchema("Every column is a partition column.", hint="Leave at least one for the rows.")
    if merge_by == "ordering" and ordering is None:
        raise InvalidInput("merge_by is 'ordering', and there is no ordering_column.", hint="Name one.")
    if ordering is not None and isinstance(struct[ordering].dataType, _WITHOUT_ORDER):
        kind = struct[ordering].dataType.simpleString()
        raise InvalidSchema(
            f"ordering_column {ordering!r} is of type {kind}, which gives no order.",
            hint="Use a number, date, timestamp or string.",
        )


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidInput(f"{name} is {value!r}.", hint=f"Use one of: {', '.join(choices)}.")
