"""The transaction that a task instance commits under: the same through all retries of a round, another after a clear.

The id is made of DAG, run, task, map index, the round and a hash of what goes in. The first try of a round fixes it; a
retry takes the same one and so finds a commit that landed. A clear begins a round, so it does the work again. All ids
of a task instance begin alike, so that a round finds what earlier ones left.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

_PREFIX = "airflow_provider_index."
# 128 characters are allowed; a task with several commits adds a number of its own.
_READABLE = 28
_DIGITS = 12
_MADE = re.compile(rf"(.+\.[0-9a-f]{{{_DIGITS}}}\.)[0-9a-f]{{{_DIGITS}}}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def transaction_id(context: Mapping[str, Any], inputs: Callable[[], Any]) -> str:
    """Return the id of the running task instance's transaction.

    :param context: Airflow's context.
    :param inputs: gives what goes in, as JSON types; asked only when an id is made.
    """
    return str(once(context, "transaction", lambda: id_of_task(context, inputs())))


def id_of_task(context: Mapping[str, Any], inputs: Any) -> str:
    """Return :func:`make_id` of the running task instance in its round."""
    ti = context["ti"]
    return make_id(ti.dag_id, ti.run_id, ti.task_id, getattr(ti, "map_index", -1), inputs, round_of(context))


def prefix_of_task(context: Mapping[str, Any]) -> str:
    """Return what the ids of all transactions of the running task instance begin with, whatever their round."""
    ti = context["ti"]
    return _prefix(ti.dag_id, ti.run_id, ti.task_id, getattr(ti, "map_index", -1))


def prefix_of(txn_id: str) -> str:
    """Return what the ids of a task instance's transactions begin with, from one of them.

    An id that was not made by :func:`make_id` is its own alone.
    """
    match = _MADE.fullmatch(txn_id)
    return f"{txn_id}." if match is None else match[1]


def once(context: Mapping[str, Any], key: str, make: Callable[[], Any]) -> Any:
    """Return a value that the first try makes and every retry gets again; a clear makes it anew.

    Kept in Airflow's task state store. An Airflow that has none (before 3.3) makes it on each try.

    :param make: gives the value, as JSON types.
    """
    memory = context.get("task_state_store")
    if memory is None:
        return make()
    kept = memory.get(_PREFIX + key)
    round_ = round_of(context)
    if isinstance(kept, dict) and kept.get("round") == round_:
        return kept["value"]
    value = make()
    memory.set(_PREFIX + key, {"round": round_, "value": value})
    return value


def remember(context: Mapping[str, Any], key: str, value: Any) -> None:
    """Keep a value, as JSON types, for later tries and for what comes after a clear. Before Airflow 3.3 it is lost."""
    memory = context.get("task_state_store")
    if memory is not None:
        memory.set(_PREFIX + key, value)


def recall(context: Mapping[str, Any], key: str) -> Any:
    """Return what was kept last, or ``None``."""
    memory = context.get("task_state_store")
    return None if memory is None else memory.get(_PREFIX + key)


def round_of(context: Mapping[str, Any]) -> str:
    """Return the round of a task: the same for all of its retries, another one after every clear.

    A clear sets how many tries a task may have, and of a run that had ended also when it started; a retry changes
    neither. A run that is deleted and made again starts at another time. The number of clears does not tell rounds
    apart: it grows for the whole run, whichever of its tasks is cleared.
    """
    run, ti = context.get("dag_run"), context["ti"]
    start: datetime | None = getattr(run, "start_date", None)
    started = "" if start is None else start.astimezone(UTC).isoformat()
    return f"{started}/{int(getattr(ti, 'max_tries', 0) or 0)}"


def is_last_try(context: Mapping[str, Any]) -> bool:
    """Return whether Airflow tries the task no more if this try fails."""
    ti = context["ti"]
    return int(getattr(ti, "try_number", 0)) > int(getattr(ti, "max_tries", 0) or 0)


def make_id(dag_id: str, run_id: str, task_id: str, map_index: int | None, inputs: Any, round_: str = "") -> str:
    """Return a transaction id that a person can recognise, and that no other task instance, round or input shares."""
    return f"{_prefix(dag_id, run_id, task_id, map_index)}{_hash([round_, inputs])}"


def _prefix(dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
    index = -1 if map_index is None else map_index
    parts = [_readable(dag_id), _readable(run_id), _readable(task_id)]
    if index >= 0:
        parts.append(str(index))
    return ".".join([*parts, _hash([dag_id, run_id, task_id, index]), ""])


def _hash(whole: Any) -> str:
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:_DIGITS]


def _readable(text: str) -> str:
    # The end of a run id or of a task within groups says more than its beginning.
    return _UNFIT.sub("-", text)[-_READABLE:].strip("-_") or "x"  # an id begins with a letter or digit
