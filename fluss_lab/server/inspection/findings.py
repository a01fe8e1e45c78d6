"""The findings of an inspection of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        path: The file or folder.
        position: The byte at which it begins; None where it is about the whole.
        found: What was expected and what is there.
        meaning: What follows from it.
        advice: What to do.
        is_harmless: Whether the next start of the server mends it by itself, and nothing is lost.
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
