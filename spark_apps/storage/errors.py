"""Every error of the package, in one tree.

::

    LakeIndexError
    ├── InvalidInput              a caller's mistake, found before anything was written
    │   ├── InvalidName           a table, index, column or transaction name that cannot be used
    │   ├── InvalidSchema         a batch or definition that does not fit the table
    │   ├── InvalidRule           a bucket rule or bucket count
    │   ├── InvalidPredicate      a SQL predicate that cannot be parsed
    │   ├── InvalidStatement      a SQL statement that cannot be parsed, with line and column
    │   ├── UnknownColumn         a column that the table does not have
    │   ├── PlainCopyRefused      an index would be a plain copy of protected rows
    │   ├── CannotPublish         a table has something that the published format does not have
    │   ├── UnsupportedSource     a source has something that cannot be read correctly
    │   │   └── OtherFormat       a folder of plain files is a table of another format
    │   └── SourceNotAllowed      a log names a source that its reader has not allowed
    ├── NotFound
    │   ├── TableNotFound
    │   ├── IndexNotFound
    │   ├── PartitionNotFound
    │   ├── SourceNotFound        nothing to read at the path of a source
    │   ├── VersionNotFound       a version or instant that the log does not have
    │   ├── SnapshotExpired       the version existed, but a commit has expired it
    │   └── TransactionNotFound
    ├── AlreadyExists
    │   ├── TableExists
    │   ├── IndexExists
    │   └── KeysExist             insert() got record keys that the table already has
    ├── CommitRefused             the table was not changed; the class says whether a retry helps
    │   ├── ConcurrentWrite       another commit changed the same files first: read again and retry
    │   ├── BucketCountMismatch   a partition has another bucket count
    │   ├── StopWriteWindowOpen   another writer holds a stop-write window over this scope: wait
    │   ├── FencedOff             the window of this writer has ended: do not retry
    │   ├── AttemptAborted        a commit has ended this attempt: stop; a retry is a new attempt
    │   │   ├── AttemptReplaced   a later try of the same work has ended it, and continues the work
    │   │   └── TransactionEnded  a transaction of several tasks was ended: start with its first task
    │   └── StageMismatch         a stage is missing, or stages of different tries were mixed
    ├── WindowError
    │   ├── WindowNotOpen         the given epoch is not that of an open window
    │   └── DrainTimeout          writers that began before the window are still alive
    ├── AlreadyCommitted          the transaction already has its commit; see ``receipt``
    ├── CommitUndone              the transaction had a commit, but a restore or a drop undid it
    ├── CommitStateUnknown        the store did not say whether the commit landed; files are kept
    ├── LogDamaged                the log has a gap or an unreadable file
    │   ├── LogVanished           the log of a table that existed is gone
    │   └── NewerFormat           written by a newer version of this package
    │       └── UnsupportedFeature   a feature that a reader, or a writer, must know
    ├── PublishRefused            another writer has written into the published log
    ├── VerificationFailed        an index, or copied rows, do not agree with what they were made from
    ├── StorageError
    │   ├── ObjectNotFound
    │   ├── ObjectExists
    │   ├── ObjectTooLarge        an object is larger than allowed; nothing of it was read
    │   ├── LeadsOutside          a symbolic link leads out of the table's folder; it was not followed
    │   └── StorageUnavailable    the store answered with an error that may be temporary
    ├── EnvironmentMismatch       Python, its packages, Spark or the import path do not fit together
    ├── SparkMissing              there is no spark-submit, or no Java
    └── JobFailed                 a Spark app ended without a commit

A message says what happened, then what this means for the table (``outcome``), then what to do (``hint``).
"""

from __future__ import annotations

from typing import Any


