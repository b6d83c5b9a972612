"""What operators tell their apps, and what they refuse to tell them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.exceptions import AirflowProviderDeprecationWarning

from airflow_provider_index.arguments import Reader, epoch, text
from airflow_provider_index.failures import FINAL, as_airflow_error
from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators import (
    BucketRescaleOperator,
    BuildIndexOperator,
    RegisterTableOperator,
    VerifyIndexOperator,
    WriteTableOperator,
)
from spark_apps.jobs.job import Outcome, describe_error
from spark_apps.storage import errors
from spark_apps.storage.errors import InvalidInput, KeysExist, LakeIndexError
from spark_apps.timeline.model import Write, table_scope
from spark_apps.timeline.transactions import begin
from tests.airflow_provider_index.operators.plain_table import context, make_table


def write(**fields: Any) -> WriteTableOperator:
    return WriteTableOperator(task_id="t", table="/t", **fields)


def test_batches_take_what_they_do_not_say_from_the_operator() -> None:
    operator = write(source="/files", deleted="gone", batches=[{"sql": "a"}, {"operation": "delete", "deleted": None}])

    first, second = operator.arguments()["batches"]
    assert (first["operation"], first["sql"], first["deleted"]) == ("upsert", "a", "gone")
    assert (second["operation"], second["sql"]) == ("delete", None)


def test_repeated_keys_are_deleted_without_a_source() -> None:
    arguments = write(operation="delete_repeated_keys").arguments()
    assert arguments["source"] is None and [batch["operation"] for batch in arguments["batches"]] == [
        "delete_repeated_keys"
    ]


def test_the_app_is_told_the_warehouse_of_names_in_queries_which_is_no_part_of_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", '{"conn_type": "index_table_store", "extra": {"warehouse": "/wh"}}')
    context = {"ti": SimpleNamespace(dag_id="d", task_id="t")}

    assert write(sql="a", table_conn_id="lake").job(context, None).arguments["warehouse"] == "/wh"
    assert "warehouse" not in write(sql="a", table_conn_id="lake").inputs()["arguments"]
    assert "warehouse" not in write(source="/files", table_conn_id="lake").job(context, None).arguments


def test_a_table_is_made_of_a_source_with_or_without_rows_beside_it() -> None:
    create = {"record_key": ["id"], "from_source": "s3://lake/raw"}
    arguments = write(operation="insert", create=create).arguments()
    assert arguments["takes_over"] and arguments["create"] == create and arguments["source"] is None
    assert "takes_over" not in write(source="/files", create=create).arguments()
    assert "takes_over" not in write(sql="a").arguments(), "it is part of what a task's transaction is named after"
    with pytest.raises(InvalidInput, match="nothing to write"):
        write(operation="delete", create=create).arguments()


def test_each_batch_is_a_transaction_of_its_own_and_a_single_write_has_the_tasks() -> None:
    assert write(sql="a").transactions("x") == ["x"]
    assert write(batches=[{"sql": "a"}, {"sql": "b"}]).transactions("x") == ["x.000", "x.001"]


def test_files_are_read_by_options_that_spark_understands() -> None:
    source = write(source=["/a", "/b"], format="csv", options={"header": True, "sep": ";"}).arguments()["source"]

    assert source == {
        "paths": ["/a", "/b"],
        "format": "csv",
        "options": {"header": "true", "sep": ";"},
        "schema": None,
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"operation": "merge", "sql": "a"}, "operation is 'merge'"),
        ({"operation": "upsert"}, "nothing to write"),
        ({"operation": "upsert", "sql": "a", "where": "id = 1"}, "takes no predicate"),
        ({"operation": "insert", "sql": "a", "deleted": "gone"}, "takes no 'deleted'"),
        ({"operation": "upsert", "sql": "a", "until": "7"}, "takes no 'until'"),
        ({"batches": [{"operation": "insert", "sql": "a", "until": "7"}]}, "takes no 'until'"),
        ({"batches": [{"sql": "a", "table": "other"}]}, "no 'table'"),
        ({"operation": "delete_repeated_keys", "source": "/files"}, "takes no rows"),
        ({"operation": "delete_repeated_keys", "sql": "a"}, "takes no rows"),
        ({"operation": "delete_repeated_keys", "where": "id = 1"}, "takes no predicate"),
    ],
)
def test_a_write_that_makes_no_sense_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        write(**fields).arguments()


def test_a_source_that_has_changed_has_another_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    operator = write(source=str(tmp_path))
    before = operator.inputs()

    (tmp_path / "b.csv").write_text("1")

    assert operator.inputs() != before


def test_how_a_write_is_run_does_not_make_it_another_transaction() -> None:
    one = write(sql="a", conf={"spark.a": "1"}, spark_conn_id="x", poll_interval=9)

    assert one.inputs() == write(sql="a").inputs()


def test_given_a_rerun_then_a_warning_says_that_a_clear_does_it_and_it_makes_no_other_transaction() -> None:
    with pytest.warns(AirflowProviderDeprecationWarning, match="clear the task"):
        again = write(sql="a", rerun="again")

    assert again.inputs() == write(sql="a").inputs()


@pytest.mark.parametrize("kind", [RegisterTableOperator, VerifyIndexOperator])
def test_a_plan_is_refused_where_there_is_none(kind: type) -> None:
    with pytest.raises(InvalidInput, match="makes no plan"):
        kind(task_id="t", table="/t", plan_only=True)


def test_a_plan_commits_nothing() -> None:
    planning = BuildIndexOperator(task_id="t", table="/t", index="i", kind="record", plan_only=True)

    assert not planning.commits()


def test_numbers_that_a_template_made_text_are_numbers() -> None:
    rescale = BucketRescaleOperator(task_id="t", table="/t", buckets="8", window="12")

    assert rescale.arguments()["buckets"] == 8
    assert rescale.window == 12


def test_rules_of_a_rescale_are_told_as_text_or_as_pairs() -> None:
    def rules_of(**fields: Any) -> dict[str, Any]:
        arguments = BucketRescaleOperator(task_id="t", table="/t", **fields).arguments()
        return {name: value for name, value in arguments.items() if value is not None}

    assert rules_of() == {}
    assert rules_of(buckets="", bucket_expressions="", rollback="None") == {}
    assert rules_of(bucket_expressions=[(r"\d{1,2}", 8)], bucket_rule="regex", partitions=("dt=1",)) == {
        "bucket_rule": "regex",
        "bucket_expressions": [[r"\d{1,2}", 8]],
        "partitions": ["dt=1"],
    }
    assert rules_of(add="2024-11-01 <= dt,8", bucket_rule="range")["add"] == "2024-11-01 <= dt,8"
    assert rules_of(rollback=True) == rules_of(rollback="True") == {"rollback": True}
    assert rules_of(rollback="20261121170000000") == {"rollback": "20261121170000000"}
    with pytest.raises(InvalidInput, match="buckets, add beside it"):
        rules_of(rollback=True, buckets=8, add="a,8")


def test_a_source_of_another_address_or_format_is_another_registration() -> None:
    def register(**fields: Any) -> dict[str, Any]:
        return RegisterTableOperator(task_id="t", table="/lake/trips", **fields).inputs()

    assert register() == register(format="parquet")
    assert register() != register(format="delta")
    assert register(record_key=("id",))["arguments"]["record_key"] == ["id"]


@pytest.mark.parametrize("window", [None, "", "None"])
def test_no_window_is_no_window(window: str | None) -> None:
    assert epoch("window", window) is None


def test_a_window_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidInput, match="'soon' is not the epoch"):
        epoch("window", "soon")


def test_every_error_either_ends_the_task_or_may_be_retried_on_purpose() -> None:
    retried = {
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, LakeIndexError) and not issubclass(kind, FINAL)
    }

    assert retried == {
        "LakeIndexError", "CommitRefused", "ConcurrentWrite", "BucketCountMismatch", "StopWriteWindowOpen",
        "AttemptAborted", "WindowError", "DrainTimeout", "_CarriesReceipt", "AlreadyCommitted",
        "CommitStateUnknown",
        "StorageError", "ObjectNotFound", "ObjectExists", "StorageUnavailable", "JobFailed",
    }  # fmt: skip


def test_an_error_that_ends_the_task_keeps_its_name_and_words() -> None:
    error = as_airflow_error(InvalidInput("The name is bad.", hint="Use another."))

    assert type(error).__name__ == "AirflowFailException"
    assert str(error) == "InvalidInput: The name is bad. Nothing was changed. Use another."


class Noted(BuildIndexOperator):
    """An operator of a user's own, which names the reader of its argument and keeps it itself."""

    readers: ClassVar[Mapping[str, Reader]] = {**BuildIndexOperator.readers, "note": text}

    def __init__(self, *, note: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.note = note


def test_given_a_class_that_names_its_readers_itself_then_their_arguments_are_templates() -> None:
    assert Noted.template_fields == (*BuildIndexOperator.template_fields, "note")


def test_given_a_class_below_one_with_a_program_then_its_own_arguments_are_not_the_programs() -> None:
    given = {"task_id": "t", "table": "/t", "index": "i", "kind": "record"}

    assert Noted(**given, note="n").arguments() == BuildIndexOperator(**given).arguments()


class Plain(BuildIndexOperator):
    """An operator of a user's own, whose indexes carry no other columns."""

    takes_no = frozenset({"included"})


def test_given_a_class_below_that_does_not_take_an_argument_then_the_program_is_not_given_it() -> None:
    given = {"task_id": "t", "table": "/t", "index": "i", "kind": "record"}

    assert Plain(**given).arguments().keys() == BuildIndexOperator(**given).arguments().keys() - {"included"}


def test_given_rows_of_an_earlier_round_when_inserted_again_then_its_commit_is_named_and_the_way_on(
    tmp_path: Path,
) -> None:
    table = make_table(tmp_path / "t")
    operator = WriteTableOperator(task_id="load", table=table.store.uri, operation="insert", sql="a")
    first, second, other = (
        transaction_id(context(task, tries=tries), operator.inputs)
        for task, tries in (("load", 0), ("load", 1), ("other", 0))
    )
    refused = Outcome("error", error=describe_error(KeysExist("The batch holds keys.", hint="Use upsert.")))
    landed = begin(table, operation="insert", txn_id=first).commit((), writes=[Write(table_scope())])
    assert landed.version == 1

    with pytest.raises(KeysExist, match=rf"before it was cleared, in version 1 \(transaction {first}\).*the operation"):
        operator.conclude(second, refused)
    with pytest.raises(KeysExist, match=r"holds keys\. Nothing was changed\. Use upsert\.$"):
        operator.conclude(other, refused)
