"""Refuses an Airflow that the package does not run on, in words, before anything of it is imported."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from spark_apps.storage.errors import EnvironmentMismatch

OLDEST_AIRFLOW = (3, 1, 8)


def airflow_version() -> tuple[int, ...]:
    """Return the release of Airflow that is installed; empty where none is."""
    # From 3.0 on, "apache-airflow" may be of another release than what runs, or absent.
    for distribution in ("apache-airflow-core", "apache-airflow"):
        try:
            return tuple(map(int, re.findall(r"\d+", version(distribution))[:3]))
        except PackageNotFoundError:
            continue
    return ()


def check_airflow() -> None:
    """Refuse an Airflow that is too old.

    :raises EnvironmentMismatch: names it and the range.
    """
    installed = airflow_version()
    if not installed or installed >= OLDEST_AIRFLOW:
        return
    oldest, present = (".".join(map(str, numbers)) for numbers in (OLDEST_AIRFLOW, installed))
    raise EnvironmentMismatch(
        f"airflow-provider-index runs on Airflow {oldest} and newer, and Airflow {present} is installed:"
        f" {_reason(installed)}.",
        hint=f"Install Airflow {oldest} or newer, or take the package out of this environment.",
    )


def _reason(installed: tuple[int, ...]) -> str:
    if installed < (3,):
        return "its operators are made for the Task SDK (airflow.sdk), which Airflow 2 has not"
    if installed < (3, 1):
        return "the Task SDK of Airflow 3.0 has no hooks (airflow.sdk.BaseHook)"
    return "this release of 3.1 was not run with it"
