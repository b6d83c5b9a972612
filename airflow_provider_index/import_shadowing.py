"""Finds out whether another ``spark_apps`` folder hides the one that was installed with this package.

A DAG folder (or any folder earlier on the import path) may have a package of that name; everything imported
from it would then be missing or wrong. This module uses nothing of ``spark_apps``: it may be the wrong one.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

INSTALLED_APPS = Path(__file__).resolve().parent.parent / "spark_apps"


def check_installed_apps() -> None:
    """Refuse to go on when ``import spark_apps`` gives another package than the one installed beside this.

    :raises spark_apps.storage.errors.EnvironmentMismatch: names both folders. Nothing was changed.
    """
    imported = _folder_of_import()
    if imported == INSTALLED_APPS:
        return
    raise _error_class()(
        f"The folder {imported} hides the package spark_apps that is installed at {INSTALLED_APPS}.",
        hint="Rename that folder, or take the folder it is in off the import path (PYTHONPATH,"
        " the DAG folder, the plugins folder).",
    )


def _folder_of_import() -> Path:
    """Return where ``import spark_apps`` finds its package, by the same rules as the import itself."""
    spec = find_spec("spark_apps")
    if spec is None:
        raise ModuleNotFoundError("No module named 'spark_apps'", name="spark_apps")
    if spec.origin is not None:
        return Path(spec.origin).resolve().parent
    # A folder without __init__.py. It gives way to an installed package, but not to an editable install.
    return Path(next(iter(spec.submodule_search_locations or ("spark_apps",)))).resolve()


def _error_class() -> Any:
    """Return ``EnvironmentMismatch`` of our own error tree, loaded by its path, since its package is hidden."""
    spec = spec_from_file_location("airflow_provider_index._hidden_errors", INSTALLED_APPS / "storage" / "errors.py")
    if spec is None or spec.loader is None:
        return ImportError
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EnvironmentMismatch
