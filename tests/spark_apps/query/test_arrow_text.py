"""Files of CSV and JSON without Spark: their rows are those that Spark reads, or they are refused by name."""

from __future__ import annotations

import gzip
import io
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.query import arrow_text
from spark_apps.query.arrow_text import NotPlain, TextFormat, read_text, text_format
from spark_apps.storage.errors import StorageError, UnsupportedSource
from spark_apps.timeline.model import SourceDefinition

pytestmark = pytest.mark.by_turn(8)

COLUMNS = {
    "a": "int", "s": "string", "t": "timestamp", "d": "double", "b": "boolean", "m": "decimal(6,2)", "x": "date",
    "f": "float", "n": "timestamp_ntz", "l": "bigint", "y": "tinyint",
}  # fmt: skip
OF_JSON = {name: kind for name, kind in COLUMNS.items() if name not in ("m", "f")}
CSV = TextFormat("csv", zone="Europe/Berlin")
JSON = TextFormat("json", zone="Europe/Berlin")


PLAIN: dict[str, list[str]] = {
    "int": ["0", "-1", "2147483647", "007"],
    "tinyint": ["-128", "5"],
    "bigint": ["9223372036854775807", "-12"],
    "string": ["a", "ü é", " a ", "a'b", "NULL", "NaN", "\u2028x", "0", "emoji 🙂", "a b", "true"],
    "timestamp": [
        "2024-01-01 00:00:00", "2024-07-01T12:30:15.123456", "2024-01-01 00:00:00Z", "1999-12-31T23:59:59.5-05:30",
    ],
    "timestamp_ntz": ["2024-03-31 02:30:00", "1850-01-01T00:00:00.000001"],
    "double": ["0.1", "-0.0", "1e300", "123456789012345678901234567890", "4.9e-324", "5"],
    "float": ["0.1", "16777217", "3.4028234e38", "-7"],
    "boolean": ["true", "FALSE", "True", "false"],
    "decimal(6,2)": ["1234.50", "-1", "0.5", "0001.25"],
    "date": ["2024-02-29", "1000-01-01", "9999-12-31"],
}  # fmt: skip
ODD: dict[str, list[str]] = {
    "int": ["+5", " 5", "2147483648", "1.0", "x"],
    "tinyint": ["128", "200"],
    "bigint": ["1e3", "9223372036854775808"],
    "string": ["\\", "a\\\\b", 'a"b', "\t", "\x0b", "﻿x"],
    "timestamp": ["2024-03-31 02:30:00", "2024", "2024-01-01", "12:00", "1960-01-01 00:00:00", "0001-01-01 00:00:00"],
    "timestamp_ntz": ["2024-01-01 00:00:00Z", "now"],
    "double": ["NaN", "Infinity", "1d", "-Inf", "1e400", ".5", "5."],
    "float": ["1e39", "nan"],
    "boolean": ["t", "1", "yes"],
    "decimal(6,2)": ["1.005", "123456", "1,5", "1e2"],
    "date": ["2024-2-9", "2024-02-30", "10000-01-01", "2024-02-29T00:00:00"],
}  # fmt: skip


def read(
    text: TextFormat, data: bytes, columns: dict[str, str], names: list[str] | None = None, path: str = "f"
) -> Any:
    wanted = list(columns) if names is None else names
    return [row for table in read_text(text, io.BytesIO(data), path, columns, wanted) for row in table.to_pylist()]


