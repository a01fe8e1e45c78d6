"""What the tests of the remote log share: a tablet that copies, and a reader that follows its answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from fluss_lab.client.cluster.remote_files import RemoteFiles
from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.client.log.remote_reader import GoneSegments, SegmentGoneError, remote_records
from fluss_lab.errors import error_from_code
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.model.offsets import EARLIEST, TIMESTAMP
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.server.coordinator.remote_access import Token, security_token
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import MockClock
from tests.unit.server.tablet.tablet_kit import DESCRIPTOR, TABLE_ID, Record, Tablet, batch, records_in

INFO = TableInfo(TablePath("db", "events"), TABLE_ID, 1, DESCRIPTOR, 0, 0)
SEGMENT_BYTES = 4096

#: Of a whole lab: a table of each kind, whose older segments are in remote storage only.
LOG, KEYED = TablePath("db", "log"), TablePath("db", "keyed")
KEPT = {"table.log.tiered.local-segments": "1"}
ROWS, ROWS_AT_ONCE = 300, 50


def make_tablet(
    folder: Path,
    clock: MockClock | None = None,
    *,
    open_it: bool = True,
    segment_bytes: int = SEGMENT_BYTES,
    options: Mapping[str, str] | None = None,
    **properties: str,
) -> Tablet:
    """A tablet with small segments and one bucket, which copies when told."""
    more = {key.replace(".", "__").replace("-", "_"): value for key, value in (options or {}).items()}
    tablet = Tablet(folder, clock, log__segment__file_size=f"{segment_bytes}b", **more)
    if open_it:
        (answer,) = tablet.open(0, **properties)
        assert not answer.error_message
    return tablet


def fill(tablet: Tablet, batches: int, *, rows: int = 40, every_ms: int = 1000) -> int:
    """Append batches whose ids are their offsets, each so much later; return the end offset."""
    end = tablet.describe()[0].log_end_offset
    for _ in range(batches):
        answer = tablet.produce({0: batch(end, rows)})[0]
        assert (answer.error_message, answer.base_offset) == ("", end)
        end += rows
        tablet.clock.advance(every_ms)
    return end


def with_older_folder(tablet: Tablet) -> Tablet:
    """The tablet, open again with its folder restored from a copy: its log ends at 240, the remote one behind that."""
    assert fill(tablet, 6) == 240
    tablet.service.close()
    kept = tablet.folder.with_name("kept")
    shutil.copytree(tablet.folder / "data", kept)
    tablet = tablet.reopen()
    tablet.open(0)
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    tablet.service.close()
    shutil.rmtree(tablet.folder / "data")
    kept.rename(tablet.folder / "data")
    tablet = tablet.reopen()
    tablet.open(0)
    return tablet


def make_tables(cluster: EmbeddedCluster, after_each: Callable[[], object] = lambda: None) -> None:
    """Make `LOG` and `KEYED` with the same rows, and do something after each batch."""
    admin = cluster.connection.admin()
    admin.create_database("db")
    types = {"id": "bigint not null", "name": "string"}
    admin.create_table(LOG, make_descriptor(types, buckets=1, properties=KEPT))
    admin.create_table(KEYED, make_descriptor(types, primary_key=["id"], buckets=1, properties=KEPT))
    for first in range(0, ROWS, ROWS_AT_ONCE):
        rows = [{"id": i, "name": f"name-{i}" * 5} for i in range(first, first + ROWS_AT_ONCE)]
        with cluster.connection.append_writer(LOG) as writer:
            writer.append(rows)
        with cluster.connection.upsert_writer(KEYED) as writer:
            writer.upsert(rows)
        after_each()


def keyed_bucket(cluster: EmbeddedCluster) -> TableBucket:
    """The only bucket of `KEYED`."""
    return TableBucket(cluster.connection.admin().table_info(KEYED).table_id, None, 0)


def held_from(tablet: Tablet, start: int, stop: int | None = None) -> list[Record]:
    """The records from an offset on, fetched as a client does: locally, or from remote storage where the server says."""
    found: list[Record] = []
    gone = GoneSegments()
    end = tablet.describe()[0].high_watermark if stop is None else stop
    while start < end:
        answer, data = tablet.fetch({0: start})[0]
        if answer.error_code:
            raise error_from_code(answer.error_code, answer.error_message)
        if answer.HasField("remote_log_fetch_info"):
            try:
                for record in remote_part(answer.remote_log_fetch_info, start, end, remote_files(tablet)):
                    found.append(record)
                    start = record.offset + 1
            except SegmentGoneError as error:
                gone.note(error, "test")
            continue
        some = [record for record in records_in(data) if start <= record.offset < end]
        assert some, f"nothing at {start}"
        found += some
        start = some[-1].offset + 1
    return found


class Answers:
    """The coordinator's answer of how remote storage is read.

    Attributes:
        options: The cluster's.
        asked: How often it was asked for.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options, self.asked = dict(options), 0

    def get_file_system_security_token(self, _request: pb.GetFileSystemSecurityTokenRequest) -> Token:
        """Answer as the coordinator does."""
        self.asked += 1
        return security_token(self.options)


def remote_files(tablet: Tablet) -> RemoteFiles:
    """How a client of the tablet's cluster reaches remote storage."""
    return RemoteFiles(lambda: cast(CoordinatorGateway, Answers(tablet.options)))


def remote_part(place: pb.PbRemoteLogFetchInfo, start: int, stop: int | None = None, files: RemoteFiles | None = None):
    """Yield the records that remote storage holds, as a client reads them."""
    for run in remote_records(place, "test", start, stop, Projection(INFO, None), files=files):
        for offset, time_ms, row in zip(
            run.offsets.to_pylist(), run.timestamps_ms.to_pylist(), run.rows["id"].to_pylist(), strict=True
        ):
            yield Record(offset, time_ms, row)


def place_of(tablet: Tablet, offset: int) -> pb.PbRemoteLogFetchInfo:
    """Where in remote storage the server says that an offset is."""
    answer, _ = tablet.fetch({0: offset})[0]
    assert not answer.error_code, answer.error_message
    assert answer.HasField("remote_log_fetch_info")
    return answer.remote_log_fetch_info


def earliest(tablet: Tablet) -> int:
    """The first offset that is held."""
    answer = tablet.offsets(EARLIEST)[0]
    if answer.error_code:
        raise error_from_code(answer.error_code, answer.error_message)
    return answer.offset


def at_time(tablet: Tablet, timestamp_ms: int):
    """The first offset at or after a time, and its timestamp (None at the end)."""
    answer = tablet.offsets(TIMESTAMP, startTimestamp=timestamp_ms)[0]
    if answer.error_code:
        raise error_from_code(answer.error_code, answer.error_message)
    return answer.offset, answer.timestamp if answer.HasField("timestamp") else None


def remote_folder(tablet: Tablet) -> Path:
    """The bucket's folder in remote storage."""
    return tablet.folder / "remote" / "log" / "db" / f"events-{TABLE_ID}" / "0"


def segment_folders(tablet: Tablet) -> list[Path]:
    """The folders of segments in remote storage, named by the manifest or not."""
    return sorted(path for path in remote_folder(tablet).iterdir() if path.is_dir() and len(path.name) == 36)


def local_bases(tablet: Tablet) -> list[int]:
    """The base offsets of the segments on the server's disk."""
    return sorted(int(path.stem) for path in tablet.folder.glob("data/t7/b0/*.log"))
