"""The error for a file of somebody else's that went away between listing and reading. No Spark in here."""

from __future__ import annotations

from spark_apps.storage.errors import ObjectNotFound


def gone_file(path: str, location: str) -> ObjectNotFound:
    """The error for a file that was listed and is not there any more."""
    return ObjectNotFound(
        f"{path} of the source {location} is gone: it was there when the source was listed.",
        outcome="Nothing was changed.",
        hint="Load the table again, which lists the source anew. An older version can be read only while its files "
        "are kept.",
    )
