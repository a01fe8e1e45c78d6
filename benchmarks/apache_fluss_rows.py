"""The rows and cases of the comparison with Apache Fluss, and its client's side of them; needs neither fluss_lab nor this package.

``python apache_fluss_rows.py CASE`` runs one case through pyfluss against ``FLUSS_BOOTSTRAP`` and prints its figure as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    ("user_id", pa.int64()),
    ("amount", pa.int32()),
    ("price", pa.float64()),
    ("note", pa.string()),
    ("ts", pa.timestamp("us")),
])  # fmt: skip
LOG_ROWS = 1_000_000
BATCH_ROWS = 10_000
DICT_ROWS = 200_000
UPSERT_ROWS = 300_000
KEYS = 100_000
LOOKUPS = 100
CALLERS = 50
TIER_ROWS = 2_000_000
TIER_KEY_ROWS = 500_000
BUCKETS = 4
CASES = (
    "append",
    "dicts",
    "dict_calls",
    "scan",
    "scan_column",
    "upsert1",
    "upsert4",
    "lookup",
    "lookups",
    "tier",
    "tier_keys",
)


def batch(start: int, count: int, keys: int | None = None) -> pa.RecordBatch:
    """Return rows from a number on; their ids modulo `keys` where given."""
    numbers = np.arange(start, start + count, dtype=np.int64)
    users = (numbers * 2_654_435_761) % 1_000_003
    return pa.record_batch(
        [
            pa.array(numbers if keys is None else numbers % keys),
            pa.array(users),
            pa.array((numbers % 10_000).astype(np.int32)),
            pa.array((numbers % 99_991) / 100.0),
            pa.array([f"order note {user:013d}" for user in users]),
            pa.array(1_700_000_000_000_000 + numbers * 1_000, pa.timestamp("us")),
        ],
        schema=SCHEMA,
    )


def batches(rows: int) -> list[pa.RecordBatch]:
    """Return rows in batches as they are appended."""
    return [batch(start, min(BATCH_ROWS, rows - start)) for start in range(0, rows, BATCH_ROWS)]


class Pyfluss:
    """The cases through pyfluss.

    Args:
        fluss: The module.
        connection: Of it.
    """

    def __init__(self, fluss: Any, connection: Any) -> None:
        self._fluss = fluss
        self._connection = connection
        self._admin = connection.get_admin()
        self._made = 0

    async def _table(self, buckets: int = 1, keys: Sequence[str] = (), **properties: str) -> Any:
        await self._admin.create_database("bench", ignore_if_exists=True)
        self._made += 1
        self.path = self._fluss.TablePath("bench", f"t{os.getpid()}_{self._made}")
        schema = self._fluss.Schema(SCHEMA, primary_keys=list(keys)) if keys else self._fluss.Schema(SCHEMA)
        options = {"bucket_count": buckets, **({"properties": properties} if properties else {})}
        await self._admin.create_table(self.path, self._fluss.TableDescriptor(schema, **options))
        return await self._connection.get_table(self.path)

    async def append(self) -> float:
        """Append Arrow batches; return rows a second, as do the next."""
        return LOG_ROWS / (await self._filled())[1]

    async def _filled(self, rows: int = LOG_ROWS, **of: Any) -> tuple[Any, float]:
        table = await self._table(**of)
        made = batches(rows)
        writer = table.new_append().create_writer()
        started = time.perf_counter()
        for each in made:
            writer.write_arrow_batch(each)
        await writer.flush()
        return table, time.perf_counter() - started

    async def dicts(self) -> float:
        """Append dicts; each is a call here."""
        return await self.dict_calls()

    async def dict_calls(self) -> float:
        """Append dicts, one a call."""
        table = await self._table()
        rows = batch(0, DICT_ROWS).to_pylist()
        writer = table.new_append().create_writer()
        started = time.perf_counter()
        for row in rows:
            writer.append(row)
        await writer.flush()
        return DICT_ROWS / (time.perf_counter() - started)

    async def scan(self) -> float:
        """Read all columns."""
        return await self._scan()

    async def scan_column(self) -> float:
        """Read one of six columns."""
        return await self._scan("id")

    async def _scan(self, *columns: str) -> float:
        table, _ = await self._filled()
        scan = table.new_scan().project_by_name(list(columns)) if columns else table.new_scan()
        scanner = await scan.create_record_batch_log_scanner()
        scanner.subscribe(0, self._fluss.EARLIEST_OFFSET)
        started = time.perf_counter()
        found = (await scanner.to_arrow()).num_rows
        taken_s = time.perf_counter() - started
        assert found == LOG_ROWS, found
        return LOG_ROWS / taken_s

    async def upsert1(self) -> float:
        """Upsert dicts, each key three times."""
        return (await self._upserted(1))[1]

    async def upsert4(self) -> float:
        """Do the same with four buckets."""
        return (await self._upserted(BUCKETS))[1]

    async def _upserted(self, buckets: int, rows: int = UPSERT_ROWS, keys: int = KEYS, **of: str) -> tuple[Any, float]:
        table = await self._table(buckets, ["id"], **of)
        made = batch(0, rows, keys).to_pylist()
        writer = table.new_upsert().create_writer()
        started = time.perf_counter()
        for row in made:
            writer.upsert(row)
        await writer.flush()
        return table, rows / (time.perf_counter() - started)

    async def lookup(self) -> float:
        """Look keys up one after another; return lookups a second, as does the next."""
        lookuper = (await self._upserted(1))[0].new_lookup().create_lookuper()
        started = time.perf_counter()
        for number in range(LOOKUPS):
            assert await lookuper.lookup({"id": number * 37 % KEYS}) is not None
        return LOOKUPS / (time.perf_counter() - started)

    async def lookups(self) -> float:
        """Look keys up by 50 callers at once, each with a lookuper of its own (one for all is slower there)."""
        table, _ = await self._upserted(1)
        lookupers = [table.new_lookup().create_lookuper() for _ in range(CALLERS)]
        started = time.perf_counter()
        await asyncio.gather(*[each.lookup({"id": number * 37 % KEYS}) for number, each in enumerate(lookupers)])
        return CALLERS / (time.perf_counter() - started)

    async def tier(self) -> float:
        """Wait for a round of the tiering job, from when it takes the table on to the snapshot that has all; records a second."""
        await self._filled(TIER_ROWS, buckets=BUCKETS, **self._lake())
        return await self._round()

    async def tier_keys(self) -> float:
        """Do the same for a changelog, each key upserted five times."""
        await self._upserted(BUCKETS, TIER_KEY_ROWS, TIER_KEY_ROWS // 5, **self._lake())
        return await self._round()

    @staticmethod
    def _lake() -> dict[str, str]:
        # A longer round is cut there; a shorter freshness begins before all is written.
        return {"table.datalake.enabled": "true", "table.datalake.freshness": "40s"}

    async def _round(self) -> float:
        found = await self._admin.list_offsets(self.path, list(range(BUCKETS)), self._fluss.OffsetSpec.latest())
        records = sum(found.values())
        deadline = time.monotonic() + 300
        while await self._tiered() < records:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no lake snapshot has the {records} records")
            await asyncio.sleep(0.05)
        ended = time.time()
        return float(records / (ended - self._assigned_s(ended)))

    async def _tiered(self) -> int:
        try:
            snapshot = await self._admin.get_latest_lake_snapshot(self.path)
        except self._fluss.FlussError as error:
            if error.error_code != _NO_SNAPSHOT:
                raise
            return 0
        return int(sum(snapshot.table_buckets_offset.values()))

    def _assigned_s(self, ended: float) -> float:
        """Return when the tiering job was given the table, from its log, whose lines begin with the local time."""
        with open(os.environ["FLUSS_TIERING_LOG"], errors="replace") as lines:
            line = next(each for each in lines if self.path.table_name in each)
        hours, minutes, seconds = line[:12].replace(",", ".").split(":")
        day = time.mktime((*time.localtime(ended)[:3], 0, 0, 0, 0, 0, -1))
        return day + int(hours) * 3600 + int(minutes) * 60 + float(seconds)


#: Fluss's error code of a table that no round has tiered.
_NO_SNAPSHOT = 53


async def main(case: str) -> None:
    """Run a case and print its figure."""
    fluss = import_module("fluss")
    config = {"bootstrap.servers": os.environ["FLUSS_BOOTSTRAP"], "writer.bucket.no-key-assigner": "round_robin"}
    connection = await fluss.FlussConnection.create(fluss.Config(config))
    print(json.dumps({case: await getattr(Pyfluss(fluss, connection), case)()}), flush=True)
    # pyfluss may abort at the interpreter's end.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
