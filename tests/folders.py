"""What the tests of one folder share and what takes long to start: a whole Airflow, a cluster.

A fixture of pytest's cannot say so: its scope ``package`` means a folder with an ``__init__.py``, and is that of the
whole run for any other. What is never ended goes on taking a third of a core from the tests of other folders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import ModuleType
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_KEPT = pytest.StashKey[dict[str, Any]]()


def kept_for_folder(
    request: pytest.FixtureRequest, name: str, start: Callable[[list[ModuleType]], AbstractContextManager[T]]
) -> T:
    """Return what the tests of a folder share: started for the first one that asks, ended behind the last one.

    :param request: of a fixture of the folder's ``conftest.py``, of any scope but the session's.
    :param name: tells what a folder shares apart.
    :param start: starts it, given the folder's modules of which this run has tests; left when it ends.
    """
    folder = request.node.getparent(pytest.Directory)
    kept = folder.stash.setdefault(_KEPT, {})
    if name not in kept:
        tests = (item for item in request.session.items if folder in item.listchain())
        modules = list(dict.fromkeys(item.getparent(pytest.Module).obj for item in tests))
        running = ExitStack()
        kept[name] = running.enter_context(start(modules))
        folder.addfinalizer(lambda: kept.pop(name, None))
        folder.addfinalizer(running.close)
    value: T = kept[name]
    return value
