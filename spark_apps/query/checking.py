"""Asks Spark whether it can evaluate a predicate on a table's columns, before anything is read or written.

Spark has the last word on what SQL is: the parser that indexes are chosen by knows less of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, UnknownColumn


def check_predicate(snapshot: Snapshot, predicate: str) -> None:
    """Whether Spark can evaluate a predicate on the table's columns.

    :raises InvalidPredicate: :raises UnknownColumn: naming what Spark said.
    """
    if not predicate.strip():
        raise InvalidPredicate("The predicate is empty.", hint="To act on all rows, write 'true'.")
    with judged_by_spark(snapshot, predicate):
        checked = snapshot.spark.createDataFrame([], snapshot.data.schema).where(predicate)
        assert isinstance(checked.schema, T.StructType)


@contextmanager
def judged_by_spark(snapshot: Snapshot, predicate: str) -> Iterator[None]:
    """Turns what Spark says of a predicate while it is put into a plan into an error of ours.

    :raises InvalidPredicate: :raises UnknownColumn:
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        message = (error.getMessage() if isinstance(error, PySparkException) else "") or str(error)
        first = message.strip().splitlines()[0]
        kind: type[InvalidInput] = UnknownColumn if "UNRESOLVED_COLUMN" in str(error) else InvalidPredicate
        raise kind(
            f"The predicate {predicate!r} cannot be used: {first}",
            hint=f"The table's columns are: {', '.join(snapshot.data.columns)}.",
        ) from error
