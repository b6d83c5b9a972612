"""The operators that DAG authors import; one module a concern.

What a DAG file imports (operators, sensors, task groups, hooks) takes in at its top only what parsing needs: Airflow's
SDK, its like, the errors, the limits and the names of operations. What works on tables (log, store, runners, triggers)
is imported inside the method that uses it, and for annotations under ``TYPE_CHECKING``;
tests/airflow_provider_index/test_importing.py holds it to that.
"""

from __future__ import annotations

from airflow_provider_index.operators.advice import AdviseIndexesOperator, MeasureAdviceOperator
from airflow_provider_index.operators.erasure import PreviewErasureOperator
from airflow_provider_index.operators.indexes import (
    BuildIndexOperator,
    DropIndexOperator,
    IncrementalRefreshOperator,
    RefreshIndexOperator,
    VerifyIndexOperator,
)
from airflow_provider_index.operators.maintenance import MaintainTableOperator, PlanMaintenanceOperator
from airflow_provider_index.operators.report import ReportTablesOperator
from airflow_provider_index.operators.rescale import BucketRescaleOperator, PreviewRescaleOperator
from airflow_provider_index.operators.sql import IndexSQLOperator
from airflow_provider_index.operators.tables import (
    CleanTableOperator,
    CompactIndexOperator,
    CompactTableOperator,
    RestoreTableOperator,
)
from airflow_provider_index.operators.transactions import (
    BeginTransactionOperator,
    CommitTransactionOperator,
    RollBackTransactionOperator,
)
from airflow_provider_index.operators.windows import (
    CloseStopWriteWindowOperator,
    EndExpiredWindowsOperator,
    OpenStopWriteWindowOperator,
)
from airflow_provider_index.operators.write import RegisterTableOperator, WriteTableOperator

__all__ = [
    "AdviseIndexesOperator",
    "BeginTransactionOperator",
    "BucketRescaleOperator",
    "BuildIndexOperator",
    "CleanTableOperator",
    "CloseStopWriteWindowOperator",
    "CommitTransactionOperator",
    "CompactIndexOperator",
    "CompactTableOperator",
    "DropIndexOperator",
    "EndExpiredWindowsOperator",
    "IncrementalRefreshOperator",
    "IndexSQLOperator",
    "MaintainTableOperator",
    "MeasureAdviceOperator",
    "OpenStopWriteWindowOperator",
    "PlanMaintenanceOperator",
    "PreviewErasureOperator",
    "PreviewRescaleOperator",
    "RefreshIndexOperator",
    "RegisterTableOperator",
    "ReportTablesOperator",
    "RestoreTableOperator",
    "RollBackTransactionOperator",
    "VerifyIndexOperator",
    "WriteTableOperator",
]
