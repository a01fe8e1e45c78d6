"""A round's files made ready for the table as it is: deletes placed where the rows are now.

Writers place deletes in the files of the planned snapshot. What they could not place (the row may be in another split of
the same round) is placed here, when all files of the round are known; and when somebody else's compaction has put the
rows into other files meanwhile, all deletes of the round are placed anew. Data files stay as they are.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.commit.replay_tags import with_replay_start
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.metadata.snapshot_builder import StagedSnapshot, stage_row_delta
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, lake_file, snapshot_state
from fluss_lab.lake.iceberg.table.layout import LakeLayout, checked_layout
from fluss_lab.lake.iceberg.write.delete_writer import place_again
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergCommittable, IcebergWriteResult
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile, offset_files
from fluss_lab.lake.iceberg.write.write_target import WriteTarget
from fluss_lab.model.config.options import DATALAKE_DELETE_MODE
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from fluss_lab.lake.format_interfaces import CommitterInitContext

_LOG: Final = logging.getLogger(__name__)
#: Passed after the deletes of each bucket were placed; see also `fluss_lab.lake.iceberg.commit.snapshot_commit`.
FAILPOINTS: Final = ("lake.place.after",)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Delete files that are right for one snapshot.

    Attributes:
        deletes: All that are committed.
        written: Those among them that were written here.
    """

    deletes: tuple[DataFile, ...]
    written: tuple[DataFile, ...] = ()


class RowDelta:
    """Puts together the snapshot of one round, as often as it takes. Used by one thread.

    Args:
        context: Of the committer.
        entries: Decoded manifests.
        committable: The round's files.
        planned: The snapshot that the writers placed deletes in.
        properties: For the snapshot's summary.
    """

    def __init__(
        self,
        context: CommitterInitContext,
        entries: EntryCache,
        committable: IcebergCommittable,
        planned: int | None,
        properties: Mapping[str, str],
    ) -> None:
        self._context = context
        self._table = context.table
        self._what = f"lake table {self._table.path}, round {context.round_id}"
        self._entries = entries
        self._committable = committable
        self._planned = planned
        self._properties = properties
        self._io: FileIO | None = None
        #: By the snapshot in whose files deletes are placed, and by the snapshot that was put together with them.
        self._placed: dict[int | None, _Placed] = {}
        self._staged: dict[int, _Placed] = {}

    def stage(self, lake: Table) -> StagedSnapshot:
        """Write what the table as it is needs, up to the manifest list.

        Raises:
            UnsupportedError: The table is not as fluss_lab made it, or its partition spec changed.
            CommitConflictError: Files of the newest snapshot are gone.
            CorruptDataError: A row that ends is in two live files; or a file is not what it should be.
            StorageError, OSError: A file cannot be written.
        """
        self._io = lake.io
        layout = checked_layout(self._table, lake)
        committable, spec_id = self._committable, lake.spec().spec_id
        if strange := [file.file_path for file in committable.all_files if file.spec_id != spec_id]:
            raise UnsupportedError(
                f"{self._what}: the table's partition spec changed while {strange[0]} was written; plan again"
            )
        placed = self._placed_for(lake, layout)
        summary, properties = (
            (dict(self._properties), {}) if self._table.is_log_table else with_replay_start(lake, self._properties)
        )
        staged = stage_row_delta(
            lake, committable.files, placed.deletes, summary, properties=properties, entries=self._entries
        )
        self._staged[staged.snapshot_id] = placed
        return staged

    def settle(self, snapshot_id: int) -> None:
        """Remove delete files that the committed snapshot does not have. Never raises."""
        committed = self._staged.get(snapshot_id)
        if committed is None:
            # An earlier attempt's, of whose files nothing is known: those that are left are removed as orphans.
            return
        kept = {file.file_path for file in committed.deletes}
        self._remove([file for file in self._delete_files() if file.file_path not in kept])

    def discard(self) -> None:
        """Remove the delete files written here: it is certain that nothing was committed. Never raises."""
        self._remove([file for placed in self._placed.values() for file in placed.written])

    def _delete_files(self) -> list[DataFile]:
        written = [file for placed in self._placed.values() for file in placed.written]
        return [*self._committable.deletes, *self._committable.unplaced, *written]

    def _remove(self, files: Sequence[DataFile]) -> None:
        for file in files:
            if self._io is not None and not delete_quietly(self._io, file.file_path):
                _LOG.warning("%s: file %s could not be removed", self._what, file.file_path)

    def _placed_for(self, lake: Table, layout: LakeLayout) -> _Placed:
        base = lake.metadata.current_snapshot_id
        if base not in self._placed:
            self._placed[base] = self._place(lake, layout, base)
        return self._placed[base]

    def _place(self, lake: Table, layout: LakeLayout, base: int | None) -> _Placed:
        """Return the round's deletes as they are right in a snapshot; what is right already stays."""
        by_equality = DATALAKE_DELETE_MODE.of(self._table.descriptor.properties) == "equality"
        moved = base != self._planned and not by_equality and bool(self._committable.deletes)
        by_bucket: defaultdict[BucketKey, list[IcebergWriteResult]] = defaultdict(list)
        for result in self._committable.results:
            by_bucket[(result.partition, result.bucket)].append(result)
        if not moved and not self._committable.unplaced:
            return _Placed(self._committable.deletes)
        states = {} if by_equality else snapshot_state(self._table, lake, base, self._entries)
        target = WriteTarget.of(self._table, lake)
        right: list[DataFile] = []
        written: list[DataFile] = []
        try:
            for key, results in by_bucket.items():
                stay = [] if moved else [file for result in results for file in result.deletes]
                again = [file for result in results for file in (*(result.deletes if moved else ()), *result.unplaced)]
                right += stay
                if again:
                    files = self._files_of(lake, layout, states.get(key), results)
                    written += place_again(target, lake.io, again, files, *key, self._context.round_id)
                    failpoint("lake.place.after")
        except BaseException:
            self._remove(written)
            raise
        return _Placed((*right, *written), tuple(written))

    def _files_of(
        self, lake: Table, layout: LakeLayout, state: BucketFiles | None, results: Sequence[IcebergWriteResult]
    ) -> list[OffsetFile]:
        own = [lake_file(lake.io, self._table.path, layout, file, 0) for result in results for file in result.files]
        return offset_files([*(state.data if state is not None else ()), *own])
