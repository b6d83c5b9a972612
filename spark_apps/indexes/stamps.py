"""The session and release that values of expressions depend on, as a stamp that is kept with the values.

A session whose stamp is another one may compute other values of the same rows, and so does not use these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from spark_apps.engine.pyspark_names import SparkSession, spark_errors
from spark_apps.engine.spark_utils import is_built_in, setting

if TYPE_CHECKING:
    from spark_apps.indexes.expressions import Expression

_SETTINGS = (
    "spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive", "spark.sql.timestampType",
    "spark.sql.legacy.timeParserPolicy", "spark.sql.icu.caseMappings.enabled",
    "spark.sql.decimalOperations.allowPrecisionLoss", "spark.sql.legacy.literal.pickMinimumPrecision",
    "spark.sql.legacy.charVarcharAsString", "spark.sql.legacy.typeCoercion.datetimeToString.enabled",
)  # fmt: skip
_RELEASES: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()


def stamp(spark: SparkSession) -> dict[str, str]:
    """Return what the values of expressions depend on beside the rows: releases and settings of a session."""
    known = _RELEASES.get(spark)
    if known is None:
        java = "java_method('java.lang.System', 'getProperty', 'java.specification.version')"
        try:
            release = str(spark.sql(f"SELECT {java}").collect()[0][0])
        except spark_errors():  # where no Java may be called; there it is the platform's, with its Spark
            release = ""
        known = {"spark": spark.version, "java": release}
        _RELEASES[spark] = known
    values = {}
    for name in _SETTINGS:
        try:
            # Of one that is not set the default: of the time zone it is the machine's, of ANSI the environment's.
            values[name] = setting(spark, name) or ""
        except spark_errors():  # this Spark does not know it
            values[name] = ""
    return {**known, **values}


def stamp_of(spark: SparkSession, expressions: Iterable[Expression]) -> dict[str, str]:
    """Return the stamp of values that a session computes of expressions; nothing where none of them needs one.

    A function that is a user's in this session is named, so that no session takes such values for those of Spark's own.
    """
    texts = [expression.text for expression in expressions if expression.stamped]
    if not texts:
        return {}
    from spark_apps.indexes.expressions import functions_in  # its library is slow to import

    named = dict.fromkeys(name for text in texts for name in functions_in(text))
    others = [name for name in named if not is_built_in(spark, name)]
    return {**stamp(spark), **({"functions": ",".join(others)} if others else {})}
