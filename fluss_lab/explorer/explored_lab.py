"""A lab as an explorer uses it: its tables, and what is known of the whole of it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fluss_lab.jobs import Jobs
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.lake_upkeep import TableContext


class ExploredLab(TableContext, Protocol):
    """See `fluss_lab.Lab`.

    Attributes:
        folder: Its folder; None: its servers run elsewhere.
    """

    folder: Path | None

    @property
    def jobs(self) -> Jobs:
        """Return its jobs; only of a lab opened by its folder."""

    def doctor(self) -> Listing:
        """Check what machine and lab need."""
