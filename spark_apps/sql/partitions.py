"""Which partitions of a table a ``PARTITION (…)`` clause means."""

from __future__ import annotations

from spark_apps.layout.partitions import canonical_string, parse_partition_path, value_of
from spark_apps.layout.types import parse_type
from spark_apps.sql.statements import PartitionSpec, Value
from spark_apps.storage.errors import InvalidInput
from spark_apps.table import IndexedTable


def matching(table: IndexedTable, spec: PartitionSpec) -> list[str]:
    """Paths of the partitions whose columns have these values; columns that are not named may have any.

    :raises InvalidInput: if a column is none that the table is partitioned by, or a value is not of its type.
    """
    definition = table.definition
    types = {field.name: field.type for field in definition.fields}
    places = {name.lower(): place for place, name in enumerate(definition.partition_by)}
    wanted: dict[int, str | None] = {}
    for name, value in spec:
        if name.lower() not in places:
            known = ", ".join(definition.partition_by) or "no column"
            raise InvalidInput(f"The table is not partitioned by {name!r}.", hint=f"It is partitioned by {known}.")
        place = places[name.lower()]
        column = definition.partition_by[place]
        wanted[place] = _text(value, types[column], column)
    found = []
    for path in table.partitions:
        texts = list(parse_partition_path(path).values())
        if all(texts[place] == text for place, text in wanted.items()):
            found.append(path)
    return found


def _text(value: Value, type_name: str, column: str) -> str | None:
    """The canonical text of a value, as the log keeps those of a partition."""
    if value is None:
        return None
    kind = parse_type(type_name)
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return canonical_string(value_of(text, kind, column), kind)
