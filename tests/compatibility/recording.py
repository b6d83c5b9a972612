"""Describes public names and documents as plain JSON, so that those of today compare with those written down once."""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as kinds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS = ("spark_apps", "airflow_provider_index")

JSON = dict[str, Any]


# --- public names ---------------------------------------------------------------------------------------------------


def resolve(dotted: str) -> Any:
    """Return what a dotted name means: a module, or an attribute of the longest part of it that is one.

    :raises ImportError: :raises AttributeError: if it means nothing.
    """
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        try:
            value: Any = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if end == 1 or error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            continue
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise ImportError(dotted)


def public(value: Any) -> JSON:
    """Describe a public name: what it is, what it takes, and of a class what it has."""
    if inspect.isclass(value):
        abstract = sorted(getattr(value, "__abstractmethods__", ()))
        return {
            "is": "class",
            "takes": _parameters(value),
            **({"has": members} if (members := _members(value)) else {}),
            **({"asks": abstract} if abstract else {}),
        }
    if inspect.isroutine(value):
        return {"is": "function", "takes": _parameters(value)}
    if inspect.ismodule(value):
        return {"is": "module"}
    return {"is": repr(value)} if isinstance(value, str | int | float | tuple) else {"is": "value"}


def _members(kind: type) -> JSON:
    """Public methods with their parameters, and the names of other attributes, of the class and its bases of ours."""
    members: JSON = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] not in OURS:
            continue
        for name, member in vars(base).items():
            if name.startswith("_"):
                continue
            bound = getattr(kind, name, member)
            members[name] = _parameters(bound) if inspect.isroutine(bound) else None
        # Fields without a default are no attributes of the class.
        members |= {name: None for name in inspect.get_annotations(base) if not name.startswith("_")}
    if issubclass(kind, enum.Enum):
        members |= dict.fromkeys(kind.__members__)
    return dict(sorted(members.items()))


def _parameters(value: Any) -> list[str]:
    """``name`` of a parameter that must be given, ``name=`` of one that need not; ``*name`` of a keyword."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    parameters = []
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        mark = {one.VAR_POSITIONAL: "[]", one.VAR_KEYWORD: "{}"}.get(one.kind, "")
        star = "*" if one.kind is one.KEYWORD_ONLY else "/" if one.kind is one.POSITIONAL_ONLY else ""
        parameters.append(f"{star}{one.name}{mark}{'' if one.default is one.empty else '='}")
    return parameters


def arguments(kind: type) -> list[str]:
    """Return what a class takes by keyword, what it hands on to its bases of ours included."""
    by_name: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] in OURS and "__init__" in vars(base):
            taken = [one.lstrip("*") for one in _parameters(base.__init__) if not one.endswith(("[]", "{}"))]
            by_name |= {one.rstrip("="): one for one in taken}
    return [f"*{by_name[name]}" for name in sorted(by_name)]


ANY_NAME = "?"
"""Of a parameter that is given by position only."""


def lacks(before: JSON, now: JSON, name: str) -> list[str]:
    """Say what of a description is not as it was; what came since is no lack, as long as nobody must give it."""
    faults = []
    if before["is"] != now["is"]:
        faults.append(f"{name} is {now['is']}, was {before['is']}")
    faults += _not_taken(before.get("takes", []), now.get("takes", []), name)
    members = now.get("has", {})
    for member, taken in before.get("has", {}).items():
        if member not in members:
            faults.append(f"{name}.{member} is gone")
        elif taken is not None:
            faults += _not_taken(taken, members[member] or [], f"{name}.{member}")
    asked = set(now.get("asks", ())) - set(before.get("asks", ()))
    return faults + [f"{name} asks a subclass for {one}, and did not" for one in sorted(asked)]


def _not_taken(before: list[str], now: list[str], name: str) -> list[str]:
    faults = []
    open_ended = any(one.endswith("{}") for one in now)
    optional = {one.rstrip("=") for one in now if one.endswith("=")}
    # In their order for those who give them by position.
    ordered = [one.rstrip("=") for one in now if not one.startswith("*") and not one.endswith(("[]", "{}"))]
    place, renamed = 0, set()
    for one in before:
        plain = one.rstrip("=")
        bare = plain.lstrip("*/")
        if bare == ANY_NAME:  # given by position
            renamed.update(ordered[place : place + 1])
            place += 1
            continue
        there = {other.lstrip("*/").rstrip("=") for other in now}
        if bare not in there and not (open_ended and plain.startswith("*")):
            faults.append(f"{name} takes no {bare}")
        elif one.endswith("=") and bare in there and not {bare, f"*{bare}"} & optional:
            faults.append(f"{name} must be given {bare}, which could be left out")
        if not one.startswith("*") and not one.endswith(("[]", "{}")):
            if bare in there and ordered[place : place + 1] != [plain]:
                faults.append(f"{name} takes {bare} at another place")
            place += 1
    known = {one.lstrip("*/").rstrip("=") for one in before} | renamed
    for one in now:
        if not one.endswith(("=", "[]", "{}")) and one.lstrip("*/") not in known:
            faults.append(f"{name} must be given {one.lstrip('*/')}, which is new")
    return faults


# --- names in the documents -----------------------------------------------------------------------------------------

_DOTTED = re.compile(r"(?<![\w./-])(?:spark_apps|airflow_provider_index)(?:\.[A-Za-z_]\w*)+")
_FROM = re.compile(
    r"^\s*from ((?:spark_apps|airflow_provider_index)[\w.]*) import (\([^)]*\)|[^\n#]*)", flags=re.MULTILINE
)
_NO_NAMES = re.compile(r"airflow_provider_index\.(?:whl|connectors|hash_functions|index_kinds|rule_engines)$")
"""A file's name, and the groups of entry points."""