class LakeIndexError(Exception):
    """Base of all errors of this package.

    :param message: what happened, with the names of what it happened to.
    :param outcome: what this means for the table; each class has a default.
    :param hint: what the caller can do.
    """

    outcome = "Nothing was changed."

    def __init__(self, message: str, *, outcome: str | None = None, hint: str = "") -> None:
        self.message = _without_secrets(message)
        self.outcome = self.outcome if outcome is None else outcome
        self.hint = _without_secrets(hint)
        super().__init__(" ".join(part for part in (self.message, self.outcome, self.hint) if part))

    def reword(self, message: str | None = None, outcome: str | None = None) -> None:
        """Say otherwise what happened, or what it means for the table; its class, and so what a retry can do, stays."""
        self.message = self.message if message is None else message
        self.outcome = self.outcome if outcome is None else outcome
        self.args = (" ".join(part for part in (self.message, self.outcome, self.hint) if part),)

    def _repr_html_(self) -> str:
        from spark_apps.storage.printing import View, as_html

        facts = [("for the table", self.outcome), ("what to do", self.hint)]
        return as_html(View(f"{type(self).__name__}: {self.message}", facts))


def _without_secrets(text: str) -> str:
    """Return a text with the secrets of the addresses in it starred out: errors go into logs, and onto pages."""
    if "://" not in text:
        return text
    from spark_apps.storage.secrets import hide_address

    return hide_address(text)


def note_done_before(error: BaseException, done: str) -> None:
    """Make an error say what was done before it, instead of that nothing was."""
    if not isinstance(error, LakeIndexError):
        error.add_note(done)
    elif error.outcome.startswith("Nothing was "):
        error.reword(outcome=done)


class InvalidInput(LakeIndexError, ValueError):
    """A mistake of the caller, found before anything was written."""


class InvalidName(InvalidInput):
    """The name of a table, index, column or transaction cannot be used."""


class InvalidSchema(InvalidInput):
    """A batch or a definition does not fit the table."""


class InvalidRule(InvalidInput):
    """A bucket rule or bucket count cannot be used."""


class InvalidPredicate(InvalidInput):
    """A SQL predicate cannot be parsed or evaluated."""


class InvalidStatement(InvalidInput):
    """A SQL statement cannot be parsed, or one of its clauses is refused.

    :param line: of the script, from 1. :param column: from 1.
    """

    def __init__(
        self,
        message: str,
        *,
        outcome: str | None = None,
        hint: str = "",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message, outcome=outcome, hint=hint)
        self.line = line
        self.column = column


class UnknownColumn(InvalidInput):
    """The table does not have the column."""


class CannotPublish(InvalidInput):
    """A table has something that the published format does not have, or that its readers get wrong.

    The message names it.
    """


class UnsupportedSource(InvalidInput):
    """A registered source has something that cannot be read correctly, so no rows are returned."""


class OtherFormat(UnsupportedSource):
    """A folder that is read as plain files is a table of another format, or is inside of one.

    Which files hold its rows only that format's log says. A table registered before the folder became one can be shown
    and dropped; it is not read, and no index of it is built or refreshed.
    """


class SourceNotAllowed(InvalidInput):
    """A log names a source, or the metadata of a source a file, that the reader has not allowed for this log.

    The hint says how to allow it.
    """


class PlainCopyRefused(InvalidInput):
    """An index would be a plain copy of rows that are encrypted, or that a catalog decides who may read."""


class NotFound(LakeIndexError, LookupError):
    """Something named by the caller does not exist."""


class TableNotFound(NotFound):
    """There is no log of a table at this location."""


class IndexNotFound(NotFound):
    """The table has no index of this name."""


class PartitionNotFound(NotFound):
    """The table does not have the partition."""


class SourceNotFound(NotFound):
    """There is nothing to read at the path of a source."""


class VersionNotFound(NotFound):
    """The log does not have the version or instant."""


class SnapshotExpired(NotFound):
    """The version existed, but a commit has expired it."""


class TransactionNotFound(NotFound):
    """The transaction or attempt was never requested."""


class AlreadyExists(LakeIndexError):
    """Something that should be created already exists."""


class TableExists(AlreadyExists):
    """There is already a table at this location."""


class IndexExists(AlreadyExists):
    """The table already has an index of this name."""


class KeysExist(AlreadyExists):
    """``insert`` got record keys that the table already has."""


class CommitRefused(LakeIndexError):
    """The commit was not made."""


class ConcurrentWrite(CommitRefused):
    """Another commit changed what this one read or writes. A retry works on the new state and may succeed."""


class BucketCountMismatch(CommitRefused):
    """A partition would get a second bucket count: another writer has created or rescaled it meanwhile."""


