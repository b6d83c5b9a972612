"""Finds the handler of an index kind by its name.

A name stands for code that this package brings, that an installed package offers under the entry point group
:data:`GROUP`, that was registered in this process, or for a class that this process was told to allow, by
:func:`allow` or by the environment variable :data:`ALLOWED`. What a table's log says is only ever looked up among
these, so metadata alone never makes code load.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from spark_apps.indexes.handler import IndexHandler
from spark_apps.storage.errors import InvalidInput

GROUP = "airflow_provider_index.index_kinds"
"""Entry points: name of the kind -> class of its handler."""

ALLOWED = "AIRFLOW_PROVIDER_INDEX_HANDLERS"
"""Environment variable: dotted paths of handler classes, separated by commas, that may be loaded as kinds."""

_BUILT_IN = {
    "record": "spark_apps.indexes.record:RecordHandler",
    "secondary": "spark_apps.indexes.secondary:SecondaryHandler",
    "compact": "spark_apps.indexes.compact:CompactHandler",
    "covering": "spark_apps.indexes.covering:CoveringHandler",
}
_found: dict[str, IndexHandler] = {}
_allowed: set[str] = set()


def register(handler: IndexHandler) -> None:
    """Makes a handler known under its kind's name. :raises InvalidInput: if the name is taken."""
    if handler.kind in _BUILT_IN or _found.setdefault(handler.kind, handler) is not handler:
        raise InvalidInput(f"There is an index kind {handler.kind!r} already.", hint="Choose another name.")


def allow(*classes: str) -> None:
    """Lets the kinds named by these dotted class paths (``package.module.Class``) be loaded in this process."""
    _allowed.update(classes)


def find(kind: str) -> IndexHandler:
    """The handler of a kind. :raises InvalidInput: naming the kinds that are known."""
    if kind not in _found:
        _found[kind] = _load(kind)
    return _found[kind]


def available(kind: str) -> IndexHandler | None:
    """The handler of a kind, or ``None`` where this process has none: such an index is neither used nor kept here."""
    try:
        return find(kind)
    except InvalidInput:
        return None


def _load(kind: str) -> IndexHandler:
    if kind in _BUILT_IN:
        return _instance(kind, EntryPoint(kind, _BUILT_IN[kind], GROUP))
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if kind in offered:
        return _instance(kind, offered[kind])
    if "." in kind and kind in _allowed | set(_listed(os.environ.get(ALLOWED, ""))):
        module, _, name = kind.rpartition(".")
        return _instance(kind, EntryPoint(kind, f"{module}:{name}", GROUP))
    known = sorted({*_BUILT_IN, *_found, *offered})
    hint = f"Known are: {', '.join(known)}."
    if "." in kind:
        hint += f" To load that class, list it in {ALLOWED}, or pass it to spark_apps.indexes.registry.allow()."
    raise InvalidInput(f"There is no index kind {kind!r} in this process.", hint=hint)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _instance(kind: str, point: EntryPoint) -> IndexHandler:
    try:
        handler = getattr(import_module(point.module), point.attr)()
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"The handler of index kind {kind!r} ({point.value}) cannot be loaded: {error}.",
            hint="Install the package that brings it, on the cluster too.",
        ) from error
    if not isinstance(handler, IndexHandler):
        raise InvalidInput(f"{point.value} is no IndexHandler.", hint="See spark_apps.indexes.handler.")
    return handler
