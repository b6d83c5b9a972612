"""Rule engines: typed ranges over partition columns, and which code of a user's may be loaded."""

from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from spark_apps.layout import plugins, rules
from spark_apps.layout.partitions import partition_path
from spark_apps.layout.rules import BucketRules
from spark_apps.storage.errors import InvalidRule

DAY = "2024-11-01 <= dt < 2024-12-01"


def path(**values):
    return partition_path(list(values), list(values.values()))


@pytest.mark.parametrize(
    ("expression", "values", "matches"),
    [
        (DAY, {"dt": "2024-11-01"}, True),
        (DAY, {"dt": "2024-11-30"}, True),
        (DAY, {"dt": "2024-12-01"}, False),
        (DAY, {"dt": "2024-10-31"}, False),
        (DAY, {"dt": None}, False),
        (DAY, {"dt": "soon"}, False),
        (DAY, {"dt": "2024-11-31"}, False),
        (DAY, {"dt": "2024-11-30 23:59:59.999999"}, True),
        (DAY, {"other": "2024-11-01"}, False),
        ("2024-12-01 > dt >= 2024-11-01", {"dt": "2024-11-01"}, True),
        ("dt >= 2024-11-01 08:30", {"dt": "2024-11-01 08:29:59"}, False),
        ("dt >= 2024-11-01T08:30:00.5", {"dt": "2024-11-01 08:30:01"}, True),
        ("hour < 10", {"hour": 9}, True),
        ("hour < 10", {"hour": "9"}, True),
        ("hour < 10", {"hour": 11}, False),
        ("10 > hour", {"hour": "9"}, True),
        ("hour = 7", {"hour": "007"}, True),
        ("-3 <= n <= -1", {"n": -2}, True),
        ("n > 0.5", {"n": 0.75}, True),
        ("n > 0", {"n": float("nan")}, False),
        ("n > 0", {"n": "1_000"}, False),
        ("city >= 'b' and city < 'c'", {"city": "berlin"}, True),
        ("city >= 'b' and city < 'c'", {"city": "c"}, False),
        ("city = 'a''b; c=d/e'", {"city": "a'b; c=d/e"}, True),
        ("city = ''", {"city": ""}, True),
        ("`dt of day` = 2024-11-01 AND 3 < Hour <= 5", {"dt of day": "2024-11-01", "hour": 4}, True),
        ("`dt of day` = 2024-11-01 AND 3 < Hour <= 5", {"dt of day": "2024-11-01", "hour": 3}, False),
        ("DT < 2024-12-01", {"dt": "2024-11-11", "r": "x"}, True),
    ],
)
def test_given_a_range_then_partitions_are_compared_by_type_and_not_by_text(expression, values, matches):
    rules = BucketRules("range", [(expression, 9)], 1)
    assert rules.count_for(path(**values)) == (9 if matches else 1)


def test_given_ranges_in_the_string_form_then_they_need_no_escape():
    rules = BucketRules("range", r"2024-11-01 <= dt < 2024-12-01,64; city = 'a\;b\,c',8", 2)
    assert rules.count_for("dt=2024-11-11") == 64
    assert rules.count_for(path(city="a;b,c")) == 8


@pytest.mark.parametrize(
    "expression",
    [
        "dt",
        "dt <",
        "< 2024-11-01",
        "dt < city",
        "1 < 2",
        "1 < 2 < n",
        "1 < n > 2",
        "1 = n = 2",
        "dt < 2024-13-01",
        "dt < 2024-11-01 or dt > 2025-01-01",
        "dt < 2024-11-1",
        "dt != 2024-11-01",
        "n < 1e5",
        "dt < 2024-11-01 and",
        "city = \"x\"",
        "city = 'x",
        "n in (1)",
        "1 <= n <= 2 <= m",
        "",
    ],
)  # fmt: skip
def test_given_what_is_no_range_then_it_is_refused_when_given(expression):
    with pytest.raises(InvalidRule, match=r"cannot be used|pair of expression"):
        BucketRules("range", [(expression, 8)], 1)


