"""A hostile log: every field of every document in a table's folder holds values of a grammar of bad ones, and every
reader reads it. Nothing outside of the table is opened, written, deleted or run, memory and time of each read stay
small, and an error is one of ours that names the table and the field.

A part is drawn by a seed; ``HOSTILE=all`` (``make hostile``) tries all, or what fits into ``MINUTES``.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spark_apps.storage.errors import LakeIndexError, LogDamaged
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import commit_key
from tests.hostile import lake
from tests.hostile.grammar import VALUES, Place, places, planted
from tests.hostile.readers import READERS, connected
from tests.hostile.watching import Watch

ALL = os.environ.get("HOSTILE") == "all"
MINUTES = float(os.environ.get("MINUTES", "0"))
DRAWN = 400
SHARE = 0.05
"""Where the log itself is refused, every reader meets the same refusal; only so many of them try it all the same."""
SECONDS = 2.0
KILOBYTES = 64 << 10


WHOLE = ("commit with add", "checkpoint", "sidecar with add")
"""Documents that each reader meets."""


def seed() -> int:
    """``SEED``, or a number of the commit that is tested, so that each commit tries another part."""
    if os.environ.get("SEED"):
        return int(os.environ["SEED"])
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(done.stdout[:8] or "0", 16)


DOCUMENTS = lake.documents()


@dataclass
class Arena:
    """A table in a folder, into which bad documents are put, one at a time."""

    root: Path
    template: Path
    keys: dict[str, set[str]] = field(default_factory=dict)
    figures: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: int = 0

    def __post_init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        """Puts the table back as it was."""
        table = self.root / "lake" / "table"
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.template, self.root, symlinks=True)
        link = table / "data" / "linked"
        link.unlink()
        link.symlink_to(self.root / "outside", target_is_directory=True)
        self.store = Store(table)
        self.watch = Watch(table, [self.root / "outside"])

    def close(self) -> None:
        self.watch.close()

    def meets(self, reader: str, name: str) -> bool:
        """Whether a reader comes by a document at all."""
        return (name if name in lake.BESIDE else commit_key(1)) in self.keys[reader]

    def read(self, files: dict[str, bytes], reader: str, place: Place) -> tuple[str, bool]:
        """Puts documents there and reads: what is wrong with how they were taken, and whether the log was refused."""
        before = {}
        for key, body in files.items():
            path = Path(self.store.uri, key)
            before[path] = path.read_bytes() if path.exists() else None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        self.watch.has_changed()
        with self.watch.on():
            fault, refused = self._asked(reader, place)
        self.slowest = max(self.slowest, self.watch.seconds)
        self.largest = max(self.largest, self.watch.kilobytes)
        if self.watch.seen:
            fault = f"touched what is not its own: {self.watch.seen[:3]}"
        elif self.watch.seconds > SECONDS:
            fault = f"took {self.watch.seconds:.1f} s"
        elif self.watch.kilobytes > KILOBYTES:
            fault = f"took {self.watch.kilobytes:,} kB"
        if self.watch.has_changed() or fault:
            self.watch.close()
            self._renew()
        else:
            for path, body in before.items():
                path.unlink() if body is None else path.write_bytes(body)
        return fault, refused

    def _asked(self, reader: str, place: Place) -> tuple[str, bool]:
        try:
            READERS[reader](Store(self.store.uri))
        except LogDamaged as error:
            self.figures["refused as damaged"] += 1
            return self._unnamed(str(error), place), True
        except LakeIndexError as error:
            self.figures[type(error).__name__] += 1
            return "", False
        except Exception as error:  # noqa: BLE001 - what must not be
            return f"{type(error).__name__}: {error!s:.200}", False
        self.figures["read"] += 1
        return "", False

    def _unnamed(self, message: str, place: Place) -> str:
        """What a refusal does not say: the table; the field, or one that it belongs to."""
        if self.store.uri not in message:
            return f"the error names no table: {message:.300}"
        names = [str(part) for part in place if isinstance(part, str)]
        if names and not any(name in message for name in names):
            return f"the error names no field of {names}: {message:.300}"
        return ""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "template"
    root.mkdir()
    lake.make(root)
    return root


@pytest.fixture
def arena(template: Path, tmp_path: Path) -> Iterator[Arena]:
    logging.disable(logging.CRITICAL)  # thousands of warnings would be kept to be shown
    arena = Arena(tmp_path / "arena", template)
    with connected(tmp_path / "arena" / "lake"):
        got: set[str] = set()
        get = Store.get

        def noted(self: Store, key: str, most: int | None = None) -> bytes:
            got.add(key)
            return get(self, key, most)

        document = DOCUMENTS["commit with add"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "get", noted)
            for reader in READERS:  # what is imported late is imported now
                got.clear()
                arena.read(document.files(document.value), reader, ())
                arena.keys[reader] = set(got)
        arena.figures.clear()
        arena.slowest, arena.largest = 0.0, 0
        yield arena
    logging.disable(logging.NOTSET)
    arena.close()


def cases() -> Iterator[tuple[str, Place, Any]]:
    """All, in an order that the seed decides on."""
    every = [(name, place) for name, document in DOCUMENTS.items() for place in places(document.value)]
    drawn = list(itertools.product(every, range(len(VALUES))))
    random.Random(seed()).shuffle(drawn)
    for (name, place), value in drawn:
        yield name, place, VALUES[value]


def test_each_document_as_it_should_be_is_read_by_each_reader(arena: Arena) -> None:
    assert [name for name in DOCUMENTS if not any(arena.meets(reader, name) for reader in READERS)] == []
    wrong = []
    for name, document in DOCUMENTS.items():
        for reader in READERS if name in WHOLE else ("load", "page", "data source"):
            fault, refused = arena.read(document.files(document.value), reader, ())
            if fault or refused:
                wrong.append(f"{name}, read by {reader}: {fault or 'refused'}")
    assert not wrong, "\n".join(wrong[:40])


def test_given_a_document_with_a_bad_value_when_read_then_refused_by_name_or_harmless(
    arena: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each case that goes wrong is reported, with the seed."""
    die, began, wrong = random.Random(seed()), time.monotonic(), Counter[str]()
    tried = reads = 0
    examples: dict[str, str] = {}
    for name, place, value in cases():
        if (not ALL and reads >= DRAWN) or (MINUTES and time.monotonic() - began > 60 * MINUTES):
            break
        document = DOCUMENTS[name]
        try:
            files = document.files(planted(document.value, place, value))
        except (msgspec.EncodeError, OverflowError):
            continue
        tried += 1
        meeting = [one for one in READERS if arena.meets(one, name)]
        others = meeting if ALL else die.sample(meeting, min(3, len(meeting)))
        refused = False
        for reader in dict.fromkeys((*(["load"] if "load" in meeting else []), *others)):
            if refused and die.random() > SHARE:
                continue
            reads += 1
            fault, damaged = arena.read(files, reader, place)
            refused = refused or (reader == "load" and damaged)
            if fault:
                kind = f"{reader}: {fault:.60}"
                wrong[kind] += 1
                examples.setdefault(kind, f"{name}: {'.'.join(map(str, place))} = {value!r:.60}: {fault}")
    with capsys.disabled():
        sys.stdout.write(
            f"\nSeed {seed()}: {tried:,} bad values, {reads:,} reads in {time.monotonic() - began:.0f} s "
            f"({dict(arena.figures)}); slowest {arena.slowest:.2f} s, largest {arena.largest:,} kB.\n"
        )
    assert not wrong, f"seed {seed()}: " + "\n".join(
        f"{count} x {examples[kind]} [{kind.partition(':')[0]}]" for kind, count in wrong.most_common(60)
    )


def test_the_survey_of_a_warehouse_survives_a_bad_table(template: Path, tmp_path: Path) -> None:
    shutil.copytree(template, tmp_path / "w", symlinks=True)
    good, bad = tmp_path / "w" / "lake" / "table", tmp_path / "w" / "lake" / "bad"
    shutil.copytree(good, bad, symlinks=True)
    Store(bad).put(commit_key(1), msgspec.json.encode({**lake.commit(), "instant": "x"}))
    tables = {one.name: one for one in Warehouse(str(good.parent)).tables()}
    assert tables["table"].state() is not None
    with pytest.raises(LogDamaged, match="instant"):
        tables["bad"].state()
