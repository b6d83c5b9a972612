"""Every error of the package, in one tree.

::

    LakeIndexError
    ├── InvalidInput              a caller's mistake, found before anything was written
    │   ├── InvalidName           a table, index, column or transaction name that cannot be used
    │   ├── InvalidSchema         a batch or definition that does not fit the table
    │   ├── InvalidRule           a bucket rule or bucket count
    │   ├── InvalidPredicate      a SQL predicate that cannot be parsed
    │   ├── InvalidStatement      a SQL statement that cannot be parsed, with line and column
    │   ├── UnknownColumn         a column that the table lacks
    │   ├── CannotPublish         something of a table that another format has no form for, by its name
    │   ├── UnsupportedSource     a source with something that cannot be honoured, by its name
    │   └── SourceNotAllowed      a log names a source that its reader has not allowed
    ├── NotFound
    │   ├── TableNotFound
    │   ├── IndexNotFound
    │   ├── PartitionNotFound
    │   ├── VersionNotFound       a version or instant that the log does not hold
    │   ├── SnapshotExpired       it was there, and an expiry commit ended it
    │   └── TransactionNotFound
    ├── AlreadyExists
    │   ├── TableExists
    │   ├── IndexExists
    │   └── KeysExist             insert() met keys of the table
    ├── CommitRefused             the table is as it was; which of these decides whether a retry helps
    │   ├── ConcurrentWrite       another commit touched the same thing first: read again and retry
    │   ├── BucketCountMismatch   a partition has another bucket count
    │   ├── StopWriteWindowOpen   another holder has a stop-write window on this scope: wait
    │   ├── FencedOff             the window of this writer has ended: do not retry
    │   ├── AttemptAborted        this attempt was ended by a commit: stop; a retry is a new attempt
    │   │   ├── AttemptReplaced   by a later try of the same work, which goes on with it
    │   │   └── TransactionEnded  of a transaction of several tasks: it begins anew with its first task
    │   └── StageMismatch         a stage is missing, or stages of different tries were mixed
    ├── WindowError
    │   ├── WindowNotOpen         the epoch given is not that of an open window
    │   └── DrainTimeout          writers from before the window are still alive
    ├── AlreadyCommitted          this transaction has its commit; ``receipt`` is that of it
    ├── CommitUndone              it had one, and a restore or a drop of the table took its effect back
    ├── CommitStateUnknown        the store did not answer whether the commit landed; files stay
    ├── LogDamaged                the log has a hole or an unreadable file
    │   ├── LogVanished           the log of a table that existed is gone
    │   └── NewerFormat           written by a newer version of this package
    │       └── UnsupportedFeature   a feature that a reader, or a writer, must know
    ├── PublishRefused            another writer has written into the log that a table is published in
    ├── VerificationFailed        an index, or a count, does not agree with the rows
    ├── StorageError
    │   ├── ObjectNotFound
    │   ├── ObjectExists
    │   ├── ObjectTooLarge        more bytes than such an object may have; none were read
    │   ├── LeadsOutside          a symbolic link in a table's folder leads out of it; nothing was followed
    │   └── StorageUnavailable    the store answered with an error; it may pass
    ├── EnvironmentMismatch       Python packages, jars or a shadowing folder that do not fit
    ├── SparkMissing              no spark-submit or no Java to run it
    └── JobFailed                 a Spark app ended without a commit

A message says what happened, then what it means for the table (``outcome``), then what to do (``hint``).
"""

from __future__ import annotations

from typing import Any


class LakeIndexError(Exception):
    """Base of all errors of this package.

    :param message: what happened, naming the thing.
    :param outcome: what it means for the table; each class has its default.
    :param hint: what the caller can do.
    """

    outcome = "Nothing was changed."

    def __init__(self, message: str, *, outcome: str | None = None, hint: str = "") -> None:
        self.message = message
        self.outcome = self.outcome if outcome is None else outcome
        self.hint = hint
        super().__init__(" ".join(part for part in (message, self.outcome, hint) if part))

    def _repr_html_(self) -> str:
        from spark_apps.storage.printing import View, as_html

        facts = [("for the table", self.outcome), ("what to do", self.hint)]
        return as_html(View(f"{type(self).__name__}: {self.message}", facts))


class InvalidInput(LakeIndexError, ValueError):
    """A caller's mistake, found before anything was written."""


class InvalidName(InvalidInput):
    """A name that cannot be used for a table, index, column or transaction."""


class InvalidSchema(InvalidInput):
    """A batch or a definition does not fit the table."""


class InvalidRule(InvalidInput):
    """A bucket rule or bucket count that cannot be used."""


class InvalidPredicate(InvalidInput):
    """A SQL predicate that cannot be parsed."""


