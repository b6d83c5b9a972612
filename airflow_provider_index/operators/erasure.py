"""The operator that shows what an erasure would take, for the person who approves it. No Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_index.arguments import (
    declares_arguments,
)
from airflow_provider_index.operators.base import TableOperator


class PreviewErasureOperator(TableOperator):
    """Shows which rows a predicate takes, before a person approves that they are erased.

    The predicate is shown as this package has read it, not as it was written, each part in a line, with the number of
    rows and files of the newest version. It may hold what can be decided from the values of columns; comments, and
    conditions that only Spark can evaluate, are refused.

    ::

        PreviewErasureOperator(
            task_id="preview", table="shop.orders", where="rider = '{{ params.rider }}'", table_conn_id="lake"
        )

    :param where: a SQL predicate on the table, the same as for the ``WriteTableOperator`` that deletes.

    Returns ``rows``, ``files`` and ``version``. Pushes two more XCom keys: ``markdown`` (for the body of an
    ``ApprovalOperator``), and ``where``, for the delete.
    """

    @declares_arguments
    def __init__(self, *, where: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from spark_apps.storage.printing import code, counted, fence

        shown = self.hook.open(self.table).preview(self.where)
        lines = [
            f"All rows of {code(self.table)} that satisfy this are erased for good:",
            "",
            *fence(shown.lines, "sql"),
            "",
            f"In version {shown.version} these are {counted(shown.rows, 'row')} in {counted(shown.files, 'file')}; "
            "rows that are written until then are erased too. Older versions of the table are removed as well.",
        ]
        markdown = "\n".join(lines)
        self.log.info("%s", markdown)
        self.push(context, markdown=markdown, where=self.where)
        return {"rows": shown.rows, "files": shown.files, "version": shown.version}
