"""Where the example DAGs of an installed package are, and how they come into a DAG folder of the user's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput


def example_dags_folder() -> Path:
    """The folder of the example DAGs, for reading and copying.

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
    taken = [source.name for source in sources if (target / source.name).exists()]
    if taken:
        raise InvalidInput(f"{target} has {', '.join(taken)} already.", hint="Name another folder, or move them away.")
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
