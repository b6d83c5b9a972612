"""What can be done to a table, each in the form in which it meets another: its steps, which of them is its commit, and
what it makes of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from spark_apps import IndexedTable
from spark_apps.actions.indexing import RepairIndexes, VerificationReport
from spark_apps.actions.template import Stage, run
from spark_apps.indexes.included_columns import IncludedColumns
from spark_apps.timeline import cleaning, transactions
from spark_apps.timeline.log import Timeline
from tests.differential.model import RawRows
from tests.pairs.expected import Expected, Impossible
from tests.pairs.shapes import DDL, ID, KEYED, NAMES, NOTE, TYPES, Ground, N, V, write_file
from tests.spark.releases import SPARK

KEYS = ("buckets", "unique", "groups")
ALL = (*KEYS, "source")


@dataclasses.dataclass
class Hand:
    """Who does an action: the ground it is done on, and what its steps remember of each other."""

    ground: Ground
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)

    def table(self) -> IndexedTable:
        return self.ground.table()


Step = Callable[[Hand], Any]
CommitDelta = Callable[[Expected], None]


@dataclasses.dataclass(frozen=True)
class Act:
    """One action.

    :param steps: in order; ``main`` is the one whose commit is the action's, the last unless it tidies up after it.
    :param effect: what it makes of the model. :raises Impossible: where it cannot be done.
    :param before: what the commits before ``main`` make of the model.
    :param publishes: operation of the commit of ``main`` where it is not of the actions' template, but runs without
        Spark.
    :param touches: partitions whose rows it writes.
    :param prepare: what comes before, leaves no commit and is done once.
    :param sees: what the action looked at when it began is what counts: another order of the rows than that of the
        commits is right as well, and this is its effect, given the model at its beginning.
    """

    name: str
    steps: tuple[Step, ...]
    effect: CommitDelta
    shapes: Sequence[str] = ALL
    main: int = -1
    before: CommitDelta | None = None
    publishes: str | None = None
    touches: str = ""
    prepare: Step | None = None
    sees: Callable[[Expected, Expected], None] | None = None

    @property
    def at(self) -> int:
        return self.main % len(self.steps)


ACTS: dict[str, Act] = {}


def _act(name: str, *steps: Step, effect: CommitDelta = lambda _: None, **more: Any) -> None:
    ACTS[name] = Act(name, steps, effect, **more)


def _there(expected: Expected) -> None:
    expected.check_there()


# --- rows ---------------------------------------------------------------------------------------------------------

CHANGED = [(2, "a", "oslo", 3, "changed", 2), (11, "b", "rome", 0, "changed", 0), (20, "a", "rome", 1, "changed", 1)]
MOVED = [(4, "c", "lima", 2, "moved", 2), (30, "c", "oslo", None, "moved", 1)]
INSERTED = [(20, "a", "oslo", 2, "inserted", 0), (31, "b", None, 2, "inserted", 1), (32, "d", "bonn", 1, "inserted", 2)]
ONCE_MORE = [(30, "a", "lima", 0, "once more", 0), (35, "b", "oslo", 1, "once more", 1)]
REPLACED = [(10, "b", "bonn", 3, "replaced", 0), (33, "b", "rome", None, "replaced", 1)]
STAGED = [(5, "a", "lima", 0, "staged", 1), (34, "a", "bonn", 2, "staged", None)]
GONE = [(3,), (12,), (20,)]


def _upsert(rows: list[Any]) -> CommitDelta:
    def effect(expected: Expected) -> None:
        expected.check_there()
        expected.rows.upsert(expected.batch(rows))

    return effect


def _insert(given: list[Any]) -> CommitDelta:
    def effect(expected: Expected) -> None:
        expected.check_there()
        rows = expected.batch(given)
        if expected.rows.holds_any(rows):
            raise Impossible("a key is there already")
        expected.rows.upsert(rows)

    return effect


def _delete_keys(expected: Expected) -> None:
    expected.check_there()
    expected.rows.delete_keys(GONE)


def _delete_keys_seen(expected: Expected, begun: Expected) -> None:
    """Deletes rows of these keys where they stood when the action began: what has come since may stay."""
    expected.check_there()
    gone = {at for at in begun.rows.rows if at[1] in GONE}
    expected.rows.rows = {at: row for at, row in expected.rows.rows.items() if at not in gone}


def _delete_where(expected: Expected) -> None:
    expected.check_there()
    name = expected.name_of(N)
    expected.rows.delete_where(lambda row: row[name] == 1)


def _delete_seen(expected: Expected, begun: Expected) -> None:
    """Deletes the rows that match and did when the action began: one that came to match since may stay."""
    expected.check_there()
    at, then = (one.rows.names.index(one.name_of(N)) for one in (expected, begun))
    matched = {place for place, row in begun.rows.rows.items() if row[then] == 1}
    expected.rows.delete_at([place for place, row in expected.rows.rows.items() if row[at] == 1 and place in matched])


def _overwrite(expected: Expected) -> None:
    expected.check_there()
    expected.rows.overwrite(expected.batch(REPLACED))


def _drop_partition(expected: Expected) -> None:
    expected.check_there()
    expected.rows.rows = {at: row for at, row in expected.rows.rows.items() if at[0] != ("b",)}


def _drop(expected: Expected) -> None:
    expected.check_there()
    expected.dropped = True


def _anew(expected: Expected, shape: str) -> None:
    if not expected.dropped:
        raise Impossible("there is a table")
    rows = RawRows(list(NAMES), list(TYPES), ["id"], ["p"], unique=shape == "groups")
    fresh = Expected(rows, expected.first, anew=True)
    if shape == "groups":
        fresh.indexes["record"], fresh.uniques = ("id",), {"record"}
    expected.__dict__.update(fresh.__dict__)


def _create(hand: Hand) -> Any:
    return IndexedTable.create(hand.ground.spark, hand.ground.uri, DDL, ["id"], ["p"], **KEYED[hand.ground.shape])


def _frame_step(method: str, rows: list[Any]) -> Step:
    return lambda hand: getattr(hand.table(), method)(hand.ground.frame(rows))


_act("upsert", _frame_step("upsert", CHANGED), effect=_upsert(CHANGED), touches="ab", shapes=KEYS)
_act("upsert elsewhere", _frame_step("upsert", MOVED), effect=_upsert(MOVED), touches="c", shapes=KEYS)
_act("insert", _frame_step("insert", INSERTED), effect=_insert(INSERTED), touches="abd", shapes=KEYS)
_act(
    "delete keys",
    lambda hand: hand.table().delete(
        hand.ground.frame([(key, None, None, None, None, None) for (key,) in GONE]).select("id")
    ),
    effect=_delete_keys,
    sees=_delete_keys_seen,
    touches="ab",
    shapes=KEYS,
)
_act(
    "delete where",
    lambda hand: hand.table().delete("n = 1"),
    effect=_delete_where,
    sees=_delete_seen,
    touches="ab",
    shapes=KEYS,
)
_act("overwrite", _frame_step("insert_overwrite", REPLACED), effect=_overwrite, touches="b", shapes=KEYS)
_act(
    "drop partition", lambda hand: hand.table().drop_partition("p=b"), effect=_drop_partition, touches="b", shapes=KEYS
)
_act("drop table", lambda hand: hand.table().drop(), effect=_drop)
for _shape in KEYS:
    _act(
        f"drop and create ({_shape})",
        lambda hand: hand.table().drop(),
        _create,
        before=_drop,
        effect=lambda expected, shape=_shape: _anew(expected, shape),
        publishes="create",
        shapes=(_shape,),
    )


# --- a transaction of stages --------------------------------------------------------------------------------------


def _stages(hand: Hand) -> None:
    timeline = Timeline.load(hand.table()._handle.timeline.store)
    begun = transactions.begin(timeline, operation="transaction", stages=("write", "index"))
    hand.memory["begun"] = (begun.txn_id, begun.attempt)
    hand.table().in_stage(Stage(*hand.memory["begun"], "write", (), ("by_city",))).upsert(hand.ground.frame(STAGED))
    hand.table().in_stage(Stage(*hand.memory["begun"], "index", ("write",), ())).refresh_index("by_city")


def _commit_stages(hand: Hand) -> Any:
    timeline = Timeline.load(hand.table()._handle.timeline.store)
    transaction = transactions.resume(timeline, *hand.memory["begun"])
    try:
        return transaction.commit()
    except Exception:
        transaction.abort("refused")
        raise


_act(
    "transaction",
    _commit_stages,
    effect=_upsert(STAGED),
    publishes="transaction",
    prepare=_stages,
    touches="a",
    shapes=KEYS,
)


# --- indexes ------------------------------------------------------------------------------------------------------


def _made(name: str, columns: Sequence[int], included: Sequence[int] = (), unique: bool = False) -> CommitDelta:
    return lambda expected: expected.create_index(name, columns, included, unique)


def _create_index(name: str, kind: str, columns: Sequence[str], **more: Any) -> Step:
    return lambda hand: hand.table().create_index(name, kind=kind, columns=columns, **more)


_act(
    "create secondary", _create_index("by_v", "secondary", ["v"], properties={"shards": "4"}), effect=_made("by_v", [V])
)
_act(
    "create lazy",
    _create_index("lazy_v", "secondary", ["v"], properties={"tombstones": "lazy"}),
    effect=_made("lazy_v", [V]),
)
_act("create compact", _create_index("blocks_v", "compact", ["v"]), effect=_made("blocks_v", [V]))
_act(
    "create covering",
    _create_index("cov_v", "covering", ["v"], included=["note"]),
    effect=_made("cov_v", [V], [NOTE]),
)
_act("create deferred", _create_index("late_v", "secondary", ["v"], deferred=True), effect=_made("late_v", [V]))
_act(
    "create record",
    _create_index("keys", "record", []),
    effect=_made("keys", [ID], unique=True),
    shapes=("buckets", "source"),
)
_act(
    "drop record",
    lambda hand: hand.table().drop_index("keys"),
    effect=lambda expected: expected.drop_index("keys"),
    shapes=("unique",),
)


_keys = _create_index("keys", "record", [])
_act(
    "drop and create record",
    lambda hand: hand.table().drop_index("keys"),
    _keys,
    before=lambda expected: expected.drop_index("keys"),
    effect=_made("keys", [ID], unique=True),
    shapes=("unique",),
)
_act(
    "create record and insert",
    _keys,
    _frame_step("insert", ONCE_MORE),
    before=_made("keys", [ID], unique=True),
    effect=_insert(ONCE_MORE),
    shapes=("buckets",),
)
for _name in ("by_city", "cov", "blocks"):
    _act(
        f"drop {_name}",
        lambda hand, name=_name: hand.table().drop_index(name),
        effect=lambda expected, name=_name: expected.drop_index(name),
    )


def _altered(expected: Expected) -> None:
    expected.check_index("by_city")
    expected.properties["by_city"] = {"tombstones": "lazy"}


_act("alter", lambda hand: hand.table().alter_index("by_city", {"tombstones": "lazy"}), effect=_altered)


def _on(name: str) -> CommitDelta:
    return lambda expected: expected.check_index(name)


for _name, _mode in (
    ("by_city", "full"), ("by_n", "incremental"), ("by_n", "full"), ("cov", "incremental"), ("cov", "full"),
    ("blocks", "incremental"), ("blocks", "full"),
):  # fmt: skip
    _act(
        f"refresh {_name} {_mode}",
        lambda hand, name=_name, mode=_mode: hand.table().refresh_index(name, mode),
        effect=_on(_name),
    )


_act(
    "refresh by_n quick",
    lambda hand: hand.table().refresh_index("by_n", "quick"),
    effect=_on("by_n"),
    shapes=("source",),
)


def _including(expected: Expected) -> None:
    expected.check_index("cov")
    expected.included["cov"] = (*expected.included["cov"], expected.name_of(V))


_act(
    "refresh cov including v",
    lambda hand: hand.table().refresh_index("cov", included=IncludedColumns(include=["v"])),
    effect=_including,
)
for _name, _mode in (
    ("by_city", "quick"), ("by_city", "full"), ("by_n", "quick"), ("by_n", "full"), ("cov", "quick"), ("cov", "full"),
    ("blocks", "quick"), ("blocks", "full"),
):  # fmt: skip
    _act(
        f"compact {_name} {_mode}",
        lambda hand, name=_name, mode=_mode: hand.table().compact(name, mode),
        effect=_on(_name),
    )


def _repair(hand: Hand) -> Any:
    table = hand.table()
    wrong = VerificationReport("by_city", table.version, 0, 0, 1, 0, 0, 0, 0)
    return run(table._handle, RepairIndexes([wrong]))


_act("repair", _repair, effect=_on("by_city"))


# --- layout, columns, versions ------------------------------------------------------------------------------------

for _mode in ("quick", "full"):
    _act(f"compact table {_mode}", lambda hand, mode=_mode: hand.table().compact(mode=mode), effect=_there, shapes=KEYS)


def _open(partitions: Sequence[str] | None) -> Step:
    def step(hand: Hand) -> None:
        hand.memory["epoch"] = hand.table().open_window("pairs", partitions).epoch

    return step


def _close(hand: Hand) -> Any:
    # One that was refused is not there to be closed.
    epoch = hand.memory.get("epoch")
    return None if epoch is None else hand.table().close_window(epoch)


def _stop(partitions: str) -> CommitDelta:
    def effect(expected: Expected) -> None:
        expected.check_there()
        if expected.stopped.intersection(partitions):
            raise Impossible("a window is open there")
        expected.stopped = frozenset(partitions)

    return effect


_act(
    "rescale",
    _open(None),
    lambda hand: hand.table().rescale(buckets=3, window=hand.memory["epoch"]),
    _close,
    main=1,
    before=_stop("abcd"),
    effect=_stop(""),
    shapes=("buckets", "unique"),
)
_act(
    "rules",
    lambda hand: hand.table().rescale(bucket_expressions="p=d,4"),
    effect=_there,
    shapes=("buckets", "unique"),
)
_act("open window", _open(["p=a"]), effect=_stop("a"), publishes="open_window", shapes=KEYS)
_act("close window", _open(["p=a"]), _close, before=_stop("a"), effect=_stop(""), publishes="close_window", shapes=KEYS)


def _add(expected: Expected) -> None:
    expected.check_there()
    expected.rows.add_column("extra", "double")


def _free(expected: Expected) -> str:
    """The name of a column that no index holds."""
    expected.check_there()
    name = expected.name_of(V)
    if name in expected.held():
        raise Impossible("an index holds the column")
    return name


def _widen(expected: Expected) -> None:
    expected.rows.widen_column(_free(expected), "bigint")


def _rename(expected: Expected) -> None:
    expected.check_there()
    name = expected.name_of(V)
    expected.rows.rename_column(name, "w")
    for held in (expected.indexes, expected.included):
        for index, columns in held.items():
            held[index] = tuple("w" if one == name else one for one in columns)


def _drop_column(expected: Expected) -> None:
    expected.rows.drop_column(_free(expected))


_act("add column", lambda hand: hand.table().add_columns("extra double"), effect=_add, shapes=KEYS)
if SPARK >= (4, 0):  # older ones cannot read what was written before
    _act("widen column", lambda hand: hand.table().widen_column("v", "bigint"), effect=_widen, shapes=KEYS)
_act("rename column", lambda hand: hand.table().rename_column("v", "w"), effect=_rename, shapes=KEYS)
_act("drop column", lambda hand: hand.table().drop_column("v"), effect=_drop_column, shapes=KEYS)


def _restored(expected: Expected) -> None:
    expected.check_there()
    if expected.anew:
        raise Impossible("the version is one of another table")
    expected.rows.restore(min(expected.rows.versions))


_act(
    "restore",
    lambda hand: hand.table().restore(hand.ground.restored),
    effect=_restored,
    publishes="restore",
    touches="abcd",
    shapes=KEYS,
)


def _clean(hand: Hand) -> Any:
    timeline = Timeline.load(hand.table()._handle.timeline.store)
    # What was recorded is as old as this run; nobody of it is dead.
    return cleaning.clean(timeline, retain_versions=1, retain_seconds=0.0, presumed_dead_seconds=1e9)


_act("clean", _clean, effect=lambda _: None, publishes="expire")


# --- the owner of a source ----------------------------------------------------------------------------------------


def _aside(p: str, name: str) -> Step:
    return lambda hand: (hand.ground.uri / f"p={p}" / f"{name}.parquet").rename(hand.ground.world / f"{name}.aside")


def _back(p: str, name: str) -> Step:
    return lambda hand: (hand.ground.world / f"{name}.aside").rename(hand.ground.uri / f"p={p}" / f"{name}.parquet")


def _write(p: str, name: str, rows: list[Any]) -> Step:
    return lambda hand: write_file(hand.ground, p, name, rows)


for _name, _change, _index, _mode in (
    ("a file comes", _write("c", "fifth", MOVED), "by_city", "incremental"),
    ("a file comes, observed", _write("a", "sixth", CHANGED), "by_city", "quick"),
    ("a file goes", _aside("a", "first"), "by_n", "incremental"),
    ("a file is replaced", _write("b", "second", REPLACED), "cov", "incremental"),
    ("a file comes back", _back("b", "third"), "blocks", "incremental"),
):
    _act(
        _name,
        _change,
        lambda hand, index=_index, mode=_mode: hand.table().refresh_index(index, mode),
        # A quick one tells the log of the files, whatever has become of the index.
        effect=_there if _mode == "quick" else _on(_index),
        shapes=("source",),
    )


def acts_of(shape: str) -> list[Act]:
    """The actions that are done on tables of a shape, in their order."""
    return [act for act in ACTS.values() if shape in act.shapes]
