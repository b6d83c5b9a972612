"""Which names the reference has, page by page, read from the sources: nothing is imported.

``tests/documents.py`` holds that no public name is missing; ``hooks.py`` makes the pages of the site.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Page:
    """A page of the reference: what it is called, for whom it is, and the names on it, in their order.

    :param methods: whether a reader calls methods of the classes; those of an operator are for Airflow to call.
    :param names: by their full names, as they are imported.
    :param modules: whose ``__all__`` follows; of one without, every public class and function of its own.
    """

    file: str
    title: str
    first_line: str
    modules: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    methods: bool = True


PAGES = (
    Page(
        "tables",
        "Tables and queries",
        "For those who call a table from Python, with a Spark session: making, writing, reading, indexes, plain SQL.",
        ("spark_apps",),
        (
            "spark_apps.IndexedTable",
            "spark_apps.enable",
            "spark_apps.disable",
            "spark_apps.explain",
            "spark_apps.Receipt",
            "spark_apps.IncludedColumns",
            "spark_apps.register_data_source",
            "spark_apps.open_table",
            "spark_apps.arrow_table.OpenTable",
            "spark_apps.optimizer.session.QueryExplanation",
            "spark_apps.optimizer.session.ScanDecision",
            "spark_apps.query.explain.Explanation",
            "spark_apps.advisor.advice.Advice",
            "spark_apps.advisor.advice.Proposal",
            "spark_apps.workload.asked.AskedQuery",
            "spark_apps.query.explain.LocatedFile",
            "spark_apps.indexes.registry.allow",
        ),
    ),
    Page("sql", "SQL", "For those who run scripts of SQL from Python.", ("spark_apps.sql",)),
    Page(
        "operators",
        "Operators",
        "For authors of DAGs: every operator, its arguments, and how an example DAG uses it.",
        ("airflow_provider_index.operators",),
        (
            "airflow_provider_index.connected.Connected",
            "airflow_provider_index.connected.OnTable",
            "airflow_provider_index.operators.base.TableOperator",
            "airflow_provider_index.operators.base.SparkTableOperator",
            "airflow_provider_index.operators.base.IndexOperator",
        ),
        methods=False,
    ),
    Page(
        "sensors",
        "Sensors",
        "For authors of DAGs that wait: every sensor, its arguments, and how an example DAG uses it.",
        ("airflow_provider_index.sensors",),
        ("airflow_provider_index.sensors.timeline.TimelineSensor",),
        methods=False,
    ),
    Page(
        "task_groups",
        "Task groups and maintenance",
        "For authors of DAGs of several tasks: windows, transactions, nightly maintenance.",
        ("airflow_provider_index.task_groups", "airflow_provider_index.maintenance"),
    ),
    Page(
        "events",
        "Assets, triggers, metrics",
        "For authors of DAGs that begin when something has happened, and for those who watch.",
        ("airflow_provider_index.assets", "airflow_provider_index.triggers"),
        ("airflow_provider_index.metrics.record_reading",),
        methods=False,
    ),
    Page(
        "running",
        "Hooks, runners, testing",
        "For those who connect Airflow, Spark and tables, and test it.",
        (
            "airflow_provider_index.hooks",
            "airflow_provider_index.runners",
            "airflow_provider_index.runners.wrapping",
            "airflow_provider_index.testing",
        ),
        (
            "spark_apps.jobs.bundle.make_bundle",
            "spark_apps.jobs.job.encode_job",
            "spark_apps.jobs.job.job_argument",
        ),
    ),
    Page(
        "log",
        "Log and transactions",
        "For those who read a table's log or commit without Airflow.",
        (),
        (
            "spark_apps.timeline.log.Timeline",
            "spark_apps.storage.store.Store",
            "spark_apps.timeline.transactions.begin",
            "spark_apps.timeline.transactions.resume",
            "spark_apps.actions.template.Stage",
        ),
    ),
    Page(
        "extending",
        "Kinds, rules and hashes of your own",
        "For those who write an index kind, a rule engine or a hash function.",
        ("spark_apps.indexes.handler", "spark_apps.indexes.file_kinds"),
        (
            "spark_apps.indexes.comparison.ArrowReader",
            "spark_apps.indexes.comparison.Comparison",
            "spark_apps.indexes.comparison.Part",
            "spark_apps.indexes.lineage.Coverage",
            "spark_apps.indexes.lineage.LINEAGE",
            "spark_apps.indexes.lineage.entry_files",
            "spark_apps.indexes.lineage.indexable",
            "spark_apps.indexes.lineage.stage_id",
            "spark_apps.indexes.ranges.NOTHING",
            "spark_apps.indexes.ranges.Range",
            "spark_apps.layout.hash_functions.HashFunction",
            "spark_apps.layout.partitions.parse_partition_path",
            "spark_apps.layout.rules.RuleEngine",
            "spark_apps.mergetree.blocks.located",
            "spark_apps.mergetree.blocks.read_footers",
            "spark_apps.mergetree.schema.column",
            "spark_apps.mergetree.schema.resolve",
            "spark_apps.mergetree.schema.struct_type",
            "spark_apps.mergetree.write.lineage",
            "spark_apps.timeline.files.DataFile",
            "spark_apps.timeline.files.GroupKey",
            "spark_apps.timeline.model.AddFile",
            "spark_apps.timeline.model.MarkCovered",
            "spark_apps.timeline.model.RemoveFile",
            "spark_apps.timeline.model.Write",
            "spark_apps.timeline.model.shard_scope",
        ),
    ),
    Page("errors", "Errors", "For those who catch errors by name.", ("spark_apps.storage.errors",)),
)

NOT_NAMES = {"spark_apps.__version__", "spark_apps.sql"}
"""Of ``__all__``: what is no class and no function."""


@cache
def source(module: str) -> tuple[Path, ast.Module]:
    """Return the file of a module and its tree."""
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path, ast.parse(path.read_text(encoding="utf-8"))


def public_names(module: str) -> list[str]:
    """Return the public names of a module: its ``__all__``, else the classes and functions that it defines."""
    _, tree = source(module)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))  # type: ignore[union-attr]
    own = (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in own if not node.name.startswith("_")]


def names(page: Page) -> list[str]:
    """Return the full names on a page, in their order."""
    public = [*page.names, *(f"{module}.{name}" for module in page.modules for name in public_names(module))]
    return [name for name in dict.fromkeys(public) if name not in NOT_NAMES]


def definition(name: str) -> tuple[str, ast.AST]:
    """Return the module in which a name is defined, and what defines it; names that are handed on are followed.

    :raises LookupError: if it is defined nowhere.
    """
    module, _, last = name.rpartition(".")
    path, tree = source(module)
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                if (one.asname or one.name) == last and node.module and not node.level:
                    return definition(f"{node.module}.{one.name}")
        elif last in _defined(node):
            return module, node
    raise LookupError(f"{name} is not defined in {path.relative_to(ROOT)}")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those behind an ``if`` too."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else [node]


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}
