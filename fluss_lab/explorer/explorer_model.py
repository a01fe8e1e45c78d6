"""The model of an explorer: each request of a view answered from the lab, without a widget and without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fluss_lab.errors import InvalidRequestError
from fluss_lab.explorer.explored_lab import ExploredLab
from fluss_lab.explorer.explorer_answers import Answer, Steps, as_given
from fluss_lab.explorer.explorer_requests import (
    AnyRequest,
    BucketRequest,
    BucketsRequest,
    ChangeRequest,
    ChangesRequest,
    CompactRequest,
    CountRequest,
    DiffRequest,
    DiffRowsRequest,
    FactsRequest,
    FollowRequest,
    FormRequest,
    HeadRequest,
    HealthRequest,
    JobsRequest,
    LakePartRequest,
    LakeRequest,
    LeaveRequest,
    PageRequest,
    RoundRequest,
    RowRequest,
    SchemaRequest,
    SnapshotsRequest,
    TailRequest,
    TieringRequest,
    TreeRequest,
    WriteRequest,
    kind_of,
)
from fluss_lab.explorer.screens.change_answers import ChangeAnswers
from fluss_lab.explorer.screens.diff_answers import DiffAnswers
from fluss_lab.explorer.screens.health_answers import HealthAnswers
from fluss_lab.explorer.screens.job_answers import JobAnswers
from fluss_lab.explorer.screens.lake_answers import LakeAnswers
from fluss_lab.explorer.screens.live_tail import LiveTails
from fluss_lab.explorer.screens.record_form import RecordForm
from fluss_lab.explorer.screens.row_answers import RowAnswers
from fluss_lab.explorer.screens.shown_tables import ShownTables
from fluss_lab.explorer.screens.table_answers import TableAnswers
from fluss_lab.explorer.screens.table_tree import TableTree
from fluss_lab.explorer.screens.tiering_answers import TieringAnswers
from fluss_lab.explorer.table_actions import ClickLedger, TableActions
from fluss_lab.explorer.texts.column_mask import ColumnMask


class ExplorerModel:
    """Answers the requests of the views of one widget. Each kind of request is answered on one thread.

    Args:
        lab: Whose tables are shown.
        name: What the lab is called.
        mask: Columns that no answer names or shows.
        read_only: Whether requests that change something are refused.

    Attributes:
        rows: The answers about grids of rows.
    """

    def __init__(self, lab: ExploredLab, name: str, mask: Iterable[str] = (), *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._shown = shown = ShownTables(lab, ColumnMask(mask))
        tree = TableTree(shown, name)
        tables = TableAnswers(shown, tree)
        self._changes = ChangeAnswers(shown)
        self.rows = RowAnswers(shown)
        lake, diff = LakeAnswers(shown), DiffAnswers(shown)
        self._tails = LiveTails(shown)
        jobs, health = JobAnswers(lab, shown), HealthAnswers(lab, shown)
        actions, form = TableActions(shown), RecordForm(shown)
        self._ledger, self._job_ledger = ClickLedger(), ClickLedger()
        #: What answers a kind of request: with one answer, or with the steps to several.
        self._answerers: dict[type[AnyRequest], Callable[[Any], Answer | Steps]] = {
            TreeRequest: lambda asked: tree.answer(asked) | {"jobs": jobs.count(), "findings": health.count()},
            JobsRequest: jobs.answer,
            HealthRequest: health.answer,
            HeadRequest: lambda asked: tables.head(asked) | actions.running(asked.table),
            SchemaRequest: tables.schema,
            BucketsRequest: tables.buckets,
            BucketRequest: tables.bucket,
            SnapshotsRequest: tables.snapshots,
            PageRequest: self.rows.page,
            CountRequest: self.rows.count,
            FactsRequest: self.rows.facts,
            RowRequest: self.rows.row,
            LakeRequest: lake.timeline,
            LakePartRequest: lake.part,
            DiffRequest: diff.compare,
            DiffRowsRequest: diff.rows,
            ChangesRequest: self._changes.answer,
            ChangeRequest: self._changes.record,
            TailRequest: self._tails.follow,
            LeaveRequest: self._leave,
            TieringRequest: TieringAnswers(shown).tiering,
            RoundRequest: actions.round,
            CompactRequest: actions.compact,
            FollowRequest: actions.follow,
            FormRequest: form.form,
            WriteRequest: form.write,
        }

    def steps(self, request: AnyRequest) -> Steps:
        """Yield what answering takes: None between steps, answers when they are there. Errors are answers too."""
        kind = kind_of(request)
        try:
            for answer in self._answers(request):
                yield None if answer is None else as_given({"kind": kind, **answer})
        except Exception as error:  # whatever it is, the view shows it
            yield {"kind": kind, "error": self._shown.error_answer(error)}

    def _answers(self, request: AnyRequest) -> Steps:
        if self._read_only and request.writes:
            raise InvalidRequestError("explore: this explorer is read-only (read_only=True): it changes nothing")
        answerer = self._answerers[type(request)]
        if (click := request.click) is not None:
            # Jobs have a thread of their own.
            ledger = self._job_ledger if isinstance(request, JobsRequest) else self._ledger
            yield ledger.once(click, lambda: answerer(request))  # type: ignore[arg-type,return-value]
            return
        found = answerer(request)
        yield from [found] if isinstance(found, dict) else found

    def _leave(self, request: LeaveRequest) -> Answer:
        """Forget what is kept for a view that is gone."""
        self._tails.forget(request.view)
        self._changes.forget(request.view)
        return {}

    def close(self) -> None:
        """End what is followed. No request is answered meanwhile."""
        self._tails.close()
