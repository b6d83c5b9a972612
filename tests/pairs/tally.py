"""What became of the pairs of a shape, kept from run to run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.pairs.arena import Outcome

HOME = Path(".pairs")


class Tally:
    """Outcomes by pair, in a file of the shape and of the kind of run ("pairs", "early", "triples")."""

    def __init__(self, home: Path, shape: str, kind: str = "pairs") -> None:
        self.shape = shape
        self._path = home / f"{kind}-{shape}.json"
        self.outcomes: dict[str, dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def take(self, outcome: Outcome, deep: bool) -> None:
        self.outcomes[" x ".join(outcome.names)] = {
            "cell": outcome.cell,
            "ends": outcome.ends,
            **({"notes": outcome.notes} if outcome.notes else {}),
            **({"wrong": outcome.wrong} if outcome.wrong else {}),
            **({"deep": True} if deep else {}),
        }

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.outcomes, indent=1))
        fresh.replace(self._path)

    @property
    def failed(self) -> dict[str, list[str]]:
        return {pair: outcome["wrong"] for pair, outcome in self.outcomes.items() if "wrong" in outcome}

    def __str__(self) -> str:
        cells = Counter(outcome["cell"] for outcome in self.outcomes.values())
        deep = sum("deep" in outcome for outcome in self.outcomes.values())
        lines = [
            f"{self.shape}: {len(self.outcomes):,} done, " + ", ".join(f"{n:,} {cell}" for cell, n in cells.items())
        ]
        lines.append(f"{self.shape}: {deep:,} of them verified by Spark and worked on; {len(self.failed):,} went wrong")
        lines += [f"  {pair}: {wrong[0]}" for pair, wrong in self.failed.items()]
        return "\n".join(lines)
