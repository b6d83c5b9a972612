"""Writes the micro-batches of a streaming query, each in one commit, however often Spark runs it.

Spark runs a batch again whose end it has not noted in the checkpoint, under the same number and with the same rows.
The transaction of a batch is named after the id that the checkpoint keeps for its query, and that number; so the commit
of an earlier try is found in the table's log, and nothing is written twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_apps.storage.errors import ConcurrentWrite, EnvironmentMismatch
from spark_apps.storage.names import check_txn_id
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
"""Spark's own name of the property that the thread of a streaming query has; the checkpoint keeps its value."""
_LONGEST = "00000000-0000-0000-0000-000000000000.9223372036854775807"
_TRIES = 5


@dataclass(frozen=True)
class UpsertBatch:
    """The function for ``foreachBatch``.

    It names the table instead of holding it, since Spark Connect runs it in another process.

    :param load: loads a table, given a session, its address and the options of its store.
    :param name: begins the transactions' ids. :param query_id: the query's id, where Spark does not tell it.
    :param deleted: as of ``IndexedTable.upsert``.
    :raises InvalidName: if the name cannot begin an id.
    """

    load: Callable[..., Any]
    uri: str
    options: Mapping[str, Any] | None = field(repr=False)
    name: str
    deleted: str | None = None
    query_id: str | None = None

    def __post_init__(self) -> None:
        check_txn_id(f"{self.name}.{self.query_id or _LONGEST}.0")

    def __call__(self, rows: DataFrame, batch_id: int) -> Receipt:
        """Write one batch, or find that it is written.

        :raises EnvironmentMismatch: if the query's id cannot be told.
        :raises CommitRefused: if the commit is refused; the next start of the query runs the batch again.
        """
        txn_id = f"{self.name}.{self.query_id or _query_id(rows)}.{batch_id}"
        table = self.load(rows.sparkSession, self.uri, options=self.options)
        before = table.version
        for tried in range(1, _TRIES + 1):
            try:
                receipt: Receipt = table.upsert(rows, deleted=self.deleted, txn_id=txn_id)
                break
            except ConcurrentWrite as error:
                if tried == _TRIES:
                    raise
                logger.info("batch %s of %s is tried again: %s", batch_id, self.name, error.message)
        if receipt.version is None:
            logger.info("batch %s of %s: nothing to do", batch_id, self.name)
        else:
            known = "was committed before, " if receipt.version <= before else ""
            logger.info("batch %s of %s: %sversion %s", batch_id, self.name, known, receipt.version)
        return receipt


def _query_id(rows: DataFrame) -> str:
    context: Any = getattr(rows.sparkSession, "_sc", None)
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    if not found:
        raise EnvironmentMismatch(
            "Which streaming query this batch is of cannot be told, so it could not be known again after a restart.",
            hint="Outside of foreachBatch, over Spark Connect, and where PYSPARK_PIN_THREAD is false, Spark does not "
            "tell: give upsert_batch a query_id that stands for the checkpoint, and another one for another.",
        )
    return str(found)
