"""Reads the rows of a snapshot that satisfy a predicate, from the file groups that can hold them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from spark_apps.mergetree.read import scan
from spark_apps.mergetree.schema import column, resolve
from spark_apps.mergetree.tree import Snapshot


def read_rows(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows as a DataFrame, columns in declared order or as named.

    :raises UnknownColumn: naming a column that the table lacks.
    """
    tree = snapshot.data
    names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
    rows = scan(snapshot, tree, snapshot.groups())
    if where is not None:
        rows = rows.where(where)
    return rows.select(*map(column, names))
