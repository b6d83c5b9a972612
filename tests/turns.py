"""Which part of a long search a run takes: an eighth by each commit, so that eight commits after one another take all.

``TURN`` says which part (0 to 7), or ``all``. Without it the number of commits up to the one that is checked out
decides, so that the same commit takes the same part; a folder without git takes the first.
"""

from __future__ import annotations

import functools
import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TURNS = 8


def turn(turns: int = TURNS, each: int = 1) -> int | None:
    """Return the part of so many that this run takes, the first of which is 0; None for all of them.

    :param each: what asks runs at each so many-th commit itself. Else it would get the same few parts each time.
    """
    asked = os.environ.get("TURN")
    if asked == "all":
        return None
    return (commits() if asked is None else int(asked)) // each % turns


@functools.cache
def commits() -> int:
    """Return how many commits there are up to the one that is checked out; 0 where that cannot be known."""
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(counted.stdout) if counted.returncode == 0 else 0


def rotated(items: Sequence[T]) -> list[T]:
    """Return all items, another one first each time that a turn comes round, so that each is early now and then."""
    first = commits() // TURNS % len(items) if items else 0
    return [*items[first:], *items[:first]]


def of_this_turn(
    items: Sequence[T], turns: int = TURNS, place: str = "", *, first: int | None = None, each: int = 1
) -> list[T]:
    """Return every ``turns``-th item, beginning at another one each turn; all of them with ``TURN=all``.

    :param place: where the items stand: those of another place begin elsewhere. Else all that are alone, which is what
        takes longest, came in one turn.
    :param first: the turn of the first item, instead.
    :param each: see :func:`turn`.
    """
    part = turn(turns, each)
    if part is None:
        return list(items)
    begin = zlib.crc32(place.encode()) if first is None else -first
    return list(items[(part + begin) % turns :: turns])
