"""Commands that are answered by a table's log: what there is, what happened, who is at work, what is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import msgspec

from spark_apps.cli.command import (
    STORE_FAILED,
    command,
    note_state,
    parameters_option,
    table_argument,
    time_zone_option,
    version_options,
)
from spark_apps.cli.lake import Lake, hidden, warehouse_of
from spark_apps.cli.output import iso, iso_of_seconds
from spark_apps.maintenance.policies import may_hold
from spark_apps.storage.errors import LakeIndexError, TransactionNotFound
from spark_apps.storage.parameters import bind_where
from spark_apps.storage.printing import Figure, Grid, View, counted, exact, moment_text, size, span
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.files import RowCount
from spark_apps.timeline.locations import WarehouseTable
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Requested
from spark_apps.timeline.statistics import partition_statistics, table_statistics

_AT_ONCE = 16
_SILENT_SECONDS = 900.0
"""Seconds without a heartbeat after which an attempt is shown as silent."""


# --- tables -----------------------------------------------------------------------------------------------------------


@command("tables")
@click.argument("pattern", default="*")
@click.option("--names", is_flag=True, help="Print only names and addresses; read no log.")
@click.option("--all", "dropped", is_flag=True, help="Also list dropped tables.")
def tables(lake: Lake, pattern: str, names: bool, dropped: bool) -> int:
    """List the tables of the warehouse.

    With PATTERN (sales.*), only tables with matching names.
    A table whose log cannot be read is listed with the reason, and so is a folder that cannot be looked into: then
    tables may be missing, and the command exits with 4.
    """
    with lake.output.progress(f"listing {lake.root}"):
        found = [table for table in lake.tables() if fnmatchcase(table.name, pattern)
                 or (table.trouble is not None and may_hold(pattern, table.name))]  # fmt: skip
    code = STORE_FAILED if any(table.trouble is not None for table in found) else 0
    if names:
        listed: list[dict[str, Any]] = [
            {"name": table.name, "location": table.location}
            | ({} if table.trouble is None else {"error": hidden(table.trouble.message, lake)})
            for table in found
        ]
    else:
        listed = []
        with lake.output.progress("reading logs") as progress, ThreadPoolExecutor(_AT_ONCE) as pool:
            for number, one in enumerate(pool.map(lambda table: _of_table(lake, table), found), 1):
                progress.tell(f"reading logs, {number} of {len(found)}")
                if dropped or one["state"] != "dropped":
                    listed.append(one)
    if lake.output.as_json:
        lake.output.json(listed)
        return code
    unread = sum(table.trouble is not None for table in found)
    heading = f"{counted(len(listed) - unread, 'table')} in {lake.root}"
    heading += f", and {counted(unread, 'folder')} that cannot be looked into" if unread else ""
    if names:
        grid = Grid(("table", "address"), [(one["name"], one.get("error", one["location"])) for one in listed])
    else:
        columns = ("table", "rows of", "version", "last commit (UTC)", "rows", "size", "files", "indexes")
        grid = Grid(columns, [_row_of_table(one) for one in listed])
    lake.output.view(View(heading, grids=[grid]))
    return code


def _of_table(lake: Lake, table: WarehouseTable) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": table.name, "location": table.location, "state": "active"}
    try:
        state = table.state()
    except LakeIndexError as error:
        return {**fields, "state": "unreadable", "error": hidden(error.message, lake)}
    if state is None:
        return {**fields, "state": "dropped"}
    statistics = table_statistics(state)
    return {
        **fields,
        "rows_of": statistics.source or "lakeindex",
        "version": state.version,
        "instant": iso(state.instant),
        **_counts(statistics.data.count),
        "bytes": statistics.data.bytes,
        "files": statistics.data.files,
        "indexes": sorted(state.indexes),
    }


def _counts(count: RowCount) -> dict[str, int | None]:
    """Return how many rows there are, and between which bounds where the log does not say exactly."""
    return {"rows": count.exact, "rows_at_least": count.least, "rows_at_most": count.most}


def _row_of_table(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    if fields["state"] != "active":
        return (fields["name"], fields["state"], None, None, None, None, None, fields.get("error"))
    return (
        fields["name"],
        fields["rows_of"],
        exact(fields["version"]),
        fields["instant"][:16].replace("T", " "),
        Figure(RowCount(fields["rows_at_least"], fields["rows_at_most"]).text),
        size(fields["bytes"]),
        fields["files"],
        fields["indexes"],
    )


# --- one table --------------------------------------------------------------------------------------------------------


@command("show")
@table_argument
@version_options
@click.option("--partitions", is_flag=True, help="Also show the partitions.")
def show(lake: Lake, table: str, version: int | None, as_of: str | None, partitions: bool) -> None:
    """Show columns, key, layout, size, indexes and windows."""
    from spark_apps.query.explain import partitions_of, view_table

    timeline, state = lake.state(table, version, as_of)
    uri = timeline.store.uri
    if not lake.output.as_json:
        view = view_table(uri, state)
        more = [*partitions_of(state).view().grids] if partitions else []
        facts = [*view.facts, *publishing.facts(timeline)]
        lake.output.view(View(view.heading, facts, [*view.grids, *more], view.remarks))
        return
    statistics = table_statistics(state)
    definition = {**_plain_fields(state.table), "columns": [_plain_fields(field) for field in state.table.fields]}
    del definition["fields"]
    document: dict[str, Any] = {
        "location": uri,
        "version": state.version,
        "instant": iso(state.instant),
        "definition": definition,
        "data": {**statistics.data.to_dict(), **_counts(statistics.data.count)},
        "indexes": {name: index.to_dict() for name, index in statistics.indexes.items()},
        "windows": [_of_window(window) for window in state.windows.values()],
        "published": None if (shown := publishing.published(timeline)) is None else asdict(shown),
        "features": {"reader": list(state.reader_features), "writer": list(state.writer_features)},
    }
    if partitions:
        document["partitions"] = [asdict(one) for one in partition_statistics(state)]
    lake.output.json(document)


def _plain_fields(struct: Any) -> dict[str, Any]:
    """Return all fields of a struct as plain values, those with their defaults too."""
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(struct).items()}


@command("history")
@table_argument
@click.option(
    "-n",
    "--last",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many of the newest commits to show.",
)
@click.option("--all", "everything", is_flag=True, help="Show all commits.")
@click.option("--operation", metavar="NAME", help="Show only commits of this operation: upsert, compact …")
def history(lake: Lake, table: str, last: int, everything: bool, operation: str | None) -> None:
    """Show the commits of a table, oldest first."""
    from spark_apps.query.explain import history_of

    timeline = lake.timeline(table)
    newest = timeline.head.version
    after = -1 if everything or operation is not None else max(newest - last, -1)
    with lake.output.progress(f"reading commits up to version {newest}"):
        entries = history_of(timeline, newest, after, operation)
    entries = entries if everything else entries[-last:]
    if lake.output.as_json:
        lake.output.json([{**asdict(one), "instant": iso(one.instant)} for one in entries])
        return
    view = entries.view()
    before = "" if len(entries) == newest + 1 else f" of {newest + 1:,}"
    lake.output.view(View(f"{view.heading}{before}", grids=view.grids))


@command("indexes")
@table_argument
@click.argument("index", required=False)
@version_options
def indexes(lake: Lake, table: str, index: str | None, version: int | None, as_of: str | None) -> None:
    """Show the indexes of a table, or one of them.

    Of one index, shows what it covers, its size and its lag.
    """
    from spark_apps.query.explain import indexes_of, status_of

    timeline, state = lake.state(table, version, as_of)
    note_state(state)
    if index is not None:
        state.index(index)
    if lake.output.as_json:
        statistics = table_statistics(state).indexes
        described = [
            {**statistics[name].to_dict(), "definition": _plain_fields(state.index(name).definition)}
            for name in ([index] if index is not None else sorted(state.indexes))
        ]
        lake.output.json(described if index is None else described[0])
    elif index is None:
        lake.output.view(indexes_of(state).view())
    else:
        one, status = indexes_of(state)[index].view(), status_of(timeline, state, index).view()
        facts = [fact for fact in one.facts if fact[0] != "covers"]
        lake.output.view(View(one.heading, [*facts, *status.facts, ("files", status.heading)]))


@command("locate")
@table_argument
@click.argument("where", required=False)
@parameters_option
@time_zone_option
@version_options
def locate(
    lake: Lake,
    table: str,
    where: str | None,
    parameters: dict[str, Any] | None,
    time_zone: str | None,
    version: int | None,
    as_of: str | None,
) -> None:
    """Show where a table is, or which files can hold certain rows.

    Without WHERE, shows where the rows and the log are; with WHERE, the files that can hold matching rows.
    Every file with a matching row is among them.
    """
    where = bind_where(where, parameters)
    if where is None:
        _, state = lake.state(table, version, as_of)
        log = lake.log(table)
        source = state.table.source
        rows = log.uri if source is None else source.location
        if lake.output.as_json:
            lake.output.json({"location": rows, "log": f"{log.uri.rstrip('/')}/_index/timeline"})
        else:
            lake.output.view(View(table, [("rows", rows), ("log", f"{log.uri.rstrip('/')}/_index/timeline")]))
        return
    from spark_apps.arrow_table import exact_filter
    from spark_apps.query.explain import locate_files

    opened = lake.open(table, version, as_of, time_zone)
    note_state(opened.snapshot.state)
    with lake.output.progress("asking indexes"):
        files = locate_files(opened.snapshot, exact_filter(opened.snapshot, where, time_zone=time_zone))
    if lake.output.as_json:
        lake.output.json([file.to_dict() for file in files])
    else:
        lake.output.view(files.view())


# --- who is at work ---------------------------------------------------------------------------------------------------


@command("windows")
@table_argument
def windows(lake: Lake, table: str) -> None:
    """Show the open stop-write windows of a table.

    Also shows the attempts for which the holders of the windows wait.
    """
    from spark_apps.timeline.windows import undrained

    timeline = lake.timeline(table)
    state, now = timeline.head, timeline.clock()
    waiting = {epoch: [one.txn_id for one in undrained(timeline, epoch)] for epoch in state.windows}
    if lake.output.as_json:
        still_open = [
            {**_of_window(window), "over": window.deadline < now, "undrained": waiting[epoch]}
            for epoch, window in state.windows.items()
        ]
        lake.output.json({"open": still_open, "ended": {str(epoch): how for epoch, how in state.ended_windows.items()}})
        return
    rows = [
        (
            exact(epoch),
            window.holder,
            window.scope_text,
            moment_text(window.deadline) + (" (over)" if window.deadline < now else ""),
            moment_text(window.last_moment),
            waiting[epoch],
        )
        for epoch, window in state.windows.items()
    ]
    columns = ("epoch", "holder", "scope", "deadline", "last moment", "waits for")
    ended = [(exact(epoch), how) for epoch, how in sorted(state.ended_windows.items())]
    grids = [Grid(columns, rows), Grid(("epoch", "ended"), ended, newest_last=True)]
    lake.output.view(View(f"{counted(len(rows), 'open window')} of {table}", grids=grids), most=20)


def _of_window(window: Any) -> dict[str, Any]:
    return {
        "epoch": window.epoch,
        "holder": window.holder,
        "partitions": None if window.partitions is None else list(window.partitions),
        "deadline": iso_of_seconds(window.deadline),
        "last_moment": iso_of_seconds(window.last_moment),
    }


@command("attempts")
@table_argument
@click.option(
    "--all", "everything", is_flag=True, help="Also show attempts that have ended, until a cleaning removes them."
)
def attempts(lake: Lake, table: str, everything: bool) -> None:
    """Show who is writing to a table.

    Lists the attempts that may still commit, with their last sign of life.
    """
    timeline = lake.timeline(table)
    with lake.output.progress("reading attempts"):
        found = list(_attempts(timeline, everything))
    if lake.output.as_json:
        lake.output.json(found)
        return
    rows = [
        (
            one["txn_id"],
            one["attempt"],
            one["operation"],
            one["state"],
            span(one["running_seconds"]),
            None if one["silent_seconds"] is None else span(one["silent_seconds"]),
            one["progress"],
        )
        for one in found
    ]
    columns = ("transaction", "attempt", "operation", "state", "begun before", "silent for", "at")
    what = "attempt" if everything else "attempt at work"
    many = "attempts" if everything else "attempts at work"
    lake.output.view(View(f"{counted(len(rows), what, many)} on {table}", grids=[Grid(columns, rows)]))


def _attempts(timeline: Timeline, everything: bool) -> Iterator[dict[str, Any]]:
    from spark_apps.timeline import transactions

    requests = transactions.live_requests(timeline)
    now = timeline.clock()
    live = {(one.txn_id, one.attempt) for one in requests}
    for one in requests:
        beat = transactions.read_heartbeat(timeline, one.txn_id, one.attempt)
        last = one.requested_at if beat is None else max(beat.at, one.requested_at)
        silent = max(now - last, 0.0)
        phase = "" if beat is None else " ".join(filter(None, (beat.phase, _done(beat.done, beat.total), beat.note)))
        state = "presumed dead" if silent > max(_SILENT_SECONDS, one.patience) else "live"
        yield _of_attempt(one, state, now - one.requested_at, silent, phase)
    if not everything:
        return
    committed = timeline.head.committed
    for txn_id, attempt in transactions.attempts(timeline):
        if (txn_id, attempt) in live:
            continue
        try:
            one = transactions.read_requested(timeline, txn_id, attempt)
        except (TransactionNotFound, LakeIndexError):
            continue  # tidied away meanwhile, or no request that can be read
        state = "aborted" if timeline.head.is_aborted(txn_id, attempt) else "ended"
        state = "committed" if state != "aborted" and txn_id in committed else state
        yield _of_attempt(one, state, now - one.requested_at, None, "")


def _of_attempt(request: Requested, state: str, running: float, silent: float | None, progress: str) -> dict[str, Any]:
    return {
        "txn_id": request.txn_id,
        "attempt": request.attempt,
        "operation": request.operation,
        "state": state,
        "base": request.base,
        "requested": iso_of_seconds(request.requested_at),
        "running_seconds": round(max(running, 0.0), 1),
        "silent_seconds": None if silent is None else round(silent, 1),
        "progress": progress,
        "stages": list(request.stages),
        "epoch": request.epoch,
    }


def _done(done: int | None, total: int | None) -> str:
    return "" if done is None else f"{done:,}" if total is None else f"{done:,} of {total:,}"


# --- what is due ------------------------------------------------------------------------------------------------------


@command("plan")
@click.argument("pattern", nargs=-1)
@click.option("--config", metavar="FILE", help="The description of maintenance, as YAML or JSON, as the DAG uses it.")
@click.option("--bytes", "most_bytes", metavar="SIZE", help="The budget in bytes read: 200GB.")
@click.option("--minutes", type=click.FloatRange(0), metavar="N", help="The budget in minutes.")
@click.option("--dag", "dag_id", default="", metavar="ID", help="The DAG whose last plans say which work has waited.")
@click.option("--due", "only_due", is_flag=True, help="Show only work that would be done now.")
def plan(
    lake: Lake,
    pattern: tuple[str, ...],
    config: str | None,
    most_bytes: str | None,
    minutes: float | None,
    dag_id: str,
    only_due: bool,
) -> None:
    """Show what maintenance would do now, and why not the rest.

    Plans for all tables, or for those whose names match a PATTERN.
    Nothing is done. Without --config, the default limits apply.
    """
    from spark_apps.maintenance.plan import plan_maintenance
    from spark_apps.maintenance.policies import Budget, read_config, read_file
    from spark_apps.maintenance.survey import find_tables, survey_tables
    from spark_apps.storage.sizes import parse_bytes

    described = read_config(list(pattern) or ["*"], "PATTERN") if config is None else read_file(Path(config))
    budget = Budget(
        described.budget.bytes if most_bytes is None else parse_bytes(most_bytes, "--bytes"),
        described.budget.minutes if minutes is None else minutes,
    )
    entries = [entry for entry in described.tables if entry.enabled]
    if any(entry.is_pattern and entry.table_conn_id is None for entry in entries):
        lake.tables()  # refuses a warehouse that is missing
    elsewhere = {entry.table_conn_id for entry in entries if entry.table_conn_id is not None}
    warehouses = {"": lake.warehouse, **{one: warehouse_of(None, one, None, (), False) for one in sorted(elsewhere)}}
    with lake.output.progress("listing tables") as progress:
        found, missed = find_tables(entries, warehouses, "")
        if config is not None and pattern:
            found = [one for one in found if any(fnmatchcase(one.name, text) for text in pattern)]
            missed = [one for one in missed if any(fnmatchcase(one.name, text) for text in pattern)]
        progress.tell(f"looking at {counted(len(found), 'table')}")
        surveys, unreachable = survey_tables(found)
    made = plan_maintenance(surveys, [*missed, *unreachable], budget, dag_id)
    made.skipped[:] = [(name, skip) for name, skip in made.skipped if not only_due]
    if not lake.output.as_json:
        lake.output.view(made.view())
        return
    lake.output.json(
        {
            "chosen": [_planned(one, one.planned()) for one in made.chosen],
            "postponed": [_planned(one, one.planned(False, code, why)) for one, code, why in made.postponed],
            "skipped": [{"table": name, **_plain_fields(skip)} for name, skip in made.skipped],
            "bytes": made.bytes,
            "seconds": made.seconds,
        }
    )


def _planned(candidate: Any, work: Any) -> dict[str, Any]:
    return {"table": candidate.survey.table.name, **_plain_fields(work)}
