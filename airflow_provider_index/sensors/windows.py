"""The sensor for writers that wait until a stop-write window is closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_index.arguments import Reader, epoch, some_texts
from airflow_provider_index.sensors.timeline import TimelineSensor

if TYPE_CHECKING:
    from airflow_provider_index.triggers.timeline import TimelineTrigger


class StopWriteWindowClosedSensor(TimelineSensor):
    """Waits until no stop-write window is open over the table, or over some of its partitions. A window past its
    deadline holds nobody up: the next writer ends it.

    Another window may be opened before the next task writes; that one needs its retries all the same.

    :param partitions: paths of the partitions that are to be written; by default any window counts.
    :param window: wait for the end of the window of this epoch, and of no other.

    Returns ``{"version"}``, the table's newest version then.
    """

    readers: ClassVar[Mapping[str, Reader]] = {
        **TimelineSensor.readers,
        "partitions": some_texts,
        "window": epoch,
    }

    def __init__(
        self, *, partitions: Sequence[str] | None = None, window: int | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.partitions: Any = partitions
        self.window: Any = window

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.windows import WindowsClosedTrigger

        return WindowsClosedTrigger(partitions=self.partitions, epoch=self.window, **shared)
