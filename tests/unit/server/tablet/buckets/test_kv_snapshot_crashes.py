"""kill -9 around key-value snapshots, beside puts and a log that is cut: rows, changelog and writers agree after each."""

import pytest

from tests.unit.server.forked import run_forked
from tests.unit.server.tablet import kv_snapshot_crash
from tests.unit.server.tablet.kv_snapshot_crash import WRITER_ID, acked, batch_of, check, opened

POINTS = [
    "kv.snapshot.before_manifest",
    "kv.snapshot.before_delete",
    "tablet.retention.before_delete",
    pytest.param("kv.snapshot.before_chunks", marks=pytest.mark.campaign),
    pytest.param("kv.snapshot.after_manifest", marks=pytest.mark.campaign),
    pytest.param("kv.snapshot.before_expire", marks=pytest.mark.campaign),
    pytest.param("kv.snapshot.after_delete", marks=pytest.mark.campaign),
]


@pytest.mark.parametrize("point", POINTS)
def test_nothing_acknowledged_is_lost_and_nothing_else_appears(tmp_path, point, seed):
    assert run_forked(kv_snapshot_crash.main, tmp_path, point, seed, 2) == 0
    tablet = opened(tmp_path, 50)
    batches = check(tablet, seed, acked(tmp_path))
    # The writer is remembered, whatever of its batches is in the log or only in the snapshot.
    if batches:
        end = tablet.bucket().log.end
        rows, changes = batch_of(seed, batches - 1)
        assert tablet.put(rows, changes, writer_id=WRITER_ID, sequence=batches - 1)[1] == end
        assert tablet.bucket().log.end == end
    tablet.service.close()