def documented(text: str) -> set[str]:
    """Return the dotted names of this package that a page tells of, in code and in its sentences."""
    names_in_text = {name for name in _DOTTED.findall(text) if not _NO_NAMES.fullmatch(name)}
    for module, names in _FROM.findall(text):
        for name in names.strip("() \n").split(","):
            if name.strip():
                names_in_text.add(f"{module}.{name.split(' as ')[0].strip()}")
    return names_in_text


def pages() -> list[Path]:
    """Return the documents that say how the package is used."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


# --- documents in stores --------------------------------------------------------------------------------------------


def everything() -> None:
    """Import every module of both packages."""
    for package in OURS:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def structs() -> dict[str, type[msgspec.Struct]]:
    """Return every kind of document of the package, by the dotted name of its class."""
    everything()
    by_name = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _below(msgspec.Struct)}
    return {name: kind for name, kind in sorted(by_name.items()) if name.partition(".")[0] in OURS}


def _below(kind: type) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


@cache
def shapes() -> dict[str, tuple[Any, type]]:
    """Return the documents of this version by the names of their classes: what they look like, and the class."""
    return {name: (shape(kind), kind) for name, kind in structs().items()}


def shape(kind: Any) -> Any:
    """Describe a document by what stands on disk: names of fields, their types in JSON, the words that they may hold.

    Names of classes, bounds and patterns do not stand there, so two kinds with one shape are one to it.
    """
    return json.loads(json.dumps(_shape(kinds.type_info(kind))))


def _shape(info: Any) -> Any:
    if isinstance(info, kinds.StructType):
        fields = {
            field.encode_name: (_shape(field.type) if field.required else [_shape(field.type), _default(field)])
            for field in info.fields
        }
        return {**({info.tag_field: info.tag} if info.tag_field else {}), **fields}
    if isinstance(info, kinds.UnionType):
        return {"any of": sorted(map(_shape, info.types), key=repr)}
    if isinstance(info, kinds.LiteralType):
        return {"one of": sorted(info.values)}
    if isinstance(info, kinds.DictType):
        return {"each": _shape(info.value_type), "by": _shape(info.key_type)}
    if isinstance(info, kinds.VarTupleType | kinds.ListType):
        return {"list of": _shape(info.item_type)}
    if isinstance(info, kinds.TupleType):
        return {"list": [_shape(one) for one in info.item_types]}
    if isinstance(info, kinds.Metadata):
        return _shape(info.type)
    return type(info).__name__.removesuffix("Type").lower()


def _default(field: Any) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return {"default": msgspec.to_builtins(field.default)}
    return {"default": msgspec.to_builtins(field.default_factory())}


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Say where two shapes differ."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        differing = [f"{where}.{name} is not there" for name in before if name not in now]
        differing += [f"{where}.{name} was not there" for name in now if name not in before]
        for name in before:
            if name in now:
                differing += differences(before[name], now[name], f"{where}.{name}")
        return differing
    return [] if before == now else [f"{where} is {now!r:.300}, was {before!r:.300}"]
