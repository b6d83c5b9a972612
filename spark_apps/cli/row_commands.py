"""Commands that plan a reading of rows, or read them: by :func:`spark_apps.open_table`, in this process."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from spark_apps.cli.command import (
    NO,
    command,
    note_state,
    parameters_option,
    table_argument,
    time_zone_option,
    version_options,
)
from spark_apps.cli.lake import Lake, nearest
from spark_apps.cli.output import encode
from spark_apps.storage import errors
from spark_apps.storage.errors import (
    AlreadyExists,
    EnvironmentMismatch,
    InvalidInput,
    InvalidStatement,
    LakeIndexError,
    LogDamaged,
    StorageError,
    TableNotFound,
)
from spark_apps.storage.printing import Grid, View, counted, size
from spark_apps.workload.asked import Workload, from_document, tail
from spark_apps.workload.event_logs import read_event_logs
from spark_apps.workload.limits import MAX_LINE_BYTES
from spark_apps.workload.query_log import read_log
from spark_apps.workload.sql_files import read_sql_files

if TYPE_CHECKING:
    from spark_apps.arrow_table import OpenTable

_ROWS_AT_ONCE = 10_000


def _columns(context: click.Context, parameter: click.Parameter, given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",")]


def columns_option(function: Any) -> Any:
    """Give a command the option ``columns``."""
    return click.option("--columns", callback=_columns, metavar="A,B", help="Only these columns, in this order.")(
        function
    )


def rows_option(function: Any) -> Any:
    """Give a command the option ``most``."""
    return click.option(
        "--rows", "most", type=click.IntRange(0), default=100, show_default=True, metavar="N",
        help="Print at most this many rows, 0 for all; JSON always has all.",
    )(function)  # fmt: skip


# --- planning ---------------------------------------------------------------------------------------------------------


@command("explain")
@table_argument
@click.argument("where", required=False)
@parameters_option
@columns_option
@time_zone_option
@version_options
def explain(
    lake: Lake,
    table: str,
    where: str | None,
    parameters: dict[str, Any] | None,
    columns: list[str] | None,
    time_zone: str | None,
    version: int | None,
    as_of: str | None,
) -> None:
    """Show how rows that satisfy WHERE would be found.

    Shows the indexes used, the files and bytes read and skipped, and why other indexes are not used.
    WHERE is a predicate in Spark's SQL; without it, all rows are meant.
    """
    opened = lake.open(table, version, as_of, time_zone)
    note_state(opened.snapshot.state)
    with lake.output.progress("asking indexes"):
        explanation = opened.explain(where, columns, parameters=parameters)
    if lake.output.as_json:
        lake.output.json(explanation.to_dict())
    else:
        lake.output.view(explanation.view())


@command("asked")
@table_argument
def asked(lake: Lake, table: str) -> None:
    """Show the queries in the query log of a table.

    Shows predicates, the indexes used, and why other indexes were not used.
    """
    recorded = read_log(lake.timeline(table).store)
    if lake.output.as_json:
        lake.output.json(recorded.to_dict())
    else:
        lake.output.view(recorded.view())


@command("advise")
@table_argument
@click.option(
    "--queries", metavar="FILE", help="The queries, one JSON object per line; - for standard input. "
    "By default, those in the table's query log."
)  # fmt: skip
@click.option("--event-logs", metavar="DIR", help="The queries in a folder of Spark's event logs, on this machine.")
@click.option("--sql", "sql_files", metavar="DIR", help="The queries in a folder of SQL files, each once a day.")
@click.option("--budget", metavar="SIZE", help="How large all indexes together may be: 5GB.")
@click.option("--minutes", type=click.FloatRange(0), metavar="N", help="Minutes of upkeep per day.")
def advise(
    lake: Lake,
    table: str,
    queries: str | None,
    event_logs: str | None,
    sql_files: str | None,
    budget: str | None,
    minutes: float | None,
) -> None:
    """Propose indexes for the queries of a table.

    Prints statements to run, and builds nothing.
    Reads some columns of a sample of the table's files, in this process.
    """
    opened = lake.open(table)
    note_state(opened.snapshot.state)
    limits = {"bytes": budget, "minutes": minutes}
    with lake.output.progress("trying indexes"):
        advice = opened.advise(
            _workload(opened, queries, event_logs, sql_files),
            {name: limit for name, limit in limits.items() if limit is not None},
        )
    if lake.output.as_json:
        lake.output.json(advice.to_dict())
    else:
        lake.output.view(advice.view())


def _workload(opened: OpenTable, queries: str | None, event_logs: str | None, sql_files: str | None) -> Workload | None:
    """Return the queries of all that was given, ``None`` if nothing was; what cannot be read of them is counted."""
    if queries is None and event_logs is None and sql_files is None:
        return None
    asked = Workload()
    if queries is not None:
        _add_lines(asked, queries, opened.uri)
    if event_logs is not None:
        read_event_logs(event_logs, asked)
    if sql_files is not None:
        source = opened.definition.source
        places = [opened.uri] if source is None else [opened.uri, source.location]
        names = [field.name for field in opened.definition.fields]
        read_sql_files(sql_files, {tail(place): names for place in places}, asked)
    return asked


def _add_lines(asked: Workload, path: str, uri: str) -> None:
    """Add the queries in a file; lines that cannot be read are counted.

    :raises InvalidInput: if none can.
    """
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if not line.strip():
                    continue
                try:
                    asked.add(from_document(line))
                except LogDamaged:
                    asked.refuse("a line is no asked query")
    except OSError as error:
        raise InvalidInput(f"The queries in {path} cannot be read: {error.strerror}.") from error
    if asked.refused and not asked:
        raise InvalidInput(f"No line of {path} is an asked query.", hint=f"Give lines with the table {uri}.")


@command("verify")
@table_argument
@click.argument("index", required=False)
@version_options
def verify(lake: Lake, table: str, index: str | None, version: int | None, as_of: str | None) -> int:
    """Compare one or all indexes with the rows of the table.

    Exits with 1 if an index differs.
    All rows are read in this process, so the table may have a few million rows. For larger tables, and for indexes
    over keys of a registered source, use Airflow's VerifyIndexOperator.
    """
    opened = lake.open(table, version, as_of)
    state = note_state(opened.snapshot.state)
    reports, refused = [], {}
    with lake.output.progress("reading rows") as progress:
        for name in sorted(state.indexes) if index is None else [index]:
            progress.tell(f"comparing {name} with the rows")
            try:
                reports.append(opened.verify(name))
            except InvalidInput as error:
                if index is not None:
                    raise
                refused[name] = error.message
    if lake.output.as_json:
        lake.output.json({"reports": [report.to_dict() for report in reports], "not_compared": refused})
    else:
        for report in reports:
            lake.output.view(report.view())
        rest = Grid(("not compared", "why"), list(refused.items()))
        if refused or not reports:
            lake.output.view(View(f"{counted(len(reports), 'index', 'indexes')} compared", grids=[rest]))
    return 0 if all(report.ok for report in reports) else NO


@command("verify-erasure")
@table_argument
@click.option("--where", metavar="SQL", help="The predicate by which rows were deleted: its values are looked for.")
@parameters_option
@click.option("--value", "values", multiple=True, metavar="TEXT", help="A further text that only those rows held.")
def verify_erasure(
    lake: Lake, table: str, where: str | None, parameters: dict[str, Any] | None, values: tuple[str, ...]
) -> int:
    """Search every file below a table's folder for values of erased rows.

    Exits with 1 if a file holds one. All bytes of the folder are read in this process.
    """
    opened = lake.open(table, None, None)
    note_state(opened.snapshot.state)
    with lake.output.progress("reading files") as progress:
        progress.tell("searching all files below the table")
        report = opened.verify_erasure(where, values=values, parameters=parameters)
    if lake.output.as_json:
        lake.output.json(report.to_dict())
    else:
        lake.output.view(report.view())
    return 0 if report.ok else NO


# --- rows -------------------------------------------------------------------------------------------------------------


@command("lookup")
@table_argument
@click.argument("key", nargs=-1)
@click.option("--keys", metavar="FILE", help="Read keys from a file, one per line; - for standard input.")
@columns_option
@version_options
@rows_option
def lookup(
    lake: Lake,
    table: str,
    key: tuple[str, ...],
    keys: str | None,
    columns: list[str] | None,
    version: int | None,
    as_of: str | None,
    most: int,
) -> int:
    """Print the rows with the given record keys.

    Exits with 1 if none of the keys exists.
    Write a key of several columns with commas: 2026-11-20,17. Write -- before keys that begin with a minus.
    """
    if bool(key) == (keys is not None):
        raise InvalidInput("Keys are given either as arguments or by --keys.", hint="Give one of them.")
    opened = lake.open(table, version, as_of)
    note_state(opened.snapshot.state)
    names = opened.definition.record_key
    if not names:
        raise InvalidInput("The table has no record key.", hint=f"Ask with `query`: SELECT * FROM {table} WHERE …")
    types = [opened.schema.field(name).type for name in names]
    wanted = _typed_keys(names, types, key) if keys is None else _keys_of_file(names, types, keys)
    with lake.output.progress(f"looking up {counted(wanted.num_rows, 'key')}"):
        rows = opened.lookup(wanted, columns)
    lake.output.rows(rows.column_names, rows.to_batches(_ROWS_AT_ONCE), most or None)
    return 0 if rows.num_rows else NO


def _typed_keys(names: Sequence[str], types: Sequence[Any], given: Sequence[str]) -> Any:
    """Return keys of the command line as an Arrow table of the key's types."""
    import pyarrow as pa

    keys = [next(csv.reader([text])) if len(names) > 1 and text else [text] for text in given]
    for text, values in zip(given, keys, strict=True):
        if len(values) != len(names):
            raise InvalidInput(
                f"The key {text!r} has {counted(len(values), 'value')}, and the table's key is ({', '.join(names)}).",
                hint=f"Write it as {','.join(f'<{name}>' for name in names)}.",
            )
    arrays = []
    for name, type_, column in zip(names, types, zip(*keys, strict=True), strict=True):
        try:
            arrays.append(pa.array(column, pa.string()).cast(type_))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(f"A key is no value of {name}, which is {type_}: {error}.") from error
    return pa.table(arrays, names=list(names))


