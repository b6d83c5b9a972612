"""What the owner of a source, or who can write one log, makes others read, load and call: nothing but that source.

No Spark: all of it is decided before rows are read.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_index.source_state import source_state
from spark_apps.arrow_table import OpenTable, open_table
from spark_apps.sources.iceberg import IcebergTable
from spark_apps.sources.iceberg_catalog import load_at, load_named
from spark_apps.sources.registry import open_source
from spark_apps.storage.errors import (
    InvalidInput,
    LakeIndexError,
    SourceNotAllowed,
    StorageUnavailable,
    TableNotFound,
    UnsupportedSource,
)
from spark_apps.storage.store import Store
from spark_apps.timeline import allowed_sources, catalog_names
from spark_apps.timeline.allowed_sources import given_options
from spark_apps.timeline.catalog_names import CatalogName, Registration, log_address
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import locate
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
FIELDS = (Field("id", "bigint"),)
MODULE = "planted_by_somebody"


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the module :data:`MODULE`, which Python finds, was imported."""
    mark, folder = tmp_path / "it-ran", tmp_path / "on-the-path"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n"
        "from pyiceberg.catalog.noop import NoopCatalog as Catalog\n"
        "from pyiceberg.io.pyarrow import PyArrowFileIO as Access\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, MODULE, raising=False)
    return mark


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    sql_catalog = SqlCatalog("mine", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    sql_catalog.create_namespace("db")
    return sql_catalog


def iceberg(catalog: SqlCatalog, properties: dict[str, str] | None = None, name: str = "db.t") -> Path:
    """A table with a version hint; properties that its owner wrote into its metadata."""
    table = catalog.create_table(name, ROWS.schema)
    table.append(ROWS)
    place = Path(table.location().removeprefix("file://"))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    if properties:
        document = json.loads(metadata.read_text())
        document["properties"].update(properties)
        metadata.write_text(json.dumps(document))
    (place / "metadata/version-hint.text").write_text(metadata.name)
    return place


def definition(source: SourceDefinition) -> TableDefinition:
    return TableDefinition("t", FIELDS, (), bucketed=False, source=source)


def logged(source: SourceDefinition, log: str | Path | None = None) -> Timeline:
    """A log that another writer wrote."""
    place = locate(source.location).default_log() if log is None else log
    return create_table(Store(place), definition(source), [])[0]


def readers(timeline: Timeline, options: dict[str, Any] | None = None) -> Iterator[Any]:
    """All that opens a source because a log names it."""
    state, log = timeline.head, timeline.store.uri
    yield lambda: source_state(state, log, options).news(state, {})
    yield lambda: open_source(state.table, options, log).listing()


# --- code and servers named by a log ----------------------------------------------------------------------------

BAD_PROPERTIES = [
    ("catalog.py-catalog-impl", f"{MODULE}.Catalog"), ("catalog.py-io-impl", f"{MODULE}.Access"),
    ("catalog.s3.retry-strategy-impl", f"{MODULE}.Access"), ("catalog.auth", "custom"),
    ("catalog.write.py-location-provider.impl", f"{MODULE}.Access"), ("Catalog.Py-Catalog-Impl", f"{MODULE}.Catalog"),
    ("catalog.s3.endpoint", "http://elsewhere"), ("catalog.s3.proxy-uri", "http://elsewhere"),
    ("catalog.glue.endpoint", "http://elsewhere"), ("catalog.oauth2-server-uri", "http://elsewhere"),
    ("catalog.hdfs.host", "elsewhere"), ("catalog.header.X", "1"), ("catalog.type", "in-memory"),
    ("catalog.type", f"{MODULE}.Catalog"), ("catalog", "../../x"), ("catalog", "a\nb"), ("catalog.", "x"), ("", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_PROPERTIES)
def test_given_a_log_whose_iceberg_options_name_code_or_servers_then_no_reader_loads_or_calls_them(
    tmp_path: Path, ran: Path, name: str, value: str
) -> None:
    named = {"catalog": "mine", "identifier": "db.t", name: value}
    table = definition(SourceDefinition("iceberg", f"{tmp_path}/t", named))

    for read in (
        lambda: open_source(table, {"source_roots": [str(tmp_path)]}, f"{tmp_path}/_indexes/t").listing(),
        lambda: IcebergTable("", named).listing(),
        lambda: load_named(named, {}),
        lambda: allowed_sources.check_source(table.source or pytest.fail()),
        lambda: given_options("iceberg", named),
    ):
        with pytest.raises(InvalidInput, match=r"option|catalog"):
            read()
    assert not ran.exists()


def test_given_a_log_that_says_where_the_catalog_is_then_it_is_asked_only_if_the_reader_allows_that_address(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    options = {"catalog": "mine", "identifier": "db.t", "catalog.type": "sql", "catalog.uri": uri}
    timeline = logged(SourceDefinition("iceberg", str(iceberg(catalog)), options))

    for read in readers(timeline, {"source_roots": ["sqlite:////elsewhere", uri[:-1]]}):
        with pytest.raises(SourceNotAllowed, match="source_roots"):
            read()
    for read in readers(timeline, {"source_roots": [uri]}):
        assert read()
    monkeypatch.setattr(allowed_sources, "_configured", lambda name, what: uri if name == "mine" else None)
    for read in readers(timeline):
        assert read()


def test_given_a_catalog_that_knows_other_tables_then_a_log_can_name_none_but_the_one_it_was_made_for(
    tmp_path: Path, catalog: SqlCatalog
) -> None:
    place, other = iceberg(catalog), iceberg(catalog, name="db.others")
    uri = f"sqlite:///{tmp_path}/catalog.db"
    options = {"catalog": "mine", "identifier": "db.others", "catalog.type": "sql", "catalog.uri": uri}
    timeline = logged(SourceDefinition("iceberg", str(place), options))

    with pytest.raises(SourceNotAllowed, match=str(other)):
        open_source(timeline.head.table, {"source_roots": [uri]}, timeline.store.uri).listing()


@pytest.mark.parametrize("configured", [True, False])
def test_given_the_name_of_a_catalog_s_table_and_no_jvm_then_that_catalog_is_asked_for_the_same_table(
    tmp_path: Path, catalog: SqlCatalog, configured: bool
) -> None:
    place, root, uri = iceberg(catalog), Store(tmp_path / "w"), f"sqlite:///{tmp_path}/catalog.db"
    table_id = str(catalog.load_table("db.t").metadata.table_uuid)
    options = {"catalog": "mine", "identifier": "db.t", "reader": "spark"}
    if configured:
        options |= {"catalog.type": "sql", "catalog.uri": uri}
    name = CatalogName.parse("mine.db.t")
    log = log_address(root, name, table_id)
    create_table(Store(log), definition(SourceDefinition("iceberg", str(place), options, identity=table_id)))
    catalog_names.write(root, Registration(str(name), "iceberg", table_id, log))

    def opened() -> OpenTable:
        return open_table("mine.db.t", warehouse=root.uri, options={"source_roots": [uri]})

    if not configured:
        with pytest.raises(StorageUnavailable, match="PYICEBERG_CATALOG__MINE__URI"):
            opened()
        return
    assert opened().read().num_rows == ROWS.num_rows
    catalog.drop_table("db.t")
    shutil.rmtree(place)
    iceberg(catalog)
    with pytest.raises(TableNotFound, match="is gone: the one that is there now"):
        opened()


# --- code and servers named by a table's own metadata -----------------------------------------------------------

OF_AN_OWNER = {
    "py-io-impl": f"{MODULE}.Access", "write.py-location-provider.impl": f"{MODULE}.Access",
    "s3.retry-strategy-impl": f"{MODULE}.Access", "s3.endpoint": "http://elsewhere:1", "s3.proxy-uri": "http://x:1",
}  # fmt: skip


@pytest.mark.parametrize("by", ["hint", "catalog"])
def test_given_metadata_of_an_iceberg_table_that_names_code_and_servers_then_neither_meets_the_reader(
    tmp_path: Path, catalog: SqlCatalog, ran: Path, by: str
) -> None:
    place = iceberg(catalog, OF_AN_OWNER)
    uri = f"sqlite:///{tmp_path}/catalog.db"
    options = {"catalog": "mine", "identifier": "db.t", "catalog.type": "sql", "catalog.uri": uri}
    timeline = logged(SourceDefinition("iceberg", str(place), options if by == "catalog" else {}))
    storage_options = {"source_roots": [uri], "aws_secret_access_key": "ours"}

    news, listing = (read() for read in readers(timeline, storage_options))

    assert len(news.events) == 1 and len(listing.files) == 1 and not ran.exists()
    table: Any = open_source(timeline.head.table, storage_options, timeline.store.uri)
    opened = table._open()
    assert opened.io.properties["s3.secret-access-key"] == "ours"
    assert not OF_AN_OWNER.keys() & (opened.io.properties.keys() | opened.metadata.properties.keys())


class _Rest(BaseHTTPRequestHandler):
    """As much of a REST catalog as loading one table takes."""

    metadata: str

    def do_GET(self) -> None:
        body: dict[str, Any] = {"defaults": {}, "overrides": {}}
        if "/tables/" in self.path:
            metadata = json.loads(Path(self.metadata).read_text())
            config = {"s3.session-token": "of the catalog", "py-io-impl": f"{MODULE}.Access"}
            body = {"metadata-location": f"file://{self.metadata}", "metadata": metadata, "config": config}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_given_a_rest_catalog_then_its_credentials_are_used_and_the_owner_s_properties_are_not(
    catalog: SqlCatalog, ran: Path
) -> None:
    place = iceberg(catalog, OF_AN_OWNER)
    _Rest.metadata = str(place / "metadata" / (place / "metadata/version-hint.text").read_text())
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Rest)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        uri = f"http://127.0.0.1:{server.server_port}"
        table = load_named({"catalog": "r", "identifier": "db.t", "catalog.type": "rest", "catalog.uri": uri}, {})
    finally:
        server.shutdown()
        server.server_close()

    assert not ran.exists()
    assert table.io.properties["s3.session-token"] == "of the catalog"
    assert not OF_AN_OWNER.keys() & (table.io.properties.keys() | table.metadata.properties.keys())
    assert table.scan().to_arrow().num_rows == 2


def test_given_a_version_hint_that_leads_elsewhere_then_it_is_not_followed(catalog: SqlCatalog) -> None:
    place = iceberg(catalog)
    timeline = logged(SourceDefinition("iceberg", str(place)))
    for hint in ("../../others/metadata/v1", "/etc/passwd.metadata.json", "a\nb", "", "..", "%2e%2e/x", "v" * 100_000):
        (place / "metadata/version-hint.text").write_text(hint)
        for read in (*readers(timeline), lambda: load_at(str(place), None)):
            with pytest.raises(LakeIndexError, match="hint"):
                read()


# --- files and places -------------------------------------------------------------------------------------------


def test_given_an_iceberg_table_whose_metadata_lists_files_of_another_one_then_they_are_not_read(
    tmp_path: Path, catalog: SqlCatalog
) -> None:
    theirs, mine = iceberg(catalog, name="db.theirs"), iceberg(catalog, name="db.mine")
    hint = mine / "metadata/version-hint.text"
    shutil.copytree(theirs / "metadata", mine / "metadata", dirs_exist_ok=True)
    hint.write_text((theirs / "metadata/version-hint.text").read_text())
    timeline = logged(SourceDefinition("iceberg", str(mine)))

    with pytest.raises(SourceNotAllowed, match=f"{theirs}.*source_roots"):
        open_source(timeline.head.table, None, timeline.store.uri).listing()
    allowed = open_source(timeline.head.table, {"source_roots": [str(theirs)]}, timeline.store.uri).listing()
    assert [file.path.startswith(f"file://{theirs}/") for file in allowed.files] == [True]


@pytest.mark.parametrize("path", ["../theirs/a.parquet", "%2e%2e/theirs/a.parquet", "x/../../theirs/a.parquet"])
def test_given_a_delta_log_whose_paths_lead_upwards_then_they_are_refused(tmp_path: Path, path: str) -> None:
    place = tmp_path / "mine"
    deltalake.write_deltalake(str(place), ROWS)
    log = place / "_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = path
    log.write_text("\n".join(map(json.dumps, lines)))
    timeline = logged(SourceDefinition("delta", str(place)))

    with pytest.raises(UnsupportedSource, match="outside"):
        open_source(timeline.head.table, None, timeline.store.uri).listing()


ELSEWHERE = ["{root}/db/others", "{root}/db/mine/../others", "{root}/db", "{root}", "/", "/etc", "{root}/db/min?",
             "file://{root}/db/others", "s3://other/place", "{root}/db/mine2"]  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "csv", "delta", "iceberg"])
