"""Random histories in which little means what it seems to: sessions whose zone, mode and parsers change between builds
and queries, text with damaged rows, files that only their paths tell apart, literals at the bounds of types and beyond
them, bytes that are no text, ``*`` in predicates.

What is right is what plain Spark makes of the same rows in the same session: of a source's files as they are read by
themselves, with the zone of the registration.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.datasource import IndexedDataSource
from spark_apps.engine.spark_versions import from_arrow, to_arrow
from spark_apps.mergetree.schema import parse_simple_string
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, LakeIndexError, UnsupportedSource
from tests.differential.keyed import Keyed
from tests.differential.plain import Way, count_decisions, decisions_of, enabled, files_way
from tests.differential.registered import Registered
from tests.differential.skipping import draw_parts
from tests.differential.steps import Step
from tests.differential.tally import Tally
from tests.differential.values import KINDS, arrow, literal
from tests.spark.local import session_with

Said = dict[str, str]

ZONES = ("UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata")
_PUSHDOWN = "spark.sql.parquet.filterPushdown"

_NUMBERS = (
    "1", "-1", "127Y", "-128Y", "128", "CAST(128 AS TINYINT)", "-CAST(128 AS TINYINT)", "TRY_CAST(128 AS TINYINT)",
    "CAST(32768 AS SMALLINT)", "CAST(2147483648 AS INT)", "TRY_CAST(2147483648 AS INT)", "9223372036854775807",
    "-9223372036854775808L", "1.5", "'1'", "NULL", "CAST(1 AS BIGINT)", "TRY_CAST('x' AS INT)",
)  # fmt: skip
_TIMES = (
    "TIMESTAMP '2024-01-01 05:00:00'", "'2024-01-01 05:00:00'", "CAST('2024-01-01 05:00:00+02:00' AS TIMESTAMP)",
    "'2024-01-01 05:00:00Z'::timestamp", "TIMESTAMP '2024-01-01 05:00:00+09:00'", "TIMESTAMP '9999-12-31 23:59:59'",
    "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '+10000-01-01 00:00:00Z'", "TIMESTAMP_NTZ '2024-01-01 05:00:00'",
    "DATE '2024-01-01'", "TRY_CAST('x' AS TIMESTAMP)", "'2024-01-01T05:00:00Z'",
)  # fmt: skip
_LITERALS: dict[str, Sequence[str]] = {
    "tinyint": _NUMBERS, "int": _NUMBERS, "bigint": _NUMBERS, "timestamp": _TIMES, "timestamp_ntz": _TIMES,
    "date": ("DATE '9999-12-31'", "DATE '0001-01-01'", "DATE '+10000-01-01'", "DATE '-0001-01-01'", "'2024-01-01'",
             "DATE '2024-01-01'", "CAST('2024-01-01' AS DATE)", "DATE '2024-02-29'"),
    "string": ("'a'", "''", "'b'", "'ü'", "'1.10'", "cast(X'FF' AS string)", "cast(X'61FF' AS string)", "'city 1'"),
}  # fmt: skip
_STARS = ("hash(*) % 3 = 0", "struct(*).`{0}` IS NULL", "xxhash64(*, 1) % 2 = 0", "identifier('{0}') IS NOT NULL",
          "size(array(struct(*))) = 1 AND `{0}` IS NOT NULL")  # fmt: skip
_CORRUPT = "_corrupt_record"
_OPERATORS = ("=", "=", "=", "<>", "<", "<=", ">", ">=", "<=>", "!>", "!<")


def draw_session(rng: random.Random, tally: Tally) -> Said:
    """Settings that a session may have; each that is not Spark's own is counted."""
    said = {"spark.sql.session.timeZone": rng.choice(ZONES), "spark.sql.ansi.enabled": rng.choice(["true", "false"])}
    for name, value, share in (
        ("spark.sql.timestampType", "TIMESTAMP_NTZ", 0.2), ("spark.sql.legacy.timeParserPolicy", "LEGACY", 0.1),
        ("spark.sql.caseSensitive", "true", 0.1), ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY", 0.15),
        ("spark.sql.json.enablePartialResults", "false", 0.07),
        ("spark.sql.columnNameOfCorruptRecord", "s", 0.1),
    ):  # fmt: skip
        if rng.random() < share:
            said[name] = value
    for name, value in said.items():
        tally.add("odd sessions", f"{name.removeprefix('spark.sql.')}={value}")
    return said


