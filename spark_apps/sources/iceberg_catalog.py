"""How an Iceberg table is found by its name in a catalog that ``pyiceberg`` is configured for. No Spark in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CATALOG = "catalog"
IDENTIFIER = "identifier"

# The object store's names of what pyiceberg's file access calls otherwise.
_IO_NAMES = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
    "endpoint_url": "s3.endpoint",
}


def io_properties(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """The storage options under the names of pyiceberg's file access."""
    given = {key.lower().removeprefix("aws_"): value for key, value in (storage_options or {}).items()}
    return {_IO_NAMES.get(name, name): str(value) for name, value in given.items()}


def load_named(options: Mapping[str, str], properties: Mapping[str, str]) -> Any:
    """The table that a registration names by ``catalog`` and ``identifier``, with the catalog's own properties in
    ``catalog.*``. Raises what pyiceberg does."""
    from pyiceberg.catalog import load_catalog

    own = {key.partition(".")[2]: value for key, value in options.items() if key.startswith(f"{CATALOG}.")}
    return load_catalog(options[CATALOG], **{**own, **properties}).load_table(options[IDENTIFIER])
