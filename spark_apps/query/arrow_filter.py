"""Predicates over Arrow tables: which rows satisfy one, exactly as Spark says.

Comparisons of plain types are Arrow's own. Where Arrow and Spark could differ (NaN, literals that are no value of the
column's type), each distinct value is judged by :mod:`spark_apps.query.predicates`, which decides for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from spark_apps.indexes.ranges import python_values, value_of
from spark_apps.layout.types import ColumnType, arrow_type, normalize, parse_type
from spark_apps.query.predicates import And, Comparison, Fixed, In, IsNull, Not, Opaque, Or, Predicate, outcomes
from spark_apps.storage.arrow_keys import in_one_piece
from spark_apps.storage.errors import InvalidSchema

_COMPARED = ("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "decimal")
"""Types, beside the integers, of which Arrow compares values as Spark does."""
_ARROW_NAMES = {"=": "equal", "<=>": "equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def satisfying(predicate: Predicate, rows: Any, types: Mapping[str, str]) -> Any:
    """Return for each row of an Arrow table whether a predicate is true, false or null for it, as an Arrow column.

    :param predicate: understood in every part. :param types: the Spark types of its columns.
    """
    return _Judge(rows, types).outcome(predicate)


class _Judge:
    def __init__(self, rows: Any, types: Mapping[str, str]) -> None:
        self._rows = rows
        self._types = types

    def outcome(self, node: Predicate) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        match node:
            case Fixed():
                return pa.repeat(pa.scalar(node.outcome, pa.bool_()), self._rows.num_rows)
            case Opaque():
                raise AssertionError(f"{node.text} cannot be judged without Spark")
            case Not():
                return pc.invert(self.outcome(node.part))
            case And():
                return reduce(pc.and_kleene, map(self.outcome, node.parts))
            case Or():
                return reduce(pc.or_kleene, map(self.outcome, node.parts))
            case IsNull():
                return pc.is_null(self._rows.column(node.column))
        column, kind = self._rows.column(node.column), parse_type(self._types[node.column])
        judged = self._by_arrow(node, column, kind)
        return self._by_value(node, column, kind) if judged is None else judged

    def _by_arrow(self, node: Comparison | In, column: Any, kind: ColumnType) -> Any:
        """Return what Arrow says, or ``None`` where that may not be what Spark says."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.type != arrow_type(kind):
            return None
        floating = kind.kind in ("float", "double")
        if not (kind.is_integer or kind.kind in _COMPARED or floating):
            return None
        try:
            if isinstance(node, In):
                if floating or not node.values:
                    return None
                return _in(node, column, pa.array([normalize(value, kind) for value in node.values], column.type))
            if not floating:
                literal = pa.scalar(normalize(node.literal, kind), column.type)
            elif type(node.literal) is float and node.literal == node.literal:
                # A float is compared as a double, of which a literal may have more digits.
                column, literal = column.cast(pa.float64()), pa.scalar(node.literal, pa.float64())
            else:
                return None
        except (pa.ArrowException, InvalidSchema, OverflowError):
            return None  # no value of the column's type
        compare: Callable[[Any, Any], Any] = getattr(pc, _ARROW_NAMES[node.op])
        compared = compare(column, literal)
        if floating and node.op in (">", ">="):
            compared = pc.or_(compared, pc.is_nan(column))  # the highest number for Spark
        return pc.fill_null(compared, False) if node.op == "<=>" else compared

    def _by_value(self, node: Comparison | In, column: Any, kind: ColumnType) -> Any:
        import pyarrow as pa

        encoded = in_one_piece(column).dictionary_encode(null_encoding="encode")
        each = []
        for value in python_values(encoded.dictionary):
            [outcome] = outcomes(node, {node.column: value_of(value, kind)})
            each.append(outcome)
        return pa.array(each, pa.bool_()).take(encoded.indices)


def _in(node: In, column: Any, values: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    matches = pc.is_in(column, value_set=values)
    null = pa.scalar(None, pa.bool_())
    if node.has_null:
        return pc.if_else(matches, True, null)
    return pc.if_else(pc.is_valid(column), matches, null)