class OddQuestions:
    """Asks a table what plain Spark is asked of the same rows, in one session, and compares.

    ``ways`` gives the ways in which a table is named in plain queries, of which such a share of the questions is put.
    """

    ways: Callable[[Any], list[Way]] = staticmethod(lambda _: [])

    def __init__(self, spark: Any, seed: int, tally: Tally, share: float) -> None:
        self.spark, self.rng, self.tally = spark, random.Random(f"odd questions {seed}"), tally
        self.share, self.plain = share, random.Random(f"odd plain {seed}")

    def ask(self, table: Any, rows: pa.Table, types: dict[str, str], said: Said, history: str) -> None:
        """:param rows: all that the table holds. :param types: its columns in declared order, and their types."""
        where = self._predicate(types, rows)
        columns = None if self.rng.random() < 0.3 else self.rng.sample(list(types), self.rng.randrange(1, len(types)))
        if _CORRUPT in types and (_CORRUPT in where or _CORRUPT in (columns or ())):
            columns = None  # which lines it holds depends on the columns that are read, and the rows given are of all
        # Plain Spark loses rows of Parquet where a literal is no text.
        apart = {_PUSHDOWN: "false"} if "X'" in where else {}
        with session_with(self.spark, {**said, **apart}):
            context = f"{history}\n{said}: {where!r} of {columns}"
            try:
                # By Arrow's types alone a time without a zone would be one of the session's.
                schema = StructType([StructField(name, parse_simple_string(kind)) for name, kind in types.items()])
                frame = from_arrow(self.spark, rows, schema).where(where)
                expected = _shown(frame.selectExpr(*(f"`{name}`" for name in columns or types)))
            except PySparkException:
                self.tally.add("odd questions", "refused by Spark")
                return
            try:
                plan = self.tally.plan(table, where, columns, False)
                actual = _shown(table.read(where, columns))
            except (LakeIndexError, PySparkException, ValueError, OverflowError) as error:
                if isinstance(error, PySparkException) and "[CAST_" in str(error):
                    # Which part of a predicate Spark computes first, and so whether a cast fails, is its own affair.
                    self.tally.add("odd questions", "a cast failed")
                    return
                raise AssertionError(f"{context}: {type(error).__name__}: {error}") from error
            assert actual == expected, f"{context}: {_differ(actual, expected)}\n{plan}"
            self.tally.add("odd questions", "compared")
            self.tally.add("odd questions", "matching rows", sum(expected.values()))
            if self.rng.random() < 0.4:
                self._by_data_source(table, where, columns or list(types), expected, context)
            ways = self.ways(table) if self.plain.random() < self.share else []
            if ways:
                self._plainly(self.plain.choice(ways), where, columns or list(types), expected, context)

    def _plainly(self, way: Way, where: str, columns: Sequence[str], expected: Counter[Any], context: str) -> None:
        """The same by a frame, with the rule in the session; of files, as Spark reads them in this session."""
        assert way.frame is not None

        def ask(rows: Any) -> Counter[Any]:
            return _shown(rows.where(where).selectExpr(*(f"`{name}`" for name in columns)))

        try:
            if way.unruled is not None:
                expected = ask(way.unruled())
            actual, decisions = decisions_of(self.spark, lambda: ask(way.frame()))  # type: ignore[misc]
        except (LakeIndexError, PySparkException, ValueError, OverflowError) as error:
            if isinstance(error, PySparkException) and ("[CAST_" in str(error) or way.unruled is not None):
                self.tally.add("odd questions", "refused by Spark, asked plainly")
                return
            raise AssertionError(f"{context}, as {way.kind}: {type(error).__name__}: {error}") from error
        assert actual == expected, f"{context}, as {way.kind}: {_differ(actual, expected)}\n{decisions}"
        count_decisions(self.tally, decisions, f"odd {way.kind}", f"{context}, as {way.kind}")

    def _predicate(self, types: dict[str, str], rows: pa.Table) -> str:
        parts = [self._atom(types, rows) for _ in range(self.rng.choice([1, 1, 2, 3]))]
        text = parts[0]
        for part in parts[1:]:
            text = f"({text}) {self.rng.choice(['AND', 'OR', 'AND NOT'])} ({part})"
        return text

    def _atom(self, types: dict[str, str], rows: pa.Table) -> str:
        name = self.rng.choice(list(types))
        chance = self.rng.random()
        if chance < 0.15:
            self.tally.add("odd literals", "*")
            return self.rng.choice(_STARS).format(name)
        if chance < 0.25:
            return f"`{name}` IS {self.rng.choice(['', 'NOT '])}NULL"
        if chance < 0.35:
            items = ", ".join(self._literal(name, types, rows) for _ in range(self.rng.randrange(1, 4)))
            return f"`{name}` {self.rng.choice(['', 'NOT '])}IN ({items})"
        if chance < 0.45:
            low, high = self._literal(name, types, rows), self._literal(name, types, rows)
            return f"`{name}` BETWEEN {low} AND {high}"
        return f"`{name}` {self.rng.choice(_OPERATORS)} {self._literal(name, types, rows)}"

    def _literal(self, name: str, types: dict[str, str], rows: pa.Table) -> str:
        kind = types[name]
        if rows.num_rows and self.rng.random() < 0.4 and kind in KINDS:
            with contextlib.suppress(ValueError, OverflowError):  # one that Python does not know
                value = rows.column(name)[self.rng.randrange(rows.num_rows)].as_py()
                if kind == "timestamp" and value is not None:
                    return f"TIMESTAMP '{value.strftime('%Y-%m-%d %H:%M:%S.%f').rjust(26, '0')}Z'"
                return literal(value, kind)[0]
        known = _LITERALS.get(kind)
        if known is None:
            return literal(self.rng.choice(KINDS[kind].values), kind)[0]
        text = self.rng.choice(known)
        self.tally.add("odd literals", text)
        return text

    def _by_data_source(
        self, table: Any, where: str, columns: Sequence[str], expected: Counter[Any], context: str
    ) -> None:
        place = {"path": table.uri, "version": str(table.version)}
        if table.definition.source is not None:
            place = {"path": table.uri}
        source = IndexedDataSource({**place, "where": where})
        try:
            whole = source.schema()
            reader = pickle.loads(pickle.dumps(source.reader(StructType([whole[name] for name in columns]))))
            parts = source.reader(StructType([whole[name] for name in columns])).partitions()
            batches = [batch for part in parts for batch in reader.read(pickle.loads(pickle.dumps(part)))]
        except (UnsupportedSource, InvalidPredicate) as declined:
            self.tally.add("declined by the data source", type(declined).__name__)
            return
        except (LakeIndexError, ValueError, OverflowError) as error:
            raise AssertionError(f"{context}, by the data source: {type(error).__name__}: {error}") from error
        actual = _of_arrow(pa.Table.from_batches(batches)) if batches else Counter()
        assert actual == expected, f"{context}, by the data source: {_differ(actual, expected)}"
        self.tally.add("read paths", "data source")


