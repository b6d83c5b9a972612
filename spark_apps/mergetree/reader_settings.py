"""The settings of a Spark session that decide on the meaning of a source's files.

They decide which instant a time without a zone is, how dates of old calendars are taken, which damaged fields are kept.

Such settings are written down when a source is registered. Those that Spark's readers know as options are given to
each reading from then on, so that builds and queries agree in any session; where a session differs in one of the
others, rows are scanned and indexes are neither used nor built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_apps.engine.pyspark_names import Column, F, SparkSession, T, spark_errors
from spark_apps.engine.spark_utils import setting as setting_of
from spark_apps.mergetree.schema import quote
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import SourceDefinition, TableDefinition

TEXTS = frozenset(("csv", "json"))
"""Formats whose values are text until Spark reads them."""

_PARQUET = frozenset(("parquet", "delta", "iceberg", "hudi"))
_PARSER = "spark.sql.legacy.timeParserPolicy"
_CONVERSION = "spark.sql.parquet.int96TimestampConversion"
_ZONE = "spark.sql.session.timeZone"
_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
CALENDARS = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
"""Whether days and times in Parquet files that do not say it are of the calendar before 1582 (``LEGACY``)."""


@dataclass(frozen=True)
class Setting:
    """A setting of a session, and the formats whose files mean something else by it.

    :param option: the reader's option that says the same; ``None`` if there is none.
    :param default: Spark's; ``None`` where it is none, or the machine's.
    """

    name: str
    formats: frozenset[str]
    option: str | None = None
    default: str | None = None


SETTINGS = (
    Setting(_ZONE, TEXTS, "timeZone"),
    Setting(_CORRUPT, TEXTS, "columnNameOfCorruptRecord", "_corrupt_record"),
    Setting(CALENDARS[0], _PARQUET, "datetimeRebaseMode"),
    Setting(CALENDARS[1], _PARQUET, "int96RebaseMode"),
    Setting(_PARSER, TEXTS, default="CORRECTED"),
    Setting("spark.sql.legacy.csv.enableDateTimeParsingFallback", frozenset(("csv",))),
    Setting("spark.sql.legacy.json.enableDateTimeParsingFallback", frozenset(("json",))),
    Setting("spark.sql.legacy.json.allowEmptyString.enabled", frozenset(("json",)), default="false"),
    Setting("spark.sql.json.enablePartialResults", frozenset(("json",)), default="true"),
    Setting("spark.sql.json.enableExactStringParsing", frozenset(("json",)), default="true"),
    Setting("spark.sql.legacy.javaCharsets", TEXTS, default="false"),
    Setting("spark.sql.legacy.codingErrorAction", TEXTS, default="false"),
    Setting("spark.sql.caseSensitive", frozenset((*_PARQUET, "orc")), default="false"),
    Setting(_CONVERSION, _PARQUET, default="false"),
)
"""All that are known. (ANSI and the type that ``TIMESTAMP`` is change no value that is read with a schema.)"""


def session_settings(spark: SparkSession, form: str) -> dict[str, str | None]:
    """Return what the session sets for files of a format: setting -> value."""
    return {setting.name: _value(spark, setting) for setting in SETTINGS if form in setting.formats}


def reader_options(source: SourceDefinition) -> dict[str, str]:
    """Return the reader's options by which files mean what they did when the source was registered."""
    fixed = source.session or {}
    options = {setting.option: fixed.get(setting.name) for setting in SETTINGS if setting.option is not None}
    return {name: value for name, value in options.items() if value is not None}


def session_difference(snapshot: Snapshot) -> str | None:
    """Return how this session would read the source's files otherwise than when it was registered.

    ``None`` if it would not. A log from before settings were written down is taken to be of Spark's defaults.
    """
    source = snapshot.table.source
    if source is None or not snapshot.has_spark:
        return None
    for setting in SETTINGS:
        if setting.option is not None or source.format not in setting.formats:
            continue
        now, then = (
            _value(snapshot.spark, setting),
            setting.default if source.session is None else source.session.get(setting.name),
        )
        if source.session is None and now == "EXCEPTION":
            continue  # Spark's default before 4.0: an error where the two parsers differ, and no index of such files
        if now != then:
            return f"{setting.name} is {now}, and was {then} when the source was registered"
    return None


def differing_setting(spark: SparkSession, source: SourceDefinition, options: Mapping[str, str]) -> str | None:
    """Return what reads a source's files otherwise than when it was registered; ``None`` if nothing does.

    :param options: of the reader, which take precedence over the session's settings.
    """
    given = {name.lower(): value for name, value in options.items()}
    for setting in SETTINGS:
        if source.format not in setting.formats:
            continue
        now = given.get(setting.option.lower()) if setting.option is not None else None
        now = _value(spark, setting) if now is None else now
        then = setting.default if source.session is None else source.session.get(setting.name)
        if now != then:
            return f"{setting.name} is {now}, and was {then} when the source was registered"
    return None


