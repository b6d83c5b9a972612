"""Index statements as text, for definitions of indexes: every name is quoted, whatever it holds."""

from __future__ import annotations

from spark_apps.indexes.registry import available
from spark_apps.mergetree.schema import quote
from spark_apps.timeline.model import IndexDefinition

_WRITTEN = ("layout",)
"""Properties that are written beside the columns; of the others the kind's defaults are meant."""


def create_statement(uri: str, definition: IndexDefinition) -> str:
    """Return the statement that creates an index.

    :param uri: of the table.
    """
    handler = available(definition.kind)
    # The parts of a skipping index are in the text that the grammar reads already.
    in_parts = handler is not None and handler.follows_files
    columns = definition.columns if in_parts else tuple(map(quote, definition.columns))
    kind = f"AS {_text(definition.kind)}" if "." in definition.kind else f"USING {definition.kind}"
    on = f"CREATE INDEX {quote(definition.name)} ON {quote(uri)}"
    # A class is named behind the columns, a kind before them.
    parts = [f"{on} ({', '.join(columns)}) {kind}" if "." in definition.kind else f"{on} {kind} ({', '.join(columns)})"]
    if definition.included:
        parts.append(f"INCLUDE ({', '.join(map(quote, definition.included))})")
    properties = {name: definition.properties[name] for name in _WRITTEN if name in definition.properties}
    if properties:
        written = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in properties.items())
        parts.append(f"IDXPROPERTIES ({written})")
    return " ".join(parts)


def drop_statement(uri: str, name: str) -> str:
    """Return the statement that drops an index."""
    return f"DROP INDEX {quote(name)} ON {quote(uri)}"


def _text(value: str) -> str:
    """Return a text as the grammar takes it."""
    doubled = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
