"""Runs the tests on each supported version of Spark, Airflow and Python: ``python -m tests.matrix``.

``ONLY`` (a list of environments, such as ``spark-3.5,airflow-3.1``): these alone; ``SUITES`` (a list): these in place
of an environment's own; ``PARTS`` (1): into so many parts each suite is divided by its files, of which this turn's is
run (``TURN``, see ``tests/turns.py``; ``TURN=all`` runs all, also of tests marked ``by_turn``); ``RECORD=1`` writes
what ran into ``tests/matrix/results.json``; ``SETUP=1`` only makes the environments. ``TEST_ARGS`` go to pytest.
"""

from __future__ import annotations

import os
import sys
import time

from tests.matrix.environments import ENVIRONMENTS, SUITES
from tests.matrix.installing import HOME, NotMade, prepare, versions
from tests.matrix.results import record
from tests.matrix.running import run

NO_SUCH_PYTHON = 3
"""The exit status where all that was not run, was not for want of a Python of that version."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def listed(variable: str) -> list[str]:
    return [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]


def main() -> int:
    known = {environment.name: environment for environment in ENVIRONMENTS}
    names, suites = listed("ONLY") or list(known), listed("SUITES")
    unknown = [*(set(names) - set(known)), *(set(suites) - set(SUITES))]
    if unknown:
        say(f"There is no {', '.join(unknown)}. Environments: {', '.join(known)}. Suites: {', '.join(SUITES)}.")
        return 2
    HOME.mkdir(exist_ok=True)
    parts = 1 if os.environ.get("TURN") == "all" else int(os.environ.get("PARTS", "1"))
    bad = missing = False
    lines = []
    for name in names:
        started = time.monotonic()
        try:
            python = prepare(known[name])
            has = versions(known[name], python)
        except NotMade as error:
            missing = missing or error.without_python
            bad = bad or not error.without_python
            lines.append(f"{name}: NOT MADE: {error}")
            say(lines[-1])
            continue
        shown = ", ".join(f"{package} {release}" for package, release in has.items())
        say(f"{name}: {shown}, set up in {time.monotonic() - started:.0f} s")
        if os.environ.get("SETUP") == "1":
            continue
        for suite in suites or known[name].suites:
            result = run(suite, SUITES[suite], python, parts, {})
            if result is None:
                continue
            bad = bad or result.failed > 0
            counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
            lines.append(f"{name:12} {suite:14} {counts} ({result.part}) in {result.seconds} s")
            say(lines[-1])
            if result.failed:
                say((python.parents[1] / f"{suite.replace(' ', '-')}.log").read_text()[-6000:])
            if os.environ.get("RECORD") == "1":
                record(name, has, suite, result)
    say("\n".join(["", *lines]))
    return 1 if bad else NO_SUCH_PYTHON if missing else 0


if __name__ == "__main__":
    sys.exit(main())
