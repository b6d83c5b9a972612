"""Reports of an operator to others once its work is done: asset events, metrics, lineage and links.

All of it is made from the result that goes to XCom, so it is the same whether the worker waited for the work or the
triggerer did. Telling never fails a task that has done its work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow.sdk import Asset, AssetAlias, BaseOperatorLink

from airflow_provider_index.links import DriverLogLink, SparkUILink, TablePageLink, web_address
from spark_apps.storage.errors import InvalidName, LakeIndexError, TableNotFound

if TYPE_CHECKING:
    from spark_apps.timeline.model import TableDefinition


@dataclass(frozen=True)
class ReportedCommit:
    """A receipt of a task, and what it is about.

    :param table: what the task calls the table. :param location: where it is.
    :param definition: the table as it is after the commit, where lineage is sent.
    """

    receipt: Mapping[str, Any]
    table: str
    location: str
    index: str | None = None
    definition: TableDefinition | None = None

    @property
    def committed(self) -> bool:
        """True if there was something to do."""
        return self.receipt.get("version") is not None


class ReportedPages(Protocol):
    """Addresses of pages, as an app reports them."""

    @property
    def ui(self) -> str:
        """Spark's own page."""

    @property
    def history(self) -> str:
        """The app's page on the history server."""

    @property
    def log(self) -> str:
        """The log of the driver."""


