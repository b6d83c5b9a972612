"""What each kind of argument means as a value, as text, or as a native template made it; and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

from airflow_provider_index.arguments import (
    NOT_DECLARED,
    Reader,
    SerializesArguments,
    choice,
    declares_arguments,
    default,
    epoch,
    flag,
    flag_or_text,
    included_columns,
    index_states,
    integer,
    is_plain,
    mapping,
    mappings,
    number,
    required,
    rules,
    some_texts,
    spark_conf,
    text,
    text_list,
    texts_by_name,
)
from spark_apps.storage.errors import InvalidInput

MEANT: list[tuple[Reader, list[Any], Any]] = [
    (text, ["a", Path("a")], "a"),
    (text, [12, "12"], "12"),
    (text_list, ["dt=1", ["dt=1"], ("dt=1",), {"dt=1"}, "['dt=1']", '["dt=1"]', "('dt=1',)", "\n dt=1 \n"], ["dt=1"]),
    (text_list, ["a\nb", ["a", "b"], "['a', 'b']", {"b", "a"}, "{'b', 'a'}"], ["a", "b"]),
    (text_list, ["a,b"], ["a,b"]),
    (text_list, [[], "[]", "()"], []),
    (flag, [True, "True", "true", " TRUE "], True),
    (flag, [False, "False", "false"], False),
    (integer, [8, "8", " 8 ", 8.0], 8),
    (number, [2, "2", 2.0, "2.0"], 2.0),
    (epoch, [12, "12"], 12),
    (mapping, [{"a": 1}, "{'a': 1}", '{"a": 1}'], {"a": 1}),
    (mappings, [[{"a": 1}], ({"a": 1},), "[{'a': 1}]", '[{"a": 1}]'], [{"a": 1}]),
    (texts_by_name, [{"a": True, "b": 1}, {"a": "true", "b": "1"}, "{'a': True, 'b': 1}"], {"a": "true", "b": "1"}),
    (texts_by_name, [{"nullValue": "None", "sep": ""}], {"nullValue": "None", "sep": ""}),
    (spark_conf, [{"a": None, "b": 1}, {"a": "None", "b": "1"}, '{"a": null, "b": 1}'], {"a": None, "b": "1"}),
    (rules, ["a,8;b,4"], "a,8;b,4"),
    (rules, ["[0-9],8"], "[0-9],8"),
    (rules, ["[1],8"], "[1],8"),
    (rules, [[("a", 8)], [["a", "8"]], "[['a', 8]]", '[["a", 8]]', "[('a', 8)]"], [["a", 8]]),
    (flag_or_text, [True, "true"], True),
    (flag_or_text, ["20261121170000000", 20261121170000000], "20261121170000000"),
    (included_columns, [["a"], "a", {"include": ["a"]}, {"include": "a"}, "{'include': ['a']}"], {"include": ["a"]}),
    (index_states, ["active", ["active"], "['active']"], ["active"]),
    (choice("full"), ["full"], "full"),
    *((one, [None, "", "None", " "], None) for one in (text, text_list, some_texts, flag, integer, number, epoch)),
    *((one, [None, "", "None"], None) for one in (mapping, mappings, rules, flag_or_text, included_columns)),
    (default(flag, True), [None, "None", "", "True"], True),
]

REFUSED: list[tuple[Reader, list[Any]]] = [
    (text, [True, 1.5, ["a"], {"a": 1}, b"a", object()]),
    (text_list, [1, True, {"a": 1}, "{'a': 1}", b"a", iter("a"), ["a", None], ["a", ""], ["None"], [1], [["a"]]]),
    (text_list, ["[a, b]", "['a'", ["['a', 'b']"], "[['a']]", "[1]", "[None]", range(2)]),
    (some_texts, [[], "[]"]),
    (flag, ["yes", 1, 0, "1", [], {}, "{{ params.x }}"]),
    (integer, [True, 1.5, "1.5", "a", [1], float("nan"), float("inf")]),
    (number, [True, "a", "nan", "inf", float("nan"), float("inf"), -1, "-1", [1]]),
    (epoch, ["soon", {"epoch": 1}, True]),
    (mapping, [[1], 1, "a", "[1]", {1: 2}]),
    (mappings, [{"a": 1}, [1], "a", "[1]", ["a"], [None]]),
    (texts_by_name, [{"a": None}, {"a": [1]}, ["a"]]),
    (spark_conf, [{"a": {}}, "a=b"]),
    (rules, [8, [["a"]], [("a", "b")], ["a,8"], {"a": 8}]),
    (flag_or_text, [[1], 1.5]),
    (included_columns, [{"includes": ["a"]}, {"include": 1}, 1]),
    (index_states, ["gone", ["active", "gone"], []]),
    (choice("full"), ["Full", "quick", ["full"]]),
    (required(text), [None, "", "None"]),
]


def name_of(reader: Reader) -> str:
    return getattr(reader, "__qualname__", str(reader)).partition(".")[0]


@pytest.mark.parametrize(("reader", "given", "meant"), MEANT, ids=lambda one: name_of(one) if callable(one) else "")
def test_every_form_means_the_same_and_what_was_read_is_read_again_alike(
    reader: Reader, given: list[Any], meant: Any
) -> None:
    for one in given:
        value = reader("x", one)
        assert value == meant and type(value) is type(meant), one
        assert reader("x", value) == meant


@pytest.mark.parametrize(("reader", "given"), REFUSED, ids=lambda one: name_of(one) if callable(one) else "")
def test_whatever_else_is_refused_and_the_argument_is_named(reader: Reader, given: list[Any]) -> None:
    for one in given:
        with pytest.raises(InvalidInput, match=r"x.*Nothing was changed|epoch"):
            pytest.fail(f"{one!r} was taken for {reader('x', one)!r}")


@pytest.mark.parametrize("reader", [mapping, mappings, texts_by_name, spark_conf], ids=name_of)
def test_no_error_repeats_what_a_mapping_holds(reader: Reader) -> None:
    for given in ("{'password': 's3cret'", ["s3cret"], "s3cret", {"password": b"s3cret"}):
        if reader is mapping and isinstance(given, dict):
            continue
        with pytest.raises(InvalidInput) as caught:
            pytest.fail(f"{given!r} was taken for {reader('x', given)!r}")
        assert "s3cret" not in str(caught.value)


def test_plain_is_what_needs_no_running_task() -> None:
    assert all(map(is_plain, [None, 1, "a", ["a", {"b": ("c",)}], Path("a"), {"{{ key }}": 1}]))
    assert not any(map(is_plain, ["{{ a }}", ["{% if a %}"], {"a": ["{# a #}"]}, lambda: 1]))


class Declaring(SerializesArguments):
    @declares_arguments
    def __init__(
        self,
        *,
        columns: Sequence[str],
        window: Annotated[int | str | None, epoch] = None,
        fail: bool = True,
        silent: float | None = 60.0,
        own: Annotated[object, NOT_DECLARED] = None,
    ) -> None:
        self.other = own


class DeclaringMore(Declaring):
    @declares_arguments
    def __init__(self, *, rows: int | str = 8, **more: Any) -> None:
        super().__init__(**more)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"columns": "a"}, {"columns": ["a"], "window": None, "fail": True, "silent": 60.0}),
        ({"columns": ["a"], "window": "7", "fail": "None", "silent": "None", "own": 1},
         {"columns": ["a"], "window": 7, "fail": True, "silent": None}),
    ],
)  # fmt: skip
def test_given_declared_arguments_then_types_and_defaults_say_what_is_kept(
    given: dict[str, Any], kept: dict[str, Any]
) -> None:
    declaring = Declaring(**given)

    assert declaring.serialized_arguments() == kept and declaring.other == given.get("own")


def test_given_a_class_below_then_it_takes_its_own_arguments_and_those_above() -> None:
    assert DeclaringMore(columns="a", rows="9").serialized_arguments() == {
        "columns": ["a"], "window": None, "fail": True, "silent": 60.0, "rows": 9,
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="columns is None; it has to be given"):
        DeclaringMore(columns=None)
    with pytest.raises(TypeError, match="columns"):
        DeclaringMore()


class Adding(Declaring):
    """A trigger of a user's own, which keeps an argument itself and serializes it beside those of the class above."""

    def __init__(self, *, note: str, **more: Any) -> None:
        super().__init__(**more)
        self.note = note

    def serialized_arguments(self) -> dict[str, Any]:
        return {"note": self.note}


def test_given_a_class_below_that_serializes_only_its_own_arguments_then_it_is_made_again_from_all() -> None:
    path, arguments = Adding(columns="a", note="n").serialize()

    assert path == f"{__name__}.Adding"
    assert arguments == {"columns": ["a"], "window": None, "fail": True, "silent": 60.0, "note": "n"}


def test_given_a_type_without_a_reader_when_declared_then_the_class_cannot_be_made() -> None:
    def init(self: Any, *, options: Mapping[str, Any]) -> None: ...

    with pytest.raises(TypeError, match=r"options: .* has no reader"):
        declares_arguments(init)
