"""Other engines, each in an environment of its own, measured by its own clock.

An environment is made once from the pinned packages in ``benchmarks/peers/<name>.txt``; ``benchmarks/peers/<name>.py``
runs in it as a process of its own and answers calls. Needs the standard library alone, since peers import it too.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from benchmarks.measure import Answer

ROOT = Path(__file__).resolve().parents[2]
WORK = Path(os.environ.get("BENCH_FOLDER", ROOT / ".bench")).resolve()
_LONGEST = 3600.0
_LINES = 15

versions_met: dict[str, str] = {}


class PeerFailed(Exception):
    """A peer's environment could not be made, its process ended, or one of its calls failed."""


class _Says(Protocol):
    def say(self, text: str) -> None: ...


def environment(name: str, requirements: Path | None = None) -> Path:
    """The Python of the environment with a peer's packages, which is made where it is not there yet.

    :raises PeerFailed: it could not be made; what pip said is in the message.
    """
    requirements_file = requirements or ROOT / "benchmarks" / "peers" / f"{name}.txt"
    folder = WORK / "envs" / name
    python, stamp = folder / "bin" / "python", folder / ".ready"
    if not requirements_file.exists():
        raise PeerFailed(f"There is no list of packages for a peer {name}: benchmarks/peers/{name}.txt.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == _stamp(requirements_file):
            return python
        _command(name, [sys.executable, "-m", "venv", "--clear", str(folder)])
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        _command(name, [str(python), "-m", "pip", "install", *quiet, "--requirement", str(requirements_file)])
        stamp.write_text(_stamp(requirements_file))
    return python


def _stamp(requirements_file: Path) -> str:
    return f"{sys.version}\n{requirements_file.read_text()}"


def _command(name: str, command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise PeerFailed(
            f"The environment of the peer {name} could not be made; the others are not touched. See that pip can "
            f"install the packages in benchmarks/peers/{name}.txt, then run this again. It said:\n"
            f"{_tail(done.stdout)}"
        )


def _tail(text: str) -> str:
    """The last lines of what a program said, without addresses and this machine's folders: they may be published."""
    plain = re.sub(r"\w+://\S+", "(address)", text).replace(str(WORK), ".bench").replace(f"{ROOT}/", "")
    return "\n".join(f"  {line}" for line in plain.strip().splitlines()[-_LINES:])


class Peer:
    """A peer's process. ``with Peer("duckdb") as peer: peer("lookup", folder=…).seconds``.

    Seconds and memory are the peer's own, measured around the function in its process.

    :raises PeerFailed: its environment could not be made, or it did not start.
    """

    def __init__(self, name: str, module: str | None = None, python: Path | None = None) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the peer
        command = [str(python or environment(name)), "-m", module or f"benchmarks.peers.{name}"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.versions: dict[str, str] = self._read("its start", 300)["versions"]
        versions_met.update(self.versions)

    def __call__(self, call: str, **arguments: Any) -> Answer:
        """One call of the function of that name.

        :raises PeerFailed: the function raised, or the process ended, or it took longer than an hour.
        """
        return self.call(call, _LONGEST, **arguments)

    def call(self, call: str, longest: float, **arguments: Any) -> Answer:
        """The same, and the process is ended when it has taken so many seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(call) from None
        answer = self._read(call, longest)
        if "error" in answer:
            raise PeerFailed(f"{self.name} could not do {call}:\n{_tail(answer['error'])}")
        return Answer(answer["value"], answer["seconds"], answer["peak"])

    def _read(self, call: str, longest: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        limit = threading.Timer(longest, self._process.kill)
        limit.start()
        try:
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            raise self._ended(call)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self, call: str) -> PeerFailed:
        code = self._process.wait()
        self._errors.seek(0)
        return PeerFailed(f"{self.name} ended with {code} during {call}:\n{_tail(self._errors.read())}")

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextmanager
def started(report: _Says, names: Sequence[str]) -> Iterator[dict[str, Peer]]:
    """Those of the peers that can be had here; the report says which cannot and why."""
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name in names:
            try:
                peers[name] = stack.enter_context(Peer(name))
            except PeerFailed as failed:
                report.say(f"{name} is missing here. {failed}")
        yield peers