def _shown(frame: Any) -> Counter[Any]:
    return _of_arrow(to_arrow(frame))


def _of_arrow(table: pa.Table) -> Counter[Any]:
    """Rows as a multiset, of values that Python need not know."""
    columns = [_raw(column) for column in table.columns]
    return Counter(map(repr, zip(*columns, strict=True))) if table.num_rows else Counter()


def _raw(column: Any) -> list[Any]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()).to_pylist()
    if pa.types.is_date(kind):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_pylist()
    return [bytes(value) if isinstance(value, memoryview) else value for value in column.to_pylist()]


def _differ(actual: Counter[Any], expected: Counter[Any]) -> str:
    missing, more = list((expected - actual).elements()), list((actual - expected).elements())
    return f"{len(missing)} rows missing, such as {missing[:3]}; {len(more)} too many, such as {more[:3]}"


# --- keyed tables -----------------------------------------------------------------------------------------------


class OddKeyed(Keyed):
    """A keyed table, asked in sessions of all kinds."""

    any_session = True

    def run(self) -> None:
        self.odd = OddQuestions(self.spark, self.seed, self.tally, self.plain)
        self.odd.ways = lambda table: [Way("frame", frame=table.frame)]
        super().run()
        self.tally.add("histories", "odd keyed")

    def step(self, step: Step) -> None:
        """In any session, as far as the step means the same there."""
        said = draw_session(self.odd.rng, self.tally)
        said.pop("spark.sql.timestampType", None)  # the columns' types are given by their names
        if step.kind.startswith("delete where"):
            said = {}
        if step.kind.startswith("refresh"):  # of what was computed in another session
            step = replace(step, refusals=(*step.refusals, InvalidInput))
        with session_with(self.spark, said):
            super().step(step)

    def check(self, last: bool) -> None:
        types = self.model.typed()
        rows = arrow(list(self.model.rows.values()), types)
        for _ in range(self.questions + 1):
            self.odd.ask(self.table, rows, types, draw_session(self.odd.rng, self.tally), self.history)


