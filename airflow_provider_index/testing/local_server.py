"""Shares what servers for tests and demos have in common: a home, a log in it, and a process group of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self


class LocalServer(ABC):
    """A server on this machine, in a process group of its own: ``with`` starts and stops it.

    :param home: its folder; a temporary one, removed at the end, unless given.
    :param prefix: begins the name of a temporary one.
    :param log: name of the file in it that the server writes into.
    """

    def __init__(self, home: str | os.PathLike[str] | None, *, prefix: str, log: str) -> None:
        self._temporary = home is None
        self.home = Path(home or tempfile.mkdtemp(prefix=prefix)).absolute()
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log_file(self) -> Path:
        """File into which the server, with all of its parts, writes what it says."""
        return self.home / self._log

    @property
    def pid(self) -> int | None:
        """Process id of the server, or of the parent of its parts, while it runs; also the id of their group."""
        return self._process.pid if self._process is not None else None

    @abstractmethod
    def start(self, timeout: float = 300) -> Self:
        """Start the server and return once it answers. :param timeout: seconds."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the server and remove a temporary home."""

    def last_lines(self, lines: int = 40) -> str:
        """Return what the server wrote last."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _remove_home(self) -> None:
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)
