"""Each question's last figures, kept in ``.bench/results``: a page can be made of questions that were measured one by
one, each in an hour when the machine did nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from benchmarks.peers import WORK
from benchmarks.report import Chapter, Report, machine
from benchmarks.targets import Verdict

_FOLDER = WORK / "results"


class Kept(msgspec.Struct):
    """A question's chapter and verdicts; ``made``: the machine, versions and day, and how it was asked."""

    made: str
    chapter: Chapter
    verdicts: list[Verdict]


def keep(name: str, settings: str, report: Report, verdicts: Iterable[Verdict]) -> None:
    """Keeps the newest chapter of a report as that of a question.

    :param settings: the arguments that sizes come from, for people.
    """
    _FOLDER.mkdir(parents=True, exist_ok=True)
    kept = Kept(f"{machine()}; {settings}", report.chapters[-1], list(verdicts))
    (_FOLDER / f"{name}.json").write_bytes(msgspec.json.encode(kept))


def gather(names: Iterable[str], report: Report) -> None:
    """Puts what is kept of these questions into a report, each with how it was made."""
    for name in names:
        file = _FOLDER / f"{name}.json"
        if file.exists():
            kept = msgspec.json.decode(file.read_bytes(), type=Kept)
            kept.chapter.parts.insert(0, f"Measured on {kept.made}.")
            report.chapters.append(kept.chapter)
            report.verdicts += kept.verdicts
