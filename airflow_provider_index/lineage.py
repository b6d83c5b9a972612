"""Lineage of a task for OpenLineage: datasets read and written, with versions, schema and figures.

Needs Airflow's OpenLineage provider (extra ``openlineage``); without it this module is not used. Datasets are named
after their location, as OpenLineage names files: namespace ``s3://bucket`` and the path in it, or ``file``.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from airflow_provider_index.assets import parse_uri
from airflow_provider_index.hooks.table_store import is_address
from spark_apps.storage.errors import InvalidName, LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.timeline.model import TableDefinition
from spark_apps.timeline.operations import operation_of

FACET = "lakeindex_receipt"
"""Run facet with the receipts: ``receipts``, a list of version, txn_id, operation, table, index and metrics."""

FACET_OF_WORTH = "lakeindex_index_worth"
"""Run facet of a task that measured indexes: ``indexes``, as
:class:`~airflow_provider_index.operators.MeasureAdviceOperator` hands them on under ``judged``."""


def enabled() -> bool:
    """Return whether Airflow's OpenLineage provider is installed and sends events."""
    if find_spec("airflow.providers.openlineage") is None:
        return False
    from airflow.providers.openlineage import conf

    return not conf.is_disabled()


def of_start(operator: Any) -> Any:
    """Return the lineage before the work.

    Nothing is asked of a connection, so a table given by name is reported at the end.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    try:
        location = operator.table_location or (Store(operator.table).uri if is_address(operator.table) else None)
    except LakeIndexError:
        location = None
    if location is None:
        return OperatorLineage(inputs=_read(operator, None))
    outputs = [_dataset(location, operator.index_name, output=True)] if _writes(operator) else []
    return OperatorLineage(inputs=_read(operator, location), outputs=outputs)


def of_end(operator: Any) -> Any:
    """Return the lineage after the work, made of what the task has reported."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import RunFacet

    if not operator.reported_commits:
        lineage = of_start(operator)
        if judged := getattr(operator, "judged", None):
            lineage.run_facets[FACET_OF_WORTH] = RunFacet().with_additional_properties(indexes=judged)
        return lineage
    receipts = [
        {
            **{key: one.receipt.get(key) for key in ("version", "txn_id", "operation", "metrics")},
            "table": one.location,
            "index": one.index,
        }
        for one in operator.reported_commits
    ]
    outputs: dict[tuple[str, str], Any] = {}
    for one in operator.reported_commits:
        if one.committed:
            dataset = _written(one)
            outputs[(dataset.namespace, dataset.name)] = dataset
    return OperatorLineage(
        inputs=_read(operator, operator.table_location),
        outputs=list(outputs.values()),
        run_facets={FACET: RunFacet().with_additional_properties(receipts=receipts)},
    )


def asset_to_dataset(asset: Any, lineage_context: Any) -> Any:
    """Return the dataset of an asset of ours, for Airflow.

    The answer is ``None`` for one by name, whose location only its connection knows.
    """
    try:
        address = parse_uri(asset.uri)
    except InvalidName:
        return None
    return None if address.table_conn_id is not None else _dataset(address.table, address.index)


# --- inside ------------------------------------------------------------------------------------------------------


def _written(commit: Any) -> Any:
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        lifecycle_state_change_dataset,
        output_statistics_output_dataset,
    )

    dataset = _dataset(commit.location, commit.index, output=True)
    figures = commit.receipt.get("metrics") or {}
    dataset.facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(commit.receipt["version"]))
    change = operation_of(commit.receipt["operation"]).lifecycle
    if change is not None:
        kinds = lifecycle_state_change_dataset.LifecycleStateChange
        dataset.facets["lifecycleStateChange"] = lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
            kinds[change.upper()]
        )
    if commit.definition is not None and commit.index is None:
        dataset.facets["schema"] = _schema(commit.definition)
    if any(isinstance(figures.get(name), int) for name in ("rows", "bytes", "files")):
        dataset.outputFacets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=figures.get("rows"), size=figures.get("bytes"), fileCount=figures.get("files")
        )
    return dataset


def _schema(definition: TableDefinition) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name=one.name, type=one.type) for one in definition.fields]
    return schema_dataset.SchemaDatasetFacet(fields=fields)


def _read(operator: Any, location: str | None) -> list[Any]:
    """Return files that a write reads; for work on an index, the table and, of a registered one, its source."""
    paths: Iterable[str] = getattr(operator, "paths", None) or ()
    datasets = [_dataset(path) for path in paths]
    if location is not None and (operator.index_name is not None or not _writes(operator)):
        datasets.append(_dataset(location))
    sources = {
        one.definition.source.location for one in operator.reported_commits if one.definition and one.definition.source
    }
    known = {(one.namespace, one.name) for one in datasets}
    return [*datasets, *(one for one in map(_dataset, sorted(sources)) if (one.namespace, one.name) not in known)]


def _dataset(location: str, index: str | None = None, output: bool = False) -> Any:
    from openlineage.client.event_v2 import Dataset, OutputDataset

    text = location.removeprefix("file://")
    scheme, sign, rest = text.partition("://")
    if sign:
        bucket, _, path = rest.partition("/")
        namespace, name = f"{scheme}://{bucket}", path.strip("/") or "/"
    else:
        namespace, name = "file", text.rstrip("/") or "/"
    if index is not None:
        name = f"{name}/_index/indexes/{index}"
    return (OutputDataset if output else Dataset)(namespace=namespace, name=name)


def _writes(operator: Any) -> bool:
    commits = getattr(operator, "commits", None)
    return bool(commits()) if callable(commits) else True
