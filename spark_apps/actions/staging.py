"""Actions as stages of a transaction: they stage what a later task commits, together with the other stages.

A stage works on the version that the transaction began from. One that is made from other stages sees their work laid
over that version in memory, so that an index is brought in step with rows that nobody else can see yet; both then
appear in one commit. Another commit in between may change other file groups, but none that the index was told of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as changed

from spark_apps.actions.template import Action, Attempt, Pulse, TableHandle, Work, look
from spark_apps.storage.errors import AlreadyCommitted, InvalidInput
from spark_apps.timeline import windows
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.keys import ByKeys
from spark_apps.timeline.model import (
    AddFile,
    AnyAction,
    Cover,
    IndexDefinition,
    PutIndex,
    Receipt,
    StageManifest,
    Write,
    definition_scope,
    group_scope,
)
from spark_apps.timeline.stages import changed_groups, check_made_from, laid_over
from spark_apps.timeline.state import IndexEntry, State
from spark_apps.timeline.transactions import Transaction, resume

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Which stage of which transaction a table's next action is.

    :param after: the stages that it is made from; what these were made from counts as well.
    :param leave: indexes kept with the data that this write leaves to another stage.
    :param inputs: tells what the stage is made of, for a second try to compare.
    :param number: of the try; a try of a lower one that is late does not count.
    """

    txn_id: str
    attempt: int
    name: str
    after: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    inputs: str = ""
    number: int | None = None


@dataclass(frozen=True)
class Overlay:
    """The staged work that a stage is made from.

    :param base: the version that the transaction began from.
    :param state: that version with the staged work laid over it.
    :param made_from: stage -> hash of its manifest.
    :param groups: file groups of the table's rows in which the staged work adds or removes files.
    """

    base: State
    state: State
    made_from: dict[str, str] = field(default_factory=dict)
    groups: frozenset[GroupKey] = frozenset()

    @property
    def partitions(self) -> list[str]:
        return sorted({partition for partition, _ in self.groups})


def run_stage(handle: TableHandle, action: Action, stage: Stage) -> Receipt:
    """Stages an action's work under the transaction. Nothing becomes visible, and a failure ends nothing: the stage
    can be tried again.

    :returns: a receipt without a version, that tells the stage and its manifest's hash.
    :raises InvalidInput: for an action that cannot be a stage.
    :raises StageMismatch: if a stage that this one is made from is missing or was tried again since.
    :raises AttemptAborted: if the transaction was rolled back.
    """
    started = time.monotonic()
    _check_may_be_staged(action, stage)
    try:
        transaction = resume(handle.timeline, stage.txn_id, stage.attempt)
    except AlreadyCommitted as error:
        return error.receipt
    overlay = overlay_of(transaction, stage.after)
    token = transaction.claim(stage.name, stage.number)
    state = leaving(overlay.state, stage.leave)
    epoch = transaction.requested.epoch
    renewed = None if epoch is None else windows.length(handle.timeline, epoch)
    # Each try writes into folders of its own: a try before it may be at work yet.
    prefix = f"{stage.name}-{token[:8]}-"
    with Pulse(transaction, renew_seconds=renewed, shared=True) as pulse:
        pulse.phase(f"stage {stage.name}")
        seen = look(handle, action, state)
        action.validate(seen.snapshot)
        _confine(action, overlay)
        work = action.work(Attempt(seen.snapshot, transaction, pulse, prefix))
        tells = work is not None or (bool(seen.actions) and action.commits_observation)
        work = work or Work()
        if tells:
            work = replace(
                work, actions=seen.beside(work.actions), writes=[*work.writes, *seen.writes],
                maintained=[*work.maintained, *seen.told(work.actions)], metrics={**work.metrics, **seen.metrics},
            )  # fmt: skip
        if overlay.made_from and work.actions:
            work = in_step(work, overlay, seen.snapshot.state)
        transaction.check_alive()
        hash_ = _stage(transaction, stage, action, work, overlay, token)
    logger.info(
        "%s of %s is staged as %r of transaction %s after %.1f s, %s",
        action.operation, handle.timeline.store.uri, stage.name, stage.txn_id, time.monotonic() - started, work.metrics,
    )  # fmt: skip
    metrics = {**work.metrics, "stage": stage.name, "staged": hash_}
    return Receipt(None, stage.txn_id, action.operation, metrics, attempt=stage.attempt)


def overlay_of(transaction: Transaction, after: Iterable[str]) -> Overlay:
    """The version that the transaction began from, with stages (and what they were made from) laid over it.

    :raises StageMismatch: if one is missing, or they are of different tries.
    """
    staged: dict[str, tuple[StageManifest, str]] = {}
    wanted = list(after)
    while wanted:
        name = wanted.pop()
        if name not in staged:
            staged[name] = transaction.staged(name)
            wanted.extend(staged[name][0].made_from)
    check_made_from(transaction.requested, staged)
    # In the order in which the transaction lists them; what tells of all comes when all is there, as in the commit.
    manifests = [staged[name][0] for name in transaction.requested.stages if name in staged]
    actions = sorted((a for m in manifests for a in m.actions), key=lambda a: isinstance(a, Cover))
    state = laid_over(
        transaction.base,
        actions,
        [write for manifest in manifests for write in manifest.writes],
        [tree for manifest in manifests for tree in manifest.maintained],
    )
    made_from = {name: hash_ for name, (_, hash_) in staged.items()}
    return Overlay(transaction.base, state, made_from, frozenset(changed_groups(transaction.base, actions)))


