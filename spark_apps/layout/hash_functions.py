"""Hash functions that a user brings as a class, and their lookup by the name that a table persists.

A class is offered under the entry point group :data:`GROUP` or allowed by its dotted path (:func:`allow`, or the
environment variable :data:`ALLOWED`); a table that names one never makes its code load by itself. The built-in ones and
SQL expressions are in :mod:`spark_apps.layout.hashing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from spark_apps.layout.plugins import Plugins

GROUP = "airflow_provider_index.hash_functions"
"""Entry points: name of the function -> class derived from :class:`HashFunction`."""

ALLOWED = "AIRFLOW_PROVIDER_INDEX_HASH_FUNCTIONS"
"""Environment variable: dotted paths of hash function classes, separated by commas, that may be loaded."""


class HashFunction(ABC):
    """A function from the values of the hash fields to a bucket. It must stay the same for ever: rows are found by it.

    Import pyspark inside :meth:`column` only, so that the driver's side works without Spark.
    """

    @abstractmethod
    def column(self, fields: Sequence[Any], types: Sequence[str], count: Any) -> Any:
        """Return the bucket of each row as a Spark Column, an integer from 0 to ``count`` - 1.

        :param fields: Columns of the table's types.
        :param types: these, as Spark prints them.
        :param count: a bigint Column; where it is null, the bucket must be null.
        """

    def bucket(self, values: Sequence[Any], types: Sequence[str], count: int) -> int:
        """Return the bucket of one key on the driver, if there is such a twin; without it Spark computes it.

        :param values: normalized by type: see :func:`spark_apps.layout.types.normalize`.
        :param count: of buckets.
        """
        raise NotImplementedError

    @property
    def on_driver(self) -> bool:
        """True if :meth:`bucket` is there."""
        return type(self).bucket is not HashFunction.bucket


FUNCTIONS: Plugins[HashFunction] = Plugins(
    "hash function",
    HashFunction,  # type: ignore[type-abstract]
    GROUP,
    ALLOWED,
    {},
    f"{__name__}.allow",
    reserved=("java", "xxhash64", "sql:<expression>"),
)


def register(name: str, function: HashFunction) -> None:
    """Register a function in this process.

    :raises InvalidRule: if the name is taken: tables persist it.
    """
    FUNCTIONS.register(name, function)


def allow(*classes: str) -> None:
    """Allow functions named by these dotted class paths (``package.module.Class``) to be loaded in this process."""
    FUNCTIONS.allow(*classes)
