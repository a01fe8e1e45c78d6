"""Tables of both kinds whose buckets are damaged, each at another place, and what is true of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import FlussError
from fluss_lab.failpoints import FailpointError
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.records.batch import BatchHeader, read_header
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.repair.damage_repair import give_up_damage, plan_damage_repair
from fluss_lab.tiering.repair.damage_repair_plan import DamagePlan
from tests.unit.tiering.kit import LAKE, Tables

TYPES: Final = {"id": "bigint not null", "v": "string"}
#: Ids of one write: some for each bucket.
IDS: Final = range(36)
WRITES: Final = 12
#: Segments of a few batches each; nothing that goes by the clock comes between.
OPTIONS: Final = {
    "log.segment.file-size": "1kb", "log.index.interval-size": "64b", "remote.log.task-interval-duration": "0s",
    "kv.snapshot.interval": "1h", "kv.snapshot.num-retained": "1", "lake.tiering.takeover": "200ms",
}  # fmt: skip

Range = tuple[int, int]
Place = Callable[[list[Path]], list[Range]]


def batches(path: Path) -> list[tuple[int, BatchHeader]]:
    """The batches of a segment, and where they are."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        found.append((at, read_header(data, at)))
        at += found[-1][1].size
    return found


def flip(path: Path, which: int) -> Range:
    """Turn a bit in the records of one batch over; return its offsets."""
    at, header = batches(path)[which]
    data = bytearray(path.read_bytes())
    data[at + header.size - 1] ^= 1
    path.write_bytes(bytes(data))
    return header.base_offset, header.next_offset


def first_batch(segments: list[Path]) -> list[Range]:
    return [flip(segments[0], 0)]


