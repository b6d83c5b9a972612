"""Operators of maintenance by policy: one makes a run's plan for all tables, one does on tables what was planned.

The plan is made by the worker from the tables' logs, without Spark; the work on a table, or on several small ones, is
one Spark app.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow.sdk import BaseOperator, Variable

from airflow_provider_index.arguments import (
    NOT_DECLARED,
    declares_arguments,
    flag,
    mappings,
    required,
    text,
    text_list,
)
from airflow_provider_index.compat import AirflowFailException, AirflowSkipException, conf
from airflow_provider_index.connected import Connected
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.identity import once, transaction_id
from airflow_provider_index.operators.base import SparkTableOperator
from spark_apps.storage.errors import InvalidInput, LakeIndexError, LogDamaged, StorageError, TableNotFound

if TYPE_CHECKING:
    from spark_apps.maintenance.plan import MaintenancePlan
    from spark_apps.maintenance.policies import Budget, MaintenanceConfig
    from spark_apps.maintenance.survey import MaintainedTable, Missed
    from spark_apps.timeline.locations import Warehouse
    from spark_apps.timeline.log import Timeline
    from spark_apps.timeline.model import Receipt

OFF_VARIABLE = "index_maintenance_off"
"""The Airflow Variable that switches tables off: names or patterns, as a JSON list or one a line."""

_ROWS_IN_XCOM = 2000
_BEGUN = "begun"

TABLES_PER_TASK = 10
"""How many tables with little work share a task of :func:`~airflow_provider_index.maintenance.index_maintenance`."""

SECONDS_PER_TASK = 300.0
"""Their work is estimated to take no longer together."""

FIRST_WORK_SECONDS = 900.0
"""The first work of a run is done whatever the budget: for so long after the plan its table's task may begin."""


