"""Tables for those who write SQL: views that were pruned when they were made, and the Python data source."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_apps.face.base import Face
from spark_apps.query.reading import read_rows
from spark_apps.storage.errors import EnvironmentMismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class ViewsFace(Face):
    """Rows under a name in Spark's SQL."""

    def create_view(self, name: str, where: str | None = None, columns: Sequence[str] | None = None) -> None:
        """Makes (or replaces) a temporary view of this version's rows in the session, for queries in SQL.

        What ``where`` rules out is pruned by the indexes now, once; a query's own conditions are left to Spark, which
        reads only the columns that it needs.

        :param where: a SQL predicate, as in ``read``. :param columns: which columns, in their order.
        :raises InvalidPredicate: :raises UnknownColumn:
        """
        read_rows(self.snapshot, where, columns).createOrReplaceTempView(name)


def register_data_source(spark: SparkSession, enable_pushdown: bool = False) -> None:
    """Makes ``spark.read.format("indexed")`` and ``USING indexed`` known to a session.

    :param enable_pushdown: also turn on the session's ``spark.sql.python.filterPushdown.enabled``, which concerns all
        Python data sources; without it, and in Spark 4.1 and 4.2 with it too, only the option ``where`` prunes.
    :raises EnvironmentMismatch: if this Spark has no Python data sources (4.0 brought them).
    """
    try:
        from spark_apps.face.datasource import KEPT_WITH_SCAN, PUSHDOWN, IndexedDataSource
    except ImportError as error:
        raise EnvironmentMismatch(
            "This Spark has no Python data sources, which came with version 4.0.",
            hint="Use IndexedTable.read, or a view made with create_view.",
        ) from error
    spark.dataSource.register(IndexedDataSource)
    if enable_pushdown:
        spark.conf.set(PUSHDOWN, "true")
    elif str(spark.conf.get(PUSHDOWN, "false")).lower() != "true":
        logger.warning(
            "%s is off: the data source %r reads whole tables, and no index is used, but for the option where. %s",
            PUSHDOWN, IndexedDataSource.name(),
            "Set it to true, or call register_data_source(spark, enable_pushdown=True)." if KEPT_WITH_SCAN
            else "In this Spark it would not help: what is pruned for one query would be kept for all of a frame.",
        )  # fmt: skip
