"""A cluster with a log table and a primary-key table whose buckets have every kind of file, and what is true of each.

Every bucket is one specimen: a case damages one file of one bucket, and one restart serves them all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import FlussError
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.server.folder.remote_storage import KV, LOG, bucket_folder
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import START_MS, MockClock
from tests.damage.damages import Kind

LOGGED, KEYED = TablePath("db", "logged"), TablePath("db", "keyed")
TYPES: Final = {"id": "bigint not null", "name": "string"}
ROUNDS: Final = 9
#: Ids of a round: some ten for each bucket, so that none goes without.
IDS_PER_BUCKET: Final = 12
STEP_MS: Final = 1_000
OPTIONS: Final = {
    "log.segment.file-size": "2kb",
    # Every batch has an entry: a timestamp is under no checksum but the index's.
    "log.index.interval-size": "64b",
    "remote.log.task-interval-duration": "0s",
    "kv.snapshot.interval": "1h",
    "client.request-timeout": "5s",
}

#: Offset, timestamp, id, name, change type (0 of a log table).
Record: TypeAlias = tuple[int, int, int, str, int]


@dataclass(slots=True)
class Truth:
    """What is true of one bucket."""

    start: int = 0
    end: int = 0
    records: list[Record] = field(default_factory=list)

    def at_time(self, time_ms: int) -> int:
        """Return the first offset at or after a time."""
        return next((record[0] for record in self.records if record[1] >= time_ms), self.end)

    def rows(self) -> dict[int, str]:
        """Return the newest name of each id."""
        return {record[2]: record[3] for record in self.records}


class BucketLab:
    """The cluster and its two tables. Close it when done.

    Args:
        folder: For everything.
        logged: How many buckets the log table has.
        keyed: And the primary-key table.
        rng: Makes the rows.
    """

    def __init__(self, folder: Path, logged: int, keyed: int, rng: random.Random) -> None:
        self._clock = MockClock()
        options = {key: value for key, value in OPTIONS.items() if not key.startswith("client.")}
        client = {key: value for key, value in OPTIONS.items() if key.startswith("client.")}
        self.cluster = EmbeddedCluster(folder, options, self._clock, lake=False, client=client)
        self.cluster.start()
        admin = self.cluster.connection.admin()
        admin.create_database("db")
        properties = {"table.log.tiered.local-segments": "3"}
        admin.create_table(LOGGED, make_descriptor(TYPES, buckets=logged, bucket_key=["id"], properties=properties))
        admin.create_table(KEYED, make_descriptor(TYPES, primary_key=["id"], buckets=keyed, properties=properties))
        self.infos = {path: admin.table_info(path) for path in (LOGGED, KEYED)}
        self._fill(rng)
        self.truths = {(path, bucket): self._truth(path, bucket) for path, bucket in self.buckets()}

    def buckets(self) -> Iterator[tuple[TablePath, int]]:
        """Yield every bucket of both tables."""
        for path, info in self.infos.items():
            for bucket in range(info.descriptor.buckets):
                yield path, bucket

    def _fill(self, rng: random.Random) -> None:
        tablet = self.cluster.tablet()
        for number in range(ROUNDS):
            for path, info in self.infos.items():
                ids = range(IDS_PER_BUCKET * info.descriptor.buckets)
                rows = [{"id": i, "name": f"{number}-{i}-{rng.getrandbits(200):x}"} for i in ids]
                if path == LOGGED:
                    with self.cluster.connection.append_writer(path) as writer:
                        writer.append(rows)
                else:
                    with self.cluster.connection.upsert_writer(path) as writer:
                        writer.upsert(rows)
            self._clock.advance(STEP_MS)
            if number in {3, 5}:
                for bucket in range(self.infos[KEYED].descriptor.buckets):
                    tablet.snapshot_now(self.id_of(KEYED, bucket))
        tablet.copy_to_remote()

    def _truth(self, path: TablePath, bucket: int) -> Truth:
        start = self.offset(path, bucket, OffsetSpec.earliest())
        end = self.offset(path, bucket, OffsetSpec.latest())
        return Truth(start, end, list(self.read(path, bucket, start, end)))

    # -- asking --------------------------------------------------------------------------------------------------------

    def id_of(self, path: TablePath, bucket: int) -> TableBucket:
        """Return a bucket's id."""
        return TableBucket(self.infos[path].table_id, None, bucket)

    def offset(self, path: TablePath, bucket: int, spec: OffsetSpec, *, durable: bool = False) -> int:
        """Return an offset of a bucket as the client gets it."""
        admin = self.cluster.connection.admin()
        found = admin.list_offsets(self.infos[path], spec, buckets=[bucket], durable=durable)[bucket].offset
        assert found is not None
        return found

    def read(self, path: TablePath, bucket: int, start: int, stop: int) -> Iterator[Record]:
        """Yield the records of a range as the client reads them."""
        info: TableInfo = self.infos[path]
        for records in read_range(self.cluster.connection, info, self.id_of(path, bucket), start, stop):
            changes = records.change_types
            kinds = [0] * len(records.offsets) if changes is None else changes.to_pylist()
            yield from zip(
                records.offsets.to_pylist(), records.timestamps_ms.to_pylist(), records.rows["id"].to_pylist(),
                records.rows["name"].to_pylist(), kinds, strict=True,
            )  # fmt: skip

    def problems(self, path: TablePath, bucket: int) -> tuple[list[str], int]:
        """Ask a bucket everything; return what was neither exact nor an error, and how many errors there were."""
        truth, wrong, errors = self.truths[path, bucket], [], 0
        times = [START_MS - 1, START_MS, START_MS + STEP_MS * ROUNDS // 2 + 1, START_MS + STEP_MS * ROUNDS * 2]
        asked: list[tuple[str, OffsetSpec, bool, int]] = [
            ("earliest", OffsetSpec.earliest(), False, truth.start),
            ("latest", OffsetSpec.latest(), False, truth.end),
            ("durable", OffsetSpec.latest(), True, truth.end),
            *((f"at {time_ms}", OffsetSpec.timestamp(time_ms), False, truth.at_time(time_ms)) for time_ms in times),
        ]
        for what, spec, durable, expected in asked:
            try:
                found = self.offset(path, bucket, spec, durable=durable)
            except FlussError:
                errors += 1
                continue
            if found != expected:
                wrong.append(f"{what}: expected {expected}, found {found}")
        read: list[Record] = []
        try:
            read.extend(self.read(path, bucket, truth.start, truth.end))
        except FlussError:
            errors += 1
        else:
            if len(read) != len(truth.records):
                wrong.append(f"read: expected {len(truth.records)} records, found {len(read)}")
        if read != truth.records[: len(read)]:
            wrong.append("read: other records")
        if path == KEYED:
            errors += self._look_up(truth, bucket, wrong)
        return wrong, errors

    def _look_up(self, truth: Truth, bucket: int, wrong: list[str]) -> int:
        rows = truth.rows()
        try:
            with self.cluster.connection.lookuper(KEYED) as lookuper:
                found = lookuper.lookup([{"id": i} for i in rows]).to_pylist()
        except FlussError:
            return 1
        if found != [{"id": i, "name": name} for i, name in rows.items()]:
            wrong.append("lookup: other rows")
        return 0

    # -- damaging ------------------------------------------------------------------------------------------------------

    def file(self, path: TablePath, bucket: int, kind: Kind, place: str) -> Path | None:
        """Return a file of a bucket.

        Args:
            path: Its table.
            bucket: Its number.
            kind: Of file.
            place: ``local``, or ``log`` or ``kv`` in remote storage.
        """
        folder = self.cluster.folder
        if place == "local":
            return kind.find(folder / "tablet" / "data" / f"t{self.infos[path].table_id}" / f"b{bucket}")
        assert place in {LOG, KV}
        return kind.find(bucket_folder(folder / "remote", place, path, None, self.id_of(path, bucket)))

    def close(self) -> None:
        """Stop it."""
        self.cluster.close()