def _keys_of_file(names: Sequence[str], types: Sequence[Any], path: str) -> Any:
    """Return the keys of a file as an Arrow table: a line each; those of several columns as CSV."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    several = len(names) > 1
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        if not data.strip():
            return pa.table([pa.array([], type_) for type_ in types], names=list(names))
        return arrow_csv.read_csv(
            io.BytesIO(data),
            arrow_csv.ReadOptions(column_names=list(names)),
            arrow_csv.ParseOptions(delimiter="," if several else "\x1f", quote_char='"' if several else False),
            arrow_csv.ConvertOptions(
                column_types=dict(zip(names, types, strict=True)), null_values=[], strings_can_be_null=False
            ),
        )
    except OSError as error:
        raise InvalidInput(f"The keys in {path} cannot be read: {error.strerror}.") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(
            f"The lines of {path} are no keys of the table: {error}.",
            hint=f"Write a key a line, ({', '.join(names)}), without a head.",
        ) from error


@command("query")
@click.argument("sql")
@click.option(
    "--table", "named", multiple=True, metavar="NAME=TABLE", help="Give a table another name in the query."
)  # fmt: skip
@rows_option
def query(lake: Lake, sql: str, named: tuple[str, ...], most: int) -> None:
    """Run a SELECT in DuckDB's SQL over tables.

    Tables are given by name (sales.orders) or by quoted address ("s3://lake/orders").
    The tables' indexes are used for the filters of the query. With -, the query is read from standard input.
    """
    duckdb = _duckdb()
    text = sys.stdin.read() if sql == "-" else sql
    connection = duckdb.connect()
    names = _named(named)
    missing: TableNotFound | None = None
    try:
        with lake.output.progress("asking"):
            for parts in dict.fromkeys(_tables_of(connection, text)):
                try:
                    _register(lake, connection, parts, names)
                except TableNotFound as error:
                    missing = missing or error  # or a name of DuckDB's own: a file, a part of the query
            result = connection.sql(text)
            # Older releases of DuckDB know the second name alone.
            make_reader = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
            reader = make_reader(_ROWS_AT_ONCE)
            batches = _batches(reader)
            first = next(batches, None)
    except duckdb.CatalogException as error:
        raise missing or _refused(error) from error
    except duckdb.Error as error:
        if missing is not None and isinstance(error, duckdb.IOException):
            raise missing from error
        raise _refused(error) from error
    lake.output.rows(reader.schema.names, batches if first is None else chain([first], batches), most or None)


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise EnvironmentMismatch(
            "DuckDB is not installed, by which the command line answers queries.",
            outcome="",
            hint="Install it: pip install duckdb.",
        ) from error
    return duckdb


def _named(given: Sequence[str]) -> dict[str, str]:
    names = {}
    for one in given:
        name, sign, table = one.partition("=")
        if not (name and sign and table):
            raise InvalidInput(f"--table {one!r} is no name of a table.", hint="Write it as orders=s3://lake/orders.")
        names[name] = table
    return names


def _tables_of(connection: Any, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of tables in a query, as DuckDB's own parser reads them.

    :raises InvalidStatement: if it is no query.
    """
    tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
    if tree.get("error"):
        message = str(tree["error_message"]).rstrip(".!")
        if message.startswith("Only SELECT"):
            raise InvalidStatement("That is no query.", hint="The command line only reads tables: write a SELECT.")
        raise InvalidStatement(f"The query cannot be read: {message}.")
    if len(tree["statements"]) != 1:
        raise InvalidStatement(f"{len(tree['statements'])} statements were given.", hint="Give one SELECT.")
    nodes: list[Any] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Mapping):
            if node.get("type") == "BASE_TABLE":
                names = (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))
                yield tuple(name for name in names if name)
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)


