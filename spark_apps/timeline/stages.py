"""Stages of a transaction: which try of each counts, what it was made from, and how they become one commit.

A stage is prepared by a job of its own, perhaps several times; the newest of those that claimed it counts. A stage made
from others names the hashes of their manifests, so that a mixture of tries is refused before it is published.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import xxhash

from spark_apps.storage.documents import fetch
from spark_apps.storage.errors import ConcurrentWrite, LogDamaged, ObjectNotFound, StageMismatch
from spark_apps.storage.names import check_name
from spark_apps.storage.store import ObjectStore, write_once
from spark_apps.timeline.commit import Guard, KeysConflict, commute, share_keys
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.limits import MAX_HEARTBEAT_BYTES, MAX_MANIFEST_BYTES
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Commit,
    DropPartition,
    MarkCovered,
    PutIndex,
    RemoveFile,
    Requested,
    Scope,
    StageClaim,
    StageManifest,
    Write,
)
from spark_apps.timeline.state import State, was_kept_current
from spark_apps.timeline.validation import check_actions

Staged = Mapping[str, tuple[StageManifest, str]]
"""Stage -> its manifest and the manifest's hash."""

_ANEW = "Begin the transaction again; its stages then start from the newest version."
_AGAIN = (
    "Stage {0!r} again, then commit. "
    "On Airflow, clear the task that began the transaction with all that comes after it."
)
"""A stage cannot be cleared alone: Airflow clears its setup too, which begins another transaction."""


# --- writing and reading manifests ---------------------------------------------------------------------------------


def claim(
    store: ObjectStore, folder: str, stage: str, at: float, sleep: Callable[[float], None], number: int | None = None
) -> str:
    """Make this try of a stage the one that counts, instead of what an earlier try staged, or stages yet.

    :param folder: of the attempt.
    :param at: seconds since 1970.
    :param number: of the try, given out before it began and rising from try to try: one that slept and claims late does
        not come behind its successor then. Without numbers the last claim counts.
    :returns: the token to write the manifest under.
    :raises StageMismatch: if a try of a higher number has claimed the stage.
    """
    token = secrets.token_hex(8)
    body = msgspec.json.encode(StageClaim(token, at))
    newest = max(_claims(store, folder, stage), default=0)
    if number is None:
        number = newest + 1
        while write_once(store, _claim_key(folder, stage, number), body, sleep) != body:
            number += 1
    elif number < newest:
        raise StageMismatch(
            f"Try {number} of stage {stage!r} is late: try {newest} has claimed the stage.",
            outcome="Nothing was staged.",
            hint="Stop; the later try does the work.",
        )
    else:
        store.put(_claim_key(folder, stage, number), body)
    return token


def claimed(store: ObjectStore, folder: str, stage: str) -> str | None:
    """Return the token of the try that counts, that of the highest number; ``None`` for a stage without claims."""
    claims = _claims(store, folder, stage)
    if not claims:
        return None
    return fetch(store, claims[max(claims)], StageClaim, MAX_HEARTBEAT_BYTES)[0].token


def _claims(store: ObjectStore, folder: str, stage: str) -> dict[int, str]:
    """Return number of a try that has claimed a stage -> key of its claim. Older logs have one claim a stage."""
    head = f"{folder}/claim-{check_name('stage', stage)}."
    tails = {info.key: info.key.removeprefix(head) for info in store.list(folder) if info.key.startswith(head)}
    numbers = {key: 0 if tail == "json" else _claim_number(tail) for key, tail in tails.items()}
    return {number: key for key, number in numbers.items() if number is not None}


def _claim_number(tail: str) -> int | None:
    number, _, suffix = tail.partition(".")
    return int(number) if suffix == "json" and number.isascii() and number.isdecimal() and len(number) < 19 else None


def _claim_key(folder: str, stage: str, number: int) -> str:
    return f"{folder}/claim-{check_name('stage', stage)}.{number:06d}.json"


def write_manifest(store: ObjectStore, folder: str, manifest: StageManifest, token: str | None) -> str:
    """Write the manifest of a stage and return its hash."""
    body = msgspec.json.encode(manifest)
    store.put(_key(folder, manifest.stage, token), body)
    return xxhash.xxh3_128_hexdigest(body)


def read_manifest(store: ObjectStore, folder: str, requested: Requested, stage: str) -> tuple[StageManifest, str]:
    """Return a stage's manifest and its hash.

    :raises StageMismatch: if it is missing or damaged.
    """
    whose = f"of transaction {requested.txn_id} (attempt {requested.attempt})"
    try:
        key = _key(folder, stage, claimed(store, folder, stage))
        manifest, body = fetch(store, key, StageManifest, MAX_MANIFEST_BYTES)
        check_actions(manifest.actions, None, f"{store.uri}/{key}")
        return manifest, xxhash.xxh3_128_hexdigest(body)
    except ObjectNotFound as error:
        raise StageMismatch(
            f"Stage {stage!r} {whose} was not staged: its task has not run, has failed, or runs again.",
            hint=_AGAIN.format(stage),
        ) from error
    except LogDamaged as error:
        raise StageMismatch(
            f"The manifest of stage {stage!r} {whose} is damaged: {error.message}", hint=_AGAIN.format(stage)
        ) from error


