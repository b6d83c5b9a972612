"""Modules that users import and that are elsewhere now: the old names go on working, with a warning."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import cast

_PROVIDER = "airflow_provider_index."
_LAKE = "spark_apps."

MOVED = {
    _LAKE + "actions.staging": _LAKE + "actions.template",
    _LAKE + "actions.upsert_here": _LAKE + "actions.upsert_on_driver",
    _LAKE + "build_index": _LAKE + "programs.build_index",
    _LAKE + "bundle": _LAKE + "jobs.bundle",
    _LAKE + "carrying": _LAKE + "jobs.job",
    _LAKE + "check_storage": _LAKE + "programs.check_storage",
    _LAKE + "compact_index": _LAKE + "programs.compact_index",
    _LAKE + "drop_index": _LAKE + "programs.drop_index",
    _LAKE + "environment": _LAKE + "jobs.environment",
    _LAKE + "indexes.columns": _LAKE + "indexes.included_columns",
    _LAKE + "indexes.skipping.collecting_here": _LAKE + "indexes.skipping.collecting",
    _LAKE + "indexes.verification": _LAKE + "indexes.handler",
    _LAKE + "job": _LAKE + "jobs.job",
    _LAKE + "layout.engines": _LAKE + "layout.rules",
    _LAKE + "maintain_table": _LAKE + "programs.maintain_table",
    _LAKE + "mergetree.blockfiles": _LAKE + "mergetree.blocks",
    _LAKE + "mergetree.hadoop_store": _LAKE + "engine.hadoop_store",
    _LAKE + "mergetree.java_part": _LAKE + "engine.java_part",
    _LAKE + "mergetree.parquet_pages": _LAKE + "storage.parquet.pages",
    _LAKE + "mergetree.parquet_rows": _LAKE + "storage.parquet.page_index",
    _LAKE + "mergetree.pyspark_names": _LAKE + "engine.pyspark_names",
    _LAKE + "mergetree.spark_utils": _LAKE + "engine.spark_utils",
    _LAKE + "mergetree.spark_versions": _LAKE + "engine.spark_versions",
    _LAKE + "mergetree.write_here": _LAKE + "mergetree.write_on_driver",
    _LAKE + "opened": _LAKE + "arrow_table",
    _LAKE + "refresh_index": _LAKE + "programs.refresh_index",
    _LAKE + "register_table": _LAKE + "programs.register_table",
    _LAKE + "rescale_buckets": _LAKE + "programs.rescale_buckets",
    _LAKE + "run_sql": _LAKE + "programs.run_sql",
    _LAKE + "storage.parquet_files": _LAKE + "storage.parquet.files",
    _LAKE + "storage.parquet_footers": _LAKE + "storage.parquet.footers",
    _LAKE + "storage.parquet_headers": _LAKE + "storage.parquet.headers",
    _LAKE + "storage.parquet_statistics": _LAKE + "storage.parquet.statistics",
    _LAKE + "storage.thrift": _LAKE + "storage.parquet.thrift",
    _LAKE + "timeline.delta_checkpoints": _LAKE + "timeline.delta.checkpoints",
    _LAKE + "timeline.delta_log": _LAKE + "timeline.delta.log",
    _LAKE + "timeline.open_tables": _LAKE + "timeline.delta.publishing",
    _LAKE + "timeline.publish": _LAKE + "timeline.commit",
    _LAKE + "timeline.warehouse": _LAKE + "timeline.locations",
    _LAKE + "verify_index": _LAKE + "programs.verify_index",
    _LAKE + "write_table": _LAKE + "programs.write_table",
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
        if fullname not in MOVED:
            return None
        now = importlib.util.find_spec(MOVED[fullname])
        # Python calls a program that is run by its old name by where the module is.
        return ModuleSpec(fullname, self, origin=None if now is None else now.origin)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = MOVED[spec.name]
        warnings.warn(f"{spec.name} is {now} now; import from there.", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(now)
        spec.loader_state = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module that is run by its old name: ``python -m spark_apps.build_index``."""
        spec = importlib.util.find_spec(MOVED[fullname])
        return None if spec is None else cast(InspectLoader, spec.loader).get_code(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        # The import system gave the module the spec of its old name.
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let the old names be imported from now on; installing twice is once."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
