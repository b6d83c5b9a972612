"""A table as a dataset of Arrow, for engines in this process which push filters and columns down to one (DuckDB)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.arrow_expressions import predicate_of_expression
from spark_apps.query.arrow_reading import arrow_plan, arrow_schema, check_readable
from spark_apps.query.logged import Asked, note_query
from spark_apps.query.planning import plan_read
from spark_apps.query.predicates import Filter, columns_of


def arrow_dataset(snapshot: Snapshot) -> Any:
    """Return a ``pyarrow.dataset.Dataset`` of the rows of a table, which knows :meth:`scanner` and ``schema`` alone.

    :raises UnsupportedSource: naming what only Spark can read.
    """
    check_readable(snapshot)
    return _dataset_class()(snapshot)


@cache
def _dataset_class() -> type[Any]:
    """Return the class, which is made where Arrow's library of datasets is first needed."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    class TableDataset(ds.Dataset):
        """The rows of a table at one version."""

        def __init__(self, snapshot: Snapshot) -> None:
            self._snapshot = snapshot
            self._schema = arrow_schema(snapshot, snapshot.data.columns)

        @property
        def schema(self) -> Any:
            return self._schema

        def __repr__(self) -> str:
            return f"TableDataset({self._snapshot.store.uri!r}, version={self._snapshot.state.version})"

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_options: Any) -> Any:
            """Return what reads some columns of the rows for which an expression is true."""
            names = list(self._schema.names if columns is None else columns)
            return _Scanner(self._snapshot, self._schema, names, filter)

    class _Scanner:
        """A query of the table; :meth:`to_reader` plans it."""

        def __init__(self, snapshot: Snapshot, schema: Any, names: Sequence[str], expression: Any) -> None:
            self._snapshot, self._names, self._expression = snapshot, list(names), expression
            self._schema = schema
            self.projected_schema = pa.schema([schema.field(name) for name in names])

        def to_reader(self) -> Any:
            return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

        def _batches(self) -> Iterator[Any]:
            started = time.perf_counter()
            where, read = None, self._names
            if self._expression is not None:
                types = self._snapshot.data.types
                predicate = predicate_of_expression(self._expression, self._schema, types)
                where, named = Filter(predicate, str(self._expression), sql=False), columns_of(predicate)
                read = list(dict.fromkeys([*self._names, *(name for name in self._schema.names if name in named)]))
            plan = plan_read(self._snapshot, where, read)
            note_query(plan, Asked(self._names), started)
            for batch in arrow_plan(plan, read, None).batches():
                rows = pa.Table.from_batches([batch])
                if self._expression is not None:
                    rows = rows.filter(self._expression)
                yield from rows.select(self._names).to_batches()

    return TableDataset
