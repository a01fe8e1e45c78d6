"""What a task leaves for the next one: as it was, or not there."""

import random

import pyarrow as pa
import pytest

from fluss_lab.lookup.rows.kept_rows import KeptRows

ROWS = pa.record_batch({"k": [1, 2, 3], "v": ["a", None, "c"]})
MORE = pa.record_batch({"x": [0.5]})


def files(folder):
    return sorted(path.name for path in folder.glob("*.arrow"))


def test_batches_are_read_as_they_were_written(tmp_path):
    folder = tmp_path / "deep" / "task"
    kept = KeptRows(folder, "of this")
    assert kept.read() is None
    kept.write("point 1", {"rows": ROWS, "more": MORE})
    assert KeptRows(folder, "of this").read() == ("point 1", {"rows": ROWS, "more": MORE})
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    before = files(folder)
    kept.write("point 2", {"rows": None, "more": ROWS})
    assert kept.read() == ("point 2", {"rows": ROWS, "more": ROWS})
    assert len(files(folder)) == 2
    assert len(set(files(folder)) & set(before)) == 1


def test_rows_of_something_else_are_not_used(tmp_path):
    KeptRows(tmp_path, "of this").write("point", {"rows": ROWS})
    assert KeptRows(tmp_path, "of that").read() is None


def test_rows_read_before_stay_when_their_files_are_replaced(tmp_path):
    kept = KeptRows(tmp_path, "of this")
    kept.write("point 1", {"rows": ROWS})
    _, found = kept.read()
    kept.write("point 2", {"rows": MORE})
    assert found["rows"] == ROWS


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
def test_damaged_files_are_not_used(suffix, tmp_path, seed):
    rng = random.Random(seed)
    kept = KeptRows(tmp_path, "of this")
    for _ in range(60):
        kept.write("point", {"rows": ROWS, "more": MORE})
        (path, *_) = sorted(tmp_path.glob(f"*{suffix}"))
        data = bytearray(path.read_bytes())
        choice = rng.randrange(4)
        if choice == 0:
            path.unlink()
        elif choice == 1:
            path.write_bytes(data[: rng.randrange(len(data))])
        elif choice == 2:
            path.write_bytes(data + b"x")
        else:
            at = rng.randrange(len(data))
            data[at] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        assert kept.read() in (None, ("point", {"rows": ROWS, "more": MORE}))
        assert suffix == ".json" or kept.read() is None
