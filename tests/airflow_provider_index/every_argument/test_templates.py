"""Every argument of every operator and sensor, as a value, as text of a template, and mapped, with and without native
objects, means the same or is refused; rendered by Airflow's own task instance."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.api.datamodels._generated import DagRun, TIRunContext
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider_index.arguments import Reader
from spark_apps.storage.errors import InvalidInput
from tests.airflow_provider_index.every_argument.surface import (
    NOT_READ,
    arguments,
    meanings,
    operators,
    readable,
    required,
)

pytestmark = pytest.mark.by_turn(8)

NOW = datetime(2026, 11, 23, tzinfo=UTC)
GIVEN = "{{ params.x }}"
NATIVE = [pytest.param(False, id="text"), pytest.param(True, id="native")]


def rendered(dag: DAG, map_index: int = -1) -> Any:
    """The only task of a DAG as Airflow renders it."""
    [task] = dag.tasks
    run = DagRun.model_construct(
        dag_id="d", run_id="r", logical_date=NOW, data_interval_start=NOW, data_interval_end=NOW, start_date=NOW,
        run_after=NOW, run_type="manual", state="running", conf={}, consumed_asset_events=[], clear_number=0,
        partition_key=None, partition_date=None, triggering_user_name=None, note=None, team_name=None,
    )  # fmt: skip
    run_context = TIRunContext.model_construct(
        dag_run=run, max_tries=0, variables=[], connections=[], task_reschedule_count=0, upstream_map_indexes=None
    )
    ti = RuntimeTaskInstance.model_construct(
        id=uuid.uuid4(), task_id="t", dag_id="d", run_id="r", try_number=1, map_index=map_index, task=task,
        start_date=NOW, bundle_instance=None, _ti_context_from_server=run_context, max_tries=0,
    )  # fmt: skip
    context = ti.get_template_context()
    task.render_template_fields(context, environment(dag.render_template_as_native_obj))
    return context["task"]


@cache
def environment(native: bool) -> Any:
    """Airflow's own for such a DAG; made once, for that takes longer than to render."""
    return DAG("d", schedule=None, render_template_as_native_obj=native).get_template_env()


def made(kind: type, native: bool, params: dict[str, Any], /, **given: Any) -> Any:
    """The operator of a task with these arguments, rendered; its arguments are not read yet."""
    with DAG("d", schedule=None, params=params, render_template_as_native_obj=native) as dag:
        kind(task_id="t", **{**required(kind), **given})
    return rendered(dag)


def mapped(kind: type, native: bool, params: dict[str, Any], /, **given: Any) -> Any:
    """The same, mapped over these arguments."""
    rest = {name: value for name, value in required(kind).items() if name not in given}
    with DAG("d", schedule=None, params=params, render_template_as_native_obj=native) as dag:
        kind.partial(task_id="t", **rest).expand(**{name: [value] for name, value in given.items()})  # type: ignore[attr-defined]
    return rendered(dag, 0)


def mapped_by_kwargs(kind: type, native: bool, params: dict[str, Any], /, **given: Any) -> Any:
    rest = {name: value for name, value in required(kind).items() if name not in given}
    with DAG("d", schedule=None, params=params, render_template_as_native_obj=native) as dag:
        kind.partial(task_id="t", **rest).expand_kwargs([given])  # type: ignore[attr-defined]
    return rendered(dag, 0)


def templates_of(kind: type) -> list[str]:
    return [name for name in readable(kind) if name not in kind.not_templates]  # type: ignore[attr-defined]


def rounds(kind: type) -> list[dict[str, tuple[Any, Any]]]:
    """Rounds in which each argument has another of its values."""
    known = {name: meanings(kind, name) for name in templates_of(kind)}
    most = max(map(len, known.values()))
    return [{name: values[n % len(values)] for name, values in known.items()} for n in range(most)]


@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
def test_every_argument_has_a_reader_and_a_meaning_here(kind: Any) -> None:
    names = set(readable(kind))

    assert names == set(kind.readers), "give it a reader"
    assert all(meanings(kind, name) for name in names), "say in surface.py what it means"
    assert set(kind.template_fields) == set(kind.readers) - kind.not_templates
    assert names | {name for one, name in NOT_READ if one == kind.__name__} == set(arguments(kind))


@pytest.mark.parametrize("native", NATIVE)
@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
@pytest.mark.by_turn(6)
def test_as_value_text_and_mapped_each_argument_means_the_same(kind: Any, native: bool) -> None:
    for number, given in enumerate(rounds(kind)):
        values = {name: value for name, (value, _) in given.items()}
        templates = {name: f"{{{{ params['{name}'] }}}}" for name in given}
        by_json = {
            name: f"{{{{ params['{name}'] | tojson }}}}" for name, value in values.items() if not isinstance(value, str)
        }
        forms = {
            "template": made(kind, native, values, **templates),
            "JSON": made(kind, native, values, **by_json),
        }
        if number == 0:
            forms |= {
                "value": made(kind, native, {}, **values),
                "text": made(kind, native, {name: str(value) for name, value in values.items()}, **templates),
                "mapped": mapped(kind, native, {}, **values),
                "mapped template": mapped(kind, native, values, **templates),
                "kwargs template": mapped_by_kwargs(kind, native, values, **templates),
            }
        for form, operator in forms.items():
            operator.read_arguments()
            for name, (value, meaning) in given.items():
                if form == "JSON" and isinstance(value, str):
                    continue
                argument = getattr(operator, name)
                assert argument == meaning and type(argument) is type(meaning), f"{name} as {form}: {argument!r}"