@pytest.mark.parametrize("where", ELSEWHERE)
def test_given_a_log_that_names_another_place_than_the_one_it_stands_beside_then_no_reader_goes_there(
    tmp_path: Path, where: str, form: str
) -> None:
    timeline = logged(SourceDefinition("parquet", f"{tmp_path}/db/mine"))
    table = definition(SourceDefinition(form, where.format(root=tmp_path)))
    with pytest.raises((SourceNotAllowed, InvalidInput)):
        open_source(table, None, timeline.store.uri)
    with pytest.raises((SourceNotAllowed, InvalidInput)):
        open_source(table, {"source_roots": [f"{tmp_path}/db/oth", f"{tmp_path}/d"]}, timeline.store.uri)


def test_given_source_roots_then_a_log_elsewhere_may_name_what_lies_below_them(tmp_path: Path) -> None:
    source = SourceDefinition("parquet", f"{tmp_path}/raw/trips")
    for roots in (f"{tmp_path}/raw", [f"file://{tmp_path}/raw/"], json.dumps([str(tmp_path)]), ["/x", source.location]):
        allowed_sources.check_allowed("/logs/trips", source, {"source_roots": roots})
    for bad in ("[", 7, [7], [""], {"a": 1}):
        with pytest.raises(InvalidInput, match="source_roots"):
            allowed_sources.check_allowed("/logs/trips", source, {"source_roots": bad})


