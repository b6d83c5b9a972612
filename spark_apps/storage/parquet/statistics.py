"""Bounds and nulls that a Parquet footer gives of a column: how many are null, and between which the others are.

The only place that reads bounds from a footer, so that a value which Python or a reader does not know is no bound
everywhere, and no error anywhere. What a bound means to a predicate, or how a published log writes it, is for those who
ask.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_apps.storage.parquet.files import column_chunk


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the values of a column in some rows, and how many are null.

    :param nulls: how many are null; ``None`` where that was not counted.
    :param values: how many are not; ``None`` likewise, of a page that holds some.
    :param low: none of the others is lower, as Arrow gives it; ``None`` if no bound is known or Python has no such
        value: a year beyond 9999, a text that is no UTF-8. ``high`` likewise.
    """

    nulls: int | None
    values: int | None
    low: Any = None
    high: Any = None

    @property
    def only_nulls(self) -> bool:
        """True if there is no value but nulls."""
        return self.values == 0


def flat_columns(schema: Any) -> dict[str, int]:
    """Return the columns with one value a row, neither struct nor list nor map: name -> number among the leaves.

    A path does not distinguish them: that of the column `a.b` is also that of the field b of a struct a.

    :param schema: of the file, as :mod:`pyarrow.parquet` gives it.
    """
    leaves = ((number, schema.column(number)) for number in range(len(schema)))
    return {leaf.name: number for number, leaf in leaves if leaf.path == leaf.name and leaf.max_repetition_level == 0}


def column_name(leaf: Any) -> str:
    """Return the column that a leaf of a schema belongs to.

    :param leaf: as :mod:`pyarrow.parquet` gives it.
    """
    return str(leaf.name if leaf.path == leaf.name else leaf.path.split(".", 1)[0])


def bounds_of(statistics: Any) -> Bounds | None:
    """Return what the statistics of a column chunk say; ``None`` if they say nothing.

    :param statistics: as :mod:`pyarrow.parquet` gives them.
    """
    if statistics is None:
        return None
    nulls = statistics.null_count if statistics.has_null_count else None
    # The bytes of an INT96 have no order, and pyarrow 22 to 25 says that there are bounds but gives none.
    if not statistics.has_min_max or statistics.physical_type == "INT96":
        return Bounds(nulls, statistics.num_values)
    return Bounds(nulls, statistics.num_values, _value(statistics, "min"), _value(statistics, "max"))


def bounds_together(chunks: Iterable[Bounds | None]) -> Bounds | None:
    """Return what is known of the rows of several chunks of a column; ``None`` if nothing is known of one of them."""
    known: list[Bounds] = []
    for chunk in chunks:
        if chunk is None:
            return None
        known.append(chunk)
    filled = [chunk for chunk in known if not chunk.only_nulls]
    return Bounds(
        _sum([chunk.nulls for chunk in known]),
        _sum([chunk.values for chunk in known]),
        _extreme(min, [chunk.low for chunk in filled]),
        _extreme(max, [chunk.high for chunk in filled]),
    )


def column_bounds(metadata: Any, leaf: int) -> Bounds | None:
    """Return what a file's footer says of a column; ``None`` if it says nothing of one of its row groups.

    :param metadata: of the file, as :mod:`pyarrow.parquet` gives it. :param leaf: number among the leaves.
    """
    chunks = (column_chunk(metadata, number, leaf) for number in range(metadata.num_row_groups))
    return bounds_together(bounds_of(chunk.statistics) for chunk in chunks)


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [number for number in counts if number is not None]
    return sum(known) if len(known) == len(counts) else None


def _extreme(choose: Any, values: Sequence[Any]) -> Any:
    return None if not values or any(value is None for value in values) else choose(values)


def _value(statistics: Any, name: str) -> Any:
    try:
        return getattr(statistics, name)
    except NotImplementedError:  # by older pyarrows, of decimals that are stored as integers
        return _decimal(statistics, f"{name}_raw")
    except (OverflowError, ValueError):  # a year, or bytes that are no text
        return None


def _decimal(statistics: Any, name: str) -> Decimal | None:
    raw = getattr(statistics, name)
    return (
        Decimal(raw).scaleb(-json.loads(statistics.logical_type.to_json())["scale"]) if isinstance(raw, int) else None
    )
