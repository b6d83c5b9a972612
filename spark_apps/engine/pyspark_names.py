"""Names of pyspark which are imported at their first use, so that reading without Spark imports no pyspark.

For modules of which a part works without Spark. ``F`` and ``T`` are the modules of functions and of types; a class is
called, compared with ``isinstance`` and asked for its methods as if it had been imported. ``except`` does not take it:
use :func:`spark_errors` there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_apps.storage.errors import EnvironmentMismatch
from spark_apps.storage.supported import INSTALL_PYSPARK, NO_PYSPARK, check_spark_release

if TYPE_CHECKING:
    from pyspark.sql import Column as Column
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import DataFrameReader as DataFrameReader
    from pyspark.sql import Observation as Observation
    from pyspark.sql import Row as Row
    from pyspark.sql import SparkSession as SparkSession
    from pyspark.sql import Window as Window
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
    from pyspark.sql.types import StringType as StringType
    from pyspark.sql.types import StructField as StructField
    from pyspark.sql.types import StructType as StructType


class _Lazy:
    """A module of pyspark, or one of its names, that is imported when something is asked of it."""

    def __init__(self, module: str, name: str | None = None) -> None:
        self._module = module
        self._name = name

    def _resolved(self) -> Any:
        module = _imported(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name in ("__getstate__", "__setstate__", "__wrapped__", "__file__"):
            raise AttributeError(name)
        value = getattr(self._resolved(), name)
        if not name.startswith("__"):
            self.__dict__[name] = value
        return value

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._resolved()(*arguments, **named)

    def __instancecheck__(self, value: Any) -> bool:
        # No value is of a class of a library that was not imported.
        return self._module.partition(".")[0] in sys.modules and isinstance(value, self._resolved())

    def __reduce__(self) -> Any:
        return _Lazy, (self._module, self._name)


def _imported(name: str) -> Any:
    """Return a module of pyspark, if it is of a Spark that the package runs on.

    :raises EnvironmentMismatch: if it is not, or there is none.
    """
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise EnvironmentMismatch(NO_PYSPARK, hint=INSTALL_PYSPARK) from error

    check_spark_release(pyspark.__version__)
    return import_module(name)


def spark_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return what Spark raises, for ``except``, beside other errors; nothing where pyspark was not imported.

    Errors of the JVM that pyspark has no class for come as py4j's; before 4.0 a failed job's do.
    """
    if "pyspark.errors" not in sys.modules:
        return others
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, *others)


if not TYPE_CHECKING:
    F = _Lazy("pyspark.sql.functions")
    T = _Lazy("pyspark.sql.types")
    Column, DataFrame, DataFrameReader, Observation, Row, SparkSession, Window = (
        _Lazy("pyspark.sql", name)
        for name in ("Column", "DataFrame", "DataFrameReader", "Observation", "Row", "SparkSession", "Window")
    )
    StringType, StructField, StructType = (
        _Lazy("pyspark.sql.types", name) for name in ("StringType", "StructField", "StructType")
    )
