"""The findings in the files of a lab on which no server runs, as checks of the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TablePath
from fluss_lab.server.folder.folder_lock import lock_out_servers
from fluss_lab.server.folder.lab_inspection import inspect_lab
from fluss_lab.server.tablet.buckets.bucket_inspection import Finding
from fluss_lab.workbench.health.doctor import Check
from fluss_lab.workbench.health.remedies import remedy_of

#: Name of a check that says what was read, and of one that found something.
READ: Final = "read"
FOUND: Final = "finding"


def deep_checks(folder: Path) -> Iterator[Check]:
    """Yield what is found in a lab's files, and after that of each part a check that says that it was read.

    Args:
        folder: The lab's; servers are kept from starting meanwhile.

    Raises:
        LabLockedError: A server runs.

    Cost: reads every file but the lake's.
    """
    with lock_out_servers(folder):
        for found in inspect_lab(folder):
            yield Check(READ, True, found) if isinstance(found, str) else _finding(found, folder)


def _finding(found: Finding, folder: Path) -> Check:
    if found.is_harmless:
        return Check(FOUND, True, str(found), table=found.table, is_note=True)
    command = None
    if found.is_loss and found.table is not None:
        text, path = str(found), TablePath.parse(found.table)
        command = remedy_of(CorruptDataError.__name__, text, path, folder).command
    return Check(FOUND, False, str(found), command, found.error_class, found.table)