def _register(lake: Lake, connection: Any, parts: tuple[str, ...], names: Mapping[str, str]) -> None:
    """Make a table known to DuckDB by the name that it has in the query.

    :raises TableNotFound: if there is none.
    """
    name = ".".join(parts)
    table = names.get(name, name)
    if table == name and "/" not in name and lake.warehouse.root is None:
        near = nearest(name, names)
        hint = f"Did you mean {near}?" if near else "Give --warehouse, or --table NAME=ADDRESS."
        raise TableNotFound(f"There is no table {name}, and no warehouse is named.", hint=hint)
    own = f"__lakeindex_{uuid.uuid4().hex}"
    lake.open(table).duckdb(connection, own)
    quoted = ['"' + part.replace('"', '""') + '"' for part in parts]
    if len(quoted) == 3:
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quoted[0]}")
    if len(quoted) > 1:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(quoted[:-1])}")
    connection.execute(f"CREATE VIEW {'.'.join(quoted)} AS SELECT * FROM {own}")


def _batches(reader: Any) -> Iterator[Any]:
    """Yield the batches of an answer; what a table's reading raised comes through DuckDB and Arrow as text."""
    import pyarrow as pa

    try:
        yield from reader
    except (OSError, pa.ArrowException, _duckdb().Error) as error:
        raise _refused(error) from error


