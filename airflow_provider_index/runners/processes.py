"""Processes of this machine, told apart from later ones that got the same number."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
CLEARED_SECONDS = 1.5
"""How long to wait for a large process to be cleared away. Airflow gives a killed task five seconds in all."""


@cache
def this_host() -> str:
    """A name that no other machine, boot or container shares, so that a process id means something together with it."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append((_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8])
    with contextlib.suppress(OSError):
        parts.append(str((_PROC / "self/ns/pid").stat().st_ino))
    return "/".join(parts)


def started_at(pid: int) -> str | None:
    """When a process was started, in a form of this machine's own; ``None`` if there is none, or where that cannot be
    told."""
    try:
        # The name stands in brackets and may hold anything; behind it the fields are plain.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def members(group: int) -> list[int]:
    """The processes of a group that run."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def group_lives(group: int) -> bool:
    """Whether a process group has a member, ended ones that nobody has asked about included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to a group; one that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end_group(group: int, polite_seconds: float) -> None:
    """Ends a process group: politely first, then by force; returns once it is gone, or some seconds after that, which a
    busy machine takes to clear away a large process."""
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
