"""The operator that runs SQL on indexes, tables and rows; each statement that changes something is a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow_provider_index.arguments import (
    declares_arguments,
    values_by_name,
)
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.operators.base import SparkTableOperator, outcome_of
from spark_apps.storage.errors import InvalidInput, InvalidName, JobFailed, TableNotFound

if TYPE_CHECKING:
    from spark_apps.jobs.job import Outcome
    from spark_apps.sql.statements import Statement
    from spark_apps.storage.store import Store
    from spark_apps.timeline.locations import Warehouse
    from spark_apps.timeline.log import Timeline
    from spark_apps.timeline.model import Receipt


class IndexSQLOperator(SparkTableOperator):
    """Runs a script in one app: ``MERGE INTO … ; REFRESH INDEX … ; SELECT …``. docs/sql.md lists all statements.

    The script is parsed before Spark is started; a mistake in it fails the task at once, with line and column. A retry
    continues after the last statement that was committed. Tables are named below the warehouse of the connection.

    ::

        IndexSQLOperator(
            task_id="forget",
            sql="DELETE FROM shop.orders WHERE rider = :rider; REFRESH INDEX by_city ON shop.orders",
            parameters={"rider": "{{ params.rider }}"},
            table_conn_id="lake",
        )

    :param sql: the statements, separated by ``;``, or the name of a ``.sql`` file.
    :param parameters: name -> value, bound to ``:name`` in the script and never read as SQL: text, numbers, booleans,
        dates, times, ``None``. Put what a person or another system gives into these, not into the
        template of ``sql``.
    :param window: epoch of a stop-write window; all statements that change something must be about the table of this
        window.
    :param max_rows: the highest number of rows that a query may return to XCom; 1,000 by default. If there are more,
        the task fails.
    :param output_path: folder into which the result of the script's only query is written as Parquet, replacing an
        earlier result; XCom then has its ``location`` and no rows.

    Returns a list with one result per statement: ``statement``, ``table``, ``location``, ``receipt`` (``None`` if it
    only reads), ``columns`` and ``rows``.
    """

    program = "run_sql"
    takes_no = frozenset({"table"})
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}

    @declares_arguments
    def __init__(
        self,
        *,
        sql: str,
        parameters: Annotated[Mapping[str, Any] | None, values_by_name] = None,
        max_rows: int | None = None,
        output_path: str | None = None,
        table_conn_id: str = TableStoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if "table" in kwargs:
            raise InvalidInput("IndexSQLOperator takes no table.", hint="Name the tables in the statements.")
        super().__init__(table="", table_conn_id=table_conn_id, **kwargs)

    def check_arguments(self) -> None:
        super().check_arguments()
        if isinstance(self.max_rows, int) and self.max_rows < 1:
            raise InvalidInput(f"max_rows is {self.max_rows}.", hint="Give a number from 1 on, or an output_path.")

    # --- arguments of the app ---------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        given = {"sql": self.script(), "max_rows": self.max_rows, "output_path": self.output_path}
        return {name: value for name, value in given.items() if value is not None}

    def location(self) -> str:
        return self.hook.warehouse or ""

    def script(self) -> str:
        """Return the script with its parameters bound. :raises InvalidInput: for one that is missing or unknown."""
        from spark_apps.storage.parameters import bind

        return self.sql if self.parameters is None else bind(self.sql, self.parameters)

    def statements(self) -> list[Statement]:
        """Return the script as it was read. :raises InvalidStatement: with the line and column of the mistake."""
        from spark_apps.sql.parser import parse

        statements = list(parse(self.script()))
        queries = sum(one.of_rows and not one.commits for one in statements)
        if self.output_path is not None and queries != 1:
            raise InvalidInput(
                f"An output_path is given, and the script holds {queries} queries.",
                hint="Give a query a script of its own.",
            )
        return statements

    # --- the work ---------------------------------------------------------------------------------------------

    def check_before_spark(self) -> None:
        """Do nothing: the script was read already, and its tables are found one by one as it runs."""

    def commits(self) -> bool:
        return any(statement.commits for statement in self.statements())

    def already_done(self, txn_id: str) -> Any:
        statements = self.statements()
        done = self._committed(statements, txn_id)
        if len(done) != len(statements):
            return None
        return self._finish([done[statement.source.number] for statement in statements])

    def conclude(self, txn_id: str | None, outcome: Outcome | None) -> Any:
        if outcome is None and txn_id is not None and (done := self.already_done(txn_id)) is not None:
            return done
        answers = outcome_of(outcome).value
        self._check(answers)
        return self._finish(answers)

    def jobs_store(self) -> Store | None:
        """Return the folder below the warehouse."""
        from spark_apps.storage.store import Store

        return None if self.hook.warehouse is None else Store(self.hook.warehouse, self.hook.storage_options)

    def tables_of_jobs(self) -> tuple[str, ...]:
        """Return the locations of the statements' tables, as far as they are known without Spark's catalog."""
        named = (one for one in self.statements() if one.commits and getattr(one, "table", None) is not None)
        return tuple(dict.fromkeys(location for one in named for location in self._locations(one)))

    def has_log(self) -> bool:
        return True

    def _committed(self, statements: list[Statement], txn_id: str) -> dict[int, dict[str, Any]]:
        """Return number of a statement -> its answer, for those that have their commit."""
        from spark_apps.sql.statements import transaction_of

        answers = {}
        for statement in statements:
            if not statement.commits:
                continue
            for location in self._locations(statement):
                receipt = self._warehouse.receipt(location, transaction_of(txn_id, statement))
                if receipt is not None:
                    answers[statement.source.number] = _answer(statement, location, receipt)
                    break
        return answers

    def _check(self, answers: list[dict[str, Any]]) -> None:
        """Compare what the app said with the logs: a commit counts if a log has it."""
        for answer in answers:
            receipt = answer["receipt"]
            if receipt is None or receipt["version"] is None:
                continue
            if self._warehouse.receipt(answer["location"], receipt["txn_id"]) is None:
                raise JobFailed(
                    f"The app {self.program} speaks of version {receipt['version']} of {answer['location']}, and the "
                    f"log there holds no commit of transaction {receipt['txn_id']}.",
                    hint="See the app's lines above; a retry goes on behind the last statement that landed.",
                )

    def _finish(self, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for number, answer in enumerate(answers, 1):
            receipt = answer["receipt"]
            if receipt is None:
                self.log.info("%s. %s: %s rows", number, answer["statement"], len(answer["rows"]))
            else:
                self.log.info(
                    "%s. %s: version %s %s", number, answer["statement"], receipt["version"], receipt.get("metrics", {})
                )
        return answers

    # --- the tables that the statements name ------------------------------------------------------------------

    @property
    def _warehouse(self) -> Warehouse:
        from spark_apps.timeline.locations import Warehouse

        whose = f"the connection {self.table_conn_id!r}"
        return Warehouse(self.hook.warehouse, self.hook.storage_options, whose)

    def _locations(self, statement: Statement) -> list[str]:
        """Return where the log of a statement's table may be, as far as that is known without Spark's catalog."""
        table = getattr(statement, "table", None)
        if table is None:
            return [table.location for table in self._warehouse.known_tables()]
        try:
            return [self._warehouse.locate(table)]
        except InvalidName:
            if self.hook.warehouse is not None:
                raise
            return []  # perhaps a name that Spark's catalog knows; the app finds out

    def timelines(self, txn_id: str) -> Iterator[tuple[Timeline, list[str]]]:
        from spark_apps.sql.statements import transaction_of
        from spark_apps.timeline.log import Timeline

        for statement in self.statements():
            for location in self._locations(statement) if statement.commits else ():
                log = self._warehouse.log_of(location)
                if log is None:
                    continue
                try:
                    yield Timeline.load(log), [transaction_of(txn_id, statement)]
                except TableNotFound:  # dropped
                    continue


def _answer(statement: Statement, location: str, receipt: Receipt) -> dict[str, Any]:
    return {
        "statement": statement.words,
        "table": getattr(statement, "table", None),
        "location": location,
        "receipt": receipt.to_dict(),
        "columns": [],
        "rows": [],
    }
