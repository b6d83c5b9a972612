"""Where pairs are done: a starting table, the recorded work of the actions on it, and what became of each pair."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import (
    AlreadyExists,
    CommitRefused,
    InvalidInput,
    LakeIndexError,
    NotFound,
    VerificationFailed,
    WindowError,
)
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.state import State
from tests.pairs import checks
from tests.pairs.actions import ACTS, Act, Hand
from tests.pairs.expected import Expected, Impossible
from tests.pairs.interleaving import (
    Held,
    Tree,
    after_beginning,
    before_publishing,
    emptied,
    hold,
    keep_new,
    lay,
    link_tree,
    tree_of,
)
from tests.pairs.shapes import Ground, build

DONE = ("committed", "nothing to do")
REFUSALS = (CommitRefused, NotFound, AlreadyExists, InvalidInput, WindowError, VerificationFailed)


@dataclasses.dataclass
class Recorded:
    """The work of an action, done on the starting table and not committed.

    :param held: by step; ``None`` for one that runs each time anew.
    :param tree: the files that it wrote.
    """

    act: Act
    held: list[Held | None]
    tree: Tree
    memory: dict[str, Any]
    seconds: float


@dataclasses.dataclass
class Outcome:
    """What became of a pair (or of three): of each action in turn how it ended, and what was wrong afterwards.

    :param ends: action -> "committed", "nothing to do", or the name of the error that refused it.
    :param state: a digest of the table afterwards, the same for the same files in the same order.
    """

    names: tuple[str, ...]
    ends: list[str] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    state: str = ""
    expected: Expected | None = None
    seconds: float = 0.0

    @property
    def cell(self) -> str:
        """As the matrix tells it: what became of the one that committed last."""
        if any(end not in DONE for end in self.ends[:-1]):
            return "other refused"
        return "merged" if self.ends[-1] in DONE else "refused"


class Arena:
    """A shape's starting table and the work recorded on it; one pair after another is done in the folder ``world``."""

    def __init__(self, spark: Any, shape: str, home: Path) -> None:
        self.home = home / shape
        self.world = emptied(self.home / "world")
        self.ground: Ground = build(spark, shape, self.world)
        self.base = emptied(self.home / "base")
        link_tree(self.world, self.base)
        self._tree = tree_of(self.base)
        self.version = self.ground.table().version
        self._recorded: dict[tuple[str, int], Recorded] = {}
        self._known: dict[tuple[str, str], list[str]] = {}
        self._works = 0

    @property
    def shape(self) -> str:
        return self.ground.shape

    # --- recording ------------------------------------------------------------------------------------------------

    def recorded(self, name: str, copy: int = 0) -> Recorded:
        """The work of an action; ``copy`` tells it from the same done by another."""
        key = name, copy
        if key not in self._recorded:
            self._recorded[key] = self._record(ACTS[name], f"{name}-{copy}".replace(" ", "-"))
        return self._recorded[key]

    @contextlib.contextmanager
    def planted(self, *names: str) -> Iterator[None]:
        """Work of these actions, and what tables were found to hold, count inside the block only: for what breaks
        the code on purpose."""
        keys = {(name, copy) for name in names for copy in (0, 1)}
        recorded, known = self._recorded, self._known
        self._recorded = {key: one for key, one in recorded.items() if key not in keys}
        self._known = {}
        try:
            yield
        finally:
            self._recorded, self._known = recorded, known

    def _record(self, act: Act, name: str) -> Recorded:
        started = time.monotonic()
        self._lay()
        hand = Hand(self.ground)
        if act.prepare is not None:
            act.prepare(hand)
        memory = dict(hand.memory)
        held: list[Held | None] = []
        for number in range(act.at + 1):
            if number == act.at and act.publishes is not None:
                held.append(None)  # it runs each time, without Spark
                break
            one = hold(lambda number=number: act.steps[number](hand))
            held.append(one)
            if one is not None and number < act.at:
                one.let_go()
        self._works += 1
        files = emptied(self.home / "work" / f"{self._works}-{name}")
        keep_new(self.world, self.base, files)
        return Recorded(act, held, tree_of(files), memory, time.monotonic() - started)

    def _lay(self, *recorded: Recorded) -> None:
        """The starting table, with what was recorded beside it."""
        lay(self.world, self._tree, *(one.tree for one in recorded))

    # --- doing ----------------------------------------------------------------------------------------------------

    def pair(self, first: str, second: str, early: bool = False) -> Outcome:
        """``first`` up to its commit, ``second`` whole, then the commit of ``first``.

        :param early: ``second`` comes before ``first`` has done its work, and after it began.
        """
        return self._meet([first, second], early)

    def meet(self, *names: str) -> Outcome:
        """All but the last up to their commits, the last one whole, then the commits of the others, the first last."""
        return self._meet(names, False)

    def _meet(self, names: Sequence[str], early: bool) -> Outcome:
        started = time.monotonic()
        recorded = [
            self.recorded(name, names[:at].count(name)) for at, name in enumerate(names) if not (early and at == 0)
        ]
        self._lay(*recorded)
        # In the order of their commits: the last one named lands first.
        outcome = Outcome(tuple(names))
        expected = self.ground.expected.copy()
        doing = [_Doing(self.ground, one, self.version) for one in recorded]
        if early:
            doing.insert(0, _Doing(self.ground, Recorded(ACTS[names[0]], [], {}, {}, 0), self.version))
        self._nest(doing, outcome, early)
        begun_on = expected.copy()
        self._began(doing, expected, outcome)
        for name, end in zip(reversed(names), outcome.ends, strict=True):
            if end in DONE:
                expected = self._effect(ACTS[name], expected, begun_on, outcome, end)
            elif end == VerificationFailed.__name__:
                outcome.wrong += self._unfounded(ACTS[name], expected)
        if len(doing) > 1 and not any(one.act.at for one in doing[:-1]):
            outcome.wrong += [f"{names[-1]} was refused with nothing committed before it"] * (
                outcome.ends[0] not in DONE
            )
        outcome.expected, outcome.state = expected, self.fingerprint()
        outcome.wrong += self._compared(outcome.state, expected)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _began(self, doing: Sequence[_Doing], expected: Expected, outcome: Outcome) -> None:
        """What the commits before those of their main steps make of the model."""
        for number, one in enumerate(doing):
            if (one.ended_early or not one.began) and not any(earlier.act.at for earlier in doing[:number]):
                outcome.wrong.append(f"{one.act.name} ended before its commit, with nothing committed before it")
            if one.began and one.act.before is not None:
                try:
                    one.act.before(expected)
                except Impossible as why:
                    outcome.wrong.append(f"{one.act.name} began, though {why}")

    def _compared(self, state: str, expected: Expected) -> list[str]:
        """What differs; the same table, of which the same is expected, is looked at once."""
        contents = (
            expected.rows.names,
            sorted(expected.rows.rows.values(), key=repr),
            expected.indexes,
            expected.included,
        )
        key = state, repr((contents, expected.properties, expected.dropped))
        if key not in self._known:
            self._known[key] = list(checks.differences(self.ground, expected, few=True))
        return self._known[key]

    def _effect(self, act: Act, expected: Expected, begun_on: Expected, outcome: Outcome, end: str) -> Expected:
        """The model after the action; where its own look counts as well, whichever of the two the rows bear out."""
        after = expected.copy()
        if end == "committed" and set(act.touches) & expected.stopped:
            outcome.wrong.append(f"{act.name} committed in a stop-write window")
        try:
            act.effect(after)
        except Impossible as why:
            if end == "committed":
                outcome.wrong.append(f"{act.name} committed, though {why}")
            return expected
        if act.sees is not None and not after.dropped:
            seen = expected.copy()
            act.sees(seen, begun_on)
            if seen.rows.rows != after.rows.rows and not list(checks.differences(self.ground, seen, few=True)):
                outcome.notes.append("what it saw when it began")
                return seen
        return after

    def _unfounded(self, act: Act, expected: Expected) -> Iterator[str]:
        """An action may find the rows not to be as it needs them only where they are not."""
        try:
            act.effect(expected.copy())
        except Impossible:
            return
        yield f"{act.name} failed its verification, and could have been done"

    def _nest(self, doing: list[_Doing], outcome: Outcome, early: bool = False) -> None:
        """The first up to its commit, then the others, then its commit."""
        first, rest = doing[0], doing[1:]
        if not rest:
            outcome.ends.append(first.whole(outcome))
            return
        outcome.ends.append(first.around(lambda: self._nest(rest, outcome), outcome, early))

    def fingerprint(self) -> str:
        """A digest of what the table is: which files, in which order, and what indexes cover."""
        timeline = Timeline(self.ground.table_store())
        timeline.refresh()
        digest = fingerprint_of(timeline.head)
        if self.ground.source:
            files = sorted((path.name, path.stat().st_mtime_ns) for path in self.ground.uri.glob("p=*/*.parquet"))
            digest = f"{digest} {files}"
        return digest


