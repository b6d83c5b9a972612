"""Partition and file group of a row, as columns: the partition's number and the bucket by its count.

Few partitions are distinguished by comparisons inside the generated code, many by a broadcast join; both compare with
null, and neither makes a path of a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.mergetree.buckets import bucket_column
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.spark_utils import inline
from spark_apps.mergetree.tree import GROUP_ID, Tree

PART = "__index_part"
GROUP = "__index_bucket"
UNKNOWN_PARTITION = "[row of an unknown partition]"

_COUNT = "__index_count"
# Above these a broadcast join finds a row's partition faster than a chain of comparisons, and the generated code of a
# longer chain of texts would be too large for Java to compile.
_MAX_TEXT_CASES = 16
_MAX_TYPED_CASES = 32
# Types whose values and their texts correspond one to one, so that values are compared and no text is made of each.
_EXACT_TYPES = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType, T.BooleanType)


@dataclass(frozen=True)
class Target:
    """A partition that rows are written into.

    Its path, its columns' values as text, its bucket count (``None`` where rows bring the id of their file group).
    """

    path: str
    values: tuple[str | None, ...]
    buckets: int | None


def single_target(buckets: int) -> tuple[Target, ...]:
    """Return the one partition of a tree that has no partition columns."""
    return (Target("", (), buckets),)


def partition_number(tree: Tree, values: Sequence[Sequence[str | None]], otherwise: Column) -> Column | None:
    """Return a column with the index in ``values`` of a row's partition.

    It is ``otherwise`` for a partition that is not there. ``None`` where there are too many of them to compare with one
    by one.

    :param tree: with partition columns.
    :param values: of the partition columns, as text.
    """
    is_exact = [isinstance(tree.field(name).dataType, _EXACT_TYPES) for name in tree.partition_by]
    if len(values) > (_MAX_TYPED_CASES if all(is_exact) else _MAX_TEXT_CASES):
        return None

    def has_value(name: str, typed: bool, value: str | None) -> Column:
        if typed:
            return column(name).eqNullSafe(F.lit(value).cast(tree.field(name).dataType))
        return column(name).cast("string").eqNullSafe(F.lit(value))

    number = otherwise
    for index, texts in enumerate(values):
        conditions = [has_value(*column_value) for column_value in zip(tree.partition_by, is_exact, texts, strict=True)]
        number = F.when(reduce(Column.__and__, conditions), index).otherwise(number)
    return number


def value_texts(tree: Tree) -> dict[str, Column]:
    """Return the values of a row's partition columns as text, each with a name that no column has."""
    return {f"__index_v{number}": column(name).cast("string") for number, name in enumerate(tree.partition_by)}


def partition_condition(tree: Tree, partitions: DataFrame) -> Column:
    """Return the condition that a row is of the partition that a row of ``partitions`` names.

    That frame has the columns of :func:`value_texts`.
    """
    return reduce(Column.__and__, [text.eqNullSafe(partitions[name]) for name, text in value_texts(tree).items()])


def assign_file_groups(
    rows: DataFrame, tree: Tree, targets: Sequence[Target], unknown_rows: Literal["refuse", "drop"]
) -> DataFrame:
    """Add the number of a row's partition among the targets, :data:`PART`, and its file group, :data:`GROUP`."""
    types = [tree.field(name).dataType.simpleString() for name in tree.hash_fields]

    def bucket(count: int | Column | None) -> Column:
        if tree.by_id:
            return F.col(GROUP_ID)
        assert count is not None
        return bucket_column(tree.hash_fields, count, tree.hash_function, types)

    if not tree.partition_by:
        return rows.withColumns({PART: F.lit(0), GROUP: bucket(targets[0].buckets)})
    refuse = unknown_rows == "refuse"
    unknown = (F.raise_error(F.lit(UNKNOWN_PARTITION)) if refuse else F.lit(None)).cast("int")
    number = partition_number(tree, [target.values for target in targets], unknown)
    if number is not None:
        numbered = rows.withColumn(PART, number)
        numbered = numbered if refuse else numbered.where(F.col(PART).isNotNull())
        return numbered.withColumn(GROUP, bucket(_bucket_count(targets)))
    names = list(value_texts(tree))
    ddl = ", ".join([f"{PART} int", f"{_COUNT} int", *(f"{name} string" for name in names)])
    partitions = inline(rows.sparkSession, [(n, t.buckets, *t.values) for n, t in enumerate(targets)], ddl)
    joined = rows.join(F.broadcast(partitions), partition_condition(tree, partitions), "left" if refuse else "inner")
    return (
        joined.withColumn(PART, F.coalesce(F.col(PART), unknown))
        .withColumn(GROUP, bucket(F.col(_COUNT)))
        .drop(_COUNT, *names)
    )


def _bucket_count(targets: Sequence[Target]) -> int | Column | None:
    """Return the bucket count of the partition whose number :data:`PART` holds."""
    counts = [target.buckets for target in targets]
    if len(set(counts)) == 1:
        return counts[0]
    return F.get(F.array(*map(F.lit, counts)), F.col(PART))
