"""kill -9 at every failpoint of copying and forgetting, several lives in a row: no record is lost, none is wrong."""

import json
import subprocess
import sys

import pytest

from fluss_lab.server.tablet.remote import remote_manifest
from fluss_lab.storage.store_location import store_of
from fluss_lab.testing.mock_clock import START_MS, MockClock
from fluss_lab.testing.seeds import seed_of
from tests.unit.server.tablet.remote.remote_crash import LIFE_MS, PROPERTIES, options_of
from tests.unit.server.tablet.remote.remote_kit import (
    earliest,
    fill,
    held_from,
    make_tablet,
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
    return run_lives(tmp_path_factory.mktemp("crashed"), seed_of(request.node))


def run_lives(folder, seed, options=None):
    """The folders that the lives left, and how many were killed, by failpoint."""
    (folder / "options.json").write_text(json.dumps(options or {}))
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
    check_nothing_is_lost(*crashed[point])


def check_nothing_is_lost(folder, killed):
    """See that the last life finds what the others were answered, and goes on."""
    assert killed, "the failpoint was never passed"
    clock = MockClock(START_MS + LIVES * LIFE_MS)
    tablet = make_tablet(folder, clock, options=options_of(folder), **PROPERTIES)
    described = tablet.describe()[0]
    assert not described.warning
    reported = [line.split() for line in (folder / "acked").read_text().splitlines()]
    acked_ms, acked = [int(moment) for moment, _ in reported], [int(end) for _, end in reported]
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
    (bucket,) = tablet.service._store.all()
    remote = bucket.remote.folder
    held = remote_manifest.load(remote, BUCKET)
    assert held is not None
    assert {name for name in store_of(remote).names(remote) if len(name) == 36} == {
        each.segment_id for each in held.segments
    }
    assert [record.id for record in held_from(tablet, start)] == list(range(start, end))
    tablet.service.close()
