"""Whether two sets of index files have a key in common, read without Spark.

Asked when two commits, or two stages of one, added entries to one shard of an index whose keys are unique.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.storage.errors import StorageError
from spark_apps.storage.ranged import RangedFile
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.conflicts import KeysConflict
from spark_apps.timeline.model import AddFile, Commit, Scope


@dataclass(frozen=True)
class ByKeys:
    """A test of keys in common that says what it compares, so that another process can do the same.

    :param columns: tree of an index -> its key columns, as files call them.
    """

    columns: Mapping[str, tuple[str, ...]]
    conflict: KeysConflict

    def __call__(self, scope: Scope, theirs: Commit) -> bool:
        return self.conflict(scope, theirs)


def share_keys(store: ObjectStore, columns: Sequence[str], mine: Sequence[AddFile], theirs: Sequence[AddFile]) -> bool:
    """Whether files of one shard hold a key in common; true also where that cannot be told.

    :param columns: the key columns, as files call them; empty if they are not known.
    """
    if not mine or not theirs:
        return False
    if not columns:
        return True
    import pyarrow as pa

    try:
        own, other = _keys(store, columns, mine), _keys(store, columns, theirs)
        return own.join(other, own.column_names, join_type="left semi").num_rows > 0
    except (StorageError, pa.ArrowException, OSError):
        return True  # what cannot be read may hold a key of ours; the caller begins again on the new state


def _keys(store: ObjectStore, columns: Sequence[str], files: Sequence[AddFile]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(file: AddFile) -> Any:
        opened = RangedFile(lambda start, end: store.get_range(file.path, start, end), file.bytes)
        source = pa.PythonFile(opened, mode="r")
        return pq.read_table(source, columns=list(columns), coerce_int96_timestamp_unit="us")

    return pa.concat_tables([read(file) for file in files])
