"""The columns of plain files: as given, or as Spark infers them once, at registration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from spark_apps.mergetree.opening import listed_here, literal
from spark_apps.mergetree.schema import check_partition_types, parse_type, table_fields
from spark_apps.sources.listing import Found, list_files
from spark_apps.sources.locations import Location
from spark_apps.sources.options import MERGE_SCHEMA, RECURSIVE, is_set
from spark_apps.sources.plain import Texts, inferred_type, placed
from spark_apps.storage.errors import InvalidInput, InvalidSchema
from spark_apps.storage.store import Store
from spark_apps.timeline.model import Field


def columns_of_files(
    spark: SparkSession,
    location: Location,
    form: str,
    schema: T.StructType | str | None,
    options: Mapping[str, str],
    storage_options: Mapping[str, Any] | None,
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Fields and partition columns.

    Partition columns that a given schema does not name come last, of type int, bigint, date or string, whichever holds
    all their values.

    :raises InvalidSchema: :raises InvalidInput: if there is nothing to infer them from, or folders contradict.
    """
    recursive = is_set(options, RECURSIVE)
    files = placed(location, list_files(location, storage_options), recursive, None)
    if not files and schema is None:
        raise InvalidInput(
            f"There are no files at {location.uri}.", hint="Check the location, or give schema=… for files to come."
        )
    names = tuple(name for name, _ in files[0][1]) if files else ()
    given = None if schema is None else parse_type(schema) if isinstance(schema, str) else schema
    if given is None:
        inferred = _inferred(spark, form, options, [found for found, _ in files], storage_options)
        given = T.StructType(
            [field for field in inferred.fields if field.name.lower() not in {n.lower() for n in names}]
        )
        _check_not_both(form, inferred, names)
    spelled = {field.name.lower(): field.name for field in given.fields}
    partition_by = tuple(spelled.get(name.lower(), name) for name in names)
    added = [
        T.StructField(name, parse_type(inferred_type(_texts_of(files, name))))
        for name in partition_by
        if name.lower() not in spelled
    ]
    struct = T.StructType([*given.fields, *added])
    fields = table_fields(struct, ())
    check_partition_types(struct, partition_by)
    if len(partition_by) == len(struct.fields):
        raise InvalidSchema(f"The files of {location.uri} hold no column.", hint="Give a schema.")
    return fields, partition_by


def _inferred(
    spark: SparkSession,
    form: str,
    options: Mapping[str, str],
    files: Sequence[Found],
    storage_options: Mapping[str, Any] | None,
) -> T.StructType:
    merged = form in ("csv", "json") or is_set(options, MERGE_SCHEMA)
    # Of files that state their schema the newest, which has what was added since.
    chosen = files if merged else [max(files, key=lambda found: (found.modified, found.path))]
    paths = literal(Store("/").spark_path(found.path) for found in chosen)
    try:
        with listed_here(spark, paths):
            return spark.read.format(form).options(**{**options, RECURSIVE: "true"}).load(paths).schema
    except PySparkException as error:
        raise InvalidSchema(
            f"Spark cannot tell the columns of {chosen[0].path} as {form}: {str(error).splitlines()[0]}",
            hint="Check the format and its options, or give schema=….",
        ) from error


def _check_not_both(form: str, inferred: T.StructType, names: Sequence[str]) -> None:
    """Where columns are told by their position, one that is left out would shift the others."""
    wanted = {name.lower() for name in names}
    both = [field.name for field in inferred.fields if field.name.lower() in wanted]
    if both and form == "csv":
        raise InvalidSchema(
            f"The column {both[0]!r} is in the CSV files and in the names of their folders.",
            hint="Register the folder with recursiveFileLookup=true, which takes the column from the files.",
        )


def _texts_of(files: Sequence[tuple[Found, Texts]], name: str) -> list[str | None]:
    return [text for _, texts in files for other, text in texts if other.lower() == name.lower()]
