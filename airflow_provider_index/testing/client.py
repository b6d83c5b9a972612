"""A small client of Airflow's REST API: trigger a DAG, wait for it, look at its tasks, XComs and logs.

It knows the public API (``/api/v2``) and how to log in to the simple auth manager; it starts and stops
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx

FINISHED = frozenset({"success", "failed"})
MAX_SILENT_SECONDS = 90.0
"""A scheduler counts as dead that has given no sign of life for so long; it gives one every five seconds."""
_LOOK_SECONDS = 5.0
_RESTING = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class DagRunFailed(AssertionError):
    """A run ended otherwise than was asked.

    The message carries the tasks' states and the log of what failed.
    """


class SchedulerDead(RuntimeError):
    """Nobody goes on with a run: the scheduler has given no sign of life for :data:`MAX_SILENT_SECONDS`."""


@dataclass(frozen=True)
class DagRunReport:
    """Report of how a run ended: ``tasks`` maps a task id (``id[3]`` for a mapped one) to its state."""

    dag_id: str
    run_id: str
    state: str
    tasks: dict[str, str | None] = field(default_factory=dict)


class AirflowClient:
    """Speaks to one Airflow.

    ::

        client = AirflowClient("http://localhost:8080", "admin", "secret")
        report = client.run("nightly", {"day": "2026-11-20"}, timeout=600)
        written = client.xcom("nightly", report.run_id, "load")

    Its methods name a run by ``dag_id`` and ``run_id``, a task in it by ``task_id``, and, where it is mapped,
    ``map_index``; times are in seconds.

    :param url: address of the API server, without a path.
    :param username: a user of the simple auth manager.
    :param password: that user's password.
    :param log: where Airflow's own log is, for errors.
    """

    def __init__(self, url: str, username: str, password: str, log: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._log = log
        self._login = {"username": username, "password": password}
        # A proxy set for the outside world must not be asked for an address on this machine.
        self._http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def login(self) -> str:
        """Fetch a token, use it from now on, and return it."""
        answer = self._http.post("/auth/token", json=self._login)
        answer.raise_for_status()
        token: str = answer.json()["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"
        return token

    def healthy(self) -> bool:
        """Return whether database, scheduler, DAG processor and triggerer all say that they are well."""
        try:
            answer = self._http.get("/api/v2/monitor/health", timeout=5)
        except httpx.TransportError:
            return False
        if answer.status_code != httpx.codes.OK:
            return False
        parts = answer.json()
        names = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        return all((parts.get(name) or {}).get("status") == "healthy" for name in names)

    def check_scheduler(self) -> None:
        """Check that the scheduler lives. :raises SchedulerDead: if it has given no sign of life for too long.

        An API server that does not answer now says nothing of it.
        """
        try:
            answer = self._http.get("/api/v2/monitor/health", timeout=5)
            beat = answer.json()["scheduler"]["latest_scheduler_heartbeat"] if answer.is_success else None
        except (httpx.TransportError, ValueError, KeyError, TypeError):
            return
        silent = 0.0 if beat is None else (datetime.now(UTC) - datetime.fromisoformat(beat)).total_seconds()
        if silent > MAX_SILENT_SECONDS:
            see = "" if self._log is None else f" See {self._log}."
            raise SchedulerDead(
                f"The scheduler of {self.url} has given no sign of life for {silent:.0f} s; no run goes on.{see}"
            )

    def get(self, path: str, **params: Any) -> Any:
        """Return ``GET /api/v2/<path>`` as decoded JSON. :raises httpx.HTTPStatusError: for any status from 400."""
        return self._request("GET", path, params=params or None)

    def post(self, path: str, body: Any) -> Any:
        """Return ``POST /api/v2/<path>``, decoded.

        :param body: sent as JSON.
        """
        return self._request("POST", path, json=body)

    def patch(self, path: str, body: Any, **params: Any) -> Any:
        """Return ``PATCH /api/v2/<path>``, decoded.

        :param body: sent as JSON.
        """
        return self._request("PATCH", path, json=body, params=params or None)

    # --- DAGs -----------------------------------------------------------------------------------------------

    def import_errors(self) -> list[str]:
        """Return what the DAG processor could not parse: one text a file."""
        rows = self.get("importErrors")["import_errors"]
        return [f"{row['filename']}\n{row['stack_trace']}" for row in rows]

    def wait_for_dags(self, *dag_ids: str, timeout: float = 90) -> None:
        """Wait until every DAG of that name is known and can run.

        :raises TimeoutError: after ``timeout`` seconds.
        :raises DagRunFailed: if one is not there in time, or a file cannot be imported.
        """
        deadline = time.monotonic() + timeout
        missing = set(dag_ids)
        while missing:
            if errors := self.import_errors():
                raise DagRunFailed("Airflow cannot parse:\n" + "\n".join(errors))
            known = {row["dag_id"] for row in self.get("dags", limit=1000)["dags"]}
            missing = set(dag_ids) - known
            if missing and time.monotonic() > deadline:
                raise TimeoutError(f"Airflow has not found the DAGs {sorted(missing)}; it knows {sorted(known)}.")
            if missing:
                time.sleep(0.5)

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None, run_id: str | None = None) -> str:
        """Start a run now and return its id. ``conf`` becomes the run's params."""
        run_id = run_id or f"manual__{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        self.post(f"dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}})
        return run_id

    # --- runs and tasks -------------------------------------------------------------------------------------

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return ``queued``, ``running``, ``success`` or ``failed``."""
        state: str = self.get(f"dags/{dag_id}/dagRuns/{_part(run_id)}")["state"]
        return state

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run, as the API describes them."""
        rows: list[dict[str, Any]] = self.get(f"dags/{dag_id}/dagRuns/{_part(run_id)}/taskInstances", limit=1000)[
            "task_instances"
        ]
        return rows

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return task id (``id[3]`` for a mapped instance) -> state."""
        return {_label(row): row["state"] for row in self.task_instances(dag_id, run_id)}

    def wait(self, dag_id: str, run_id: str, *, timeout: float = 300, poll: float = 0.5) -> DagRunReport:
        """Wait until the run has ended, however it did. :raises TimeoutError: after ``timeout`` seconds.

        :param poll: between two looks.
        :raises SchedulerDead: if the scheduler gives no sign of life meanwhile.
        :returns: how the run ended.
        """
        deadline, look = time.monotonic() + timeout, self._looks_at_scheduler()
        while (state := self.run_state(dag_id, run_id)) not in FINISHED:
            if time.monotonic() > deadline:
                states = self.task_states(dag_id, run_id)
                raise TimeoutError(f"{dag_id} {run_id} is still {state} after {timeout} s: {states}")
            look()
            time.sleep(poll)
        return DagRunReport(dag_id, run_id, state, self.task_states(dag_id, run_id))

    def wait_for_task(
        self, dag_id: str, run_id: str, task: str, states: frozenset[str] = _RESTING, *, timeout: float = 120
    ) -> str:
        """Wait until one task is in one of ``states`` and return which. ``task`` may be ``id[3]``.

        :param timeout: after which it gives up.
        :raises TimeoutError: then.
        :raises SchedulerDead: if the scheduler gives no sign of life meanwhile.
        """
        deadline, look = time.monotonic() + timeout, self._looks_at_scheduler()
        while True:
            state = self.task_states(dag_id, run_id).get(task)
            if state in states:
                return str(state)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{dag_id}.{task} is {state} after {timeout} s, not one of {sorted(states)}.")
            look()
            time.sleep(0.3)

    def _looks_at_scheduler(self) -> Callable[[], None]:
        """Return what checks the scheduler, when it is called, every few seconds."""
        at = time.monotonic()

        def look() -> None:
            nonlocal at
            if time.monotonic() - at >= _LOOK_SECONDS:
                self.check_scheduler()
                at = time.monotonic()

        return look

    def run(
        self,
        dag_id: str,
        conf: dict[str, Any] | None = None,
        *,
        timeout: float = 300,
        expect: str = "success",
    ) -> DagRunReport:
        """Start a run, wait for its end, and insist on the end that was expected.

        :param conf: of the run.
        :param timeout: after which it gives up.
        :param expect: the state that the run has to end in.
        :returns: how the run ended.
        :raises DagRunFailed: if the run ended otherwise; with the logs of the tasks that failed.
        """
        report = self.wait(dag_id, self.trigger(dag_id, conf), timeout=timeout)
        if report.state != expect:
            raise DagRunFailed(self.describe(report))
        return report

    def describe(self, report: DagRunReport) -> str:
        """Return a run's tasks and the last log lines of those that failed.

        :param report: of the run.
        """
        lines = [f"{report.dag_id} {report.run_id} ended as {report.state}: {report.tasks}"]
        for row in self.task_instances(report.dag_id, report.run_id):
            if row["state"] in ("failed", "up_for_retry"):
                log = self.log(report.dag_id, report.run_id, row["task_id"], row["try_number"], row["map_index"])
                lines += [f"--- {_label(row)}", *log.splitlines()[-40:]]
        return "\n".join(lines)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return a value that a task handed on. :raises httpx.HTTPStatusError: 404 if there is none.

        :param key: of the value; what the task returned by default.
        """
        path = f"dags/{dag_id}/dagRuns/{_part(run_id)}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.get(path, map_index=map_index, deserialize=True)["value"]

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Return the log of one try as text.

        :param try_number: the first is 1.
        """
        path = f"dags/{dag_id}/dagRuns/{_part(run_id)}/taskInstances/{task_id}/logs/{try_number}"
        content = self.get(path, map_index=map_index, full_content=True)["content"]
        return "\n".join(_log_line(entry) for entry in content)

    def clear(self, dag_id: str, run_id: str, *task_ids: str, only_failed: bool = False, **options: Any) -> None:
        """Clear tasks of a run, so that the scheduler runs them again.

        :param only_failed: leave the tasks that succeeded as they are.
        """
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids) or None,
            "only_failed": only_failed,
            "reset_dag_runs": True,
            **options,
        }
        self.post(f"dags/{dag_id}/clearTaskInstances", body)

    def delete_run(self, dag_id: str, run_id: str) -> None:
        """Delete a run that has ended; another one may have its id then."""
        self._request("DELETE", f"dags/{dag_id}/dagRuns/{_part(run_id)}")

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task by hand as ``success`` or ``failed``.

        :param state: to give it: ``success``, ``failed`` or ``skipped``.
        """
        self.patch(f"dags/{dag_id}/dagRuns/{_part(run_id)}/taskInstances/{task_id}", {"new_state": state})

    def asked(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return what a task asks a person (subject, body, options …), and the answer if there is one."""
        path = f"dags/{dag_id}/dagRuns/{_part(run_id)}/taskInstances/{task_id}/{map_index}/hitlDetails"
        answer: dict[str, Any] = self.get(path)
        return answer

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, map_index: int = -1) -> None:
        """Answer a task that waits for a person, as the button of that name does.

        :param option: one of those that the task offers.
        """
        path = f"dags/{dag_id}/dagRuns/{_part(run_id)}/taskInstances/{task_id}/{map_index}/hitlDetails"
        self.patch(path, {"chosen_options": [option], "params_input": {}})

    def _request(self, method: str, path: str, **options: Any) -> Any:
        answer = self._http.request(method, f"/api/v2/{path}", **options)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self.login()
            answer = self._http.request(method, f"/api/v2/{path}", **options)
        if answer.is_error:
            raise httpx.HTTPStatusError(
                f"{method} {path} answered {answer.status_code}: {answer.text[:500]}",
                request=answer.request,
                response=answer,
            )
        return answer.json() if answer.content else None


def _part(run_id: str) -> str:
    return quote(run_id, safe="")


def _label(row: dict[str, Any]) -> str:
    return row["task_id"] if row["map_index"] < 0 else f"{row['task_id']}[{row['map_index']}]"


def _log_line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    errors = (f"{one.get('exc_type')}: {one.get('exc_value')}" for one in entry.get("error_detail") or [])
    return "\n".join([str(entry.get("event", "")), *errors])
