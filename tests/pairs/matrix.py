"""The conflict matrix of ``docs/timeline.md``, from the pairs that were run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.pairs.actions import ACTS, acts_of
from tests.pairs.tally import Tally

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "timeline.md"
BEGIN, END = "<!-- pairs: begin -->", "<!-- pairs: end -->"

_LETTERS = {"merged": "m", "refused": "r", "other refused": "o"}
_SHAPES = {
    "buckets": "Keyed tables with buckets",
    "unique": "Keyed tables with buckets and a record index",
    "groups": "Keyed tables without buckets",
    "source": "Registered sources",
}


def record(tallies: Iterable[Tally]) -> None:
    """Writes what became of the pairs into the results, beside those of other shapes, and the page anew."""
    results: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for tally in tallies:
        names = [act.name for act in acts_of(tally.shape)]
        cells = {pair: _LETTERS[outcome["cell"]] for pair, outcome in tally.outcomes.items() if "wrong" not in outcome}
        results[tally.shape] = {
            first: "".join(cells.get(f"{first} x {second}", ".") for second in names) for first in names
        }
    ordered = {shape: results[shape] for shape in _SHAPES if shape in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(with_matrix(PAGE.read_text(), ordered))


def with_matrix(page: str, results: Mapping[str, Mapping[str, str]]) -> str:
    """The page with the matrix of some results between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{matrix(results)}{END}{after}"


def matrix(results: Mapping[str, Mapping[str, str]]) -> str:
    """For each shape and action: beside which others its commit is refused."""
    parts = [_summary(results)]
    for shape, rows in results.items():
        rows = {name: letters for name, letters in rows.items() if set(letters) != {"."}}
        names = list(results[shape])
        parts.append(f"**{_SHAPES[shape]}**\n")
        parts.append("| is refused | after one of these landed | and lands after |\n|---|---|---|")
        for first, letters in rows.items():
            refused = [names[at] for at, letter in enumerate(letters) if letter == "r"]
            others = [names[at] for at, letter in enumerate(letters) if letter == "o"]
            landed = [names[at] for at, letter in enumerate(letters) if letter in "mo"]
            shortened, kept = _shorter(refused, landed), ""
            if others:
                kept = f"; it keeps out {'all others' if len(others) > len(names) / 2 else _list(others)}"
            if "." in letters:
                kept += f" ({letters.count('.')} were not run)"
            parts.append(f"| {_shown(first)} | {shortened[0]} | {shortened[1]}{kept} |")
        parts.append("")
    return "\n".join(parts)


def _shorter(refused: Sequence[str], landed: Sequence[str]) -> tuple[str, str]:
    if not refused:
        return "–", "all" if landed else "–"
    if not landed:
        return "all", "–"
    if len(refused) <= len(landed):
        return _list(refused), "all others"
    return "all others", _list(landed)


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(_shown, names))


def _shown(name: str) -> str:
    return name.partition(" (")[0]


def _summary(results: Mapping[str, Mapping[str, str]]) -> str:
    letters = "".join(row for rows in results.values() for row in rows.values())
    run = len(letters) - letters.count(".")
    return (
        f"{run:,} ordered pairs of {len({name.partition(' (')[0] for name in ACTS})} actions: {letters.count('m'):,} "
        f"landed both; in {letters.count('r'):,} the one that committed last was refused, in {letters.count('o'):,} "
        "the other, since the first had opened a stop-write window, or dropped the table, before its own commit.\n"
    )
