"""Reads what operators, sensors, triggers and task groups are given: one reader for each kind of argument.

An argument may be a value, the text of a template, or what another task returned; and a template gives text, or with
Airflow's ``render_template_as_native_obj`` whatever its text looks like. A reader makes the same of all of them, or
refuses, so that no list is taken for its letters, no "False" for true and no "None" for a name.

A class declares an argument once, as a parameter of its constructor: :func:`declares_arguments` finds the reader by the
parameter's type, and keeps what is given under the parameter's name.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache, wraps
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Union, get_args, get_origin

from airflow.sdk import BaseOperator

from spark_apps.storage.errors import InvalidInput

Reader = Callable[[str, Any], Any]
"""Takes the name of an argument and what it was given; returns what it means. :raises InvalidInput:"""

F = TypeVar("F", bound=Callable[..., None])
Operator = TypeVar("Operator", bound="ReadsArguments")

_NOTHING = ("", "None")
"""What a template makes of nothing."""
_MARKS = ("{{", "{%", "{#")
_UNREAD = object()
_NO_LITERAL = "\0"
_TEXT = "takes_text"


def of_text(reader: Reader) -> Reader:
    """Mark a reader of what is made of texts alone, so that native templates make no objects of them."""
    setattr(reader, _TEXT, True)
    return reader


# --- readers ----------------------------------------------------------------------------------------------------------


@of_text
def text(name: str, given: Any) -> str | None:
    """Return a text, or ``None``.

    A path is its text, and a whole number its digits, for so a native template hands on "12".
    """
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if given is None or (isinstance(given, str) and given.strip() in _NOTHING):
        return None
    if not isinstance(given, str):
        raise InvalidInput(f"{name} is {_shown(given)}, not text.", hint="Give text, or a template that makes text.")
    return given


def text_list(name: str, given: Any) -> list[str] | None:
    """Return a list of texts, or ``None``.

    Text is one item, several lines are an item each, and the text of a list, as Python or JSON writes it, is that list.
    """
    if isinstance(given, str):
        if given.strip() in _NOTHING:
            return None
        value = _literal(given)
        if value is _UNREAD and given.lstrip().startswith(("[", "(", "{")):
            raise InvalidInput(
                f"{name} is {_shown(given)}: it begins as a list does, and is none.",
                hint="Give a list, or a template that renders one, by | tojson if need be.",
            )
        if isinstance(value, str):
            given = [value]  # quoted, as | tojson does
        elif value is _UNREAD or not isinstance(value, list | tuple | Set):
            given = [line for line in map(str.strip, given.splitlines()) if line]
        else:
            given = value
    elif isinstance(given, os.PathLike):
        given = [given]
    if given is None:
        return None
    if isinstance(given, Set):
        given = sorted(given, key=str)  # a set has no order of its own
    if isinstance(given, bytes | bytearray) or not isinstance(given, Sequence):
        raise InvalidInput(
            f"{name} is {_shown(given)}, not a list of texts.",
            hint="Give a list, one text, or a template that renders one of these.",
        )
    return [_item(f"{name}[{at}]", one) for at, one in enumerate(given)]


def some_texts(name: str, given: Any) -> list[str] | None:
    """Return a list of texts with at least one in it, or ``None``."""
    items = text_list(name, given)
    if items == []:
        raise InvalidInput(f"{name} is an empty list.", hint="Name at least one, or leave the argument out.")
    return items


def flag(name: str, given: Any) -> bool | None:
    """Return true, false or ``None``; also as text, in any case."""
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, str):
        word = given.strip().lower()
        if word in ("true", "false"):
            return word == "true"
        if given.strip() in _NOTHING:
            return None
    raise InvalidInput(f"{name} is {_shown(given)}, neither true nor false.", hint="Give True or False.")


def integer(name: str, given: Any) -> int | None:
    """Return a whole number, or ``None``; also as text."""
    value = _number(name, given, int, "a whole number")
    return None if value is None else int(value)


def number(name: str, given: Any) -> float | None:
    """Return a number of 0 or more, or ``None``; also as text."""
    value = _number(name, given, float, "a number")
    if value is not None and not 0 <= value < math.inf:
        raise InvalidInput(f"{name} is {value}.", hint="Give a number from 0 on.")
    return value


def epoch(name: str, given: Any) -> int | None:
    """Return the epoch of a stop-write window, or ``None``; also as text."""
    try:
        return integer(name, given)
    except InvalidInput as error:
        raise InvalidInput(
            f"{_shown(given)} is not the epoch of a stop-write window.",
            hint="Hand on the epoch that opening the window returned.",
        ) from error


def json_object(given: Any) -> dict[str, Any] | None:
    """Return an object of a connection's extra, also as its text, for a form knows no objects; ``None`` if it is none.

    What is empty is an empty object.
    """
    if not given:
        return {}
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return given if isinstance(given, dict) else None


def mapping(name: str, given: Any) -> dict[str, Any] | None:
    """Return a mapping with texts for keys, or ``None``; also as the text of one, in Python or JSON."""
    given = _unquoted(given)
    if given is None:
        return None
    # What such a mapping holds may be a secret: no error repeats it.
    if not isinstance(given, Mapping):
        kind = "text that is no mapping" if given is _UNREAD else type(given).__name__
        raise InvalidInput(f"{name} is {kind}, not a mapping.", hint='Write {"name": value, …}.')
    if wrong := [key for key in given if not isinstance(key, str)]:
        raise InvalidInput(f"{name} has the key {_shown(wrong[0])}, which is no text.", hint="Write keys as text.")
    return dict(given)


def mappings(name: str, given: Any) -> list[dict[str, Any]] | None:
    """Return a list of mappings, or ``None``; also as the text of one, in Python or JSON."""
    given = _unquoted(given)
    if given is None:
        return None
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        kind = "text that is no list" if given is _UNREAD else type(given).__name__
        raise InvalidInput(f"{name} is {kind}, not a list of mappings.", hint='Write [{"name": value, …}, …].')
    return [required(mapping)(f"{name}[{at}]", one) for at, one in enumerate(given)]


def native_calls(name: str, given: Any) -> dict[str, dict[str, Any]] | None:
    """Return calls of a format's own maintenance, in their order: name -> arguments; or ``None``.

    The text of a name is that call without arguments.
    """
    from spark_apps.maintenance.native_calls import CALLS, read_calls

    calls = {given.strip(): {}} if isinstance(given, str) and given.strip() in CALLS else mapping(name, given)
    return None if calls is None else read_calls(calls, name)


@of_text
def texts_by_name(name: str, given: Any) -> dict[str, str] | None:
    """Return a mapping of texts, such as options of a reader or properties of an index.

    Numbers and booleans become what Spark reads.
    """
    members = mapping(name, given)
    return None if members is None else {key: _plain(f"{name}[{key!r}]", value) for key, value in members.items()}


def values_by_name(name: str, given: Any) -> dict[str, Any] | None:
    """Return parameters of a text of SQL: name -> value, each of a type that can be bound; or ``None``."""
    from spark_apps.storage.parameters import literal

    values = mapping(name, given)
    for key, value in (values or {}).items():
        literal(value, key)
    return values


@of_text
def spark_conf(name: str, given: Any) -> dict[str, str | None] | None:
    """Return Spark settings. One that is null, or that a template made nothing of, takes the connection's away."""
    members = mapping(name, given)
    if members is None:
        return None
    unset = {key for key, value in members.items() if value is None or value == "None"}
    return {key: None if key in unset else _plain(f"{name}[{key!r}]", value) for key, value in members.items()}


