"""DAGs to copy, and the demo that runs them: ``python -m dags_examples.demo``.

``dags_examples.flights`` holds the DAG files; :func:`folder` tells where they lie in an installed wheel.
"""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """The folder of the example DAGs, to copy from or to point Airflow's ``dags_folder`` to."""
    return Path(__file__).parent / "flights"