class StopWriteWindowOpen(CommitRefused):
    """Another writer holds a stop-write window over what this commit writes."""


class FencedOff(CommitRefused):
    """The stop-write window in which this writer worked has ended. The writer must not retry with the same epoch."""


class AttemptAborted(CommitRefused):
    """A commit has ended this attempt. Its process must stop; a retry is a new attempt and may succeed."""


class AttemptReplaced(AttemptAborted):
    """A later try of the same work has ended this attempt and continues the work."""


class TransactionEnded(AttemptAborted):
    """A transaction of several tasks was ended. Retrying one task does not help: start again with the first task."""


class StageMismatch(CommitRefused):
    """A stage is missing, unknown or damaged, or was made from another try of its inputs."""


class WindowError(LakeIndexError):
    """A stop-write window is not in the state that the call needs."""


class WindowNotOpen(WindowError):
    """The given epoch is not that of an open window."""


class DrainTimeout(WindowError):
    """Writers that began before the window was opened have not ended in time."""


class _CarriesReceipt(LakeIndexError):
    def __init__(self, message: str, receipt: Any, *, outcome: str | None = None, hint: str = "") -> None:
        super().__init__(message, outcome=outcome, hint=hint)
        self.receipt = receipt


class AlreadyCommitted(_CarriesReceipt):
    """The transaction already has its commit; ``receipt`` is the receipt of that commit."""


class CommitUndone(_CarriesReceipt):
    """The transaction had a commit, but its effect is gone.

    A later restore took it back, or the table, or the index that it created, was dropped. To do the work again, give
    it another transaction id.

    :param by: the transaction that dropped the table, or the index.
    :param receipt: of the commit that it had.
    """

    def __init__(
        self, message: str, receipt: Any, *, outcome: str | None = None, hint: str = "", by: str | None = None
    ) -> None:
        super().__init__(message, receipt, outcome=outcome, hint=hint)
        self.by = by


class CommitStateUnknown(LakeIndexError):
    """The store did not say whether the commit landed, and the log could not be read back.

    The caller may run the same transaction again: it finds its commit if there is one. The caller must not delete
    what was staged, and must not do the work again under another transaction id.
    """

    outcome = "It is unknown whether the commit landed; all files are kept."


class LogDamaged(LakeIndexError):
    """The log has a gap, or one of its files cannot be read."""


class LogVanished(LogDamaged):
    """The files of a table exist, but its log does not."""


class NewerFormat(LogDamaged):
    """The log was written by a newer version of this package."""


class UnsupportedFeature(NewerFormat):
    """The table has a feature that this version of the package would have to know to read or write it."""


class PublishRefused(LakeIndexError):
    """Another writer has written into the log in which a table is published; nothing was overwritten."""


class VerificationFailed(LakeIndexError):
    """An index does not agree with the rows, or copied rows do not agree with their source."""


class StorageError(LakeIndexError):
    """The object store answered with an error."""

    outcome = ""


class ObjectNotFound(StorageError, LookupError):
    """There is no object with this key."""


class ObjectExists(StorageError):
    """There is already an object with this key, or the store says so."""


class ObjectTooLarge(StorageError):
    """An object is larger than objects of its kind may be. Nothing of it was read."""


class LeadsOutside(StorageError):
    """A symbolic link in the folder leads out of it. It was not followed."""


class StorageUnavailable(StorageError):
    """The store answered with an error that may be temporary; the call may or may not have taken effect."""


class EnvironmentMismatch(LakeIndexError):
    """Python, its packages, Spark or the import path do not fit together."""


class SparkMissing(LakeIndexError):
    """There is no spark-submit, or no Java to run it."""


class JobFailed(LakeIndexError):
    """A Spark app ended, and the log does not have its commit."""


# --- The error for a file of another owner that went away between listing and reading -----------------------------


def gone_file(path: str, location: str) -> ObjectNotFound:
    """Return the error for a file that was listed and no longer exists.

    :param path: of the file. :param location: of the table.
    """
    return ObjectNotFound(
        f"{path} of the source {location} is gone: it was there when the source was listed.",
        outcome="Nothing was changed.",
        hint="Load the table again, which lists the source again. An older version can be read only as long as its "
        "files exist.",
    )