def rules(name: str, given: Any) -> str | list[list[Any]] | None:
    """Return bucket rules: ``expression,count;…`` unchanged, or pairs of expression and count; or ``None``."""
    if isinstance(given, str):
        if given.strip() in _NOTHING:
            return None
        pairs = _literal(given)
        if not isinstance(pairs, list | tuple) or not all(_is_pair(one) for one in pairs):
            return pairs if isinstance(pairs, str) else given
        given = pairs
    if given is None:
        return None
    if not isinstance(given, Sequence) or not all(_is_pair(one) for one in given):
        raise InvalidInput(
            f"{name} is {_shown(given)}, no bucket rules.",
            hint="Write 'expression,count;…', or a list of pairs of expression and count.",
        )
    return [
        [required(text)(f"{name}[{at}]", pattern), required(integer)(f"{name}[{at}]", count)]
        for at, (pattern, count) in enumerate(given)
    ]


def included_columns(name: str, given: Any) -> dict[str, list[str] | None] | None:
    """Return ``{"include": […], "exclude": […]}``, of which a list of columns is the first; or ``None``."""
    if isinstance(given, str) and isinstance(columns := _literal(given), Mapping):
        given = columns
    if given is None or isinstance(given, Mapping):
        return members(include=text_list, exclude=text_list)(name, given)
    columns = text_list(name, given)
    return None if columns is None else {"include": columns}