class Reporting:
    """Reports that operators on tables have in common.

    Mixed into one with ``table``, ``table_conn_id``, ``hook`` and ``outlets``.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return what the operator has."""

    operator_extra_links: ClassVar[tuple[BaseOperatorLink, ...]] = (
        SparkUILink(),
        DriverLogLink(),
        TablePageLink(),
    )

    table_location: str | None = None
    """Where the task's table is, once it is known."""
    spark_ui_url: str | None = None
    """Spark's own page, once the app has said where it is."""
    spark_history_url: str | None = None
    """The app's page on the history server, likewise."""
    driver_log_url: str | None = None
    """What its driver writes, likewise."""
    reported_commits: tuple[ReportedCommit, ...] = ()
    """What the task has reported."""

    def report(self, context: Mapping[str, Any], result: Any) -> Any:
        """Report a result and return it.

        :param result: what goes to XCom: a receipt, several, the answers to statements, or something else, of which
            there is nothing to report.
        """
        from airflow_provider_index import lineage, metrics

        try:
            self.table_location = self.location() or None
            self.reported_commits = tuple(self._commits_of(result))
            if metrics.enabled():
                self._count(context)
            if lineage.enabled():
                self.reported_commits = tuple(self._with_definition(commit) for commit in self.reported_commits)
        except LakeIndexError as error:
            self._warn_of_report(error)
        try:
            self._fill_events(context)
        except LakeIndexError as error:
            self._warn_of_report(error)
        return result

    def _warn_of_report(self, error: LakeIndexError) -> None:
        self.log.warning("The work is done; what it did could not be told in full: %s", error.message)

    def report_error(self, error: BaseException) -> None:
        """Count a task that ends with an error."""
        from airflow_provider_index import metrics

        metrics.record_error(self.task_type, self.table, error)

    def show_table(self, context: Mapping[str, Any]) -> None:
        """Show the page of the table as a link of the task, from now on: also if it fails or is killed."""
        self.table_location = self.location() or None
        link = TablePageLink()
        context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=None))

    def show_pages(self, context: Mapping[str, Any], pages: ReportedPages) -> None:
        """Show Spark's page and the driver's log as links of the task, from now on."""
        known = self.spark_ui_url, self.driver_log_url
        self.spark_history_url = web_address(pages.history) or self.spark_history_url
        self.spark_ui_url = web_address(pages.ui) or self.spark_ui_url
        self.driver_log_url = web_address(pages.log) or self.driver_log_url
        now = self.spark_ui_url, self.driver_log_url
        for key, old, new in zip((SparkUILink().xcom_key, DriverLogLink().xcom_key), known, now, strict=True):
            if new is not None and new != old:
                context["ti"].xcom_push(key=key, value=new)

    # --- OpenLineage, which calls these where its provider is installed ---------------------------------------------

    def get_openlineage_facets_on_start(self) -> Any:
        """Return what the task is going to read and write, as far as that can be said without asking a connection."""
        from airflow_provider_index import lineage

        return lineage.of_start(self)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return what the task has read and written, with versions and figures."""
        from airflow_provider_index import lineage

        return lineage.of_end(self)

    @property
    def index_name(self) -> str | None:
        """The index that the task works on, if it works on one."""
        index = getattr(self, "index", None)
        return index if isinstance(index, str) else None

    # --- inside -----------------------------------------------------------------------------------------------------

    def _commits_of(self, result: Any) -> Sequence[ReportedCommit]:
        commits = []
        for one in result if isinstance(result, list) else [result]:
            if not isinstance(one, Mapping):
                continue
            if "receipt" in one and "location" in one:  # an answer to a statement
                if isinstance(one["receipt"], Mapping):
                    commits.append(ReportedCommit(one["receipt"], one.get("table") or one["location"], one["location"]))
            elif "staged" in (one.get("metrics") or {}):  # the task that commits the transaction reports it
                continue
            elif "txn_id" in one and "operation" in one:
                # A receipt of a task on several tables has its own; otherwise the table is the task's.
                table, location = one.get("table") or self.table, one.get("table") or self.table_location
                commits.append(ReportedCommit(one, table, location or table, self.index_name))
        return commits

    def _count(self, context: Mapping[str, Any]) -> None:
        from airflow_provider_index import metrics

        for commit in self.reported_commits:
            metrics.record_receipt(commit.receipt, commit.table, commit.index)
        for table in dict.fromkeys(commit.table for commit in self.reported_commits if commit.committed):
            with suppress(TableNotFound):  # dropped by what is reported
                metrics.record_state(self.hook.timeline(table).head, table)
        started = getattr(context["ti"], "start_date", None)
        if isinstance(started, datetime):
            seconds = (datetime.now(UTC) - started).total_seconds()
            metrics.record_duration(self.task_type, self.table, seconds)

    def _with_definition(self, commit: ReportedCommit) -> ReportedCommit:
        try:
            definition = self.hook.timeline(commit.table).head.definition
        except TableNotFound:
            return commit
        return ReportedCommit(commit.receipt, commit.table, commit.location, commit.index, definition)

    def _fill_events(self, context: Mapping[str, Any]) -> None:
        """Put the receipts into the events that Airflow sends for the task's outlets once it has succeeded."""
        for outlet in self.outlets:
            if isinstance(outlet, AssetAlias):
                for commit in self.reported_commits:
                    if commit.committed:
                        context["outlet_events"][outlet].add(self._asset_of(commit), extra=_event(commit))
            elif isinstance(outlet, Asset):
                mine = [commit for commit in self.reported_commits if self._is_about(commit, outlet)]
                if mine:
                    # Airflow sends one event an outlet: it describes the last commit and names the others.
                    several = {"commits": [_event(commit)["commit"] for commit in mine]} if len(mine) > 1 else {}
                    context["outlet_events"][outlet].extra.update({**_event(mine[-1]), **several})

    def _asset_of(self, commit: ReportedCommit) -> Asset:
        from airflow_provider_index import assets

        conn_id = self.table_conn_id

        def asset(table: str) -> Asset:
            if commit.index is None:
                return assets.table_asset(table, table_conn_id=conn_id)
            return assets.index_asset(table, commit.index, table_conn_id=conn_id)

        try:
            return asset(commit.table)
        except InvalidName:
            return asset(commit.location)  # a statement's table whose name only Spark's catalog knows

    def _is_about(self, commit: ReportedCommit, asset: Asset) -> bool:
        from airflow_provider_index import assets

        if not asset.uri.startswith(f"{assets.SCHEME}://"):
            return False
        try:
            address = assets.parse_uri(asset.uri)
            same = address.location() == commit.location
        except LakeIndexError:
            return False
        # A write keeps the table's indexes too, so it is also about each of them.
        return same and (address.index is None or commit.index is None or address.index == commit.index)


def _event(commit: ReportedCommit) -> dict[str, Any]:
    from airflow_provider_index import assets

    return assets.commit_event(commit.receipt, commit.location, commit.index)
