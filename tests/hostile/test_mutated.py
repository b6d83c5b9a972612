"""Mutated bytes of every kind of file that is read: an error of ours or an answer, never the end of the process.

Each batch is read in a process of its own, whose memory is limited; where a file ends it, the next goes on behind that
file. A part is drawn by a seed; ``HOSTILE=all`` (``make hostile``) reads for ``MINUTES`` and goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile import mutated
from tests.hostile.test_log import ALL, MINUTES, seed

ROOT = Path(__file__).parents[2]
DRAWN = 120
BATCH = 2_000
REACHED = ROOT / "build" / "mutated_bytes"
"""The number of the next mutant of the long search."""


def read(first: int, last: int) -> tuple[list[str], Counter[str]]:
    """What goes wrong, of the mutants of some numbers, and how many were refused and read."""
    wrong: list[str] = []
    figures: Counter[str] = Counter()
    while first < last:
        with tempfile.TemporaryFile() as note:
            done = subprocess.run(
                [sys.executable, "-m", "tests.hostile.mutated", str(first), str(last)],
                cwd=ROOT, env={**os.environ, "NOTE": str(note.fileno())}, pass_fds=[note.fileno()],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            lines = done.stdout.splitlines()
            if not done.returncode:
                figures.update(json.loads(lines.pop()))
                return wrong + lines, figures
            number = int(os.pread(note.fileno(), 20, 0) or b"-1")
        if number < 0:
            raise AssertionError(done.stderr[-2_000:])
        name, _ = mutated.mutant(number, mutated.kinds())
        wrong += [*lines, f"{number}: {name}: ended the process ({done.returncode}): {done.stderr[-300:]}"]
        first = number + 1
    return wrong, figures


def test_given_mutated_bytes_of_any_file_then_it_is_an_error_of_ours_or_an_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began, first = time.monotonic(), seed() % 10**6 * 1_000
    if not ALL:
        wrong, figures = read(first, first + DRAWN)
    else:
        wrong, figures = [], Counter()
        first = int(REACHED.read_text()) if REACHED.exists() else 0
        REACHED.parent.mkdir(exist_ok=True)
        while time.monotonic() - began < 60 * (MINUTES or 10):
            more, counted = read(first, first + BATCH)
            wrong, figures, first = wrong + more, figures + counted, first + BATCH
            REACHED.write_text(str(first))
    with capsys.disabled():
        sys.stdout.write(f"\nMutants up to {first:,}: {dict(figures)}, {len(wrong)} wrong.\n")
    assert not wrong, "\n".join(wrong[:40])
    assert figures["refused"] > 0 and figures["read"] > 0