@of_text
def flag_or_text(name: str, given: Any) -> bool | str | None:
    """Return true, false, ``None``, or another text."""
    try:
        return flag(name, given)
    except InvalidInput:
        return text(name, given)


def choice(*offered: str) -> Reader:
    """Return a reader of one of these texts, or ``None``."""

    def read(name: str, given: Any) -> str | None:
        value = text(name, given)
        if value is not None and value not in offered:
            raise InvalidInput(f"{name} is {_shown(value)}.", hint=f"Use one of {', '.join(offered)}.")
        return value

    return of_text(read)


def choices(*offered: str) -> Reader:
    """Return a reader of a list of some of these texts, or ``None``."""

    def read(name: str, given: Any) -> list[str] | None:
        values = some_texts(name, given)
        return None if values is None else [choice(*offered)(f"{name}[{at}]", one) for at, one in enumerate(values)]

    return read


index_states = choices("creating", "active", "disabled", "absent")
"""Reads states of an index; ``absent`` is that of one that is not there."""


@lru_cache
def required(reader: Reader) -> Reader:
    """Return the reader for an argument that has to be there."""

    def read(name: str, given: Any) -> Any:
        value = reader(name, given)
        if value is None:
            raise InvalidInput(f"{name} is {_shown(given)}; it has to be given.", hint="See what its template made.")
        return value

    return _like(reader, read)


@lru_cache(typed=True)
def default(reader: Reader, value: Any) -> Reader:
    """Return a reader that takes a default where the argument is left out; the default is read as if it were given."""

    def read(name: str, given: Any) -> Any:
        meant = reader(name, given)
        return reader(name, value) if meant is None else meant

    return _like(reader, read)


def members(**readers: Reader) -> Reader:
    """Return a reader of a mapping with these keys and no others, or ``None``; what is not given is left out."""

    def read(name: str, given: Any) -> dict[str, Any] | None:
        fields = mapping(name, given)
        if fields is None:
            return None
        if unknown := sorted(set(fields) - set(readers)):
            raise InvalidInput(
                f"{name} has no {', '.join(map(repr, unknown))}.", hint=f"It takes {', '.join(readers)}."
            )
        return {key: readers[key](f"{name}[{key!r}]", value) for key, value in fields.items()}

    return read


def each(reader: Reader) -> Reader:
    """Return a reader of a list of mappings, each read by ``reader``, or ``None``."""

    def read(name: str, given: Any) -> list[Any] | None:
        items = mappings(name, given)
        return None if items is None else [reader(f"{name}[{at}]", one) for at, one in enumerate(items)]

    return read


def is_plain(given: Any) -> bool:
    """Return whether a value holds neither a template nor anything else that only a running task knows."""
    if isinstance(given, str):
        return not any(mark in given for mark in _MARKS)
    if isinstance(given, Mapping):
        return all(map(is_plain, given.values()))
    if isinstance(given, list | tuple | Set):
        return all(map(is_plain, given))
    return not callable(given) and (isinstance(given, os.PathLike) or not hasattr(given, "resolve"))


# --- classes that declare arguments -----------------------------------------------------------------------------------


_OF_TYPES: dict[frozenset[Any], Reader] = {
    frozenset({str}): text,
    frozenset({bool}): flag,
    frozenset({int}): integer,
    frozenset({int, str}): integer,
    frozenset({float}): number,
    frozenset({Sequence[str]}): text_list,
    frozenset({str, Sequence[str]}): text_list,
}
"""The reader of a parameter of one of these types. Another type names its reader: ``Annotated[type, reader]``."""

NOT_DECLARED = object()
"""Marks, as ``Annotated[type, NOT_DECLARED]``, a parameter that its constructor itself keeps or hands on."""

_READERS = "declared_readers"
_DEFAULTS = "declared_defaults"


def declares_arguments(init: F) -> F:
    """Declare the keyword parameters of a constructor as arguments, which are kept under their names before it runs.

    A parameter without a default has to be given, also by a template, and where a template makes nothing of one with a
    default, that default counts; but where the type admits ``None``, nothing is ``None``.

    ::

        @declares_arguments
        def __init__(
            self,
            *,
            columns: Sequence[str],
            window: Annotated[int | str | None, epoch] = None,
            deferred: bool = False,
            **kwargs: Any,
        ) -> None:
            super().__init__(**kwargs)

    :param init: the constructor of an operator, sensor or trigger.
    :raises TypeError: for a parameter of a type that has no reader, and that names none.
    """
    readers: dict[str, Reader] = {}
    defaults: dict[str, Any] = {}
    for name, parameter in inspect.signature(init, eval_str=True).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and NOT_DECLARED not in _metadata(parameter.annotation):
            readers[name] = _declared_reader(parameter)
            if parameter.default is not parameter.empty:
                defaults[name] = parameter.default

    @wraps(init)
    def keep(self: DeclaresArguments, **given: Any) -> None:
        for name, value in {**defaults, **given}.items():
            if name in readers:
                setattr(self, name, self.kept(name, value))
        init(self, **given)

    setattr(keep, _READERS, readers)
    setattr(keep, _DEFAULTS, defaults)
    return keep  # type: ignore[return-value]


