"""Rows that come through Arrow: files read on the driver, and brought into the columns that Spark expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_apps.storage.errors import StorageError, UnsupportedSource
from spark_apps.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def read_parquet(path: str, options: Mapping[str, Any] | None) -> Any:
    """Read a whole Parquet file as an Arrow table.

    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if a file is damaged, or was rewritten since it was listed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    head, _, name = path.rpartition("/")
    try:
        return pq.read_table(pa.BufferReader(Store(head.removeprefix("file://"), options).get(name)))
    except pa.ArrowException as error:
        raise StorageError(f"The file {path} cannot be read: {error}.", outcome="Nothing was changed.") from error


def filter_rows(rows: Any, keep: Sequence[bool]) -> Any:
    """Return the rows that a mask keeps; rows behind its end stay."""
    import pyarrow as pa

    mask = pa.array([*keep, *([True] * (rows.num_rows - len(keep)))], pa.bool_())
    return rows.filter(mask)


def cast_to_schema(rows: Any, schema: StructType) -> Any:
    """Return rows with the columns of a Spark schema, in its order; one that is lacking is null in every row.

    :raises UnsupportedSource: if a column cannot be brought into its type.
    """
    import pyarrow as pa

    from spark_apps.mergetree.schema import arrow_schema

    target = arrow_schema(schema)
    positions = {name.lower(): n for n, name in enumerate(rows.column_names)}
    columns = []
    for field in target:
        position = positions.get(field.name.lower())
        if position is None:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        try:
            columns.append(rows.column(position).cast(field.type))
        except pa.ArrowException as error:
            raise UnsupportedSource(
                f"The column {field.name!r} of type {rows.schema.field(position).type} cannot be read as {field.type}: "
                f"{error}."
            ) from error
    return pa.Table.from_arrays(columns, schema=target)
