"""Runs an app by a real ``spark-submit``, with the driver beside the task, in a process group of its own.

The group is what makes an end certain: ``spark-submit``, its JVM and the Python driver are one group, so
that killing leaves nobody behind. The job reaches the driver through a named pipe in a private folder,
never on the command line, in the environment or on disk; and since only the task holds the pipe's other
side, the driver learns from the kernel when the task is gone, whichever way it went.

A detached driver stays on the worker's host when the task has left: ``submit`` returns once it has read its job. From
then on it reports on storage, and stops when its job is cancelled there. The handle names host, process group and
start, so that who cancels on the same host ends the processes as well.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import msgspec.structs

from airflow_provider_index.compat import conf
from airflow_provider_index.runners import by_provider
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.by_provider import HookProcess
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs import environment
from spark_apps.jobs.bundle import Bundle, make_bundle
from spark_apps.jobs.environment import cache_directory
from spark_apps.jobs.job import DRIVER_LOG, SPARK_HISTORY, SPARK_UI, Job, encode_job, read_outcome
from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import InvalidInput, JobFailed, SparkMissing
from spark_apps.storage.secrets import holds_secret
from spark_apps.version import __version__

_PROC = Path("/proc")
CLEARED_SECONDS = 1.5
"""How long to wait for a large process to be cleared away. Airflow gives a killed task five seconds in all."""
_CLOSE_SECONDS = 20.0
"""For how long a runner waits for processes that it has ended."""


@cache
def this_host() -> str:
    """Return a name that no other machine, boot or container shares.

    So a process id means something together with it.
    """
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append((_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8])
    with contextlib.suppress(OSError):
        parts.append(str((_PROC / "self/ns/pid").stat().st_ino))
    return "/".join(parts)


def started_at(pid: int) -> str | None:
    """Return when a process was started, in a form of this machine's own.

    ``None`` if there is no such process, or where the system does not show it.
    """
    try:
        # The name is in brackets and may hold anything; behind it the fields are plain.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def members(group: int) -> list[int]:
    """Return the processes of a group that run."""
    pids = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    pids.append(int(entry.name))
    return pids


def group_lives(group: int) -> bool:
    """Return whether a process group has a member, ended ones that nobody has asked about included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a group; one that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end_group(group: int, polite_seconds: float) -> None:
    """End a process group: politely first, then by force.

    Return once it is gone, or after some seconds, which a busy machine takes to clear away a large process.
    """
    signal_group(group, signal.SIGTERM)
    if not _gone_within(group, polite_seconds):
        signal_group(group, signal.SIGKILL)
        _gone_within(group, CLEARED_SECONDS)


