"""Makes a keyed table of rows that another writer has: a Delta or Iceberg table, or a folder of files.

The table is made empty, and the rows follow in one commit of their own. The transaction of both is named after what is
taken over and what is made of it; so a run that was killed is found by the next one, which begins where no commit is,
and rows come in once. What was staged is read back and compared with the source before it is committed. The source is
only read.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.create import create
from spark_apps.actions.key_location import as_files
from spark_apps.actions.source_diff import first_actions
from spark_apps.actions.template import Attempt, StagedChanges, TableHandle, run
from spark_apps.actions.upsert_plan import keys_are_located
from spark_apps.actions.write import InsertOverwrite, drop_unfilled
from spark_apps.layout.rules import BucketRules
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column, conform_batch
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.mergetree.write import hashable, translate_spark_errors
from spark_apps.query.reading import read_rows
from spark_apps.sources.listing import check_apart
from spark_apps.sources.registry import discover, looks_like_name, open_source
from spark_apps.storage.errors import (
    CommitStateUnknown,
    CommitUndone,
    InvalidInput,
    LakeIndexError,
    TableExists,
    VerificationFailed,
)
from spark_apps.storage.names import check_txn_id
from spark_apps.storage.store import ObjectStore, Store
from spark_apps.storage.unwritten import UNWRITTEN_HINT, check_unwritten
from spark_apps.timeline.allowed_sources import name_together
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import (
    DATA_TREE,
    FORMAT_VERSION,
    AddFile,
    Commit,
    PutTable,
    SourceDefinition,
    TableDefinition,
)
from spark_apps.timeline.operations import CREATE, INSERT, Operation
from spark_apps.timeline.state import NEVER, State
from spark_apps.timeline.transactions import find_receipt

logger = logging.getLogger(__name__)

_EXAMPLES = 3


@dataclass(frozen=True)
class Source:
    """Rows of another writer, as they are at one moment.

    :param version: of the source's own, where it has versions.
    """

    definition: SourceDefinition
    snapshot: Snapshot
    version: str | None

    @property
    def schema(self) -> T.StructType:
        return self.snapshot.data.schema

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by which the source is partitioned."""
        return self.snapshot.table.partition_by

    def check(self) -> None:
        """Check that the files are still as they were listed. :raises StorageError: if one is gone or rewritten."""
        assert self.snapshot.external is not None
        self.snapshot.external.check(self.snapshot.state.files(DATA_TREE))


def format_of_source(uri: str, options: Mapping[str, Any] | None) -> str:
    """Return the format of a location: "delta", "iceberg" or "hudi" where there is a log of theirs, else "parquet"."""
    if looks_like_name(uri):
        return "parquet"
    store = Store(uri, options)
    if store.list("_delta_log"):
        return "delta"
    if any(info.key.endswith(".metadata.json") for info in store.list("metadata")):
        return "iceberg"
    if store.has_any(".hoodie"):
        return "hudi"
    return "parquet"


def open_rows(
    spark: SparkSession,
    uri: str,
    form: str | None,
    reader_options: Mapping[str, object] | None,
    options: Mapping[str, Any] | None,
    table: str,
) -> Source:
    """Return what there is to take over, without writing anything anywhere.

    :param form: the source's format; found out if not given.
    :param table: address of the table that is made.
    :raises InvalidInput: (or a subclass) if it cannot be read, is inside of the table, or the table is inside of it.
    """
    check_unwritten("location", {"uri": uri}, UNWRITTEN_HINT)
    form = format_of_source(uri, options) if form is None else form
    discovered = discover(spark, uri, form, None, reader_options, options)
    check_apart(discovered.location, table)
    definition = TableDefinition(
        table_id="",
        fields=discovered.fields,
        record_key=(),
        partition_by=discovered.partition_by,
        bucketed=False,
        source=discovered.source,
    )
    name_together(table, discovered.source)
    external = open_source(definition, options, table, spark)
    listing = external.listing()
    if listing.fields is not None:
        definition = replace(definition, fields=listing.fields, partition_by=listing.partition_by or ())
    definition = replace(definition, source=replace(discovered.source, version=listing.version))
    state = State()
    actions = (PutTable(definition), *first_actions(definition, listing, options))
    state.apply(Commit(FORMAT_VERSION, 0, "0" * 17, CREATE.name, "source", 1, -1, actions=actions))
    version = None if listing.version is None else str(listing.version)
    return Source(discovered.source, Snapshot(spark, Store(table, options), state, external=external), version)


def take_over(
    spark: SparkSession,
    store: ObjectStore,
    source: Source,
    definition: TableDefinition,
    rules: BucketRules | None,
    txn_id: str | None,
) -> TableHandle:
    """Make a table and commit the source's rows to it, each once, whatever an earlier run has done of it.

    :param txn_id: names the intent: with it a finished run is found, and nothing is done.
    :raises TableExists: if there is another table, or this one has its rows and no ``txn_id`` was given.
    :raises InvalidInput: for rows that have one key, with examples.
    :raises VerificationFailed: if what was written is not what the source holds; nothing was committed.
    """
    dropped = _last_drop(store)
    name = f"take-over-{_fingerprint(source, definition, rules, dropped)}" if txn_id is None else check_txn_id(txn_id)
    try:
        handle, _ = create(spark, store, definition, rules, f"{name}.table")
    except CommitUndone:  # an earlier try could not take the rows over, and dropped its table
        handle, _ = create(spark, store, definition, rules, f"{name}.table.{dropped}")
    if find_receipt(handle.timeline, name) is not None:
        if txn_id is None:
            raise TableExists(
                f"There is a table at {store.uri} already, with the rows of {source.definition.location}.",
                hint="Load it, or choose another location.",
            )
        return handle
    action = TakeOver(source)
    try:
        run(handle, action, txn_id=name, inputs=action.inputs)
    except (CommitStateUnknown, TableExists):
        raise
    except LakeIndexError as error:
        # Nobody is left with an empty table; a run that is killed leaves one, and the next run goes on with it.
        drop_unfilled(partial(run, handle), error)
        raise
    return handle


