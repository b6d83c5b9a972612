"""Files folded and buckets counted anew: the part of a table's face for its layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from spark_apps.actions.compact import CompactTable
from spark_apps.actions.rescale import Rescale, rescale
from spark_apps.actions.rules import NewRules, Rollback, RuleChange, RuleVersion, rule_versions
from spark_apps.face.base import Face
from spark_apps.layout.rules import Expressions
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    pass


class LayoutFace(Face):
    """Compacts the table or an index, and changes bucket rules and counts."""

    def compact(
        self,
        name: str | None = None,
        mode: Literal["quick", "full"] = "full",
        partitions: Iterable[str] | None = None,
        *,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Folds files, of the index ``name`` or else of the table's own file groups. The rows stay the same.

        :param mode: ``full``: each group into one base file. ``quick``: only deltas with deltas.
        :param partitions: confine a compaction of the table to these paths.
        :raises IndexNotFound: :raises InvalidInput:
        """
        if name is None:
            return self._run(CompactTable(mode, partitions), txn_id, window)
        from spark_apps.actions.indexing import CompactIndex

        return self._run(CompactIndex(name, mode), txn_id, window)

    def rescale(
        self,
        buckets: int | None = None,
        bucket_rule: str | None = None,
        bucket_expressions: Expressions | None = None,
        partitions: Iterable[str] | None = None,
        *,
        add: Expressions | None = None,
        plan_only: bool = False,
        drain_seconds: float = 600.0,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Gives the table new bucket rules, and every partition (or those named) the count that they say.

        Only partitions whose count changes are written anew; without any, no window is opened. Without arguments
        the partitions are brought in line with the rules there are.

        :param buckets: the count where no rule matches; as it is, if not given.
        :param bucket_rule: name of the rule engine: "regex" (the default), "range", or a user's.
        :param bucket_expressions: rules as in :meth:`create`, the document's ``overwrite``. They come first; what
            they do not match, the rules of older configs still decide, as the document says.
        :param add: the document's ``add``: the same, read by the engine of the newest rules if none is named.
        :param window: epoch of the caller's stop-write window; without it one is opened over the partitions
            and closed again.
        :param plan_only: return the :class:`~spark_apps.actions.rescale.RescalePlan` and do nothing.
        :returns: the receipt, or the plan.
        :raises InvalidRule: :raises WindowNotOpen: :raises StopWriteWindowOpen: :raises DrainTimeout:
        """
        change = NewRules(buckets, bucket_rule, bucket_expressions, add)
        return self._rescale(change, partitions, plan_only, drain_seconds, txn_id, window)

    def rollback_rescale(
        self,
        instant: str | None = None,
        *,
        plan_only: bool = False,
        drain_seconds: float = 600.0,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Takes a change of the bucket rules back, and gives its partitions the counts from before it.

        Rows written since stay. Partitions made since get the counts that the remaining rules say.

        :param instant: of the change, as :meth:`bucket_rules` tells it; the newest if not given.
        :returns: the receipt; with ``plan_only`` the plan. The other arguments are those of :meth:`rescale`.
        :raises InvalidRule: if there is no such change, or it is what the table was made with.
        """
        change = Rollback(self._handle.timeline, instant)
        return self._rescale(change, None, plan_only, drain_seconds, txn_id, window)

    def bucket_rules(self) -> list[RuleVersion]:
        """The bucket rules in force in this version, newest first: that is the order in which they are asked."""
        return rule_versions(self._state)

    def _rescale(
        self,
        change: RuleChange,
        partitions: Iterable[str] | None,
        plan_only: bool,
        drain_seconds: float,
        txn_id: str | None,
        window: int | None,
    ) -> Any:
        self._check_writable()
        action = Rescale(change, partitions, self._handle.timeline)
        if plan_only:
            return self._planned(action)
        receipt = rescale(self._handle, action, txn_id=txn_id, window=window, drain_seconds=drain_seconds)
        return self._moved_to(receipt)