# --- without Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.by_turn(1)
def test_given_pieces_of_a_few_bytes_then_each_line_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"a": n, "s": f"ü{n}" if n % 3 else None} for n in range(200)]
    as_csv = "a,s\r\n" + "".join(f"{row['a']},{row['s'] or ''}\r\n" for row in rows)
    as_json = "\n".join(f'{{"s":"{row["s"]}","a":{row["a"]}}}'.replace('"None"', "null") for row in rows)
    two = {"a": "int", "s": "string"}
    for size in (7, 16, 4096):
        monkeypatch.setattr(arrow_text, "TEXT_CHUNK_BYTES", size)
        assert read(replace(CSV, header=True), as_csv.encode(), two) == rows
        assert read(JSON, as_json.encode(), two) == rows
        assert read(replace(CSV, header=True), gzip.compress(as_csv.encode()), two, path="f.csv.gz") == rows
    assert sum(t.num_rows for t in read_text(JSON, io.BytesIO(as_json.encode()), "f", two, [])) == 200
    with pytest.raises(OSError):
        read(CSV, gzip.compress(as_csv.encode())[:-9], two, path="f.csv.gz")


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1", "Expected 2 columns"), ("1,2,3", "Expected 2 columns"), ("x,", "'a', int, holds 'x'"), ("+1,", "'+1'"),
        ("99999999999,", "'a', int"), (' "b",', "quotation mark"), ('1,a"b', "quotation mark"), ('1,"a', "quotation"),
        ('1,"a""b"', "quotation mark"), ("1,a\\b", "backslash"), ("1,a\0", "code 0"), (" \t", "line of blanks"),
        ("1,a\rb", "carriage return"), ("1,\udcff", "UTF8"),
    ],
)  # fmt: skip
def test_given_a_line_of_csv_that_readers_take_otherwise_then_it_is_refused(line: str, why: str) -> None:
    for data in (f"5,x\n{line}\n6,y\n", f"5,x\n{line}"):
        with pytest.raises(NotPlain, match=re.escape(why)):
            read(CSV, data.encode(errors="surrogateescape"), {"a": "int", "s": "string"})


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(
    "line",
    ['{"a":1.5}', '{"a":"5"}', '{"s":5}', '{"s":{"a":1}}', '{"a":1}{"a":2}', '[{"a":1}]', '{"a":1,"a":2}', '{"a":1',
     '{"d":"NaN"}', '{"d":1e999}', '{"d":-0}', '{"b":"true"}', '{"x":"2024-1-1"}', '{"x":"2024-02-30"}', "null", "",
     '{"s":"\\ud800"}', '{"s":"a\tb"}', "{'a':1}", '{"a":9223372036854775808}', '{"d":01}', '{"t":5}', '{"y":128}',
     '{"t":"2024-03-31 02:30:00"}', '{"t":"2024-10-27 02:30:00"}', '{"t":"1969-12-31 00:00:00"}'],
)  # fmt: skip
def test_given_a_line_of_json_that_readers_take_otherwise_then_it_is_refused(line: str) -> None:
    with pytest.raises(NotPlain):
        read(JSON, f'{{"a":1}}\n{line}\n{{"a":2}}\n'.encode(), OF_JSON)


@pytest.mark.by_turn(1)
def test_given_options_of_a_source_then_those_that_are_not_known_are_refused_by_name() -> None:
    def of(form: str, options: dict[str, str], session: dict[str, str | None] | None = None) -> TextFormat | None:
        return text_format(SourceDefinition(form, "/raw", options, None, session), ["a", "s"])

    assert of("csv", {"header": "TRUE", "sep": "\\t", "escape": '"'}) == TextFormat("csv", "\t", True, True)
    zone: dict[str, str | None] = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert of("json", {}, zone) == TextFormat("json", zone="Asia/Tokyo")
    assert of("json", {"timeZone": "UTC"}, zone) == TextFormat("json", zone="UTC")
    assert of("parquet", {"mergeSchema": "true"}) is None
    for name, value in {
        "multiLine": "true", "dateFormat": "dd.MM.yyyy", "timestampFormat": "x", "encoding": "latin1", "comment": "#",
        "nullValue": "NA", "emptyValue": "-", "quote": "'", "escape": "x", "sep": "||", "lineSep": "\n",
        "ignoreLeadingWhiteSpace": "true", "enforceSchema": "false", "nanValue": "-", "locale": "de-DE",
        "columnNameOfCorruptRecord": "s",
    }.items():  # fmt: skip
        with pytest.raises(NotPlain, match=re.escape(name.lower()) + "|separated|damaged records"):
            of("csv", {name: value})
    for setting in ("spark.sql.legacy.json.allowEmptyString.enabled", "spark.sql.legacy.javaCharsets"):
        with pytest.raises(NotPlain, match=setting):
            of("json", {}, {setting: "true"})
    with pytest.raises(NotPlain, match="LEGACY"):
        of("csv", {}, {"spark.sql.legacy.timeParserPolicy": "LEGACY"})
    with pytest.raises(NotPlain, match="'t' of type timestamp"):
        read(replace(CSV, zone=None), b"2024-01-01 00:00:00\n", {"t": "timestamp"})


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("kind", [kind for kind in sorted(set(COLUMNS.values())) if kind != "string"])
def test_given_values_in_another_form_of_their_type_then_they_are_refused_and_plain_ones_are_not(kind: str) -> None:
    assert len(read(CSV, "\n".join(PLAIN[kind]).encode(), {"v": kind})) == len(PLAIN[kind])
    for odd in ODD[kind]:
        with pytest.raises(NotPlain, match=r"'v'|Expected 1 columns"):
            read(CSV, f"{PLAIN[kind][0]}\n{odd}\n".encode(), {"v": kind})


# --- against Spark ----------------------------------------------------------------------------------------------------


def drawn(rng: random.Random, kind: str, odd: float) -> str | None:
    if rng.random() < 0.15:
        return None
    return rng.choice(ODD[kind] if rng.random() < odd else PLAIN[kind])