def _gone_within(group: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while members(group) if _PROC.is_dir() else group_lives(group):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


# --- Runs an app by a real ``spark-submit`` -------------------------------------------------------------------------


# Hundreds of lines of Spark's own would hide the app's in the task's log.
_PAGES = {"ui": SPARK_UI, "history": SPARK_HISTORY, "log": DRIVER_LOG}
_QUIET = {"spark.log.level": "WARN", "spark.ui.showConsoleProgress": "false"}
_OF_AIRFLOW = re.compile(r"AIRFLOW_(CONN|VAR)_|_?AIRFLOW__|_AIRFLOW_")
# What the stores' own libraries, Hadoop, Spark, Java and proxies go by, keys of the machine's role included.
_OF_STORES_AND_SPARK = re.compile(
    r"(?i)(AWS|AZURE(?!_DEVOPS)|MSI|IDENTITY|GOOGLE|GCP|GCS|CLOUDSDK|HADOOP|YARN|HIVE|SPARK|PYSPARK|JAVA|JDK|KRB5|KUBERNETES)_|.*_PROXY$"
)


class SparkSubmitRunner:
    """Submits in client mode; one runner serves one app at a time, which ends with the task.

    :param settings: which Spark, and with what.
    :param log: where the app's lines go, one by one, as they come.
    :param bundle: the apps to submit; those of the installed package by default.
    """

    detached = False
    by_hook = True
    """Whether Airflow's provider submits. What is no ``spark-submit``, or stays when the task has left, is started by
    this class: the hook waits, and takes the lines (``tests/airflow_provider_index/runners/test_detached.py``)."""
    start_seconds = 60.0
    polite_seconds = 1.0
    """Between asking a process group to end and ending it. Airflow gives a killed task five seconds; the abort in the
    timeline has to fit in as well."""

    def __init__(self, settings: SparkSettings, log: Any, bundle: Bundle | None = None) -> None:
        self._settings = settings
        self._log = log
        self._bundle = bundle
        self._parent = os.getppid()
        self._process: subprocess.Popen[str] | HookProcess | None = None
        self._folder: Path | None = None
        self._lifeline: int | None = None
        self._pages: dict[str, Any] = {}
        self._tail: deque[str] = deque(maxlen=20)
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job) -> str:
        """Start ``spark-submit`` and return the id of its process group.

        :param job: the program, its arguments and its settings.
        :raises SparkMissing: there is no ``spark-submit`` or no Java.
        """
        process = self._launch(job, None, subprocess.PIPE)
        if isinstance(process, subprocess.Popen):
            self._start(self._relay, process.stdout)
        return str(process.pid)

    def status(self, handle: str) -> JobStatus:
        """Ask whether ``spark-submit`` has ended. A task whose supervisor died ends its app.

        :param handle: what ``submit`` returned.
        :returns: whether it runs, and how it ended.
        :raises ProcessLookupError: if this task has been orphaned: nobody would learn what it goes on to
            do.
        """
        if self._process is None or self._folder is None:
            return JobStatus(running=False, detail="not submitted")
        if os.getppid() != self._parent:
            self.cancel(handle)
            raise ProcessLookupError("The process that supervised this task is gone; its Spark app was ended.")
        code = self._process.poll()
        if code is None:
            return replace(JobStatus(running=True, detail=self._tail[-1] if self._tail else ""), **self._pages)
        for thread in self._threads:
            thread.join(timeout=2)
        reason = "" if code == 0 else f": {self._last_words()}"
        outcome = read_outcome(self._folder / "outcome")
        return replace(JobStatus(False, f"spark-submit ended with status {code}{reason}", outcome), **self._pages)

    def cancel(self, handle: str) -> None:
        """End the whole process group: politely for a second, then by force.

        :param handle: what ``submit`` returned.
        """
        process = self._process
        group = None if process is None else process.pid
        if process is None or group is None or (process.poll() is not None and not group_lives(group)):
            return
        end_group(group, self.polite_seconds)
        # Its first thread may be gone while others are still being cleared away; only then has it ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLEARED_SECONDS)

    def close(self) -> None:
        """End what still runs, let go of the pipe, and remove the private folder."""
        self.cancel("")
        if self._process is not None:
            # The hook waits for its lines as well, which a process that left the group may still hold.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_SECONDS)
        self._let_go()

    # --- how it is started ----------------------------------------------------------------------------------

    def _launch(self, job: Job, workdir: Path | None, output: Any) -> subprocess.Popen[str] | HookProcess:
        """Start ``spark-submit`` and begin to hand the job over.

        :param workdir: the folder it works in; the private one of the hand-over by default.
        """
        binary, surroundings = self._surroundings()
        bundle = self._bundle or make_bundle()
        program = bundle.program(job.program)
        self._folder = folder = Path(tempfile.mkdtemp(prefix="index-job-"))
        workdir = folder if workdir is None else workdir
        pipe = folder / "job"
        os.mkfifo(pipe, mode=0o600)
        # Open for both directions, so that it neither waits for the driver nor ends when the driver looks
        # away.
        self._lifeline = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        application = [str(program), str(pipe)]
        self._log.info("Submitting %s to %s", job.program, self._settings.master)
        by_hook = self.by_hook and by_provider.submits(self._settings)
        launch = by_provider.Launch(folder, binary, surroundings, workdir) if by_hook else None
        if launch is not None and launch.starts:
            process: subprocess.Popen[str] | HookProcess = self._run_by_hook(
                launch, job, bundle.archive, application, workdir
            )
        else:
            command = self._command(binary, job, bundle.archive, application, workdir)
            process = self._run(command, output, surroundings, workdir)
        if process.pid is None:
            raise JobFailed(f"spark-submit was not started: {self._last_words()}", hint="See its lines above.")
        line = encode_job(
            msgspec.structs.replace(
                job,
                result=None if self.detached else str(folder / "outcome"),
                process_group=process.pid,
                spark_conf={**self._settings.secret_conf, **job.spark_conf},
                version=__version__,
            )
        )
        self._start(self._hand_over, self._lifeline, line)
        return process

    def _run(self, command: list[str], output: Any, env: dict[str, str], folder: Path) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        return self._process

    def _run_by_hook(
        self, launch: by_provider.Launch, job: Job, archive: Path, application: list[str], folder: Path
    ) -> HookProcess:
        """Let the hook of Airflow's provider start ``spark-submit``, by a launcher that makes a process group of it."""
        program, *arguments = application
        given = {**self._arguments(job, archive, folder), "application_args": arguments}
        lines = by_provider.Lines(self._take, self._log)
        self._process = by_provider.submit_by_hook(self._settings, given, program, launch, lines)
        return self._process

    def _let_go(self) -> None:
        for thread in self._threads:
            thread.join(timeout=2)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- what is submitted ----------------------------------------------------------------------------------

    def _arguments(self, job: Job, archive: Any, workdir: Path) -> dict[str, Any]:
        """Return what is submitted, by the names of the arguments of the provider's hook and operator."""
        settings = self._settings
        settings.check_spoken()
        files = {
            key: _write_java_options(value, workdir / f"java-options-{number}")
            for number, (key, value) in enumerate(settings.secret_java_options.items())
        }
        # The hook would leave it in a readable file, below a name that others can guess.
        keytab = {} if settings.keytab is None else {"keytab": str(_write_keytab(settings.keytab, workdir))}
        return {
            "name": job.app_name or job.program,
            "conf": dict(sorted({**_QUIET, **settings.open_conf, **files}.items())),
            **by_provider.named_as_in_hook(settings.options),
            **keytab,
            "py_files": str(archive),
        }

    def _command(self, binary: str, job: Job, archive: Any, application: list[str], workdir: Path) -> list[str]:
        """Return the same as a command line, for what the hook does not submit."""
        settings = self._settings
        given = self._arguments(job, archive, workdir)
        command = [binary, "--master", settings.master, "--name", given.pop("name")]
        if settings.deploy_mode_given:
            command += ["--deploy-mode", settings.deploy_mode_given]
        for key, value in given.pop("conf").items():
            command += ["--conf", f"{key}={value}"]
        for name, value in given.items():
            command += [f"--{by_provider.named_as_in_spark(name)}", value]
        return [*command, *application]

    def _surroundings(self) -> tuple[str, dict[str, str]]:
        """Return ``spark-submit`` and the environment it runs in: ours, without what is Airflow's alone."""
        env = self._environment()
        env["JAVA_HOME"] = str(environment.java_home())
        env["PYTHONUNBUFFERED"] = "1"
        env.setdefault("PYSPARK_DRIVER_PYTHON", env.get("PYSPARK_PYTHON", sys.executable))
        if self._settings.master.startswith("local"):
            env.setdefault("PYSPARK_PYTHON", sys.executable)
        if self._settings.binary is None:
            home = environment.spark_home()
            env["SPARK_HOME"] = str(home)
            return str(home / "bin" / "spark-submit"), env
        binary = shutil.which(self._settings.binary)
        if binary is None:
            raise SparkMissing(
                f"There is no {self._settings.binary!r}, which the Spark connection names as its spark-submit.",
                hint="Install Spark on the worker, or correct 'spark-binary' in the connection.",
            )
        # A path means the Spark that it is of, a mere name the worker's own, where it says which.
        given = self._settings.environment if os.sep in self._settings.binary else env
        own = None if given.get("SPARK_HOME") else environment.spark_home_of(binary)
        if own is not None:
            env["SPARK_HOME"] = str(own)
        return binary, env

    def _environment(self) -> dict[str, str]:
        """Return the worker's variables that the app sees: none of Airflow's, no secret but those that reach stores."""
        passed = self._settings.pass_environment
        defaults = {
            name: value
            for name, value in os.environ.items()
            if not _OF_AIRFLOW.match(name)
            and (name in passed or _OF_STORES_AND_SPARK.match(name) or not holds_secret(name, value))
        }
        return {**defaults, **self._settings.environment}

    # --- while it runs --------------------------------------------------------------------------------------

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _hand_over(self, pipe: int, line: bytes) -> None:
        # A pipe holds 64 KB; a longer job waits until the driver reads, or until nobody will.
        view = memoryview(line)
        while view and self._process is not None and self._process.poll() is None:
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(pipe, view) :]
                continue
            select.select([], [pipe], [], 0.5)

    def _relay(self, output: Any) -> None:
        """Pass the lines of a process on to the task's log, and keep the last ones."""
        for line in output:
            self._take(line)

    def _take(self, line: str) -> None:
        if text := line.rstrip():
            self._tail.append(text)
            self._log.info("%s", text)
            self._hear(text)

    def _hear(self, line: str) -> None:
        """Take from a line what this runner wants to know: the addresses of pages."""
        for name, beginning in _PAGES.items():
            _, separator, address = line.partition(beginning)
            if separator:
                self._pages[name] = address.strip()

    def _last_words(self) -> str:
        lines = [*self._tail, *getattr(self._process, "failure", "").splitlines()]
        return " | ".join(lines[-5:]) or "it said nothing"


