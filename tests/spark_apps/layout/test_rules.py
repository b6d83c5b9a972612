"""Bucket rules: which count a partition gets, how rules are written, and what is refused when a rule is given."""

from __future__ import annotations

import json
import pickle
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_apps.layout import rules
from spark_apps.layout.rules import BucketRules, HashingConfig, parse_expressions, render_expressions
from spark_apps.storage.errors import InvalidRule
from spark_apps.timeline.limits import MAX_BUCKETS

# The demo of the partition-level bucket index document.
FESTIVALS = r"\d{4}-(06-(01|17|18)|11-(01|10|11)),256"


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("dt=2024-06-01", 256),
        ("dt=2024-06-17", 256),
        ("dt=2023-11-11", 256),
        ("dt=2024-11-11/region=eu", 256),
        ("dt=2024-06-02", 10),
        ("dt=2024-11-12", 10),
        ("", 10),
    ],
)
def test_given_the_document_s_demo_then_festival_days_get_256_buckets_and_others_10(path, count):
    assert BucketRules("regex", FESTIVALS, 10).count_for(path) == count


def test_given_two_rules_that_match_then_the_first_decides():
    rules = BucketRules("regex", "dt=2024,8;2024-11,16", 1)
    assert rules.count_for("dt=2024-11-11") == 8
    assert rules.count_for("day=2024-11-11") == 16
    assert rules.count_for("dt=2023-11-11") == 1


def test_given_a_pattern_without_anchors_then_it_matches_anywhere_and_anchors_hold():
    assert BucketRules("regex", "4-1,8", 1).count_for("dt=2024-11-11") == 8
    assert BucketRules("regex", "^2024,8", 1).count_for("dt=2024-11-11") == 1
    assert BucketRules("regex", "^dt=2024-11-11$,8", 1).count_for("dt=2024-11-11") == 8


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (r"\d{1,2},8", [(r"\d{1,2}", 8)]),
        (r"a{1,2},8;b{3,4},16", [("a{1,2}", 8), ("b{3,4}", 16)]),
        (r"a\;b,8", [("a;b", 8)]),
        (r"a\,b,8", [("a,b", 8)]),
        (r"\d{1\,2},8", [(r"\d{1,2}", 8)]),
        (r"a\d\.\\\;,8", [(r"a\d\.\\;", 8)]),
        (r"a\\;b,8", None),
        (r"a\\,4;b,8", [(r"a\\", 4), ("b", 8)]),
        (" a , 8 ;\n b,16; ", [("a ", 8), ("b", 16)]),
        ("", []),
        (",,8", [(",", 8)]),
    ],
)
def test_given_the_string_form_then_only_the_last_comma_and_bare_semicolons_separate(text, rules):
    if rules is None:
        with pytest.raises(InvalidRule, match="rule 1"):
            parse_expressions(text)
    else:
        assert [(rule.expression, rule.count) for rule in parse_expressions(text)] == rules


def test_given_an_escaped_semicolon_then_it_matches_a_semicolon():
    assert BucketRules("regex", r"a\;b,8", 1).count_for("x=a;b") == 8
    assert BucketRules("regex", r"[\;!],8", 1).count_for("x=a;b") == 8


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), st.integers(1, MAX_BUCKETS)), max_size=4))
def test_given_pairs_of_any_text_then_the_string_form_holds_the_same_rules(pairs):
    quoted = [("x" + re.sub(r"([^\w\x80-\U0010ffff])", r"\\\1", text), count) for text, count in pairs]
    bare = [(pattern.replace("\\;", ";"), count) for pattern, count in quoted]
    rules = BucketRules("regex", bare, 7)
    assert BucketRules("regex", rules.expressions, 7) == rules
    for text, _ in pairs:
        first = next(count for other, count in pairs if "x" + other in "x" + text)
        assert rules.count_for("x" + text) == first


@pytest.mark.parametrize(
    "expressions",
    ["a", "a,", ",8", "a,b", "a,8;;b,9", "a,8.5", "a,0x8", "a,٨", r"\d{1,2}", "a,99999999999999999999999", "a,+8"],
)
def test_given_a_rule_without_expression_or_count_then_its_place_is_named(expressions):
    with pytest.raises(InvalidRule, match=r"rule [12]"):
        BucketRules("regex", expressions, 1)


