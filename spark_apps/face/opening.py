"""Opens a table for reading where there is no Spark session, from the options of a data source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_apps.actions import registering
from spark_apps.actions.template import TableHandle
from spark_apps.mergetree.tree import NO_SPARK, Snapshot
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.warehouse import Warehouse

_STORAGE = "storage."
_KNOWN = ("path", "where", "version", "as_of", "source_version", "index_root", "name", "warehouse")


@dataclass(frozen=True)
class Place:
    """Where a table is, as of when, and which of its rows. ``storage`` may hold secrets and is never shown.

    :param where: a predicate; the table has no other rows then.
    """

    path: str
    where: str | None = None
    version: int | None = None
    as_of: str | None = None
    source_version: str | None = None
    index_root: str | None = None
    name: str | None = None
    warehouse: str | None = None
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """From the options of a data source; case does not matter.

        :raises InvalidInput: naming an option that is not known.
        """
        given = {name.lower(): text for name, text in options.items()}
        storage = {name.removeprefix(_STORAGE): text for name, text in given.items() if name.startswith(_STORAGE)}
        rest = {name: text for name, text in given.items() if not name.startswith(_STORAGE)}
        stray = sorted(rest.keys() - set(_KNOWN))
        if stray:
            raise InvalidInput(
                f"The option {stray[0]!r} is not one of the data source.",
                hint=f"Known are: {', '.join(_KNOWN)}, and {_STORAGE}<key> for options of the store.",
            )
        if not rest.get("path"):
            raise InvalidInput("No table was given.", hint='Give its address: load("s3://bucket/table").')
        version = rest.pop("version", None)
        if version is not None and not version.isdigit():
            raise InvalidInput(f"The option 'version' is {version!r}.", hint="Give the number of a version.")
        return cls(version=None if version is None else int(version), storage=storage, **rest)


def open_table(place: Place, version: int | None = None) -> Snapshot:
    """The snapshot of a table, without a Spark session.

    :param version: read this version if the options name none.
    :raises InvalidName: :raises TableNotFound: :raises VersionNotFound: :raises SnapshotExpired:
    """
    warehouse = Warehouse(place.warehouse, place.storage, "the option 'warehouse'")
    location = warehouse.locate(place.path)
    timeline = registering.open_log(NO_SPARK, location, place.storage, place.index_root, place.name)
    handle = TableHandle(NO_SPARK, timeline, place.storage)
    if place.source_version is not None:
        if place.version is not None or place.as_of is not None:
            raise InvalidInput("source_version was given with version or as_of.", hint="Give one of them.")
        return registering.at_source_version(handle, place.source_version)
    if place.version is None and place.as_of is None and version is None:
        return handle.snapshot()
    wanted = version if place.version is None and place.as_of is None else place.version
    return registering.at_log_version(handle, wanted, place.as_of)
