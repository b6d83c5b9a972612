"""Choice of the runner of a job: the one that the operator or its Spark connection names.

Beside the package's own, a runner of a third party is found by its entry point or by the dotted path of its class; it
is made from the same settings and does all through the protocol of :mod:`airflow_provider_index.runners.base`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from airflow_provider_index.runners.base import Runner
from airflow_provider_index.runners.cluster_mode import ClusterModeRunner
from airflow_provider_index.runners.connect import ConnectRunner, DetachedConnectRunner
from airflow_provider_index.runners.settings import CONNECT, SparkSettings
from airflow_provider_index.runners.spark_submit import DetachedSparkSubmitRunner, SparkSubmitRunner
from spark_apps.storage.errors import InvalidInput

ENTRY_POINTS = "airflow_provider_index.runners"
"""Group of the entry points of other packages' runners: callables that take what :func:`make_runner` takes."""

SPARK_SUBMIT = "spark-submit"
SPARK_CONNECT = "connect"


def make_runner(settings: SparkSettings, log: Any, *, detached: bool = False, runner: str | None = None) -> Runner:
    """Return the runner for one app.

    :param settings: which Spark, and with what.
    :param log: where the app's lines go.
    :param detached: the app is to outlive the task; a runner whose apps always do may be given either way.
    :param runner: its name, over what the connection names: ``spark-submit``, ``connect``, the name of an entry point
        in the group :data:`ENTRY_POINTS`, or the dotted path of a class.
    :raises InvalidInput: there is no runner of that name.
    """
    name = runner or settings.runner or (SPARK_CONNECT if settings.master.startswith(CONNECT) else SPARK_SUBMIT)
    if name == SPARK_CONNECT:
        return (DetachedConnectRunner if detached else ConnectRunner)(settings, log)
    if name != SPARK_SUBMIT:
        return _of_a_third_party(name)(settings, log, detached=detached)
    if settings.master.startswith(CONNECT):
        raise InvalidInput(
            f"The runner 'spark-submit' was asked for, and the Spark connection's address is {settings.master}, "
            "that of a Spark Connect server.",
            hint="Leave the runner out, or name a connection with the master of a cluster.",
        )
    if settings.deploy_mode == "cluster":
        return ClusterModeRunner(settings, log)
    return (DetachedSparkSubmitRunner if detached else SparkSubmitRunner)(settings, log)


def _of_a_third_party(name: str) -> Callable[..., Runner]:
    points = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
    try:
        if points:
            made: Callable[..., Runner] = points[0].load()
            return made
        module, _, attribute = name.rpartition(".")
        if module:
            made = getattr(import_module(module), attribute)
            return made
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"The runner {name!r} cannot be loaded: {error}.",
            hint="Install its package on the workers, or correct its name.",
        ) from error
    known = sorted({SPARK_SUBMIT, SPARK_CONNECT, *(point.name for point in entry_points(group=ENTRY_POINTS))})
    raise InvalidInput(
        f"There is no runner {name!r}.",
        hint=f"Name one of {', '.join(known)}, or the dotted path of a class.",
    )