@pytest.mark.parametrize("count", [0, -1, MAX_BUCKETS + 1])
def test_given_a_count_that_is_none_then_it_is_refused(count):
    for expressions in (f"a,{count}", [("a", count)]):
        with pytest.raises(InvalidRule, match=rf"{count}.*Nothing was changed"):
            BucketRules("regex", expressions, 1)
    with pytest.raises(InvalidRule, match="default"):
        BucketRules("regex", "a,8", count)


@pytest.mark.parametrize("pairs", [["a,8"], [("a",)], [("", 8)], [(8, "a")], [("a", "8")], [("a\\", 8)], [(" a", 8)]])
def test_given_pairs_that_are_none_then_they_are_refused(pairs):
    with pytest.raises(InvalidRule, match="rule 1"):
        BucketRules("regex", pairs, 1)


@pytest.mark.parametrize(
    "pattern", ["(", "[z-a]", "a**", "(?=a)b", "(?<!a)b", r"(a)\1", "((a{100}){100}){100}", "\ud800"]
)
def test_given_a_pattern_that_does_not_compile_or_needs_backtracking_then_it_is_refused_when_given(pattern):
    with pytest.raises(InvalidRule, match=r"cannot be used.*Nothing was changed.*RE2"):
        BucketRules("regex", [(pattern, 8)], 1)


def test_given_a_pattern_that_makes_other_engines_backtrack_for_ever_then_it_answers_at_once():
    rules = BucketRules("regex", "(a+)+(a|aa)*$,8", 1)
    begun = time.monotonic()
    assert rules.count_for("x=" + "a" * 5000 + "!") == 1
    assert time.monotonic() - begun < 1


def test_given_a_huge_pattern_then_it_is_refused():
    with pytest.raises(InvalidRule, match="long"):
        BucketRules("regex", [("a" * 10_001, 8)], 1)


class Anything(rules.RuleEngine):
    def compile(self, expression):
        return lambda path: True


rules.register("anything", Anything())


@given(st.lists(st.tuples(st.text("\\;,a ", min_size=1, max_size=8), st.integers(1, 9)), max_size=4))
def test_given_pairs_with_any_signs_then_their_string_form_gives_the_same_rules(pairs):
    try:
        rules = BucketRules("anything", pairs, 7)
    except InvalidRule:
        return
    assert parse_expressions(render_expressions(rules.rules)) == rules.rules
    assert BucketRules("anything", rules.text, 7).says_as(rules)
    assert [rule.count for rule in rules.rules] == [count for _, count in pairs]


def test_given_rules_then_they_compare_hash_and_travel_by_what_was_written():
    rules = BucketRules("regex", FESTIVALS, 10)
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert len({rules, BucketRules("regex", FESTIVALS, 10), BucketRules("regex", FESTIVALS, 11)}) == 2
    assert BucketRules("regex", None, 10).count_for("dt=1") == 10


def test_given_a_history_then_newer_rules_come_first_older_next_and_the_newest_default_last():
    config = (
        HashingConfig((("00000000000000000", BucketRules("regex", "2024-11,16;2023,2", 1)),))
        .with_rules("20250303095546020", BucketRules("regex", "11-11,64", 3))
        .with_rules("20250304095546020", BucketRules("regex", "", 5))
    )
    assert config.count_for("dt=2024-11-11") == 64
    assert config.count_for("dt=2024-11-12") == 16
    assert config.count_for("dt=2023-01-01") == 2
    assert config.count_for("dt=2022-01-01") == 5


def test_given_a_history_then_its_file_is_the_document_s_json_and_reads_back():
    config = HashingConfig((("00000000000000000", BucketRules("regex", FESTIVALS, 10)),)).with_rules(
        "20250303095546020", BucketRules("regex", r"\d{1,2},8", 4)
    )
    assert json.loads(config.to_json())["00000000000000000"] == {
        "expression": FESTIVALS,
        "rule": "regex",
        "default": 10,
    }
    assert HashingConfig.from_json(config.to_json()) == config
    quoted = '{"1": {"expression": null, "rule": "regex", "default": "10"}}'
    assert HashingConfig.from_json(quoted).count_for("dt=1") == 10


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"1": {}}', '{"1": 5}', '{"1": {"expression": 5, "rule": "regex", "default": 1}}']
)
def test_given_a_file_that_is_no_config_then_it_is_refused(text):
    with pytest.raises(InvalidRule):
        HashingConfig.from_json(text)


def test_given_a_change_that_is_not_newer_then_it_is_refused():
    config = HashingConfig((("2", BucketRules("regex", "", 1)),))
    with pytest.raises(InvalidRule, match="rising"):
        config.with_rules("2", BucketRules("regex", "", 2))
