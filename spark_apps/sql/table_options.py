"""The options of ``CREATE TABLE … USING indexed``: the names of the documents and our own, and what they become.

An option that is not known is refused rather than kept: a misspelt one would silently leave a table with a layout
that cannot be changed by writing to it. Follows Hudi's RFC-89 (its options and their DDL).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from spark_apps.sql.places import At, Refused

Setting = tuple[str, object]
_Reader = Callable[[At[str]], object]


@dataclass
class TableOptions:
    """What the options of a table come to: arguments of ``IndexedTable.create``, properties, a location, a format."""

    arguments: dict[str, object] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    format: str | None = None

    def put(self, name: str, value: object, at: At[str]) -> None:
        """Sets an argument. :raises Refused: if it has another value already, under whichever of its names."""
        if name in self.arguments and self.arguments[name] != value:
            raise Refused(at.token, f"{name} is given twice, as {self.arguments[name]!r} and as {value!r}.")
        self.arguments[name] = value


def read_options(pairs: Iterable[tuple[At[str], At[str]]], options: TableOptions) -> None:
    """Reads the pairs of one TBLPROPERTIES, OPTIONS or WITH clause into ``options``."""
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
            found = reader(value)
            if found is not None:
                options.put(argument, found, key)
        elif "." in name and not name.startswith("hoodie."):
            if options.properties.setdefault(key.value, value.value) != value.value:
                raise Refused(key.token, f"The property {key.value!r} is given twice.")
        else:
            raise Refused(key.token, f"There is no table option {key.value!r}.", _suggestion(name))


def read_source_options(pairs: Iterable[tuple[At[str], At[str]]], options: TableOptions) -> None:
    """Reads those of a source, of whose layout nothing is ours to say: its record key, and properties of one's own."""
    for key, value in pairs:
        argument = _ARGUMENTS.get(key.value.lower(), ("", _text))[0]
        if argument == "record_key":
            options.put(argument, names_of(value), key)
        elif not argument and "." in key.value and not key.value.lower().startswith("hoodie."):
            options.properties[key.value] = value.value
        else:
            raise Refused(
                key.token,
                f"There is no option {key.value!r} of a table that others write.",
                "Give record_key or a property with a dot in its name here, and what the format's reader takes in "
                "OPTIONS.",
            )


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, [*_ARGUMENTS, *_LAYOUTS, *_FIXED], 1)
    own = "A property of your own has a dot in its name, as in 'team.owner'."
    return f"Did you mean {near[0]!r}? {own}" if near else f"docs/sql.md lists those there are. {own}"


def _read_layout(value: At[str], options: TableOptions) -> None:
    """Buckets, or file groups that the record index finds."""
    if value.value.upper() in _WITHOUT_BUCKETS:
        options.put("buckets", None, value)
    elif value.value.upper() != "BUCKET":
        raise Refused(
            value.token,
            f"Rows are found by their bucket or by the record index, not by {value.value!r}.",
            "Say 'BUCKET' or 'RECORD_INDEX'.",
        )


def _check_fixed(key: At[str], value: At[str]) -> None:
    taken, why = _FIXED[key.value.lower()]
    if value.value.upper() not in taken:
        raise Refused(value.token, f"{key.value} is {value.value!r}, and only {taken[0]!r} can be had: {why}.")


# --- readers of one value -------------------------------------------------------------------------------------


def names_of(at: At[str]) -> tuple[str, ...]:
    """Names separated by commas."""
    found = tuple(part.strip() for part in at.value.split(","))
    if not all(found):
        raise Refused(at.token, f"{at.value!r} is not a list of columns.", "Write their names with commas between.")
    return found


def count_of(at: At[str]) -> int:
    """A bucket count; whether it is a possible one is checked with the rules."""
    try:
        return int(at.value)
    except ValueError:
        raise Refused(at.token, f"{at.value!r} is not a bucket count.", "Give a whole number.") from None


def _text(at: At[str]) -> str:
    return at.value


def _yes_or_no(at: At[str]) -> bool:
    if at.value.lower() not in ("true", "false"):
        raise Refused(at.token, f"{at.value!r} is neither true nor false.")
    return at.value.lower() == "true"


def _one_name(at: At[str]) -> str:
    found = names_of(at)
    if len(found) != 1:
        raise Refused(at.token, "Rows can be ordered by one column only.", "Name the one that tells newer from older.")
    return found[0]


def _choice(words: dict[str, str]) -> _Reader:
    def read(at: At[str]) -> str:
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
