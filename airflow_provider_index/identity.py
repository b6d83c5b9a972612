"""Which transaction a task instance commits under, so that it does its work once however often it is tried.

The id is made of DAG, run, task, map index and a hash of what goes in. The first try fixes it; a retry
takes the same one and so finds a commit that landed; a clear makes it anew, and gets another only if what
goes in has changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_PREFIX = "airflow_provider_index."
# 128 characters are allowed; a task with several commits adds a number of its own.
_READABLE = 28
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def transaction_id(context: Mapping[str, Any], inputs: Callable[[], Any]) -> str:
    """The id of the running task instance's transaction.

    :param context: Airflow's context.
    :param inputs: gives what goes in, as JSON types; asked only when an id is made.
    """
    ti = context["ti"]
    index = getattr(ti, "map_index", -1)
    return str(once(context, "transaction", lambda: make_id(ti.dag_id, ti.run_id, ti.task_id, index, inputs())))


def once(context: Mapping[str, Any], key: str, make: Callable[[], Any]) -> Any:
    """A value that the first try makes and every retry gets again; a clear makes it anew.

    Kept in Airflow's task state store. An Airflow that has none (before 3.3) makes it on each try.

    :param make: gives the value, as JSON types.
    """
    memory = context.get("task_state_store")
    if memory is None:
        return make()
    kept = memory.get(_PREFIX + key)
    # A clear raises the number of tries that a task has left, a retry does not.
    round_ = tries_allowed(context)
    if isinstance(kept, dict) and kept.get("round") == round_:
        return kept["value"]
    value = make()
    memory.set(_PREFIX + key, {"round": round_, "value": value})
    return value


def remember(context: Mapping[str, Any], key: str, value: Any) -> None:
    """Keeps a value, as JSON types, for later tries and for what comes after a clear. Before Airflow 3.3 it is lost."""
    memory = context.get("task_state_store")
    if memory is not None:
        memory.set(_PREFIX + key, value)


def recall(context: Mapping[str, Any], key: str) -> Any:
    """What was kept last, or ``None``."""
    memory = context.get("task_state_store")
    return None if memory is None else memory.get(_PREFIX + key)


def tries_allowed(context: Mapping[str, Any]) -> int:
    """A number that stays the same through a task's retries and grows with every clear."""
    return int(getattr(context["ti"], "max_tries", 0) or 0)


def make_id(dag_id: str, run_id: str, task_id: str, map_index: int | None, inputs: Any) -> str:
    """A transaction id that a person can place, and that no other task instance or input shares."""
    index = -1 if map_index is None else map_index
    whole = json.dumps([dag_id, run_id, task_id, index, inputs], sort_keys=True, default=str)
    parts = [_readable(dag_id), _readable(run_id), _readable(task_id)]
    if index >= 0:
        parts.append(str(index))
    parts.append(hashlib.sha256(whole.encode()).hexdigest()[:16])
    return ".".join(parts)


def _readable(text: str) -> str:
    # The end of a run id or of a task within groups tells more than its beginning.
    return _UNFIT.sub("-", text)[-_READABLE:].strip("-") or "x"
