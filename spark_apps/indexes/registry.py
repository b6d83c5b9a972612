"""Finds the handler of an index kind by its registered name.

A name stands for code that this package brings, or that was registered in this process; what a table's log
says is only ever looked up here, so metadata alone never makes code load.
"""

from __future__ import annotations

from importlib import import_module

from spark_apps.indexes.handler import IndexHandler
from spark_apps.storage.errors import InvalidInput

_BUILT_IN = {
    "record": "spark_apps.indexes.record:RecordHandler",
    "secondary": "spark_apps.indexes.secondary:SecondaryHandler",
}
_found: dict[str, IndexHandler] = {}


def register(handler: IndexHandler) -> None:
    """Makes a handler known under its kind's name. :raises InvalidInput: if the name is taken."""
    if handler.kind in _BUILT_IN or _found.setdefault(handler.kind, handler) is not handler:
        raise InvalidInput(f"There is an index kind {handler.kind!r} already.", hint="Choose another name.")


def find(kind: str) -> IndexHandler:
    """The handler of a kind. :raises InvalidInput: naming the kinds that are known."""
    if kind not in _found:
        if kind not in _BUILT_IN:
            raise InvalidInput(
                f"There is no index kind {kind!r}.", hint=f"Known are: {', '.join(sorted({*_BUILT_IN, *_found}))}."
            )
        module, _, name = _BUILT_IN[kind].partition(":")
        _found[kind] = getattr(import_module(module), name)()
    return _found[kind]
