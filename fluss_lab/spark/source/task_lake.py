"""The lake as a task of a read gets it: one table, as it was planned, and what its files are read with.

Nothing of the lake's catalog travels. It is in what Spark ships of an input partition, which no plan, page or log of Spark
shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from fluss_lab.client import Connection
from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.lake import lake_storage
from fluss_lab.model import TableInfo
from fluss_lab.read.changelog.changelog import ChangelogRange
from fluss_lab.read.moment.table_state import TableSource


class TaskLake(msgspec.Struct, frozen=True):
    """A lake format and the configuration of its storage; credentials of the file system may be in it."""

    format_name: str
    properties: Mapping[str, str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.format_name!r}, {len(self.properties)} properties)"


def task_lake(source: TableSource, snapshot_id: int) -> TaskLake | None:
    """Return the lake for tasks that read a snapshot; None: they use what the cluster gives its clients.

    Raises:
        LakeSnapshotNotFoundError: The table has no such snapshot.

    Cost: none for a snapshot that was just planned; else the table is loaded from the lake's catalog.
    """
    properties = source.lake_source.pinned_properties(snapshot_id)
    return None if properties is None else TaskLake(source.storage.format_name, properties)


def changelog_lake(source: TableSource, ranges: Iterable[ChangelogRange]) -> TaskLake | None:
    """Return the lake for tasks that read a changelog; None: nothing was in the lake alone when the ranges were planned."""
    for each in ranges:
        if each.start < each.lake_stop and each.snapshot_id is not None:
            with suppress(LakeSnapshotNotFoundError):  # expired since: each task looks for its records anew
                return task_lake(source, each.snapshot_id)
    return None


def pin_lake(connection: Connection, info: TableInfo, lake: TaskLake | None) -> None:
    """Have a task's connection read a table's lake as it was planned."""
    if lake is not None:
        connection.pin_lake(info, lake_storage(lake.format_name, lake.properties))
