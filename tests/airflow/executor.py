"""What runs the tasks of the Airflow of these tests: LocalExecutor, or at every third commit and with
``EXECUTOR=celery`` a real Celery, with a Redis server of Debian's and a worker.

What that needs is kept in ``.celery``: the Redis server, where there is none on the ``PATH``, and the packages of
``celery.txt``, which go above those of ``.venv``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.turns import turn

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".celery"
PINS = Path(__file__).with_name("celery.txt")
CELERY_WORKER = "celery worker"
"""The command that starts a worker."""


@dataclass(frozen=True)
class Executor:
    """Settings for :class:`LocalAirflow`.

    :param config: ``section__key`` -> value. :param env: variables for all of it. :param worker: the command of one.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    worker: str | None = None

    def settings(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Arguments for :class:`LocalAirflow`, with settings of a test's own among them."""
        return {"config": {**config, **self.config}, "env": self.env, "worker": self.worker}


@contextmanager
def executor(kind: str | None = None, *, processes: int = 2) -> Iterator[Executor]:
    """Give the settings, and behind them a Redis server for as long as the ``with`` block runs.

    :param kind: ``local`` or ``celery``; by default what the environment variable ``EXECUTOR`` says, or this commit's
        turn. :param processes: of a worker of Celery, so how many tasks it runs at once.
    :raises ConnectionError: what Celery needs is not there, and is not reached.
    """
    kind = kind or os.environ.get("EXECUTOR") or ("celery" if is_turn_of_celery() else "local")
    if kind == "local":
        yield Executor()
        return
    if kind != "celery":
        raise ValueError(f"EXECUTOR={kind}: use local or celery")
    paths = [str(packages()), *filter(None, [os.environ.get("PYTHONPATH")])]
    with redis() as url:
        yield Executor(
            {
                "core__executor": "CeleryExecutor",
                "celery__broker_url": url,
                "celery__worker_concurrency": str(processes),
            },
            {"PYTHONPATH": os.pathsep.join(paths)},
            CELERY_WORKER,
        )


def is_turn_of_celery() -> bool:
    """Test whether this commit is one of those at which Celery runs the tasks, where it is reached."""
    # Three has no divisor in common with the turns of the modules here, so that each meets both in time.
    if turn(3) != 0:
        return False
    try:
        packages()
        redis_binary()
    except ConnectionError as error:
        warnings.warn(f"CELERY NOT TESTED: {error}", stacklevel=2)
        return False
    return True


@contextmanager
def redis() -> Iterator[str]:
    """Run a Redis server on loopback that keeps nothing, and give its address."""
    binary, env = redis_binary()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="redis") as folder:
        command = [binary, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
        log = Path(folder) / "redis.log"
        with log.open("wb") as lines:
            server = subprocess.Popen(command, cwd=folder, env=env, stdout=lines, stderr=lines, start_new_session=True)
        try:
            deadline = time.monotonic() + 20
            while not _answers(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Redis did not start:\n{log.read_text()}")
                time.sleep(0.1)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def redis_binary() -> tuple[str, dict[str, str]]:
    """Return a Redis server and the environment that it runs in: the machine's own, or one unpacked from Debian's
    packages, which is installed nowhere and so starts with no machine.

    :raises ConnectionError: there is none, and Debian's packages are not reached.
    """
    if found := shutil.which("redis-server"):
        return found, dict(os.environ)
    folder = HOME / "redis"
    if not folder.exists():
        with _made_whole(folder) as new:
            _unpack("redis-server", new)
    libraries = os.pathsep.join(str(path) for path in sorted(folder.glob("usr/lib/*-linux-gnu")))
    return str(folder / "usr/bin/redis-server"), {**os.environ, "LD_LIBRARY_PATH": libraries}


def _unpack(package: str, folder: Path) -> None:
    """Unpack a package of Debian's, with those that it needs and this machine has not."""
    asked = _apt("install", "--print-uris", "--quiet=2", "--no-install-recommends", package)
    if not asked and os.geteuid() == 0:
        _apt("update", "--quiet=2")  # what a new machine knows of Debian's packages is nothing, or old
        asked = _apt("install", "--print-uris", "--quiet=2", "--no-install-recommends", package)
    # 'address' redis-server_7.0_amd64.deb 73908 SHA256:…
    names = [line.split()[1].partition("_")[0] for line in asked.splitlines() if line.startswith("'")]
    with tempfile.TemporaryDirectory(dir=folder) as archives:
        _apt("download", *names, folder=archives)
        files = sorted(Path(archives).glob("*.deb"))
        if not files:
            raise ConnectionError(f"There is no {package} here, and Debian's packages are not reached: install it.")
        for file in files:
            subprocess.run(["dpkg-deb", "--extract", str(file), str(folder)], check=True)


def _apt(*arguments: str, folder: str | None = None) -> str:
    """What apt-get prints; nothing where there is none, or where it fails."""
    try:
        command = ["apt-get", "-o", "Debug::NoLocking=1", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def packages() -> Path:
    """Return a folder with the packages of ``celery.txt``, which agree with those that this Python has.

    :raises ConnectionError: pip does not reach them.
    """
    digest = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = HOME / f"packages-{digest}"
    if not folder.exists():
        with _made_whole(folder) as new:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            install = [*pip, "install", "--quiet", "--no-deps", "--target", str(new), "--requirement", str(PINS)]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ConnectionError(f"The packages of {PINS.name} were not installed: {done.stderr[-2000:]}")
            env = {**os.environ, "PYTHONPATH": str(new)}
            subprocess.run([*pip, "check"], env=env, check=True, stdout=sys.stderr)
    return folder


@contextmanager
def _made_whole(folder: Path) -> Iterator[Path]:
    """Give another folder, which takes the name of this one once all of it is there: runs side by side share it."""
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        yield new
        with suppress(OSError):  # another run was first
            new.rename(folder)
