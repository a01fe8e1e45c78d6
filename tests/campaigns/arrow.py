"""Bodies of log batches, spoiled behind right checksums, given to the server's own checks. Run as a process of its own.

``python -m tests.campaigns.arrow <bodies> <seed>`` prints how many were taken and refused, and dies if Arrow lets one
through that kills: a test looks at how it ended.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from decimal import Decimal

import pyarrow as pa

from fluss_lab.errors import FlussError
from fluss_lab.records.batch import CRC_START, HEADER_BYTES, checksum, encode
from fluss_lab.server.tablet.log.payload_validation import check_payload

SCHEMAS = (
    pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("price", pa.float64())]),
    pa.schema([("flag", pa.bool_()), ("bytes", pa.binary()), ("amount", pa.decimal128(10, 2)), ("day", pa.date32())]),
    pa.schema([("many", pa.list_(pa.string())), ("row", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))]))]),
    pa.schema([("map", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.float32())]))))]),
)


def _rows(schema: pa.Schema) -> pa.RecordBatch:
    values = {
        "id": list(range(12)), "name": ["abc", None, "", "ä" * 9] * 3, "price": [1.5, None, -0.0] * 4,
        "flag": [True, None, False] * 4, "bytes": [b"\0", b"", None] * 4, "amount": [Decimal("1.25"), None] * 6,
        "day": [1, None, 20_000] * 4, "many": [["a", None], [], None] * 4,
        "row": [{"a": 1, "b": [1, 2]}, None, {"a": None, "b": None}] * 4,
        "map": [[("k", [{"x": 1.0}, None])], None, []] * 4,
    }  # fmt: skip
    return pa.record_batch([pa.array(values[field.name], field.type) for field in schema], schema=schema)


def _spoiled(chance: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                at -= at % 4
                width = chance.choice((4, 8))
                value = chance.choice((0, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, len(data), len(data) * 2, 13))
                data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
            case 3:
                del data[at : at + chance.choice((1, 8, 64))]
            case _:
                data[at:at] = chance.randbytes(chance.choice((1, 8, 64)))
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


def main() -> None:
    """Check so many bodies; print the outcomes."""
    chance = random.Random(int(sys.argv[2]))
    encoded = [encode(_rows(schema), schema_id=1) for schema in SCHEMAS]
    wholes = [b"".join(bytes(memoryview(part)) for part in parts) for parts in encoded]
    outcomes: Counter[str] = Counter()
    for number in range(int(sys.argv[1])):
        at = number % len(SCHEMAS)
        head, body = bytearray(wholes[at][:HEADER_BYTES]), _spoiled(chance, wholes[at][HEADER_BYTES:])
        head[8:12] = (len(head) + len(body) - 12).to_bytes(4, "little")
        head[CRC_START - 4 : CRC_START] = checksum(memoryview(bytes(head) + body)[CRC_START:]).to_bytes(4, "little")
        try:
            (batch,) = check_payload([bytes(head) + body], {1: SCHEMAS[at]}, current_schema_id=1, size_max=1 << 20)
            # Whoever takes it reads it.
            rows = pa.ipc.read_record_batch(pa.py_buffer(bytes(batch.data[HEADER_BYTES:])), SCHEMAS[at])
            rows.to_pylist()
            outcomes["taken"] += 1
        except FlussError as error:
            outcomes[type(error).__name__] += 1
        except (UnicodeDecodeError, ValueError, OverflowError) as error:
            # Values that Arrow holds valid and Python cannot show: a day in the year 5,000,000.
            outcomes[f"taken, {type(error).__name__} in Python"] += 1
    print(dict(outcomes))


if __name__ == "__main__":
    main()
