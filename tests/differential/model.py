"""The raw rows of a keyed table, kept through changes of its columns and brought back by restores."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.differential.values import KEY_TYPES, KINDS, ORDERING_TYPES, PARTITION_TYPES
from tests.spark_apps.table_model import Model


@dataclass
class RawRows(Model):
    """A model whose columns change. ``ids`` tells a column for its life, whatever its name."""

    ids: list[int] = field(default_factory=list)
    shapes: dict[int, tuple[list[int], list[str], list[str]]] = field(default_factory=dict)
    next_id: int = 0

    def __post_init__(self) -> None:
        self.ids = list(range(len(self.names)))
        self.next_id = len(self.names)

    @property
    def ddl(self) -> str:
        return ddl_of(self.names, self.types)

    def typed(self) -> dict[str, str]:
        return dict(zip(self.names, self.types, strict=True))

    def committed(self, version: int) -> None:
        super().committed(version)
        self.shapes[version] = (list(self.ids), list(self.names), list(self.types))

    def restore(self, version: int) -> None:
        """Rows go back, columns do not: of those that came since, the rows of then know nothing."""
        ids = self.shapes[version][0]
        places = [ids.index(one) if one in ids else None for one in self.ids]
        rows = [tuple(None if at is None else row[at] for at in places) for row in self.versions[version].values()]
        self.rows = {self.identity(row): row for row in rows}
        self.deleted = dict(self.deleted_in[version])

    def add_column(self, name: str, type: str) -> None:
        self.names.append(name)
        self.types.append(type)
        self.ids.append(self.next_id)
        self.next_id += 1
        self.rows = {at: (*row, None) for at, row in self.rows.items()}

    def drop_column(self, name: str) -> None:
        at = self.names.index(name)
        for of_columns in (self.names, self.types, self.ids):
            del of_columns[at]  # type: ignore[attr-defined]
        self.rows = {key: row[:at] + row[at + 1 :] for key, row in self.rows.items()}

    def rename_column(self, name: str, to: str) -> None:
        self.names[self.names.index(name)] = to
        self.key = [to if one == name else one for one in self.key]
        self.ordering = to if self.ordering == name else self.ordering

    def widen_column(self, name: str, type: str) -> None:
        self.types[self.names.index(name)] = type

    def repeated_keys(self) -> bool:
        """Whether one record key stands in several partitions."""
        return len({at[1] for at in self.rows}) < len(self.rows)

    def dictionaries(self) -> list[dict[str, Any]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.rows.values()]


def ddl_of(names: list[str], types: list[str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in zip(names, types, strict=True))


def draw_table(rng: random.Random) -> tuple[RawRows, dict[str, Any]]:
    """A table of any shape, and the arguments that make it."""
    key = [f"k{n}" for n in range(rng.choice([1, 1, 1, 2]))]
    parts = [f"p{n}" for n in range(rng.choice([0, 1, 1, 2]))]
    names = {name: rng.choice(KEY_TYPES) for name in key}
    if rng.random() < 0.6:
        names["k0"] = rng.choice(["int", "bigint"])
    names |= {name: rng.choice(PARTITION_TYPES) for name in parts}
    names["city"] = "string"
    names |= {f"v{n}": rng.choice(list(KINDS)) for n in range(rng.choice([1, 2, 3]))}
    ordering = rng.choice([None, "ts", "ts"])
    if ordering:
        names["ts"] = rng.choice(ORDERING_TYPES)
    names["odd ñame"] = rng.choice(["string", "int"])
    columns = list(names)
    rng.shuffle(columns)
    merge_by = rng.choice(["commit", "ordering"]) if ordering else "commit"
    options: dict[str, Any] = {
        "partition_by": parts, "ordering_column": ordering, "merge_by": merge_by,
        "write_mode": rng.choice(["merge_on_read", "merge_on_read", "copy_on_write"]),
        **_layout(rng, key, parts, names),
    }  # fmt: skip
    if (merge_by, options["write_mode"]) == ("commit", "merge_on_read"):
        options["positions"] = rng.random() < 0.5
    model = RawRows(columns, [names[name] for name in columns], key, parts, ordering, merge_by)
    return model, options


def _layout(rng: random.Random, key: list[str], parts: list[str], types: dict[str, str]) -> dict[str, Any]:
    chance = rng.random()
    if chance < 0.2:
        return {"buckets": None, "properties": {"group_rows": str(rng.choice([3, 8, 1000]))}}
    options: dict[str, Any] = {"buckets": rng.choice([1, 2, 2, 3])}
    if len(key) > 1 and rng.random() < 0.5:
        options["hash_fields"] = [rng.choice(key)]
    java = all(types[name] not in ("binary",) for name in options.get("hash_fields", key))
    if java and rng.random() < 0.25:
        options["hash_function"] = "java"
    if parts and chance < 0.6:
        options |= draw_rules(rng, parts, types)
    return options


def draw_rules(rng: random.Random, parts: list[str], types: dict[str, str]) -> dict[str, Any]:
    """Bucket rules over the partitions."""
    name = parts[0]
    if types[name] in ("date", "int", "tinyint") and rng.random() < 0.6:
        border = "2024-01-02" if types[name] == "date" else "2"
        return {"bucket_rule": "range", "bucket_expressions": [(f"{name} < {border}", rng.choice([1, 4]))]}
    pattern = rng.choice([f"{name}=a", f"{name}=[0-9]", "a|1", "%2F"])
    return {"bucket_rule": "regex", "bucket_expressions": [(pattern, rng.choice([1, 4]))]}
