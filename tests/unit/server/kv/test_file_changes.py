"""Snapshot files that somebody writes to while a server's rows lie in them: the rows are never others than those written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fluss_lab.errors import CorruptDataError, NotFoundError
from fluss_lab.records.kv_files import write_live
from fluss_lab.server.kv.file_changes import SnapshotFile, SnapshotFiles
from tests.unit.server.tablet.kv_kit import KvTablet, upserts

ROWS = 400


def _chunks(tablet: KvTablet) -> list[Path]:
    return sorted((tablet.folder / "remote" / "kv").rglob("*.chunks"))


def _spoil(path: Path, old: bytes = b"n-", new: bytes = b"z-") -> None:
    """Change values in a file, in place."""
    data = path.read_bytes()
    assert old in data
    with path.open("r+b") as file:
        file.write(data.replace(old, new))


@pytest.fixture
def restored(tmp_path):
    """A bucket whose rows lie in the files of its snapshot; all of its log is there."""
    tablet = KvTablet(tmp_path).open(0)
    tablet.put(upserts(0, ROWS))
    tablet.service.snapshot_now(tablet.bucket().id)
    return tablet.reopen()


def _lookup(tablet):
    return tablet.lookup(3)[0]


def _scan(tablet):
    return next(row for row in tablet.scan()[0] if row["id"] == 3)


def _limit_scan(tablet):
    answer, data = tablet.limit_scan(ROWS)
    assert not answer.HasField("error_code")
    return next(row for row in tablet.rows(data) if row["id"] == 3)


def _changed_row(tablet):
    """The row before a change, from the changelog."""
    start, end = tablet.put([{"id": 3, "name": "new", "score": 0}])
    assert end - start == 2
    return dict(zip(("id", "name", "score"), tablet.changelog(start)[0].row, strict=True))


def _row_after_a_snapshot(tablet):
    tablet.put(upserts(ROWS, 1))
    tablet.service.snapshot_now(tablet.bucket().id)
    return tablet.reopen().lookup(3)[0]


@pytest.mark.parametrize("read", [_lookup, _scan, _limit_scan, _changed_row, _row_after_a_snapshot])
def test_rows_are_made_again_from_the_log(restored, read):
    for path in _chunks(restored):
        _spoil(path)
    row = read(restored)
    assert {name: row[name] for name in ("id", "name", "score")} == upserts(3, 1)[0]
    restored.service.snapshot_now(restored.bucket().id)
    assert restored.reopen().lookup(*range(ROWS))[4:] == upserts(4, ROWS - 4)


def test_what_neither_log_nor_snapshot_has_is_refused(tmp_path):
    tablet = KvTablet(tmp_path, log__segment__file_size="2kb").open(0)
    for turn in range(20):
        tablet.put(upserts(0, 10, f"n-{turn}"))
    tablet.service.snapshot_now(tablet.bucket().id)
    tablet.clock.advance(10**10)
    assert tablet.service.apply_retention() > 0
    tablet = tablet.reopen()
    assert tablet.lookup(3)[0]["name"] == "n-19-3"
    for path in _chunks(tablet):
        _spoil(path)
    for read in (_lookup, _scan):
        with pytest.raises(CorruptDataError, match=r"the log begins at \d+: restore the snapshots"):
            read(tablet)
    with pytest.raises(CorruptDataError, match="cannot be written"):
        tablet.put(upserts(0, 1))


def test_a_scan_under_way_ends_instead_of_giving_what_was_changed(restored):
    answer, data = restored.begin_scan(batch_size_bytes=1024)
    assert answer.has_more_results
    seen = restored.rows(data, places=True)
    for path in _chunks(restored):
        _spoil(path)
    refused = ""
    for call in range(1, ROWS):
        try:
            answer, data = restored.scan_call(scanner_id=answer.scanner_id, call_seq_id=call)
        except NotFoundError as error:
            refused = str(error)
            break
        seen += restored.rows(data, places=True) if data else []
    assert "was changed since it was read; begin it again" in refused
    assert all(row["name"] == f"n-{row['id']}" for row in seen)
    assert [row["name"] for row in restored.scan(batch_size_bytes=1024)[0]] == [f"n-{i}" for i in range(ROWS)]


def test_no_snapshot_is_built_on_a_file_that_was_changed(tmp_path):
    """The rows are in memory: only the files are wrong, which the next snapshots would share."""
    tablet = KvTablet(tmp_path, log__segment__file_size="2kb").open(0)
    tablet.put(upserts(0, ROWS))
    tablet.service.snapshot_now(tablet.bucket().id)
    for path in _chunks(tablet):
        _spoil(path)
    for turn in range(3):
        tablet.put(upserts(ROWS + turn, 1))
        tablet.service.snapshot_now(tablet.bucket().id)
    tablet.clock.advance(10**10)
    assert tablet.service.apply_retention() > 0
    assert tablet.bucket().log.start > 0
    assert tablet.reopen().lookup(*range(ROWS + 3)) == upserts(0, ROWS + 3)


def test_what_is_touched_but_not_changed_is_read_on(restored):
    for path in _chunks(restored):
        os.utime(path)
        path.chmod(0o600)
    store = restored.bucket().kv.store
    assert restored.lookup(3) == upserts(3, 1)
    assert restored.bucket().kv.store is store  # not made again
    for path in _chunks(restored):  # replaced and removed: what is mapped is as it was
        path.rename(path.with_suffix(".old"))
        path.write_bytes(b"another")
    assert restored.lookup(3) == upserts(3, 1)
    for path in _chunks(restored):
        path.unlink()
    assert restored.lookup(3) == upserts(3, 1)
    assert restored.bucket().kv.store is store


# -- one file ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "0000000001.live"
    mark = write_live(path, [])
    path.write_bytes(b"")
    return SnapshotFile.of(path, mark)


def test_a_file_that_was_changed_stays_so(file):
    assert not file.is_changed()
    file.path.write_bytes(b"x")
    assert file.is_changed()
    file.path.write_bytes(b"")
    assert file.is_changed()
    assert SnapshotFiles([file]).find_changed() == file.path


def test_looks_take_a_small_part_of_the_time(file):
    moments = iter([10.0, 10.0, 10.0009, 10.0011, 10.0011])
    files = SnapshotFiles([file] * 100, lambda: next(moments))
    assert files.find_changed() is None
    file.path.write_bytes(b"x")
    assert files.find_changed() is None  # 0.9 ms later
    assert files.find_changed() == file.path
    assert next(moments, None) is None
