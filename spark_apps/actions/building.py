"""An index while it is built: what its rounds have staged, and what a snapshot with it would look like.

The snapshot that a round works on is the log folded up to the newest commit with the unfinished index put in, so that
the log's own rules say which file groups a round has to look at again; nobody else sees it before the commit.
"""

from __future__ import annotations

import logging
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from spark_apps.actions.template import Attempt
from spark_apps.indexes.handler import IndexContext, IndexHandler, IndexWork
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import ConcurrentWrite, IndexExists
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE, AddFile, IndexDefinition, PutIndex, RemoveFile, Write
from spark_apps.timeline.state import NEVER, IndexEntry

logger = logging.getLogger(__name__)


class Building:
    """An index that is being built, or built anew."""

    def __init__(self, attempt: Attempt, handler: IndexHandler, definition: IndexDefinition) -> None:
        self._attempt = attempt
        self._handler = handler
        self.definition = definition
        self._state = attempt.snapshot.state.copy()
        # Where it exists already, it is built anew under its own name: what it holds so far does not count.
        self._state.file_set.remove_tree(definition.tree)
        lag = dict.fromkeys(self._state.groups(DATA_TREE), NEVER)
        self._state.indexes[definition.name] = IndexEntry(definition, "creating", lag, dict(lag))
        self._added: dict[str, AddFile] = {}
        self.writes: list[Write] = []
        self.metrics: dict[str, Any] = {}

    @property
    def added(self) -> list[AddFile]:
        """The files that make up the index."""
        return list(self._added.values())

    @property
    def covered(self) -> int:
        """The version that the rounds so far cover."""
        return self._state.version

    @property
    def snapshot(self) -> Snapshot:
        return replaced(self._attempt.snapshot, state=self._state)

    def round(self, number: int) -> None:
        """Stages what makes the index cover the newest version known: everything first, then what has landed since."""
        lagging = len(self._state.index(self.definition.name).lag)
        self._attempt.phase(f"build index {self.definition.name}, round {number}", 0, lagging)
        folder = self._attempt.index_folder(self.definition.name, f"round-{number}")
        context = IndexContext(self.snapshot, self.definition, folder)
        work = self._handler.build(context) if number == 1 else self._handler.refresh(context)
        self.take(work)
        self.metrics["rounds"] = number
        logger.info(
            "Index %s, round %s: version %s, %s file groups, %s",
            self.definition.name, number, self.covered, lagging, dict(work.metrics),
        )  # fmt: skip

    def take(self, work: IndexWork) -> None:
        """Puts what a handler staged into the snapshot."""
        for action in work.actions:
            if isinstance(action, AddFile):
                self._added[action.path] = action
                self._state.file_set.add(DataFile.of(action, self._state.version))
            elif isinstance(action, RemoveFile):
                self._added.pop(action.path, None)
                self._state.file_set.remove(action.tree, action.path)
            elif isinstance(action, PutIndex):  # the rows have told something of the index
                self.definition = action.definition
        self.writes.extend(write for write in work.writes if write not in self.writes)
        entry = self._state.index(self.definition.name)
        self._state.indexes[self.definition.name] = replace(
            entry, definition=self.definition, lag={}, dirty={}, gone={}
        )

    def behind(self) -> bool:
        """Reads on in the log, and tells whether what landed concerns the index.

        :raises IndexExists: if somebody else has made an index of this name meanwhile.
        :raises ConcurrentWrite: if the table was restored: rows that the index was built over were taken back, and no
            file group tells of them.
        """
        timeline = self._attempt.transaction.timeline
        timeline.refresh()
        self._attempt.transaction.check_alive()
        for commit in timeline.commits(after=self._state.version):
            self._state.apply(commit)
        assert self._state.table  # or it was dropped meanwhile
        began = self._attempt.snapshot.state.version
        for at, to in self._state.restores:
            if at > began:
                raise ConcurrentWrite(
                    f"Version {at} restored version {to} while index {self.definition.name} was built over rows since.",
                    hint="Build it again, over the rows that there are now.",
                )
        for name, entry in self._state.indexes.items():
            if name.lower() == self.definition.name.lower() and entry.definition.tree != self.definition.tree:
                raise IndexExists(
                    f"Another index {name!r} was committed while {self.definition.name!r} was built.",
                    hint="Choose another name, or drop that one first.",
                )
        return bool(self._state.index(self.definition.name).lag)

    def check_counts(self) -> None:
        """Holds the index against the rows that it should tell of, as its kind knows how.

        :raises VerificationFailed: with both figures; such an index does not become active.
        """
        self.metrics.update(self._handler.check_built(IndexContext(self.snapshot, self.definition, "")))
