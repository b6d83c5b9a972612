"""Finds out whether another ``spark_apps`` folder hides the one that was installed with this package.

A DAG folder (or any folder earlier on the import path) may have a package of that name; everything imported
from it would then be missing or wrong. This module uses nothing of ``spark_apps``: it may be the wrong one.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

OWN_APPS = Path(__file__).resolve().parent.parent / "spark_apps"


def check_own_apps() -> None:
    """Refuse to go on when ``import spark_apps`` gives another package than the one installed beside this.

    :raises spark_apps.storage.errors.EnvironmentMismatch: names both folders. Nothing was changed.
    """
    found = _folder_of_import()
    if found == OWN_APPS:
        return
    raise _error_class()(
        f"The folder {found} hides the package spark_apps that is installed at {OWN_APPS}.",
        hint="Rename that folder, or take the folder it stands in off the import path (PYTHONPATH,"
        " the DAG folder, the plugins folder).",
    )


def _folder_of_import() -> Path:
    loaded = sys.modules.get("spark_apps")
    spec: ModuleSpec | None = loaded.__spec__ if loaded is not None else PathFinder.find_spec("spark_apps")
    if spec is None or spec.origin is None:
        # Not found on a path entry but by an import hook (an editable install): then no folder hides it.
        return OWN_APPS
    return Path(spec.origin).resolve().parent


def _error_class() -> type[Exception]:
    """``EnvironmentMismatch`` of our own error tree, loaded by its place, since its package is hidden."""
    spec = spec_from_file_location(
        "airflow_provider_index._hidden_errors", OWN_APPS / "storage" / "errors.py"
    )
    if spec is None or spec.loader is None:
        return ImportError
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    error: type[Exception] = module.EnvironmentMismatch
    return error
