"""kill -9 between any two steps of a key-value snapshot: what was complete is read, with the right rows."""

import pytest

from tests.unit.server.forked import run_forked
from tests.unit.server.kv import snapshot_crash
from tests.unit.server.kv.snapshot_crash import check
from tests.unit.server.kv.snapshot_kit import SCHEMAS, names, rows_of, write

pytestmark = pytest.mark.slow

POINTS = [
    "kv.snapshot.before_chunks",
    "kv.snapshot.before_live",
    "kv.snapshot.before_names",
    "kv.snapshot.before_manifest",
    "kv.snapshot.after_manifest",
    "kv.snapshot.before_expire",
    "kv.snapshot.before_delete",
    "kv.snapshot.after_delete",
]


@pytest.mark.parametrize("point", POINTS)
def test_what_was_complete_is_read(tmp_path, point, seed):
    assert run_forked(snapshot_crash.main, tmp_path, point, seed, 3) == 0
    snapshots, loaded = check(tmp_path, seed)
    if loaded is None:
        return
    # The next one leaves nothing of all the attempts.
    completed = write(snapshots, loaded[1])
    again, (found, image) = check(tmp_path, seed)
    assert rows_of(image) == rows_of(loaded[1])
    assert found.snapshot_id == completed.snapshot_id
    assert len([name for name in names(tmp_path / "kv") if name.endswith(".manifest")]) <= 2
    assert again.load(SCHEMAS) is not None
    prefixes = {name.split("-")[0].split(".")[0] for name in names(tmp_path / "kv")}
    assert "" not in prefixes, "a temporary file was left"
