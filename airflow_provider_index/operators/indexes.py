"""Operators on one index: build, refresh, verify, drop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow_provider_index.arguments import (
    choice,
    declares_arguments,
    included_columns,
    required,
    some_texts,
    texts_by_name,
)
from airflow_provider_index.operators.base import IndexOperator, SparkTableOperator
from spark_apps.storage.errors import VerificationFailed

if TYPE_CHECKING:
    from spark_apps.jobs.job import Outcome


class BuildIndexOperator(IndexOperator):
    """Builds an index over the table while writers go on; it also covers what they commit meanwhile.

    ::

        BuildIndexOperator(
            task_id="build", table="shop.orders", index="by_city", kind="secondary", columns=["city"], deferred=True
        )

    :param kind: ``record``, ``secondary`` …
    :param columns: the indexed columns, in order; not for a ``record`` index.
    :param included: columns that the index carries besides, for kinds that can: ``{"include": […], "exclude": […]}``.
    :param properties: properties of the kind.
    :param deferred: update the index by refreshes only, not in every write.
    :param if_not_exists: leave an index of this name as it is, unless this task made it before it was cleared.

    Returns the receipt of the commit that made the index active. A cleared task builds the index that it made before
    again, in one commit, until which the old one is used. It refuses, or with ``if_not_exists`` leaves alone, an index
    that another task made, or that has another definition.
    """

    program = "build_index"
    stageable = "after"
    can_plan = True
    asks_for_earlier = True

    @declares_arguments
    def __init__(
        self,
        *,
        kind: str,
        columns: Sequence[str] | None = None,
        included: Annotated[Mapping[str, Any] | Sequence[str] | None, included_columns] = None,
        properties: Annotated[Mapping[str, str] | None, texts_by_name] = None,
        deferred: bool = False,
        if_not_exists: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)


class _Refresh(IndexOperator):
    """Operator that brings an index up to date, under two names.

    :param mode: ``incremental`` reads only what is not covered, ``full`` builds the index again, ``quick`` only
        records what has changed.
    :param partitions: only these partitions, as paths (``dt=2024-11-11``); all by default.
    :param included: columns to add and to remove: ``{"include": […], "exclude": […]}``.
    :param schema: types of added columns, as DDL, if the files lack them.
    """

    program = "refresh_index"
    stageable = "after"
    can_plan = True

    @declares_arguments
    def __init__(
        self,
        *,
        mode: Annotated[str, required(choice("incremental", "full", "quick"))] = "incremental",
        partitions: Sequence[str] | None = None,
        included: Annotated[Mapping[str, Any] | Sequence[str] | None, included_columns] = None,
        schema: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)


class IncrementalRefreshOperator(_Refresh):
    """Brings an index up to date with its table.

    ::

        IncrementalRefreshOperator(
            task_id="refresh", table="shop.orders", index="by_city", partitions=["dt=2026-11-11"]
        )
    """


class RefreshIndexOperator(_Refresh):
    """Brings an index up to date with its table: :class:`IncrementalRefreshOperator` by a name that fits all modes.

    ::

        RefreshIndexOperator(task_id="rebuild", table="shop.orders", index="by_city", mode="full")
    """


class VerifyIndexOperator(SparkTableOperator):
    """Compares indexes with a full scan of the table, and fails if one differs, or rebuilds it.

    ::

        VerifyIndexOperator(task_id="verify", table="shop.orders", index=["by_city", "by_day"], repair=True)

    :param index: one name, several, or ``None`` for all indexes of the table.
    :param fail: fail the task if an index differs; otherwise only report it.
    :param repair: rebuild the indexes that differ, all in one commit.

    Returns the reports: index name -> report. Nothing is changed. With ``repair`` it returns the receipt of the commit
    instead, whose metrics say what was wrong; its version is ``None`` if every index agrees.
    """

    program = "verify_index"

    @declares_arguments
    def __init__(
        self,
        *,
        index: Annotated[str | Sequence[str] | None, some_texts] = None,
        fail: bool = True,
        repair: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def commits(self) -> bool:
        return self.repair

    def arguments(self) -> dict[str, Any]:
        return {"names": self.index, "repair": self.repair}

    def finish(self, outcome: Outcome) -> Any:
        reports: dict[str, Any] = outcome.value
        wrong = {name: report for name, report in reports.items() if not report["ok"]}
        for name, report in reports.items():
            self.log.info("%s: %s", name, report)
        if wrong and self.fail:
            raise VerificationFailed(
                f"{', '.join(map(repr, wrong))} of {self.table} do not agree with the table's rows: {wrong}",
                hint="Rebuild what is wrong: VerifyIndexOperator(…, repair=True), or a refresh with mode='full'.",
            )
        return reports


class DropIndexOperator(IndexOperator):
    """Drops an index; the next cleaning deletes its files.

    ::

        DropIndexOperator(task_id="drop", table="shop.orders", index="by_city", if_exists=True)

    :param if_exists: an index that does not exist is not an error. Neither is one that this task dropped before it was
        cleared.
    """

    program = "drop_index"
    asks_for_earlier = True

    @declares_arguments
    def __init__(self, *, if_exists: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
