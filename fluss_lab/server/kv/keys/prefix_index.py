"""All rows whose key begins with given values.

Each chunk gets, at the first lookup, its rows sorted by the hash of the prefix columns; it never changes, so that is
done once in its life. What the hash finds is compared with the real values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.server.kv.keys.key_hashes import Hashes, KeyHash, Longs
from fluss_lab.server.kv.keys.row_equality import Mask, equal_across
from fluss_lab.server.kv.row_chunks import Chunk, check_gathered, no_rows, take_columns


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The rows of a chunk sorted by the hash of some columns.

    Attributes:
        columns: Which.
        hashes: Ascending.
        rows: The rows, in that order.
    """

    columns: tuple[int, ...]
    hashes: Hashes
    rows: npt.NDArray[np.int32]

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of both arrays: 12 a row."""
        return self.hashes.nbytes + self.rows.nbytes


def sidecar(chunk: Chunk, columns: tuple[int, ...], hashing: KeyHash) -> Sidecar:
    """Return a chunk's sidecar, which is made when it has none.

    Cost: when it is made, some 100 ns a row.
    """
    held = chunk.sidecar
    if isinstance(held, Sidecar) and held.columns == columns:
        return held
    hashes = hashing.of([chunk.data.rows.column(index) for index in columns])
    order = np.argsort(hashes)
    made = Sidecar(columns, hashes[order], order.astype(np.int32))
    chunk.sidecar = made
    return made


def prefix_rows(
    parts: Sequence[tuple[Chunk, Mask]],
    prefixes: Sequence[pa.Array],
    columns: tuple[int, ...],
    hashing: KeyHash,
    wanted: Sequence[int],
    schema: pa.Schema,
) -> tuple[npt.NDArray[np.int32], pa.RecordBatch]:
    """Return how many live rows each prefix has, and the rows: prefix by prefix, those of one in order of their offset.

    Args:
        parts: Chunks in order of their offsets, and which of their rows are live.
        prefixes: Columns of the prefixes, without nulls.
        columns: Indexes of the prefix columns.
        hashing: The store's.
        wanted: Columns of the answer.
        schema: The current one.

    Raises:
        RecordTooLargeError: The rows are too many to be gathered at once.
    """
    hashes = hashing.of(prefixes)
    owners: list[Longs] = []
    gathered: list[list[pa.Array]] = []
    found: list[tuple[Chunk, Longs]] = []
    for chunk, live in parts:
        owner, rows = _matches(chunk, live, prefixes, columns, hashes, hashing)
        if owner.size:
            found.append((chunk, rows))
            check_gathered(found)
            owners.append(owner)
            gathered.append(take_columns(chunk, rows, wanted, schema))
    answer = pa.schema([schema.field(index) for index in wanted])
    counts = np.zeros(hashes.size, np.int32)
    if not owners:
        return counts, no_rows(answer)
    owner = np.concatenate(owners)
    np.add.at(counts, owner, 1)
    order = pa.array(np.argsort(owner, kind="stable"))
    arrays = [pa.concat_arrays(list(column)).take(order) for column in zip(*gathered, strict=True)]
    return counts, pa.RecordBatch.from_arrays(arrays, schema=answer)


def _matches(
    chunk: Chunk,
    live: Mask,
    prefixes: Sequence[pa.Array],
    columns: tuple[int, ...],
    hashes: Hashes,
    hashing: KeyHash,
) -> tuple[Longs, Longs]:
    """Return the live rows of a chunk that have one of the prefixes, ascending, and which prefix each has."""
    sorted_rows = sidecar(chunk, columns, hashing)
    starts = np.searchsorted(sorted_rows.hashes, hashes, "left")
    counts = np.searchsorted(sorted_rows.hashes, hashes, "right") - starts
    owner = np.repeat(np.arange(hashes.size), counts)
    within = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = sorted_rows.rows[starts[owner] + within].astype(np.int64)
    alive = live[rows]
    owner, rows = owner[alive], rows[alive]
    if owner.size:
        real = [chunk.data.rows.column(index) for index in columns]
        same = equal_across(prefixes, owner, real, rows)
        owner, rows = owner[same], rows[same]
    order = np.argsort(rows, kind="stable")
    return owner[order], rows[order]
