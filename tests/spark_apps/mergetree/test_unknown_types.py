"""A table whose log has a type that this Spark does not know, as a newer Spark writes it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_apps.mergetree.schema import struct_type
from spark_apps.storage.errors import InvalidSchema
from spark_apps.timeline.model import Field


def test_given_a_type_of_a_newer_spark_then_the_column_the_type_and_the_spark_are_named(spark: SparkSession) -> None:
    fields = (Field("id", "bigint"), Field("town", "string collate NOWHERE"))

    with pytest.raises(InvalidSchema, match=rf"'town' is of type string collate NOWHERE, .* {spark.version}, does not"):
        struct_type(fields)
