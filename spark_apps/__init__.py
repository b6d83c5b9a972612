"""The lake's side: tables, their indexes and the commit log, for the bundled programs and for notebooks.

Names are handed on lazily (PEP 562), so importing this package, or its Spark-free parts, imports neither
pyspark nor pyarrow. It never imports Airflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_apps.storage.supported import check_python as _check_python

# First of all: what follows does not even compile everywhere.
_check_python()

from spark_apps.moved import install as _install_old_names  # noqa: E402
from spark_apps.storage.supported import import_with_pyspark  # noqa: E402
from spark_apps.version import __version__  # noqa: E402

if TYPE_CHECKING:
    from spark_apps import sql
    from spark_apps.arrow_table import open_table
    from spark_apps.indexes.included_columns import IncludedColumns
    from spark_apps.optimizer.session import disable, enable, explain
    from spark_apps.table import IndexedTable, register_data_source
    from spark_apps.timeline.model import Receipt

_HOME_OF = {
    "IncludedColumns": "spark_apps.indexes.included_columns",
    "IndexedTable": "spark_apps.table",
    "Receipt": "spark_apps.timeline.model",
    "disable": "spark_apps.optimizer.session",
    "enable": "spark_apps.optimizer.session",
    "explain": "spark_apps.optimizer.session",
    "open_table": "spark_apps.arrow_table",
    "register_data_source": "spark_apps.table",
}

__all__ = [
    "IncludedColumns",
    "IndexedTable",
    "Receipt",
    "__version__",
    "disable",
    "enable",
    "explain",
    "open_table",
    "register_data_source",
    "sql",
]

_install_old_names()


def __getattr__(name: str) -> Any:
    """Import a public name where it lives, at first use."""
    if name == "sql":
        return import_module("spark_apps.sql")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_with_pyspark(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, "sql"})
