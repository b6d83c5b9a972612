"""``python -m airflow_provider_index``: what a user of the installed package asks it from a shell."""

from __future__ import annotations

import argparse
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
    chosen = parser.parse_args(arguments)
    try:
        lines = copy_examples(chosen.copy_to) if chosen.copy_to else [example_dags_folder()]
    except LakeIndexError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
