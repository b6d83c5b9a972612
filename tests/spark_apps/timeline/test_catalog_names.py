"""Tables by the names that catalogs have for them: where their logs are, and what a warehouse says of a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_apps.storage.errors import InvalidName, LakeIndexError, LogDamaged, ObjectTooLarge, SourceNotAllowed
from spark_apps.storage.store import SOURCE_ROOTS, Store
from spark_apps.timeline import catalog_names
from spark_apps.timeline.allowed_sources import check_allowed
from spark_apps.timeline.catalog_names import CatalogName, Registration, split
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.model import DropTable, Field, SourceDefinition, TableDefinition, Write, table_scope
from spark_apps.timeline.transactions import begin

TABLE = TableDefinition("x", (Field("id", "int"),), ("id",))
ID = "0f5c-11"


def registered(root: Path, text: str = "prod.db.trips", table_id: str = ID) -> str:
    """Make what a registration leaves in a warehouse, and return the log's address."""
    store, name = Store(root), CatalogName.parse(text)
    log = catalog_names.log_address(store, name, table_id)
    create_table(Store(log), TABLE)
    catalog_names.write(store, Registration(str(name), "iceberg", table_id, log))
    return log


def written(root: Path, text: str, **said: str) -> None:
    """Write the file of a name by another hand."""
    name = CatalogName.parse(text)
    whole = {"name": str(name), "format": "iceberg", "id": ID, "log": f"{root}/{name.log_folder(ID)}", **said}
    Store(root).put(name.key, json.dumps(whole).encode())


def test_given_a_registered_name_then_it_is_found_in_each_spelling_and_listed_once(tmp_path: Path) -> None:
    log = registered(tmp_path)
    mine = registered(tmp_path, "db.mine")
    odd = registered(tmp_path, "prod.`my db`.`a.b`")
    create_table(Store(tmp_path / "_indexes" / "files"), TABLE)
    create_table(Store(tmp_path / "prod" / "db" / "other"), TABLE)
    warehouse = Warehouse(str(tmp_path))

    assert log == f"{tmp_path}/_indexes/prod/db/trips-{ID}"
    assert warehouse.locate("prod.db.trips") == warehouse.locate("catalog:prod.db.trips") == log
    assert warehouse.locate("db.mine") == warehouse.locate("spark_catalog.db.mine") == mine
    assert warehouse.locate("prod.`my db`.`a.b`") == odd
    assert warehouse.locate("prod.db.other") == f"{tmp_path}/prod/db/other"
    assert warehouse.locate("prod.db.none") == f"{tmp_path}/prod/db/none"
    store = warehouse.log_of(log)
    assert store is not None and store.uri == log
    tables = {table.name: table.location for table in warehouse.tables()}
    assert tables == {
        "prod.db.trips": log, "spark_catalog.db.mine": mine, "prod.`my db`.`a.b`": odd,
        "files": f"{tmp_path}/_indexes/files", "prod.db.other": f"{tmp_path}/prod/db/other",
    }  # fmt: skip
    assert all(table.state() is not None for table in warehouse.tables())