# --- sources ----------------------------------------------------------------------------------------------------


class OddRegistered(Registered):
    """A source of any format, Delta and Iceberg too, asked in sessions of all kinds."""

    def run(self) -> None:
        self.odd = OddQuestions(self.spark, self.seed, self.tally, self.plain)
        self.odd.ways = lambda table: [way for way in self.ways(table) if way.frame is not None]
        # Spark's own filter of ORC fails at nulls in lists.
        with session_with(self.spark, {"spark.sql.orc.filterPushdown": "false"}):
            super().run()
        self.tally.add("histories", "odd registered")

    def check(self) -> None:
        types = dict(zip(self.owner.names, self.owner.types, strict=True))
        rows = arrow(self.owner.rows, types)
        for _ in range(self.questions + 1):
            said = draw_session(self.odd.rng, self.tally)
            said.pop("spark.sql.legacy.timeParserPolicy", None)  # by which old days in text are others
            self.odd.ask(self.table, rows, types, said, self.history)


_MOMENTS = (
    "2024-01-01 05:00:00", "2024-01-01T05:00:00Z", "2024-01-01 14:00:00", "2024-01-01", "2023-12-31 19:00:00",
    "2024-06-01 05:00:00+02:00", "1500-01-01 00:00:00", "Mon", "", "2024-13-01", "+10000-01-01 00:00:00",
)  # fmt: skip
_DATES = ("2024-01-01", "2024-1-1", "2024-02-30", "9999-12-31", "0001-01-01", "+10000-01-01", "x", "", "01/02/2024")
_WORDS = ("a", "b", "ü", "", "1.10", "city 1", "a b")
_PARTS = ("a b", "c:d", "|", "<x>", "{y}", "^", "e/f", "ü☃", "%41", "i'j", "=")
_FAR = 4_000_000


