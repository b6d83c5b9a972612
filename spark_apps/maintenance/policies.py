"""Policies of when a table is due for which work, as its owner says it: limits with defaults, and the budget of a run.

This module only reads what was written, in Python or YAML, and refuses what it does not understand, naming the entry.
It runs while a DAG is parsed: no storage is touched and nothing heavy imported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from spark_apps.maintenance.native_calls import NativeCall, call_of
from spark_apps.storage.errors import InvalidInput, InvalidName
from spark_apps.storage.names import check_table_name
from spark_apps.storage.sizes import parse_bytes, parse_minutes, parse_seconds, split_unit, unreadable
from spark_apps.timeline.catalog_names import SESSION_CATALOG
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS, SMALL_BYTES


def share_of(value: Any, where: str) -> float:
    """Return a share from 0 to 1: a number, or a percentage as text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    number, unit = split_unit(value) if isinstance(value, str) else (None, "")
    if number is None or unit not in ("%", "") or not 0 <= (share := number / (100 if unit else 1)) <= 1:
        raise unreadable(value, where, "a share", "20% or 0.2")
    return share


def count_of(value: Any, where: str, least: int = 1) -> int:
    """Return a whole number, ``least`` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise unreadable(value, where, f"a whole number from {least} on", str(max(least, 5)))
    return value


# --- When a table is due for which work -----------------------------------------------------------------------------


_MODES = {"refresh": ("incremental", "full"), "compact": ("quick", "full")}
_WILD = frozenset("*?[")
_MAX_PATTERN = 200

P = TypeVar("P")


@dataclass(frozen=True)
class RefreshPolicy:
    """An index is refreshed when one of these is reached; ``None`` switches a limit off.

    :param lag_commits: commits that it does not cover. :param lag_bytes: bytes of their files.
    :param lag_age: seconds since the oldest of them.
    :param every: of a registered source, whose changes only a look at it can find: seconds since the last look.
    :param unasked_age: of an index that, by the table's query log, no query asked for lately: seconds that it may be
        behind, whatever the other limits say.
    """

    lag_commits: int | None = 1
    lag_bytes: int | None = None
    lag_age: float | None = None
    every: float | None = 20 * 3600.0
    unasked_age: float | None = 13.5 * 86400.0
    mode: str = "incremental"


@dataclass(frozen=True)
class CompactPolicy:
    """The table's own files, or those of an index, are folded when one of these is reached.

    :param small_files: this many files below ``small_size`` bytes that could be folded away.
    :param small_share: they are this share of all files. :param tombstones: rows that remove a key are this share.
    """

    small_files: int | None = 20
    small_share: float | None = 0.5
    tombstones: float | None = 0.2
    small_size: int = SMALL_BYTES
    mode: str = "full"


@dataclass(frozen=True)
class CleanPolicy:
    """Old versions are expired and their files deleted; ``every`` is the time between, in seconds.

    What stays: see :func:`~spark_apps.timeline.cleaning.clean`.
    """

    every: float | None = 20 * 3600.0
    retain_versions: int = RETAIN_VERSIONS
    retain: float = RETAIN_SECONDS


@dataclass(frozen=True)
class VerifyPolicy:
    """Each index is compared with a full scan of the table; ``every`` is the time between, in seconds."""

    every: float | None = 6.5 * 86400.0


@dataclass(frozen=True)
class NativePolicy:
    """A call of a registered table's own format is made when one of these is reached; ``None`` switches a limit off.

    :param every: seconds since the last time. :param small_files: of a call that rewrites files, this many files below
        ``small_size`` bytes beside others of their partition, as the log last recorded them.
    :param small_share: they are this share of all files. :param arguments: of the call.
    """

    every: float | None = None
    small_files: int | None = None
    small_share: float | None = None
    small_size: int = SMALL_BYTES
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, call: NativeCall) -> NativePolicy:
        """Return the limits of a call that is asked for by its name alone."""
        if call.kind == "compact":
            return cls(small_files=CompactPolicy.small_files, small_share=CompactPolicy.small_share)
        return cls(every=6.5 * 86400.0)


@dataclass(frozen=True)
class Policy:
    """All limits of one table. ``None`` switches a kind of work off.

    :param native: calls of a registered table's own format, by name: those that are asked for, and no others.
    """

    refresh: RefreshPolicy | None = RefreshPolicy()
    compact: CompactPolicy | None = CompactPolicy()
    compact_indexes: CompactPolicy | None = CompactPolicy()
    clean: CleanPolicy | None = CleanPolicy()
    verify: VerifyPolicy | None = VerifyPolicy()
    native: Mapping[str, NativePolicy] | None = None


@dataclass(frozen=True)
class Budget:
    """Limits of what one run may spend: bytes read, and minutes from its plan on.

    ``None``: as much as there is to do.
    """

    bytes: int | None = None
    minutes: float | None = None


@dataclass(frozen=True)
class TableEntry:
    """An entry of the list of tables.

    :param table: a name, URI or path, or a pattern (``demo.*``) over the names of the warehouse.
    :param weight: how much more than others its work is worth.
    :param indexes: patterns; only these indexes are looked after.
    """

    table: str
    policy: Policy = Policy()
    enabled: bool = True
    weight: float = 1.0
    indexes: tuple[str, ...] = ("*",)
    table_conn_id: str | None = None
    spark_conn_id: str | None = None

    @property
    def is_pattern(self) -> bool:
        """True if the entry is a pattern, of all tables of the warehouse whose names match it."""
        return bool(_WILD & set(self.table))

    def covers_index(self, name: str) -> bool:
        """Return whether the index is one of those looked after."""
        return any(matches(pattern, name) for pattern in self.indexes)


@dataclass(frozen=True)
class MaintenanceConfig:
    """Everything that was described. Of several entries that fit a table the first one counts."""

    tables: tuple[TableEntry, ...]
    budget: Budget = field(default_factory=Budget)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # translate() makes every star atomic, so that no pattern takes long over any name.
    return re.compile(translate(pattern))


def may_hold(pattern: str, folder: str) -> bool:
    """Return whether a table below a folder of that name, whose tables are not known, can match a pattern."""
    head = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return f"{folder}.".startswith(head) or head.startswith(f"{folder}.")


def matches(pattern: str, name: str) -> bool:
    """Return whether a name fits a pattern of ``*``, ``?`` and ``[…]``; case counts."""
    return _compiled(pattern).match(name) is not None


def matches_table(pattern: str, name: str) -> bool:
    """Return whether a table's name fits a pattern: of one of Spark's own catalog, with that or without it."""
    return matches(pattern, name) or matches(pattern, name.removeprefix(f"{SESSION_CATALOG}."))


# --- reading what was written ---------------------------------------------------------------------------------------


def read_config(
    given: Mapping[str, Any] | Sequence[Any], where: str = "the maintenance description"
) -> MaintenanceConfig:
    """Read a description: a mapping with ``tables`` and perhaps ``defaults`` and ``budget``, or just the tables.

    :raises InvalidInput: for an unknown key, a value that is not what it should be, or no tables; naming the entry.
    """
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        given = {"tables": given}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {type(given).__name__}.", hint="Write a mapping with the key 'tables'.")
    _known(given, ("tables", "defaults", "budget"), where)
    defaults = _policy(given.get("defaults") or {}, Policy(), f"{where}: defaults")
    tables = given.get("tables")
    if not isinstance(tables, Sequence) or isinstance(tables, str | bytes) or not tables:
        raise InvalidInput(f"{where}: tables is {tables!r}.", hint="List at least one table, or a pattern like 'db.*'.")
    entries = tuple(_entry(one, defaults, f"{where}: tables[{at}]") for at, one in enumerate(tables))
    return MaintenanceConfig(entries, _budget(given.get("budget") or {}, f"{where}: budget"))


def read_file(path: str | Path) -> MaintenanceConfig:
    """Read a description from a YAML (or JSON) file. :raises InvalidInput: also if it is missing or no YAML."""
    import yaml  # type: ignore[import-untyped]

    file = Path(path)
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The maintenance description {file} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"The maintenance description {file} is no YAML: {error}.") from error
    return read_config(given, file.name)


def _entry(given: Any, defaults: Policy, where: str) -> TableEntry:
    if isinstance(given, str):
        given = {"table": given}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {given!r}.", hint="Write a table's name, or a mapping with the key 'table'.")
    names = ("table", "enabled", "weight", "indexes", "table_conn_id", "spark_conn_id")
    kinds = tuple(one.name for one in fields(Policy))
    _known(given, (*names, *kinds), where)
    entry = TableEntry(
        _table(given.get("table"), where),
        _policy({key: given[key] for key in kinds if key in given}, defaults, where),
        enabled=_boolean(given.get("enabled", True), f"{where}.enabled"),
        weight=_weight(given.get("weight", 1.0), f"{where}.weight"),
        indexes=_patterns(given.get("indexes", "*"), f"{where}.indexes"),
        table_conn_id=_text(given.get("table_conn_id"), f"{where}.table_conn_id"),
        spark_conn_id=_text(given.get("spark_conn_id"), f"{where}.spark_conn_id"),
    )
    return entry


def _table(given: Any, where: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput(f"{where} names no table.", hint="Give table: a name (db.table), URI, path, or pattern.")
    name = given.strip()
    if _WILD & set(name):
        check_pattern(name, f"{where}.table")
        if "://" in name or name.startswith("/"):
            raise InvalidInput(
                f"{where}.table is the pattern {name!r} over locations.",
                hint="Patterns are over the names of the connection's warehouse: write db.*, not a path.",
            )
    elif "://" not in name and not name.startswith("/"):
        try:
            check_table_name(name)
        except InvalidName as error:
            raise InvalidInput(f"{where}.table: {error.message}", hint=error.hint) from error
    return name


def check_pattern(pattern: Any, where: str) -> str:
    """Check that something is a pattern.

    :raises InvalidInput: if it is no pattern, or one that no name can be meant by.
    """
    if not isinstance(pattern, str) or not pattern or len(pattern) > _MAX_PATTERN:
        raise InvalidInput(
            f"{where} is {pattern!r:.80}, which is no pattern.", hint="Write it like demo.* or *.orders."
        )
    if pattern.count("[") != pattern.count("]"):
        raise InvalidInput(f"{where} is {pattern!r}: a bracket is not closed.", hint="Write sets like table_[abc].")
    return pattern


def _policy(given: Any, defaults: Policy, where: str) -> Policy:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {given!r}.", hint="Write a mapping of refresh, compact, clean, verify.")
    _known(given, [one.name for one in fields(Policy)], where)
    changed: dict[str, Any] = {
        name: _native(value, f"{where}.{name}")
        if name == "native"
        else _kind(value, getattr(defaults, name) or getattr(Policy(), name), f"{where}.{name}", name)
        for name, value in given.items()
    }
    return replace(defaults, **changed)


def _native(given: Any, where: str) -> dict[str, NativePolicy] | None:
    """Return the calls of a format's own maintenance: ``false`` for none, or name -> limits and arguments."""
    if given is False or given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise InvalidInput(
            f"{where} is {given!r:.100}.", hint="Name each call: {optimize: true, vacuum: {every: 7d}}, or write false."
        )
    return {
        name: _native_call(call_of(name, where), value, f"{where}.{name}")
        for name, value in given.items()
        if value is not False
    }


