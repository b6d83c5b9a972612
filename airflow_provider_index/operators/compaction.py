"""Operators that fold the delta files of a table or of an index into base files. Rows stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_index.arguments import Reader, choice, required
from airflow_provider_index.operators.base import IndexOperator, SparkTableOperator

_MODE = required(choice("quick", "full"))


class CompactTableOperator(SparkTableOperator):
    """Compacts the table's own file groups.

    :param mode: ``quick`` folds the groups where it pays, ``full`` all that have deltas.
    """

    program = "compact_index"
    stageable = "alone"
    readers: ClassVar[Mapping[str, Reader]] = {**SparkTableOperator.readers, "mode": _MODE}

    def __init__(self, *, mode: str = "quick", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mode = mode

    def arguments(self) -> dict[str, Any]:
        return {"name": None, "mode": self.mode}


class CompactIndexOperator(IndexOperator):
    """Compacts one index, which stays in use meanwhile.

    :param mode: ``quick`` folds the shards where it pays, ``full`` all that have deltas.
    """

    program = "compact_index"
    stageable = "alone"
    readers: ClassVar[Mapping[str, Reader]] = {**IndexOperator.readers, "mode": _MODE}

    def __init__(self, *, mode: str = "quick", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mode = mode

    def arguments(self) -> dict[str, Any]:
        return {"name": self.index, "mode": self.mode}
