"""The rows that are measured: six columns, some 64 bytes a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    ("moment", pa.timestamp("us")),
    ("price", pa.float64()),
    ("amount", pa.int32()),
    ("symbol", pa.string()),
    ("note", pa.string()),
])  # fmt: skip


def rows(count: int, seed: int = 7) -> pa.RecordBatch:
    """Return `count` rows; the same for the same seed."""
    random = np.random.default_rng(seed)
    symbols = pa.array([f"SYM{number:05d}" for number in range(500)])
    notes = pa.array([f"note {number:015d}" for number in range(20_000)])
    return pa.record_batch(
        [
            pa.array(np.arange(count, dtype=np.int64)),
            pa.array(1_700_000_000_000_000 + np.cumsum(random.integers(1, 2_000, count)), pa.int64()).cast(
                SCHEMA.field(1).type
            ),
            pa.array(np.round(random.random(count) * 1_000, 2)),
            pa.array(random.integers(1, 100, count, dtype=np.int32)),
            symbols.take(pa.array(random.integers(0, 500, count))),
            notes.take(pa.array(random.integers(0, 20_000, count))),
        ],
        schema=SCHEMA,
    )
