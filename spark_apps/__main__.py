"""``lakeindex``, or ``python -m spark_apps``: what one does with tables and the apps from a shell.

The commands about tables are in :mod:`spark_apps.cli`. This module has those of the apps: ``quickstart`` shows on this
machine what an index does; ``example`` makes the tables of the documents; ``bundle`` puts the apps where drivers on
other machines can read them, a folder of this machine or of an object store; ``libraries`` lists what those need.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spark_apps.cli.app import app, run
from spark_apps.jobs.bundle import ARCHIVE, PLATFORM, make_bundle, pack_environment, required_libraries
from spark_apps.storage.errors import InvalidInput, LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.version import __version__

# The settings for the import path of Spark's Python processes: executors, and drivers that the cluster starts.
_PYTHON_PATHS = (
    "spark.executorEnv.PYTHONPATH",
    "spark.yarn.appMasterEnv.PYTHONPATH",
    "spark.kubernetes.driverEnv.PYTHONPATH",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    return run(arguments)


@app.command("quickstart", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def quickstart(arguments: tuple[str, ...]) -> None:
    """Create a table and an index, and compare a query.

    The table has five million rows. Starts Spark.
    """
    from spark_apps.cli import quickstart as shown

    click.get_current_context().exit(shown.main(list(arguments)))


@app.command("example", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def example(arguments: tuple[str, ...]) -> None:
    """Make the tables of the documents in a folder.

    The Python blocks of the pages run on them. Starts Spark.
    """
    from spark_apps.cli import example as lake

    click.get_current_context().exit(lake.main(list(arguments)))


@app.command("bundle")
@click.option("--to", required=True, metavar="FOLDER_OR_URI", help="Where to put the folder of this version.")
@click.option("--environment", is_flag=True, help="Add the libraries that the apps import.")
@click.option("--platform", default=PLATFORM, show_default=True, help="The platform of the cluster's machines.")
@click.option("--python", metavar="3.11", help="The Python of the cluster's machines; by default the running one.")
@click.option(
    "--options", metavar="FILE", help="A file of storage options as JSON; a file, because they may contain keys."
)
def bundle(to: str, environment: bool, platform: str, python: str | None, options: str | None) -> None:
    """Put the apps into a folder or an object store.

    With --environment, also the libraries that they need besides Spark.
    """
    try:
        at, files, packed_names = publish(
            to, _options(None if options is None else Path(options)), environment, platform, python
        )
    except LakeIndexError as error:
        click.echo(str(error), err=True)
        click.get_current_context().exit(1)
    click.echo(_usage(at, files, packed_names), nl=False)


@app.command("libraries")
def libraries() -> None:
    """List what a cluster needs beside Spark and Python.

    Each library with the oldest version, as pip install -r reads it.
    """
    try:
        lines = required_libraries()
    except LakeIndexError as error:
        click.echo(str(error), err=True)
        click.get_current_context().exit(1)
    click.echo("\n".join(lines))


def publish(
    to: str, options: dict[str, Any], environment: bool = False, platform: str = PLATFORM, python: str | None = None
) -> tuple[str, list[str], list[str]]:
    """Write the bundle of the installed apps below ``to``, in a folder that is named after version and content.

    A file that the folder has already is left as it is: it is the same.

    :returns: the folder as Spark names it, the files in it, and the libraries of the environment.
    """
    bundle = make_bundle()
    store = Store(f"{to.rstrip('/')}/{__version__}-{bundle.digest[:12]}", options)
    files = sorted(path for path in bundle.folder.iterdir() if path.name != "complete")
    for path in files:
        if store.head(path.name) is None:
            store.put(path.name, path.read_bytes())
    names, packed_names = [path.name for path in files], []
    if environment:
        with tempfile.TemporaryDirectory(prefix="index-bundle-") as folder:
            packed = Path(folder) / ARCHIVE
            packed_names = pack_environment(packed, platform, python)
            store.put(ARCHIVE, packed.read_bytes())
        names.append(ARCHIVE)
    return store.spark_path(), names, packed_names


def _options(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"The storage options in {path} cannot be read: {error}.", hint="Give a JSON object."
        ) from None
    if not isinstance(options, dict):
        raise InvalidInput(f"{path} holds no JSON object.", hint='Write {"aws_region": "eu-central-1"}.')
    return options


def _usage(at: str, files: list[str], packed_names: list[str]) -> str:
    programs = ", ".join(name.removesuffix(".py") for name in files if name.endswith(".py"))
    lines = [
        f"{at}",
        f"  spark_apps.zip     for --py-files; version {__version__}",
        f"  <program>.py       one of: {programs}",
    ]
    extra: dict[str, Any] = {"bundle": at}
    if packed_names:
        lines.append(f"  {ARCHIVE}    for --archives: {', '.join(packed_names)}")
        conf = dict.fromkeys(_PYTHON_PATHS, "environment")
        extra |= {"archives": f"{at}/{ARCHIVE}#environment", "conf": conf}
    lines += ["", "In the extra of the Spark connection:", f"  {json.dumps(extra)}", "", "By hand:"]
    unpacked = (
        f" --archives {at}/{ARCHIVE}#environment --conf spark.executorEnv.PYTHONPATH=environment"
        if packed_names
        else ""
    )
    lines.append(f"  spark-submit --py-files {at}/spark_apps.zip{unpacked} {at}/<program>.py <path of the job>")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
