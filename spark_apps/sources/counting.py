"""How many rows files of a source hold, where their footers tell."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from spark_apps.mergetree.foreign import THROUGH
from spark_apps.mergetree.write import count_rows
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.model import AddFile

logger = logging.getLogger(__name__)

_AT_ONCE = 16


def counted(form: str, files: Iterable[AddFile], options: Mapping[str, Any] | None) -> list[AddFile]:
    """The files with their numbers of rows, as far as their format tells: Parquet by footers. A file whose footer
    cannot be read keeps an unknown number; Spark will say what is wrong with it."""
    files = list(files)
    if form != "parquet":
        return files
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda file: _counted(file, options), files))


def _counted(file: AddFile, options: Mapping[str, Any] | None) -> AddFile:
    if file.rows >= 0 or THROUGH in (file.extra or {}):
        return file
    head, _, name = file.path.rpartition("/")
    try:
        rows, _ = count_rows(Store(head.removeprefix("file://"), options), name, file.bytes, "base")
    except StorageError as error:
        logger.warning("The rows of %s are not known: %s", file.path, error)
        return file
    return replace(file, rows=rows)
