"""What a run really did: steps, kinds of indexes used, ways of reading, and how predicates were judged."""

from __future__ import annotations

from collections import Counter
from typing import Any

from spark_apps.timeline.features import EXPRESSIONS

KINDS = ("record", "secondary", "compact", "covering", "skipping")
FORMATS = ("parquet", "json", "csv", "orc", "delta", "iceberg")
PATHS = (
    "scan", "partitions pruned", "bucket layout", "nothing matches", "record keys looked for", "many keys joined",
    "rows from an index", "rows from an index under deltas", "index lags, rest scanned", "several indexes",
    "merged on read", "blocks alone", "data source", "in process", "keys in process", "DuckDB over a table",
)  # fmt: skip

RARE = ("blocks alone",)
"""Ways that the small files of short histories seldom offer; a run counts them and does not insist."""


class Tally:
    """Counters by topic."""

    def __init__(self, counts: dict[str, dict[str, int]] | None = None) -> None:
        self.counts = {topic: Counter(counter) for topic, counter in (counts or {}).items()}

    def add(self, topic: str, what: str, count: int = 1) -> None:
        self.counts.setdefault(topic, Counter())[what] += count

    def take(self, other: Tally) -> None:
        for topic, counter in other.counts.items():
            self.counts.setdefault(topic, Counter()).update(counter)

    def missing(self, topic: str, wanted: Any) -> list[str]:
        return [what for what in wanted if not self.counts.get(topic, {}).get(what)]

    def plan(self, table: Any, where: str | None, columns: list[str] | None, joined: bool) -> Any:
        """Counts how a query is answered; returns what ``explain`` says."""
        explanation = table.explain(where, columns)
        indexes = table.indexes
        used = [use for use in explanation.indexes if use.name in indexes]
        if explanation.nothing_matches:
            self.add("read paths", "nothing matches")
        elif not explanation.indexes and not explanation.partitions_skipped:
            self.add("read paths", "scan")
        if explanation.partitions_skipped:
            self.add("read paths", "partitions pruned")
        if len(used) < len(explanation.indexes):
            self.add("read paths", "bucket layout")
        if len(used) > 1:
            self.add("read paths", "several indexes")
        if explanation.record_keys:
            self.add("read paths", "record keys looked for")
        deltas = any(len(files) > 1 for files in table.snapshot.groups().values())
        if deltas:
            self.add("read paths", "merged on read")
        for use in used:
            info = indexes[use.name]
            self.add("kinds used", info.kind)
            self.add("indexes used", _described(info))
            if info.lagging:
                self.add("read paths", "index lags, rest scanned")
            if use.replaces:
                self.add("read paths", "rows from an index under deltas" if deltas else "rows from an index")
            if joined and info.kind in ("record", "secondary"):
                self.add("read paths", "many keys joined")
        if explanation.blocks_skipped:
            self.add("read paths", "blocks alone")
        for why in explanation.not_used.values():
            self.add("not used because", why.code)
        return explanation

    def __str__(self) -> str:
        lines = []
        for topic, counter in sorted(self.counts.items()):
            lines.append(f"{topic}: " + ", ".join(f"{what} {count:,}" for what, count in sorted(counter.items())))
        return "\n".join(lines)


def _described(info: Any) -> str:
    words = [info.kind]
    if info.deferred:
        words.append("deferred")
    if info.properties.get("tombstones") == "lazy":
        words.append("lazy")
    if len(info.columns) > 1:
        words.append("composite")
    if info.properties.get("lineage") == "false":
        words.append("without lineage")
    if info.properties.get("granularity") == "row_group":
        words.append("by row group")
    if info.properties.get("layout") == "ranges":
        words.append("by ranges")
    if EXPRESSIONS in info.properties:
        words.append("over expressions")
    return " ".join(words)
