"""Looks for planted secrets while something runs: in command lines and environments of all processes, in files with
their modes, and on pages of Spark."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import httpx
import psutil

SPARKS_PAGES = ("jobs", "SQL", "environment", "executors", "connect")


class Sweep:
    """Samples for as long as its ``with`` block runs.

    :param planted: what it is called -> the secret.
    :param folders: gives the folders to look into, each time anew.
    :param pages: addresses of Spark's own pages, those of a driver too; whoever does not answer is asked again.
    """

    def __init__(
        self, planted: Mapping[str, str], folders: Callable[[], Iterable[Path]], pages: Iterable[str] = ()
    ) -> None:
        self._planted = {name: secret.encode() for name, secret in planted.items()}
        self._folders, self._pages = folders, tuple(pages)
        self.processes: set[str] = set()
        """Secret, place and program of each that stood on a command line or in an environment."""
        self.open_files: set[str] = set()
        """Secret and path of each that stood in a file which others than its owner may read."""
        self.private_files: set[str] = set()
        """Secret and name of each that stood in a file of its owner's alone."""
        self.on_pages: set[str] = set()
        """Secret and address of each that stood on a page."""
        self.seen: set[str] = set()
        """What was looked at: programs and addresses."""
        self._failed: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sweep:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    def _run(self) -> None:
        try:
            self._look()
        except Exception as failed:  # noqa: BLE001 - a sweep that ended early would find nothing
            self._failed = failed

    def _look(self) -> None:
        with httpx.Client(timeout=30, trust_env=False, follow_redirects=True) as client:
            while not self._stop.wait(0.2):
                self._look_at_processes()
                for path, names in self.holding(files_below(*self._folders())):
                    with contextlib.suppress(OSError):
                        others = stat.S_IMODE(path.stat().st_mode) & 0o077
                        files = self.open_files if others else self.private_files
                        files |= {f"{name} in {path if others else path.name}" for name in names}
                for address in self._pages:
                    self._look_at_page(client, address)

    def _look_at_processes(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                words = process.cmdline()
                program = next((word for word in reversed(words) if "." in word), "")
                self.seen |= {word.rpartition("/")[2] for word in words if word.endswith((".py", "Backend", "Submit"))}
                self.processes |= {
                    f"{name} on the command line of {program}" for name in self.names_in(" ".join(words))
                }
                if process.pid != os.getpid():
                    environment = "\n".join(process.environ().values())
                    self.processes |= {f"{name} in the environment of {program}" for name in self.names_in(environment)}

    def _look_at_page(self, client: httpx.Client, address: str) -> None:
        for path in (*(f"{name}/" for name in SPARKS_PAGES), "", "json/", *self._named_by_spark(client, address)):
            with contextlib.suppress(httpx.TransportError):
                answer = client.get(f"{address}/{path}")
                if answer.is_success:
                    self.seen.add(f"{address}/{path.partition('?')[0]}")
                    self.on_pages |= {f"{name} at /{path}" for name in self.names_in(answer.text)}

    @staticmethod
    def _named_by_spark(client: httpx.Client, address: str) -> Iterator[str]:
        """What the page's own API tells of its application, of its settings and its queries above all."""
        with contextlib.suppress(httpx.TransportError, ValueError, TypeError, KeyError):  # another page's answer
            for one in client.get(f"{address}/api/v1/applications").json():
                yield from (
                    f"api/v1/applications/{one['id']}/{part}"
                    for part in ("environment", "sql?details=true&planDescription=true", "allexecutors")
                )

    def shows(self, page: str) -> bool:
        """Whether a page of that name was read."""
        return any(page in one for one in self.seen)

    def names_in(self, said: str | bytes) -> list[str]:
        """The secrets that stand in a text."""
        said = said.encode(errors="replace") if isinstance(said, str) else said
        return [name for name, secret in self._planted.items() if secret in said]

    def holding(self, paths: Iterable[Path]) -> list[tuple[Path, list[str]]]:
        """The files among these in which a secret stands, with which."""
        holders = []
        for path in paths:
            with contextlib.suppress(OSError):
                # A pipe would wait for a writer.
                if path.is_file() and (names := self.names_in(path.read_bytes())):
                    holders.append((path, names))
        return holders


def files_below(*folders: Path) -> Iterator[Path]:
    """The files in these folders, of which Spark may delete some meanwhile."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            yield from (Path(place, name) for name in names)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