@dataclass
class OddSource:
    """One history of a source."""

    spark: Any
    path: Path
    seed: int
    tally: Tally
    steps: int = 4
    questions: int = 3
    plain: float = 0.3
    done: list[str] = field(default_factory=list)

    columns: ClassVar[dict[str, str]] = {
        "id": "int", "t": "tinyint", "n": "bigint", "ts": "timestamp", "l": "timestamp_ntz", "d": "date", "s": "string",
    }  # fmt: skip

    def run(self) -> None:
        self.rng = random.Random(f"odd {self.seed}")
        self.odd = OddQuestions(self.spark, self.seed, self.tally, self.plain)
        self.form = self.rng.choice(["csv", "json", "json", "parquet", "parquet"])
        self.layout = self.rng.choice(["flat", "parts", "parts", "deep"])
        self.zone = self.rng.choice(ZONES)
        self.options: dict[str, str] = {}
        if self.form != "parquet" and self.rng.random() < 0.2:
            self.options["timeZone"] = self.zone = self.rng.choice(ZONES)
        self.types = dict(self.columns)
        if self.form != "parquet" and self.rng.random() < 0.5:
            self.types[_CORRUPT] = "string"
        self.held = dict(self.types)
        if self.layout != "flat":
            self.types |= {"part": "string"} if self.layout == "parts" else {"y": "int", "part": "string"}
        self.files: list[Path] = []
        self.clock = 1_700_000_000
        for _ in range(3):
            self.append()
        self.said = f"seed {self.seed}, {self.form}, {self.layout}, {self.zone}, {self.options}"
        self.tally.add("odd sources", f"{self.form} {self.layout}")
        with self._registered():
            ddl = ", ".join(f"{name} {kind}" for name, kind in self.types.items())
            self.table = IndexedTable.register(
                self.spark, self.path / "source", format=self.form, schema=ddl.replace("timestamp,", "timestamp_ltz,"),
                options=self.options, index_root=self.path / "log", name="t",
            )  # fmt: skip
        with enabled(self.spark, self.path.parent):
            self._go_on()
        self.tally.add("histories", "odd sources")

    def ways(self, table: Any) -> list[Way]:
        """The ways in which the source is named in plain queries."""
        ddl = ", ".join(f"{name} {kind}" for name, kind in self.types.items()).replace("timestamp,", "timestamp_ltz,")
        return [
            Way("frame", frame=table.frame),
            files_way(self.spark, self.form, self.path / "source", ddl, self.options),
        ]

    def _go_on(self) -> None:
        self.odd.ways = self.ways
        for _ in range(2):
            self.create_index()
        for _ in range(self.steps):
            self.rng.choice([self.append, self.append, self.remove, self.rewrite, self.refresh, self.refresh,
                             self.create_index])()  # fmt: skip
            self.table = IndexedTable.load(self.spark, self.path / "log" / "t")
            self.check()
        with self._registered():
            for name, info in self.table.indexes.items():
                report = self.table.verify(name)
                assert report.ok, f"{self.history}: index {name} ({info.kind} over {info.columns}): {report}"
                self.tally.add("verified", info.kind)

    @property
    def history(self) -> str:
        return f"{self.said}\n{' > '.join(self.done)}"

    def _registered(self) -> Any:
        """The session in which the source is registered."""
        return session_with(self.spark, {"spark.sql.session.timeZone": self.zone})

    # --- its owner ------------------------------------------------------------------------------------------------

    def append(self) -> None:
        part = self.rng.choice(_PARTS)
        self.tally.add("odd sources", f"under {part}" if self.layout != "flat" else "flat")
        folder = self.path / "source"
        if self.layout != "flat":
            name = "".join(f"%{ord(c):02X}" if c in '%:/="\\^' else c for c in part)
            folder = folder / (
                f"part={name}" if self.layout == "parts" else f"y={self.rng.randrange(2020, 2023)}/part=a"
            )
        # Names alike, and often sizes: then only whole paths tell files apart.
        name = self.rng.choice(["part-0", f"f {len(self.done)}"]) if self.layout != "flat" else f"f {len(self.done)}"
        self._write(folder / f"{name}.{self.form}")
        self.done.append(f"append {folder.name}/{name}")

    def remove(self) -> None:
        if len(self.files) > 1:
            path = self.rng.choice(self.files)
            path.unlink()
            self.files.remove(path)
            self.done.append(f"remove {path.name}")

    def rewrite(self) -> None:
        path = self.rng.choice(self.files)
        self._write(path)
        self.done.append(f"rewrite {path.name}")

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        count = self.rng.choice([4, 4, 4, 9])
        if self.form == "parquet":
            pq.write_table(self._table(count), path, row_group_size=3)
        else:
            lines = [self._json() if self.form == "json" else self._csv() for _ in range(count)]
            path.write_bytes(b"".join(lines).ljust(900 if self.rng.random() < 0.6 else 0, b"\n"))
        self.clock += 10
        os.utime(path, (self.clock, self.clock))
        if path not in self.files:
            self.files.append(path)

    def _table(self, count: int) -> pa.Table:
        words = [*(word.encode() for word in _WORDS), b"\xff", b"a\xff", None]
        days = [19723, 19723, 0, 2932896, -719162, _FAR, -_FAR, None]
        drawn_words = [self.rng.choice(words) for _ in range(count)]
        drawn_days = [self.rng.choice(days) for _ in range(count)]
        self.tally.add("odd values", "no text", sum(word is not None and b"\xff" in word for word in drawn_words))
        self.tally.add(
            "odd values", "out of the years", sum(day is not None and abs(day) == _FAR for day in drawn_days)
        )
        micros = pa.array([None if day is None else day * 86_400_000_000 + 18_000_000_000 for day in drawn_days])
        return pa.table({
            "id": pa.array([self.rng.randrange(20) for _ in range(count)], pa.int32()),
            "t": pa.array([self.rng.choice([-128, 127, 0, 1, None]) for _ in range(count)], pa.int8()),
            "n": pa.array([self.rng.choice([1, 5, 2**63 - 1, -(2**63), None]) for _ in range(count)], pa.int64()),
            "ts": micros.view(pa.timestamp("us", "UTC")), "l": micros.view(pa.timestamp("us")),
            "d": pa.array(drawn_days, pa.int32()).view(pa.date32()),
            "s": pa.array(drawn_words, pa.binary()).view(pa.string()),
        })  # fmt: skip

    def _fields(self) -> list[Any]:
        return [self.rng.randrange(20), self.rng.choice([1, 127, -128, 128, "x", None]),
                self.rng.choice([1, 5, 9223372036854775807, 1.5, "5", None]), self.rng.choice(_MOMENTS),
                self.rng.choice(_MOMENTS), self.rng.choice(_DATES), self.rng.choice([*_WORDS, None])]  # fmt: skip

    def _json(self) -> bytes:
        pairs = list(zip(self.columns, self._fields(), strict=True))
        self.rng.shuffle(pairs)
        line = json.dumps({name: value for name, value in pairs if value is not None}, ensure_ascii=False)
        if self.rng.random() < 0.25:
            self.tally.add("odd values", "damaged rows")
            line = self.rng.choice([line[: self.rng.randrange(len(line))], "no json", line[:-1], f"{line},", "[1]"])
        return line.replace("\n", " ").encode() + b"\n"

    def _csv(self) -> bytes:
        line = ",".join("" if value is None else str(value) for value in self._fields())
        if self.rng.random() < 0.25:
            self.tally.add("odd values", "damaged rows")
            line = self.rng.choice([line.rpartition(",")[0], f"{line},more,more", ",,", "x", f'{line[:5]}"'])
        return line.encode() + b"\n"

    # --- its indexes ----------------------------------------------------------------------------------------------

    def create_index(self) -> None:
        kind = self.rng.choice(["secondary", "compact", "covering", "skipping"])
        columns = self.rng.choice([["ts"], ["d"], ["s"], ["n"], ["t"], ["l"], ["id"], ["s", "id"]])
        more: dict[str, Any] = {}
        if kind == "covering":
            others = [name for name in self.held if name not in columns]
            more["included"] = IncludedColumns(include=self.rng.sample(others, self.rng.randrange(4)))
            more["properties"] = {"buckets": 2, "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
        if kind == "skipping":
            columns = draw_parts(self.rng, self.types, columns)
        self._by_index(f"create {kind} {columns}", f"i{len(self.done)}", "create_index", kind, columns, **more)

    def refresh(self) -> None:
        if self.table.indexes:
            name = self.rng.choice(sorted(self.table.indexes))
            self._by_index("refresh", name, "refresh_index", self.rng.choice(["incremental", "full"]))

    def _by_index(self, what: str, name: str, call: str, *given: Any, **more: Any) -> None:
        """Something done to an index in any session; one that reads the files otherwise is refused."""
        said = draw_session(self.rng, self.tally)
        self.done.append(f"{what} {name} {list(said.values())}")
        with session_with(self.spark, said):
            self.table = IndexedTable.load(self.spark, self.path / "log" / "t")
            try:
                getattr(self.table, call)(name, *given, **more)
                self.tally.add("steps", f"odd source: {call}")
            except InvalidInput as refused:
                assert "mean something else" in refused.message, f"{self.history}: {refused}"
                self.tally.add("steps refused", f"odd source: {call}")
            except Exception as error:
                raise AssertionError(f"{self.history}: {type(error).__name__}: {error}") from error

    # --- asking ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for _ in range(self.questions):
            said = draw_session(self.rng, self.tally)
            with session_with(self.spark, said):
                rows = self._truth()
            self.odd.ask(self.table, rows, self.types, said, self.history)

    def _truth(self) -> pa.Table:
        """All rows of the files, each read by plain Spark, by itself and whole."""
        options = {"timeZone": self.zone, "columnNameOfCorruptRecord": _CORRUPT,
                   "datetimeRebaseMode": "CORRECTED", **self.options}  # fmt: skip
        ddl = ", ".join(f"{name} {kind}" for name, kind in self.held.items()).replace("timestamp,", "timestamp_ltz,")
        parts = []
        for path in self.files:
            place = str(path).replace("\\", "\\\\")
            place = "".join(f"\\{char}" if char in "{}[]*?" else char for char in place)
            reader = self.spark.read.schema(ddl).options(recursiveFileLookup="true", **options).format(self.form)
            rows = to_arrow(reader.load(f"file://{place}"))
            folders = [part.partition("=") for part in path.parts if "=" in part]
            for name, _, text in folders if self.layout != "flat" else ():
                value: Any = int(text) if name == "y" else _unescaped(text)
                kind = pa.int32() if name == "y" else pa.string()
                rows = rows.append_column(name, pa.array([value] * rows.num_rows, kind))
            parts.append(rows.select(list(self.types)))
        return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


def _unescaped(text: str) -> str:
    head, *rest = text.split("%")
    return head + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)