def _key(folder: str, stage: str, token: str | None) -> str:
    name = check_name("stage", stage)
    return f"{folder}/stage-{name}.json" if token is None else f"{folder}/stage-{name}.{token}.json"


def check_made_from(requested: Requested, staged: Staged) -> None:
    """Check that stages were made from the tries that count.

    :raises StageMismatch: if a stage was made from another try of a stage.
    """
    for name, (manifest, _) in staged.items():
        for source, made_from in manifest.made_from.items():
            if source not in staged or staged[source][1] != made_from:
                raise StageMismatch(
                    f"Stage {name!r} of transaction {requested.txn_id} was made from another try of stage {source!r} "
                    "than the one that is staged now.",
                    hint=_AGAIN.format(name),
                )


# --- becoming one commit -------------------------------------------------------------------------------------------


def join(requested: Requested, base: State, staged: Staged, store: ObjectStore) -> StageManifest:
    """Return what one commit of all stages publishes.

    :raises StageMismatch: if stages do not go together, naming them.
    """
    check_made_from(requested, staged)
    manifests = [manifest for manifest, _ in staged.values()]
    _check_apart(requested, manifests, store)
    _check_declared_scopes(requested, manifests)
    _check_kept_in_step(requested, base, manifests)
    _check_sole(requested, manifests)
    actions = [action for manifest in manifests for action in manifest.actions]
    return StageManifest(
        "",
        # A mark of all that the commit holds comes when all of it has been folded in.
        tuple(sorted(actions, key=_is_mark_of_all)),
        tuple(dict.fromkeys(scope for manifest in manifests for scope in manifest.reads)),
        tuple(dict.fromkeys(write for manifest in manifests for write in manifest.writes)),
        tuple(dict.fromkeys(tree for manifest in manifests for tree in manifest.maintained)),
        metrics=_metrics(manifests),
        unique={tree: names for manifest in manifests for tree, names in manifest.unique.items()},
        sole=any(manifest.sole for manifest in manifests),
        unique_by=next((manifest.unique_by for manifest in manifests if manifest.unique_by), ""),
    )


def _is_mark_of_all(action: AnyAction) -> bool:
    return isinstance(action, MarkCovered) and action.through is None


