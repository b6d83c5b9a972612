"""Opening an Iceberg table by ``pyiceberg``: by its name in a catalog, or by its metadata file. No Spark.

The metadata of a table is written by its owner, and ``pyiceberg`` takes properties from it that name classes to load
and servers to call, beside the reader's credentials. So file access is made from the reader's own properties,
and of the table's only those are kept that say what its rows are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, ObjectNotFound, ObjectTooLarge, TableNotFound
from spark_apps.storage.store import Store, store_options
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER, check_files, check_options
from spark_apps.timeline.catalog_names import split
from spark_apps.timeline.model import SourceDefinition

_METADATA = ".metadata.json"
_MAX_HINT_BYTES = 1 << 16
_HINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,200}")
# Of the table's own properties, those that say what its rows are.
_OF_ROWS = {"schema.name-mapping.default"}

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
    """Return the storage options under the names of pyiceberg's file access."""
    given = {key.lower().removeprefix("aws_"): value for key, value in store_options(storage_options).items()}
    return {_IO_NAMES.get(name, name): str(value) for name, value in given.items()}


def load_named(options: Mapping[str, str], properties: Mapping[str, str]) -> Any:
    """Load the table that a registration names by ``catalog`` and ``identifier``.

    The catalog's own properties are those of the registration in ``catalog.*``. Errors of pyiceberg pass.

    :param properties: the reader's own.
    :raises InvalidInput: for an option that a registration cannot have.
    """
    from pyiceberg.catalog import load_catalog

    check_options("iceberg", options)
    logged = {key.partition(".")[2]: value for key, value in options.items() if key.startswith(f"{CATALOG}.")}
    catalog = load_catalog(options[CATALOG], **{**logged, **properties})
    _trust_no_table(catalog)
    return _of_rows(catalog.load_table(_identifier(options[IDENTIFIER])))


def _identifier(text: str) -> str | tuple[str, ...]:
    """Return a name as pyiceberg takes it, which knows no back-ticks."""
    return split(text) if "`" in text else text


def load_at(location: str, storage_options: Mapping[str, Any] | None) -> Any:
    """Load the table whose metadata file, or folder with a version hint, is at a location.

    Errors of pyiceberg pass.

    :raises TableNotFound: if the folder has no hint, or it names no file.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    metadata_path = metadata_file(location, storage_options)
    check_files((metadata_path,), SourceDefinition("iceberg", location), storage_options)
    address = metadata_path if "://" in metadata_path else f"file://{metadata_path}"
    io = load_file_io(io_properties(storage_options), address)
    metadata = FromInputFile.table_metadata(io.new_input(address))
    return _of_rows(StaticTable(("static-table", address), metadata, address, io, NoopCatalog("static-table")))


def metadata_file(location: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return the address of a table's newest metadata file, by the hint in its folder.

    :raises TableNotFound: if there is no hint.
    :raises InvalidInput: if what it holds is no file's name.
    """
    if location.endswith(_METADATA):
        return location
    missing = f"There is no Iceberg table at {location}, or no version-hint.text in it."
    if "://" not in location and not Path(location, "metadata").is_dir():
        raise TableNotFound(missing)  # a look must not leave a folder behind
    try:
        content = Store(location, storage_options).get("metadata/version-hint.text", _MAX_HINT_BYTES)
    except ObjectNotFound as error:
        raise TableNotFound(missing) from error
    except ObjectTooLarge as error:
        raise InvalidInput(f"The version hint of {location} is no name of a metadata file: {error.message}") from error
    hint = content[:1000].decode(errors="replace").strip()
    if _HINT.fullmatch(hint) is None:
        raise InvalidInput(f"The version hint of {location} holds {hint[:100]!r}, which is no name of a metadata file.")
    name = hint if hint.endswith(_METADATA) else f"{'v' if hint.isdecimal() else ''}{hint}{_METADATA}"
    return f"{location}/metadata/{name}"


def _trust_no_table(catalog: Any) -> None:
    """Keep the properties in a table's metadata from the file access that a catalog makes for it.

    What a REST catalog itself says of the access (credentials for this table) is kept, but for classes to load.
    """
    make: Callable[..., Any] | None = getattr(catalog, "_load_file_io", None)
    if make is None:
        raise EnvironmentMismatch(
            f"The catalog {type(catalog).__name__} of this pyiceberg makes its file access in an unknown way, so "
            "properties of the table could name code to run.",
            hint="Install the version of pyiceberg that the package was tested with.",
        )
    answer: Callable[..., Any] | None = getattr(catalog, "_response_to_table", None)
    if answer is None:
        catalog._load_file_io = lambda properties=None, location=None: make(location=location)
        return

    def access(properties: Mapping[str, str] | None = None, location: str | None = None) -> Any:
        return make({key: value for key, value in (properties or {}).items() if "impl" not in key}, location)

    def cleaned(identifier: Any, response: Any) -> Any:
        metadata = response.metadata.model_copy(update={"properties": {}})
        table = answer(identifier, response.model_copy(update={"metadata": metadata}))
        table.metadata = response.metadata
        return table

    catalog._load_file_io, catalog._response_to_table = access, cleaned


def _of_rows(table: Any) -> Any:
    kept = {key: value for key, value in table.metadata.properties.items() if key in _OF_ROWS}
    table.metadata = table.metadata.model_copy(update={"properties": kept})
    return table
