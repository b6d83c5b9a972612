"""``python -m airflow_provider_index``: what a user of the installed package asks it from a shell."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, LakeIndexError


def example_dags_folder() -> Path:
    """Return the folder of the example DAGs, for reading and copying.

    :raises EnvironmentMismatch: they are not installed beside this package.
    """
    folder: Path = _examples().folder()
    return folder


def copy_examples(target: Path, *subjects: str) -> list[Path]:
    """Copy the example DAGs into a folder, which is made if it is not there.

    :param target: the folder to copy to; files of the same name in it are never overwritten.
    :param subjects: only those of these subjects (``flights``, ``maintenance`` …); all by default.
    :returns: the files written, by name.
    :raises InvalidInput: files of these names are there already, or ``target`` is no folder.
    """
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"{target} is not a folder.", hint="Name a folder.")
    sources = _examples().examples(*subjects)
    existing = [source.name for source in sources if (target / source.name).exists()]
    if existing:
        raise InvalidInput(
            f"{target} has {', '.join(existing)} already.", hint="Name another folder, or move them away."
        )
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copyfile(source, target / source.name)) for source in sources]


def _examples() -> Any:
    try:
        import dags_examples
    except ModuleNotFoundError as error:
        raise EnvironmentMismatch(
            "The example DAGs (package dags_examples) are not installed.",
            hint="Reinstall airflow-provider-index: its wheel carries them.",
        ) from error
    return dags_examples


# --- ``python -m airflow_provider_index`` ---------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_index")
    commands = parser.add_subparsers(dest="command", required=True)
    examples = commands.add_parser("examples", help="print the folder of the example DAGs, or copy them")
    examples.add_argument("--copy-to", type=Path, metavar="FOLDER", help="copy them there; overwrites nothing")
    examples.add_argument("subjects", nargs="*", help="only these: flights, maintenance, events, transactions …")
    check = commands.add_parser(
        "check",
        help="compare what is installed of Spark; try what obstore and Spark can reach of a connection's warehouse",
    )
    check.add_argument(
        "table_conn_id", nargs="?", help="a connection of type index_table_store; without, only what is installed"
    )
    check.add_argument("--spark-conn-id", help="another Spark than the one that the connection names")
    check.add_argument("--no-spark", action="store_true", help="try obstore from this machine alone; starts no Spark")
    chosen = parser.parse_args(arguments)
    if chosen.command == "check":
        return _check(chosen.table_conn_id, chosen.spark_conn_id, not chosen.no_spark)
    try:
        lines = copy_examples(chosen.copy_to, *chosen.subjects) if chosen.copy_to else [example_dags_folder()]
    except LakeIndexError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _check(table_conn_id: str | None, spark_conn_id: str | None, with_spark: bool) -> int:
    """Print what is installed of Spark and what was tried; return 1 if anything failed."""
    try:
        sys.stdout.write(f"{_parts_of_spark()}\n")
    except LakeIndexError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0 if table_conn_id is None else _check_connection(table_conn_id, spark_conn_id, with_spark)


def _parts_of_spark() -> str:
    """Return which releases of Spark's parts and of Airflow's provider of Spark are installed.

    :raises EnvironmentMismatch: they do not fit together.
    """
    from spark_apps.jobs.environment import SPARK_PROVIDER, check_spark

    found = check_spark()
    parts = {"pyspark": found.pyspark, "pyspark-client": found.pyspark_client, SPARK_PROVIDER: found.provider}
    named = ", ".join(f"{name} {release}" for name, release in parts.items() if release)
    return f"Installed, and of releases that fit: {named}." if named else "Nothing of Spark is installed."


def _check_connection(table_conn_id: str, spark_conn_id: str | None, with_spark: bool) -> int:
    """Print what was tried of a connection and return 1 if anything failed."""
    from airflow_provider_index.hooks.connection_check import check_spark, check_store, unsupported_options
    from airflow_provider_index.hooks.table_store import TableStoreHook
    from spark_apps.storage.store_check import table_of

    # As Airflow's own commands: connections of its database are found as well, not only those of the environment.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    logging.getLogger("airflow_provider_index").setLevel(logging.WARNING)
    try:
        hook = TableStoreHook(table_conn_id)
        checks = check_store(hook)
        if with_spark:
            checks += check_spark(hook, spark_conn_id)
        more = unsupported_options(hook)
    except LakeIndexError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table_of(checks))
    if more:
        sys.stdout.write(f"Spark has no setting for the storage options {', '.join(more)}.\n")
    return 0 if all(one.ok for one in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
