"""Actions held before their commit, and let go later.

The work of an action depends on the version that it began from, and on nothing that another commits meanwhile. So it is
done once, by Spark, up to the point where :mod:`spark_apps.actions.template` publishes it; what it would publish stays
in memory, what it wrote stays in a folder of files. Letting it go is the template's own commit on a log as it is then.
Actions without work by Spark are not recorded: they run each time, and what comes between is done when they publish.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_apps.actions import indexing, template
from spark_apps.actions.indexing import Building
from spark_apps.storage.errors import AlreadyCommitted, AttemptAborted, CommitStateUnknown
from spark_apps.timeline import cleaning, commit, creation, transactions, windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Receipt

_PUBLISHERS = (cleaning, creation, transactions, windows)


class _Held(CommitStateUnknown):
    """Ends an action before its commit and leaves its attempt as it is."""

    def __init__(self, held: Held) -> None:
        super().__init__("held")
        self.held = held


@dataclasses.dataclass(frozen=True)
class Held:
    """An action whose work is done.

    :param builds: the indexes that it builds, each with what it was when the action was held: who commits may go on
        building, on the log that it finds.
    """

    transaction: transactions.Transaction
    action: template.Action
    seen: Any
    work: template.StagedChanges
    builds: Sequence[tuple[Building, dict[str, Any]]] = ()

    def let_go(self) -> Receipt:
        """Commits it on the log as it is now, as :func:`spark_apps.actions.template.run` would have.

        :raises LakeIndexError: if the commit is refused; the attempt is ended then.
        """
        transaction = self.transaction
        # What it read of the log of another pair it must not remember.
        begun = Timeline(transaction.timeline.store, transaction.timeline.clock)
        begun._state = transaction.base.copy()
        vars(transaction.timeline).update(vars(begun))
        for building, then in self.builds:
            vars(building).update(_copied(then))
        try:
            return template._commit(transaction, self.action, self.seen, self.work)
        except AlreadyCommitted as error:
            return error.receipt
        except (CommitStateUnknown, AttemptAborted):
            raise
        except Exception as error:
            template._end(transaction, error)
            raise


def hold(step: Callable[[], Any]) -> Held | None:
    """Runs a step up to the commit of its action; ``None`` if it had nothing to commit by the template."""

    builds: list[Building] = []

    def held(*given: Any) -> Receipt:
        raise _Held(Held(*given, [(one, _copied(vars(one))) for one in builds]))

    def building(*given: Any) -> Building:
        builds.append(Building(*given))
        return builds[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template, "_commit", held)
        patch.setattr(indexing, "Building", building)
        try:
            step()
        except _Held as stopped:
            return stopped.held
    return None


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of an object that goes on to change them."""
    return {name: value.copy() if hasattr(value, "copy") else value for name, value in attributes.items()}


@contextlib.contextmanager
def before_publishing(operation: str, meanwhile: Callable[[], None]) -> Iterator[None]:
    """Does something once, right before a commit of that operation is published."""
    waiting = [meanwhile]

    def first(timeline: Timeline, intent: Any, guard: Any = None) -> Receipt:
        if waiting and intent.operation == operation:
            waiting.pop()()
        return commit.commit_changes(timeline, intent, guard)

    with pytest.MonkeyPatch.context() as patch:
        for module in _PUBLISHERS:
            patch.setattr(module, "commit_changes", first)
        yield
    assert not waiting, f"{operation} was never published"


@contextlib.contextmanager
def after_beginning(meanwhile: Callable[[], None]) -> Iterator[None]:
    """Does something once, right after an action has begun: its base is read, its work is not done."""
    waiting = [meanwhile]

    def begin(*given: Any, **named: Any) -> transactions.Transaction:
        begun = transactions.begin(*given, **named)
        if waiting:
            waiting.pop()()
        return begun

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template, "begin", begin)
        yield


# --- folders ------------------------------------------------------------------------------------------------------


def link_tree(source: Path, target: Path) -> None:
    """The files of a folder below another one too, without copying their bytes."""
    for folder, _, names in os.walk(source):
        there = target / os.path.relpath(folder, source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            with contextlib.suppress(FileExistsError):
                os.link(os.path.join(folder, name), there / name)


Tree = dict[str, tuple[str, int]]
"""Path below a folder -> where a file lies, and its inode."""


def tree_of(folder: Path) -> Tree:
    """The files of a folder."""
    return {os.path.relpath(entry.path, folder): (entry.path, entry.inode()) for entry in _files(str(folder))}


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            else:
                yield entry


def lay(world: Path, *trees: Tree) -> None:
    """Makes a folder hold the files of others, by links, and nothing else; what is there already stays."""
    wanted = {path: entry for tree in reversed(trees) for path, entry in tree.items()}
    for path, (there, inode) in tree_of(world).items():
        if path in wanted and wanted[path][1] == inode:
            del wanted[path]
        else:
            os.unlink(there)
    for path, (source, _) in wanted.items():
        target = f"{world}/{path}"
        try:
            os.link(source, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.link(source, target)


def keep_new(world: Path, base: Path, target: Path) -> None:
    """Files of a folder that an earlier copy of it lacks, but for the log."""
    for folder, _, names in os.walk(world):
        here = Path(os.path.relpath(folder, world))
        if _of_the_log(here):
            continue
        for name in names:
            if not (base / here / name).exists():
                (target / here).mkdir(parents=True, exist_ok=True)
                os.link(os.path.join(folder, name), target / here / name)


def _of_the_log(folder: Path) -> bool:
    text = f"/{folder}/"
    return "/_index/timeline/" in text or "/_index/hashing/" in text


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
