"""Delete files of Iceberg tables: ``pyiceberg`` reads them and writes none, so its own writers are bent to it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> _DeletesWriter:
        return _DeletesWriter(
            spec, self._transaction.table_metadata.schema(), self.new_manifest_output(), self.snapshot_id, "gzip"
        )


def delete_positions(
    table: Any, data_file: str, positions: list[int], partition: Record | None = None, bounds: bool = False
) -> None:
    """Commits a file that deletes rows of a data file by position; its bounds say of which, if they are asked for."""
    rows = pa.table({"file_path": [data_file] * len(positions), "pos": pa.array(positions, pa.int64())})
    paths = {2147483546: data_file.encode()} if bounds else {}
    _commit(table, rows, DataFileContent.POSITION_DELETES, partition, bounds=paths)


def delete_equal(table: Any, column: str, values: list[Any]) -> None:
    """Commits a file that deletes the rows with some values."""
    _commit(
        table, pa.table({column: values}), DataFileContent.EQUALITY_DELETES, None, table.schema().find_field(column)
    )


def _commit(
    table: Any,
    rows: pa.Table,
    content: DataFileContent,
    partition: Record | None,
    field: Any = None,
    bounds: dict[int, bytes] | None = None,
) -> None:
    path = Path(table.location().removeprefix("file://")) / "data" / f"deletes-{uuid.uuid4()}.parquet"
    if field is not None:
        identified = rows.schema.field(0).with_metadata({"PARQUET:field_id": str(field.field_id)})
        rows = rows.cast(pa.schema([identified]))
    else:
        ids = {"file_path": "2147483546", "pos": "2147483545"}
        rows = rows.cast(pa.schema([f.with_metadata({"PARQUET:field_id": ids[f.name]}) for f in rows.schema]))
    pq.write_table(rows, path)
    file = DataFile.from_args(
        content=content, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=partition or Record(),
        record_count=rows.num_rows, file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={},
        null_value_counts={}, nan_value_counts={}, lower_bounds=bounds or {}, upper_bounds=bounds or {},
        split_offsets=None, equality_ids=[field.field_id] if field is not None else None, key_metadata=None,
        sort_order_id=None,
    )  # fmt: skip
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        producer = _AppendDeletes(Operation.OVERWRITE, transaction, table.io, uuid.uuid4(), {}, "main")
        producer.append_data_file(file)
        producer.commit()