def _declared_reader(parameter: inspect.Parameter) -> Reader:
    """Return the reader that a parameter's type and default make."""
    kind, named = parameter.annotation, _metadata(parameter.annotation)
    plain = get_args(kind)[0] if named else kind
    kinds = frozenset(get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,))
    reader: Reader | None = named[0] if named else _OF_TYPES.get(kinds - {NoneType})
    if reader is None:
        raise TypeError(f"{parameter.name}: {kind} has no reader; write Annotated[{kind}, <one of {__name__}>].")
    if NoneType in kinds:
        return reader
    return required(reader) if parameter.default is parameter.empty else default(reader, parameter.default)


def _metadata(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__metadata__", ())


class DeclaresArguments:
    """A class whose constructor declares arguments, beside those of the classes above it."""

    readers: ClassVar[Mapping[str, Reader]] = {}
    """The reader of each argument."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """What an argument is that is not given, as the constructor has it."""
    takes_no: ClassVar[frozenset[str]] = frozenset()
    """Arguments of classes above that this one does not take."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared = getattr(cls.__dict__.get("__init__"), _READERS, {})
        cls.readers = {name: reader for name, reader in {**cls.readers, **declared}.items() if name not in cls.takes_no}
        cls.defaults = {**cls.defaults, **getattr(cls.__dict__.get("__init__"), _DEFAULTS, {})}

    def kept(self, name: str, given: Any) -> Any:
        """Return what is kept of an argument when it is given."""
        return given

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an argument: as it was given until it is read, then what it means."""


class SerializesArguments(DeclaresArguments):
    """A trigger: its arguments are read when it is made, and are all that is kept of it."""

    def kept(self, name: str, given: Any) -> Any:
        return self.readers[name](name, given)

    def serialized_arguments(self) -> dict[str, Any]:
        """Return the arguments, as JSON types."""
        return {name: getattr(self, name) for name in self.readers}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class, and its arguments: those declared, and what a class below adds to them."""
        kind, declared = type(self), SerializesArguments.serialized_arguments(self)
        return f"{kind.__module__}.{kind.__qualname__}", {**declared, **self.serialized_arguments()}


class _Reading(type(BaseOperator)):  # type: ignore[misc]
    """Reads an operator's plain arguments when it has been made, so that a DAG with a wrong one is not taken."""

    def __call__(cls: type[Operator], *args: Any, **kwargs: Any) -> Operator:
        operator: Operator = super().__call__(*args, **kwargs)  # type: ignore[misc]
        # One that is made for a task's mapped instance is read when it runs, where an error ends the task.
        if not kwargs.get("_airflow_from_mapped"):
            operator.read_arguments(at_once=True)
            operator.name_templates()
        return operator


class ReadsArguments(DeclaresArguments, metaclass=_Reading):
    """Reads the arguments of operators and sensors.

    Plain values are read when the operator is made, templates once they are rendered. All arguments are templates, but
    for those in :attr:`not_templates`. The ``template_fields`` of an operator are those that are not as by default:
    Airflow writes them into the serialized DAG, each by name and value, for every task.
    """

    not_templates: ClassVar[frozenset[str]] = frozenset()
    template_fields: Sequence[str] = ()
    template_ext: Sequence[str] = ()
    _renders_text: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # A class may also name its readers itself, and keep its arguments in a constructor that declares nothing.
        declares = "readers" in cls.__dict__ or getattr(cls.__dict__.get("__init__"), _READERS, None)
        super().__init_subclass__(**kwargs)
        if declares and "template_fields" not in cls.__dict__:
            cls.template_fields = tuple(name for name in cls.readers if name not in cls.not_templates)

    def read_arguments(self, *, at_once: bool = False) -> None:
        """Replace the arguments given by their values; reading them twice changes nothing.

        :param at_once: leave those that are not known before the task runs.
        :raises InvalidInput: for one that cannot be meant.
        """
        for name, reader in self.readers.items():
            given = getattr(self, name)
            if not at_once or name in self.not_templates or is_plain(given):
                setattr(self, name, reader(name, given))
        self.check_arguments()

    def name_templates(self) -> None:
        """Name those arguments as templates that are not as by default, and what a class below names."""
        kind = type(self)
        given = (name for name in kind.template_fields if not self._is_default(name, getattr(self, name)))
        self.template_fields = tuple(given)
        renderers: Mapping[str, str] = getattr(kind, "template_fields_renderers", {})
        if renderers:
            self.template_fields_renderers = {one: how for one, how in renderers.items() if one in self.template_fields}

    def _is_default(self, name: str, value: Any) -> bool:
        if name not in self.readers or not is_plain(value):
            return False
        default = self.defaults.get(name)
        return value is None or value == default or (default is not None and value == self.readers[name](name, default))

    def __setattr__(self, name: str, value: Any) -> None:
        # An author or a policy of the cluster may give an argument later; only then is there a list of its own.
        named: Sequence[str] | None = self.__dict__.get("template_fields")
        if named is None or name in named or name not in type(self).template_fields:
            pass
        elif not self._is_default(name, value):
            self.template_fields = (*named, name)
        super().__setattr__(name, value)

    def check_arguments(self) -> None:
        """Check arguments against each other; some may be templates still.

        :raises InvalidInput: if they do not go together.
        """

    def render_template(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        """Render as Airflow does; but where templates give native objects, text stays text.

        That holds for what holds no template, and for what an argument that takes text is made of. Else "010" were a
        number, and "None" nothing.
        """
        if not isinstance(content, str) or content.endswith(tuple(self.template_ext)):
            return super().render_template(content, *args, **kwargs)  # type: ignore[misc]
        if is_plain(content):
            return content
        if not self._renders_text:
            return super().render_template(content, *args, **kwargs)  # type: ignore[misc]
        # No object can be made of a text that ends like this.
        rendered: str = super().render_template(content + _NO_LITERAL, *args, **kwargs)  # type: ignore[misc]
        return rendered.removesuffix(_NO_LITERAL)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], *args: Any, **kwargs: Any
    ) -> None:
        for name in template_fields:
            reader = self.readers.get(name) if parent is self else None
            self._renders_text = getattr(reader, _TEXT, False)
            try:
                super()._do_render_template_fields(parent, (name,), *args, **kwargs)  # type: ignore[misc]
            finally:
                self._renders_text = False


