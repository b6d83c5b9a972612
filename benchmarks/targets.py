"""What the suite is to reach: targets, each with its figures, their limits and units.

A target with one figure takes any name for a measured case; one with several is asked by the figure's key, alone or
followed by a colon and the case: ``"many"``, ``"filter: Delta, z-ordered"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["times", "ms", "s", "bytes", "commits", "commits a second", "exponents apart", "files"]


@dataclass(frozen=True)
class Figure:
    """One figure of a target. ``limit`` is the most it may be, in ``unit``; None where it is only stated.

    ``below``: the limit itself does not meet it. A share or ratio is given in ``times``: 3 % is 0.03.
    """

    key: str
    means: str
    limit: float | None
    unit: Unit = "times"
    below: bool = False

    def met(self, measured: float) -> bool | None:
        """Whether so much is little enough; None where nothing was asked."""
        if self.limit is None:
            return None
        return measured < self.limit if self.below else measured <= self.limit

    def shown(self, measured: float) -> str:
        """A figure of this kind with its unit, in as many digits as tell on which side of the limit it is."""
        texts = (f"{measured:.{digits}g}" for digits in range(3, 18))
        figure = next(text for text in texts if self.met(float(text)) is self.met(measured))
        figure = f"{measured:,.0f}" if abs(measured) >= 100 else figure
        return figure if self.unit == "times" else f"{figure} {self.unit}"

    @property
    def asked(self) -> str:
        """The limit as text."""
        return "stated" if self.limit is None else f"{'<' if self.below else '<='} {self.shown(self.limit)}"


@dataclass(frozen=True)
class Target:
    number: int
    what: str
    figures: tuple[Figure, ...]

    def figure(self, name: str) -> Figure:
        """The figure that a measured case is one of.

        :raises ValueError: the target has several, and the name begins with none of their keys.
        """
        if len(self.figures) == 1:
            return self.figures[0]
        for figure in self.figures:
            if name.partition(":")[0] == figure.key:
                return figure
        keys = ", ".join(repr(figure.key) for figure in self.figures)
        raise ValueError(f"Target {self.number} has no figure {name!r}; it has {keys}, each alone or before a colon.")


TARGETS = {
    target.number: target
    for target in (
        Target(
            1,
            "Building an index",
            (Figure("build", "build of one kind / the same rows shuffled, sorted and written by Spark", 1.10),),
        ),
        Target(
            2,
            "Incremental refresh after 1 % was appended",
            (
                Figure("share", "refresh / build", 0.03),
                Figure("growth", "the same delta on ten times the rows / on the fewer", 1.15),
            ),
        ),
        Target(
            3,
            "Keys looked up in process",
            (
                Figure("many", "100,000 keys among 1M, 95th percentile", 60, "ms"),
                Figure("one", "one key, the snapshot loaded, no page cached by us", 2, "ms"),
                Figure("many / best peer", "medians; peers with the caches that they have", 1.2),
                Figure("one / best peer", "medians; peers with the caches that they have", 1.2),
                Figure("many / best without a cache", "medians; peers keep no contents of files either", None),
                Figure("one / best without a cache", "medians; peers keep no contents of files either", None),
            ),
        ),
        Target(
            4,
            "Keys among 100M rows, by Spark",
            (
                Figure("1 key", "read / full scan", 1 / 50),
                Figure("10 keys", "read / full scan", 1 / 50),
                Figure("sorted files", "read / a scan that passes over pages, as the files are sorted by key", None),
                Figure("planner", "the path the planner takes / the quickest path", 1.15),
            ),
        ),
        Target(
            5,
            "Upsert of 1 % with a record and a secondary index",
            (
                Figure("copy on write", "ours / Iceberg's MERGE, copy on write, without an index", 0.3),
                Figure("merge on read", "ours / Iceberg's MERGE, merge on read, without an index", 0.8),
                Figure("delta", "ours / deltalake, another engine", None),
            ),
        ),
        Target(
            6,
            "The secondary index's share of an upsert",
            (
                Figure("lazy", "what it adds / the whole upsert, tombstones written late", 0.25),
                Figure("eager", "what it adds / one read of key and indexed columns of the touched file groups", 1.2),
            ),
        ),
        Target(
            7,
            "Compaction and rescale",
            (
                Figure("compaction", "compaction / floor for the rows touched", 1.15),
                Figure("rescale", "rescale / floor for the rows touched", 1.15),
                Figure("outside", "bytes read outside what they touch", 0, "bytes"),
            ),
        ),
        Target(
            8,
            "The log of a large table",
            (
                Figure("load", "a snapshot of 1M files loaded", 1, "s"),
                Figure("partition", "the files of one partition of 10M files, from nothing", 1, "s"),
                Figure("commit", "a commit at 1M files, at 10M with --full / at 1,000", 1.2),
                Figure("lost", "commits of 16 racing writers that were lost", 0, "commits"),
                Figure("rate", "commits of 16 racing writers", None, "commits a second"),
            ),
        ),
        Target(
            9,
            "A query that a covering index answers",
            (
                Figure("filter", "ours / the peer's", 1, below=True),
                Figure("aggregate", "ours / the peer's", 1, below=True),
                Figure("all", "ours / the peer's, over all rows, of which an index spares none", None),
                Figure("hash", "laid by ranges / by hash", None),
                Figure("beside", "ours / the best engine that needs no session", None),
                Figure("in process", "ours without a session / the peer's", 1.2),
            ),
        ),
        Target(
            10,
            "An index task in Airflow",
            (
                Figure("task", "beyond Spark's own time and a deferrable task that does nothing", 2, "s"),
                Figure("refresh", "a small refresh over Connect, new session, warm server", 4, "s"),
                Figure(
                    "upsert", "1,000 rows into 1M with two indexes, queued to success, beyond an empty task", 2, "s"
                ),
                Figure("ten tables", "a refresh on each in one task, queued to success, beyond an empty task", 8, "s"),
            ),
        ),
        Target(
            11,
            "Parsing a DAG that imports every operator",
            (Figure("parse", "beyond Airflow's own import", 50, "ms"),),
        ),
        Target(
            12,
            "Merge-on-read scan / the same table compacted",
            (
                Figure("1 %", "deltas of 1 % spread evenly", 1.5),
                Figure("10 %", "deltas of 10 % spread evenly", 1.9),
                Figure("10 % in a tenth", "deltas of 10 % in a tenth of the file groups", 1.15),
            ),
        ),
        Target(
            13,
            "Growth with the number of rows",
            (Figure("growth", "measured exponent, from the expected one", 0.15, "exponents apart"),),
        ),
        Target(
            14,
            "What the rule of plain queries adds to planning",
            (
                Figure("ours", "a query over a table with indexes, warm", 50, "ms"),
                Figure("others", "a query over tables that are not ours", 2, "ms"),
            ),
        ),
        Target(
            15,
            "A plain query that finds its index",
            (Figure("rule", "by the rule / by read(where)", 1.1),),
        ),
        Target(
            16,
            "The 22 queries of TPC-H",
            (
                Figure("served", "median of those that an index serves / plain Spark", 0.5),
                Figure("worst", "the slowest of all / plain Spark", 1.1),
            ),
        ),
        Target(
            17,
            "Joins and sums by the columns of an index, nothing broadcast",
            (
                Figure("join", "with the rule / plain Spark over the same Parquet", 0.5),
                Figure("sum", "with the rule / plain Spark over the same Parquet", 0.6),
                Figure("sorting", "the same where the session lets Spark sort each bucket again", None),
            ),
        ),
        Target(
            18,
            "All rows read by a covering index",
            (
                Figure(
                    "all", "an index in Spark's buckets, asked by plain SQL / the same rows sorted, read by Spark", 1.2
                ),
                Figure("read", "read(where) / the same rows sorted, read by Spark", None),
            ),
        ),
        Target(
            19,
            "Keys of a join's other side, by which an index is asked",
            (
                Figure("spared", "with the keys / the same session without them", None),
                Figure("nothing", "the same where no key is left out", 1.1),
            ),
        ),
        Target(
            20,
            "Rows by their keys, in process",
            (
                Figure("many", "rows of 100,000 keys among 1M, 95th percentile", 60, "ms"),
                Figure("many / DuckDB", "medians; DuckDB over the same rows sorted", 1.0),
                Figure("one", "the row of one key, the table open", 2, "ms"),
                Figure("anew", "the row of one key, the table opened for it", 25, "ms"),
            ),
        ),
        Target(
            21,
            "A skipping index over a thousand files",
            (
                Figure("build", "build / that of the covering index over the same columns", 0.2),
                Figure("size", "bytes / those of the data, of some 200 a row", 0.01),
                Figure("size, narrow", "bytes / those of rows of 94", None),
                Figure("files", "files read for one value, mean", 3, "files"),
                Figure("ask", "asking the index, its headers remembered", 30, "ms"),
                Figure("first ask", "asking it for the first time", None, "ms"),
                Figure("commit", "a commit of a delta with it / without it, less 1", 0.03),
                Figure("like", "LIKE of a rare word / a scan", 0.1),
                Figure("row groups, bytes", "read of one file for one value with their records / without", None),
                Figure("row groups", "seconds for that, in process", None),
                Figure("row groups, like", "LIKE of a rare word in one file, by Spark, with / without", None),
            ),
        ),
        Target(
            22,
            "Advice on indexes",
            (
                Figure("missed", "predictions more than 25 % from what is spared / all", 0.1),
                Figure("chosen", "bytes that TPC-H reads with the chosen indexes / with the best of up to four", 1.1),
            ),
        ),
        Target(
            23,
            "MERGE, UPDATE and DELETE of Delta and Iceberg tables, by their own connectors",
            (
                Figure("few", "keys in three files: with an index / into a table of these files alone", 1.2),
                Figure("tenth", "keys in a tenth of the files: the same", 1.2),
                Figure("many", "a hundredth of the keys, in a tenth of the files: the same", 1.2),
                Figure("all", "keys in all files: with an index / without", 1.05),
                Figure("saved", "with an index / without", None),
                Figure("at best", "into a table of the files touched alone / without an index", None),
            ),
        ),
    )
}


@dataclass(frozen=True)
class Verdict:
    """One measured figure beside its limit."""

    target: int
    what: str
    measured: float

    @property
    def figure(self) -> Figure:
        return TARGETS[self.target].figure(self.what)

    @property
    def met(self) -> bool | None:
        return self.figure.met(self.measured)

    def cells(self) -> tuple[str, ...]:
        """A row of the table of verdicts."""
        figure = self.figure
        verdict = {True: "met", False: "**not met**", None: "stated"}[self.met]
        what = self.what if figure.key in self.what else f"{figure.key}: {self.what}"
        return (str(self.target), f"{what} ({figure.means})", figure.shown(self.measured), figure.asked, verdict)


HEADINGS = ("#", "what", "figure", "limit", "")


def table(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    """All targets in their order, those that a run did not measure too."""
    rows: list[tuple[str, ...]] = []
    for target in TARGETS.values():
        mine = [verdict for verdict in verdicts if verdict.target == target.number]
        rows.append((str(target.number), f"**{target.what}**", "", "", "" if mine else "not measured in this run"))
        rows += [verdict.cells() for verdict in mine]
    return rows
