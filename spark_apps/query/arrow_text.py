"""The rows of CSV and JSON files as Arrow tables, without Spark, where these are exactly the rows that Spark reads.

What a text means is the reader's to say, so this module reads only what no reader takes otherwise: options of a source
that are known to change nothing else, lines of as many fields as there are columns, quotation marks around whole
fields, and values in the plainest form of their type. All else is refused by name; Spark reads that.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.layout.types import ColumnType, arrow_type, parse_type
from spark_apps.mergetree.reader_settings import TEXTS, reader_options
from spark_apps.query.limits import MAX_LINE_BYTES, TEXT_CHUNK_BYTES
from spark_apps.timeline.model import SourceDefinition

_COMPRESSED = (".bz2", ".deflate", ".lz4", ".lzo", ".snappy", ".xz", ".zst", ".zstd")
_CORRUPT = "columnnameofcorruptrecord"
_POLICY = "spark.sql.legacy.timeParserPolicy"
_ZONE = "timezone"

# Option -> the values, in lower case, by which rows are read alike; any value of those that only say how a schema is
# found, or how files are written.
_EITHER: Mapping[str, frozenset[str] | None] = {
    "compression": None, "samplingratio": None, "recursivefilelookup": None, "prefersdecimal": None,
    "dropfieldifallnull": None, _CORRUPT: None, _ZONE: None, "mode": frozenset(("permissive", "failfast")),
    "multiline": frozenset(("false",)), "encoding": frozenset(("utf-8", "utf8")),
    "charset": frozenset(("utf-8", "utf8")), "enabledatetimeparsingfallback": frozenset(("false",)),
}  # fmt: skip
_KNOWN: Mapping[str, Mapping[str, frozenset[str] | None]] = {
    "json": {**_EITHER, "primitivesasstring": frozenset(("false",)), "ignorenullfields": None},
    "csv": {
        **_EITHER, "header": frozenset(("true", "false")), "inferschema": None, "preferdate": None, "quoteall": None,
        "escapequotes": None, "columnpruning": None, "maxmalformedlogperpartition": None, "sep": None,
        "delimiter": None, "enforceschema": frozenset(("true",)), "quote": frozenset(('"',)),
        "escape": frozenset(("\\", '"')), "nullvalue": frozenset(("",)), "emptyvalue": frozenset(("",)),
        "ignoreleadingwhitespace": frozenset(("false",)), "ignoretrailingwhitespace": frozenset(("false",)),
    },
}  # fmt: skip
_SEPARATORS = frozenset(",;|\t:^~\x01")

_MOMENT = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]{1,6})?"
_FORMS: Mapping[str, str] = {
    "boolean": r"(?i:true|false)",
    "date": r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}",
    "timestamp": _MOMENT + r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?",
    "timestamp_ntz": _MOMENT,
    "double": r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?",
}
_ZONED = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_FIRST_RULED = 0
"""Microseconds since 1970, before which copies of the time zone database differ."""


class NotPlain(Exception):
    """Something that is read otherwise by one reader or another; the message says what."""


@dataclass(frozen=True)
class TextFormat:
    """The rules by which lines of a source become rows.

    :param form: ``csv`` or ``json``. :param zone: of times that are written without one; ``None`` if it is not known.
    :param doubled: whether a quotation mark in a field is written twice, or else not at all.
    """

    form: str
    separator: str = ","
    header: bool = False
    doubled: bool = False
    zone: str | None = None


def text_format(source: SourceDefinition, names: Sequence[str]) -> TextFormat | None:
    """Return how a source's files are read without Spark; ``None`` for other formats.

    :param names: of the table's columns.
    :raises NotPlain: naming the option by which only Spark reads them.
    """
    if source.format not in TEXTS:
        return None
    options = {name.lower(): value for name, value in {**reader_options(source), **source.options}.items()}
    known = _KNOWN[source.format]
    for name, value in options.items():
        taken = known.get(name, frozenset())
        if taken is not None and value.lower() not in taken:
            raise NotPlain(f"its files are {source.format} read with {name}={value!r}")
    for name, setting in (source.session or {}).items():
        if (name == _POLICY and setting != "CORRECTED") or (name.startswith("spark.sql.legacy.") and setting == "true"):
            raise NotPlain(f"its files are {source.format} read with {name}={setting}")
    if options.get(_CORRUPT, "_corrupt_record") in names:
        raise NotPlain("it has a column of damaged records")
    separators = {options[name] for name in ("sep", "delimiter") if name in options} or {","}
    separator = separators.pop().replace("\\t", "\t")
    if separators or separator not in _SEPARATORS:
        raise NotPlain(f"its fields are separated by {separator!r}")
    header, escape = options.get("header", "false").lower() == "true", options.get("escape", "\\")
    return TextFormat(source.format, separator, header, escape == '"', options.get(_ZONE))


def read_text(
    text: TextFormat, file: io.RawIOBase, path: str, columns: Mapping[str, str], names: Sequence[str]
) -> Iterator[Any]:
    """Yield the rows of a file, some megabytes at a time, as Arrow tables.

    :param path: whose end tells whether it is compressed.
    :param columns: those that the file holds, in their order, with their Spark types. :param names: those to give.
    :raises NotPlain: at what Spark reads otherwise, or may.
    :raises OSError: if the file cannot be read.
    """
    import pyarrow as pa

    kinds = {name: parse_type(columns[name]) for name in names}
    for name, kind in kinds.items():
        if not _is_read(text, kind):
            raise NotPlain(f"the column {name!r} of type {kind.text} is text there")
    first = True
    for chunk in _chunks(file, path):
        if first and chunk.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\n")):
            raise NotPlain("it begins with a mark of its encoding or an empty line")
        _check_lines(chunk)
        if text.form == "csv":
            table = _csv_table(text, chunk, list(columns), names, text.header and first)
        else:
            table = _json_table(chunk, columns, kinds)
        first = False
        arrays = [_values(text, name, table.column(name), kind) for name, kind in kinds.items()]
        # Without columns it would not tell how many rows there are.
        yield pa.table(arrays, names=list(names)) if arrays else table


# --- lines ------------------------------------------------------------------------------------------------------------


def _chunks(file: io.RawIOBase, path: str) -> Iterator[bytes]:
    """Yield whole lines, each ended by a line feed alone, if it is ended."""
    if path.lower().endswith(_COMPRESSED):
        raise NotPlain("it is compressed")
    opened: Any = gzip.GzipFile(fileobj=io.BufferedReader(file)) if path.lower().endswith(".gz") else file
    rest = b""
    try:
        while data := opened.read(TEXT_CHUNK_BYTES):
            whole, end, begun = (rest + data).rpartition(b"\n")
            if not end and len(begun) > MAX_LINE_BYTES:
                raise NotPlain("it has a line of more than 64 MiB")
            rest = begun
            if end:
                yield _unix(whole + end)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from error
    if rest:
        yield _unix(rest)


def _unix(lines: bytes) -> bytes:
    lines = lines.replace(b"\r\n", b"\n")
    if b"\r" in lines:
        raise NotPlain("it has a carriage return that ends no line")
    return lines


def _check_lines(lines: bytes) -> None:
    if b"\0" in lines:
        raise NotPlain("it has a character of code 0")
    if re.search(rb"^[\x01-\x09\x0b-\x20]+$", lines, re.MULTILINE):
        raise NotPlain("it has a line of blanks")


# --- CSV --------------------------------------------------------------------------------------------------------------


def _csv_table(text: TextFormat, lines: bytes, columns: list[str], names: Sequence[str], header: bool) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    if not text.doubled and b"\\" in lines:
        raise NotPlain("it has a backslash")
    if b'"' in lines:
        _check_quotes(text, lines)
    wanted = list(names) or columns[:1]
    try:
        return csv.read_csv(
            pa.BufferReader(lines),
            csv.ReadOptions(block_size=len(lines) + 1, skip_rows=int(header), column_names=columns),
            csv.ParseOptions(
                delimiter=text.separator, quote_char='"', double_quote=text.doubled, escape_char=False,
                newlines_in_values=False, ignore_empty_lines=True,
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), include_columns=wanted, null_values=[""],
                strings_can_be_null=True, quoted_strings_can_be_null=True, check_utf8=True,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid as error:
        if str(error).startswith(("Empty CSV file", "Could not skip initial")):  # a header alone, or empty lines
            return pa.table({name: pa.array([], pa.string()) for name in wanted})
        raise NotPlain(_first_line(error)) from error


def _check_quotes(text: TextFormat, lines: bytes) -> None:
    """Check that quotation marks enclose whole fields of one line, and nowhere else."""
    sep = re.escape(text.separator.encode())
    inside = rb'(?:[^"\n]|"")*' if text.doubled else rb'[^"\n]*'
    # Each field is taken with the separator before it, so that the next one begins where this one ends.
    if b'"' in re.sub(rb"(^|" + sep + rb')"' + inside + rb'"(?=' + sep + rb"|$)", rb"\1", lines, flags=re.MULTILINE):
        raise NotPlain("it has a quotation mark that does not enclose a field")


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json_table(lines: bytes, columns: Mapping[str, str], kinds: Mapping[str, ColumnType]) -> Any:
    import pyarrow as pa
    from pyarrow import json

    given = lines.split(b"\n")
    if not given[-1]:
        given.pop()
    if any(not line.startswith(b"{") or not line.endswith(b"}") for line in given):
        raise NotPlain("it has a line that is no object")
    if re.search(rb"\\u[dD][89a-fA-F]|[\x01-\x08\x0b-\x1f]|[:,\[\s]-0(?![.0-9])", lines):
        raise NotPlain("it has half of a character, a control character or the number -0")
    wanted = kinds or {name: parse_type(kind) for name, kind in list(columns.items())[:1]}
    schema = pa.schema([pa.field(name, _json_type(kind)) for name, kind in wanted.items()])
    try:
        table = json.read_json(
            pa.BufferReader(lines),
            json.ReadOptions(block_size=len(lines) + 1),
            json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise NotPlain(_first_line(error)) from error
    if table.num_rows != len(given):
        raise NotPlain("it has a line of several objects")
    return table


def _json_type(kind: ColumnType) -> Any:
    import pyarrow as pa

    return arrow_type(kind) if kind.is_integer or kind.kind in ("boolean", "double") else pa.string()


# --- values -----------------------------------------------------------------------------------------------------------


def _is_read(text: TextFormat, kind: ColumnType) -> bool:
    if kind.is_integer or kind.kind in ("string", "boolean", "double", "date", "timestamp", "timestamp_ntz"):
        return kind.kind != "timestamp" or text.zone is not None
    # Of JSON's numbers Arrow does not tell the digits.
    return text.form == "csv" and kind.kind in ("float", "decimal")


def _values(text: TextFormat, name: str, column: Any, kind: ColumnType) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = arrow_type(kind)
    if kind.kind == "string":
        return column
    if pa.types.is_string(column.type):
        _check_form(name, column, kind)
    try:
        if kind.kind == "timestamp":
            converted = _instants(text, column)
        elif kind.kind == "boolean" and pa.types.is_string(column.type):
            converted = pc.equal(pc.utf8_lower(column), "true")
        else:
            converted = column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise NotPlain(f"its column {name!r}, {kind.text}: {_first_line(error)}") from error
    if kind.kind in ("float", "double") and pc.any(pc.invert(pc.is_finite(converted))).as_py():
        raise NotPlain(f"its column {name!r}, {kind.text}, holds a number that is none of its type")
    return converted


def _check_form(name: str, column: Any, kind: ColumnType) -> None:
    """Check that all texts of a column are of the one form that every reader takes for the same value."""
    import pyarrow.compute as pc

    if kind.is_integer:
        form = r"-?[0-9]{1,19}"
    elif kind.kind == "decimal":
        digits = rf"-?[0-9]{{1,{max(kind.precision - kind.scale, 1)}}}"
        form = rf"{digits}(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else digits
    else:
        form = _FORMS["double" if kind.kind == "float" else kind.kind]
    fits = pc.match_substring_regex(column, f"^(?:{form})$")
    if not pc.all(fits, min_count=0).as_py():
        odd = column.filter(pc.invert(fits))[0].as_py()
        raise NotPlain(f"its column {name!r}, {kind.text}, holds {odd[:60]!r}")


def _instants(text: TextFormat, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    zoned = pc.match_substring_regex(column, _ZONED)
    own = pc.if_else(zoned, column, pa.scalar(None, pa.string())).cast(pa.timestamp("us", "UTC"))
    bare = pc.if_else(zoned, pa.scalar(None, pa.string()), column).cast(pa.timestamp("us"))
    return pc.coalesce(own, _of_zone(bare, text.zone) if bare.null_count < len(bare) else bare.cast(own.type))


def _of_zone(times: Any, name: str | None) -> Any:
    """Return the instants of times without a zone of their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from spark_apps.query.parsing import zone_named

    zone, instant = None if name is None else zone_named(name), pa.timestamp("us", "UTC")
    if zone is None:
        raise pa.ArrowInvalid(f"the time zone {name!r} is unknown")
    if not isinstance(zone, zoneinfo.ZoneInfo):
        offset = zone.utcoffset(None)
        assert offset is not None
        return pc.subtract(times, pa.scalar(offset, pa.duration("us"))).cast(instant)
    if pc.any(pc.less(times.cast(pa.int64()), _FIRST_RULED), min_count=0).as_py():
        raise pa.ArrowInvalid(f"times before 1970 in {name}")
    return pc.assume_timezone(times, zone.key, ambiguous="raise", nonexistent="raise").cast(instant)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]
