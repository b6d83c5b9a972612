"""Operations on a table: the name of each operation in the log, its category, and what it changes.

Commits keep the name alone. An unknown name (of a later version of this package) is that of an operation which may have
changed anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Category = Literal["write", "index", "maintenance", "layout", "definition", "window", "log"]
"""Rows are written; indexes are made, refreshed or dropped; files are folded; partitions get other bucket counts;
columns change, tables come and go; stop-write windows open and close; or the log itself is kept in order."""

Change = Literal["rows", "indexes", "files", "layout", "schema"]

Lifecycle = Literal["create", "overwrite", "drop"]


@dataclass(frozen=True)
class Operation:
    """A kind of commit.

    :param name: in the log, in receipts and in events.
    :param changes: what a commit of it may change: which rows there are, what indexes hold, in which files rows are,
        how many buckets partitions have, which columns there are.
    :param lifecycle: what becomes of the whole table or index, if it is made, replaced or dropped.
    """

    name: str
    category: Category
    changes: frozenset[Change] = frozenset()
    lifecycle: Lifecycle | None = None

    def __str__(self) -> str:
        """Return the name."""
        return self.name


_ROWS: frozenset[Change] = frozenset({"rows", "indexes", "files"})
_INDEXES: frozenset[Change] = frozenset({"indexes"})
_ANYTHING: frozenset[Change] = frozenset({"rows", "indexes", "files", "layout", "schema"})

UPSERT = Operation("upsert", "write", _ROWS)
INSERT = Operation("insert", "write", _ROWS)
DELETE = Operation("delete", "write", _ROWS)
UPDATE = Operation("update", "write", _ROWS)
MERGE = Operation("merge", "write", _ROWS)
DELETE_REPEATED_KEYS = Operation("delete_repeated_keys", "write", _ROWS)
INSERT_OVERWRITE = Operation("insert_overwrite", "write", _ROWS, "overwrite")
DROP_PARTITION = Operation("drop_partition", "write", _ROWS | {"layout"})
TRANSACTION = Operation("transaction", "write", _ROWS)

CREATE_INDEX = Operation("create_index", "index", _INDEXES, "create")
REFRESH_INDEX = Operation("refresh_index", "index", _INDEXES | {"schema"})
REPAIR_INDEX = Operation("repair_index", "index", _INDEXES)
ALTER_INDEX = Operation("alter_index", "index", _INDEXES)
DROP_INDEX = Operation("drop_index", "index", _INDEXES, "drop")

COMPACT = Operation("compact", "maintenance", frozenset({"files"}))
COMPACT_INDEX = Operation("compact_index", "maintenance", frozenset({"files"}))
MAINTAIN_SOURCE = Operation("maintain_source", "maintenance", frozenset({"files"}))
RESTORE_SOURCE = Operation("restore_source", "definition", frozenset({"rows", "files", "schema"}), "overwrite")
RESCALE = Operation("rescale", "layout", frozenset({"files", "layout"}))

CREATE = Operation("create", "definition", frozenset({"schema", "layout"}), "create")
CHANGE_COLUMNS = Operation("change_columns", "definition", frozenset({"schema"}))
DROP_TABLE = Operation("drop_table", "definition", _ANYTHING, "drop")
RESTORE = Operation("restore", "definition", _ANYTHING, "overwrite")

OPEN_WINDOW = Operation("open_window", "window")
RENEW_WINDOW = Operation("renew_window", "window")
CLOSE_WINDOW = Operation("close_window", "window")
END_WINDOW = Operation("end_window", "window")

ABORT = Operation("abort", "log")
EXPIRE = Operation("expire", "log")
CLEAN = Operation("clean", "log")

OPERATIONS = {one.name: one for one in list(globals().values()) if isinstance(one, Operation)}
"""Name -> operation."""

# What logs of earlier versions of this package call them.
OPERATIONS |= {"overwrite": INSERT_OVERWRITE, "build_index": CREATE_INDEX}


def operation_of(name: str) -> Operation:
    """Return the operation of that name; one that may change anything if the name is not known."""
    return OPERATIONS.get(name) or Operation(name, "log", _ANYTHING)
