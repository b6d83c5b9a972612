"""Names that are in different modules of the supported Airflow versions, each found once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

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

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 10.0

R = TypeVar("R")

_ASKING: set[asyncio.Future[Any]] = set()
"""Questions whose answer nobody may wait for any more: the event loop alone would not keep them."""

__all__ = [
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "Stats",
    "TaskDeferred",
    "ask_supervisor",
    "conf",
    "connection_missing",
    "goes_on",
    "left_by_its_task",
    "prepare_stats",
]


def connection_missing(error: BaseException) -> bool:
    """Return whether an error of ``get_connection`` says that there is no such connection."""
    if isinstance(error, AirflowNotFoundException):
        return True
    # In a task the answer comes from the supervisor, as an error of its own with a code.
    code = getattr(getattr(error, "error", None), "error", None)
    return getattr(code, "name", "") == "CONNECTION_NOT_FOUND"


def prepare_stats() -> None:
    """Set up :data:`Stats` as Airflow's settings say, in a process that Airflow has not set up for it."""
    try:
        from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
    except ImportError:  # before Airflow 3.2, which needs no preparation
        return
    if inspect.signature(get_stats_factory).parameters:  # Airflow 3.2
        Stats.initialize(factory=get_stats_factory(Stats))
        return
    names = conf.getboolean("metrics", "legacy_names_on", fallback=True)
    Stats.initialize(factory=get_stats_factory(), export_legacy_names=names)


async def ask_supervisor(question: Callable[..., R], *arguments: Any, **named: Any) -> R:
    """Call, in a trigger, what asks the supervisor of the triggerer: for a connection, or for the state of a task.

    The supervisor answers only on the event loop's own thread. Before Airflow 3.2 the next one who asks gets the answer
    that a cancelled question has left behind, and all triggers end; so the answer is always waited for.
    """
    from asgiref.sync import sync_to_async

    asking = asyncio.ensure_future(sync_to_async(question)(*arguments, **named))
    _ASKING.add(asking)
    asking.add_done_callback(_ASKING.discard)
    return await asyncio.shield(asking)


async def left_by_its_task(task_instance: Any) -> bool:
    """Return whether a task does not wait for its trigger any more: it was killed, cleared, or is over.

    For triggers that are cancelled before Airflow 3.3, which says why. Where it cannot be found out, the task is
    taken to wait.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    if task_instance is None:
        return False
    asked = ask_supervisor(
        RuntimeTaskInstance.get_task_states,
        dag_id=task_instance.dag_id,
        task_ids=[task_instance.task_id],
        run_ids=[task_instance.run_id],
        map_index=task_instance.map_index,
    )
    try:
        states = await asyncio.wait_for(asked, _ANSWER_SECONDS)
    except Exception as error:  # noqa: BLE001 - a triggerer that stops has no supervisor to ask
        logger.info("The state of the task cannot be found out: %s", type(error).__name__)
        return False
    state = next(iter(states.get(task_instance.run_id, {}).values()), "deferred")
    return bool(state != "deferred")


def goes_on(task_instance: Any) -> bool:
    """Return whether Airflow goes on with a task, rather than has it marked, cleared or over; asked in its process.

    Airflow has it as running or, where it took the worker for lost, as to be retried: one that was cut off for some
    minutes, or whose task a broker has handed out a second time. Where that cannot be found out, it does not go on.
    """
    try:
        states = task_instance.get_task_states(
            dag_id=task_instance.dag_id,
            task_ids=[task_instance.task_id],
            run_ids=[task_instance.run_id],
            map_index=task_instance.map_index,
        )
    except Exception as error:  # noqa: BLE001 - the supervisor may be gone, or be one of an older Airflow
        logger.info("The state of the task cannot be found out: %s", type(error).__name__)
        return False
    return next(iter(states.get(task_instance.run_id, {}).values()), None) in ("running", "up_for_retry")
