"""How things are timed: cases in turn, several times, medians and ratios taken within one run.

A machine's speed drifts from minute to minute: what is to be compared runs side by side, and the ratio is what counts.
Needs the standard library alone, since other engines' environments import it too.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Case = Callable[[], object]


@dataclass(frozen=True)
class Answer:
    """What one run of a case gave and cost, as told by the process that ran it.

    ``value`` may hold ``rows``, ``bytes`` and ``files``, which go into the report; ``peak`` is
    bytes of resident memory.
    """

    value: Mapping[str, Any]
    seconds: float
    peak: int = 0


@dataclass(frozen=True)
class Timing:
    """Seconds that one case took in each repeat, and what it said of itself; ``peak`` in bytes, 0 where not known."""

    name: str
    seconds: tuple[float, ...]
    note: str = ""
    peak: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def percentile(self, share: float) -> float:
        """The least time within which such a share of the repeats ended: ``percentile(0.95)`` is p95."""
        return sorted(self.seconds)[max(0, math.ceil(share * len(self.seconds)) - 1)]


def interleaved(cases: Mapping[str, Case], repeats: int = 5, warm: int = 1, *, turned: bool = False) -> list[Timing]:
    """Runs the cases one after the other, ``repeats`` times round, after ``warm`` rounds that do not count.

    A case that returns an :class:`Answer` is counted with the seconds that it tells: those of another process, or of
    the part of the case that is the question. Any other case is counted from call to return.

    :param turned: every other round in the opposite order, for cases that leave the next something to wait for.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in cases}
    for turn in range(warm + repeats):
        for name, case in reversed(cases.items()) if turned and turn % 2 else cases.items():
            answer = answer_of(case)
            if turn >= warm:
                answers[name].append(answer)
    return [summed(name, each) for name, each in answers.items()]


def answer_of(case: Case) -> Answer:
    """One run of a case."""
    begun = time.perf_counter()
    given = case()
    seconds = time.perf_counter() - begun
    return given if isinstance(given, Answer) else Answer({}, seconds)


def summed(name: str, answers: list[Answer], note: str = "") -> Timing:
    """The runs of a case as one timing; its counts are those of the last run."""
    counts = {key: answers[-1].value[key] for key in ("rows", "bytes", "files") if key in answers[-1].value}
    return Timing(name, tuple(each.seconds for each in answers), note, max(each.peak for each in answers), counts)


def timed(case: Case) -> float:
    """Seconds of one run."""
    begun = time.perf_counter()
    case()
    return time.perf_counter() - begun


def forget_peak(pid: int | str = "self") -> None:
    """Lets a process's peak of memory begin anew, where the system can (Linux)."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


def peak(pid: int | str = "self") -> int:
    """The most memory, in bytes, that a process had resident since its start or since ``forget_peak``; 0: not known."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if pid == "self" else 0


def processor_seconds(pid: int) -> float:
    """Seconds that all threads of a process have run on processors so far, in hundredths; 0 where not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def weight(folder: Path, suffix: str = ".parquet") -> dict[str, int]:
    """Files of a folder, those of its folders too, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob(f"*{suffix}") if path.is_file()]
    return {"files": len(sizes), "bytes": sum(sizes)}


def chill(*folders: Path) -> None:
    """Takes files out of the system's cache of files, as far as it follows such advice (Linux does)."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fdatasync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cold(case: Case, *folders: Path) -> Case:
    """The case, with the files of these folders out of the system's cache before each run; that is not counted."""

    def chilled() -> Answer:
        chill(*folders)
        return answer_of(case)

    return chilled
