"""Addresses that a reader's storage options name: below which a log may name any source, and where tables have names.

They say what a reader trusts, so they come from connections and calls alone; no log and no file of a warehouse adds
one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spark_apps.storage.errors import InvalidInput, InvalidName
from spark_apps.storage.store import SOURCE_ROOTS, WAREHOUSE_ROOT, Store


def source_roots(options: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the addresses below which a reader takes any source, from the storage options.

    They are a list, a text that is one of them, or a JSON list.

    :raises InvalidInput: if it is something else.
    """
    given = (options or {}).get(SOURCE_ROOTS)
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.lstrip().startswith("[") else [given]
        except ValueError:
            given = None
    if given is None and (options or {}).get(SOURCE_ROOTS) is None:
        return ()
    if not isinstance(given, list | tuple) or not all(isinstance(root, str) and root.strip() for root in given):
        raise InvalidInput(f"{SOURCE_ROOTS} is no list of addresses.", hint=f'Write {SOURCE_ROOTS}: ["s3://lake/raw"].')
    return tuple(_root(root.strip()) for root in given)


def warehouse_root(options: Mapping[str, Any] | None) -> str | None:
    """Return the address of the reader's warehouse, from the storage options; ``None`` if they name none.

    :raises InvalidInput: if it is no address.
    """
    given = (options or {}).get(WAREHOUSE_ROOT)
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise InvalidInput(
            f"{WAREHOUSE_ROOT} is no address.", hint="Leave it out: the connection's warehouse fills it."
        )
    return Store(given).uri.rstrip("/")


def with_warehouse(options: Mapping[str, Any] | None, root: str | None) -> dict[str, Any]:
    """Return storage options that also say where the reader's tables have names."""
    return dict(options or {}) if root is None else {**(options or {}), WAREHOUSE_ROOT: root}


def is_below(address: str, root: str) -> bool:
    """Test whether an address is a folder, or in it."""
    return address == root or address.startswith(f"{root.rstrip('/')}/")


def _root(text: str) -> str:
    try:
        return Store(text).uri
    except InvalidName:  # the address of a catalog
        return text.rstrip("/")