def _write_java_options(options: str, path: Path) -> str:
    """Write options of Java into a file that its owner alone can read and return the option that names it."""
    path.touch(mode=0o600)
    quoted = (option.replace("\\", "\\\\").replace('"', '\\"') for option in shlex.split(options))
    path.write_text("".join(f'"{option}"\n' for option in quoted))
    return f'"@{path}"'


def _write_keytab(encoded: str, folder: Path) -> Path:
    try:
        content = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise InvalidInput(
            "The keytab of the Spark connection is not base64.",
            hint="Give the output of: base64 <keytab>.",
        ) from error
    path = folder / "keytab"
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


# --- a driver that stays when the task has left -----------------------------------------------------------------------


HANDOVER_SECONDS = 60.0
"""For how long ``submit`` waits until the driver has read its job."""
KEPT_DAYS = 7
"""For how long the logs of drivers stay."""
_MARK = ".index-driver.log"
_FOLDER_NAME = re.compile(rf"\.?\d{{8}}T\d{{6}}-.+{re.escape(_MARK)}")
_LAST_LINES = 20
_LAST_BYTES = 16_384


class Handle(msgspec.Struct, frozen=True):
    """Location of a driver: ``started`` distinguishes its process group from a later one of that number."""

    host: str
    pid: int
    started: str | None
    log: str


