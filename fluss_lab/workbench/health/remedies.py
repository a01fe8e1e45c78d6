"""The remedies of errors that are of a table: what to do, and the command that does it or shows what it comes to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TablePath


class Remedy(NamedTuple):
    """What to do about an error.

    Attributes:
        todo: In words; empty: only the error's own text says it.
        command: A command of the shell that does it, or shows what it comes to; None: there is none.
    """

    todo: str
    command: str | None


#: By the error's class: what to do, and the words of the command.
_REMEDIES: Final[Mapping[str, Remedy]] = {
    "ForeignCommitError": Remedy(
        "roll the lake table back to the last snapshot of tiering, or see whether the change can be accepted, and what that comes to",
        "repair {table} --adopt",
    ),
    "LakeSnapshotNotFoundError": Remedy(
        "bring the snapshot back, or see what accepting the lake as it is comes to, then accept it",
        "repair {table} --adopt",
    ),
    "OffsetOutOfRangeError": Remedy(
        "see what going on without these records comes to, then accept it",
        "repair {table} --adopt --accept-gaps",
    ),
    "LakeAheadError": Remedy(
        "restore the newer folder of the lab; or drop the table without its lake table, which alone has the later records "
        "(lab.drop_table(..., lake=False)), and create it anew",
        None,
    ),
}
#: Of damage in the lake, which no repair of a log mends.
_LAKE_DAMAGE: Final = Remedy(
    "restore the file that the text names; or roll the lake table back to a snapshot that is whole, and see what accepting that "
    "comes to",
    "repair {table} --adopt",
)
#: How the texts of such errors begin: further on the same words may be those of a path, or a value.
_LAKE_WORDS: Final = ("lake file ", "lake table ", "lake catalog ", "load lake table ")
_LOG_DAMAGE: Final = Remedy(
    "restore the file that the text names, or see what giving up the damaged records comes to",
    "repair {table} --skip-corrupt",
)
#: What the texts of damaged logs have. Other files of a bucket (its marks, snapshots, remote manifest) no repair gives up.
_LOG_WORDS: Final = re.compile(
    r"offsets \[\d+, \d+\) cannot be read|of offsets \[\d+, \d+\): |can be read up to offset \d+ only"
    r"|fluss-lab repair \S+ --skip-corrupt"
)
_OTHER_DAMAGE: Final = Remedy("restore the file that the text names from a copy", None)


def remedy_of(error_class: str | None, text: str, path: TablePath, folder: Path | None) -> Remedy:
    """Return what to do about an error of a table.

    Args:
        error_class: Name of its class; None: it is none of the house's.
        text: What it says.
        path: The table.
        folder: The lab's, for the command; None: it is run where that is the default.

    Returns:
        An empty text and None where only the error's own text says it.
    """
    if error_class == CorruptDataError.__name__:
        found = _damage_remedy(text)
    else:
        found = _REMEDIES.get(error_class or "", Remedy("", None))
    return found if found.command is None else found._replace(command=command_text(found.command, path, folder))


def _damage_remedy(text: str) -> Remedy:
    if text.startswith(_LAKE_WORDS):
        return _LAKE_DAMAGE
    return _LOG_DAMAGE if _LOG_WORDS.search(text) else _OTHER_DAMAGE


def command_text(words: str, path: TablePath, folder: Path | None) -> str:
    """Return a command about a table as the shell takes it."""
    place = "" if folder is None else f" --folder {shlex.quote(str(folder))}"
    return f"fluss-lab {words.format(table=shlex.quote(str(path)))}{place}"
