"""Options of ``CREATE TABLE … USING indexed`` and arguments of ``CALL``: names of the documents, and what they become.

An option that is not known is refused rather than kept: a misspelt one would silently leave a table with a layout
that cannot be changed by writing to it. Follows Hudi's RFC-89 (its options and their DDL).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_apps.sql.statements import NEWEST, ManageBuckets, Value
from spark_apps.sql.syntax import Positioned, Refused
from spark_apps.workload.query_log import PROPERTY as QUERY_LOG

Setting = tuple[str, object]
_Reader = Callable[[Positioned[str]], object]


@dataclass
class TableOptions:
    """The meaning of a table's options: arguments of ``IndexedTable.create``, properties, a location, a format."""

    arguments: dict[str, object] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    format: str | None = None

    def put(self, name: str, value: object, at: Positioned[str]) -> None:
        """Set an argument.

        :raises Refused: if it has another value already, under whichever of its names.
        """
        if name in self.arguments and self.arguments[name] != value:
            raise Refused(at.token, f"{name} is given twice, as {self.arguments[name]!r} and as {value!r}.")
        self.arguments[name] = value


def read_options(pairs: Iterable[tuple[Positioned[str], Positioned[str]]], options: TableOptions) -> None:
    """Read the pairs of one TBLPROPERTIES, OPTIONS or WITH clause into ``options``."""
    for key, value in pairs:
        name = key.value.lower()
        if name in ("path", "location"):
            options.location = value.value
        elif name == "connector":
            options.format = value.value
        elif name in _LAYOUTS:
            _read_layout(value, options)
        elif name in _FIXED:
            _check_fixed(key, value)
        elif name in _ARGUMENTS:
            argument, reader = _ARGUMENTS[name]
            argument_value = reader(value)
            if argument_value is not None:
                options.put(argument, argument_value, key)
        elif name == QUERY_LOG or ("." in name and not name.startswith("hoodie.")):
            if options.properties.setdefault(key.value, value.value) != value.value:
                raise Refused(key.token, f"The property {key.value!r} is given twice.")
        else:
            raise Refused(key.token, f"There is no table option {key.value!r}.", _suggestion(name))


def read_source_options(pairs: Iterable[tuple[Positioned[str], Positioned[str]]], options: TableOptions) -> None:
    """Read the options of a source: its record key, and properties of one's own.

    Its layout is not for this package to say.
    """
    for key, value in pairs:
        argument = _ARGUMENTS.get(key.value.lower(), ("", _text))[0]
        if argument == "record_key":
            options.put(argument, names_of(value), key)
        elif key.value.lower() == QUERY_LOG or (
            not argument and "." in key.value and not key.value.lower().startswith("hoodie.")
        ):
            options.properties[key.value] = value.value
        else:
            raise Refused(
                key.token,
                f"There is no option {key.value!r} of a table that others write.",
                "Give record_key or a property with a dot in its name, and what the format's reader takes in OPTIONS.",
            )


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, [*_ARGUMENTS, *_LAYOUTS, *_FIXED, QUERY_LOG], 1)
    own_property = "A property of your own has a dot in its name, as in 'team.owner'."
    return f"Did you mean {near[0]!r}? {own_property}" if near else f"docs/sql.md lists those there are. {own_property}"


def _read_layout(value: Positioned[str], options: TableOptions) -> None:
    """Read the layout: buckets, or file groups that the record index finds."""
    if value.value.upper() in _WITHOUT_BUCKETS:
        options.put("buckets", None, value)
    elif value.value.upper() != "BUCKET":
        raise Refused(
            value.token,
            f"Rows are found by their bucket or by the record index, not by {value.value!r}.",
            "Say 'BUCKET' or 'RECORD_INDEX'.",
        )


def _check_fixed(key: Positioned[str], value: Positioned[str]) -> None:
    accepted, why = _FIXED[key.value.lower()]
    if value.value.upper() not in accepted:
        raise Refused(value.token, f"{key.value} is {value.value!r}, and only {accepted[0]!r} can be had: {why}.")


# --- readers of one value -------------------------------------------------------------------------------------


def names_of(at: Positioned[str]) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    names = tuple(part.strip() for part in at.value.split(","))
    if not all(names):
        raise Refused(at.token, f"{at.value!r} is not a list of columns.", "Write their names with commas between.")
    return names


