"""Logs of registered tables as watchers follow them: opened by their formats, without Spark, and checked first.

A log of indexes names the table, and whoever may write it names any other: the caller has checked that the source may
be read (:func:`spark_apps.timeline.allowed_sources.check_allowed`); what a catalog answers is checked here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_apps.sources.iceberg_catalog import io_properties, load_named, metadata_file
from spark_apps.sources.logs.commits import MAX_COMMITS, Look, Place, WatchedLog
from spark_apps.sources.logs.delta import DeltaLog
from spark_apps.sources.logs.hudi_timeline import HudiTimeline
from spark_apps.sources.logs.iceberg import MAX_METADATA_BYTES, TableMetadata
from spark_apps.storage.errors import EnvironmentMismatch, LakeIndexError, LogDamaged, StorageUnavailable, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER, check_files
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import SourceDefinition

FORMATS = ("delta", "iceberg", "hudi")
"""Those that have a log."""

_GZIPPED = ".gz.metadata.json"


def watched_log(source: SourceDefinition, options: Mapping[str, Any] | None, log: str) -> WatchedLog:
    """Return the log of a registered table of one of the :data:`FORMATS`.

    :param options: how its store is reached, and the ``source_roots`` of the connection.
    :param log: address of the log of its indexes.
    """
    if source.format == "iceberg":
        return _Iceberg(source, options, log)
    store = Store(locate(source.location).uri, options)
    return DeltaLog(store) if source.format == "delta" else HudiTimeline(store)


@dataclass(frozen=True)
class _Iceberg:
    """The snapshots of an Iceberg table, by the metadata file that the version hint names, or by the catalog."""

    source: SourceDefinition
    options: Mapping[str, Any] | None
    log: str

    def place(self, version: str | None, mark: str | None) -> Place:
        return Place(version)

    def after(self, place: Place, most: int = MAX_COMMITS) -> Look:
        """Return the snapshots behind a place, from the table's metadata alone.

        :raises TableNotFound: if there is no table, or it is another one than was registered.
        :raises SourceNotAllowed: if the catalog has it at another place.
        :raises LogDamaged: if its metadata cannot be read.
        """
        metadata = self._by_catalog() if CATALOG in self.source.options else self._by_hint()
        known = self.source.identity
        if known is not None and metadata.id not in (None, known):
            raise TableNotFound(
                f"The table that was registered at {self.source.location} is gone: the one that is there now has the "
                f"id {metadata.id}, and it had {known}.",
                hint="Drop the registration, which leaves the table alone, and register the new one.",
            )
        return metadata.after(place, most)

    def _by_hint(self) -> TableMetadata:
        folder, _, name = metadata_file(locate(self.source.location).uri, self.options).rpartition("/")
        body = Store(folder, self.options).get(name, MAX_METADATA_BYTES)
        return TableMetadata.of(_unpacked(body, name) if name.endswith(_GZIPPED) else body, f"{folder}/{name}")

    def _by_catalog(self) -> TableMetadata:
        try:
            from pyiceberg.exceptions import NoSuchTableError
        except ImportError as error:
            raise EnvironmentMismatch(
                "The catalog of an Iceberg table is asked by the package pyiceberg, which is not installed here.",
                hint="Install 'airflow-provider-index[lake]' where the triggerer runs.",
            ) from error
        name = self.source.options[IDENTIFIER]
        try:
            table = load_named(self.source.options, io_properties(self.options))
        except NoSuchTableError as error:
            raise TableNotFound(f"The catalog holds no Iceberg table {name}: {error}.") from error
        except LakeIndexError:
            raise
        except (ValueError, KeyError, OSError) as error:
            raise StorageUnavailable(f"The Iceberg table {name} cannot be loaded: {error}.") from error
        # Whoever may write the log of indexes names any table that the catalog has.
        check_files((table.location().rstrip("/"),), self.source, self.options, self.log)
        return TableMetadata.of_table(table)


def _unpacked(body: bytes, name: str) -> bytes:
    """Return what a packed file holds. :raises LogDamaged: if that is too much, or the file cannot be unpacked."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        whole = unpacking.decompress(body, MAX_METADATA_BYTES)
    except zlib.error as error:
        raise LogDamaged(f"{name} cannot be unpacked: {error}.") from error
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise LogDamaged(f"{name} is cut off, or has more than {MAX_METADATA_BYTES:,} bytes, unpacked.")
    return whole