def csv_file(rng: random.Random, odd: float, doubled: bool, sep: str, header: bool) -> str:
    def field(kind: str) -> str:
        value = drawn(rng, kind, odd)
        if value is None:
            return rng.choice(["", "", '""']) if kind == "string" else ""
        if rng.random() < 0.3:
            return (
                '"'
                + (value.replace('"', '""') if doubled else value)
                + rng.choice(["", sep if kind == "string" else ""])
                + '"'
            )
        return value

    lines = [sep.join(map(field, COLUMNS.values())) for _ in range(rng.randint(1, 4))]
    if rng.random() < odd:
        lines.insert(rng.randint(0, len(lines)), rng.choice(["", "  ", "1", sep * 20]))
    end = rng.choice(["\n", "\r\n"])
    return end.join([*([sep.join(COLUMNS)] if header else []), *lines]) + rng.choice(["", end])


def json_file(rng: random.Random, odd: float) -> str:
    def value(kind: str) -> str:
        text = drawn(rng, kind, odd)
        if text is None:
            return "null"
        bare = kind in ("int", "tinyint", "bigint", "double", "boolean")
        if bare and rng.random() >= odd:
            return text.lower().lstrip("0") or "0" if kind != "double" else text
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def line() -> str:
        names = [name for name in OF_JSON if rng.random() < 0.8]
        rng.shuffle(names)
        members = [f'"{name}":{value(OF_JSON[name])}' for name in names]
        members += ['"more":{"a":[1,{"b":null}]}'] if rng.random() < 0.2 else []
        return "{" + rng.choice([",", ", "]).join(members) + "}"

    lines = [line() for _ in range(rng.randint(1, 4))]
    if rng.random() < odd:
        lines.insert(rng.randint(0, len(lines)), rng.choice(["", "{}", "[]", '{"a":1}{"a":2}', '{"a":', "null", " {}"]))
    return "\n".join(lines) + rng.choice(["", "\n"])


@pytest.mark.spark
@pytest.mark.by_turn(12)
@pytest.mark.parametrize("form", ["csv", "csv of doubled marks", "csv by tabs", "json"])
def test_given_random_files_then_rows_are_those_of_spark_or_the_file_is_refused(
    spark: Any, tmp_path: Path, form: str
) -> None:
    rng, outcomes = random.Random(form), {"read": 0, "refused": 0}
    options: dict[str, str] = {
        "csv": {}, "csv of doubled marks": {"escape": '"', "header": "true"}, "csv by tabs": {"sep": "\t"}, "json": {},
    }[form]  # fmt: skip
    make: Callable[[float], str] = lambda odd: (  # noqa: E731
        json_file(rng, odd) if form == "json"
        else csv_file(rng, odd, "escape" in options, options.get("sep", ","), "header" in options)
    )  # fmt: skip
    folder, count = tmp_path / "raw", 60
    folder.mkdir()
    for number in range(count):
        text = make(0.0 if number % 2 else 0.02)
        # A character of no encoding, rarely.
        data = text.encode() + (b"\xff\n" if number == 6 else b"")
        (folder / f"file={number}").mkdir()
        (folder / f"file={number}" / "f.txt").write_bytes(data)
    columns = OF_JSON if form == "json" else COLUMNS
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ", file int"
    options = {**options, "timeZone": "Europe/Berlin"}
    table = IndexedTable.register(spark, folder, format=form[:4].strip(), schema=schema, options=options)
    theirs: dict[int, list[str]] = {}
    # Days and times as numbers, for Python knows not all of them.
    plain = [{"t": "unix_micros(t)", "x": "unix_date(x)"}.get(name, name) for name in columns]
    for row in table.read().selectExpr(*plain, "file").collect():
        theirs.setdefault(row.file, []).append(repr(list(row)[:-1]))
    ours = spark_apps.open_table(folder)
    for number in range(count):
        try:
            rows = ours.read(f"file = {number}", list(columns))
        except UnsupportedSource as refused:
            assert "cannot be read without Spark" in str(refused) and f"file={number}" in str(refused)
            outcomes["refused"] += 1
            assert number % 2 == 0, (number, str(refused))
            continue
        outcomes["read"] += 1
        for name, kind in (("t", pa.int64()), ("x", pa.int32())):
            rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(kind))
        got = sorted(repr(list(row.values())) for row in rows.to_pylist())
        assert got == sorted(theirs.get(number, [])), (number, (folder / f"file={number}" / "f.txt").read_bytes())
    assert outcomes["read"] > count / 2 and outcomes["refused"] > count / 12, outcomes


def test_given_a_file_that_is_gone_or_rewritten_then_it_is_no_refusal(tmp_path: Path) -> None:
    import shutil

    from tests.compatibility.lake import unpack

    lake = unpack(tmp_path)
    table = spark_apps.open_table(lake / "raw" / "riders")
    assert table.read().num_rows > 0
    shutil.rmtree(lake / "raw" / "riders")
    with pytest.raises(StorageError):
        table.read()
