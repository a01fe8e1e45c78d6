"""The checks that tests of primary-key tables share: of the rows and changes in the lake, against a history."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from fluss_lab.lake import FetchContext
from fluss_lab.lake.snapshot_summary import REPLAY_START_KEY
from fluss_lab.model import TableInfo
from fluss_lab.testing.conformance.keyed.keyed_history import KeyedHistory
from fluss_lab.testing.conformance.kit import COLUMNS, LakeFormat, LakeKit, LakeWrite
from fluss_lab.testing.rows import plain, plain_rows


class KeyedChecks(LakeFormat):
    """A format's primary-key tables under test."""

    #: Whether the format's `FlussLogSource` reads changelogs of primary-key tables back.
    replays_changes: ClassVar[bool] = False

    @pytest.fixture
    def keyed(self, kit: LakeKit) -> LakeKit:
        """Give a lake that holds primary-key tables."""
        self.needs_keyed_tables()
        return kit

    def keyed_table(self, kit: LakeKit, *, buckets: int = 2, partitioned: bool = False) -> TableInfo:
        """Create the table that `KeyedHistory` is of."""
        if partitioned:
            columns = {**COLUMNS, "p": "string"}
            return kit.table(columns, primary_key=["id", "p"], partitioned_by=["p"], buckets=buckets)
        return kit.table(COLUMNS, primary_key=["id"], buckets=buckets)

    def tier_snapshot_and_log(
        self, kit: LakeKit, history: KeyedHistory, rng: random.Random, after: int
    ) -> tuple[int, int]:
        """Commit a first round from a key-value snapshot and the log behind it; return the replay start and the lake's snapshot.

        Args:
            history: Goes on by 60 changes, which the snapshot has, and by `after` more.
        """
        history.go_on(rng, 60)
        start = history.end
        history.go_on(rng, after)
        splits = [
            kit.write(history.info, history.snapshot(start), alone=False),
            kit.write(history.info, history.records(start, history.end), alone=False),
        ]
        starts = json.dumps([{"bucket": 0, "offset": start}])
        return start, kit.commit(history.info, *splits, **{REPLAY_START_KEY: starts})

    def check_state(self, kit: LakeKit, histories: Sequence[KeyedHistory], ends: Sequence[int] | None = None) -> None:
        """Assert that the lake holds exactly the rows that the histories leave."""
        info = histories[0].info
        names = [*info.schema.names, "__bucket", "__offset"]
        expected = [
            {**row, "__bucket": history.bucket, "__offset": offset}
            for number, history in enumerate(histories)
            for offset, row in history.state(None if ends is None else ends[number]).items()
        ]
        rows = self.read_state(kit.storage, info).select(names)
        wanted = plain_rows([{name: row.get(name) for name in names} for row in expected])
        assert sorted(map(_order, plain(rows))) == sorted(map(_order, wanted))

    def check_changes(self, kit: LakeKit, history: KeyedHistory, start: int = 0) -> None:
        """Assert that a bucket's log reads back as it was, where the format reads changes back."""
        newest = kit.newest(history.info)
        if not self.replays_changes or newest is None or start >= history.end:
            return
        context = FetchContext(start, history.end, history.partition, history.bucket, newest)
        found = [
            (change, offset, timestamp, previous, row)
            for run in kit.log_source(history.info).fetch_log_records(context)
            for change, offset, timestamp, previous, row in zip(
                (run.change_types or pa.nulls(0)).to_pylist(),
                run.offsets.to_pylist(),
                run.timestamps_ms.to_pylist(),
                (run.previous_offsets or pa.nulls(0)).to_pylist(),
                run.rows.to_pylist(),
                strict=True,
            )
        ]
        assert found == [
            (change.change_type, change.offset, change.timestamp_ms, change.previous_offset, change.row)
            for change in history.changes
            if change.offset >= start
        ]

    def write_history(self, kit: LakeKit, history: KeyedHistory, ranges: Sequence[tuple[int, int]]) -> list[LakeWrite]:
        """Write ranges of a history as the splits of one round."""
        return [
            kit.write(history.info, history.records(*each), history.bucket, history.partition, alone=len(ranges) == 1)
            for each in ranges
        ]


def _order(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row as something that sorts and compares, whatever its values are."""
    return [(name, repr(row[name])) for name in sorted(row)]