class DetachedSparkSubmitRunner(SparkSubmitRunner):
    """Submits in client mode and leaves the driver behind, in a process group of its own.

    Its lines go to a file below ``driver-logs`` of the Spark connection's extra, by default ``index_drivers`` below
    Airflow's log folder. For workers that live on when a task has ended: not for a pod a task.
    """

    detached = True
    by_hook = False

    def submit(self, job: Job) -> str:
        logs = self._logs()
        _remove_old(logs)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{job.job_id or job.program}"
        self._path = logs / f"{name}{_MARK}"
        scratch = _scratch_of(self._path)
        scratch.mkdir(mode=0o700)
        try:
            self._path.touch(mode=0o600, exist_ok=False)
            with self._path.open("wb") as output:
                self._launch(msgspec.structs.replace(job, scratch=str(scratch)), scratch, output)
            self._log.info("The driver's lines go to %s on %s.", self._path, this_host().partition("/")[0])
            self._wait_until_read()
        except BaseException:
            self._end()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        finally:
            self._let_go()
        assert isinstance(self._process, subprocess.Popen)
        handle = Handle(this_host(), self._process.pid, started_at(self._process.pid), str(self._path))
        return msgspec.json.encode(handle).decode()

    def status(self, handle: str) -> JobStatus:
        """Return whether the driver's processes are there, if they are on this host; elsewhere it counts as running."""
        where = _read(handle)
        if where.host != this_host():
            return JobStatus(True, f"on {where.host.partition('/')[0]}, log {where.log}")
        if _is_there(where):
            return JobStatus(True, f"process group {where.pid}, log {where.log}")
        return JobStatus(False, f"its processes are gone; the last lines of {where.log}:\n{last_lines(where.log)}")

    def cancel(self, handle: str) -> None:
        """End the process group, if it is on this host and still the one that was started.

        :param handle: empty while ``submit`` is at work in this process.
        """
        if not handle:
            return self._end()
        where = _read(handle)
        if where.host != this_host():
            return
        if _is_there(where):
            end_group(where.pid, self.polite_seconds)
        shutil.rmtree(_scratch_of(Path(where.log)), ignore_errors=True)

    def close(self) -> None:
        """Do nothing: the driver runs on."""
        self._let_go()

    def _wait_until_read(self) -> None:
        """Wait until the driver has taken the pipe away, which it does when it has read the job."""
        assert self._process is not None and self._folder is not None
        deadline = time.monotonic() + HANDOVER_SECONDS
        while (self._folder / "job").exists():
            code = self._process.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            why = f"did not read its job within {HANDOVER_SECONDS:g} s" if code is None else f"ended with status {code}"
            raise JobFailed(
                f"spark-submit {why}; its last lines:\n{last_lines(self._path)}",
                hint=f"All of them are in {self._path} on {this_host().partition('/')[0]}.",
            )

    def _end(self) -> None:
        if isinstance(self._process, subprocess.Popen):
            end_group(self._process.pid, 0)
            self._process.wait()

    def _logs(self) -> Path:
        configured = self._settings.driver_logs
        if configured is None:
            base = conf.get("logging", "base_log_folder", fallback=None)
            configured = str(Path(base) / "index_drivers") if base else str(cache_directory() / "drivers")
        folder = Path(configured)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def last_lines(path: str | os.PathLike[str]) -> str:
    """Return the end of a driver's log; empty if it is not on this host."""
    try:
        with Path(path).open("rb") as lines:
            lines.seek(max(0, os.fstat(lines.fileno()).st_size - _LAST_BYTES))
            text = lines.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LAST_LINES:])


