"""A whole Airflow on this machine: scheduler, DAG processor, API server and triggerer, on SQLite and loopback.

It is what ``airflow standalone`` starts, with a home and ports of its own, so that several may run side by
side and nothing of the user's own installation is touched. For tests and demos; never for production. Standalone
knows LocalExecutor alone: for an executor that has workers of its own, each part is started here.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from airflow_provider_index.testing.client import AirflowClient
from airflow_provider_index.testing.local_server import LocalServer

# An ignored SIGINT is inherited (a shell's background job has it so), and Airflow stops cleanly by SIGINT
# only.
_WITH_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
# Its scheduler and triggerer take ten seconds and more to end by themselves, and nothing of that is needed.
_STOP_SECONDS = 4
_PARTS = ("scheduler", "dag-processor", "api-server", "triggerer")


class AirflowDidNotStart(RuntimeError):
    """Airflow did not become healthy in time; the message ends with what it logged last."""


class LocalAirflow(LocalServer):
    """Starts Airflow, hands out a client, stops it.

    ::

        with LocalAirflow(dags="dags", connections={"spark_default": {"conn_type": "spark", "host":
        "local[2]"}}) as airflow:
            airflow.client.run("nightly")

    :param dags: folder of DAG files, or one of them.
    :param connections: connection id -> fields (``conn_type``, ``host``, ``extra`` …) or a connection URI.
    :param variables: Airflow Variables.
    :param config: ``section__key`` -> value, over the settings of this class: ``{"core__parallelism": "2"}``.
    :param env: environment variables for all of it.
    :param home: AIRFLOW_HOME; a temporary one, removed at the end, unless given.
    :param parallelism: how many tasks may run at once. Each costs a process.
    :param users: more users than ``admin``, each with its role: ``viewer``, ``user``, ``op`` or ``admin``. See
        :meth:`client_of`.
    :param worker: the command that starts a worker, where the executor that ``config`` names needs one:
        ``celery worker``.
    """

    def __init__(
        self,
        dags: str | os.PathLike[str],
        *,
        connections: Mapping[str, Mapping[str, Any] | str] | None = None,
        variables: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        home: str | os.PathLike[str] | None = None,
        parallelism: int = 4,
        users: Mapping[str, str] | None = None,
        worker: str | None = None,
    ) -> None:
        super().__init__(home, prefix="airflow-home-", log="standalone.log")
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, log_port, triggerer_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.username = "admin"
        self.password = secrets.token_urlsafe(12)
        self.roles = {self.username: "admin", **(users or {})}
        self.passwords = {
            name: self.password if name == self.username else secrets.token_urlsafe(12) for name in self.roles
        }
        settings = {**self._settings(log_port, triggerer_port, parallelism), **(config or {})}
        self.env = {
            **airflow_environment(self.home, Path(dags).absolute(), settings, connections, variables),
            "NO_PROXY": "127.0.0.1,localhost",
            **(env or {}),
        }
        self.client = AirflowClient(self.url, self.username, self.password, log=str(self.log_file))
        self.worker = worker
        self.parts: dict[str, int] = {}
        """Name of each part that was started by itself -> its process id; of one that was started anew, the last."""
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, timeout: float = 300) -> Self:
        """Prepare the database, start all parts, and return once all are healthy.

        :param timeout: seconds; on two cores about 25 are needed.
        :raises AirflowDidNotStart: with the last lines of the log.
        """
        passwords = self.home / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps(self.passwords))
        passwords.chmod(0o600)
        self.log_file.write_bytes(b"")
        deadline = time.monotonic() + timeout
        if self.worker is None:
            self._process = self._launch("standalone")
        else:
            # Else each of them would make the tables.
            if status := self._launch("db migrate").wait(timeout):
                raise AirflowDidNotStart(f"The database was not made (exit status {status}).\n{self.last_lines()}")
            for name in (*_PARTS, self.worker):
                self.start_part(name)
        while not self.client.healthy():
            ended = [process.poll() for process in self._running() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise AirflowDidNotStart(
                    f"Airflow was not healthy after {timeout} s (exit status {ended}).\n{self.last_lines()}"
                )
            time.sleep(0.5)
        self.client.login()
        return self

    def client_of(self, username: str) -> AirflowClient:
        """Return a client that one of the users looks with; to be closed by the caller.

        :param username: of the simple auth manager.
        """
        return AirflowClient(self.url, username, self.passwords[username])

    def stop(self) -> None:
        """Stop all parts, after some seconds by force, and remove a temporary home."""
        self.client.close()
        running = self._running()
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            # Whatever is left of the group would go on writing into a home that is gone.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._process, self._started, self.parts = None, [], {}
        self._remove_home()

    def start_part(self, name: str) -> int:
        """Start one part more, in the place of one that was killed: ``triggerer``, ``scheduler``, ``dag-processor``.

        :param name: of the part, which is the command that starts it.
        :returns: its process id, which is that of its group too. It is stopped with the rest.
        """
        process = self._launch(name)
        self._started.append(process)
        self.parts[name] = process.pid
        return process.pid

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [*self._started, *([self._process] if self._process is not None else [])]

    def _launch(self, command: str) -> subprocess.Popen[bytes]:
        airflow = str(Path(sys.executable).parent / "airflow")
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _WITH_SIGINT, airflow, *shlex.split(command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.home,
                start_new_session=True,
            )

    def airflow(self, *arguments: str, timeout: float = 120) -> str:
        """Run an ``airflow`` command with this Airflow's settings and return what it printed.

        :param timeout: seconds after which it is ended.
        """
        done = subprocess.run(
            [str(Path(sys.executable).parent / "airflow"), *arguments],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
        return done.stdout

    def _settings(self, log_port: int, triggerer_port: int, parallelism: int) -> dict[str, str]:
        return {
            "core__executor": "LocalExecutor",
            # The default of 32 forks 32 workers at once.
            "core__parallelism": str(parallelism),
            "core__dags_are_paused_at_creation": "False",
            "core__fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "core__execution_api_server_url": f"{self.url}/execution/",
            # The first request of all imports half of Airflow; a worker that gives up meanwhile has failed its task.
            "workers__execution_api_timeout": "60",
            "core__simple_auth_manager_users": ",".join(f"{name}:{role}" for name, role in self.roles.items()),
            "core__simple_auth_manager_passwords_file": str(self.home / "simple_auth_manager_passwords.json.generated"),
            # Five processes share the file; on a busy machine one waits longer than SQLite's five seconds for another.
            "database__sql_alchemy_conn": f"sqlite:///{self.home / 'airflow.db'}?timeout=60",
            "database__load_default_connections": "False",
            "api__host": "127.0.0.1",
            "api__port": str(self.port),
            "api__base_url": self.url,
            "api__secret_key": secrets.token_hex(16),
            "api__workers": "1",
            "api_auth__jwt_secret": secrets.token_hex(32),
            "dag_processor__refresh_interval": "5",
            # A file that has changed is read at the next refresh all the same; twenty files read anew every ten seconds
            # keep a core busy that the tasks want.
            "dag_processor__min_file_process_interval": "300",
            "logging__worker_log_server_port": str(log_port),
            "logging__trigger_log_server_port": str(triggerer_port),
            "scheduler__scheduler_idle_sleep_time": "0.3",
            "triggerer__default_capacity": "100",
        }


def airflow_environment(
    home: Path,
    dags: Path,
    settings: Mapping[str, str],
    connections: Mapping[str, Mapping[str, Any] | str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of an Airflow with a home of its own; no variable of another Airflow is passed on.

    :param settings: ``section__key`` -> value.
    :param connections: connection id -> fields or a connection URI.
    """
    of_every = {
        "core__dags_folder": str(dags),
        "core__load_examples": "False",
        "logging__base_log_folder": str(home / "logs"),
        "usage_data_collection__enabled": "False",
    }
    known = {name: one if isinstance(one, str) else json.dumps(one) for name, one in (connections or {}).items()}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(home),
        **{f"AIRFLOW__{name.upper()}": value for name, value in {**of_every, **settings}.items()},
        **{f"AIRFLOW_CONN_{name.upper()}": value for name, value in known.items()},
        **{f"AIRFLOW_VAR_{name.upper()}": value for name, value in (variables or {}).items()},
        # The interpreter's own folder first: Airflow finds its parts by the name `airflow`.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


def _free_ports(count: int) -> list[int]:
    # All are held open until the last is found, so that none is handed out twice.
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
