"""Where sources lie, what a listing shows of them, and the ids of files; nothing here needs Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_apps.sources.listing import check_apart, check_unchanged, glob_regex, is_hidden, list_files
from spark_apps.sources.registry import PlainFiles, inferred_type
from spark_apps.sources.source_files import SourceFile, check_distinct
from spark_apps.storage import errors
from spark_apps.timeline.allowed_sources import given_options
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import Field

ODD = [
    "a b",
    "p%20q",
    "per%",
    "x[1]",
    "c{d}",
    "ü☃",
    "h#1",
    "pipe|",
    "back\\slash",
    "col:on",
    "plus+",
    "tab\t",
    "new\nline",
]


@pytest.mark.parametrize(("listed", "same"), [(1000.25, True), (1000.0, True), (999.9, False), (1001.0, False)])
def test_a_time_in_milliseconds_by_a_listing_is_that_in_seconds_by_a_single_look(
    tmp_path: Path, listed: float, same: bool
) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"rows")
    os.utime(path, (1000, 1000))
    files = [(f"file://{path}", 4, listed, None)]

    if same:
        check_unchanged(locate(str(tmp_path)), files, None)
    else:
        with pytest.raises(errors.StorageError, match="was rewritten after it was listed"):
            check_unchanged(locate(str(tmp_path)), files, None)


@pytest.mark.parametrize(
    ("uri", "base", "pattern", "log"),
    [
        ("/lake/trips", "/lake/trips", None, "/lake/_indexes/trips"),
        ("/lake/trips/", "/lake/trips", None, "/lake/_indexes/trips"),
        ("file:///lake/a%20b", "/lake/a b", None, "/lake/_indexes/a-b-86ea2f6b"),
        ("s3://bucket/lake/trips", "s3://bucket/lake/trips", None, "s3://bucket/lake/_indexes/trips"),
        ("s3a://bucket/lake/trips", "s3://bucket/lake/trips", None, "s3://bucket/lake/_indexes/trips"),
        ("s3://bucket/lake/t=*/x?.csv", "s3://bucket/lake", "t=*/x?.csv", None),
        ("/lake/trips/dt=2024-*/*.parquet", "/lake/trips", "dt=2024-*/*.parquet", None),
    ],
)
def test_a_location_knows_its_base_its_pattern_and_where_its_log_stands(
    uri: str, base: str, pattern: str | None, log: str | None
) -> None:
    location = locate(uri)
    assert (location.base, location.pattern) == (base, pattern)
    if log is not None and "-86" not in log:
        assert location.default_log() == log
    else:
        assert (
            location.default_log().startswith(f"{location.parent}/_indexes/")
            and location.default_log() == locate(uri).default_log()
        )
    assert location.default_log("/elsewhere", "mine") == "/elsewhere/mine"


def test_a_bucket_has_no_place_for_a_log_beside_it() -> None:
    for uri in ("s3://bucket", "/"):
        with pytest.raises(errors.InvalidInput, match="index_root"):
            locate(uri).default_log()
    assert locate("s3://bucket").default_log("s3://other/indexes", "t") == "s3://other/indexes/t"


@pytest.mark.parametrize("log", ["/lake/trips", "/lake/trips/_log", "/lake", "/"])
def test_a_log_lies_neither_in_its_source_nor_around_it(log: str) -> None:
    with pytest.raises(errors.InvalidInput, match="inside the other"):
        check_apart(locate("/lake/trips"), log)
    check_apart(locate("/lake/trips"), "/lake/trips_log")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.parquet", ["a.parquet", "a.parquet/inside"], ["a.parquet.crc", "x/a.parquet"]),
        ("y=202[12]/*", ["y=2021/a", "y=2022/b/c"], ["y=2023/a", "y=2021"]),
        ("y=202[!12]", ["y=2023/a"], ["y=2021/a"]),
        ("{a,b[1]}?/x", ["a1/x", "b1z/x"], ["a/x", "b1/x"]),
        ("a\\*b", ["a*b"], ["aab"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)"]),
    ],
)
def test_globs_match_as_hadoops_do(pattern: str, yes: list[str], no: list[str]) -> None:
    match = glob_regex(pattern).match
    assert [name for name in yes if not match(name)] == []
    assert [name for name in no if match(name)] == []


@pytest.mark.parametrize("pattern", ["a[b", "{a,b"])
def test_a_glob_that_is_not_closed_is_refused(pattern: str) -> None:
    with pytest.raises(errors.InvalidInput, match="not closed"):
        glob_regex(pattern)


def test_files_of_any_name_are_listed_and_what_spark_passes_over_is_not(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for name in [*ODD, "_SUCCESS", ".part.crc", "_temporary/0/x", "x._COPYING_", "_k=1/y", "sub/z"]:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (source / "empty").touch()
    (source / "round").symlink_to(source)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "linked").write_text("linked")
    (source / "link").symlink_to(tmp_path / "far")
    listed = {file.relative: file for file in list_files(locate(source), None)}
    assert sorted(listed) == sorted([*ODD, "_k=1/y", "sub/z", "link/linked"])
    assert listed["p%20q"].path == f"file://{source}/p%20q"
    assert all(is_hidden(name) for name in ("_x", ".x", "x._COPYING_")) and not is_hidden("_k=1")


def test_a_file_rewritten_under_its_name_has_another_id_and_one_left_alone_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "src" / "a.csv"
    path.parent.mkdir()
    path.write_text("one")
    source = PlainFiles(str(tmp_path / "src"), {}, [Field("x", "string")], ())
    listing = source.listing()
    first = listing.files[0]
    assert source.listing() is listing
    assert first.lineage < 2**63
    other = tmp_path / "b.csv"
    other.write_text("two")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    second = source.listing().files[0]
    assert (second.bytes, second.modified, second.path) == (first.bytes, first.modified, first.path)
    assert second.lineage != first.lineage


@given(st.sets(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.floats(0, 9), st.sampled_from(["", "x", "y"]))))
def test_files_that_differ_in_anything_have_different_ids(attributes: set[tuple[str, int, float, str]]) -> None:
    files = [SourceFile(path, size, round(at, 6), etag) for path, size, at, etag in attributes]
    assert len({file.lineage for file in files}) == len({(f.path, f.bytes, f.modified, f.etag) for f in files})


def test_two_files_that_cannot_be_told_apart_are_an_error() -> None:
    with pytest.raises(errors.StorageError, match="cannot be distinguished"):
        check_distinct("here", [SourceFile("file:///a", 1), SourceFile("file:///a", 2)])


@pytest.mark.parametrize(
    ("texts", "kind"),
    [(["1", "02", None], "int"), (["1", "3000000000"], "bigint"), (["9" * 19], "string"), (["2024-02-29"], "date"),
     (["2024-02-30"], "string"), (["1", "x"], "string"), ([None], "string"), ([], "string"), (["1.5"], "string")],
)  # fmt: skip
def test_partition_columns_take_the_type_that_holds_all_their_values(texts: list[str | None], kind: str) -> None:
    assert inferred_type(texts) == kind


@pytest.mark.parametrize(
    "name",
    ["password", "fs.s3a.secret.key", "aws_access_key_id", "accountKey", "sas", "api-key", "auth.token", "credential"],
)
def test_options_that_look_like_secrets_never_reach_the_log(name: str) -> None:
    with pytest.raises(errors.InvalidInput, match="storage_options"):
        given_options("csv", {name: "x"})
    assert given_options("csv", {"header": True, "sep": ";", "quote": "'"}) == {
        "header": "true",
        "sep": ";",
        "quote": "'",
    }
