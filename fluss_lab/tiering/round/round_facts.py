"""The facts of a round that the coordinator keeps in the table's history, as a message."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.table_lag import TableLag


def round_facts(
    report: TieringReport | None, seconds: Mapping[str, float], before: TableLag | None, after: TableLag | None
) -> pb.PbRoundFacts:
    """Return what is kept of a round.

    Args:
        report: What it did; None: it failed.
        seconds: By stage, and in all; ``finish`` is the report to the coordinator itself, and not kept.
        before: How far the lake lagged when it was planned; None: it was not, or that is not known.
        after: How far it lagged at its end; None: that is not known.
    """
    facts = pb.PbRoundFacts(
        plan_ms=_ms(seconds, "plan"),
        write_ms=_ms(seconds, "write"),
        commit_ms=_ms(seconds, "commit"),
        maintain_ms=_ms(seconds, "maintain"),
        total_ms=_ms(seconds, "total"),
    )
    if report is not None:
        facts.row_count, facts.event_count, facts.files = report.rows, report.events, report.files
        facts.size_in_bytes, facts.splits, facts.is_limited = report.bytes, report.splits, report.is_limited
        if report.snapshot_id is not None:
            facts.snapshot_id = report.snapshot_id
    if before is not None and before.is_complete:
        facts.records_before, facts.lag_ms_before = before.records, before.ms
    if after is not None and after.is_complete:
        facts.records_after, facts.lag_ms_after = after.records, after.ms
    return facts


def _ms(seconds: Mapping[str, float], stage: str) -> int:
    return round(seconds.get(stage, 0.0) * 1000)