def _last_drop(store: ObjectStore) -> int:
    """Return the version that last dropped a table at this place: commits up to it are not of the table being made."""
    last = Timeline(store).refresh().last_drop if store.head(commit_key(0)) is not None else NEVER
    return NEVER if last is None else last


def _fingerprint(source: Source, definition: TableDefinition, rules: BucketRules | None, dropped: int) -> str:
    """Return a name for what is taken over and what is made of it, the same in each run.

    The version of the source is not part of it: what a killed run began is done with the source as it is now.
    """
    bucketing = None if rules is None else (rules.rule, rules.text, rules.default)
    unversioned = replace(source.definition, version=None)
    identity = msgspec.json.encode((replace(definition, table_id=""), unversioned, bucketing, dropped))
    return hashlib.sha256(identity).hexdigest()[:24]


class TakeOver(InsertOverwrite):
    """All rows of a source come into a table that has none."""

    operation: ClassVar[Operation] = INSERT

    def __init__(self, source: Source) -> None:
        self.source = source
        super().__init__(read_rows(source.snapshot))

    @property
    def inputs(self) -> dict[str, Any]:
        """The source, for the request of the attempt."""
        origin = {"source": self.source.definition.location, "format": self.source.definition.format}
        return origin if self.source.version is None else {**origin, "source_version": self.source.version}

    def not_staged_because(self) -> str | None:
        return "it is how a table begins"

    def validate(self, snapshot: Snapshot) -> None:
        super().validate(snapshot)
        if snapshot.state.files(DATA_TREE):
            raise TableExists(
                f"Rows came into the table at {snapshot.store.uri} before those of the source.",
                hint="Take the source over into another table, or insert its rows.",
            )

    def work(self, attempt: Attempt) -> StagedChanges | None:
        self.validate(attempt.snapshot)
        tree = attempt.snapshot.data
        attempt.phase("count the source")
        rows = conform_batch(self.rows, tree.schema)
        expected = totals(rows, tree)
        work = super().work(attempt)
        attempt.phase("compare with the source")
        self.source.check()
        staged = [] if work is None else [a for a in work.actions if isinstance(a, AddFile) and a.tree == tree.name]
        if sum(action.rows for action in staged) < expected["rows"]:
            _refuse_repeated(rows, tree, attempt.snapshot)
        if work is None:
            return None
        files = as_files(attempt.snapshot, staged)
        written = totals(read_files(attempt.snapshot, tree, files, tree.columns), tree)
        differing = [name for name in expected if expected[name] != written[name]]
        if differing:
            raise VerificationFailed(
                f"What was written of {self.source.definition.location} is not what it holds: "
                + "; ".join(
                    f"{name}: {expected[name]} in the source, {written[name]} written" for name in differing[:_EXAMPLES]
                ),
                hint="If others write to the source, take a Delta or Iceberg table over, or wait until they are done.",
            )
        work.metrics.update({**self.inputs, "verified": len(expected)})
        return work


def totals(rows: DataFrame, tree: Tree) -> dict[str, Any]:
    """Return figures that are the same for the same rows, in whatever order: by one job.

    They are the number of rows, the sum of a hash over all columns, and of each column of whole numbers or decimals its
    sum.
    """
    hashed = F.xxhash64(*[hashable(rows, name) for name in tree.columns])
    figures = {"rows": F.count(F.lit(1)), "sum of hashes": F.sum(hashed.cast("decimal(20,0)"))}
    for name in tree.columns:
        kind = tree.field(name).dataType
        if isinstance(kind, T.IntegralType):
            figures[f"sum of {name}"] = F.sum(column(name).cast("decimal(20,0)"))
        elif isinstance(kind, T.DecimalType) and kind.precision <= 28:
            figures[f"sum of {name}"] = F.sum(column(name))
    with translate_spark_errors():
        [row] = rows.agg(*[figure.alias(str(n)) for n, figure in enumerate(figures.values())]).collect()
    return dict(zip(figures, row, strict=True))


def _refuse_repeated(rows: DataFrame, tree: Tree, snapshot: Snapshot) -> None:
    """Refuse a source with several rows of one key. :raises InvalidInput: with examples."""
    names = tree.key if keys_are_located(snapshot) else tree.identity
    repeated = rows.groupBy(*map(column, names)).count().where("count > 1")
    with translate_spark_errors():
        sample = repeated.orderBy(*map(column, names)).limit(_EXAMPLES).collect()
    examples = [", ".join(f"{name}={row[name]!r}" for name in names) + f" ({row['count']} rows)" for row in sample]
    raise InvalidInput(
        f"The source has several rows of one key, such as {'; '.join(examples)}.",
        outcome="Nothing was taken over.",
        hint="Choose a record_key that names one row, or select the rows to keep by a query: create the table without "
        "from_source and insert them.",
    )