# --- options of Spark's readers ---------------------------------------------------------------------------------

SETTINGS = ["fs.file.impl", "fs.s3a.endpoint", "fs.s3a.aws.credentials.provider", "spark.hadoop.fs.s3a.endpoint",
            "parquet.crypto.factory.class", "parquet.read.support.class", "io.compression.codecs", "hadoop.security.x",
            "mapreduce.job.inputformat.class", "avroSchemaUrl", "rowTag", "url", "driver", "dbtable", "", " header",
            "header ", "he\u00e4der", "h\u0435ader", "HEADER\x00", "pathGlobFilter", "ignoreCorruptFiles"]  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json", "delta", "iceberg"])
@pytest.mark.parametrize("name", SETTINGS)
def test_given_an_option_that_is_none_of_the_reader_s_then_it_is_refused_from_a_user_and_from_a_log(
    name: str, form: str
) -> None:
    with pytest.raises(InvalidInput):
        given_options(form, {name: "java.lang.Runtime"})
    with pytest.raises(InvalidInput):
        allowed_sources.check_source(SourceDefinition(form, "/data/x", {name: "java.lang.Runtime"}))


@pytest.mark.parametrize(
    ("name", "value"), [("maxColumns", "2000000000"), ("maxCharsPerColumn", "-2"), ("inputBufferSize", "9" * 30)]
)
def test_given_a_number_that_a_parser_sets_memory_aside_by_then_it_has_a_bound(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        given_options("csv", {name: value})


def test_what_spark_documents_of_its_readers_is_taken_but_for_what_hides_rows() -> None:
    import inspect

    from pyspark.sql import DataFrameReader

    hides = {"pathglobfilter", "modifiedbefore", "modifiedafter"}
    for form in ("csv", "json", "orc", "parquet"):
        documented = {name.lower() for name in inspect.signature(getattr(DataFrameReader, form)).parameters}
        assert (
            documented - {"self", "path", "paths", "schema", "options"} - hides <= allowed_sources.READER_OPTIONS[form]
        ), form
        given_options(form, {"RecursiveFileLookup": "true"})


@pytest.mark.parametrize(("form", "version"), [("delta", "\u00b2"), ("delta", "-1"), ("delta", "9" * 40), ("csv", "1"),
                                               ("iceberg", "1e5"), ("iceberg", "main")])  # fmt: skip
def test_given_a_version_that_the_format_cannot_have_then_it_is_refused(form: str, version: str) -> None:
    with pytest.raises(InvalidInput, match="version"):
        allowed_sources.check_source(SourceDefinition(form, "/data/x", version=version))