class InvalidStatement(InvalidInput):
    """A SQL statement that cannot be parsed, or one with a clause that is refused.

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
    """A column that the table lacks."""


class CannotPublish(InvalidInput):
    """Something of a table that another format has no form for, or that its readers get wrong, by its name."""


class UnsupportedSource(InvalidInput):
    """A registered source has something that cannot be honoured: rows would be wrong, so none are given."""


class SourceNotAllowed(InvalidInput):
    """A log names a source, or a source's metadata a file, that the reader has not allowed for that log.

    The hint says how to allow it.
    """


class NotFound(LakeIndexError, LookupError):
    """Something named by the caller does not exist."""


class TableNotFound(NotFound):
    """No table has its log there."""


class IndexNotFound(NotFound):
    """The table has no index of that name."""


class PartitionNotFound(NotFound):
    """The table has no such partition."""


class VersionNotFound(NotFound):
    """The log holds no such version or instant."""


class SnapshotExpired(NotFound):
    """The version existed; a commit has expired it."""


class TransactionNotFound(NotFound):
    """The transaction or attempt was never requested."""


class AlreadyExists(LakeIndexError):
    """Something that was to be made is there already."""


class TableExists(AlreadyExists):
    """A table is there already."""


class IndexExists(AlreadyExists):
    """The table has an index of that name."""


class KeysExist(AlreadyExists):
    """``insert`` met record keys that the table holds already."""


class CommitRefused(LakeIndexError):
    """The commit was not made."""


class ConcurrentWrite(CommitRefused):
    """Another commit wrote what this one read or writes. A retry on the new state may succeed."""


class BucketCountMismatch(CommitRefused):
    """A writer would put a second bucket count into one partition, which another one made or rescaled meanwhile."""


class StopWriteWindowOpen(CommitRefused):
    """Another holder has a stop-write window over what this commit writes."""


class FencedOff(CommitRefused):
    """The stop-write window that this writer worked under has ended. It must not retry under the same epoch."""


class AttemptAborted(CommitRefused):
    """A commit has ended this attempt. Its process stops; a retry, which is a new attempt, may succeed."""


class AttemptReplaced(AttemptAborted):
    """A later try of the same work has ended this attempt and goes on with the work."""


class TransactionEnded(AttemptAborted):
    """A transaction of several tasks was ended. No retry of one of its tasks helps: it begins anew with the first."""


class StageMismatch(CommitRefused):
    """A stage is missing, unknown, damaged, or was made from another try of its inputs."""


class WindowError(LakeIndexError):
    """A stop-write window is not in the state that the call needs."""


class WindowNotOpen(WindowError):
    """The epoch given is not that of an open window."""


class DrainTimeout(WindowError):
    """Writers that began before the window opened have not ended in time."""


class _CarriesReceipt(LakeIndexError):
    def __init__(self, message: str, receipt: Any, *, outcome: str | None = None, hint: str = "") -> None:
        super().__init__(message, outcome=outcome, hint=hint)
        self.receipt = receipt


class AlreadyCommitted(_CarriesReceipt):
    """The transaction has its commit already; ``receipt`` is that of the commit."""


class CommitUndone(_CarriesReceipt):
    """The transaction committed, and its effect is gone.

    A later restore took it back, or the table, or the index that it created, was dropped. A rerun must be asked for.

    :param by: the transaction that dropped the table, or the index.
    :param receipt: of the commit that it had.
    """

    def __init__(
        self, message: str, receipt: Any, *, outcome: str | None = None, hint: str = "", by: str | None = None
    ) -> None:
        super().__init__(message, receipt, outcome=outcome, hint=hint)
        self.by = by


class CommitStateUnknown(LakeIndexError):
    """The store did not answer whether the commit landed, and could not be asked.

    The caller may try the same transaction again: it finds its commit if there is one. It may not delete what
    it staged, and it may not do the work again under another transaction id.
    """

    outcome = "It is unknown whether the commit landed; all files stay."


class LogDamaged(LakeIndexError):
    """The log has a hole, or a file in it cannot be read."""


class LogVanished(LogDamaged):
    """There are files of a table but its log is gone."""


class NewerFormat(LogDamaged):
    """The log was written by a newer version of this package."""


class UnsupportedFeature(NewerFormat):
    """The table has a feature that this version of the package does not know, and must know to read or write it."""


class PublishRefused(LakeIndexError):
    """Another writer has written into the log that a table is published in; nothing was overwritten."""


class VerificationFailed(LakeIndexError):
    """An index does not agree with the rows, or rows that were taken over with their source."""


class StorageError(LakeIndexError):
    """The object store answered with an error."""

    outcome = ""


class ObjectNotFound(StorageError, LookupError):
    """No object has that key."""


class ObjectExists(StorageError):
    """An object has that key already, or the store answers so."""


class ObjectTooLarge(StorageError):
    """An object has more bytes than one of its kind may have. None of them were read."""


class LeadsOutside(StorageError):
    """A symbolic link in the folder leads out of it. It was not followed."""


class StorageUnavailable(StorageError):
    """The store answered with an error that may pass; the call may or may not have had its effect."""


class EnvironmentMismatch(LakeIndexError):
    """The Python packages, the Spark jars, or the import path do not fit together."""


class SparkMissing(LakeIndexError):
    """There is no spark-submit, or no Java to run it."""


class JobFailed(LakeIndexError):
    """A Spark app ended and the timeline holds no commit of it."""


# --- The error for a file of another owner that went away between listing and reading -----------------------------


def gone_file(path: str, location: str) -> ObjectNotFound:
    """Return the error for a file that was listed and is not there any more.

    :param path: of the file. :param location: of the table.
    """
    return ObjectNotFound(
        f"{path} of the source {location} is gone: it was there when the source was listed.",
        outcome="Nothing was changed.",
        hint="Load the table again, which lists the source anew. An older version can be read only while its files "
        "are kept.",
    )
