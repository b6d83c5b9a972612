"""``python -m spark_apps``: what one does with the apps from a shell.

``quickstart`` shows on this machine what an index does. ``bundle`` puts the apps where drivers on other machines can
read them: a folder here or on an object store.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_apps.jobs.bundle import ARCHIVE, PLATFORM, make_bundle, pack_environment
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
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m spark_apps")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "quickstart", add_help=False, help="a table of five million rows, an index, a query with and without"
    )
    bundle = commands.add_parser(
        "bundle", help="put the apps, and on request what they need beside Spark, into a folder or an object store"
    )
    bundle.add_argument("--to", required=True, metavar="FOLDER_OR_URI", help="a folder for this version is made in it")
    bundle.add_argument("--environment", action="store_true", help="with the libraries that the apps import")
    bundle.add_argument("--platform", default=PLATFORM, help="of the cluster's machines (default: %(default)s)")
    bundle.add_argument("--python", metavar="3.11", help="of the cluster's machines (default: the one that runs)")
    bundle.add_argument(
        "--options", type=Path, metavar="FILE", help="storage options as JSON; a file, since they may hold keys"
    )
    if given[:1] == ["quickstart"]:
        return _quickstart(given[1:])
    chosen = parser.parse_args(given)
    try:
        at, files, packed_names = publish(
            chosen.to, _options(chosen.options), chosen.environment, chosen.platform, chosen.python
        )
    except LakeIndexError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(_usage(at, files, packed_names))
    return 0


def _quickstart(arguments: Sequence[str]) -> int:
    try:
        from dags_examples import quickstart
    except ModuleNotFoundError:
        sys.stderr.write("The examples (package dags_examples) are not installed beside spark_apps.\n")
        return 1
    return quickstart.main(arguments)


def publish(
    to: str, options: dict[str, Any], environment: bool = False, platform: str = PLATFORM, python: str | None = None
) -> tuple[str, list[str], list[str]]:
    """Write the bundle of the installed apps below ``to``, in a folder that is named after version and content.

    What lies there already under that name is left as it is: it is the same.

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
