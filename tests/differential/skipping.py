"""What a random skipping index keeps: of some columns some summaries, and of expressions that their types allow."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from spark_apps.indexes.registry import asked_by
from spark_apps.storage.errors import InvalidInput

_KINDS = ("minmax", "minmax", "values", "bloom", "nulls", "counts")


def draw_parts(rng: random.Random, types: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return the parts of an index over some columns."""
    parts: list[str] = []
    for name in names:
        text, quoted = types[name] == "string", f"`{name}`"
        kinds = [*_KINDS, "ngrams", "ngrams"] if text else _KINDS
        parts += [f"{kind}({quoted})" for kind in rng.sample(kinds, rng.choice([1, 1, 2]))]
        if rng.random() < 0.5:
            continue
        if text:
            called = rng.choice([f"lower({quoted})", f"upper({quoted})", f"length({quoted})", f"left({quoted}, 2)"])
            parts.append(f"{rng.choice(['values', 'bloom', 'minmax'])}({called})")
        elif types[name] == "date":
            parts.append(f"values(year({quoted}))")
        elif types[name] == "timestamp":
            parts.append(f"minmax(to_date({quoted}))")
    return list(dict.fromkeys(parts))


def draw_expressions(rng: random.Random, types: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return columns of an index, some of them as expressions."""
    called = {"string": ("lower({})", "upper({})", "length({})", "left({}, 1)"), "date": ("year({})",),
              "timestamp": ("to_date({})",)}  # fmt: skip
    return [
        rng.choice(called[types[name]]).format(f"`{name}`") if types[name] in called and rng.random() < 0.7 else name
        for name in names
    ]


def draw_properties(rng: random.Random, row_groups: bool = True) -> dict[str, str]:
    """Return properties by which little is kept of much, or much of little.

    :param row_groups: whether the files have row groups, of which records may be kept too.
    """
    drawn = {
        "most_values": rng.choice(["1", "3", "64"]),
        "false_positive_rate": rng.choice(["0.5", "0.01"]),
        "gram_bytes": rng.choice(["2", "3", "4"]),
    }
    # Of a generator of its own: what else a history does stays what it was.
    granularity = random.Random(str(drawn)).choice(["file", "row_group"])
    return {**drawn, "granularity": granularity} if row_groups else drawn


def asked_columns(table: Any) -> list[list[str]]:
    """Return the columns that each index of a table is asked by, but for those over a column that is gone."""
    asked = []
    for info in table.indexes.values():
        with contextlib.suppress(InvalidInput):
            asked.append(list(asked_by(table.definition, info.definition)))
    return asked