def fingerprint_of(state: State) -> str:
    if state.dropped or state.definition is None:
        return "dropped"
    parts: list[Any] = [state.definition, sorted((path, entry.buckets) for path, entry in state.partitions.items())]
    files = [file for tree in state.file_set.trees() for file in state.files(tree)]
    places = sorted({file.sequence_number for file in files})
    for name, entry in sorted(state.indexes.items()):
        parts.append((name, entry.definition, sorted(entry.lag.items())))
    for file in sorted(files, key=lambda file: file.path):
        parts.append((file.tree, file.path, places.index(file.sequence_number)))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


class _Doing:
    """One action being done in a world."""

    def __init__(self, ground: Ground, recorded: Recorded, start: int) -> None:
        self.recorded = recorded
        self.act = recorded.act
        self.hand = Hand(ground, dict(recorded.memory))
        self._start = start
        self._live = not recorded.held
        self.began = False
        """Whether its commits before that of its main step have landed."""
        self.ended_early = False
        """Whether it was refused before it came to its commit."""

    def whole(self, outcome: Outcome) -> str:
        """All of it, on the log as it is now."""

        def steps() -> Any:
            self._steps(range(self.act.at))
            self.began = True
            return self._steps(range(self.act.at, len(self.act.steps)))

        return self._ended(steps, outcome)

    def around(self, others: Callable[[], None], outcome: Outcome, early: bool) -> str:
        """Up to its commit, then the others, then the rest."""
        at = self.act.at
        done: list[bool] = []

        def meanwhile() -> None:
            done.append(True)
            others()

        def main() -> Any:
            self._steps(range(at))
            self.began = True
            if early:
                with after_beginning(meanwhile):
                    result = self.act.steps[at](self.hand)
            elif self.act.publishes is not None:
                with before_publishing(self.act.publishes, meanwhile):
                    result = self.act.steps[at](self.hand)
            else:
                meanwhile()
                result = self._step(at)
            return result

        end = self._ended(main, outcome)
        if not done:
            self.ended_early = True
            others()
        if end == "committed":
            self._ended(lambda: self._steps(range(at + 1, len(self.act.steps))), outcome)
        else:
            self._tidy(at, outcome)
        return end

    def _tidy(self, at: int, outcome: Outcome) -> None:
        """What comes after a commit that was refused, such as closing its window; it may be refused as well."""
        try:
            self._steps(range(at + 1, len(self.act.steps)))
        except LakeIndexError:
            return
        except Exception as error:  # noqa: BLE001 - as in _ended
            outcome.wrong.append(f"{self.act.name}, after its end: {type(error).__name__}: {error}")

    def _steps(self, numbers: range) -> Any:
        result = None
        if numbers.start == 0 and self._others_committed():
            self._live = True
        for number in numbers:
            result = self._step(number)
        return result

    def _others_committed(self) -> bool:
        """Whether work that was recorded behind commits of its own would not fit this log."""
        later = any(one is not None and one.transaction.base.version > self._start for one in self.recorded.held)
        return later and self.hand.table().version != self._start

    def _step(self, number: int) -> Any:
        held = self.recorded.held[number] if number < len(self.recorded.held) and not self._live else None
        return self.act.steps[number](self.hand) if held is None else held.let_go()

    def _ended(self, do: Callable[[], Any], outcome: Outcome) -> str:
        try:
            receipt = do()
        except LakeIndexError as error:
            if not isinstance(error, REFUSALS) or not error.outcome:
                outcome.wrong.append(f"{self.act.name}: {type(error).__name__} is no refusal: {error}")
            outcome.notes.append(f"{self.act.name}: {error}")
            return type(error).__name__
        except Exception as error:  # noqa: BLE001 - what a pair finds is reported, and the others go on
            outcome.wrong.append(f"{self.act.name}: {type(error).__name__}: {error}")
            return type(error).__name__
        return "nothing to do" if getattr(receipt, "version", 0) is None else "committed"
