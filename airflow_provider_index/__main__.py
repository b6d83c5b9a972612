"""``python -m airflow_provider_index``: what a user of the installed package asks it from a shell."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_index.examples import copy_examples, example_dags_folder
from spark_apps.storage.errors import LakeIndexError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_index")
    commands = parser.add_subparsers(dest="command", required=True)
    examples = commands.add_parser("examples", help="print the folder of the example DAGs, or copy them")
    examples.add_argument("--copy-to", type=Path, metavar="FOLDER", help="copy them there; overwrites nothing")
    examples.add_argument("subjects", nargs="*", help="only these: flights, maintenance, events, transactions …")
    check = commands.add_parser("check", help="try what obstore and Spark can reach of a connection's warehouse")
    check.add_argument("table_conn_id", help="a connection of type index_table_store")
    check.add_argument("--spark-conn-id", help="another Spark than the one that the connection names")
    check.add_argument("--no-spark", action="store_true", help="try obstore from here alone; starts no Spark")
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


def _check(table_conn_id: str, spark_conn_id: str | None, with_spark: bool) -> int:
    """Prints what was tried; returns 1 if anything failed."""
    from airflow_provider_index.checking import check_spark, check_store, untold
    from airflow_provider_index.hooks.table_store import TableStoreHook

    # As Airflow's own commands: connections of its database are found as well, not only those of the environment.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    logging.getLogger("airflow_provider_index").setLevel(logging.WARNING)
    try:
        hook = TableStoreHook(table_conn_id)
        found = check_store(hook)
        if with_spark:
            found += check_spark(hook, spark_conn_id)
        more = untold(hook)
    except LakeIndexError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{one.line()}\n" for one in found)
    if more:
        sys.stdout.write(f"Spark has no setting for the storage options {', '.join(more)}.\n")
    return 0 if all(one.ok for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
