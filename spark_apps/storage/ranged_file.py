"""A file that fetches only what is read of it and counts the bytes, for readers that want parts of a file.

It is an open file to pyarrow; where the bytes come from (a store, a local disk) the caller decides.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store, same_etag, same_file

WHOLE_BYTES = 256 * 1024
"""A file up to this size is fetched in one request."""


class Rewritten(OSError):
    """A file that was listed is another one by now."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was rewritten after it was listed; load the table again, which lists the source anew")


class RangedFile(io.RawIOBase):
    """A file read by ranges.

    :param fetch: gives bytes ``start`` to ``end`` (exclusive).
    :param size: of the whole file, in bytes.
    :param whole_below: a file up to this size is fetched at once.
    :raises OSError: if there are fewer bytes than asked for.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, whole_below: int = WHOLE_BYTES) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0
        self.fetched = 0
        """Bytes fetched so far."""
        self._tail = b""
        self._kept, self._kept_from = b"", 0
        if 0 < size <= whole_below:
            self.keep(0, size)

    @property
    def size(self) -> int:
        """The size of the whole file, in bytes."""
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._position + size)
        start, self._position = self._position, max(self._position, end)
        if end <= start:
            return b""
        return self._read(start, end)

    def tail(self, size: int) -> bytes:
        """Return the last ``size`` bytes, or all there are; they are kept for the reads to come."""
        size = min(size, self._size)
        if len(self._tail) < size:
            self._tail = self._read(self._size - size, self._size)
        return self._tail[-size:] if size else b""

    def range(self, start: int, end: int) -> bytes:
        """Return bytes ``start`` to ``end`` (exclusive), wherever the file is being read."""
        return self._read(start, end)

    def keep(self, start: int, end: int) -> None:
        """Fetch bytes ``start`` to ``end`` (exclusive) at once, for the reads to come, unless they are held."""
        if self._held(start, end) is None:
            self._kept, self._kept_from = self._get(start, end), start

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, start: int, end: int) -> bytes:
        cached = self._held(start, end)
        return self._get(start, end) if cached is None else cached

    def _held(self, start: int, end: int) -> bytes | None:
        for cached, first in ((self._kept, self._kept_from), (self._tail, self._size - len(self._tail))):
            if first <= start and end <= first + len(cached):
                return cached[start - first : end - first]
        return None

    def _get(self, start: int, end: int) -> bytes:
        data = self._fetch(start, end)
        self.fetched += len(data)
        if len(data) != end - start:
            raise OSError(f"it ends before byte {end}")
        return data


def open_by_address(
    path: str, size: int, options: Mapping[str, Any] | None = None, etag: str | None = None
) -> RangedFile:
    """Open a file by its address, on any machine that reaches it.

    :param path: as it stands (nothing quoted): a local path, with or without ``file://``, or a URI of a store.
    :param options: of that store.
    :param etag: its etag when it was listed, if the file may change.
    :raises OSError: while it is read, if it is gone or shorter.
    :raises Rewritten: if its etag is another.
    """
    if path.startswith("file:") or "://" not in path:
        local = Path("/" + path.removeprefix("file:").lstrip("/"))

        def fetch(start: int, end: int) -> bytes:
            with local.open("rb") as handle:
                if etag is not None and not same_file(os.fstat(handle.fileno()), etag):
                    raise Rewritten(path)
                handle.seek(start)
                return handle.read(end - start)

        return RangedFile(fetch, size)
    folder, _, name = path.rpartition("/")
    store = Store(folder, options)

    def ranged(start: int, end: int) -> bytes:
        try:
            if etag is None:
                return store.get_range(name, start, end)
            data, stored_etag = store.get_range_and_etag(name, start, end)
        except StorageError as error:
            raise OSError(error.message) from error
        if not same_etag(stored_etag, etag):
            raise Rewritten(path)
        return data

    return RangedFile(ranged, size)
