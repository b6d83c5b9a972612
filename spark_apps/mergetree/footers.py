"""The ends of Parquet files: where the footer and the page index lie, and digests by which altered ones are known.

Pages have checksums of their own; the footer and the page index have none: of one with a bit turned over a reader may
make fewer rows, or crash. So the log keeps the digests of an index file, and whoever reads it compares.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import xxhash

from spark_apps.storage.ranged import RangedFile
from spark_apps.storage.store import ObjectStore

FOOTER = "footer"
"""Under which the log keeps the footer's digest, among what is extra of a file."""

PAGE_INDEX = "page_index"
"""Under which it keeps where the page index begins, which ends with the footer's begin, and the digest of it."""

_TAIL_BYTES = 64 * 1024
"""What is fetched at once: nearly always all of the footer."""


def footer_of(tail: bytes) -> bytes:
    """The footer at the end of some bytes with its length and mark; all of them if it is longer than they are."""
    return tail[-_length(tail) :] if tail else b""


def fetch_footer(store: ObjectStore, key: str, size: int) -> bytes:
    """The footer of a file of ``size`` bytes. :raises StorageError: if the file is gone."""
    return footer_of(fetch_tail(store, key, size))


def fetch_tail(store: ObjectStore, key: str, size: int) -> bytes:
    """The end of a file of ``size`` bytes with all of its footer. :raises StorageError: if the file is gone."""
    tail = store.get_range(key, max(0, size - _TAIL_BYTES), size) if size else b""
    if (needed := _length(tail)) > len(tail):
        tail = store.get_range(key, max(0, size - needed), size)
    return tail


def seal(store: ObjectStore, key: str, size: int, tail: bytes) -> dict[str, Any]:
    """What the log keeps of the end of an index file, so that :func:`check_seal` knows it again.

    :param tail: of the file, with all of its footer.
    """
    footer = footer_of(tail)
    begin, end = _data_end(footer), size - len(footer)
    if begin >= end:
        return {FOOTER: digest_of(footer)}
    kept = size - len(tail)
    index = tail[begin - kept : end - kept] if begin >= kept else store.get_range(key, begin, end)
    return {FOOTER: digest_of(footer), PAGE_INDEX: [begin, digest_of(index)]}


def check_seal(file: RangedFile, extra: Mapping[str, Any] | None) -> None:
    """:raises OSError: if the file's footer or page index is not the one whose digest the log keeps."""
    check_footer(file, extra)
    written = (extra or {}).get(PAGE_INDEX)
    if written is None:
        return
    begin, digest = written
    end = file.size - _length(file.tail(8))
    file.seek(begin)
    if digest_of(file.read(end - begin)) != digest:
        raise OSError("its page index is not the one that was written")


def _data_end(footer: bytes) -> int:
    """Where the pages of a file end, and its page index begins if it has one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(pa.BufferReader(footer))
    if not metadata.num_row_groups:
        return 4  # behind the mark that a file begins with
    last = metadata.row_group(metadata.num_row_groups - 1)
    chunks = [last.column(n) for n in range(last.num_columns)]
    return max(
        (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size for chunk in chunks
    )


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
