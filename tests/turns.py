"""Which part of a long search a run takes: an eighth by each commit, so that eight commits after one another take all.

``TURN`` says which part (0 to 7), or ``all``. Without it the number of commits up to the one that is checked out
decides, so that the same commit takes the same part; a folder without git takes the first.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TURNS = 8


@functools.cache
def turn() -> int | None:
    """Return the part that this run takes, from 0 to 7; None for all of them."""
    asked = os.environ.get("TURN")
    if asked is not None:
        return None if asked == "all" else int(asked) % TURNS
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(counted.stdout) % TURNS if counted.returncode == 0 else 0


def of_this_turn(items: Sequence[T], turns: int = TURNS) -> list[T]:
    """Return every ``turns``-th item, beginning at another one each turn; all of them with ``TURN=all``."""
    part = turn()
    return list(items) if part is None else list(items[part % turns :: turns])