# --- what they share --------------------------------------------------------------------------------------------------


def _like(reader: Reader, other: Reader) -> Reader:
    return of_text(other) if getattr(reader, _TEXT, False) else other


def _unquoted(given: Any) -> Any:
    """Return the value of a text in Python or JSON, ``None`` of an empty one; other objects as they are."""
    if not isinstance(given, str):
        return given
    return None if given.strip() in _NOTHING else _literal(given)


def _literal(given: str) -> Any:
    """Return what JSON or Python would make of a text, or :data:`_UNREAD`."""
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        pass  # not JSON; perhaps Python
    try:
        return ast.literal_eval(given.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _UNREAD


def _item(name: str, given: Any) -> str:
    if isinstance(given, int):
        raise InvalidInput(f"{name} is {given!r}, not text.", hint="Give texts.")
    item = required(text)(name, given)
    if isinstance(given, str) and given.lstrip().startswith(("[", "(", "{")):
        inner = _literal(given)
        if isinstance(inner, list | tuple | Set | Mapping):
            raise InvalidInput(
                f"{name} is {_shown(given)}, a list in a list.", hint="Give the list itself, not a list around it."
            )
    return str(item)


def _number(name: str, given: Any, kind: Callable[[Any], Any], what: str) -> Any:
    if given is None or (isinstance(given, str) and given.strip() in _NOTHING):
        return None
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        try:
            result = kind(given)
        except (ValueError, OverflowError):
            result = None
        if result is not None and (isinstance(given, str) or result == given):
            return result
    raise InvalidInput(f"{name} is {_shown(given)}, not {what}.", hint="Give a number, or a template that makes one.")


def _plain(name: str, value: Any) -> str:
    """Return a value as Spark reads it: true and false, not Python's words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    kind = "null" if value is None else type(value).__name__
    raise InvalidInput(f"{name} is {kind}, not text, a number or a boolean.", hint="Leave out what has no value.")


def _is_pair(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes) and len(given) == 2


def _shown(given: Any) -> str:
    shown = repr(given)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"
