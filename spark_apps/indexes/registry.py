"""Finding the handler of an index kind by its name.

A name means code that this package brings, that an installed package offers under the entry point group
:data:`GROUP`, that was registered in this process, or a class that this process is allowed to load, by
:func:`allow` or by the environment variable :data:`ALLOWED`. What a table's log names is only ever looked up among
these, so metadata alone never makes code load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_apps.indexes.handler import IndexHandler
from spark_apps.layout.plugins import Plugins
from spark_apps.storage.errors import InvalidInput, InvalidSchema, LakeIndexError
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

    Such a process neither uses the index nor keeps it up to date.
    """
    try:
        return find(kind)
    except InvalidInput:
        return None


def others() -> dict[str, IndexHandler]:
    """Return the kinds that other packages bring and that this process has the code of, by their names."""
    found = {name: available(name) for name in _KINDS.others()}
    return {name: handler for name, handler in found.items() if handler is not None}


def held_by(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the columns that an index may hold values of."""
    handler = available(definition.kind)
    named = (*definition.columns, *definition.included)
    return named if handler is None else _columns_of(handler.holds, table, definition, definition.included)


def asked_by(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the columns of whose values a predicate must speak for an index to be of use."""
    handler = available(definition.kind)
    return definition.columns if handler is None else _columns_of(handler.asked_by, table, definition)


def columns_gone(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the columns that an index is over and its table does not have; none if the definition fits the table.

    Such an index cannot be used, refreshed or verified.
    """
    there = {field.name for field in table.fields}
    return tuple(name for name in dict.fromkeys(asked_by(table, definition)) if name not in there)


def check_columns(table: TableDefinition, definition: IndexDefinition) -> None:
    """Check that a table has the columns that an index is over.

    :raises InvalidSchema: naming the index and the first column that is gone.
    """
    gone = columns_gone(table, definition)
    if not gone:
        return
    name, source = definition.name, table.source
    where = "The table has" if source is None else f"The source {source.location} has"
    raise InvalidSchema(
        f"{where} no column {gone[0]!r} any more, which index {name!r} is over. Queries do not use this index; the "
        "other indexes are not concerned.",
        hint=f"Drop the index, drop_index({name!r}), and create it again over columns that are there; or give the "
        "column its name back.",
    )


_Columns = Callable[[TableDefinition, IndexDefinition], tuple[str, ...]]


def _columns_of(
    columns: _Columns, table: TableDefinition, definition: IndexDefinition, more: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the columns that a handler gives; of a definition that does not fit the table, those that it names."""
    try:
        return columns(table, definition)
    except (LakeIndexError, LookupError, TypeError, ValueError, RecursionError):
        from spark_apps.indexes.expressions import columns_named  # its library is slow to import

        there = {field.name.lower(): field.name for field in table.fields}
        texts = [[name] if name.lower() in there else columns_named(name) for name in definition.columns]
        named = (*(name for names in texts for name in names), *more)
        return tuple(dict.fromkeys(there.get(name.lower(), name) for name in named))
