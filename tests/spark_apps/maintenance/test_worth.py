"""Worth of indexes in a plan: what nobody asks for waits, and ninety nights cost less for the same answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_apps.maintenance.demand import Demand, IndexDemand, read_demand
from spark_apps.maintenance.plan import DueWork, SkippedWork, benefit_of, due_works, plan_maintenance
from spark_apps.maintenance.policies import Budget
from spark_apps.maintenance.survey import TableSurvey
from spark_apps.storage.store import Store
from spark_apps.timeline.maintenance_records import DoneWork, LastPlans
from spark_apps.timeline.statistics import Lag
from spark_apps.workload.asked import AskedQuery
from spark_apps.workload.query_log import FOLDER
from tests.spark_apps.maintenance.lake import Table, survey

DAY = 86_400.0
ONLY_REFRESH = {"compact": False, "compact_indexes": False, "clean": False, "verify": False}


def log(store: Store, *queries: AskedQuery) -> None:
    """Put lines into a table's log, an object for each day."""
    by_day: dict[str, list[bytes]] = {}
    for query in queries:
        by_day.setdefault(f"{query.asked:%Y%m%dT000000}", []).append(query.to_document())
    for day, lines in by_day.items():
        store.put(f"{FOLDER}/{day}-{'a' * 16}.jsonl", b"\n".join(lines))


def query(ago: float, now: datetime, used: tuple[str, ...] = (), **more: object) -> AskedQuery:
    given = {"used": tuple((name, "secondary") for name in used), "spared": dict.fromkeys(used, 1_000_000), **more}
    return AskedQuery(table="t", asked=now - timedelta(days=ago), **given)  # type: ignore[arg-type]


def test_given_a_log_when_read_then_demand_is_that_of_the_last_week(tmp_path: Path) -> None:
    store, now = Store(tmp_path), datetime.now(UTC)
    on = {"query_log": "on"}
    assert read_demand(store, on) is None
    log(store, query(0.2, now, ("a",)))
    assert read_demand(store, on) is None, "a log of some hours tells nothing"
    behind = (("b", "covering", "covers_nothing"), ("c", "secondary", "no_keys"))
    log(store, query(0.2, now, ("a",)), query(5, now, ("a",), weight=3.0), query(6, now, unused=behind),
        query(9, now, ("c",)))  # fmt: skip
    demand = read_demand(store, on, now.timestamp())
    assert demand is not None and demand.queries == 5.0 and demand.days == pytest.approx(6.0)
    assert demand.of("a") == IndexDemand(4.0, pytest.approx(4e6 / 6))
    assert (demand.of("b").queries, demand.of("c").queries, demand.of("new").queries) == (1.0, 0.0, 0.0)
    assert read_demand(store, {}) is None and read_demand(store, {"query_log": "off"}) is None


def one(root: Path, **policy: object) -> TableSurvey:
    [seen], _ = survey(root, [{"table": "db.t", **ONLY_REFRESH, **policy}])
    return seen


def verdict(seen: TableSurvey) -> DueWork | SkippedWork:
    [found] = [each for each in due_works(seen) if each.kind == "refresh"]
    return found


def test_given_an_index_that_nobody_asks_for_when_it_is_behind_then_it_waits_and_it_is_said_so(tmp_path: Path) -> None:
    Table(tmp_path, "db.t").write(3)
    seen = one(tmp_path)
    unasked = replace(seen, demand=Demand(1_200, 7.0), lag_ages={"by_k": DAY})
    waits = verdict(unasked)
    assert isinstance(waits, SkippedWork) and waits.code == "not_asked_for" and "1,200" in waits.reason
    late = verdict(replace(unasked, lag_ages={"by_k": 14 * DAY}))
    assert isinstance(late, DueWork) and late.reason.endswith("no query asked for it")
    for other in (
        seen,
        replace(unasked, demand=Demand(1_200, 7.0, {"by_k": IndexDemand(1.0, 5e6)})),
        replace(one(tmp_path, refresh={"unasked_age": False}), demand=Demand(1_200, 7.0), lag_ages={"by_k": DAY}),
    ):
        assert isinstance(verdict(other), DueWork)
    assert benefit_of(unasked, "by_k") < benefit_of(seen, "by_k") == benefit_of(unasked, None) == 1.0
    spares = [benefit_of(replace(seen, demand=Demand(1, 7.0, {"by_k": IndexDemand(1.0, size)})), "by_k")
              for size in (0.0, 1e6, 1e9, 1e30)]  # fmt: skip
    assert spares == sorted(spares) and spares[0] == 1.0 and spares[-1] == 7.0


# --- ninety nights ----------------------------------------------------------------------------------------------------

