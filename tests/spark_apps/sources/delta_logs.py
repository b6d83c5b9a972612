"""Delta tables that ``deltalake`` does not write: with deletion vectors, column mapping, features of its own time."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BITMAP_ARRAY = 1681511377


class DeltaLog:
    """The log of a Delta table, written action by action."""

    ID = "00000000-0000-0000-0000-000000000000"

    def __init__(
        self,
        folder: Path,
        fields: Sequence[dict[str, Any]],
        features: Sequence[str],
        configuration: dict[str, str],
        partition_by: Sequence[str] = (),
    ) -> None:
        self._partition_by = list(partition_by)
        self._folder = folder
        self._version = 0
        (folder / "_delta_log").mkdir(parents=True)
        self._fields, self._features, self._configuration = fields, features, configuration

    def file(self, name: str, rows: pa.Table) -> None:
        """Writes a data file, not yet committed."""
        pq.write_table(rows, self._folder / name)

    def add(self, name: str, deleted: Sequence[int] = ()) -> dict[str, Any]:
        """The action that adds a file, with a deletion vector if rows are deleted."""
        path = self._folder / name
        added: dict[str, Any] = {
            "path": name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 1_700_000_000_000,
            "dataChange": True, "stats": json.dumps({"numRecords": pq.read_metadata(path).num_rows}),
        }  # fmt: skip
        if deleted:
            added["deletionVector"] = _vector(deleted)
        return {"add": added}

    def remove(self, name: str, deleted: Sequence[int] = ()) -> dict[str, Any]:
        """The action that removes a file, which was added with these rows deleted."""
        removed: dict[str, Any] = {"path": name, "deletionTimestamp": 1_700_000_000_001, "dataChange": True}
        return {"remove": {**removed, **({"deletionVector": _vector(deleted)} if deleted else {})}}

    def commit(self, *actions: dict[str, Any]) -> None:
        """Writes the next version; the first one says what the table is."""
        first: list[dict[str, Any]] = []
        if self._version == 0:
            schema = json.dumps({"type": "struct", "fields": list(self._fields)})
            protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(self._features),
                        "writerFeatures": list(self._features)}  # fmt: skip
            first = [
                {"protocol": protocol},
                {"metaData": {"id": self.ID, "format": {"provider": "parquet",
                 "options": {}}, "schemaString": schema, "partitionColumns": self._partition_by,
                 "configuration": self._configuration, "createdTime": 1}},
            ]  # fmt: skip
        path = self._folder / "_delta_log" / f"{self._version:020d}.json"
        path.write_text("".join(f"{json.dumps(action)}\n" for action in [*first, *actions]))
        self._version += 1


def column(name: str, kind: str, **metadata: Any) -> dict[str, Any]:
    """A column as a Delta schema says it."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _vector(deleted: Sequence[int]) -> dict[str, Any]:
    bitmap = struct.pack("<IqI", _BITMAP_ARRAY, 1, 0) + BitMap(deleted).serialize()
    padded = bitmap + b"\0" * (-len(bitmap) % 4)
    return {"storageType": "i", "pathOrInlineDv": _z85(padded), "sizeInBytes": len(bitmap),
            "cardinality": len(deleted)}  # fmt: skip


def _z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        value, block = int.from_bytes(data[start : start + 4], "big"), ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            block = _Z85[digit] + block
        text += block
    return text
