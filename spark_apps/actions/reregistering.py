"""A source that is registered once more: what was asked is held against what stands in its log.

The same again is no mistake, for a task that registers runs every day. Something else would be passed over in silence
if it were taken for the same, so it is refused, and each difference is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_apps.mergetree.schema import parse_type, table_fields
from spark_apps.sources import catalog
from spark_apps.sources.iceberg import CATALOG, IcebergTable, name_of_catalog
from spark_apps.sources.locations import Location, locate
from spark_apps.sources.options import PLAIN_FORMATS, check_options
from spark_apps.storage.errors import InvalidInput, TableExists, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import Field, PutTable, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def standing(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    form: str = "parquet",
    schema: StructType | str | None = None,
    options: Mapping[str, object] | None = None,
    index_root: str | os.PathLike[str] | None = None,
    record_key: Sequence[str] = (),
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Timeline | None:
    """The log of the registration that stands where this one would, if it is the same; ``None`` if there is none.

    A schema that is not given is not compared: it would be inferred from files that have changed since.

    :param storage_options: of the store of source and log.
    :raises TableExists: naming what differs. :raises InvalidInput: for arguments that nothing could be registered with.
    """
    if isinstance(record_key, str):
        raise InvalidInput(f"record_key is the text {record_key!r}.", hint=f"Give a list: [{record_key!r}].")
    wanted, form, checked = _wanted(spark, os.fspath(uri), form, options, storage_options)
    log = wanted.default_log(None if index_root is None else os.fspath(index_root), name)
    above, _, folder = log.rpartition("/")
    # Asked from above: a look must not leave a folder behind.
    if Store(above, storage_options).head(f"{folder}/{commit_key(0)}") is None:
        return None
    try:
        timeline = Timeline.load(Store(log, storage_options))
    except TableNotFound:
        return None  # it was dropped
    table = timeline.head.table
    found = [*_other_source(table, wanted, form, checked), *_other_columns(timeline, table, schema, record_key)]
    if found:
        raise TableExists(
            f"{wanted.uri} is registered already, in {log}, and not as asked: {'; '.join(found)}.",
            hint="Give the arguments of the first time (a schema may be left out), or drop the registration and "
            "register again, or give another name: a source may be registered twice.",
        )
    return timeline


def _wanted(
    spark: SparkSession,
    uri: str,
    form: str,
    options: Mapping[str, object] | None,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Location, str, dict[str, str]]:
    """Address, format and options as a registration would write them."""
    checked = check_options(form, options)
    if form in PLAIN_FORMATS:
        named = catalog.resolve(spark, uri)
        if named is not None:
            return locate(named.location), named.format, check_options(named.format, {**named.options, **checked})
    if form == "iceberg":
        checked = name_of_catalog(checked, uri)
        if CATALOG in checked:
            return IcebergTable("", checked, storage_options).location, form, checked
    return locate(uri), form, checked


def _other_source(table: TableDefinition, wanted: Location, form: str, options: Mapping[str, str]) -> Iterator[str]:
    there = table.source
    if there is None:
        yield "a table of this package's own stands there, not a source"
        return
    if there.location != wanted.uri:
        yield f"it is of the source {there.location}"
    if there.format != form:
        yield f"the format is {there.format!r}, not {form!r}"
    before = {key.lower(): (key, value) for key, value in there.options.items()}
    now = {key.lower(): (key, value) for key, value in options.items()}
    for key in sorted(before.keys() | now.keys()):
        if before.get(key, ("", None))[1] != now.get(key, ("", None))[1]:
            yield _option(before.get(key), now.get(key))


def _option(before: tuple[str, str] | None, now: tuple[str, str] | None) -> str:
    if before is None:
        assert now is not None
        return f"the option {now[0]!r} is not set, and would be {now[1]!r}"
    return f"the option {before[0]!r} is {before[1]!r}, " + (
        "and would not be set" if now is None else f"not {now[1]!r}"
    )


def _other_columns(
    timeline: Timeline, table: TableDefinition, schema: StructType | str | None, record_key: Sequence[str]
) -> Iterator[str]:
    if [name.lower() for name in record_key] != [name.lower() for name in table.record_key]:
        yield f"the record key is ({', '.join(table.record_key)}), not ({', '.join(record_key)})"
    if schema is None or table.source is None:
        return
    asked = {
        field.name.lower(): field
        for field in table_fields(parse_type(schema) if isinstance(schema, str) else schema, ())
    }
    there = {field.name.lower(): field for field in _first_fields(timeline, table)}
    partitions = {name.lower() for name in table.partition_by}
    for key, field in asked.items():
        if key not in there:
            yield f"there is no column {field.name!r}"
        elif there[key].type != field.type:
            yield f"the column {there[key].name!r} is {there[key].type}, not {field.type}"
    for key, field in there.items():
        if key not in asked and key not in partitions:  # those may be told by the folders alone
            yield f"there is a column {field.name!r} too"


def _first_fields(timeline: Timeline, table: TableDefinition) -> tuple[Field, ...]:
    """The columns as they were registered: a refresh may have told of more since."""
    for commit in timeline.commits():
        for action in commit.actions:
            if isinstance(action, PutTable) and action.definition.table_id == table.table_id:
                return action.definition.fields
    return table.fields
