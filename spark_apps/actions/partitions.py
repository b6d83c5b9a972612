"""Which partitions a write goes to, and with how many buckets: those there are keep their count, rules decide
for new ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_apps.layout.partitions import partition_path, types_of, value_of
from spark_apps.layout.rules import BucketRules, HashingConfig
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.placing import Target
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline import model
from spark_apps.timeline.state import State


@dataclass(frozen=True)
class Spread:
    """The partitions of a write. ``new`` are the paths of those that the table does not have yet."""

    targets: tuple[Target, ...]
    new: frozenset[str]

    @property
    def puts(self) -> list[model.PutPartition]:
        """The actions that state the count which each partition was written with; the timeline refuses
        another one."""
        return [model.PutPartition(target.path, target.buckets, target.values) for target in self.targets]

    @property
    def reads(self) -> list[model.Scope]:
        return [model.CONFIG_SCOPE] if self.new else []

    def with_more(self, more: Spread) -> Spread:
        """The same, and those partitions of ``more`` that are there already."""
        known = {target.path for target in self.targets}
        return Spread((*self.targets, *(target for target in more.targets if target.path not in known)), self.new)

    def only(self, paths: Iterable[str]) -> Spread:
        """The same, of these partitions."""
        wanted = set(paths)
        return Spread(tuple(t for t in self.targets if t.path in wanted), self.new & wanted)


NOWHERE = Spread((), frozenset())


def spread(snapshot: Snapshot, values: Iterable[tuple[str | None, ...]]) -> Spread:
    """The partitions with these values of the partition columns (as text)."""
    table, known = snapshot.table, snapshot.state.partitions
    types = types_of(table)
    config = rules_of(snapshot.state) if table.bucketed else None
    targets, new = [], set()
    for texts in values:
        path = path_of(table, texts, types)
        entry = known.get(path)
        if entry is None:
            new.add(path)
            targets.append(Target(path, texts, None if config is None else config.count_for(path)))
        else:
            targets.append(Target(path, texts, entry.buckets))
    return Spread(tuple(targets), frozenset(new))


def existing(snapshot: Snapshot, paths: Iterable[str] | None = None) -> Spread:
    """The partitions that the table has; of those named, the ones that it has."""
    known = snapshot.state.partitions
    wanted = known if paths is None else [path for path in dict.fromkeys(paths) if path in known]
    return Spread(tuple(Target(path, known[path].values, known[path].buckets) for path in wanted), frozenset())


def path_of(table: model.TableDefinition, texts: Sequence[str | None], types: Sequence[str] | None = None) -> str:
    """The canonical path of a partition from its columns' values as text."""
    types = types or types_of(table)
    values = [None if text is None else value_of(text, parse_type(kind), name)
              for text, kind, name in zip(texts, types, table.partition_by, strict=True)]  # fmt: skip
    return partition_path(table.partition_by, values, types)


def rules_of(state: State) -> HashingConfig:
    """The rules that choose the bucket count of new partitions."""
    return HashingConfig(tuple((c.instant, BucketRules(c.rule, c.expressions or "", c.default)) for c in state.configs))
