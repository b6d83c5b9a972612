"""DAGs to copy, a folder for each subject, and the demo that runs some of them: ``python -m dags_examples.demo``.

:func:`folder` returns where they are in an installed wheel.
"""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """The folder of the example DAGs, to copy from or to point Airflow's ``dags_folder`` to."""
    return Path(__file__).parent


def examples(*subjects: str) -> list[Path]:
    """The files of the examples, and the descriptions that they read, sorted by name.

    :param subjects: only these folders (``flights``, ``maintenance`` …); by default all but the demo's own.
    """
    packages = (path.parent.name for path in folder().glob("*/__init__.py"))
    chosen = subjects or tuple(name for name in packages if name != "demo")
    files = (path for subject in chosen for path in (folder() / subject).glob("*.*"))
    return sorted(
        (path for path in files if path.suffix in (".py", ".yaml") and path.name != "__init__.py"),
        key=lambda path: path.name,
    )
