"""Writes ``names.json`` and ``documents.json``: the public names, and the names on disk, that stay as they are.

A name that is new is added to them by hand, or by running this on a commit whose tests of names pass; none is changed
or taken out. Run as ``python -m tests.compatibility.write_names``.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from tests.compatibility.observed import assets_now, inputs_now, kept_now, triggers_now
from tests.compatibility.recording import ANY_NAME, HERE, arguments, documented, pages, public, resolve, shape, structs

PACKAGES = (
    "spark_apps",
    "airflow_provider_index.hooks",
    "airflow_provider_index.maintenance",
    "airflow_provider_index.operators",
    "airflow_provider_index.runners",
    "airflow_provider_index.sensors",
    "airflow_provider_index.task_groups",
    "airflow_provider_index.testing",
    "airflow_provider_index.triggers",
)
BY_OTHERS = (  # what others wrote down: Airflow's database, its provider info, entry points, DAGs, plugins of users
    "airflow_provider_index.hooks.table_store.TableStoreHook",
    "airflow_provider_index.hooks.index_runner",
    "airflow_provider_index.links.PAGE",
    "airflow_provider_index.links.DriverLogLink",
    "airflow_provider_index.links.SparkUILink",
    "airflow_provider_index.links.TablePageLink",
    "airflow_provider_index.provider_info.get_provider_info",
    "airflow_provider_index.triggers.windows.WindowsClosedTrigger",
    "airflow_provider_index.assets.create_asset",
    "airflow_provider_index.assets.commit_event",
    "airflow_provider_index.assets.commit_of",
    "airflow_provider_index.assets.sanitize_uri",
    "airflow_provider_index.lineage.asset_to_dataset",
    "airflow_provider_index.ui.plugin.LakeIndexPlugin",
    "spark_apps.__main__.main",
    "spark_apps.indexes.columns.IncludedColumns",
    "spark_apps.indexes.registry.ALLOWED",
    "spark_apps.indexes.registry.GROUP",
    "spark_apps.indexes.registry.allow",
    "spark_apps.layout.engines.ALLOWED",
    "spark_apps.layout.engines.GROUP",
    "spark_apps.layout.engines.allow",
    "spark_apps.layout.engines.register",
    "spark_apps.layout.hash_functions.ALLOWED",
    "spark_apps.layout.hash_functions.GROUP",
    "spark_apps.layout.hash_functions.allow",
    "spark_apps.layout.hash_functions.register",
    "spark_apps.layout.hashing.bucket_id",
    "spark_apps.layout.rules.BucketRules",
    "spark_apps.job.Job",
    "spark_apps.job.Outcome",
    "spark_apps.job.decode_outcome",
    "spark_apps.job.encode_job",
    "spark_apps.storage.store.Store",
    "spark_apps.table.IndexedTable",
    "spark_apps.timeline.log.Timeline",
    "spark_apps.timeline.model.Receipt",
    "spark_apps.timeline.warehouse.Warehouse",
)
PROGRAMS = (
    "build_index", "check_storage", "compact_index", "drop_index", "maintain_table", "refresh_index", "register_table",
    "rescale_buckets", "run_sql", "verify_index", "write_table",
)  # fmt: skip
REPORTS = (  # what goes to XCom and to the command line as plain types, wherever its class stands
    "spark_apps.actions.rescale.RescalePlan",
    "spark_apps.indexes.handler.IndexPlan",
    "spark_apps.indexes.verification.Difference",
    "spark_apps.indexes.verification.VerificationReport",
    "spark_apps.query.explain.HistoryEntry",
    "spark_apps.query.explain.IndexInfo",
    "spark_apps.query.explain.IndexStatus",
    "spark_apps.query.explain.PartitionInfo",
    "spark_apps.query.explain.Explanation",
    "spark_apps.query.explain.LocatedFile",
    "spark_apps.timeline.cleaning.CleaningPlan",
)
TASKS = ("airflow_provider_index.operators.", "airflow_provider_index.sensors.", "airflow_provider_index.triggers.")
CALLED_BY_AIRFLOW = (
    "execute", "execute_complete", "on_kill", "operator_extra_links", "poke", "resume_execution", "run", "serialize",
    "template_ext", "template_fields", "template_fields_renderers",
)  # fmt: skip
MADE_BY_METHODS = ("spark_apps.IndexedTable", "spark_apps.table.IndexedTable")
NOT_HELD = {"place"}
"""The place of a file in the order of merging has another name since; those who make a file give it by position."""
BY_POSITION = {"question", "probe", "told", "given_columns", *NOT_HELD}
"""What is handed over by position, so that its name is of no concern."""
NOT_ON_DISK = (
    "spark_apps.indexes.skipping.collecting.Piece",
    "spark_apps.sources.delta_places._Action",  # of the log of a Delta table, whose names are Delta's
    "spark_apps.sources.delta_places._File",
    "spark_apps.sources.delta_places._Sidecar",
    "spark_apps.sources.delta_places._Vector",
    "spark_apps.sources.logs.delta._Action",
    "spark_apps.sources.logs.delta._Add",
    "spark_apps.sources.logs.delta._Info",
    "spark_apps.sources.logs.delta._Remove",
    "spark_apps.sources.logs.delta._Statistics",
    "spark_apps.sources.logs.delta._Vector",
    "spark_apps.sources.logs.hudi_timeline._Said",  # of the timeline of a Hudi table, whose names are Hudi's
    "spark_apps.sources.logs.hudi_timeline._Stat",
    "spark_apps.sources.logs.iceberg.Snapshot",  # of the metadata of an Iceberg table, whose names are Iceberg's
    "spark_apps.sources.logs.iceberg.TableMetadata",
    "spark_apps.storage.store_check.Reach",
    "spark_apps.timeline.hudi_indexes.BucketRule",  # of the folder of a Hudi table
    "spark_apps.timeline.hudi_indexes._Definition",
    "spark_apps.timeline.hudi_indexes._Definitions",
    "spark_apps.timeline.model.Struct",
    "spark_apps.timeline.state.IndexEntry",
    "spark_apps.timeline.files.DataFile",
    "spark_apps.timeline.model.Action",
)


def names() -> list[str]:
    """Return the public names of this version."""
    public_names = {name for page in pages() for name in documented(page.read_text(encoding="utf-8"))} | set(BY_OTHERS)
    for package in PACKAGES:
        module = resolve(package)
        for name in module.__all__:
            public_names.add(f"{package}.{name}")
            value = getattr(module, name)
            if inspect.isclass(value) and package.startswith("airflow_provider_index"):
                public_names.add(f"{value.__module__}.{value.__qualname__}")
    errors = resolve("spark_apps.storage.errors")
    public_names |= {f"{errors.__name__}.{name}" for name, kind in vars(errors).items() if inspect.isclass(kind)}
    return sorted(public_names | {f"spark_apps.{program}" for program in PROGRAMS})


def described(name: str) -> dict[str, Any]:
    """Describe a public name, without what may change its name."""
    value = resolve(name)
    description = public(value)
    if inspect.isclass(value) and name.startswith(TASKS):
        # What Airflow calls; the rest is between an operator and its bases.
        description["takes"] = arguments(value)
        description["has"] = {
            member: taken for member, taken in description["has"].items() if member in CALLED_BY_AIRFLOW
        }
    if name in MADE_BY_METHODS:
        del description["takes"]
    return loosened(description)


def loosened(description: dict[str, Any]) -> dict[str, Any]:
    """Put ``?`` for the names of parameters that are given by position only, and leave out what has another name."""

    def loose(taken: list[str]) -> list[str]:
        return [ANY_NAME + one[len(one.rstrip("=")) :] if one.rstrip("=") in BY_POSITION else one for one in taken]

    if "takes" in description:
        description["takes"] = loose(description["takes"])
    if "has" in description:
        description["has"] = {
            name: None if taken is None else loose(taken)
            for name, taken in description["has"].items()
            if name not in NOT_HELD
        }
    return description


def members(name: str) -> list[str]:
    return list(public(resolve(name))["has"])


def main() -> None:
    written = {
        "names": {name: described(name) for name in names()},
        "reports": {name.rpartition(".")[2]: members(name) for name in REPORTS},
        "triggers": triggers_now(),
        "inputs": inputs_now(),
        "assets": assets_now(),
        "kept": kept_now(),
    }
    documents = {name: shape(kind) for name, kind in structs().items() if name not in NOT_ON_DISK}
    for file, now in (("names.json", written), ("documents.json", documents)):
        known = json.loads((HERE / file).read_text(encoding="utf-8"))
        if now is documents:  # which are known by what they look like, whatever they are called
            now = {name: look for name, look in documents.items() if look not in known.values()}
        (HERE / file).write_text(_lines(_with_new(known, now)), encoding="utf-8")


def _with_new(known: Any, now: Any) -> Any:
    """What is known, with the names beside it that are not yet."""
    if not isinstance(known, dict) or not isinstance(now, dict):
        return known
    return {**now, **{name: _with_new(value, now.get(name)) for name, value in known.items()}}


def _lines(value: dict[str, Any], depth: int = 0) -> str:
    """JSON with one entry a line, down to where an entry is short."""
    rows = []
    for key, one in value.items():
        text = json.dumps(one, ensure_ascii=False)
        if isinstance(one, dict) and len(text) > 110:
            text = _lines(one, depth + 1).rstrip("\n")
        rows.append(f"{' ' * (depth + 1)}{json.dumps(key, ensure_ascii=False)}: {text}")
    return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}\n"


if __name__ == "__main__":
    main()
