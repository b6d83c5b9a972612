"""Parquet footers: where they lie in a file, and a digest by which an altered one is known.

Pages have checksums of their own and footers have none: of a footer with one bit turned over a reader may make fewer
rows, or crash. So the log keeps the digest of an index file's footer, and whoever reads it on the driver compares.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import xxhash

from spark_apps.storage.ranged import RangedFile
from spark_apps.storage.store import ObjectStore

FOOTER = "footer"
"""Under which the log keeps the digest, among what is extra of a file."""

_TAIL_BYTES = 64 * 1024
"""What is fetched at once: nearly always all of the footer."""


def footer_of(tail: bytes) -> bytes:
    """The footer at the end of some bytes with its length and mark; all of them if it is longer than they are."""
    return tail[-_length(tail) :] if tail else b""


def fetch_footer(store: ObjectStore, key: str, size: int) -> bytes:
    """The footer of a file of ``size`` bytes. :raises StorageError: if the file is gone."""
    tail = store.get_range(key, max(0, size - _TAIL_BYTES), size) if size else b""
    if (needed := _length(tail)) > len(tail):
        tail = store.get_range(key, max(0, size - needed), size)
    return footer_of(tail)


def digest_of(footer: bytes) -> str:
    """What the log keeps of a footer."""
    return xxhash.xxh3_64_hexdigest(footer)


def check_footer(file: RangedFile, extra: Mapping[str, Any] | None) -> None:
    """:raises OSError: if the file's footer is not the one whose digest the log keeps."""
    written = (extra or {}).get(FOOTER)
    if written is None:
        return
    tail = file.tail(_TAIL_BYTES)
    if (needed := _length(tail)) > len(tail):
        tail = file.tail(needed)
    if digest_of(footer_of(tail)) != written:
        raise OSError("its footer is not the one that was written")


def _length(tail: bytes) -> int:
    """Bytes from the start of the footer to the end of the file."""
    return struct.unpack("<I", tail[-8:-4])[0] + 8 if len(tail) >= 8 else len(tail)
