"""The findings of an inspection of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem found in a file or folder.

    Attributes:
        path: The file or folder.
        position: The byte at which it begins; None: it concerns the whole.
        found: What was expected, and what was found.
        meaning: The consequence.
        advice: The remedy.
        is_harmless: Whether the next start of the server repairs it, and nothing is lost.
    """

    path: Path
    position: int | None
    found: str
    meaning: str
    advice: str
    is_harmless: bool = False

    def __str__(self) -> str:
        place = str(self.path) if self.position is None else f"{self.path} at byte {self.position}"
        return f"{place}: {self.found}. {self.meaning}. {self.advice}."
