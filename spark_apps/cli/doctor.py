"""The command ``doctor``: what is installed, what the connection says, and whether the store keeps a log.

It is what ``python -m airflow_provider_index check`` tries of a store, without Airflow. Spark's side of a store is
tried by that command alone, which starts one.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from spark_apps.cli.command import NO, command
from spark_apps.cli.lake import Lake, hidden
from spark_apps.jobs.environment import DISTRIBUTION, LIBRARIES, java_home
from spark_apps.storage.credentials import hadoop_settings
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.printing import Grid, View, span
from spark_apps.storage.secrets import STARS, is_secret
from spark_apps.storage.store import Store
from spark_apps.storage.store_check import FOLDER, LOG_STACK, Reach, try_call, try_store
from spark_apps.storage.supported import check_spark_release
from spark_apps.version import __version__

_OPTIONAL = ("duckdb", "polars", "pandas", "pyspark", "apache-airflow", "deltalake", "pyiceberg")


@command("doctor")
@click.option("--read-only", is_flag=True, help="Only list the store; write nothing to it.")
def doctor(lake: Lake, read_only: bool) -> int:
    """Check the installation and the store of the warehouse.

    Says what is installed, whether the warehouse can be reached, and whether its store can keep a log. Exits with 1
    if a check fails.

    Files of the check are below <warehouse>/_index_check and are removed again.
    """
    versions = list(_versions())
    options = lake.warehouse.options
    shown = {name: STARS if is_secret(name) else str(value) for name, value in options.items()}
    unknown_to_spark = hadoop_settings(str(lake.warehouse.root or ""), options).unsupported_options
    reaches = _reaches(lake, read_only)
    bad = [one for one in versions if not one["ok"]] + [one for one in reaches if not one.ok]
    if lake.output.as_json:
        lake.output.json(
            {
                "ok": not bad,
                "versions": versions,
                "warehouse": lake.warehouse.root,
                "storage_options": {name: hidden(text, lake) for name, text in shown.items()},
                "unsupported_by_spark": unknown_to_spark,
                "store": [_plain(one, lake) for one in reaches],
            }
        )
        return NO if bad else 0
    facts = [
        ("warehouse", lake.warehouse.root or "none named: only what is installed was checked"),
        ("storage options", [f"{name}={hidden(text, lake)}" for name, text in shown.items()]),
        ("Spark has no setting for", unknown_to_spark),
    ]
    installed = Grid(("installed", "version", ""), [(one["name"], one["version"], one["remark"]) for one in versions])
    columns = ("by", "tried", "takes", "outcome")
    tried = Grid(columns, [(one.stack, one.what, span(one.seconds), hidden(_outcome(one), lake)) for one in reaches])
    verdict = f"{len(bad)} of {len(versions) + len(reaches)} checks FAILED" if bad else "all checks ok"
    lake.output.view(View(f"{DISTRIBUTION} {__version__}: {verdict}", facts, [installed, tried]))
    return NO if bad else 0


def _reaches(lake: Lake, read_only: bool) -> list[Reach]:
    if lake.warehouse.root is None:
        return []
    root = lake.root
    if "://" not in root and not Path(root).is_dir():  # a look must not make it
        return [Reach(LOG_STACK, "list", False, f"{root} is no folder of this machine", "Check the address.")]
    store = Store(root, lake.warehouse.options)
    with lake.output.progress(f"trying {root}"):
        if read_only:
            return [try_call(LOG_STACK, "list", lambda: _listed(store))]
        return try_store(store.below(f"{FOLDER}/{uuid.uuid4().hex}"))


def _listed(store: Store) -> None:
    store.folders()


def _outcome(reach: Reach) -> str:
    if reach.ok:
        return f"ok: {reach.detail}" if reach.detail else "ok"
    return " ".join(filter(None, (f"FAILED: {reach.detail}.".replace("..", "."), reach.hint)))


def _plain(reach: Reach, lake: Lake) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(reach)
    return {**fields, "detail": hidden(reach.detail, lake), "hint": hidden(reach.hint, lake)}


def _versions() -> Iterator[dict[str, Any]]:
    """Yield what is installed, each with what is wrong with it. Nothing of it is imported."""
    yield _version("Python", platform.python_version(), f"at {sys.executable}")
    for name in sorted({*LIBRARIES, "click"}):
        version = _installed(name)
        yield _version(name, version, "" if version else "is missing: reinstall this package", bool(version))
    for name in _OPTIONAL:
        version = _installed(name)
        if name == "pyspark" and version is not None:
            try:
                check_spark_release(version)
            except LakeIndexError as error:
                yield _version(name, version, f"{error.message} {error.hint}", ok=False)
                continue
        yield _version(name, version, "" if version else "not installed; optional")
    try:
        yield _version("Java", None, f"at {java_home()}, which Spark needs")
    except LakeIndexError as error:
        yield _version("Java", None, f"{error.message} Only Spark needs it.")


def _version(name: str, version: str | None, remark: str, ok: bool = True) -> dict[str, Any]:
    return {"name": name, "version": version, "ok": ok, "remark": remark}


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