def _native_call(call: NativeCall, given: Any, where: str) -> NativePolicy:
    if call.kind == "restore":
        raise InvalidInput(f"{where} is no upkeep.", hint="Restore a table by a RestoreTableOperator of its own.")
    if given is True or given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {given!r:.100}.", hint="Write true, or a mapping of limits and arguments.")
    own = {name: value for name, value in given.items() if name in _NATIVE_READERS}
    if call.kind != "compact" and (stray := [name for name in own if name != "every"]):
        raise InvalidInput(f"{where}.{stray[0]}: {call.name} rewrites no small files.", hint="Use every.")
    values: dict[str, Any] = {
        name: None if value is None or value is False else _NATIVE_READERS[name](value, f"{where}.{name}")
        for name, value in own.items()
    }
    if values.get("small_size", 0) is None:
        raise InvalidInput(f"{where}.small_size cannot be switched off.", hint="Give a value, or leave it out.")
    arguments = call.read({name: value for name, value in given.items() if name not in own}, where)
    policy = replace(NativePolicy.of(call), **values, arguments=arguments)
    if policy.every is None and policy.small_files is None and policy.small_share is None:
        raise InvalidInput(f"{where} has no limit, so it is never due.", hint="Give every, or small_files.")
    return policy


def _kind(given: Any, defaults: P, where: str, kind: str) -> P | None:
    """Return the limits of one kind of work: ``false`` for none, ``true`` for the defaults, or a mapping."""
    if isinstance(given, bool):
        return defaults if given else None
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {given!r}.", hint="Write false, or a mapping of limits.")
    readers = _READERS[kind.removesuffix("_indexes")]
    _known(given, readers, where)
    optional = {one.name for one in fields(defaults) if "None" in str(one.type)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in given.items():
        switched_off = value is None or value is False
        if switched_off and name not in optional:
            raise InvalidInput(f"{where}.{name} cannot be switched off.", hint="Give a value, or leave it out.")
        values[name] = None if switched_off else readers[name](value, f"{where}.{name}")
    return replace(defaults, **values)  # type: ignore[type-var]


def _mode(kind: str) -> Callable[[Any, str], str]:
    def read(value: Any, where: str) -> str:
        if value not in _MODES[kind]:
            raise InvalidInput(f"{where} is {value!r}.", hint=f"Use one of: {', '.join(_MODES[kind])}.")
        return str(value)

    return read


_READERS: dict[str, dict[str, Callable[[Any, str], Any]]] = {
    "refresh": {
        "lag_commits": count_of, "lag_bytes": parse_bytes, "lag_age": parse_seconds, "every": parse_seconds,
        "unasked_age": parse_seconds, "mode": _mode("refresh"),
    },
    "compact": {
        "small_files": count_of, "small_share": share_of, "tombstones": share_of, "small_size": parse_bytes,
        "mode": _mode("compact"),
    },
    "clean": {"every": parse_seconds, "retain_versions": count_of, "retain": parse_seconds},
    "verify": {"every": parse_seconds},
}  # fmt: skip


_NATIVE_READERS: dict[str, Callable[[Any, str], Any]] = {
    "every": parse_seconds, "small_files": count_of, "small_share": share_of, "small_size": parse_bytes,
}  # fmt: skip


def _budget(given: Any, where: str) -> Budget:
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"{where} is {given!r}.", hint="Write bytes and minutes, such as {bytes: 200GB, minutes: 90}."
        )
    _known(given, ("bytes", "minutes"), where)
    size, minutes = given.get("bytes"), given.get("minutes")
    return Budget(
        None if size is None else parse_bytes(size, f"{where}.bytes"),
        None if minutes is None else parse_minutes(minutes, f"{where}.minutes"),
    )


def _known(given: Mapping[str, Any], names: Any, where: str) -> None:
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(str(key), [str(name) for name in names], 1)
            raise InvalidInput(
                f"{where} has the unknown key {key!r}.",
                hint=f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(map(str, names))}.",
            )


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{where} is {value!r}.", hint="Write true or false.")
    return value


def _weight(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1000:
        raise InvalidInput(f"{where} is {value!r}.", hint="Write a number above 0, up to 1000; others have 1.")
    return float(value)


def _text(value: Any, where: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(f"{where} is {value!r}.", hint="Write the id of a connection.")
    return value


def _patterns(value: Any, where: str) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, Sequence) or not given:
        raise InvalidInput(f"{where} is {value!r}.", hint="Write a pattern, or a list of them.")
    return tuple(check_pattern(one, where) for one in given)
