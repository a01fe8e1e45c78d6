"""The image of a store at one moment: what a snapshot writes, and what a store is restored from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KvChunk:
    """Rows that were put into the store together, or merged from such. Never changed once made.

    Attributes:
        chunk_id: Unique within the store's life, and its restored successors'; the same rows for ever.
        schema_id: The schema that the rows were made by.
        rows: In the Arrow schema of that schema id.
        offsets: int64: log offset of each row's record, ascending.
        timestamps_ms: int64: commit timestamp of each row's record.
    """

    chunk_id: int
    schema_id: int
    rows: pa.RecordBatch
    offsets: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KvImage:
    """The state of a store with all changes below a log offset, and none from it on.

    Attributes:
        log_offset: That offset.
        chunks: Ascending by their first offset.
        live: For each chunk, a boolean for each row: whether it is the present row of its key. Over all chunks no key
            is live twice.
        next_chunk_id: Larger than every chunk id ever used.
    """

    log_offset: int
    chunks: tuple[KvChunk, ...]
    live: tuple[npt.NDArray[np.bool_], ...]
    next_chunk_id: int

    @property
    def row_count(self) -> int:
        """Return how many live rows there are."""
        return sum(int(np.count_nonzero(alive)) for alive in self.live)
