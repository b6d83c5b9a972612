"""The table of :mod:`tests.spark_apps.storage.names_of_secrets`, held against the one place that decides."""

from __future__ import annotations

import json
import re
import time

import pytest

from spark_apps.storage.secrets import (
    REDACTION,
    SPARKS_REDACTION,
    hide,
    hide_all,
    hide_in_statement,
    holds_secret,
    is_secret,
    known_secrets,
    not_hidden,
    paths_of_secrets,
    redaction_regex,
    secrets_in,
    secrets_in_text,
)
from tests.spark_apps.storage.names_of_secrets import OPEN_NAMES, OPEN_VALUES, SECRET_NAMES, SECRET_VALUES


def test_names_of_secrets_are_known() -> None:
    assert [name for name in SECRET_NAMES if not is_secret(name)] == []


def test_names_of_others_are_not_taken_for_secrets() -> None:
    assert [name for name in OPEN_NAMES if is_secret(name)] == []


def test_given_a_value_that_holds_a_secret_then_it_is_found_and_hidden_whatever_the_name() -> None:
    for name, value, secret in SECRET_VALUES:
        assert not is_secret(name), name
        assert holds_secret(name, value), value
        assert secret in secrets_in_text(value), value
        assert "hunt" not in hide(f"It failed with {value}\nand more."), value


def test_given_a_value_without_one_then_it_stays_as_it_is() -> None:
    for name, value in OPEN_VALUES:
        assert not holds_secret(name, value), (name, value)
        assert hide(value) == value


def test_given_true_or_false_then_a_secrets_name_holds_none() -> None:
    assert not holds_secret("my.token", True) and not holds_secret("my.token", "false")
    assert holds_secret("my.token", 123456)


def test_given_objects_within_objects_then_every_secret_in_them_is_found() -> None:
    held = {
        "a": [{"password": ["x-1", {"deep": "x-2"}]}, "sc://h/;token=x-3"],
        "credentials": '{"user": "x-4"}',
        "n": 1,
    }

    secrets = secrets_in(held)

    assert {"x-1", "x-2", "x-3"} <= set(secrets) and '{"user": "x-4"}' in secrets
    assert known_secrets({"password": "abc"}, {"token": "abcd"}, {"token": "abcdef"}) == ["abcdef", "abcd"]


def test_given_texts_of_an_answer_then_known_and_told_secrets_are_gone_from_all_of_them() -> None:
    answer = {"x": ["the planted one", {"k planted": "password='other'"}], "n": 5, "y": None}

    assert hide_all(answer, ["planted"]) == {"x": ["the *** one", {"k ***": "password='***'"}], "n": 5, "y": None}


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("OPTIONS (password 'hunter2', a 'b')", "OPTIONS (password '*******', a 'b')"),
        ("('password' = 'it''s', 'x' = 'y')", "('password' = '*****', 'x' = 'y')"),
        ('(\'token\' = "a\\"b")', "('token' = \"****\")"),
        ("('password' =\n 'hun\nter2')", "('password' =\n '***\n****')"),
        ("('password': 'x')", "('password': '*')"),
        ("('secret.key' = 'not closed", "('secret.key' = '**********"),
        ("('url' = 'jdbc:x://ada:hunter2@db/x')", "('url' = 'jdbc:x://ada:*******@db/x')"),
        ("WHERE customer_key = 17 AND account_key = 'x'", "WHERE customer_key = 17 AND account_key = 'x'"),
    ],
)
def test_given_a_statement_then_its_secrets_are_starred_and_all_places_stay(statement: str, shown: str) -> None:
    assert hide_in_statement(statement) == shown


def test_given_settings_then_sparks_redaction_hides_each_secret_among_them_and_what_the_user_hides() -> None:
    conf = dict.fromkeys(SECRET_NAMES, "hunter2") | {
        f"{n}.{name}": value for n, (name, value, _) in enumerate(SECRET_VALUES)
    }
    conf["spark.hadoop.my.uri"] = "https://ada:hunter2@h"

    regex = redaction_regex(conf, "city")
    pattern = re.compile(regex)

    # It is copied from an error, where secrets are hidden, into a file of settings, where Java takes backslashes away.
    assert "\\" not in regex and hide(regex) == regex
    assert [name for name in conf if not pattern.search(name)] == []
    # On Spark's page Hadoop's own settings have no prefix.
    assert pattern.search("my.uri") and pattern.search("spark.my.city") and not pattern.search("spark.master")
    assert [
        name for name in ("spark.app.id", "spark.sql.shuffle.partitions", "spark.master") if pattern.search(name)
    ] == []


@pytest.mark.parametrize(
    ("own", "hidden", "shown"),
    [
        (SPARKS_REDACTION, ["my.Token"], ["my.city"]),
        ("(?i)secret|city", ["my.CITY"], ["my.street"]),
        ("(?s)city", ["my.city"], ["my.City"]),
        ("city", ["my.city"], ["my.City"]),
        (REDACTION, ["my.pwd"], ["my.city"]),
    ],
)
def test_given_the_pattern_of_a_server_then_the_wider_one_keeps_it_and_can_be_widened_again(
    own: str, hidden: list[str], shown: list[str]
) -> None:
    conf = {"spark.my.jdbc": "postgresql://ada:hunter2@h/x"}
    another = {"spark.my.other": "https://ada:hunter2@h"}

    once = redaction_regex(conf, own)
    twice = redaction_regex(another, once)

    assert (not_hidden(once, conf), not_hidden(once, another)) == ([], ["spark.my.other"])
    assert not_hidden(twice, {**conf, **another}) == []
    for regex in (once, twice):
        assert all(re.search(regex, name) for name in hidden) and not any(re.search(regex, name) for name in shown)


def test_given_an_object_then_it_is_told_where_in_it_secrets_stand() -> None:
    held = {
        "source": {"options": {"header": "true", "api_key": "x-1"}, "paths": ["/a", "https://b/x?sig=x-2"]},
        "batches": [{"sql": "SELECT 1"}, {"sql": "CREATE TABLE t OPTIONS (password 'x-34', user 'y')"}],
        "create": {"record_key": ["id"], "schema": "id bigint, token string"},
    }

    assert paths_of_secrets(held) == ["source.options.api_key", "source.paths[1]", "batches[1].sql"]
    assert secrets_in(held) == ["x-1", "x-2", "x-34"]


def test_given_a_servers_own_redaction_then_what_it_shows_is_named() -> None:
    conf = {"fs.azure.account.key.a.dfs.core.windows.net": "x-1", "my.token": "x-2", "spark.x": "1", "my.passwd": "x-3"}

    assert not_hidden("(?i)secret|password|token", conf) == ["fs.azure.account.key.a.dfs.core.windows.net", "my.passwd"]
    assert not_hidden(REDACTION, conf) == []


def test_given_long_texts_of_any_kind_then_they_are_hidden_in_little_time() -> None:
    texts = ["a-" * 10_000, "password='" * 2000, "authorization:" + "a=" * 9000, json.dumps({"password": "x" * 20_000})]
    begun = time.monotonic()
    for text in texts:
        hide(text)
        hide_in_statement(text)
    assert time.monotonic() - begun < 5