def count_of(at: Positioned[str]) -> int:
    """Return a bucket count; whether it is a possible one is checked with the rules."""
    try:
        return int(at.value)
    except ValueError:
        raise Refused(at.token, f"{at.value!r} is not a bucket count.", "Give a whole number.") from None


def _text(at: Positioned[str]) -> str:
    return at.value


def _yes_or_no(at: Positioned[str]) -> bool:
    if at.value.lower() not in ("true", "false"):
        raise Refused(at.token, f"{at.value!r} is neither true nor false.")
    return at.value.lower() == "true"


def _one_name(at: Positioned[str]) -> str:
    names = names_of(at)
    if len(names) != 1:
        raise Refused(
            at.token, "Rows can be ordered by one column only.", "Name the one by which newer rows are known."
        )
    return names[0]


def _choice(words: dict[str, str]) -> _Reader:
    def read(at: Positioned[str]) -> str:
        if at.value.lower() not in words:
            raise Refused(at.token, f"{at.value!r} is not one of {', '.join(words)}.")
        return words[at.value.lower()]

    return read


_WRITE_MODES = {
    "mor": "merge_on_read",
    "cow": "copy_on_write",
    "merge_on_read": "merge_on_read",
    "copy_on_write": "copy_on_write",
}
_MERGES = {
    "commit": "commit",
    "ordering": "ordering",
    "commit_time_ordering": "commit",
    "event_time_ordering": "ordering",
}

_NAMES: dict[str, tuple[_Reader, tuple[str, ...]]] = {
    "record_key": (
        names_of,
        ("primaryKey", "hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields"),
    ),
    "ordering_column": (
        _one_name,
        (
            "preCombineField",
            "orderingFields",
            "hoodie.datasource.write.precombine.field",
            "hoodie.table.ordering.fields",
        ),
    ),
    "write_mode": (
        _choice(_WRITE_MODES),
        ("type", "table.type", "hoodie.table.type", "hoodie.datasource.write.table.type"),
    ),
    "merge_by": (_choice(_MERGES), ("hoodie.record.merge.mode",)),
    "buckets": (count_of, ("hoodie.bucket.index.num.buckets",)),
    "bucket_rule": (_text, ("hoodie.bucket.index.partition.rule", "hoodie.bucket.index.partition.rule.type")),
    "bucket_expressions": (_text, ("hoodie.bucket.index.partition.expressions",)),
    "hash_fields": (names_of, ("hoodie.bucket.index.hash.field",)),
    "hash_function": (_text, ()),
    "positions": (_yes_or_no, ()),
    "publish": (names_of, ()),
}
"""Argument of ``IndexedTable.create`` -> how its value is read, and its other names."""

_ARGUMENTS: dict[str, tuple[str, _Reader]] = {
    name.lower(): (argument, reader) for argument, (reader, others) in _NAMES.items() for name in (argument, *others)
}

_LAYOUTS = ("index.type", "hoodie.index.type")
_WITHOUT_BUCKETS = ("RECORD_INDEX", "RECORD_LEVEL_INDEX", "GLOBAL_RECORD_LEVEL_INDEX")

_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "hoodie.bucket.index.engine": (("SIMPLE",), "a bucket count changes by a rescale, never by itself"),
    "hoodie.index.bucket.engine": (("SIMPLE",), "a bucket count changes by a rescale, never by itself"),
}
"""Options of the documents that can say only what is the case."""


# --- ``CALL partition_bucket_index_manager(…)`` ---------------------------------------------------------------------


PROCEDURE = "partition_bucket_index_manager"
PARAMETERS = (
    "table", "overwrite", "bucket_number", "add", "dry_run", "rollback", "show_config", "rule", "options",
)  # fmt: skip
OPERATIONS = ("overwrite", "add", "rollback", "show_config")
OPTIONS = ("window", "drain_seconds")

Arguments = Sequence[tuple[Positioned[str] | None, Positioned[Value]]]


