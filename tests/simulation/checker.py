"""The guarantees of the timeline, checked from outside: the bytes of the log, the objects, what callers were told.

It folds the log by rules of its own and knows from the intents, not from the files, which rows each commit must leave.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spark_apps.storage.errors import AlreadyCommitted, CommitRefused, CommitUndone
from spark_apps.timeline.model import Receipt
from tests.simulation.store import Objects

Row = tuple[str, str]
Rows = dict[Row, int]
LOG = "_index/timeline/"
INDEX_TREE = "index/by_key@1"


class Violation(AssertionError):
    """A guarantee does not hold."""


@dataclass
class Folded:
    """The table at one version, folded by the checker's own rules. ``files`` are keyed by (tree, path)."""

    version: int = -1
    instant: str = ""
    files: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, int | None] = field(default_factory=dict)
    windows: dict[int, dict[str, Any]] = field(default_factory=dict)
    aborted: frozenset[tuple[str, int]] = frozenset()
    expired_below: int = 0
    rows: Rows = field(default_factory=dict)

    def next(self) -> Folded:
        return Folded(self.version, self.instant, dict(self.files), dict(self.counts), dict(self.windows),
                      self.aborted, self.expired_below, dict(self.rows))  # fmt: skip


class Checker:
    """Watches a store from its first byte on.

    :param effects: transaction id -> what its commit must do to the rows; absent: nothing.
    """

    def __init__(self, objects: Objects, effects: dict[str, Callable[[Rows], None]]) -> None:
        self.objects = objects
        self.effects = effects
        self.versions: list[Folded] = []
        self.commits: list[dict[str, Any]] = []
        self.relied: dict[tuple[str, int], int] = {}
        self.requested: set[str] = set()
        self.withdrawn: set[tuple[str, int]] = set()
        self._parsed: dict[str, dict[str, Any]] = {}
        objects.watchers.append(self)

    # --- as things happen -------------------------------------------------------------------------------------

    def written(self, key: str, data: bytes) -> None:
        if key.startswith(LOG) and "/checkpoints/" not in key:
            self._committed(key, data)
        elif key.endswith("/requested.json"):
            txn, attempt = key.split("/")[2], int(key.split("/")[3])
            # Of an attempt that ended by a commit it is no harm: whoever claims it reads the log, and claims another.
            if key in self.requested and ((txn, attempt) in self.withdrawn or self._live(txn, attempt)):
                raise Violation(f"{key} was given out twice.")
            self.requested.add(key)
        elif key.startswith(("data/", "_index/indexes/")) and self.objects.bodies.get(key, (data,))[0] != data:
            raise Violation(f"{key} was overwritten.")

    def deleted(self, key: str) -> None:
        if key.startswith((LOG, "_index/sidecars/")) and "/checkpoints/" not in key:
            raise Violation(f"{key} of the log was deleted.")
        if not key.startswith(("data/", "_index/indexes/")):
            return
        for version in range(self.head.expired_below, self.head.version + 1):
            if self._needs(version, key):
                raise Violation(f"{key} was deleted and version {version} needs it.")
        for (txn, attempt), base in self.relied.items():
            if self._live(txn, attempt) and self._needs(base, key):
                raise Violation(f"{key} was deleted and attempt {attempt} of {txn} works on version {base}.")
        owner = key.split("/")[1 if key.startswith("data/") else 3]
        txn, _, attempt_text = owner.rpartition(".")
        if self._live(txn, int(attempt_text)):
            raise Violation(f"{key} was deleted and its attempt may still commit.")

    def relies(self, txn: str, attempt: int, *versions: int) -> None:
        """``begin`` returned: from now on the attempt may read these versions."""
        self.relied[txn, attempt] = min(versions)

    def check_outcome(self, txn: str, attempt: int | None, result: Any, error: BaseException | None) -> None:
        """What the caller of an operation was told must be so."""
        receipt = getattr(error, "receipt", result)
        if isinstance(receipt, Receipt) and receipt.version is not None:
            there = self.commits[receipt.version] if receipt.version <= self.head.version else {}
            if there.get("txn_id") != receipt.txn_id:
                raise Violation(f"{receipt.txn_id} was told version {receipt.version}, which holds {there}.")
            undone = isinstance(error, CommitUndone)
            if (
                receipt.txn_id == txn
                and isinstance(error, AlreadyCommitted | CommitUndone)
                and undone != self._undone(receipt.version)
            ):
                raise Violation(f"{receipt.txn_id} was told {type(error).__name__} of version {receipt.version}.")
        if isinstance(error, CommitRefused) and attempt is not None:
            for commit in self.commits:
                if (commit["txn_id"], commit["attempt"]) == (txn, attempt):
                    raise Violation(f"{txn} was told that nothing was changed, but it is version {commit['version']}.")

    # --- a commit ---------------------------------------------------------------------------------------------

    @property
    def head(self) -> Folded:
        return self.versions[-1] if self.versions else Folded()

    def _committed(self, key: str, data: bytes) -> None:
        commit = json.loads(data)
        version = int(key.removeprefix(LOG).removesuffix(".json"))
        before = self.head
        if version != before.version + 1 or commit["version"] != version:
            raise Violation(f"Version {version} was written after version {before.version}.")
        if commit["instant"] <= before.instant:
            raise Violation(f"The instant of version {version} does not come after that of the one before.")
        txn, attempt = commit["txn_id"], commit["attempt"]
        if any(other["txn_id"] == txn for other in self.commits):
            raise Violation(f"{txn} committed twice, the second time as version {version}.")
        if (txn, attempt) in before.aborted:
            raise Violation(f"Attempt {attempt} of {txn} committed version {version} after it was aborted.")
        self._check_windows(before, commit)
        after = before.next()
        after.version, after.instant = version, commit["instant"]
        if commit.get("sidecar"):
            commit["actions"] = self._sidecar(commit["sidecar"])
        self._fold(after, commit)
        self.commits.append(commit)
        self.versions.append(after)
        self._check_rows(after, commit)

    def _check_windows(self, before: Folded, commit: dict[str, Any]) -> None:
        epoch = commit.get("epoch")
        if epoch is not None and epoch not in before.windows:
            raise Violation(f"Version {commit['version']} was made under window {epoch}, which was not open.")
        for opened, window in before.windows.items():
            if opened == epoch:
                continue
            for write in commit.get("writes", ()):
                scope, held = write["scope"], window["partitions"]
                if held is None or scope["kind"] == "table" or scope.get("partition") in held:
                    raise Violation(f"Version {commit['version']} wrote {scope} into window {opened}.")

    def _fold(self, after: Folded, commit: dict[str, Any]) -> None:
        replaced = [write["scope"] for write in commit.get("writes", ()) if write.get("mode") == "replace"]
        for action in commit.get("actions", ()):
            kind = action["action"]
            if kind == "add":
                number = action.get("place")
                after.files[action["tree"], action["path"]] = {
                    **action,
                    "place": commit["version"] if number is None else number,
                }
            elif kind == "remove":
                after.files.pop((action["tree"], action["path"]), None)
            elif kind == "partition":
                there = after.counts.get(action["path"], action["buckets"])
                allowed = any(s["kind"] == "table" or s.get("partition") == action["path"] for s in replaced)
                if there != action["buckets"] and not allowed:
                    raise Violation(f"Version {commit['version']} put a second bucket count into {action['path']}.")
                after.counts[action["path"]] = action["buckets"]
            elif kind == "drop_partition":
                after.counts.pop(action["path"], None)
                for tree, path in [key for key, file in after.files.items() if file["partition"] == action["path"]]:
                    after.files.pop((tree, path)) if tree == "data" else None
            elif kind == "open_window":
                after.windows[commit["version"]] = {"partitions": action.get("partitions"), **action}
            elif kind in ("close_window", "end_window"):
                after.windows.pop(action["epoch"], None)
            elif kind == "abort":
                if any((c["txn_id"], c["attempt"]) == (action["txn_id"], action["attempt"]) for c in self.commits):
                    raise Violation(f"Attempt {action['attempt']} of {action['txn_id']} was aborted after its commit.")
                after.aborted |= {(action["txn_id"], action["attempt"])}
            elif kind == "expire":
                after.expired_below = max(after.expired_below, action["below"])
            elif kind == "drop_table":
                after.files, after.counts, after.rows = {}, {}, {}
            elif kind == "restore":
                if any(self._drops(later) for later in self.commits[action["to"] :]):
                    raise Violation(f"Version {commit['version']} restored a table that was dropped.")
                after.rows = dict(self.versions[action["to"]].rows)

    def _check_rows(self, after: Folded, commit: dict[str, Any]) -> None:
        effect = self.effects.get(commit["txn_id"])
        if effect is not None:
            effect(after.rows)
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for (tree, path), file in after.files.items():
            if path not in self.objects.bodies:
                raise Violation(f"Version {commit['version']} lists {path}, which is not there.")
            if tree == "data":
                groups.setdefault((file["partition"], file["group"]), []).append(file)
        held: Rows = {}
        for (partition, group), files in groups.items():
            count = after.counts.get(partition)
            if count is None or int(group) >= count:
                raise Violation(f"Version {commit['version']} has a file of bucket {group} of {count} in {partition}.")
            for key, value in self.merged(files).items():
                if (partition, key) in held:
                    raise Violation(f"Key {key} is twice in {partition} in version {commit['version']}.")
                held[partition, key] = value
        if held != after.rows:
            raise Violation(
                f"Version {commit['version']} ({commit['operation']} by {commit['txn_id']}) holds {held}; "
                f"it should hold {after.rows}."
            )

    def merged(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        """Rows of a group: the highest sequence number wins, ``None`` removes."""
        rows: dict[str, Any] = {}
        for file in sorted(files, key=lambda file: (file["place"], file["kind"] == "delta", file["path"])):
            rows |= self.body(file["path"])
        return {key: value for key, value in rows.items() if value is not None}

    def body(self, path: str) -> dict[str, Any]:
        if path not in self._parsed:
            self._parsed[path] = json.loads(self.objects.bodies[path][0])
        return self._parsed[path]

    # --- helpers ----------------------------------------------------------------------------------------------

    @property
    def drops(self) -> int:
        """How often the table was dropped."""
        return sum(self._drops(commit) for commit in self.commits)

    def _needs(self, version: int, path: str) -> bool:
        files = self.versions[version].files
        return ("data", path) in files or (INDEX_TREE, path) in files

    def _live(self, txn: str, attempt: int) -> bool:
        if (txn, attempt) in self.withdrawn:
            return False
        ended = (txn, attempt) in self.head.aborted or any(commit["txn_id"] == txn for commit in self.commits)
        return not ended

    def _undone(self, version: int) -> bool:
        if not self.commits[version].get("writes") or self._drops(self.commits[version]):
            return False
        if any(self._drops(later) for later in self.commits[version:]):
            return True
        upper = self.head.version
        for commit in reversed(self.commits):
            to = next((a["to"] for a in commit.get("actions", ()) if a["action"] == "restore"), None)
            if to is None or commit["version"] > upper:
                continue
            if version >= commit["version"]:
                return version > upper
            upper = to
        return version > upper

    @staticmethod
    def _drops(commit: dict[str, Any]) -> bool:
        return any(action["action"] == "drop_table" for action in commit.get("actions", ()))

    def _sidecar(self, key: str) -> list[dict[str, Any]]:
        import io

        import pyarrow.parquet as pq

        rows = pq.read_table(io.BytesIO(self.objects.bodies[key][0])).column("action").to_pylist()
        return [json.loads(row) for row in rows]
