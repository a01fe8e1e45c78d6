"""One end of a range of changes, in the words of a caller and in offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.crash.history import Place


@dataclass(frozen=True)
class Edge:
    """A place in every bucket's log, in some words of the changelog's, and the offsets that it means.

    Attributes:
        value: The words.
        offsets: What they mean.
        early: Whether they are a time from which perhaps not all is held any more: it may be refused as well.
        is_moment: Whether they mean a moment: what partitions had that were dropped since belongs to it too.
        time_ms: The moment where they say nothing but that; None: they say more, or are none.
    """

    value: Any
    offsets: Mapping[Place, int]
    early: bool = False
    is_moment: bool = False
    time_ms: int | None = None