def leaving(state: State, names: Collection[str]) -> State:
    """The state as a write sees it that leaves indexes to other stages: as if these were deferred.

    :raises IndexNotFound: :raises InvalidInput: for an index that a write cannot do without.
    """
    from spark_apps.indexes.registry import find

    if not names:
        return state
    other = state.copy()
    for name in names:
        entry = state.index(name)
        if find(entry.definition.kind).unique_keys:
            raise InvalidInput(
                f"The index {name!r} cannot be left to another stage: writes find by it where a key lives, and keep "
                "keys unique.",
                hint="Leave out that name; the write keeps the index itself.",
            )
        other.indexes[name] = changed(entry, definition=changed(entry.definition, deferred=True))
    return other


def in_step(work: Work, overlay: Overlay, state: State) -> Work:
    """Work on an index that was made from staged rows, in the form in which it can be committed with them.

    The file groups that the index was told of must stay as they are until then, so they count as read; its entries
    come to lie at the place of the commit, above what the base held; and it covers these groups as of the commit.
    """
    trees = {action.tree for action in work.actions if isinstance(action, Cover)}
    for tree in sorted(trees):
        definition, new = _definition(work.actions, state, tree)
        entry = state.index_of_tree(tree)
        lag = set(overlay.groups) if new or entry is None else set(entry.lag)
        told = sorted(lag & _covered(work.actions, tree, lag, overlay))
        if not told:
            continue
        actions: list[AnyAction] = [_at_commit(action, tree, definition, overlay) for action in work.actions]
        before = overlay.base.index_of_tree(tree)
        behind = before is not None and any(group in before.lag for group in told)
        work = replace(
            work,
            actions=[*actions, Cover(tree, None, groups=tuple(told))],
            reads=[*work.reads, *(group_scope(*group) for group in told)],
            writes=_writes(work.writes, tree, definition, behind, actions),
        )
    return work


def _covered(actions: Sequence[AnyAction], tree: str, lag: Collection[GroupKey], overlay: Overlay) -> set[GroupKey]:
    """Of the lagging file groups those that the work was told of and that the commit must find unchanged."""
    found: set[GroupKey] = set()
    for action in actions:
        if isinstance(action, Cover) and action.tree == tree:
            wanted = action.partitions
            found |= {g for g in lag if (g in overlay.groups if wanted is None else g[0] in wanted)}
    return found


def _definition(actions: Sequence[AnyAction], state: State, tree: str) -> tuple[IndexDefinition, bool]:
    for action in actions:
        if isinstance(action, PutIndex) and action.definition.tree == tree and state.index_of_tree(tree) is None:
            return action.definition, True
    entry = state.index_of_tree(tree)
    assert isinstance(entry, IndexEntry)
    return entry.definition, False


def _at_commit(action: AnyAction, tree: str, definition: IndexDefinition, overlay: Overlay) -> AnyAction:
    """Entries that turn what the base says into what the commit says lie above all of the base's."""
    if not isinstance(action, AddFile) or action.tree != tree or definition.addresses != "key":
        return action
    late = action.kind == "delta" and action.place == overlay.base.version
    return changed(action, place=None) if late else action


def _writes(
    writes: Iterable[Write], tree: str, definition: IndexDefinition, behind: bool, actions: Sequence[AnyAction]
) -> list[Write]:
    on_top = {a.group for a in actions if isinstance(a, AddFile) and a.tree == tree and a.place is None}
    folds = any(write.mode == "fold" and write.scope.kind == "shard" for write in writes)
    found = []
    for write in writes:
        if write.scope.name == tree and write.mode == "backdated" and write.scope.group in on_top:
            write = Write(write.scope, "append")
        elif write == Write(definition_scope(definition.name), "fold") and not behind and not folds:
            # It tells only of rows that nobody else can see, so another refresh at the same time does no harm.
            write = Write(write.scope, "append")
        found.append(write)
    return found


def _confine(action: Action, overlay: Overlay) -> None:
    """A refresh made from staged rows looks at their partitions only, unless others were named: those it must hold on
    to until the commit."""
    if overlay.made_from and action.staging == "after" and action.partitions is None and action.confinable:
        action.partitions = overlay.partitions


def _check_may_be_staged(action: Action, stage: Stage) -> None:
    reason = action.not_staged_because()
    if reason is not None:
        raise InvalidInput(
            f"{action.operation} cannot be a stage of a transaction: {reason}.",
            hint="Run it as a task of its own, before or after the transaction.",
        )
    if stage.after and action.staging != "after":
        raise InvalidInput(
            f"Stage {stage.name!r} ({action.operation}) cannot be made from other stages ({', '.join(stage.after)}): "
            "only what brings an index up to date can.",
            hint="Leave 'after' out; writes of one transaction must be of different partitions or buckets.",
        )
    if stage.leave and action.staging != "rows":
        raise InvalidInput(f"{action.operation} writes no rows, so it can leave no index to another stage.")


def _stage(transaction: Transaction, stage: Stage, action: Action, work: Work, overlay: Overlay, token: str) -> str:
    keys = work.keys_conflict
    unique = dict(keys.columns) if isinstance(keys, ByKeys) else {}
    if keys is not None and not unique:
        unique = {w.scope.name: () for w in work.writes if w.scope.kind == "shard" and w.scope.name is not None}
    return transaction.stage(
        stage.name,
        work.actions,
        reads=dict.fromkeys(work.reads),
        writes=dict.fromkeys(work.writes),
        maintained=dict.fromkeys(work.maintained),
        made_from=overlay.made_from,
        metrics=work.metrics,
        token=token,
        operation=action.operation,
        inputs=stage.inputs,
        unique=unique,
        sole=work.guard is not None and not work.unique_by,
        unique_by=work.unique_by,
    )
