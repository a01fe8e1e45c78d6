"""A tierer that is late, in the test's own process: it has written its files and not yet committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluss_lab.client import Connection
from fluss_lab.lake import CommitterInitContext, LakeTieringFactory
from fluss_lab.model import TableInfo
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.source_enumerator import TieringSession, TieringSourceEnumerator
from fluss_lab.tiering.round.tiering_committer import TieringCommitter, WrittenSplit
from fluss_lab.tiering.round.tiering_round import TieringRound
from fluss_lab.tiering.task.tiering_task import TaskProgress, TaskResult, TieringTask, parse_task


class Stale:
    """A round of a table that ended after its tasks, as a stop would end it; it can still be told to commit.

    Args:
        connection: To the cluster.
        info: The table.
    """

    def __init__(self, connection: Connection, info: TableInfo) -> None:
        storage = connection.lake_storage()
        assert storage is not None
        table = connection.admin().table_info(info.path)
        factory = storage.create_lake_tiering_factory()
        self.lake = factory.create_lake_committer(CommitterInitContext(table, "stale"))
        self.planned_id = self.lake.current_snapshot_id()
        with TieringSession(connection) as session:
            enumerator = TieringSourceEnumerator(connection, session.session_id, 1.0)
            assignment = enumerator.request(info.table_id)
            assert assignment is not None
            self._assignment = assignment
            recorder = _Recorder(factory)
            tiering = TieringRound(connection, storage, recorder, enumerator, assignment)
            try:
                tiering.run()
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("there was nothing to tier")
        self._written = recorder.written

    def commit(self, planned_id: int | None) -> int:
        """Commit to the lake, as if it had been planned from some snapshot."""
        return TieringCommitter(self.lake, self._assignment, "stale").commit(self._written, {}, None, planned_id)


class _Recorder(LocalTieringExecutor):
    """Writes the splits and ends the round before it can do anything with them."""

    def __init__(self, factory: LakeTieringFactory[Any, Any]) -> None:
        super().__init__()
        self._factory = factory
        self.written: list[WrittenSplit] = []

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        for task, data in zip(tasks, super().run(tasks, progress), strict=True):
            result = TaskResult.from_bytes(data)
            serializer = self._factory.write_result_serializer()
            written = serializer.deserialize(result.write_version, result.write_result)
            parsed = parse_task(task)
            assert isinstance(parsed, TieringTask)
            self.written.append(WrittenSplit(parsed.split, result.end, result.max_timestamp_ms, written))
        raise KeyboardInterrupt