@pytest.mark.parametrize("native", NATIVE)
@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
@pytest.mark.by_turn(6)
def test_what_a_template_makes_of_nothing_is_an_argument_that_was_left_out(kind: Any, native: bool) -> None:
    left_out = made(kind, native, {})
    left_out.read_arguments()
    needed = set(required(kind))
    for nothing in (None, ""):
        operator = made(kind, native, {"x": nothing}, **dict.fromkeys(templates_of(kind), GIVEN))
        for name, reader in kind.readers.items():
            if name in kind.not_templates:
                continue
            argument = outcome(reader, name, getattr(operator, name))
            if name in needed or name in ("mode", "format", "operation"):  # there is no nothing of it
                assert argument == "refused" or (kind.__name__, name) in MEANS_NOTHING, name
            elif (kind.__name__, name) in MEANS_NOTHING:
                assert argument is None
            else:
                assert argument == getattr(left_out, name), name


MEANS_NOTHING = {
    ("MaintainTableOperator", "name"),  # the table's
    ("RollBackTransactionOperator", "transaction"),  # none was begun
    ("EndExpiredWindowsOperator", "silent_seconds"),  # attempts are left alone
    ("RestoreTableOperator", "version"),  # native says what is gone back to
}

JUNK: list[Any] = [
    True, False, 0, 7, -1, 1.5, "010", "0x10", "1_000", "1e3", "true", "False", "nan", "inf", "a", "a\nb", " a ", "a,b",
    "None", "null", "[1]", "['a', 'b']", '["a", "b"]', "[a, b]", "('a',)", "{'a'}", "{'a': 1}", '{"a": null}', "'a'",
    '"a"', "(1)", "1, 2", "dt=2026-11-11", "{{ x }}", [], ["a"], [1], [None], [["a"]], [["a", 8]], ["['a']"], {},
    {"a": 1}, {"a": None}, [{"a": 1}], "b'x'", "²", "1" * 40,
]  # fmt: skip


def outcome(reader: Reader, name: str, given: Any) -> Any:
    try:
        return reader(name, given)
    except InvalidInput:
        return "refused"


def distinct() -> list[tuple[type, list[str]]]:
    """Each reader once, by a class and an argument that have it."""
    seen: set[int] = set()
    pairs = []
    for kind in operators():
        readers: dict[str, Reader] = kind.readers  # type: ignore[attr-defined]
        fresh = {id(readers[name]): name for name in templates_of(kind) if id(readers[name]) not in seen}
        seen |= set(fresh)
        if fresh:
            pairs.append((kind, list(fresh.values())))
    return pairs


@pytest.mark.by_turn(4)
@pytest.mark.parametrize(("kind", "names"), distinct(), ids=lambda one: getattr(one, "__name__", ""))
def test_whatever_is_given_means_the_same_in_each_form_or_is_refused(kind: Any, names: list[str]) -> None:
    for junk in JUNK:
        by_template = dict.fromkeys(names, GIVEN)
        text, native = (made(kind, native, {"x": junk}, **by_template) for native in (False, True))
        for name in names:
            reader = kind.readers[name]
            outcomes = {
                "value": outcome(reader, name, junk),
                "text": outcome(reader, name, getattr(text, name)),
                "native": outcome(reader, name, getattr(native, name)),
            }
            meant = [one for one in outcomes.values() if one != "refused"]
            assert all(one == meant[0] and type(one) is type(meant[0]) for one in meant), (
                f"{name} of {junk!r}: {outcomes}"
            )


@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
def test_what_is_no_template_is_refused_as_one_where_the_dag_is_parsed(kind: type[BaseOperator]) -> None:
    not_templates = {"deferrable"} & set(arguments(kind))
    assert kind.not_templates == not_templates  # type: ignore[attr-defined]
    for name in not_templates:
        assert getattr(kind(task_id="t", **{**required(kind), name: False}), name) is False
        with pytest.raises(InvalidInput, match=re.escape(f"{name} is {GIVEN!r}")):
            kind(task_id="t", **{**required(kind), name: GIVEN})


@pytest.mark.parametrize("kind", operators(), ids=lambda kind: kind.__name__)
def test_a_plain_value_that_cannot_be_meant_is_refused_where_the_dag_is_parsed(kind: type[BaseOperator]) -> None:
    refused = 0
    for name in readable(kind):
        with pytest.raises(InvalidInput):
            kind(task_id="t", **{**required(kind), name: [[["no such thing"]]]})
        refused += 1
    assert refused
