"""Modules that users import and that stand elsewhere now: the old names go on working, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PROVIDER = "airflow_provider_index."
_LAKE = "spark_apps."

MOVED = {
    _LAKE + "bundle": _LAKE + "jobs.bundle",
    _LAKE + "carrying": _LAKE + "jobs.job",
    _LAKE + "environment": _LAKE + "jobs.environment",
    _LAKE + "job": _LAKE + "jobs.job",
    _LAKE + "actions.staging": _LAKE + "actions.template",
    _LAKE + "indexes.columns": _LAKE + "indexes.included_columns",
    _LAKE + "indexes.verification": _LAKE + "indexes.handler",
    _LAKE + "layout.engines": _LAKE + "layout.rules",
    _LAKE + "mergetree.blockfiles": _LAKE + "mergetree.blocks",
    _LAKE + "timeline.warehouse": _LAKE + "timeline.locations",
    _PROVIDER + "maintenance.plan": _LAKE + "maintenance.plan",
    _PROVIDER + "maintenance.policies": _LAKE + "maintenance.policies",
    _PROVIDER + "maintenance.survey": _LAKE + "maintenance.survey",
    _PROVIDER + "operators.cleaning": _PROVIDER + "operators.tables",
    _PROVIDER + "operators.compaction": _PROVIDER + "operators.tables",
    _PROVIDER + "operators.register": _PROVIDER + "operators.write",
    _PROVIDER + "operators.rescale_preview": _PROVIDER + "operators.rescale",
    _PROVIDER + "runners.detached": _PROVIDER + "runners.spark_submit",
    _PROVIDER + "sensors.windows": _PROVIDER + "sensors.timeline",
    _PROVIDER + "triggers.windows": _PROVIDER + "triggers.timeline",
}
"""Old name of a module -> the module that has its names now."""


class _MovedModules(MetaPathFinder, Loader):
    """A finder of modules by their old names, which hands out those that have their names now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = MOVED[spec.name]
        warnings.warn(f"{spec.name} is {now} now; import from there.", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(now)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system gave the module the spec of its old name.
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let the old names be imported from now on; installing twice is once."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
