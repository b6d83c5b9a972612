"""Spark by Airflow's provider of Spark: its hook submits, and its operator follows drivers in a cluster.

The one module that knows the provider, of which it uses public names alone; they are imported when a task submits,
never when a DAG is parsed. What is done beside it covers a fault of the provider, and says which in one line; each is
held by a test against the real hook (``tests/airflow_provider_index/runners/test_by_provider.py``).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from airflow_provider_index.runners import launcher
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.environment import SPARK_PROVIDER

FOLLOWS_CLUSTERS = (6, 2)
"""The first release whose operator submits to YARN and Kubernetes and asks them, by public methods."""
GROUP_SECONDS = 10.0
"""For how long the launcher may take to say its process group."""
_NUMBER = re.compile(r"-?\d+")
_OTHER_NAMES = {"queue": "yarn_queue"}
"""Options of ``spark-submit`` -> what the hook calls them, where that is another name."""


@cache
def provider_release() -> tuple[int, ...]:
    """Return the installed release of the provider; nothing if there is none."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version(SPARK_PROVIDER))[:3])
    return ()


def submits(settings: SparkSettings) -> bool:
    """Return whether the hook can be made for a master: it refuses Kubernetes without that provider."""
    return bool(provider_release()) and (not settings.master.startswith("k8s://") or _knows_kubernetes())


def follows(settings: SparkSettings) -> bool:
    """Return whether the operator can ask the cluster: YARN by the address of its REST API, Kubernetes by a client."""
    if provider_release() < FOLLOWS_CLUSTERS:
        return False
    if settings.master.startswith("k8s://"):
        return _knows_kubernetes()
    return bool(settings.cluster.get("yarn_resourcemanager_webapp_address"))


@cache
def _knows_kubernetes() -> bool:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version("apache-airflow-providers-cncf-kubernetes"))
    return False


