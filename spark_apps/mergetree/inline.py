"""Tables made on the driver, as DataFrames: small ones by public expressions alone, large ones by Arrow; no pickled
rows, no Python worker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T


def inline(spark: SparkSession, rows: Iterable[Sequence[Any]], ddl: str) -> DataFrame:
    """Rows of strings, numbers and nulls as a DataFrame with the columns of ``ddl``, e.g. ``"path string, n
    int"``."""
    names = [part.split()[0] for part in ddl.split(",")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{_struct(ddl)}>>")))


def of_arrow(spark: SparkSession, table: Any, schema: T.StructType | None = None) -> DataFrame:
    """An Arrow table as a DataFrame. In one piece, for Spark takes an empty piece for the end of all of them."""
    return spark.createDataFrame(table.combine_chunks(), schema)


def _struct(ddl: str) -> str:
    return ", ".join("`{}`: {}".format(*part.split(maxsplit=1)) for part in ddl.split(","))
