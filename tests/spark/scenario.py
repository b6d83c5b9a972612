"""An app of the tests: a table's life by the bundled programs, one after the other in one session, and what is read
afterwards. Every way to Spark has to answer the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec.structs

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import answer, load_table, main


def scenario(spark: Any, job: Job) -> Any:
    """What each step answered, and what is read in the end."""
    steps = []
    for program, arguments in job.arguments["steps"]:
        work = getattr(import_module(f"spark_apps.{program}"), program)
        response = answer(work(spark, msgspec.structs.replace(job, program=program, arguments=arguments)))
        steps.append([program, _plain(response.value)])
    table = load_table(spark, job)
    plan = table.explain(where="city = 'oslo'", columns=["id"])
    return {
        "steps": steps,
        "rows": sorted(list(row) for row in table.read().collect()),
        "found": sorted(row[0] for row in table.read(where="city = 'oslo'", columns=["id"]).collect()),
        "considered": sorted({*(use.name for use in plan.indexes), *plan.not_used}),
        "buckets": {path: entry.buckets for path, entry in table.partitions.items()},
        "workers": sorted({row[0] for row in spark.range(2).mapInArrow(_where, "at string").collect()}),
        "spark": f"{type(spark).__module__.split('.')[2]} {spark.version}",
    }


def _where(batches: Any) -> Any:
    """Where the Python workers of the executors find the apps."""
    import pyarrow

    import spark_apps

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"at": [spark_apps.__file__]})


def _plain(value: Any) -> Any:
    """What does not depend on when, where and under which id it was done."""
    if isinstance(value, dict):
        kept = {"version", "operation", "rows", "tombstones", "files", "entries", "ok", "buckets"}
        return {key: _plain(one) for key, one in value.items() if key in kept or isinstance(one, dict)}
    return value


if __name__ == "__main__":
    main(scenario)
