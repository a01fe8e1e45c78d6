"""The audit of a lake table in a catalog that shows the newest snapshot only and forgets tags, as Nessie does."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from fluss_lab.model import LakeSnapshot
from tests.readers.audit import LakeAudit, Logs, check_within
from tests.readers.lake_files import Place, replay_snapshots


class NewestAudit(LakeAudit):
    """Holds what is shown against the logs: the state always, the events where no compaction retires any."""

    def check_events(self, table: Table, logs: Logs, ends: Mapping[Place, int]) -> None:
        if not self._history.kind.is_keyed:
            super().check_events(table, logs, ends)
            return
        for snapshot in replay_snapshots(table):
            check_within(self._files.of(table, snapshot))

    @staticmethod
    def _number(table: Table, known: LakeSnapshot) -> int:
        """Return 0 of a snapshot that is not shown: all that are shown came after it."""
        snapshot = table.snapshot_by_id(known.snapshot_id)
        return 0 if snapshot is None else snapshot.sequence_number or 0