def test_given_a_range_that_does_not_fit_the_table_then_it_is_refused_when_given():
    columns = {"dt": "date", "hour": "int", "city": "string"}
    BucketRules("range", f"{DAY} and hour < 3 and city = 'x',8;city < 2024-01-01,8;city < 5,8", 1).check(columns)
    for expression, said in (
        ("day < 2024-11-01", "'day', which is no partition column.*dt, hour, city"),
        ("dt < 20241101", "'dt', of type 'date', with the number 20241101"),
        ("hour < 2024-11-01", "'hour', of type 'int', with the date"),
        ("hour < '10'", "'hour', of type 'int', with the text 10"),
        ("dt < '2024-11-01'", "single quotes"),
    ):
        with pytest.raises(InvalidRule, match=said):
            BucketRules("range", [(expression, 8)], 1).check(columns)


# --- a user's class -------------------------------------------------------------------------------------------------


class PrefixEngine(rules.RuleEngine):
    """An expression is the beginning of a path."""

    def compile(self, expression):
        return lambda path: path.startswith(expression)


DOTTED = f"{__name__}.PrefixEngine"


@pytest.fixture
def registry():
    built_in = {"regex": rules.RegexEngine()}
    return plugins.Plugins("rule engine", rules.RuleEngine, rules.GROUP, rules.ALLOWED, built_in, "engines.allow")


def test_given_an_unknown_engine_then_the_known_ones_are_named():
    with pytest.raises(InvalidRule, match=r"'glob'.*range, regex"):
        BucketRules("glob", "a,8", 1)


def test_given_a_registered_engine_then_its_rules_decide_and_its_name_stays_taken():
    rules.register("prefix", PrefixEngine())
    assert BucketRules("prefix", "dt=2024,8", 1).count_for("dt=2024-11-11") == 8
    assert BucketRules("prefix", "2024,8", 1).count_for("dt=2024-11-11") == 1
    for name in ("prefix", "regex"):
        with pytest.raises(InvalidRule, match="exists already"):
            rules.register(name, PrefixEngine())


def test_given_a_dotted_path_then_its_code_is_loaded_only_if_this_process_allows_it(registry, monkeypatch, tmp_path):
    (tmp_path / "strange_engine.py").write_text("raise SystemExit('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidRule, match=f"no rule engine.*{rules.ALLOWED}"):
        registry.find("strange_engine.Engine")
    assert "strange_engine" not in sys.modules

    with pytest.raises(InvalidRule):
        registry.find(DOTTED)
    registry.allow(DOTTED)
    assert isinstance(registry.find(DOTTED), rules.RuleEngine)


def test_given_a_dotted_path_in_the_environment_then_it_is_loaded(registry, monkeypatch):
    monkeypatch.setenv(rules.ALLOWED, f"other.Class, {DOTTED}")
    assert registry.find(DOTTED).compile("dt")("dt=1")


def test_given_an_engine_of_an_installed_package_then_it_is_found_by_its_name(registry, monkeypatch):
    points = {"prefix": f"{__name__}:PrefixEngine", "gone": "no_such_package:Engine", "no_engine": "builtins:dict"}
    offered = [EntryPoint(name, value, rules.GROUP) for name, value in points.items()]
    monkeypatch.setattr(plugins, "entry_points", lambda group: offered if group == rules.GROUP else [])
    assert registry.find("prefix").compile("dt")("dt=1")
    with pytest.raises(InvalidRule, match=r"cannot be loaded.*on the cluster too"):
        registry.find("gone")
    with pytest.raises(InvalidRule, match="is no rule engine"):
        registry.find("no_engine")


def test_given_the_engine_of_the_documentation_then_it_does_what_the_page_says():
    page = (Path(__file__).parents[3] / "docs" / "rescale.md").read_text(encoding="utf-8")
    (source,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class WeekdayEngine" in block
    )
    names = {}
    exec(source, names)
    rules.register("weekday", names["WeekdayEngine"]())
    weekly = BucketRules("weekday", "sat|sun,64", 8)
    days = ("2024-11-08", "2024-11-09", "2024-11-10", "2024-11-11", None)
    assert [weekly.count_for(path(dt=day, r="x")) for day in days] == [8, 64, 64, 8, 8]
