"""Small frames for tests, made through Arrow: rows given one by one would start Python workers, a second each
time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_apps.engine.spark_versions import arrow_schema, from_arrow
from spark_apps.mergetree.schema import parse_ddl


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], ddl: str) -> DataFrame:
    """Rows as a frame with the columns of ``ddl``."""
    schema = parse_ddl(ddl)
    arrow = arrow_schema(schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(arrow)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, arrow, strict=True)]
    return from_arrow(spark, pa.Table.from_arrays(arrays, schema=arrow), schema)


def of_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """An Arrow table as a frame, with the types that Spark has for its own."""
    return from_arrow(spark, table, from_arrow_schema(table.schema))
