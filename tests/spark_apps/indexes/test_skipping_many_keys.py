"""What records of files say of many keys at once, as a task of Spark asks them, beside the values of the files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_apps.indexes.expressions import Expression
from spark_apps.indexes.file_kinds import groups_with
from spark_apps.indexes.skipping import many_keys
from spark_apps.indexes.skipping.collecting import Making
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.many_keys import Kept, is_found, marks_of, numbers_of_files
from spark_apps.indexes.skipping.records import Marks, RecordFile, written
from spark_apps.layout.hashing import hashes_of
from spark_apps.layout.types import ColumnType, arrow_type, parse_type
from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile
from tests.spark_apps.indexes.test_skipping_summaries import VALUES

SETTINGS = Settings(most_values=9, false_positives=0.002, gram_bytes=4)
KINDS = ("minmax", "values", "bloom")


def part(kind: str, *kinds: str) -> Part:
    return Part(Expression("`c`", "c", ("c",), "c"), frozenset(kinds), parse_type(kind))


def exchanged(values: Sequence[Any], kind: ColumnType) -> Any:
    """Return values as Spark hands them to a task."""
    return pa.array(values, arrow_type(kind))


def records_of(folder: Path, one: Part, files: Sequence[Sequence[Any]], said: str | None = None) -> RecordFile:
    """Return the records of files that hold these values.

    :param said: the type that the records say they are of; their own by default.
    """
    data_files = [DataFile("data", "", str(n), f"{n}.parquet", "base", len(v), 1000, 1) for n, v in enumerate(files)]
    values = exchanged([value for held in files for value in held], one.type)
    known = Making([one], SETTINGS).records(data_files, list(map(len, files)), [values])
    data, store = written(["`c`"], [said or one.type.text], 4, known), Store(folder)
    store.put("x.skipping", data)
    return RecordFile(store, DataFile("t", "", "records", "x.skipping", "base", len(files), len(data), 1))


def kept_of(folder: Path, one: Part, files: Sequence[Sequence[Any]], filters: bool = True) -> Kept:
    records = records_of(folder, one, files)
    return Kept.of(one, [(records, number) for number in range(len(files))], SETTINGS.false_positives, filters)


def found_by(asked: Kept, keys: Sequence[Any], tasks: int = 1) -> set[int]:
    """Return the files that tasks find, each of which has some of the keys."""
    batches = [pa.record_batch([exchanged(keys[n::tasks], asked.kind)], names=["c"]) for n in range(tasks)]
    answers = [answer for batch in batches for answer in numbers_of_files([asked], tasks, iter([batch]))]
    return {number for answer in answers for number in answer.column(1).to_pylist()}


@pytest.mark.by_turn(8)
@pytest.mark.parametrize("kinds", [KINDS, *((kind,) for kind in KINDS)], ids=" ".join)
@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in ("float", "double")])
def test_given_keys_of_any_type_then_each_file_that_holds_one_is_found_and_others_by_what_is_kept(
    tmp_path: Path, kind: str, kinds: tuple[str, ...]
) -> None:
    rng, one = random.Random(f"{kind} {kinds}"), part(kind, *kinds)
    draw = VALUES[kind]
    files = [[draw(rng) if rng.random() < 0.9 else None for _ in range(rng.choice((1, 3, 40)))] for _ in range(25)]
    files += [[None, None], [draw(rng)], []]
    asked = kept_of(tmp_path, one, files)
    bounded = [[value for value in held if value is not None] for held in files]
    for few in (1, 2, 30):
        keys = [draw(rng) for _ in range(few)] + [rng.choice(bounded[0] or [draw(rng)]), *([None] * (few == 2))]
        holding = {n for n, held in enumerate(files) if not set(keys).isdisjoint(held)}
        found = {tasks: found_by(asked, keys, tasks) for tasks in (1, 3)}
        assert all(holding <= each for each in found.values()), (keys, holding, found)
        certain = {n for n, held in enumerate(files) if not held or (None not in keys and set(held) == {None})}
        assert found[1].isdisjoint(certain) and found[3] == found[1]
        if kinds == ("values",):
            few_listed = {n for n, held in enumerate(bounded) if len(set(held)) <= SETTINGS.most_values}
            assert found[1] & few_listed <= holding | {n for n in few_listed if any(len(str(v)) > 60 for v in files[n])}


def test_given_ends_alone_then_files_are_found_whose_ends_have_a_key_between_them(tmp_path: Path) -> None:
    files = [list(range(start, start + 10)) for start in range(0, 1000, 10)]
    asked = kept_of(tmp_path, part("int", "minmax"), files)

    assert found_by(asked, [9, 10, 555]) == {0, 1, 55}
    assert found_by(asked, [-5, 1000]) == set()
    assert found_by(asked, []) == set()
    assert found_by(kept_of(tmp_path, part("int", "minmax"), [[3, 5], [5, 9]]), [4, 4, 7]) == {0, 1}


def test_given_a_null_among_keys_then_files_with_a_null_are_found_too(tmp_path: Path) -> None:
    asked = kept_of(tmp_path, part("string", *KINDS), [["a", None], [None], ["b"], ["c", "d"], []])

    assert found_by(asked, ["d", None]) == {0, 1, 3}
    assert found_by(asked, [None]) == {0, 1}


def test_given_a_file_that_is_not_known_then_its_group_stays() -> None:
    groups = {("", "a"): [1], ("", "b"): [2], ("", "c"): [2, 3], ("", "d"): [4], ("", "e"): [0]}
    members = {group: [SimpleNamespace(lineage=lineage) for lineage in held] for group, held in groups.items()}
    context: Any = SimpleNamespace(snapshot=SimpleNamespace(groups=lambda: members))

    assert groups_with(context, {1, 2, 3}, {3}) == {("", "c"), ("", "d"), ("", "e")}


def test_given_filters_then_few_keys_between_the_ends_rule_files_out_and_many_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    files = [rng.sample(range(0, 2_000_000, 2), 500) for _ in range(60)]
    asked, odd = kept_of(tmp_path, part("bigint", "minmax", "bloom"), files), list(range(1, 400_000, 4_001))
    keys = [*odd, files[7][0], files[33][4]]

    few = found_by(asked, keys)
    assert {7, 33} <= few and len(few) < 30
    assert len(found_by(asked, range(1, 2_000_000, 1_001))) == 60, "of two thousand keys one is taken for a value"
    assert len(found_by(kept_of(tmp_path, part("bigint", "minmax", "bloom"), files, filters=False), keys)) == 60
    monkeypatch.setattr(many_keys, "PAGES_BETWEEN", 0)
    assert found_by(asked, keys) == few, "whichever way pages are read"
    monkeypatch.setattr(many_keys, "MAX_FILTER_BYTES_ASKED", 10_000)
    assert len(found_by(asked, keys)) == 60


@pytest.mark.parametrize(("limit", "most"), [("MAX_LISTED_OF_FILES", 5), ("MAX_LISTED_BYTES_OF_FILES", 3)])
def test_given_more_listed_values_than_tasks_are_handed_then_files_beyond_may_hold_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(many_keys, limit, most)
    asked = kept_of(tmp_path, part("string", "values"), [["a", "b"], ["c", "d"], ["e", "f"], ["g"]])

    assert found_by(asked, ["d", "x"]) == {1, 2}


def test_given_a_column_of_another_type_now_then_all_files_may_hold_a_key(tmp_path: Path) -> None:
    records = records_of(tmp_path, part("int", *KINDS), [[1], [2], [3]])
    asked = Kept.of(part("bigint", *KINDS), [(records, n) for n in range(3)], 0.002, True)

    assert found_by(asked, [2]) == {0, 1, 2}


@pytest.mark.parametrize(("said", "value"), [("int", "seven"), ("decimal(9,2)", "NaN"), ("decimal(9,2)", "2,5")])
def test_given_a_value_that_is_none_of_its_type_then_the_file_of_records_is_damaged(
    tmp_path: Path, said: str, value: str
) -> None:
    records = records_of(tmp_path, part("string", "minmax", "values"), [[value]], said)

    with pytest.raises(StorageError, match=r"x\.skipping.*none of type"):
        Kept.of(part(said, "minmax", "values"), [(records, 0)], 0.002, True)


def test_given_a_page_of_filters_that_is_not_what_was_written_then_the_task_fails(tmp_path: Path) -> None:
    asked = kept_of(tmp_path, part("bigint", "bloom"), [[1, 2], [3, 4]])
    path = tmp_path / "x.skipping"
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.write_bytes(data)

    with pytest.raises(StorageError, match="not what was written"):
        found_by(asked, [1])
    path.unlink()
    with pytest.raises(StorageError):
        found_by(asked, [1])


def test_the_marks_of_many_values_are_those_of_each() -> None:
    kind = parse_type("string")
    values = [f"text {n}" for n in range(200)]

    many = marks_of(hashes_of(pa.array(values), kind))
    assert (many == np.array([Marks.of(value, kind).words for value in values], np.uint64)).all()


def test_of_numbers_with_fractions_and_of_what_is_only_counted_records_tell_no_keys() -> None:
    assert not is_found(part("double", *KINDS)) and not is_found(part("int", "nulls", "counts"))
    assert is_found(part("int", "bloom"))
