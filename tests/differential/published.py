"""What other engines read of a published table, whole and by a predicate that lets them leave out files.

``deltalake`` reads in this process; DuckDB and Polars do in an environment of their own (:mod:`tests.foreign`), where
it can be had.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa

from benchmarks.peers import Peer
from tests.differential.predicates import Predicate
from tests.differential.tally import Tally
from tests.differential.values import draw, literal
from tests.spark_apps.table_model import Row

DECLINED = {
    "polars": re.compile("column mapping|reader features|Hive schema"),
    # It takes a dot in the name of a column for a path into a struct.
    "duckdb": re.compile(r"Predicate references unknown column: \w+\.\w"),
}
"""Engines that read a part of what is published, and what they say of the rest."""

_PEERS = ("duckdb", "polars-deltalake", "polars")
"""Engines that read in an environment of their own."""

_OPERATORS = ("=", "=", "<", "<=", ">", ">=")
_EXACT = ("tinyint", "int", "bigint", "string", "date", "timestamp", "boolean", "decimal(10,2)", "decimal(20,0)")
"""Types that all engines compare alike."""

_CASTS = {"timestamp": 'Timestamp(Microsecond, Some("UTC"))', "date": "Date32", "decimal(10,2)": "Decimal128(10, 2)",
          "decimal(20,0)": "Decimal128(20, 0)"}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """One comparison of a column, as each engine has it."""

    name: str
    type: str
    operator: str
    value: Any

    @property
    def predicate(self) -> Predicate:
        if self.value is None:
            return Predicate(f"`{self.name}` IS NULL", f'"{self.name}" IS NULL')
        spark, duck = literal(self.value, self.type)
        return Predicate(f"`{self.name}` {self.operator} {spark}", f'"{self.name}" {self.operator} {duck}')

    @property
    def datafusion(self) -> str:
        if self.value is None:
            return f'"{self.name}" IS NULL'
        text = self.value.isoformat() if self.type in ("date", "timestamp") else str(self.value)
        cast = _CASTS.get(self.type)
        written = f"arrow_cast('{text}', '{cast}')" if cast else literal(self.value, self.type)[1]
        return f'"{self.name}" {self.operator} {written}'

    @property
    def for_peers(self) -> dict[str, Any]:
        text = None
        if self.value is not None:
            text = self.value.isoformat() if self.type in ("date", "timestamp") else str(self.value)
        return {"name": self.name, "type": self.type, "operator": self.operator, "duck": self.predicate.duck,
                "text": text}  # fmt: skip


Question = tuple[Asked | None, list[Row]]


def draw_asked(rng: random.Random, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Asked | None:
    """A comparison with a value that some row has, mostly."""
    names = [name for name, kind in types.items() if kind in _EXACT]
    if not names:
        return None
    name = rng.choice(names)
    value = rng.choice(rows)[name] if rows and rng.random() < 0.8 else draw(rng, types[name])
    return Asked(name, types[name], rng.choice(_OPERATORS), value)


def check_readers(
    folder: str, names: list[str], questions: Sequence[Question], peer: Peer | None, tally: Tally, context: str
) -> None:
    """Compare what each engine reads with rows of the model.

    :param questions: each a comparison, ``None`` for the whole table, with the rows of the model that satisfy it.
    :raises AssertionError: naming the engine and what differs.
    """
    expected = [texts(rows) for _, rows in questions]
    for (asked, _), wanted in zip(questions, expected, strict=True):
        found = texts(_by_deltalake(folder, names, asked))
        assert found == wanted, f"{context}: deltalake reads of {asked}: {_difference(found, wanted)}"
        tally.add("published readers", "deltalake")
    if peer is None:
        return
    given = [asked.for_peers if asked else None for asked, _ in questions]
    answers = peer("matching", folder=folder, engines=_PEERS, names=names, asked=given).value
    for engine, (number, wanted) in itertools.product(_PEERS, enumerate(expected)):
        answer, asked = answers[engine][number], questions[number][0]
        if "declined" in answer:
            said = answer["declined"]
            assert engine in DECLINED and DECLINED[engine].search(said), f"{context}: {engine}: {said}"
            tally.add("published readers", f"{engine} declined")
            continue
        assert answer["rows"] == wanted, f"{context}: {engine} reads of {asked}: {_difference(answer['rows'], wanted)}"
        tally.add("published readers", engine)


def texts(rows: Sequence[Row]) -> list[str]:
    """Rows as texts, in order, times without their zone: engines spell it in several ways."""
    return sorted(repr(tuple(v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for v in row)) for row in rows)


def _by_deltalake(folder: str, names: list[str], asked: Asked | None) -> list[Row]:
    table = deltalake.DeltaTable(folder)
    found = pa.table(table.scan(predicate=asked.datafusion) if asked else table.scan())
    return list(zip(*(found[name].to_pylist() for name in names), strict=True)) if found.num_rows else []


def _difference(found: list[str], expected: list[str]) -> str:
    missing = [row for row in expected if row not in found]
    more = [row for row in found if row not in expected]
    return f"{len(found)} rows, not {len(expected)}; missing {missing[:3]}; too many {more[:3]}"
