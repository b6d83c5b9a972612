"""Refusal of indexes that would copy protected rows in plain: encrypted ones, or those that a catalog lends a session.

Everybody who may read an index's files can read the values of its columns. Who may read those of a source's files its
format or its catalog may decide more narrowly. So such an index is built only where it is asked for by
:data:`ALLOW_PLAIN_COPY`. What cannot be seen from a session is not refused: rights that a catalog checks by itself,
filters of rows and masks of columns that it puts into queries.
"""

from __future__ import annotations

from spark_apps.engine.spark_utils import has_parquet_keys
from spark_apps.mergetree.blocks import access_options
from spark_apps.mergetree.tree import ProtectedRows, Snapshot
from spark_apps.storage.errors import InvalidInput, PlainCopyRefused, StorageError
from spark_apps.storage.parquet.files import read_footer
from spark_apps.storage.parquet.footers import FooterEncrypted
from spark_apps.storage.store import open_by_address
from spark_apps.timeline.model import DATA_TREE

ALLOW_PLAIN_COPY = "allow_plain_copy"
"""Property of a new index: ``true`` builds it over protected rows all the same. It is not kept."""


def takes_allowance(properties: dict[str, str]) -> bool:
    """Take :data:`ALLOW_PLAIN_COPY` out of the properties of a new index and return it.

    :raises InvalidInput: if it is neither ``true`` nor ``false``.
    """
    text = properties.pop(ALLOW_PLAIN_COPY, "false").lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"The property {ALLOW_PLAIN_COPY!r} is {text!r}.", hint="Give 'true' or 'false'.")
    return text == "true"


def check_plain_copy(snapshot: Snapshot, name: str) -> None:
    """Check that an index of a source's rows is no plain copy of protected ones.

    :raises PlainCopyRefused: if it is, with why, and who could read it.
    """
    source = snapshot.table.source
    if source is None:
        return
    why = snapshot.external.why_protected() if isinstance(snapshot.external, ProtectedRows) else None
    if why is None and has_encrypted_files(snapshot):
        why = "its Parquet files are encrypted"
    if why is not None:
        raise PlainCopyRefused(
            f"The index {name!r} would be a plain copy of values of {source.location}: {why}. Everybody who may "
            f"read the folder {snapshot.store.uri} could read them.",
            outcome="Nothing was built.",
            hint=f"If that folder's readers may read the rows, give the property {ALLOW_PLAIN_COPY!r} as 'true'.",
        )


def has_encrypted_files(snapshot: Snapshot) -> bool:
    """Test whether this session decrypts Parquet, and the first file of the table, or a column of it, is encrypted."""
    first = next((file for file in snapshot.state.files(DATA_TREE) if file.path.endswith(".parquet")), None)
    if first is None or not has_parquet_keys(snapshot.spark):
        return False
    try:
        read_footer(open_by_address(snapshot.store.spark_path(first.path), first.bytes, access_options(snapshot)))
    except FooterEncrypted:
        return True
    except (OSError, StorageError):  # Spark says it when it reads the file
        return False
    return False
