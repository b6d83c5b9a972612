"""Assets for tables and indexes: their URIs, and what their events say of a commit.

An asset is named by what DAGs call the table: by its location, or by its name below a connection's warehouse. No store
is read; a URI is made and taken apart as text, so that it can be done where a DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from airflow.sdk import Asset

from airflow_provider_index.hooks.table_store import TableStoreHook, is_address
from spark_apps.storage.errors import InvalidInput, InvalidName, LakeIndexError
from spark_apps.storage.names import check_name, check_table_name
from spark_apps.storage.store import Store
from spark_apps.timeline.catalog_names import is_plain, may_be_named

SCHEME = "lakeindex"
GROUP = "lakeindex"
"""Group of the assets that this module makes, unless another is given."""

_BY_NAME = "table"
_LOCAL = "file"
_SAFE = "/@:=+,~"
_MAX_METRICS = 24


@dataclass(frozen=True)
class AssetAddress:
    """The parts that a URI names.

    :param table: the table's location, or its name if ``table_conn_id`` is given.
    :param index: one of its indexes; ``None`` for the table itself.
    :param table_conn_id: the connection below whose warehouse the name is.
    """

    table: str
    index: str | None = None
    table_conn_id: str | None = None

    @property
    def uri(self) -> str:
        """The URI, in the one form that Airflow compares."""
        if self.table_conn_id is not None:
            where = f"{_BY_NAME}/{quote(self.table_conn_id, safe='')}/{quote(self.table, safe='')}"
        elif "://" in self.table:
            scheme, rest = self.table.split("://", 1)
            where = f"{scheme}/{quote(rest, safe=_SAFE)}"
        else:
            where = f"{_LOCAL}{quote(self.table, safe=_SAFE)}"
        query = f"?{urlencode({'index': self.index})}" if self.index is not None else ""
        return f"{SCHEME}://{where}{query}"

    def location(self) -> str:
        """Return where the table is. By name, the connection is asked: in a task or a trigger only."""
        return self.table if self.table_conn_id is None else TableStoreHook(self.table_conn_id).locate(self.table)


def address_of(table: str, index: str | None = None, table_conn_id: str | None = None) -> AssetAddress:
    """Return the address of what operators take as ``table``, ``index`` and ``table_conn_id``.

    :raises InvalidName: if one of them cannot be understood.
    """
    if index is not None:
        check_name("index", index)
    if is_address(table):
        return AssetAddress(Store(table).uri, index)
    if "{{" in table:
        raise InvalidName(
            f"The asset of {table!r} cannot be made where the DAG is parsed: a template is filled in when a task runs.",
            hint="Give the task an AssetAlias as its outlet instead.",
        )
    if is_plain(table) or may_be_named(table) is None:
        check_table_name(table)
    return AssetAddress(table, index, table_conn_id or TableStoreHook.default_conn_name)


def parse_uri(uri: str) -> AssetAddress:
    """Return the address that a URI names. :raises InvalidName: if it is no URI of this package, or not well formed."""
    parts = urlsplit(uri)
    if parts.scheme.lower() != SCHEME:
        raise InvalidName(f"{uri!r} is no URI of a table.", hint=f"They begin with {SCHEME}://.")
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    if [name for name, _ in parameters] not in ([], ["index"]):
        raise InvalidName(f"{uri!r} asks for something else than an index.", hint="Write ?index=NAME, or nothing.")
    index = parameters[0][1] if parameters else None
    kind, rest = parts.netloc.lower(), unquote(parts.path).rstrip("/")
    if kind == _BY_NAME:
        conn_id, _, name = rest.strip("/").rpartition("/")
        if not conn_id or "/" in conn_id:
            raise InvalidName(f"{uri!r} names no table.", hint=f"Write {SCHEME}://{_BY_NAME}/<connection>/<db.table>.")
        return address_of(name, index, conn_id)
    if not rest.strip("/"):
        raise InvalidName(f"{uri!r} names no table.", hint=f"Write {SCHEME}://s3/<bucket>/<path> or its kin.")
    return address_of(rest if kind == _LOCAL else f"{kind}://{rest.lstrip('/')}", index)


def table_asset(table: str, *, table_conn_id: str | None = None, name: str | None = None, **fields: Any) -> Asset:
    """Return the asset of a table.

    ::

        orders = table_asset("shop.orders", table_conn_id="lake", name="orders", group="shop")

    :param table: as operators take it: URI, absolute path, or name below the connection's warehouse.
    :param table_conn_id: the connection, for a name; the default one if not given.
    :param name: what people see; the URI by default. Events that come by an alias go to the default name only.
    :param fields: more of :class:`airflow.sdk.Asset`: ``watchers``, ``extra``, ``group``.
    :raises InvalidName: if the table cannot be understood, or is a template.
    """
    return _asset(address_of(table, None, table_conn_id), name, fields)


def index_asset(
    table: str, index: str, *, table_conn_id: str | None = None, name: str | None = None, **fields: Any
) -> Asset:
    """Return the asset of one index of a table; see :func:`table_asset`.

    ::

        by_city = index_asset("shop.orders", "by_city", table_conn_id="lake")

    :param table_conn_id: and ``name``, ``fields``: as of :func:`table_asset`.
    """
    return _asset(address_of(table, index, table_conn_id), name, fields)


def create_asset(
    *, table: str, index: str | None = None, table_conn_id: str | None = None, extra: dict[str, Any] | None = None
) -> Asset:
    """Make an asset for Airflow's hook-level lineage (``asset-uris`` of the provider info).

    :param table: and ``index``, ``table_conn_id``: as of :func:`table_asset` and :func:`index_asset`.
    :param extra: handed on to Airflow.
    """
    return _asset(address_of(table, index, table_conn_id), None, {"extra": extra})


def sanitize_uri(parts: SplitResult) -> SplitResult:
    """Return the one form of a URI, for Airflow, which asks for it whenever an asset is made.

    :param parts: of the URI.
    :raises ValueError: if the URI names no table.
    """
    try:
        return urlsplit(parse_uri(parts.geturl()).uri)
    except LakeIndexError as error:
        raise ValueError(str(error)) from error


def _asset(address: AssetAddress, name: str | None, fields: Mapping[str, Any]) -> Asset:
    return Asset(name=name or address.uri, uri=address.uri, **{"group": GROUP, **fields})


# --- what an event says of a commit -----------------------------------------------------------------------------


def commit_event(receipt: Mapping[str, Any], location: str, index: str | None = None) -> dict[str, Any]:
    """Return the part of a receipt that an event carries, as JSON types.

    These are ``commit`` (its id), ``version``, ``txn_id``, ``operation``, ``instant``, ``table``, ``index``, and of the
    metrics the numbers and short texts.

    ``commit`` is the same however often an event of this commit is sent. For a receipt without a commit it is
    ``None``.

    :param receipt: of a commit.
    :param location: of the table.
    :param index: that was worked on.
    """
    version = receipt.get("version")
    metrics = {
        name: value
        for name, value in (receipt.get("metrics") or {}).items()
        if isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= 200)
    }
    return {
        "commit": None if version is None else f"{version}:{receipt['txn_id']}",
        "version": version,
        "txn_id": receipt["txn_id"],
        "operation": receipt["operation"],
        "instant": receipt.get("instant"),
        "table": location,
        "index": index,
        "metrics": dict(list(metrics.items())[:_MAX_METRICS]),
    }


def commit_of(event: Any) -> dict[str, Any] | None:
    """Return what an asset event says about its commit, whether a task or a watcher sent it.

    It is ``None`` if there was nothing to do, or if the event is not from this package.

    :param event: an asset event as Airflow's context gives it, or its ``extra``.
    """
    extra = event if isinstance(event, Mapping) else getattr(event, "extra", None)
    if not isinstance(extra, Mapping):
        return None
    payload = extra["payload"] if extra.get("from_trigger") else extra
    return dict(payload) if isinstance(payload, Mapping) and payload.get("commit") else None


def new_commits(context: Mapping[str, Any], asset: Asset | None = None) -> list[dict[str, Any]]:
    """Return the commits whose events started this run, each once, oldest first.

    A cleared task sends the event of its commit again, and a watcher may do so after a restart. Both events have the
    same commit id, so the commit is returned once. The operators of this package do not need this: refreshing a fresh
    index commits nothing.

    :param asset: leave out the commits of this asset that earlier runs of this task passed to
        :func:`remember_commits`. The asset must be among the task's inlets or outlets; this needs Airflow 3.3.
    :param context: of the running task, as ``get_current_context()`` gives it.
    """
    done = _remembered(context, asset)
    commits: dict[tuple[str, str], dict[str, Any]] = {}
    for events in context["triggering_asset_events"].values():
        for event in events:
            payload = commit_of(event)
            if payload is not None and _id(payload) not in done:
                commits[(str(payload.get("table")), payload["commit"])] = payload
    return sorted(
        commits.values(), key=lambda payload: (str(payload.get("instant") or ""), payload.get("version") or 0)
    )


def remember_commits(context: Mapping[str, Any], asset: Asset, commits: Iterable[Mapping[str, Any]]) -> None:
    """Record that this task has worked on these commits, for :func:`new_commits` in later runs.

    The newest 200 are kept.

    :param context: of the running task.
    :param commits: as :func:`new_commits` returned them.
    :raises InvalidInput: this Airflow has no asset state store (before 3.3), or the asset is no inlet of the task.
    """
    kept = [*_remembered(context, asset), *(_id(commit) for commit in commits)]
    _memory(context, asset).set(_key(context), list(dict.fromkeys(kept))[-200:])


def _remembered(context: Mapping[str, Any], asset: Asset | None) -> list[str]:
    return [] if asset is None else list(_memory(context, asset).get(_key(context)) or [])


def _memory(context: Mapping[str, Any], asset: Asset) -> Any:
    try:
        return context["asset_state_store"][asset]
    except KeyError as error:
        raise InvalidInput(
            f"What was done for the asset {asset.name!r} cannot be remembered.",
            hint="Put the asset among the task's inlets, on Airflow 3.3 or newer; else tell commits apart by their id.",
        ) from error


def _key(context: Mapping[str, Any]) -> str:
    ti = context["ti"]
    return f"lakeindex.done.{ti.dag_id}.{ti.task_id}"


def _id(commit: Mapping[str, Any]) -> str:
    return f"{commit.get('table')} {commit['commit']}"
