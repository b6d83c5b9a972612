"""Names that stand in different places in the Airflow versions that are supported, found once here."""

from __future__ import annotations

try:
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
except ImportError:  # before they moved
    from airflow.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )

try:
    from airflow.sdk import conf
except ImportError:  # before Airflow 3.2
    from airflow.configuration import conf  # type: ignore[no-redef]

try:
    from airflow.sdk.observability.stats import Stats
except ImportError:  # before Airflow 3.2
    from airflow.stats import Stats

__all__ = [
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "Stats",
    "TaskDeferred",
    "conf",
    "connection_missing",
]


def connection_missing(error: BaseException) -> bool:
    """Whether an error of ``get_connection`` says that there is no such connection."""
    if isinstance(error, AirflowNotFoundException):
        return True
    # In a task the answer comes from the supervisor, as an error of its own with a code.
    code = getattr(getattr(error, "error", None), "error", None)
    return getattr(code, "name", "") == "CONNECTION_NOT_FOUND"
