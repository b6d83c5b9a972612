"""Every command on tables of an S3 store answers what it answers on the same tables on local disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_apps.storage.store import Store
from tests.simulation.s3 import BUCKET, s3_server
from tests.spark_apps.cli.conftest import Ask

pytestmark = [pytest.mark.servers, pytest.mark.by_turn(24)]

COMMANDS = [
    ["tables"],
    ["show", "trips", "--partitions"],
    ["show", "trips", "--version", "20"],
    ["history", "trips", "--all"],
    ["indexes", "trips"],
    ["explain", "trips", "id = 3"],
    ["lookup", "trips", "3", "5", "999"],
    ["verify", "groups"],
    ["query", "SELECT city, count(*) AS n, sum(fare) AS fares FROM trips WHERE id > 2 GROUP BY city ORDER BY city"],
    ["windows", "trips"],
    ["attempts", "trips", "--all"],
    ["plan"],
    ["locate", "trips", "city = 'osl'"],
    ["export", "trips", "-", "--where", "fare > 100", "--format", "json"],
]


@pytest.fixture(scope="module")
def there(whole_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Two tables in a bucket; yields the options by which the command line reaches them."""
    given = tmp_path_factory.mktemp("options") / "storage.json"
    with s3_server() as options:
        store = Store(f"s3://{BUCKET}/lake", options)
        for name in ("trips", "groups"):
            for path in sorted((whole_lake / name).rglob("*")):
                if path.is_file() and not path.name.endswith(".crc"):
                    store.put(path.relative_to(whole_lake).as_posix(), path.read_bytes())
        given.write_text(json.dumps(options))
        yield ["-w", f"s3://{BUCKET}/lake", "--storage-options", str(given)]


def stripped(answer: Any, root: str) -> Any:
    """An answer without what differs by the store: addresses, and the times of looking."""
    if isinstance(answer, dict):
        moments = ("modified", "age", "seconds", "looked_at", "instant_of_look", "last_modified", "heartbeat", "silent")
        return {name: stripped(value, root) for name, value in answer.items() if not any(m in name for m in moments)}
    if isinstance(answer, list):
        return [stripped(one, root) for one in answer]
    return answer.replace(root, "<lake>") if isinstance(answer, str) else answer


def test_given_tables_on_s3_then_every_command_answers_as_on_local_disk(
    ask: Ask, whole_lake: Path, there: list[str]
) -> None:
    for command in COMMANDS:
        form = [] if command[0] == "export" else ["--json"]  # whose rows are JSON anyway
        here, far = ask(*command, *form), ask(*command, *there, *form)
        assert (far.code, far.err) == (here.code, here.err), command
        if command[0] == "export":
            assert sorted(far.out.splitlines()) == sorted(here.out.splitlines()) != []
            continue
        expected, told = (json.loads(answer.out) for answer in (here, far))
        if command[0] in ("tables", "plan"):
            expected, told = (_of(answer, {"trips", "groups"}) for answer in (expected, told))
        left, right = stripped(told, f"s3://{BUCKET}/lake"), stripped(expected, str(whole_lake))
        assert (_sorted(left), left != []) == (_sorted(right), True), command
        printed = ask(*command, *there)
        assert printed.code == far.code and printed.out.strip(), command


def _of(answer: Any, names: set[str]) -> Any:
    """The part of an answer about all tables that is about some; of a plan what does not depend on the time."""
    if isinstance(answer, list):
        return [one for one in answer if one["name"] in names]
    told = ("table", "kind", "index", "mode", "code", "bytes")
    works = [one for part in ("chosen", "skipped") for one in answer[part] if one["table"] in names]
    return [[str(work.get(name)) for name in told] for work in works]


def _sorted(answer: Any) -> Any:
    return sorted(answer, key=repr) if isinstance(answer, list) else answer


def test_given_a_store_on_s3_then_the_doctor_tries_it_and_secrets_are_not_told(ask: Ask, there: list[str]) -> None:
    told = ask("doctor", *there, "--json").json
    assert told["ok"] and all(one["ok"] for one in told["store"]) and len(told["store"]) > 10
    assert ask("locate", "trips", *there, "--json").json["log"] == f"s3://{BUCKET}/lake/trips/_index/timeline"
    assert "secret_access_key=***" in ask("doctor", *there, "--read-only").out


def test_given_what_is_not_there_on_s3_then_the_exit_code_tells_and_no_traceback(ask: Ask, there: list[str]) -> None:
    nowhere = ["-w", "s3://no-such-bucket/lake", *there[2:]]
    for command, code in (
        (["show", "tripz", *there], 3),
        (["lookup", "trips", "x", *there], 2),
        (["lookup", "trips", "999", *there], 1),
        (["indexes", "trips", "by_cty", *there], 3),
        (["export", "trips", "-", "--where", "rand() < 1", *there], 2),
        (["tables", *nowhere], 4),
        (["show", "trips", *nowhere], 3),
    ):
        for form in ([], ["--json"]):
            answer = ask(*command, *form)
            assert answer.code == code, (command, answer)
            assert "Traceback" not in answer.err and (answer.err or code == 1), command
