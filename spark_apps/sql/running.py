"""Runs a script, statement by statement, each a transaction of its own.

A script is read whole first, so a mistake in its text changes nothing. Where a statement fails the ones before it
stand, and the error says which failed and what stands.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_apps.sql.executing import execute
from spark_apps.sql.parsing import parse
from spark_apps.sql.results import Result, Results
from spark_apps.sql.session import Session
from spark_apps.sql.statements import Statement, transaction_of
from spark_apps.storage.errors import CommitStateUnknown, LakeIndexError
from spark_apps.timeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def run(
    spark: SparkSession,
    text: str,
    warehouse: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    txn_id: str | None = None,
    window: int | None = None,
) -> Results:
    """Runs the statements of a script; docs/sql.md tells each.

    :param text: statements separated by ``;``.
    :param warehouse: URI or path below which tables have names; those given by location need none.
    :param options: of the store; see :class:`~spark_apps.storage.store.Store`.
    :param txn_id: names the script's intent: statement 1 commits as ``<txn_id>.001`` and so on, and what has committed
        already under these is not done again.
    :param window: epoch of the stop-write window that the caller holds.
    :returns: an answer a statement; ``.rows``, ``.columns`` and ``.to_df()`` are those of the last.
    :raises InvalidStatement: if the text cannot be read; nothing was run.
    :raises LakeIndexError: of a statement that failed; it says which, and what stands.
    """
    statements = parse(text)
    session = Session(spark, Warehouse(warehouse, dict(options or {})), window)
    done: list[Result] = []
    for statement in statements:
        started = time.monotonic()
        own = None if txn_id is None else transaction_of(txn_id, statement)
        try:
            result = execute(session, statement, own)
        except Exception as error:
            _place(error, statement, len(statements), done)
            raise
        logger.info(
            "Statement %s of %s, %s: %s, %.1f s",
            statement.source.number, len(statements), statement.words, _said(result), time.monotonic() - started,
        )  # fmt: skip
        done.append(result)
    return Results(done, spark)


def _said(result: Result) -> str:
    if result.receipt is None:
        return f"{len(result.rows)} rows"
    return "nothing to do" if result.receipt.version is None else f"version {result.receipt.version}"


def _place(error: Exception, statement: Statement, total: int, done: list[Result]) -> None:
    """Makes an error tell where it happened and what stands. Its class, and so what a retry can do, stays."""
    source = statement.source
    where = f"Statement {source.number} of {total} (line {source.line}, {statement.words})"
    stands = [
        f"statement {result.statement.source.number} stands as version {result.receipt.version} of {result.location}"
        for result in done
        if result.receipt is not None and result.receipt.version is not None
    ]
    after = f"Before it, {'; '.join(stands)}." if stands else ""
    not_run = total - source.number
    if not_run:
        after += f" The {'statement' if not_run == 1 else f'{not_run} statements'} behind it {_was(not_run)} not run."
    if not isinstance(error, LakeIndexError):
        error.add_note(" ".join(part for part in (f"{where} failed.", after.strip()) if part))
        return
    outcome = error.outcome
    if stands and outcome == LakeIndexError.outcome and not isinstance(error, CommitStateUnknown):
        outcome = "This statement changed nothing."
    error.message = f"{where}: {error.message}"
    error.outcome = " ".join(part for part in (outcome, after.strip()) if part)
    error.args = (" ".join(part for part in (error.message, error.outcome, error.hint) if part),)


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
