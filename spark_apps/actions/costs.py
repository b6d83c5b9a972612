"""The estimate of a build beside the truth, for its receipt."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from spark_apps.indexes.handler import IndexPlan
from spark_apps.timeline.model import AddFile, AnyAction


class Cost:
    """Made when the work begins.

    :param plan: with its estimate.
    """

    def __init__(self, plan: IndexPlan) -> None:
        self._plan = plan
        self._begun = time.monotonic()

    def beside(self, actions: Iterable[AnyAction]) -> dict[str, Any]:
        """Metrics: bytes written and seconds taken so far, each with its estimate."""
        return {
            "estimated_bytes": self._plan.estimated_bytes,
            "bytes": sum(action.bytes for action in actions if isinstance(action, AddFile)),
            "estimated_seconds": self._plan.estimated_seconds,
            "seconds": round(time.monotonic() - self._begun, 2),
        }
