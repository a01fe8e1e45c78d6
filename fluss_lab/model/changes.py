"""Change types of records."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ChangeType(IntEnum):
    """What a record does; the numbers are those of Fluss's log format."""

    APPEND_ONLY = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4

    @property
    def symbol(self) -> str:
        """Return the change type as people write it: ``+A +I -U +U -D``."""
        return CHANGE_SYMBOLS[self]


CHANGE_SYMBOLS: Final = ("+A", "+I", "-U", "+U", "-D")