def read_call(procedure: Positioned[str], arguments: Arguments) -> ManageBuckets:
    """Return the statement of a call.

    :raises Refused: at the argument that cannot be meant.
    """
    if _plain(procedure.value.rpartition(".")[2]) != _plain(PROCEDURE):
        raise Refused(procedure.token, f"There is no procedure {procedure.value!r}.", f"There is {PROCEDURE}.")
    given = _by_name(arguments)
    if "table" not in given:
        raise Refused(procedure.token, "The call names no table.", "Add table => 'db.name'.")
    operations = [name for name in OPERATIONS if name in given and given[name].value is not False]
    if len(operations) != 1:
        token = procedure.token if not operations else given[operations[1]].token
        raise Refused(token, f"The call asks for {' and '.join(operations) or 'nothing'}.",
                      f"Give exactly one of {', '.join(OPERATIONS)}.")  # fmt: skip
    [operation] = operations
    _check_fits(operation, given)
    return ManageBuckets(
        table=_argument_text(given["table"], "table"),
        operation=operation,  # type: ignore[arg-type]
        argument=_argument(operation, given[operation]),
        bucket_number=_count(given["bucket_number"]) if "bucket_number" in given else None,
        dry_run=_truth(given["dry_run"], "dry_run") if "dry_run" in given else operation in ("overwrite", "add"),
        rule=_argument_text(given["rule"], "rule") if "rule" in given else None,
        options=_options(given["options"]) if "options" in given else (),
    )


def _by_name(arguments: Arguments) -> dict[str, Positioned[Any]]:
    """Return the arguments by parameter; NULL is as good as not given."""
    known = {_plain(name): name for name in PARAMETERS}
    given: dict[str, Positioned[Any]] = {}
    named = False
    for position, (called, at) in enumerate(arguments):
        named = named or called is not None
        if called is None and named:
            raise Refused(at.token, "An argument without a name follows one with a name.", "Give its name too.")
        if called is None and position >= len(PARAMETERS):
            raise Refused(at.token, f"The call has {len(PARAMETERS)} parameters.", f"They are {', '.join(PARAMETERS)}.")
        if called is not None and _plain(called.value) not in known:
            raise Refused(
                called.token, f"There is no parameter {called.value!r}.", f"There are {', '.join(PARAMETERS)}."
            )
        name = PARAMETERS[position] if called is None else known[_plain(called.value)]
        if name in given:
            raise Refused((called or at).token, f"{name} is given twice.")
        given[name] = at
    return {name: at for name, at in given.items() if at.value is not None}


def _check_fits(operation: str, given: dict[str, Positioned[Any]]) -> None:
    takes = {
        "overwrite": {"bucket_number", "rule", "dry_run", "options"},
        "add": {"dry_run", "options"},
        "rollback": {"dry_run", "options"},
        "show_config": set(),
    }[operation]
    for name in ("bucket_number", "rule", "dry_run", "options"):
        # A call by positions has to say something for those in between; what is the default says nothing.
        if name in given and name not in takes and given[name].value not in (-1, "regex", True):
            raise Refused(given[name].token, f"{operation} takes no {name}.", _why_not(operation, name))


def _why_not(operation: str, name: str) -> str:
    if operation == "add" and name in ("bucket_number", "rule"):
        return "Expressions are added under the rule and default in force; to change these, overwrite."
    return "Leave it out."


def _argument(operation: str, at: Positioned[Any]) -> str:
    if operation == "show_config":
        _truth(at, operation)
        return ""
    if operation == "rollback" and at.value is True:
        return NEWEST
    return _argument_text(at, operation)


def _argument_text(at: Positioned[Any], name: str) -> str:
    if not isinstance(at.value, str) or not at.value:
        raise Refused(at.token, f"{name} is not a text.", f"Write {name} => '…'.")
    return at.value


def _truth(at: Positioned[Any], name: str) -> bool:
    text = str(at.value).lower()
    if text not in ("true", "false"):
        raise Refused(at.token, f"{name} is neither true nor false.", f"Write {name} => true.")
    return text == "true"


def _count(at: Positioned[Any]) -> int | None:
    try:
        count = int(str(at.value))
    except ValueError:
        raise Refused(at.token, "bucket_number is no number.", "Write bucket_number => 8.") from None
    return None if count == -1 else count  # the document's way to say nothing


def _options(at: Positioned[Any]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of ``key=value, key=value``."""
    pairs = [part.partition("=") for part in _argument_text(at, "options").split(",") if part.strip()]
    for key, _sign, value in pairs:
        if key.strip() not in OPTIONS or not value.strip():
            raise Refused(
                at.token, f"There is no option {key.strip()!r}.", f"There are {', '.join(OPTIONS)}, each key=value."
            )
    return tuple((key.strip(), value.strip()) for key, _sign, value in pairs)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