class PlanMaintenanceOperator(Connected, BaseOperator):
    """Checks many tables and decides which work a run does on them; commits nothing.

    Returns a list with one entry per task, over which :class:`MaintainTableOperator` is mapped. The XCom key ``plan``
    has what was chosen, left and skipped, with reasons. The same is kept below each table, in
    ``_index/maintenance/last.json``, so that the next run knows what was left.

    The run's params restrict it: ``tables`` and ``skip`` (patterns), ``budget_minutes``, ``budget_bytes``,
    ``plan_only``.

    ::

        PlanMaintenanceOperator(task_id="plan", config=read_config(["shop.*"]), tables_at_once=2, tables_per_task=10)

    :param config: what to maintain, as :func:`~spark_apps.maintenance.policies.read_config` returns it.
    :param spark_conn_id: for tables whose entry names no other connection.
    :param tables_at_once: how many tasks work on tables at the same time.
    :param tables_per_task: how many tables with little work may share a task and its Spark app: an entry then has
        ``more_tables``. Only tables of the same connections and the same store share one.
    :param seconds_per_task: how many seconds the work of the tables that share a task may take together, as estimated.
    :param off_variable: an Airflow Variable with tables that are switched off.
    :param table_conn_id: the connection of tables whose entry names no other one.
    """

    ui_color = "#f2ead0"

    @declares_arguments
    def __init__(
        self,
        *,
        config: Annotated["MaintenanceConfig", NOT_DECLARED],  # noqa: UP037 - the class is not imported for parsing
        spark_conn_id: str | None = None,
        tables_at_once: int = 1,
        off_variable: str = OFF_VARIABLE,
        tables_per_task: int = 1,
        seconds_per_task: float = SECONDS_PER_TASK,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config

    def execute(self, context: Mapping[str, Any]) -> list[dict[str, Any]]:
        from spark_apps.maintenance.plan import as_text

        ti, params = context["ti"], dict(context.get("params") or {})
        with self.reading(context):
            plan_only = flag("plan_only", params.get("plan_only"))
            plan = self.plan(ti.dag_id, params, ti.run_id)
        self.log.info("%s", as_text(plan))
        ti.xcom_push(key="plan", value=_for_xcom(plan))
        if plan_only:
            self.log.info("Only a plan was asked for: nothing is done.")
            return []
        self._keep(plan, ti.dag_id, ti.run_id)
        until = None if plan.budget.minutes is None else plan.at + plan.budget.minutes * 60
        first = None if until is None else max(until, plan.at + FIRST_WORK_SECONDS)
        # What has more time than the rest shares it with no other table.
        tasks = plan.tasks(self.tables_per_task, self.seconds_per_task, first_alone=first != until)
        return [
            {
                "until": until if number else first,
                "spark_conn_id": self.spark_conn_id,
                **{name: given for name, given in task.items() if given is not None},
            }
            for number, task in enumerate(tasks)
        ]

    def plan(self, dag_id: str, params: Mapping[str, Any], run_id: str | None = None) -> MaintenancePlan:
        """Return the plan as of now. :raises InvalidInput: for params or a Variable that cannot be understood."""
        from airflow_provider_index import metrics
        from spark_apps.maintenance.plan import plan_maintenance
        from spark_apps.maintenance.survey import find_tables, survey_tables

        warehouses = warehouses_of({self.table_conn_id, *(entry.table_conn_id for entry in self.config.tables)})
        tables, missed = find_tables(self.config.tables, warehouses, self.table_conn_id)
        tables, off = self._narrowed(tables, params)
        surveys, unreachable = survey_tables(tables)
        for survey in surveys if metrics.enabled() else ():
            if survey.demand is not None:
                metrics.record_demand(survey.demand, survey.table.name)
        return plan_maintenance(
            surveys,
            [*missed, *off, *unreachable],
            _budget(self.config.budget, params),
            dag_id,
            run_id,
            at_once=self.tables_at_once,
            most_tables=conf.getint("core", "max_map_length", fallback=1024),
        )

    def _narrowed(
        self, tables: Iterable[MaintainedTable], params: Mapping[str, Any]
    ) -> tuple[list[MaintainedTable], list[Missed]]:
        """Return the tables without those that are switched off, or that this run was not asked for."""
        from spark_apps.maintenance.survey import Missed
        from spark_apps.timeline.maintenance_records import SkippedWork

        only, skip = _patterns(params.get("tables"), "tables"), _patterns(params.get("skip"), "skip")
        off = Variable.get(self.off_variable, default=None)
        variable = _patterns(off, f"The Variable {self.off_variable}")
        kept: list[MaintainedTable] = []
        missed: list[Missed] = []
        for table in tables:
            if not table.entry.enabled:
                reason = SkippedWork("switched_off", "The description says enabled: false.")
            elif by := _fits(table, variable):
                reason = SkippedWork("switched_off", f"The Variable {self.off_variable} lists {by}.")
            elif by := _fits(table, skip):
                reason = SkippedWork("switched_off", f"The run was told to skip {by}.")
            elif only and not _fits(table, only):
                reason = SkippedWork("not_asked", "The run was asked for other tables.")
            else:
                kept.append(table)
                continue
            missed.append(Missed(table.name, reason, table.location))
        return kept, missed

    def _keep(self, plan: MaintenancePlan, dag_id: str, run_id: str) -> None:
        from spark_apps.timeline.maintenance_records import write_plan

        for survey in plan.surveys:
            table = survey.table
            store = table.warehouse.log_of(table.location) or table.warehouse.store(table.location)
            try:
                write_plan(store, plan.for_table(survey, dag_id, run_id))
            except StorageError as error:
                # What is to be done is in XCom; only the next run knows less.
                self.log.warning("The plan for %s could not be kept below it: %s", table.name, error)


def warehouses_of(conn_ids: Iterable[str | None]) -> dict[str, Warehouse]:
    """Return where the tables of some connections are: connection id -> warehouse.

    Connections are fetched by the task's own thread: threads that read storage ask Airflow nothing.

    :raises InvalidInput: if there is no such connection.
    """
    from spark_apps.timeline.locations import Warehouse

    warehouses = {}
    for conn_id in {*conn_ids} - {None}:
        hook = TableStoreHook(str(conn_id))
        warehouses[str(conn_id)] = Warehouse(hook.warehouse, hook.storage_options, f"the connection {conn_id!r}")
    return warehouses


class MaintainTableOperator(SparkTableOperator):
    """Does the planned work on a table, or on several one after the other, in one app.

    Each piece of work is a commit of its own in its table. If one piece fails, the others are still done, and a retry
    does only what is left. Work that would begin after ``until``, or that gives way to a writer with a window, is left
    to the next plan.

    ::

        MaintainTableOperator.partial(task_id="maintain", conf={"spark.executor.cores": 4}, retries=4).expand_kwargs(
            plan.output
        )

    :param steps: as :class:`PlanMaintenanceOperator` returns them.
    :param until: seconds since 1970, after which no work is begun.
    :param name: the table's name for people.
    :param more_tables: more tables of the same connection, for work in the same app: mappings with ``table`` and
        ``steps``.

    Returns one receipt per step. With ``more_tables``, each receipt has the location of its ``table``.
    """

    program = "maintain_table"

    @declares_arguments
    def __init__(
        self,
        *,
        steps: Annotated[Sequence[Mapping[str, Any]], mappings],
        until: float | None = None,
        name: str | None = None,
        more_tables: Annotated[Sequence[Mapping[str, Any]], mappings] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.name = name or self.table

    def arguments(self) -> dict[str, Any]:
        more = [{"table": location, "steps": steps} for location, steps in self._tables()[1:]]
        return {"steps": list(self.steps), "until": self.until, **({"more_tables": more} if more else {})}

    def transactions(self, txn_id: str) -> list[str]:
        # A comparison has no commit to be found by, so with one among the steps a retry always asks the app.
        return [one for _, txn_ids in self._transactions_of_tables(txn_id) for one in txn_ids]

    def done(self, context: Mapping[str, Any], result: Any) -> Any:
        if self.more_tables:
            tables = [location for location, steps in self._tables() for _ in steps]
            numbers = (int(str(receipt["txn_id"]).rpartition(".")[2]) for receipt in result)
            result = [{**receipt, "table": tables[at - 1]} for receipt, at in zip(result, numbers, strict=True)]
        return super().done(context, result)

    # --- the tables -------------------------------------------------------------------------------------------

    def tables_of_jobs(self) -> tuple[str, ...]:
        return tuple(location for location, _ in self._tables()[1:])

    def _tables(self) -> list[tuple[str, list[Mapping[str, Any]]]]:
        """Return the location of each table, with its steps."""
        first = self.location() if self.more_tables else self.table
        tables: list[tuple[str, list[Mapping[str, Any]]]] = [(first, list(self.steps))]
        for at, entry in enumerate(self.more_tables):
            where = f"more_tables[{at}]"
            table = required(text)(f"{where}.table", entry.get("table"))
            tables.append((self.hook.locate(table), required(mappings)(f"{where}.steps", entry.get("steps"))))
        return tables

    def _transactions_of_tables(self, txn_id: str) -> list[tuple[str, list[str]]]:
        """Return each table with the transactions of its steps, whose numbers go on from table to table."""
        numbers = itertools.count(1)
        return [(table, [f"{txn_id}.{next(numbers)}" for _ in steps]) for table, steps in self._tables()]

    def check_before_spark(self) -> None:
        """Do nothing: the plan was made from the tables' logs."""

    def timelines(self, txn_id: str) -> Iterator[tuple[Timeline, list[str]]]:
        for table, txn_ids in self._transactions_of_tables(txn_id):
            try:
                yield self.hook.timeline(table), txn_ids
            except TableNotFound:  # dropped
                continue
            except LogDamaged as error:
                if not self.more_tables:
                    raise
                # The app meets the same, and does the work on the others.
                self.log.warning("The log of %s cannot be read: %s", table, error.message)

    def _check_windows(self, txn_id: str) -> None:
        # Of several tables a window stops one; the app finds it when it comes to that.
        if not self.more_tables:
            super()._check_windows(txn_id)

    def _hand_on(self, receipts: list[Receipt]) -> Any:
        result = super()._hand_on(receipts)
        return result if isinstance(result, list) else [result]

    # --- the time that the run has ----------------------------------------------------------------------------

    def work(self, context: Mapping[str, Any]) -> Any:
        if self.more_tables and self.window is not None:
            raise InvalidInput("A window is of one table, and more_tables names others.", hint="Leave one of both out.")
        # The first try since the last clear; an Airflow that remembers none (before 3.3) takes the first of all.
        now = context["ti"].try_number
        first = once(context, _BEGUN, lambda: now) if context.get("task_state_store") is not None else 1
        if self.until is not None and time.time() > self.until:
            return self._without_time(context, now > first)
        return super().work(context)

    def _without_time(self, context: Mapping[str, Any], begun: bool) -> Any:
        """Return what an earlier try has done, if that is all. What is at work still is ended first.

        :raises AirflowSkipException: nothing was begun. :raises AirflowFailException: an earlier try has failed.
        """
        if not begun:
            raise AirflowSkipException("The time given to this run is over; the next one begins with what is left.")
        self._txn_id = txn_id = transaction_id(context, self.inputs)
        self.end_earlier_jobs(context)
        self._end_earlier_attempts(context, "the time given to this run is over")
        if (done := self.already_done(txn_id)) is not None:
            return done
        landed, all_of_it = len(self._receipts(txn_id)), len(self.transactions(txn_id))
        raise AirflowFailException(
            f"An earlier try failed, and the time given to this run is over: {landed} of {all_of_it} pieces of work "
            "have their commit, and nothing more is begun. The next run goes on with what is left."
        )


def _for_xcom(plan: MaintenancePlan) -> dict[str, Any]:
    import msgspec

    def row(one: Any, **more: Any) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(one)
        return {**more, **built}

    return {
        "at": plan.at,
        "bytes": plan.bytes,
        "seconds": round(plan.seconds, 1),
        "chosen": [row(one.planned(), table=one.survey.table.name) for one in plan.chosen],
        "left": [row(one.planned(False, code, why), table=one.survey.table.name) for one, code, why in plan.postponed],
        "skipped": [row(skip, table=name) for name, skip in plan.skipped[:_ROWS_IN_XCOM]],
        "skipped_in_all": len(plan.skipped),
    }


def _budget(given: Budget, params: Mapping[str, Any]) -> Budget:
    from spark_apps.maintenance.policies import Budget
    from spark_apps.storage.sizes import parse_bytes, parse_minutes

    size, minutes = params.get("budget_bytes"), params.get("budget_minutes")
    return Budget(
        given.bytes if size in (None, "") else parse_bytes(size, "budget_bytes"),
        given.minutes if minutes in (None, "") else parse_minutes(minutes, "budget_minutes"),
    )


def _patterns(given: Any, where: str) -> list[str]:
    from spark_apps.maintenance.policies import check_pattern

    return [check_pattern(one, where) for one in text_list(where, given) or ()]


def _fits(table: MaintainedTable, patterns: Iterable[str]) -> str | None:
    from spark_apps.maintenance.policies import matches_table

    return next((one for one in patterns if matches_table(one, table.name) or _is_at(table, one)), None)


def _is_at(table: MaintainedTable, given: str) -> bool:
    """Return whether a path, URI or name is that of the table, or a pattern of it."""
    from spark_apps.maintenance.policies import matches
    from spark_apps.storage.store import Store

    root = table.warehouse.root
    below = table.location.removeprefix(f"{Store(root).uri.rstrip('/')}/") if root is not None else table.location
    if matches(given, table.location) or matches(given, below.replace("/", ".")):
        return True
    try:
        return table.warehouse.locate(given) == table.location
    except LakeIndexError:
        return False  # a pattern, or the name of a table elsewhere


__all__ = ["OFF_VARIABLE", "MaintainTableOperator", "PlanMaintenanceOperator"]
