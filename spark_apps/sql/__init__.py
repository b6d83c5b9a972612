"""Index statements in SQL: their grammar, and an executor that runs them through the public table API.

Names are handed on lazily, so :func:`parse` needs no Spark: Airflow's side checks a script before it starts any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.storage.supported import import_with_pyspark

if TYPE_CHECKING:
    from spark_apps.sql.executor import run
    from spark_apps.sql.parser import parse
    from spark_apps.sql.results import Result, Results

_HOME_OF = {
    "Result": "spark_apps.sql.results",
    "Results": "spark_apps.sql.results",
    "parse": "spark_apps.sql.parser",
    "run": "spark_apps.sql.executor",
}

__all__ = ["Result", "Results", "parse", "run"]


def __getattr__(name: str) -> Any:
    """Import a public name where it lives, at first use."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_with_pyspark(home), name)
    globals()[name] = value
    return value