def last_lines_of(handle: str) -> str:
    """Return what to show of a driver that failed: where its log is, and its end, if that can be read on this host."""
    try:
        where = _read(handle)
    except msgspec.MsgspecError:
        return ""  # of another runner
    host = where.host.partition("/")[0]
    if where.host != this_host():
        return f"The driver's lines are in {where.log} on {host}."
    return f"The last lines of the driver, of {where.log} on {host}:\n{last_lines(where.log)}"


def _scratch_of(log: Path) -> Path:
    """Return the folder in which the driver of that log works. It takes it away at its end, or who ends it does."""
    return log.with_name(f".{log.name}")


def _read(handle: str) -> Handle:
    return msgspec.json.decode(handle, type=Handle)


def _is_there(where: Handle) -> bool:
    started = started_at(where.pid)
    if started is not None:
        return started == where.started
    # The first process has ended. While others of its group live, no new process gets its number.
    return bool(members(where.pid))


def _remove_old(folder: Path) -> None:
    """Remove old logs of drivers, and the folders in which they worked.

    What does not carry their mark is another program's, though it is in the same folder.
    """
    before = time.time() - KEPT_DAYS * 86_400
    for entry in folder.glob(f"*{_MARK}"):
        with contextlib.suppress(OSError):
            if not _FOLDER_NAME.fullmatch(entry.name) or entry.is_symlink() or entry.stat().st_mtime >= before:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


prepare(Handle)
