"""kill -9 at every failpoint of copying and forgetting, several lives in a row: no record is lost, none is wrong."""

import subprocess
import sys

import pytest

from fluss_lab.server.tablet.remote import remote_manifest
from fluss_lab.testing.mock_clock import START_MS, MockClock
from fluss_lab.testing.seeds import seed_of
from tests.unit.server.tablet.remote.remote_crash import LIFE_MS, PROPERTIES
from tests.unit.server.tablet.remote.remote_kit import (
    earliest,
    fill,
    held_from,
    make_tablet,
    remote_folder,
    segment_folders,
)
from tests.unit.server.tablet.remote.test_remote_copy import BUCKET

POINTS = [
    "remote.copy.before_data",
    "remote.copy.between_blocks",
    "remote.copy.after_data",
    "remote.manifest.before",
    "remote.manifest.after",
    "remote.local.before_drop",
    "remote.retention.before_delete",
    "tablet.retention.before_delete",
    "tablet.checkpoint.before",
]
LIVES = 4
TTL_MS = 60_000


@pytest.fixture(scope="module")
def crashed(request, tmp_path_factory):
    """The folders that the lives left, and how many were killed, by failpoint."""
    seed = seed_of(request.node)
    folder = tmp_path_factory.mktemp("crashed")
    command = [
        sys.executable,
        "-m",
        "tests.unit.server.tablet.remote.remote_crash",
        str(folder),
        str(seed),
        str(LIVES),
        *POINTS,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"FLUSS_LAB_SEED={seed}: {done.stderr}"
    return {line.split()[0]: (folder / line.split()[0], int(line.split()[1])) for line in done.stdout.splitlines()}


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost(crashed, point):
    folder, killed = crashed[point]
    assert killed, "the failpoint was never passed"
    clock = MockClock(START_MS + LIVES * LIFE_MS)
    tablet = make_tablet(folder, clock, **PROPERTIES)
    described = tablet.describe()[0]
    assert not described.warning
    told = [line.split() for line in (folder / "acked").read_text().splitlines()]
    acked_ms, acked = [int(moment) for moment, _ in told], [int(end) for _, end in told]
    assert described.log_end_offset >= max(acked)
    start = earliest(tablet)
    found = held_from(tablet, start)
    # The id of a record is its offset: in order, without a gap, each once.
    assert [(record.offset, record.id) for record in found] == [(n, n) for n in range(start, described.log_end_offset)]
    times = [record.timestamp_ms for record in found]
    assert times == sorted(times)
    # Nothing went before its time: no clock has been later than this one.
    kept = [end for moment, end in zip(acked_ms, acked, strict=True) if moment > clock.now_ms() - TTL_MS]
    assert start <= min(kept, default=start)
    # And it goes on: what the dead left is removed, what is rolled is copied.
    end = fill(tablet, 12)
    tablet.service.copy_to_remote()
    held = remote_manifest.load(remote_folder(tablet), BUCKET)
    assert held is not None
    assert {path.name for path in segment_folders(tablet)} == {each.segment_id for each in held.segments}
    assert [record.id for record in held_from(tablet, start)] == list(range(start, end))
    tablet.service.close()
