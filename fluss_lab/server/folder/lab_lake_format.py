"""The format of a lab's lake, kept in its metadata: tables that were tiered in one format cannot be read in another."""

from __future__ import annotations

from typing import Final

from fluss_lab.errors import LabError
from fluss_lab.model.config.lake_options import FORMAT_KEY
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger

#: Under which the metadata keeps the format.
META_KEY: Final = "lake_format"
#: How many tables a message names.
_NAMED_MAX: Final = 3


def check_lake_format(store: MetadataStore, configured: str | None) -> None:
    """Check that a lab with lake tables keeps the format that they were made in; without lake tables any is taken.

    Args:
        store: The metadata.
        configured: The format that the options name; None: the server was made without a lake, and tiers nothing.

    Raises:
        LabError: The lab has lake tables of another format.
    """
    kept = store.meta(META_KEY)
    tables = LakeLedger(store).tables()
    if tables and kept is not None and configured not in {None, kept}:
        names = ", ".join(str(each.path) for each in tables[:_NAMED_MAX]) + (
            ", ..." if len(tables) > _NAMED_MAX else ""
        )
        raise LabError(
            f"the lab has {len(tables)} lake tables ({names}) in format {kept!r}: expected {FORMAT_KEY}={kept}, found "
            f"{configured}; what was tiered could not be read. Set the option back, or drop these tables first"
        )
    if configured is not None and kept != configured:
        store.set_meta(META_KEY, configured)
