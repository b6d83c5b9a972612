"""The maintenance that Delta, Iceberg and Hudi have of their own: which calls there are, and what each takes.

Neither Spark nor Airflow: an operator and a policy read their arguments here, and :mod:`spark_apps.native` makes the
calls. Each argument has a type and bounds, and goes to the format's own interface as a value, never as SQL.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from spark_apps.storage.errors import InvalidInput

if TYPE_CHECKING:
    from spark_apps.timeline.model import SourceDefinition, TableDefinition

Reader = Callable[[Any, str], Any]
"""Takes what was given and where; returns what it means. :raises InvalidInput:"""

CallKind = Literal["compact", "clean", "restore"]
"""Files are rewritten; what no kept version needs is deleted; an earlier version is brought back."""

_MAX_TEXT = 10_000
_MAX_COLUMNS = 32
_MAX_HOURS = 24 * 365 * 100.0
_LONG = 2**63 - 1
_WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True)
class NativeCall:
    """A call of a format.

    :param commits: whether it ends in a commit of the format, which carries the id of the transaction, so that a retry
        finds it. Any other call is made again by a retry.
    :param arguments: name -> what reads it. :param needs: names of arguments of which exactly one must be given.
    """

    name: str
    format: str
    kind: CallKind
    commits: bool
    arguments: Mapping[str, Reader] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def read(self, given: Any, where: str) -> dict[str, Any]:
        """Return the arguments of this call.

        :param given: a mapping; ``None``, ``True`` and nothing at all are a call without arguments.
        :raises InvalidInput: for an unknown argument, a value that is none, or one that is missing.
        """
        if given is None or given is True or given == "":
            given = {}
        if not isinstance(given, Mapping):
            raise InvalidInput(f"{where} is {given!r:.100}.", hint="Write true, or a mapping of arguments.")
        for name in given:
            if name not in self.arguments:
                near = difflib.get_close_matches(str(name), self.arguments, 1)
                known = ", ".join(self.arguments) or "none"
                raise InvalidInput(
                    f"{where} has the unknown argument {name!r:.100}.",
                    hint=f"Did you mean {near[0]!r}?" if near else f"Known are: {known}.",
                )
        values = {
            name: self.arguments[name](value, f"{where}.{name}") for name, value in given.items() if value is not None
        }
        chosen = [name for name in self.needs if name in values]
        if self.needs and len(chosen) != 1:
            raise InvalidInput(
                f"{where} names {' and '.join(chosen) or f'no {self.needs[0]}'}.",
                hint=f"Give {'one of ' if len(self.needs) > 1 else ''}{', '.join(self.needs)}.",
            )
        return values


# --- readers ----------------------------------------------------------------------------------------------------------


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise InvalidInput(f"{where} is {value!r:.100}.", hint="Write true or false.")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_TEXT or "\0" in value:
        raise InvalidInput(f"{where} is {value!r:.100}.", hint=f"Write text, of at most {_MAX_TEXT:,} characters.")
    return value


def _columns(value: Any, where: str) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, Sequence) or not 0 < len(given) <= _MAX_COLUMNS:
        raise InvalidInput(f"{where} is {value!r:.100}.", hint=f"Name columns, at most {_MAX_COLUMNS}.")
    return [_text(one, f"{where}[{at}]") for at, one in enumerate(given)]


def _whole(least: int, most: int = _LONG) -> Reader:
    def read(value: Any, where: str) -> int:
        number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) else value
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise InvalidInput(f"{where} is {value!r:.100}.", hint=f"Write a whole number from {least} to {most}.")
        return number

    return read


def _options(*known: str) -> Reader:
    def read(value: Any, where: str) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{where} is {value!r:.100}.", hint="Write a mapping of Iceberg's options.")
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                raise InvalidInput(
                    f"{where} has the unknown option {name!r:.100}.",
                    hint=f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(known)}.",
                )
        texts = {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}
        return {name: _text(text, f"{where}.{name}") for name, text in texts.items()}

    return read


def _instant(value: Any, where: str) -> str:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit() and 14 <= len(text) <= 17):
        raise InvalidInput(f"{where} is {value!r:.100}.", hint="Write an instant of Hudi's timeline: 14 to 17 digits.")
    return text


def _hours(value: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= _MAX_HOURS:
        raise InvalidInput(f"{where} is {value!r:.100}.", hint="Write a number of hours, such as 336.")
    return number


# --- the calls --------------------------------------------------------------------------------------------------------


_FILE_OPTIONS = (
    "target-file-size-bytes", "min-file-size-bytes", "max-file-size-bytes", "min-input-files", "rewrite-all",
    "max-file-group-size-bytes", "max-concurrent-file-group-rewrites", "rewrite-job-order",
)  # fmt: skip
_DATA_OPTIONS = (
    *_FILE_OPTIONS, "delete-file-threshold", "delete-ratio-threshold", "remove-dangling-deletes", "output-spec-id",
    "use-starting-sequence-number",
)  # fmt: skip
"""Not those of partial progress: of a rewrite of several commits a retry could not tell which are left."""


_ALL = (
    NativeCall(
        "optimize", "delta", "compact", commits=True,
        arguments={"zorder_by": _columns, "where": _text, "full": _flag},
    ),
    NativeCall("vacuum", "delta", "clean", commits=False, arguments={"retain_hours": _hours}),
    NativeCall(
        "restore", "delta", "restore", commits=True,
        arguments={"version": _whole(0), "timestamp": _text}, needs=("version", "timestamp"),
    ),
    NativeCall(
        "rewrite_data_files", "iceberg", "compact", commits=True,
        arguments={"where": _text, "sort": _flag, "zorder_by": _columns, "options": _options(*_DATA_OPTIONS)},
    ),
    NativeCall(
        "rewrite_position_delete_files", "iceberg", "compact", commits=True,
        arguments={"options": _options(*_FILE_OPTIONS)},
    ),
    NativeCall("rewrite_manifests", "iceberg", "compact", commits=True),
    NativeCall(
        "expire_snapshots", "iceberg", "clean", commits=False,
        arguments={"retain_hours": _hours, "retain_last": _whole(1, 1_000_000)},
    ),
    NativeCall("remove_orphan_files", "iceberg", "clean", commits=False, arguments={"retain_hours": _hours}),
    NativeCall(
        "rollback_to_snapshot", "iceberg", "restore", commits=False,
        arguments={"snapshot_id": _whole(0)}, needs=("snapshot_id",),
    ),
    NativeCall("run_compaction", "hudi", "compact", commits=True),
    NativeCall("run_clustering", "hudi", "compact", commits=True, arguments={"order": _columns}),
    NativeCall("run_clean", "hudi", "clean", commits=False),
    *(
        NativeCall(name, "hudi", "restore", commits=False, arguments={"instant": _instant}, needs=("instant",))
        for name in ("create_savepoint", "delete_savepoint", "rollback_to_savepoint", "rollback_to_instant")
    ),
)  # fmt: skip

CALLS: dict[str, NativeCall] = {one.name: one for one in _ALL}
"""Name -> call. No two formats have one of the same name."""


def call_of(name: str, where: str = "native") -> NativeCall:
    """Return the call of a name. :raises InvalidInput: if there is none."""
    if name not in CALLS:
        near = difflib.get_close_matches(str(name), CALLS, 1)
        raise InvalidInput(
            f"{where} has the unknown call {name!r:.100}.",
            hint=f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(CALLS)}.",
        )
    return CALLS[name]


def source_of(table: TableDefinition, call: NativeCall) -> SourceDefinition:
    """Return the source of a registered table whose format has the call. :raises InvalidInput: if it has not."""
    source = table.source
    if source is None:
        raise InvalidInput(
            f"{call.name} is a call of {call.format}, and this table is no registered one.",
            hint="compact, clean and restore without native= are for tables of this package.",
        )
    if source.format != call.format:
        raise InvalidInput(
            f"{call.name} is a call of {call.format}, and {source.location} is of the format {source.format}.",
            hint="Use the calls of its format.",
        )
    return source


def check_calls(names: Iterable[str], kind: CallKind, where: str = "native") -> None:
    """Check that calls are for one thing. :raises InvalidInput: naming the first that is not."""
    for name in names:
        if call_of(name, where).kind != kind:
            others = ", ".join(one.name for one in _ALL if one.kind == kind)
            raise InvalidInput(
                f"{where} has {name!r}, which is asked for elsewhere.", hint=f"Calls that belong here: {others}."
            )


def read_calls(given: Any, where: str = "native") -> dict[str, dict[str, Any]]:
    """Return calls with their arguments, in their order: name -> arguments.

    ::

        read_calls({"optimize": {"zorder_by": ["rider"]}})

    :raises InvalidInput: naming what cannot be understood.
    """
    if isinstance(given, str):
        given = {given: None}
    if not isinstance(given, Mapping) or not given:
        raise InvalidInput(
            f"{where} is {given!r:.100}.", hint='Write {"optimize": {"zorder_by": ["rider"]}}, for example.'
        )
    calls: dict[str, dict[str, Any]] = {}
    for name, arguments in given.items():
        call = call_of(name, where)
        if arguments is False:
            raise InvalidInput(f"{where}.{name} is false.", hint="Leave the call out.")
        calls[name] = call.read(arguments, f"{where}.{name}")
    if len({CALLS[name].format for name in calls}) > 1:
        raise InvalidInput(f"{where} has calls of several formats: {', '.join(calls)}.", hint="A table has one format.")
    return calls


def transactions_of(txn_id: str, calls: Iterable[str], refreshed: Iterable[str]) -> list[str]:
    """Return the transaction of each call, and of the refresh of each index after them, in their order."""
    indexes = (hashlib.blake2b(name.encode(), digest_size=6).hexdigest() for name in refreshed)
    return [*(f"{txn_id}.{name}" for name in calls), *(f"{txn_id}.refresh-{index}" for index in indexes)]
