"""The union read of a table at one moment: lake and log as one, in Arrow and pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fluss_lab.display import Grid, Key, card, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import CorruptDataError
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.log_retention import Gap, is_vouched, warn_of_gaps, without_gaps
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.row_export import TableRead
from fluss_lab.read.union.pk_merge import keyed_count
from fluss_lab.read.union.read_columns import BATCH_ROWS, OFFSET, Columns, limit_rows, make_columns, rebatch
from fluss_lab.read.union.read_explanation import ExplainedBucket, Explanation
from fluss_lab.read.union.read_parts import MOVED, BucketPart, Plan, Request, Selection
from fluss_lab.read.union.read_plan import make_plan, read_rows, wanted_parts, with_first_answers
from fluss_lab.read.union.row_pages import RowPages


@check_arguments
class Scan(TableRead):
    """A read of a table at one moment. Nothing is read until its rows are asked for.

    The moment is the read point given, else the latest at the first use of the scan; from then on it stays, so that
    everything asked of one scan agrees. Make a new scan to see newer records. Rows come by partition name, bucket and
    offset.

    Made by `Table.scan`.
    """

    def __init__(
        self,
        source: TableSource,
        point: Callable[[], ReadPoint],
        columns: Columns,
        selection: Selection,
        limit: int | None = None,
        spark: Callable[[Scan], Any] | None = None,
        *,
        skips_gaps: bool = False,
    ) -> None:
        self.source = source
        self.columns = columns
        self.selection = selection
        self.limit = limit
        self.skips_gaps = skips_gaps
        self._take = point
        self._point: ReadPoint | None = None
        self._spark = spark

    @property
    def read_point(self) -> ReadPoint:
        """Return the moment that is read; it is taken now if it was not yet."""
        if self._point is None:
            self._point = self._take()
        return self._point

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return self.columns.schema()

    # -- rows ---------------------------------------------------------------------------------------------------------

    def to_batches(self, rows_max: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are read, in batches of up to `rows_max`, and of about 64 MB.

        Memory stays bounded by some hundred MB however large the table is.

        Raises:
            OffsetOutOfRangeError: Records of the read point are held nowhere any more.
        """
        return rebatch(self._rows(), self.schema, rows_max)

    def count(self) -> int:
        """Return how many rows there are.

        Cost: without a filter that looks into rows, metadata only; of a primary-key table also its log's end, and what
        the lake format has to read of its deletes.
        """
        if self.limit == 0:
            return 0
        self._vouch()
        # The narrowest thing to read: offsets come along anyway.
        request = Request(make_columns(self.source.info.schema, [OFFSET]), self.selection.filter, self.limit)
        total = 0
        with self.source.watch("counting rows of {}"):
            plan = self.plan()
            if request.filter is not None or not self.source.info.is_log_table:
                plan = with_first_answers(self.source, plan, request)
            for part in plan.parts:
                total += self._count(replace(plan, parts=(part,)), request)
                if self.limit is not None and total >= self.limit:
                    return self.limit
        return total

    def _count(self, plan: Plan, request: Request) -> int:
        """Return how many rows the one part of a plan has; of a limited scan maybe fewer, but not below the limit."""
        (part,) = plan.parts
        if self.source.info.is_log_table:
            if (known := part.record_count) is not None and is_vouched(self.source, part):
                return known
        elif part.filter is None and part.row_stop is None and part.start == 0 and not part.live:
            try:
                return keyed_count(self.source, part, request)
            except (*MOVED, CorruptDataError):
                pass  # what has moved is found again by reading
        total = 0
        for batch in read_rows(self.source, plan, request):
            total += batch.num_rows
            if self.limit is not None and total >= self.limit:
                break
        return total

    def pages(self, *, timestamps: bool = True) -> RowPages:
        """Return the rows by pages, at any row of them, with where each came from. Close it.

        Args:
            timestamps: Whether the places of rows have their times. Of a primary-key table at a past moment these may
                need records that have left the cluster, which is an `UnsupportedError` then.

        Raises:
            OffsetOutOfRangeError: Records of the read point are held nowhere any more.

        Cost: the read point is taken and the read is planned now; rows are read by pages.
        """
        self._vouch()
        request = Request(self.columns, self.selection.filter, self.limit)
        return RowPages(self.source, self.plan(), self.read_point, request, timestamps=timestamps)

    # -- planning -----------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return what is read now: files of the lake, ranges of the log. For those who carry it out elsewhere."""
        point = self.read_point
        parts, gaps = self._without_gaps(wanted_parts(self.source, point, self.selection))
        if gaps:
            warn_of_gaps(self.source, gaps)
        if self.limit is not None and self.source.info.is_log_table:
            cut = _cut(parts, self.limit)
            plan = make_plan(self.source, cut, self.selection.filter, point.snapshot_id)
            if _is_all(cut, parts) or sum(part.record_count or 0 for part in plan.parts) >= self.limit:
                return plan
        return make_plan(self.source, parts, self.selection.filter, point.snapshot_id)

    def _vouch(self) -> None:
        """See that what is said of the cluster's part without reading it is known as of now."""
        is_new = self._point is None
        if not (self.read_point and is_new and self.source.is_looked_at) and self.source.info.is_log_table:
            self.source.look()

    def _without_gaps(self, parts: list[BucketPart]) -> tuple[list[BucketPart], list[Gap]]:
        """Return what is read, and what is left out of it because it is no longer available."""
        if not self.skips_gaps:
            return parts, []
        self.source.look()
        return without_gaps(self.source, parts)

    def explain(self) -> Explanation:
        """Return what will be read and what is left alone, without reading it."""
        self._vouch()
        point = self.read_point
        plan = self.plan()
        known = {part.key for part in plan.parts}
        _, gaps = self._without_gaps(wanted_parts(self.source, point, self.selection))
        every = self._without_gaps(wanted_parts(self.source, replace(point, unknown=()), Selection()))[0]
        unpruned = make_plan(self.source, every, None, plan.snapshot_id or point.snapshot_id)
        comparable = plan.snapshot_id in {None, unpruned.snapshot_id}
        return Explanation(
            title=f"Scan of {repr(point).strip('<>')}",
            snapshot_id=plan.snapshot_id,
            buckets=[self._explain_part(part) for part in plan.parts],
            files_pruned=len(unpruned.splits) - len(plan.splits) if comparable else 0,
            buckets_pruned=sum(key not in known for key in point.keys),
            filter=None if self.selection.filter is None else self.selection.filter.text,
            limit=self.limit,
            skipped=[str(gap) for gap in gaps],
        )

    def _explain_part(self, part: BucketPart) -> ExplainedBucket:
        log: tuple[int, int] = (part.log_start, part.stop)
        if part.live:
            known = self.source.known_state(part.bucket)
            log = (part.stop, part.stop if known is None else known.end)
        return ExplainedBucket(
            partition=part.partition,
            bucket=part.bucket.bucket,
            lake=(part.start, part.lake_stop) if part.lake_stop > part.start else None,
            files=len(part.splits),
            rows=sum(split.rows for split in part.splits),
            size_bytes=sum(split.size_bytes for split in part.splits),
            log=log if log[0] < log[1] else None,
            delete_files=len({deletes for split in part.splits for deletes in split.deletes}),
            live=part.live,
        )

    def _rows(self, plan: Plan | None = None) -> Iterator[pa.RecordBatch]:
        request = Request(self.columns, self.selection.filter, self.limit)
        return limit_rows(read_rows(self.source, plan or self.plan(), request), self.limit)

    def _fix(self) -> None:
        self.read_point  # noqa: B018

    def _watched_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with their number shown where a person watches."""
        with self.source.watch("reading {}") as waiting:
            if waiting is None:
                yield from self._rows()
                return
            plan = self.plan()
            counts = [part.record_count for part in plan.parts]
            if self.limit is None and self.source.info.is_log_table:
                waiting.plan(0 if None in counts else sum(filter(None, counts)))
            for batch in self._rows(plan):
                waiting.add(batch.num_rows, batch.nbytes)
                yield batch

    # -- for people ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        when = "the latest at first use" if self._point is None else repr(self._point)
        return f"<Scan {self.source.info.path}: {', '.join(self._describe_parts())}; at {when}>"

    def _describe_parts(self) -> list[str]:
        parts = [f"{len(self.columns.names)} columns"]
        if self.selection.filter is not None:
            parts.append(f"where {short(self.selection.filter.text, 200)}")
        if self.selection.partitions is not None:
            parts.append(f"partitions {short(', '.join(sorted(self.selection.partitions)), 200)}")
        if self.selection.buckets is not None:
            parts.append(f"buckets {short(', '.join(map(str, sorted(self.selection.buckets))), 200)}")
        if self.limit is not None:
            parts.append(f"limit {self.limit:,}")
        if self.skips_gaps:
            parts.append("without what is gone")
        return parts

    def _repr_html_(self) -> str:
        schema, chosen, point = self.schema, self.selection, self._point
        rows = [[field.name, str(field.type)] for field in list(schema)[:CARD_ROWS_MAX]]
        at = "the latest at first use" if point is None else format_moment(point.moment_ms)
        keys, notes = self._parts()
        return card(
            "Scan",
            self.source.info.path,
            [
                ("columns", len(schema)),
                ("where`", None if chosen.filter is None else chosen.filter.text),
                ("partitions", None if chosen.partitions is None else ", ".join(sorted(chosen.partitions))),
                ("buckets", None if chosen.buckets is None else ", ".join(map(str, sorted(chosen.buckets)))),
                ("limit", self.limit),
                ("at", at),
            ],
            notes=notes,
            keys=keys,
            grid=Grid(["column", "type"], rows),
            total=len(schema),
            noun="column",
            last="Nothing is read yet.",
            calls=[".to_pandas()", ".to_arrow()", ".count()", ".explain()"],
        )

    def _parts(self) -> tuple[list[Key], list[str]]:
        """Return what would come from lake and log if it were read now, or why that is not known.

        The scan itself stays as it is: its moment is not taken by being shown.
        """
        fixed = self._point
        take = self._take if fixed is None else lambda: fixed
        try:
            source = self.source.fresh()
            other = Scan(source, take, self.columns, self.selection, self.limit, skips_gaps=self.skips_gaps)
            return other.explain().keys(), []
        except Exception as error:  # what is shown must not fail
            return [], [str(error) or type(error).__name__]


def _cut(parts: list[BucketPart], limit: int) -> list[BucketPart]:
    """Drop what lies beyond the first `limit` rows, if each offset is one row: others may have deleted some in the lake."""
    kept: list[BucketPart] = []
    for part in parts:
        if limit <= 0:
            break
        if part.filter is None:
            part = replace(part, stop=min(part.stop, part.start + limit))  # noqa: PLW2901 - the same part, shorter
            limit -= part.stop - part.start
        kept.append(part)
    return kept


def _is_all(cut: Sequence[BucketPart], parts: Sequence[BucketPart]) -> bool:
    """Return whether nothing was cut off parts."""
    return [(part.key, part.stop) for part in cut] == [(part.key, part.stop) for part in parts]
