"""Digests that the log keeps of the end of an index file: of its footer and its page index, which have no checksums.

Pages have checksums of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xxhash

from spark_apps.storage.parquet.files import chunk_range, column_chunks, footer_bytes, metadata_of
from spark_apps.storage.store import RangedFile

FOOTER = "footer"
"""Under which the log keeps the footer's digest, among what is extra of a file."""

PAGE_INDEX = "page_index"
"""Under which it keeps where the page index begins, which ends with the footer's begin, and the digest of it."""

_MARK_BYTES = 4
"""Of the mark that a file begins with."""


def seal(file: RangedFile) -> dict[str, Any]:
    """Return what the log keeps of the end of an index file, so that :func:`check_seal` knows it again.

    :raises OSError: if it has no footer.
    """
    footer = footer_bytes(file)
    metadata, end = metadata_of(footer, file.size), file.size - len(footer)
    groups = metadata.num_row_groups
    chunks = column_chunks(metadata, groups - 1) if groups else ()
    begin = max((chunk_range(chunk)[1] for chunk in chunks), default=_MARK_BYTES)
    if begin >= end:
        return {FOOTER: digest_of(footer)}
    return {FOOTER: digest_of(footer), PAGE_INDEX: [begin, digest_of(file.range(begin, end))]}


def check_seal(file: RangedFile, extra: Mapping[str, Any] | None) -> None:
    """Compare a file's footer and page index with the digests that the log keeps.

    :raises OSError: if one of them is not the one that was written.
    """
    if not (extra or {}).keys() & {FOOTER, PAGE_INDEX}:
        return
    footer = footer_bytes(file)
    check_footer(footer, extra)
    written = (extra or {}).get(PAGE_INDEX)
    if written is None:
        return
    begin, digest = written
    if digest_of(file.range(begin, file.size - len(footer))) != digest:
        raise OSError("its page index is not the one that was written")


def check_footer(footer: bytes, extra: Mapping[str, Any] | None) -> None:
    """Compare a footer with the digest that the log keeps of it, if it does.

    :param footer: with its length and mark.
    :raises OSError: if it is another one.
    """
    written = (extra or {}).get(FOOTER)
    if written is not None and digest_of(footer) != written:
        raise OSError("its footer is not the one that was written")


def digest_of(data: bytes) -> str:
    """Return what the log keeps of a footer or a page index."""
    return xxhash.xxh3_64_hexdigest(data)
