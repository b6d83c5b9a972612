"""Settings under which a hundred tiny queries take a minute instead of ten; what they answer is the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Tiny queries take far longer to compile than to interpret; a long run compiles some.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextlib.contextmanager
def small(spark: Any, *, compiled: bool) -> Iterator[None]:
    """The session with settings for small tables, as long as the block runs; queries are compiled or interpreted."""
    wanted = {key: value for key, value in _SMALL.items() if not compiled or "codegen" not in key}
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