_OWN_ERROR = re.compile(r"spark_apps\.storage\.errors\.(\w+): (.+)")


def _refused(error: Exception) -> LakeIndexError:
    """Return DuckDB's error as one of ours; where a table's reading failed, that one."""
    text = str(error).strip()
    found = _OWN_ERROR.findall(text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, None)
        # Those that carry a receipt are of commits, which this command does not make.
        known = kind if isinstance(kind, type) and issubclass(kind, LakeIndexError) else StorageError
        return known(message, outcome="")
    return InvalidStatement(f"DuckDB: {text}")


# --- files ------------------------------------------------------------------------------------------------------------


_FORMATS = ("parquet", "csv", "json", "arrow")
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
             ".arrow": "arrow", ".feather": "arrow"}  # fmt: skip


@command("export")
@table_argument
@click.argument("target")
@click.option("--where", metavar="PREDICATE", help="Only rows that satisfy this predicate, in Spark's SQL.")
@parameters_option
@columns_option
@click.option("--format", "form", type=click.Choice(_FORMATS), help="By default, from the ending of the file's name.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@time_zone_option
@version_options
def export(
    lake: Lake,
    table: str,
    target: str,
    where: str | None,
    parameters: dict[str, Any] | None,
    columns: list[str] | None,
    form: str | None,
    overwrite: bool,
    time_zone: str | None,
    version: int | None,
    as_of: str | None,
) -> None:
    """Write the rows of a table into one file.

    The file is Parquet, CSV, JSON (one object per line) or an Arrow stream.
    With -, the rows go to standard output. The file appears only when all rows are in it.
    """
    form = form or ("csv" if target == "-" else _SUFFIXES.get(Path(target).suffix.lower()))
    if form is None:
        raise InvalidInput(f"The name {target} does not tell a format.", hint=f"Give --format {'|'.join(_FORMATS)}.")
    if target == "-" and form in ("parquet", "arrow") and sys.stdout.isatty():
        raise InvalidInput(f"A terminal shows no {form}.", hint="Give a file, or a pipe.")
    if target == "-" and lake.output.as_json:
        raise InvalidInput("--json answers on the standard output, where the rows go.", hint="Give --format json.")
    path = None if target == "-" else Path(target)
    if path is not None and path.exists() and (path.is_dir() or not overwrite):
        raise AlreadyExists(f"{path} is there already.", hint="Name another file, or give --overwrite.")
    opened = lake.open(table, version, as_of, time_zone)
    note_state(opened.snapshot.state)
    reader = opened.batches(where, columns, parameters=parameters)
    with lake.output.progress(f"writing {target}") as progress, _written(path) as stream:
        rows = 0
        writer = _writer(form, stream, reader.schema)
        for batch in reader:
            writer.write(batch)
            rows += batch.num_rows
            progress.tell(f"writing {target}, {counted(rows, 'row')}")
        writer.close()
    if path is None:
        return
    if lake.output.as_json:
        lake.output.json({"path": str(path), "format": form, "rows": rows, "bytes": path.stat().st_size})
    else:
        facts = [("rows", rows), ("size", size(path.stat().st_size)), ("version", opened.version)]
        lake.output.view(View(f"{path} written", facts))


@contextmanager
def _written(path: Path | None) -> Iterator[IO[bytes]]:
    """Give a stream to write; what was written is at the path once the block has ended well."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as stream:
            yield stream
        draft.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def _writer(form: str, stream: IO[bytes], schema: Any) -> Any:
    """Return what writes record batches: with ``write`` and ``close``."""
    if form == "parquet":
        import pyarrow.parquet as parquet

        return _ParquetRows(parquet.ParquetWriter(stream, schema, compression="zstd"))
    if form == "csv":
        import pyarrow.csv as arrow_csv

        nested = [field.name for field in schema if _is_nested(field.type)]
        if nested:
            raise InvalidInput(f"CSV has no form for {', '.join(nested)}.", hint="Give --columns, or another format.")
        return arrow_csv.CSVWriter(stream, schema)
    if form == "arrow":
        import pyarrow as pa

        return pa.ipc.new_stream(stream, schema)
    return _JsonLines(stream)


def _is_nested(type_: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(type_))


class _ParquetRows:
    """A writer of row groups of many batches: batches of a few rows would be as many row groups."""

    _MIN_ROWS = 500_000

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._waiting: list[Any] = []
        self._rows = 0

    def write(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self._MIN_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0


class _JsonLines:
    """A writer of an object a line."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, batch: Any) -> None:
        self._stream.writelines(encode(row) + b"\n" for row in batch.to_pylist())

    def close(self) -> None:
        self._stream.flush()
