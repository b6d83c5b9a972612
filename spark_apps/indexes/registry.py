"""Finding the handler of an index kind by its name.

A name stands for code that this package brings, that an installed package offers under the entry point group
:data:`GROUP`, that was registered in this process, or for a class that this process is allowed to load, by
:func:`allow` or by the environment variable :data:`ALLOWED`. What a table's log names is only ever looked up among
these, so metadata alone never makes code load.
"""

from __future__ import annotations

from spark_apps.indexes.handler import IndexHandler
from spark_apps.layout.plugins import Plugins
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import IndexDefinition, TableDefinition

GROUP = "airflow_provider_index.index_kinds"
"""Entry points: name of the kind -> class of its handler."""

ALLOWED = "AIRFLOW_PROVIDER_INDEX_HANDLERS"
"""Environment variable: dotted paths of handler classes, separated by commas, that may be loaded as kinds."""

_KINDS: Plugins[IndexHandler] = Plugins(
    "index kind",
    IndexHandler,  # type: ignore[type-abstract]
    GROUP,
    ALLOWED,
    {
        "record": "spark_apps.indexes.keyed.record:RecordHandler",
        "secondary": "spark_apps.indexes.keyed.secondary:SecondaryHandler",
        "compact": "spark_apps.indexes.block.compact:CompactHandler",
        "covering": "spark_apps.indexes.covering.covering:CoveringHandler",
        "skipping": "spark_apps.indexes.skipping.skipping:SkippingHandler",
    },
    f"{__name__}.allow",
    error=InvalidInput,
)


def register(handler: IndexHandler) -> None:
    """Make a handler known under its kind's name.

    :raises InvalidInput: if the name is taken.
    """
    _KINDS.register(handler.kind, handler)


def allow(*classes: str) -> None:
    """Let the kinds named by these dotted class paths (``package.module.Class``) be loaded in this process."""
    _KINDS.allow(*classes)


def find(kind: str) -> IndexHandler:
    """Return the handler of a kind.

    :raises InvalidInput: naming the kinds that are known.
    """
    return _KINDS.find(kind)


def available(kind: str) -> IndexHandler | None:
    """Return the handler of a kind, or ``None`` where this process has none.

    Such an index is neither used nor kept here.
    """
    try:
        return find(kind)
    except InvalidInput:
        return None


def held_by(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the columns that an index may hold values of."""
    handler = available(definition.kind)
    return (*definition.columns, *definition.included) if handler is None else handler.holds(table, definition)


def asked_by(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the columns of whose values a predicate must speak for an index to be of use."""
    handler = available(definition.kind)
    return definition.columns if handler is None else handler.asked_by(table, definition)
