"""Options that a registration may give for its format.

They are those of Spark's reader, without secrets and without those that would change which rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.secrets import check_unwritten
from spark_apps.timeline import allowed_sources

RECURSIVE = "recursiveFileLookup"
MERGE_SCHEMA = "mergeSchema"

# Spark's own listing is not used, and files or rows that are passed over in silence would be missing from answers.
_REFUSED = {
    "pathglobfilter": "Write the location as a glob instead.",
    "modifiedbefore": "Files are chosen by the log, not by their time.",
    "modifiedafter": "Files are chosen by the log, not by their time.",
    "basepath": "Partition columns are those below the part of the location without a pattern.",
    "ignoremissingfiles": "A missing file is an error here.",
    "ignorecorruptfiles": "A damaged file is an error here.",
    "path": "Give the location as the first argument.",
    "paths": "Give the location as the first argument.",
}


def check_options(form: str, options: Mapping[str, object] | None) -> dict[str, str]:
    """Return the options as they go into the log.

    :raises InvalidInput: for an unknown format, for an option that looks like a secret, or one that is refused, or that
        is none of the format's (:data:`spark_apps.timeline.allowed_sources.READER_OPTIONS`).
    """
    allowed_sources.check_options(form, {})
    checked: dict[str, str] = {}
    for name, value in (options or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        check_unwritten(
            "option", {name: value}, "Give it in storage_options, which are never written down, or in the environment."
        )
        if name.lower() in _REFUSED:
            raise InvalidInput(f"The option {name!r} is not taken for a source.", hint=_REFUSED[name.lower()])
        if name.lower() == "mode" and text.upper() == "DROPMALFORMED":
            raise InvalidInput(
                "The option mode=DROPMALFORMED is not taken for a source: which rows it drops depends on the columns "
                "that a query reads.",
                hint="Use mode=PERMISSIVE or FAILFAST.",
            )
        checked[name] = text
    allowed_sources.check_options(form, checked)
    return checked


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Return whether a true-or-false option is true; its name's case does not matter, as in Spark."""
    return any(key.lower() == name.lower() and value.lower() == "true" for key, value in options.items())