def named_as_in_hook(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of ``spark-submit`` by the names of the hook's arguments."""
    return {_OTHER_NAMES.get(name, name.replace("-", "_")): value for name, value in options.items()}


def named_as_in_spark(argument: str) -> str:
    """Return the option of ``spark-submit`` that an argument of the hook stands for."""
    names = {its: name for name, its in _OTHER_NAMES.items()}
    return names.get(argument, argument.replace("_", "-"))


class Launch:
    """A private folder from which the hook starts the real ``spark-submit``.

    :param folder: there must be nothing of an earlier launch in it.
    """

    def __init__(self, folder: Path, program: str, environment: Mapping[str, str], workdir: Path) -> None:
        self._folder = folder
        # The worker's own variables are named, not written down: keys of stores are among them.
        own = [name for name, value in environment.items() if os.environ.get(name) == value]
        new = {name: value for name, value in environment.items() if name not in own}
        order = {"program": program, "keep": own, "set": new, "folder": str(workdir)}
        (folder / launcher.ORDER).write_text(json.dumps(order))
        self.binary = folder / "launch"
        """What the hook takes for ``spark-submit``."""
        words = shlex.join([sys.executable, "-I", "-S", launcher.__file__, str(folder)])
        self.binary.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.binary.chmod(0o700)

    @property
    def starts(self) -> bool:
        """The permission to start programs from the folder; there is none where it is mounted ``noexec``."""
        return os.access(self.binary, os.X_OK)

    def group(self, while_: Callable[[], bool]) -> int | None:
        """Return the process group, once the launcher has said it; ``None`` if it does not as long as it may."""
        deadline = time.monotonic() + GROUP_SECONDS
        path = self._folder / launcher.GROUP
        while not path.exists() and while_() and time.monotonic() < deadline:
            time.sleep(0.01)
        return int(path.read_text()) if path.exists() else None


class HookProcess:
    """A ``spark-submit`` that the provider runs in a thread of its own, with what a runner asks of a process.

    :param submit: calls the provider, which waits. :param launch: by which the provider starts it.
    """

    def __init__(self, submit: Callable[[], Any], launch: Launch) -> None:
        self._submit = submit
        self._launch = launch
        self._code: int | None = None
        self._group: int | None = None
        self.answer: Any = None
        """What the provider returned."""
        self.failure = ""
        """What it said of a failure."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process group, once the launcher has said it; ``None`` if nothing was started."""
        if self._group is None:
            self._group = self._launch.group(self._thread.is_alive)
        return self._group

    def poll(self) -> int | None:
        """Return the exit status; ``None`` while it runs."""
        return None if self._thread.is_alive() else self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, once it has ended. :raises TimeoutExpired: it has not."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise subprocess.TimeoutExpired("spark-submit", timeout or 0.0)
        assert self._code is not None
        return self._code

    def _run(self) -> None:
        code = 1
        try:
            self.answer = self._submit()
            code = 0
        except Exception as error:  # noqa: BLE001 - the thread's end is the runner's to say
            # The status comes in words alone; what is before them repeats the command line.
            before, status, after = str(error).partition("Error code is: ")
            self.failure = f"{type(error).__name__}: {before}" if not status else after.partition("\n")[2]
            code = int((_NUMBER.match(after) or ["1"])[0])
        finally:
            self._code = code


class Lines:
    """Takes the place of the hook's logger: lines of ``spark-submit`` come without arguments, its own words with some.

    :param hear: takes the lines. :param log: takes its own words, which repeat the command line, as details.
    """

    def __init__(self, hear: Callable[[str], None], log: Any) -> None:
        self._hear = hear
        self._log = log

    def info(self, text: str, *arguments: Any) -> None:
        """Take a line or words of the hook's own."""
        if arguments:
            self._log.debug(text, *arguments)
        else:
            self._hear(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def submit_by_hook(
    settings: SparkSettings, arguments: Mapping[str, Any], application: str, launch: Launch, lines: Lines
) -> HookProcess:
    """Begin to submit an app by the provider's hook.

    :param arguments: of the hook, by its names.
    """
    hook = _hook_class()(_Connection(settings), lines, spark_binary=str(launch.binary), **arguments)
    # A line that is no UTF-8 would end the hook's submit while the app runs.
    return HookProcess(lambda: hook.submit(application, errors="replace"), launch)


@cache
def _hook_class() -> Any:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    class TaskHook(SparkSubmitHook):  # type: ignore[misc, unused-ignore]
        """The provider's hook, with the settings in place of a connection that it looks up."""

        def __init__(self, connection: Any, lines: Lines, **arguments: Any) -> None:
            self.lines = lines
            self.connection = connection
            super().__init__(**arguments)

        def get_connection(self, conn_id: str) -> Any:
            """Return the settings: a missing connection would be YARN, and a null in one a TypeError."""
            return self.connection

        @property
        def log(self) -> Any:
            """Return what takes the lines, which the hook hands to nobody else."""
            return self.lines

    return TaskHook


class _Connection:
    """The settings as the hook reads a connection of its type."""

    conn_type, port, login, password = "spark", None, None, None

    def __init__(self, settings: SparkSettings) -> None:
        self.host = settings.master
        # No keytab: the hook would leave it in a readable file.
        self.extra_dejson = {"deploy-mode": settings.deploy_mode_given, **settings.cluster}


# --- drivers in a cluster -------------------------------------------------------------------------------------------


class ClusterOperator:
    """The provider's operator, which submits to a cluster and asks it how the app is doing.

    :param arguments: of the operator, by its names.
    """

    _number = 0

    def __init__(self, settings: SparkSettings, arguments: Mapping[str, Any]) -> None:
        ClusterOperator._number += 1
        self._name = f"index_submission_{ClusterOperator._number}"
        self._variable = f"AIRFLOW_CONN_{self._name.upper()}"
        given = {"conn_type": "spark", "host": settings.master, "extra": _Connection(settings).extra_dejson}
        self._connection = json.dumps(given)
        with self._known():
            from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

            # A copy of the settings: the operator writes into them.
            conf = dict(arguments.get("conf", {}))
            self._operator = SparkSubmitOperator(task_id=self._name, conn_id=self._name, **{**arguments, "conf": conf})

    def submit(self) -> str:
        """Submit, and return the application's id, or the pod."""
        with self._known():
            return str(self._operator.submit_job({}))

    def status(self, handle: str) -> tuple[bool, str]:
        """Return whether an app is active, and the cluster's word for its state."""
        with self._known():
            state = self._operator.get_job_status(handle, {})
            return self._operator.is_job_active(state), state

    def on_kill(self) -> None:
        """End what this process has submitted. An app of another process is left alone: :func:`end_on_yarn`."""
        with self._known():
            self._operator.on_kill()

    @contextlib.contextmanager
    def _known(self) -> Iterator[None]:
        """Let Airflow find the connection while the operator is at work; it holds no secret."""
        os.environ[self._variable] = self._connection
        try:
            yield
        finally:
            os.environ.pop(self._variable, None)


def end_on_yarn(address: str, application: str, seconds: float) -> None:
    """Ask YARN's ResourceManager by its REST API to end an application.

    :param address: of the ResourceManager, as the connection has it.
    :raises OSError: it did not answer, or refused.
    """
    at = address if "://" in address else f"http://{address}"
    request = urllib.request.Request(
        f"{at.rstrip('/')}/ws/v1/cluster/apps/{application}/state",
        data=json.dumps({"state": "KILLED"}).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=seconds):
        pass