def inside_a_segment(segments: list[Path]) -> list[Range]:
    return [flip(segments[len(segments) // 2], 1)]


def a_whole_segment(segments: list[Path]) -> list[Range]:
    at = len(segments) // 2
    segments[at].unlink()
    return [(int(segments[at].stem), int(segments[at + 1].stem))]


def the_last_batch(segments: list[Path]) -> list[Range]:
    header = batches(segments[-1])[-1][1]
    segments[-1].write_bytes(segments[-1].read_bytes()[:-1])
    return [(header.base_offset, header.next_offset)]


def two_places(segments: list[Path]) -> list[Range]:
    return [flip(segments[1], 0), flip(segments[-2], 1)]


def nothing(segments: list[Path]) -> list[Range]:
    assert segments
    return []


#: A bucket each; the last one stays as it is.
PLACES: Final[tuple[Place, ...]] = (
    first_batch, inside_a_segment, a_whole_segment, the_last_batch, two_places, nothing,
)  # fmt: skip


@dataclass
class Broken:
    """One table: written to, then damaged, then repaired.

    Attributes:
        keyed: Whether it has a primary key.
        lake: Whether it is tiered.
    """

    tables: Tables
    keyed: bool
    lake: bool = True
    name: str = "broken"
    truth: dict[int, list[tuple[object, ...]]] = field(default_factory=dict)
    damage: dict[int, list[Range]] = field(default_factory=dict)
    model: dict[int, str] = field(default_factory=dict)
    writes: int = 0

    def __post_init__(self) -> None:
        options: dict[str, Any] = {"primary_key": ["id"]} if self.keyed else {"bucket_key": ["id"]}
        properties = LAKE if self.lake else {}
        descriptor = make_descriptor(TYPES, buckets=len(PLACES), properties=properties, **options)
        self.path = TablePath("db", self.name)
        self.info: TableInfo = self.tables.connection.admin().create_table(self.path, descriptor)

    @property
    def connection(self) -> Any:
        return self.tables.connection

    def write(self, times: int) -> None:
        for _ in range(times):
            values = {number: f"{self.writes}-{number}" for number in IDS}
            rows = [{"id": number, "v": value} for number, value in values.items()]
            if self.keyed:
                with self.connection.upsert_writer(self.path) as writer:
                    writer.upsert(rows)
            else:
                with self.connection.append_writer(self.path) as writer:
                    writer.append(rows)
            self.model |= values
            self.writes += 1

    def erase(self, ids: Iterable[int]) -> None:
        """Delete rows of a primary-key table."""
        rows = [{"id": number} for number in ids]
        with self.connection.upsert_writer(self.path) as writer:
            writer.delete(rows)
        for row in rows:
            del self.model[row["id"]]

    def forget_snapshots(self) -> None:
        """Delete the key-value snapshots, while the cluster does not run."""
        shutil.rmtree(self.tables.cluster.folder / "remote" / "kv")

    def fill(self, tiered: str) -> None:
        """Write, and tier ``all``, a ``part`` or ``none`` of it."""
        self.write(WRITES // 3)
        if tiered == "part":
            self.tables.tier(self.info)
        self.write(WRITES - WRITES // 3)
        if tiered == "all":
            self.tables.tier(self.info)
        self.truth = {bucket: self.read(bucket, 0, end) for bucket, end in self.ends().items()}

    def ends(self) -> dict[int, int]:
        return {each.bucket.bucket: each.require().end_offset for each in self.connection.admin().buckets(self.info)}

    def bucket(self, number: int) -> TableBucket:
        return TableBucket(self.info.table_id, None, number)

    def folder(self, number: int) -> Path:
        return self.tables.cluster.folder / "tablet" / "data" / f"t{self.info.table_id}" / f"b{number}"

    def segments(self, number: int) -> list[Path]:
        return sorted(self.folder(number).glob("*.log"))

    def read(self, number: int, start: int, stop: int) -> list[tuple[object, ...]]:
        """Records of a range: offset, time, change type, and the row."""
        if start >= stop:
            return []
        reader = TableReader(self.connection, self.path)
        found = reader.changelog(start={number: start}, end={number: stop}, buckets=[number]).to_arrow()
        names = ("_log_offset", "_commit_timestamp", "_change_type", "id", "v")
        return list(zip(*(found[name].to_pylist() for name in names), strict=True))

    def break_logs(self, places: tuple[Place, ...] = PLACES, *, forget: bool = False) -> None:
        """Damage each bucket at another place; with `forget` no checkpoint tells the next start what to believe."""
        for number, place in enumerate(places):
            self.damage[number] = place(self.segments(number))
            if forget:
                (self.folder(number) / recovery_point.FILE_NAME).unlink(missing_ok=True)

    # -- repairing -----------------------------------------------------------------------------------------------------

    def plan(self) -> DamagePlan:
        return plan_damage_repair(self.connection, self.path)

    def repair(self, *, discard: bool = False) -> DamagePlan:
        return give_up_damage(
            self.connection, self.path, lambda: self.tables.storage, lambda _: LocalTieringExecutor(), discard_before=discard
        )  # fmt: skip

    def repair_cut_off(self, point: str, *, discard: bool = False) -> None:
        """Begin a repair that ends in an error at a failpoint."""
        failpoints.arm(point, "error")
        try:
            with pytest.raises((FlussError, FailpointError)):
                self.repair(discard=discard)
        finally:
            failpoints.disarm()

    # -- what must be true ---------------------------------------------------------------------------------------------

    def check_log(self, number: int, lost: list[Range]) -> None:
        """Everything of a bucket's log outside of some ranges can be read as it was, and nothing of these."""
        at, end = 0, len(self.truth[number])
        for start, stop in [*lost, (end, end)]:
            assert self.read(number, at, start) == self.truth[number][at:start], (number, at, start)
            at = max(at, stop)

    def check_rows(self, lost: dict[int, list[Range]]) -> None:
        """A log table's rows are those of its log; a primary-key table's those that were written, whatever was lost."""
        reader = TableReader(self.connection, self.path)
        if self.keyed:
            rows = reader.scan().to_arrow().to_pylist()
            assert {row["id"]: row["v"] for row in rows} == self.model
            assert len(rows) == len(self.model)
            with self.connection.lookuper(self.path) as lookuper:
                found = lookuper.lookup([{"id": number} for number in IDS]).to_pylist()
            assert {row["id"]: row["v"] for row in found if row["id"] is not None} == self.model
            return
        table = reader.scan(columns=["__bucket", "__offset", "id", "v"]).to_arrow()
        found = {number: {} for number in self.truth}
        for row in table.to_pylist():
            found[row["__bucket"]][row["__offset"]] = (row["id"], row["v"])
        for number, records in self.truth.items():
            gone = {offset for start, stop in lost.get(number, []) for offset in range(start, stop)}
            wanted = {record[0]: record[3:] for record in records if record[0] not in gone}
            got = {offset: row for offset, row in found[number].items() if offset < len(records)}
            assert got == wanted, number
        assert reader.scan().count() == table.num_rows