TABLES = 12
INDEXES = ("a", "b", "c", "d")
GROUPS = 64
GROUP_BYTES = 100_000_000


@dataclass
class Simulated:
    """An index of a simulated table.

    :param behind: file groups, or days of an append, that it does not tell of.
    """

    behind: set[int] = field(default_factory=set)
    since: int | None = None
    longest: int = 0
    asked: list[tuple[int, float, float]] = field(default_factory=list)


def simulated(root: Path, seed: int, with_demand: bool, budget: Budget) -> tuple[float, float, int]:
    """Return minutes of upkeep, bytes that queries read, and the longest that an index was behind, of 90 nights.

    Of twelve tables half get rows for some of their file groups each day, which a refresh then reads whole, and half
    files that are new. Each index has queries or none for a month at a time, with a half's chance each, on four of five
    days; a query reads a thousandth of what its index tells of, and all else.
    """
    dice = random.Random(seed)
    base = one(root)
    known = base.statistics.indexes["by_k"]
    state = {(table, name): Simulated() for table in range(TABLES) for name in INDEXES}
    changing = [dice.uniform(0.05, 0.5) for _ in range(TABLES)]
    last = [LastPlans()] * TABLES
    done: list[dict[str, DoneWork]] = [{} for _ in range(TABLES)]
    queries: dict[tuple[int, str], int] = {}
    minutes = read = 0.0
    for night in range(90):
        for table in range(TABLES):
            upserts = table % 2 == 0
            new = {group for group in range(GROUPS) if dice.random() < changing[table]} if upserts else {GROUPS + night}
            held = GROUP_BYTES * (GROUPS if upserts else GROUPS + night)
            for name in INDEXES:
                if night % 30 == 0:
                    queries[table, name] = dice.randint(1, 40) if dice.random() < 0.5 else 0
                index, count = state[table, name], queries[table, name] if dice.random() < 0.8 else 0
                index.behind |= new
                index.since = night if index.since is None else index.since
                index.longest = max(index.longest, night - index.since)
                spared = 0.999 * max(0, held - GROUP_BYTES * len(index.behind))
                read += count * (held - spared)
                if count:
                    index.asked.append((night, count, count * spared))
        surveys = []
        for table in range(TABLES):
            mine = {name: state[table, name] for name in INDEXES}
            lately = {name: [a for a in index.asked if night - a[0] < 7] for name, index in mine.items()}
            wanted = {name: IndexDemand(sum(count for _, count, _ in some), sum(spared for *_, spared in some) / 7)
                      for name, some in lately.items() if some}  # fmt: skip
            lags = {name: Lag(1, 1, GROUP_BYTES * len(index.behind), 1, 0) for name, index in mine.items()}
            ages = {name: (night - (index.since or 0) + 0.5) * DAY for name, index in mine.items()}
            surveys.append(replace(
                base, table=replace(base.table, name=f"db.t{table}", location=f"/t{table}"), lag_ages=ages,
                statistics=replace(base.statistics, indexes={name: replace(known, name=name, lag=lag)
                                                             for name, lag in lags.items()}),
                last=last[table], done=done[table],
                demand=Demand(1_000, 7.0, wanted) if with_demand and night >= 7 else None,
            ))  # fmt: skip
        plan = plan_maintenance(surveys, [], budget, "nightly", f"run-{night}", now=float(night))
        minutes += plan.seconds / 60
        last = [LastPlans(plans={"nightly": plan.for_table(seen, "nightly", f"run-{night}")}) for seen in surveys]
        for chosen in plan.chosen:
            table, name = int(chosen.survey.table.location[2:]), chosen.work.index or ""
            state[table, name].behind, state[table, name].since = set(), None
            done[table][chosen.work.key] = DoneWork("refresh", night + 0.5, 1.0, 0, name, version=1)
    return minutes, read, max(index.longest for index in state.values())


@pytest.mark.by_turn(16)
def test_given_ninety_nights_when_demand_is_known_then_upkeep_takes_less_for_the_same_bytes_and_nothing_starves(
    tmp_path: Path,
) -> None:
    Table(tmp_path, "db.t").write(1)
    ratios = []
    for seed in range(4):
        before = simulated(tmp_path, seed, False, Budget(minutes=45))
        after = simulated(tmp_path, seed, True, Budget(minutes=0.7 * 45))
        assert after[0] <= 0.71 * before[0] and after[2] <= 31
        ratios.append(after[1] / before[1])
    assert sum(ratios) / 4 <= 1.02 and max(ratios) <= 1.15, ratios

    before, after = (simulated(tmp_path, 0, known, Budget()) for known in (False, True))
    assert after[0] <= 0.65 * before[0] and after[1] <= 1.05 * before[1] and after[2] <= 14
