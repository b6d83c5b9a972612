"""A check of what a table's log keeps: no secrets in properties, options and locations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.secrets import holds_secret, secrets_in_text

UNWRITTEN_HINT = (
    "Give it in storage_options or in the settings of the Spark session, which are never written down; a property may "
    "name the place where it is kept."
)
_PLURALS = {"property": "properties", "option": "options", "location": "locations"}


def check_unwritten(what: str, given: Mapping[str, Any], hint: str) -> None:
    """Refuse secrets in what a table's log would keep, where every reader of the table or its page sees them.

    :param what: the kind of entry, for the error: ``property``, ``option``.
    :raises InvalidInput: for one; names the entry, never its value.
    """
    for name, value in given.items():
        # A column may be called password; its description may not hold one.
        if secrets_in_text(str(value)) if name.lower().startswith("comment") else holds_secret(name, value):
            raise InvalidInput(
                f"The {what} {name!r} looks like a secret, and a table's log keeps {_PLURALS[what]}.", hint=hint
            )
