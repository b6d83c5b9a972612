"""The plan that maintenance left beside a table, as lines: what was chosen, what was skipped, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlanLine:
    """One piece of work of a plan. ``bytes`` and ``seconds`` are estimates, ``None`` where none was made."""

    work: str
    chosen: bool
    code: str
    sentence: str
    bytes: float | None = None
    seconds: float | None = None


def plan_lines(plan: Any) -> list[PlanLine]:
    """The lines of a plan in whatever shape it was left; what cannot be understood is left out."""
    found = plan
    if isinstance(plan, dict):
        found = next((plan[key] for key in ("decisions", "work", "items", "entries") if key in plan), [])
    return [_line(item) for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _line(item: dict[str, Any]) -> PlanLine:
    chosen = item.get("chosen")
    if chosen is None:
        chosen = item.get("decision", item.get("outcome")) == "chosen"
    return PlanLine(
        str(item.get("work", "")),
        bool(chosen),
        str(item.get("code", item.get("reason", ""))),
        str(item.get("sentence", item.get("because", ""))),
        _number(item.get("bytes", item.get("estimated_bytes"))),
        _number(item.get("seconds", item.get("estimated_seconds"))),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