def _metrics(manifests: Iterable[StageManifest]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for manifest in manifests:
        prefix = f"{manifest.stage}." if manifest.operation else ""
        metrics.update({f"{prefix}{name}": value for name, value in manifest.metrics.items()})
    return metrics


def state_with_actions(
    state: State, actions: Iterable[AnyAction], writes: Iterable[Write], maintained: Iterable[str]
) -> State:
    """Return a state as it would be with the actions committed, under the same version."""
    listed = tuple(actions)
    if not listed:
        return state
    other = state.copy()
    other.apply(
        Commit(
            0, state.version + 1, state.instant, "", "", 0, state.version, writes=tuple(writes),
            maintained=tuple(maintained), actions=listed,
        )
    )  # fmt: skip
    del other.committed[""]
    other.version = state.version
    return other


def changed_groups(base: State, actions: Iterable[AnyAction]) -> set[GroupKey]:
    """Return the file groups of the table's rows in which actions add or remove files."""
    groups: set[GroupKey] = set()
    removed: set[str] = set()
    for action in actions:
        if isinstance(action, AddFile) and action.tree == DATA_TREE:
            groups.add((action.partition, action.group))
        elif isinstance(action, RemoveFile) and action.tree == DATA_TREE:
            removed.add(action.path)
        elif isinstance(action, DropPartition):
            groups.update(file.group_key for file in base.files(DATA_TREE, action.path))
    if removed:
        groups.update(file.group_key for file in base.files(DATA_TREE) if file.path in removed)
    return groups


def keys_conflict(store: ObjectStore, manifest: StageManifest) -> KeysConflict | None:
    """Return a test, for :class:`~spark_apps.timeline.commit.Intent`, of keys in common with a commit.

    It tests whether the commit added a key to a unique index that the stages add too. Where the key columns are not
    known, any entry in the same shard may be one.
    """
    if not manifest.unique:
        return None

    def conflict(scope: Scope, landed: Commit) -> bool:
        tree = scope.name or ""
        return tree in manifest.unique and share_keys(
            store, manifest.unique[tree], _entries(manifest, tree, scope.group), _entries(landed, tree, scope.group)
        )

    return conflict


def guard(base: State, manifest: StageManifest) -> Guard | None:
    """Return a check that refuses a commit whose indexes are no longer those that it relies on.

    That is one that relies on the indexes there are, once another was made; and one that looked up in an index where
    keys live, once it was dropped or does not cover rows that have landed.
    """
    if not manifest.sole and not manifest.unique_by:
        return None
    created = {action.definition.tree for action in manifest.actions if isinstance(action, PutIndex)}
    known = created | {entry.definition.tree for entry in base.indexes.values()}
    relied_on = base.index_of_tree(manifest.unique_by)

    def not_in_the_way(head: State) -> None:
        now = head.index_of_tree(manifest.unique_by)
        if relied_on is not None and now is None:
            raise ConcurrentWrite(
                f"Since version {base.version}, which the transaction began from, the index "
                f"{relied_on.definition.name!r} was dropped, by which its stages took keys to be unique in the table.",
                hint=_ANEW,
            )
        if relied_on is not None and now is not None and not was_kept_current(relied_on, now, base.version):
            raise ConcurrentWrite(
                f"Since version {base.version}, which the transaction began from, rows have landed that the index "
                f"{now.definition.name!r} does not hold, and its stages do not know whether these have their keys.",
                hint=_ANEW,
            )
        if not manifest.sole:
            return
        for name, entry in head.indexes.items():
            if entry.definition.tree not in known and not entry.definition.deferred:
                raise ConcurrentWrite(
                    f"The index {name!r} was made since version {base.version}, which the transaction began from, and "
                    "its stages do not know of it.",
                    hint=_ANEW,
                )

    return not_in_the_way


# --- what goes together --------------------------------------------------------------------------------------------


def _check_apart(requested: Requested, manifests: list[StageManifest], store: ObjectStore) -> None:
    for one, other in itertools.combinations(manifests, 2):
        for first in one.writes:
            for second in other.writes:
                if first.scope.overlaps(second.scope) and not _may_share(first, second):
                    raise _not_together(requested, one, other, f"both write {first.scope}")
        for tree in one.unique.keys() & other.unique.keys():
            for shard in {write.scope.group for write in one.writes if write.scope.name == tree}:
                if share_keys(store, one.unique[tree], _entries(one, tree, shard), _entries(other, tree, shard)):
                    raise _not_together(requested, one, other, "both write a row of one record key")


def _may_share(one: Write, other: Write) -> bool:
    """Test whether two stages may write one scope.

    Entries of an index that two stages add are of different rows, for the rows' own scopes are checked too; but of two
    files with rows of one file group nothing decides which is on top.
    """
    return one.scope.kind == "shard" and commute(one.mode, other.mode)


def _entries(holder: StageManifest | Commit, tree: str, shard: str | None) -> list[AddFile]:
    return [a for a in holder.actions if isinstance(a, AddFile) and a.tree == tree and a.group == shard]


def _check_declared_scopes(requested: Requested, manifests: list[StageManifest]) -> None:
    if requested.scopes is None:
        return
    for manifest in manifests:
        for write in manifest.writes:
            of_rows = write.scope.kind in ("table", "partition", "bucket")
            if of_rows and not any(scope.overlaps(write.scope) for scope in requested.scopes):
                raise StageMismatch(
                    f"Stage {manifest.stage!r} of transaction {requested.txn_id} writes {write.scope}; the transaction "
                    f"said that it writes {', '.join(map(str, requested.scopes))}.",
                    hint="Name that partition too when the transaction begins, or keep the stage out of it.",
                )


def _check_kept_in_step(requested: Requested, base: State, manifests: list[StageManifest]) -> None:
    """Check that every index is kept in step with all rows of the commit, or with none."""
    kept = {tree for manifest in manifests for tree in manifest.maintained}
    if not kept:
        return
    marked: dict[str, set[GroupKey]] = {}
    for manifest in manifests:
        for action in manifest.actions:
            if isinstance(action, MarkCovered) and action.through is None:
                marked.setdefault(action.tree, set()).update(action.groups or ())
    for manifest in manifests:
        groups = changed_groups(base, (a for a in manifest.actions if not _moves_only(a)))
        for tree in kept - set(manifest.maintained):
            keepers = [other for other in manifests if tree in other.maintained]
            if groups <= marked.get(tree, set()) or any(manifest.stage in keeper.made_from for keeper in keepers):
                continue
            entry = base.index_of_tree(tree)
            name = tree if entry is None else entry.definition.name
            raise _not_together(
                requested, keepers[0], manifest, f"the first keeps the index {name!r} in step and the second does not"
            )


def _moves_only(action: AnyAction) -> bool:
    """Test whether an action only brings rows of before, in other files."""
    return isinstance(action, AddFile) and action.sequence_number is not None


def _check_sole(requested: Requested, manifests: list[StageManifest]) -> None:
    for manifest in manifests:
        for other in manifests:
            makes = any(isinstance(a, PutIndex) and not a.definition.deferred for a in other.actions)
            if manifest.sole and makes and other is not manifest and manifest.stage not in other.made_from:
                raise _not_together(requested, manifest, other, "the second makes an index without regard to the first")


def _not_together(requested: Requested, one: StageManifest, other: StageManifest, why: str) -> StageMismatch:
    return StageMismatch(
        f"Stages {one.stage!r} and {other.stage!r} of transaction {requested.txn_id} do not go together: {why}.",
        hint="Make one stage of the two, let one be made from the other, or use two transactions.",
    )
