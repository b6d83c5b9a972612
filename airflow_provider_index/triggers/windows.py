"""Waiting until nobody holds a stop-write window any more."""

from __future__ import annotations

from typing import Any

from airflow_provider_index.arguments import integer, some_texts
from airflow_provider_index.conditions import windows_closed
from airflow_provider_index.triggers.timeline import TimelineTrigger
from spark_apps.timeline.log import Timeline


class WindowsClosedTrigger(TimelineTrigger):
    """Fires once no window is open over what somebody wants to write.

    See :func:`airflow_provider_index.conditions.windows_closed`.

    :param epoch: wait for the window of this epoch only.
    """

    def __init__(self, *, partitions: list[str] | None = None, epoch: int | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.partitions = some_texts("partitions", partitions)
        self.epoch = integer("epoch", epoch)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return windows_closed(timeline, partitions=self.partitions, epoch=self.epoch)

    def serialized_arguments(self) -> dict[str, Any]:
        return {"partitions": self.partitions, "epoch": self.epoch}
