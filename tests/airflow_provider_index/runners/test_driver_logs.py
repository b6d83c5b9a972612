"""Old logs of drivers go; whatever else lies in their folder stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from airflow_provider_index.runners.spark_submit import KEPT_DAYS, _remove_old


def old(path: Path) -> Path:
    then = time.time() - (KEPT_DAYS + 1) * 86_400
    os.utime(path, (then, then))
    return path


def test_only_what_carries_the_mark_of_a_driver_is_removed_when_it_is_old(tmp_path: Path) -> None:
    mine = tmp_path / "20260101T000000-d.r.t.1.index-driver.log"
    mine.write_text("lines")
    scratch = tmp_path / f".{mine.name}"
    (scratch / "blocks").mkdir(parents=True)
    young = tmp_path / "20260102T000000-d.r.t.1.index-driver.log"
    young.write_text("lines")
    others = [tmp_path / name for name in ("scheduler.log", "20260101T000000-x.log", "my.index-driver.log", "dag_id")]
    for path in others[:-1]:
        path.write_text("somebody else's")
    others[-1].mkdir()
    link = tmp_path / "20260103T000000-x.index-driver.log"
    link.symlink_to(others[-1])
    for path in (mine, scratch, *others):
        old(path)

    _remove_old(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {young.name, link.name, *(path.name for path in others)}
