"""What an operator tells others once its work is done: asset events, metrics, lineage and links.

All of it is made from the result that goes to XCom, so it is the same whether the worker waited for the work or the
triggerer did. Telling never fails a task that has done its work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, AssetAlias, BaseOperatorLink

from airflow_provider_index.links import SparkUILink, TablePageLink, web_address
from spark_apps.storage.errors import InvalidName, LakeIndexError, TableNotFound

if TYPE_CHECKING:
    from spark_apps.timeline.model import TableDefinition


@dataclass(frozen=True)
class Told:
    """One receipt of a task, and what it is about.

    :param table: what the task calls the table. :param location: where it is.
    :param definition: the table as it is after the commit, where somebody asked for lineage.
    """

    receipt: Mapping[str, Any]
    table: str
    location: str
    index: str | None = None
    definition: TableDefinition | None = None

    @property
    def committed(self) -> bool:
        """Whether there was something to do."""
        return self.receipt.get("version") is not None


class Reporting:
    """What operators on tables have in common to tell. Mixed into one with ``table``, ``table_conn_id``, ``hook``
    and ``outlets``."""

    operator_extra_links: ClassVar[tuple[BaseOperatorLink, ...]] = (SparkUILink(), TablePageLink())

    table_location: str | None = None
    """Where the task's table is, once it is known."""
    spark_ui_url: str | None = None
    """Spark's own page, once the app has said where it is."""
    told: tuple[Told, ...] = ()
    """What the task has reported."""

    def report(self, context: Mapping[str, Any], result: Any) -> Any:
        """Tells of a result, and returns it.

        :param result: what goes to XCom: a receipt, several, the answers to statements, or something else, of which
            there is nothing to tell.
        """
        from airflow_provider_index import lineage, metrics

        operator: Any = self
        try:
            self.table_location = operator.location() or None
            self.told = tuple(self._told(result))
            if metrics.enabled():
                self._count(context)
            if lineage.enabled():
                self.told = tuple(self._with_definition(told) for told in self.told)
        except LakeIndexError as error:
            self._not_told(error)
        try:
            self._fill_events(context)
        except LakeIndexError as error:
            self._not_told(error)
        return result

    def _not_told(self, error: LakeIndexError) -> None:
        operator: Any = self
        operator.log.warning("The work is done; what it did could not be told in full: %s", error.message)

    def report_error(self, error: BaseException) -> None:
        """Counts a task that ends with an error."""
        from airflow_provider_index import metrics

        operator: Any = self
        metrics.record_error(operator.task_type, operator.table, error)

    def show_spark_ui(self, context: Mapping[str, Any], url: str | None) -> None:
        """Shows Spark's page as a link of the task, from now on."""
        url = web_address(url)
        if url and url != self.spark_ui_url:
            self.spark_ui_url = url
            context["ti"].xcom_push(key=SparkUILink().xcom_key, value=url)

    # --- OpenLineage, which calls these where its provider is installed ---------------------------------------------

    def get_openlineage_facets_on_start(self) -> Any:
        """What the task is going to read and write, as far as that can be said without asking a connection."""
        from airflow_provider_index import lineage

        return lineage.of_start(self)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the task has read and written, with versions and figures."""
        from airflow_provider_index import lineage

        return lineage.of_end(self)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _told(self, result: Any) -> Sequence[Told]:
        operator: Any = self
        own = getattr(operator, "index", None)
        index = own if isinstance(own, str) else None
        found = []
        for one in result if isinstance(result, list) else [result]:
            if not isinstance(one, Mapping):
                continue
            if "receipt" in one and "location" in one:  # an answer to a statement
                if isinstance(one["receipt"], Mapping):
                    found.append(Told(one["receipt"], one.get("table") or one["location"], one["location"]))
            elif "staged" in (one.get("metrics") or {}):  # the task that commits the transaction tells of it
                continue
            elif "txn_id" in one and "operation" in one:
                found.append(Told(one, operator.table, self.table_location or operator.table, index))
        return found

    def _count(self, context: Mapping[str, Any]) -> None:
        from airflow_provider_index import metrics

        operator: Any = self
        for told in self.told:
            metrics.record_receipt(told.receipt, told.table, told.index)
        for table in dict.fromkeys(told.table for told in self.told if told.committed):
            with suppress(TableNotFound):  # dropped by what is told of
                metrics.record_state(operator.hook.timeline(table).head, table)
        started = getattr(context["ti"], "start_date", None)
        if isinstance(started, datetime):
            seconds = (datetime.now(UTC) - started).total_seconds()
            metrics.record_duration(operator.task_type, operator.table, seconds)

    def _with_definition(self, told: Told) -> Told:
        operator: Any = self
        try:
            definition = operator.hook.timeline(told.table).head.definition
        except TableNotFound:
            return told
        return Told(told.receipt, told.table, told.location, told.index, definition)

    def _fill_events(self, context: Mapping[str, Any]) -> None:
        """Puts the receipts into the events that Airflow sends for the task's outlets once it has succeeded."""
        operator: Any = self
        for outlet in operator.outlets:
            if isinstance(outlet, AssetAlias):
                for told in self.told:
                    if told.committed:
                        context["outlet_events"][outlet].add(self._asset_of(told), extra=_event(told))
            elif isinstance(outlet, Asset):
                mine = [told for told in self.told if self._is_about(told, outlet)]
                if mine:
                    # Airflow sends one event an outlet: it tells of the last commit and names the others.
                    several = {"commits": [_event(told)["commit"] for told in mine]} if len(mine) > 1 else {}
                    context["outlet_events"][outlet].extra.update({**_event(mine[-1]), **several})

    def _asset_of(self, told: Told) -> Asset:
        from airflow_provider_index import assets

        operator: Any = self
        conn_id = operator.table_conn_id

        def asset(table: str) -> Asset:
            if told.index is None:
                return assets.table_asset(table, table_conn_id=conn_id)
            return assets.index_asset(table, told.index, table_conn_id=conn_id)

        try:
            return asset(told.table)
        except InvalidName:
            return asset(told.location)  # a statement's table whose name only Spark's catalog knows

    def _is_about(self, told: Told, asset: Asset) -> bool:
        from airflow_provider_index import assets

        if not asset.uri.startswith(f"{assets.SCHEME}://"):
            return False
        try:
            address = assets.parse_uri(asset.uri)
            same = address.location() == told.location
        except LakeIndexError:
            return False
        # A write keeps the table's indexes too, so it is also about each of them.
        return same and (address.index is None or told.index is None or address.index == told.index)


def _event(told: Told) -> dict[str, Any]:
    from airflow_provider_index import assets

    return assets.commit_event(told.receipt, told.location, told.index)