def test_given_many_names_then_a_listing_asks_once_for_each_and_lists_no_folder_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        registered(tmp_path, f"prod.db{number}.t")
    asked: list[str] = []
    for verb in ("get", "head", "list", "folders"):
        real = getattr(Store, verb)

        def counted(self: Store, *args: object, real: object = real, verb: str = verb) -> object:
            asked.append(verb)
            return real(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(Store, verb, counted)

    assert len(list(Warehouse(str(tmp_path)).tables())) == 5
    # The names, the root, the logs of its sources, and whether the catalog's folder is a source's too.
    assert sorted(asked) == ["folders"] * 2 + ["get"] * 5 + ["head", "list"]


def test_given_a_name_that_is_a_folder_too_then_both_are_named_until_the_prefix_or_a_drop_says_which(
    tmp_path: Path,
) -> None:
    log = registered(tmp_path)
    folder = Store(tmp_path / "prod" / "db" / "trips")
    timeline, _ = create_table(folder, TABLE)
    warehouse = Warehouse(str(tmp_path))

    with pytest.raises(InvalidName, match=r"trips of a catalog.*below the warehouse") as refused:
        warehouse.locate("prod.db.trips")
    assert log in str(refused.value) and folder.uri in str(refused.value)
    assert warehouse.locate("catalog:prod.db.trips") == log and warehouse.locate(folder.uri) == folder.uri

    begin(timeline, operation="drop_table", txn_id="drop").commit(
        [DropTable()], writes=[Write(table_scope(), "replace")]
    )
    assert warehouse.locate("prod.db.trips") == log


def test_given_a_table_made_anew_under_its_name_then_the_name_has_the_new_log_and_the_old_one_stays(
    tmp_path: Path,
) -> None:
    old, new = registered(tmp_path), registered(tmp_path, table_id="0f5c-22")

    assert old != new and Warehouse(str(tmp_path)).locate("prod.db.trips") == new
    assert Store(old).list("_index")


@pytest.mark.parametrize(
    "text",
    ["prod.`a/b`.t", "prod.`..`.t", "prod.db.`a\\b`", "prod..t", "prod.db.", "prod.`db.t", "prod.``.t", "a b.c.d",
     "catalog:trips", "prod.`a\nb`.t", f"prod.{'x' * 200}.t", "prod.db.t`", "`prod`db.t"],
)  # fmt: skip
def test_given_a_name_that_no_table_can_have_then_it_is_refused_and_nothing_is_made(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidName):
        Warehouse(str(tmp_path)).locate(text)
    assert list(tmp_path.iterdir()) == []


def test_given_odd_names_then_each_has_a_place_of_its_own_of_plain_letters() -> None:
    names = ["a b", "a-b", "a.b", "café", "cafe", "A b", "a`b", "x" * 110, "x" * 111]
    folders = {CatalogName(("prod", "db", name)).log_folder(ID) for name in names}

    assert len(folders) == len(names)
    assert all(set(folder) <= set("abcdefghijklmnopqrstuvwxyzAB0123456789_-/") for folder in folders)
    assert [split(str(CatalogName(("prod", name)))) for name in names] == [("prod", name) for name in names]


def test_given_a_file_of_a_name_that_says_another_place_then_it_is_refused_unless_its_reader_allows_that(
    tmp_path: Path,
) -> None:
    other = registered(tmp_path, "prod.db.secret")
    for log in (other, "/etc", "s3://elsewhere/x", f"{tmp_path}/_indexes/prod/db/trips-{ID}/../../x"):
        written(tmp_path, "prod.db.trips", log=log)
        with pytest.raises(SourceNotAllowed, match="where no log of that name has its place"):
            Warehouse(str(tmp_path)).locate("prod.db.trips")
    [broken] = [table for table in Warehouse(str(tmp_path)).tables() if table.trouble is not None]
    assert broken.name == "prod.db.trips"

    written(tmp_path, "prod.db.trips", log="s3://mine/x")
    allowing = Warehouse(str(tmp_path), {SOURCE_ROOTS: ["s3://mine"]})
    assert allowing.locate("prod.db.trips") == "s3://mine/x"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"name": "prod.db.secret"}, LogDamaged),
        ({"name": "../../etc"}, InvalidName),
        ({"id": "../x"}, LogDamaged),
        ({"id": "x" * 200}, LogDamaged),
        ({"log": "x" * 70_000}, ObjectTooLarge),
    ],
)
def test_given_a_file_of_a_name_with_something_that_cannot_be_then_it_is_refused(
    tmp_path: Path, said: dict[str, str], error: type[LakeIndexError]
) -> None:
    written(tmp_path, "prod.db.trips", **said)
    with pytest.raises(error):
        Warehouse(str(tmp_path)).locate("prod.db.trips")
    assert [table.trouble is None for table in Warehouse(str(tmp_path)).tables()] == [False]


def test_given_a_log_at_the_place_of_a_name_then_it_may_name_that_table_alone(tmp_path: Path) -> None:
    options = Warehouse(str(tmp_path)).reader_options

    def source(identifier: str, identity: str | None = ID) -> SourceDefinition:
        given = {"catalog": "prod", "identifier": identifier, "reader": "spark"}
        return SourceDefinition("iceberg", "s3://lake/db/trips", given, identity=identity)

    log = f"{tmp_path}/_indexes/prod/db/trips-{ID}"
    check_allowed(log, source("db.trips"), options)
    for named, where, given in (
        (source("db.secret"), log, options),
        (source("db.trips", "other"), log, options),
        (source("db.trips", None), log, options),
        (source("db.trips"), f"{tmp_path}/_indexes/prod/db/trips", options),
        (source("db.trips"), log, {}),
        (source("db.trips"), log, Warehouse("/elsewhere").reader_options),
        (SourceDefinition("iceberg", "s3://lake/db/trips", {}, identity=ID), log, options),
    ):
        with pytest.raises(SourceNotAllowed):
            check_allowed(where, named, given)
