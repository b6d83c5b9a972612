"""A published log is another's to write into as well: whatever its first line is, it is ours or it is not."""

from __future__ import annotations

import pytest

from spark_apps.timeline.delta.log import FENCE, Origin, origin_of

OURS = b'{"commitInfo": {"%b": {"log": "a", "version": 3, "mapped": true}}}\n{"add": {}}' % FENCE.encode()


def test_the_line_of_a_commit_of_ours_names_its_log_its_version_and_whether_columns_are_mapped() -> None:
    assert origin_of(OURS) == Origin("a", 3, True)


@pytest.mark.parametrize(
    "beginning",
    [
        b"", b"\n", b"\xff\xfe", b"null", b"[]", b"{}", b'{"commitInfo": null}', b'{"commitInfo": []}',
        OURS.replace(b"3", b"-1"), OURS.replace(b"3", b'"3"'), OURS.replace(b"3", b"1e400"),
        OURS.replace(b'"a"', b"{}"), OURS.replace(b"true", b"1"), OURS[:40],
        b'{"commitInfo": ' + b"[" * 100_000, b"0" * 1_000_000,
    ],
    ids=range(16),
)  # fmt: skip
def test_any_other_line_is_of_another_writer(beginning: bytes) -> None:
    assert origin_of(beginning) is None
