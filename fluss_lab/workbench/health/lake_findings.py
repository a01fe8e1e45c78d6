"""The findings about the lake: tables of which the snapshot that reads begin with cannot be read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from fluss_lab.client import Connection
from fluss_lab.errors import FlussError, UnavailableError
from fluss_lab.model import TableInfo
from fluss_lab.tiering.round.lake_file_check import check_newest_files

#: No further table is looked at then: a doctor is waited for.
LOOK_S: Final = 5.0


class LakeTrouble(NamedTuple):
    """A table whose lake cannot be read.

    Attributes:
        table: It.
        error: Why.
    """

    table: TableInfo
    error: FlussError


class LakeLook(NamedTuple):
    """What a look at the lake found.

    Attributes:
        seen: How many tables were looked at.
        left: How many were not any more, for the time that it took, or since the lake does not answer.
        troubles: Those whose lake cannot be read.
    """

    seen: int
    left: int
    troubles: list[LakeTrouble]


def look_at_lake(connection: Connection, tables: Sequence[TableInfo], look_s: float = LOOK_S) -> LakeLook:
    """Return what is wrong with the lake's catalog, metadata and files, of the snapshots that the cluster knows.

    Files on this machine's file systems are looked for, and their lengths and footers compared; of others that the metadata
    can be read.

    Args:
        connection: To the cluster.
        tables: Which; those that are not tiered are left out.
        look_s: How long it goes on, about.

    Cost: of each table what planning a read costs, and 30 microseconds a file.
    """
    tiered = [info for info in tables if info.descriptor.lake_enabled]
    storage = connection.lake_storage() if tiered else None
    if storage is None:
        return LakeLook(0, 0, [])
    troubles: list[LakeTrouble] = []
    until_s = time.monotonic() + look_s
    for seen, info in enumerate(tiered, start=1):
        try:
            check_newest_files(connection, storage, info)
        except FlussError as error:
            troubles.append(LakeTrouble(info, error))
            if isinstance(error, UnavailableError):
                return LakeLook(seen, len(tiered) - seen, troubles)
        if time.monotonic() >= until_s:
            return LakeLook(seen, len(tiered) - seen, troubles)
    return LakeLook(len(tiered), 0, troubles)
