"""What the log tells of positions: which rows of the file under a delta the delta replaces or deletes
(:mod:`spark_apps.mergetree.positions`).

They lie beside the delta, in a file of its name with another ending, which is live as long as the delta is; so the log
names no such file, only how large it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.timeline.model import AddFile, Struct

if TYPE_CHECKING:
    from spark_apps.timeline.files import DataFile

_EXTRA = "positions"
_ENDING = ".positions"


class Positions(Struct, frozen=True):
    """What a delta's entry in the log tells of its positions.

    :param over: lineage of the file that they speak of.
    :param hidden: how many rows of that file are replaced or deleted.
    :param bytes: size of the file that tells which; 0 if there are none, and so no file.
    """

    over: int
    hidden: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, file: DataFile | AddFile) -> Positions | None:
        """Those of a delta; ``None`` if it has none."""
        told = (file.extra or {}).get(_EXTRA)
        return None if told is None else cls(**told)

    def to_extra(self) -> dict[str, Any]:
        """As :attr:`AddFile.extra` holds it."""
        return {_EXTRA: {"over": self.over, "hidden": self.hidden, "bytes": self.bytes}}


def path_of(delta: str) -> str:
    """Where the positions of a delta lie."""
    return delta.removesuffix(".parquet") + _ENDING


def delta_of(path: str) -> str | None:
    """The delta that a file of positions belongs to; ``None`` for other files."""
    return path.removesuffix(_ENDING) + ".parquet" if path.endswith(_ENDING) else None