def unknown_time_zone(table: TableDefinition, columns: Iterable[str]) -> str | None:
    """Return why the meaning of these columns when an index over them was built is unknown; ``None`` if it is known.

    Times in text files are of the session's zone, which older logs do not hold.
    """
    source = table.source
    if source is None or source.session is not None or source.format not in TEXTS:
        return None
    if any(name.lower() == "timezone" for name in source.options):
        return None
    kinds = {field.name: field.type for field in table.fields}
    timed = [name for name in columns if "timestamp" in kinds.get(name, "").replace("timestamp_ntz", "")]
    if not timed:
        return None
    return f"the log does not name the time zone in which {timed[0]} was read; register the source again"


def check_session(snapshot: Snapshot) -> None:
    """Refuse a session that would write into an index what others do not read of the files.

    :raises InvalidInput: if what this session would write into an index is not what others read of the files.
    """
    differs = session_difference(snapshot)
    if differs is not None:
        raise InvalidInput(
            f"Files of {snapshot.table.source.location if snapshot.table.source else ''} mean something else in this "
            f"session: {differs}.",
            hint="Set it as it was, or drop the registration and register the source with the setting that is wanted.",
        )


def case_sensitive(source: SourceDefinition) -> bool:
    """Test whether columns of files are found only by their exact names."""
    return (source.session or {}).get("spark.sql.caseSensitive") == "true"


def whole_record_condition(snapshot: Snapshot, schema: T.StructType, columns: Iterable[str]) -> Column | None:
    """Return a condition that all rows meet, by which Spark parses all columns and all rows.

    ``None`` where what it reads of one column does not depend on which others it parses, and for a query, which is
    answered as by Spark alone: :func:`keeps_damaged_records` says which sources' queries no index may answer.

    Of a damaged JSON record it keeps the fields before the fault, of those that it parses; a record counts as damaged
    only for these; and a filter that is handed to the parser drops damaged records. Since the condition is not
    deterministic to Spark, no filter gets past it.

    :param columns: those that are read.
    """
    source = snapshot.table.source
    if source is None or source.format not in TEXTS:
        return None
    corrupt = corrupt_column(source, snapshot)
    # Spark refuses to read the text of damaged records alone.
    if snapshot.by_query and {name for name in columns if name in schema.names} != {corrupt}:
        return None
    if source.format == "csv" and corrupt not in schema.names:
        return None
    nulls = ", ".join(f"{quote(name)} IS NULL" for name in schema.names)
    return F.expr(f"bit_count(hash({nulls}, rand(0))) >= 0")


def rebase_of(source: SourceDefinition | None) -> str | None:
    """Return how old days and times of Parquet files are taken whose writer says nothing of its calendar.

    "CORRECTED": as they are; ``None`` where that is not known, or is another way.
    """
    if source is None or source.format not in _PARQUET:
        return None
    given = {name.lower(): value for name, value in {**reader_options(source), **source.options}.items()}
    modes = {given.get(name, "").upper() for name in ("datetimerebasemode", "int96rebasemode")}
    return "CORRECTED" if modes == {"CORRECTED"} else None


def corrupt_column(source: SourceDefinition, snapshot: Snapshot) -> str:
    """Return the name of the column that holds damaged records of text files, if there is one of that name."""
    options = {name.lower(): value for name, value in source.options.items()}
    session_column = reader_options(source).get("columnNameOfCorruptRecord")
    if session_column is None and snapshot.has_spark:
        session_column = setting_of(snapshot.spark, _CORRUPT)
    return options.get("columnnameofcorruptrecord", session_column or "_corrupt_record")


def keeps_damaged_records(source: SourceDefinition | None) -> bool:
    """Test whether a damaged record gives a row of nulls that a filter handed to Spark's parser may drop: JSON's."""
    if source is None or source.format != "json":
        return False
    modes = [value.upper() for name, value in source.options.items() if name.lower() == "mode"]
    return modes != ["FAILFAST"]


def _value(spark: SparkSession, setting: Setting) -> str | None:
    try:
        # Without a default, which Spark would return for what is not set.
        value = setting_of(spark, setting.name)
    except spark_errors():
        return setting.default  # this Spark does not know it
    if value is None or value == "<undefined>":
        return setting.default
    if setting.name == _CONVERSION and value == "true":
        return f"true, in {setting_of(spark, _ZONE)}"
    if setting.name == _PARSER and _folded(value) == "EXCEPTION":
        # By default before Spark 4.0: a text that the old parser took otherwise is an error, all others are read so.
        return "CORRECTED"
    return value if setting.option is not None else _folded(value)


def _folded(value: str) -> str:
    return value.upper() if value.upper() in ("CORRECTED", "LEGACY", "EXCEPTION") else value.lower()
