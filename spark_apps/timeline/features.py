"""Features of a table's log: what a reader or a writer must know of to do right by the table.

Every commit names all features that its table has from then on, and so does a checkpoint. A feature that a reader must
know and does not refuses every reading of the table; one that only a writer must know refuses commits and lets reads go
on. What is not a feature may be changed by an older package without harm, or is guarded by the log's format.

A commit with features has the format :data:`FEATURE_FORMAT`, which packages from before features refuse; a table
without any is written as before, for them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spark_apps.storage.errors import NewerFormat, UnsupportedFeature
from spark_apps.timeline.model import (
    FORMAT_VERSION,
    ORDERED,
    TOMBSTONES_TREE,
    Action,
    AddFile,
    FormatOnly,
    PutIndex,
)
from spark_apps.version import __version__

FEATURE_FORMAT = 2
"""The format of a commit that names features, and of a checkpoint that does: the highest that this code reads."""

ORDERED_DELETES = "ordered-deletes"
"""The feature of a table with deletes that keep an ordering: to a reader that takes them for newest, newer rows are
gone, and a writer that folds them away lets older rows return."""

READER_FEATURES: frozenset[str] = frozenset({ORDERED_DELETES})
"""The features that this package knows how to read by."""

EXPRESSIONS = "indexed_expressions"
"""The property of an index with the expressions among its columns, by name, and their types."""

INDEXED_EXPRESSIONS = "indexed-expressions"
"""The feature of a table with such an index: a writer who takes expressions for columns cannot keep it."""

WRITER_FEATURES: frozenset[str] = frozenset({INDEXED_EXPRESSIONS, ORDERED_DELETES})
"""The features that this package knows how to write by."""

_INSTALL = "Install a newer lakeindex wherever this table is used."


def format_of(reader: Collection[str], writer: Collection[str]) -> int:
    """Return the format of what is written of a table with these features."""
    return FEATURE_FORMAT if reader or writer else FORMAT_VERSION


def with_needed(
    reader: Collection[str], writer: Collection[str], actions: Iterable[Action]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the reader and the writer features that a table has after some actions."""
    readers, writers = dict.fromkeys(reader), dict.fromkeys(writer)
    for action in actions:
        if isinstance(action, PutIndex) and EXPRESSIONS in action.definition.properties:
            writers[INDEXED_EXPRESSIONS] = None
        elif isinstance(action, AddFile) and (
            action.tree == TOMBSTONES_TREE or (action.extra is not None and ORDERED in action.extra)
        ):
            readers[ORDERED_DELETES] = writers[ORDERED_DELETES] = None
    return tuple(readers), tuple(writers)


def unknown_writer_features(writer: Collection[str]) -> list[str]:
    """Return the features of a table by which this package cannot write."""
    return sorted(set(writer) - WRITER_FEATURES)


def check_readable(head: FormatOnly, where: str) -> None:
    """Check that this package can read a commit, before anything else of it is looked at.

    :param where: names the commit and its table.
    :raises NewerFormat: if its format is a later one.
    :raises UnsupportedFeature: if it has a feature that a reader must know, naming it.
    """
    if head.format > FEATURE_FORMAT:
        raise NewerFormat(
            f"{where} has log format {head.format}; this package reads up to format {FEATURE_FORMAT}.", hint=_INSTALL
        )
    unknown = sorted(set(head.reader_features) - READER_FEATURES)
    if unknown:
        raise UnsupportedFeature(
            f"{where} has the reader {_named(unknown)}, which lakeindex {__version__} does not know: what "
            "it read could be wrong.",
            hint=_INSTALL,
        )


def check_writable(writer: Collection[str], where: str) -> None:
    """Check that this package may commit to a table.

    :param where: names the table.
    :raises UnsupportedFeature: if the table has a feature that a writer must know, naming it.
    """
    unknown = unknown_writer_features(writer)
    if unknown:
        raise UnsupportedFeature(
            f"{where} has the writer {_named(unknown)}, which lakeindex {__version__} does not know: it "
            "can read the table, and not write to it.",
            hint=_INSTALL,
        )


def _named(features: list[str]) -> str:
    return f"feature{'s' if len(features) > 1 else ''} {', '.join(map(repr, features))}"
