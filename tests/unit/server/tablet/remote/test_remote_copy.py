"""Copies of segments: the same records in fewer bytes, named by the manifest or not there at all."""

import json
import os
import shutil

import google_crc32c
import numpy as np
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import CorruptDataError, StorageError, UnsupportedError
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import HEADER_BYTES, split_headers
from fluss_lab.records.remote_segment import BlockIndex, SegmentFile
from fluss_lab.server.tablet.remote import remote_manifest, segment_copy
from fluss_lab.server.tablet.remote.remote_manifest import RemoteManifest, RemoteSegment
from tests.unit.server.tablet.remote.remote_kit import (
    earliest,
    fill,
    held_from,
    local_bases,
    make_tablet,
    place_of,
    remote_folder,
    segment_folders,
    with_older_folder,
)
from tests.unit.server.tablet.tablet_kit import TABLE_ID, batch, records_in

BUCKET = TableBucket(TABLE_ID, None, 0)


@pytest.fixture
def tablet(tmp_path):
    return make_tablet(tmp_path)


def _manifest(tablet):
    found = remote_manifest.load(remote_folder(tablet), BUCKET)
    assert found is not None
    return found


def test_rolled_segments_are_copied_and_the_active_one_is_not(tablet):
    fill(tablet, 12)
    bases = local_bases(tablet)
    assert len(bases) >= 4
    assert tablet.service.copy_to_remote() == len(bases) - 1
    segments = _manifest(tablet).segments
    assert [each.base_offset for each in segments] == bases[:-1]
    assert segments[-1].end_offset == bases[-1]
    assert tablet.service.copy_to_remote() == 0  # once is enough


def test_a_copy_has_the_same_batches_with_packed_bodies(tablet):
    fill(tablet, 12, rows=90)
    local = tablet.fetch({0: 0})[0][1]
    tablet.service.copy_to_remote()
    copied = b""
    for segment in _manifest(tablet).segments:
        with SegmentFile(remote_folder(tablet), segment.key) as file:
            copied += b"".join(file.block(at) for at in range(len(file.index)))
    before = [header for header, _ in split_headers(local)]
    after = [header for header, _ in split_headers(copied)]
    assert records_in(copied) == records_in(local)[: after[-1].next_offset]
    for old, new in zip(before, after, strict=False):
        for name in (
            "base_offset",
            "timestamp_ms",
            "schema_id",
            "attributes",
            "writer_id",
            "batch_sequence",
            "record_count",
        ):
            assert getattr(new, name) == getattr(old, name)
        assert new.size < old.size


def test_writer_ids_and_sequences_stay_with_the_batches(tablet):
    for sequence in range(12):
        tablet.produce({0: batch(sequence * 60, 60, writer_id=5, sequence=sequence)})
    tablet.service.copy_to_remote()
    first = _manifest(tablet).segments[0]
    with SegmentFile(remote_folder(tablet), first.key) as file:
        found = [(header.writer_id, header.batch_sequence) for header, _ in split_headers(file.block(0))]
    assert found == [(5, sequence) for sequence in range(len(found))]
    # And the writer is known though the segments that told of it are gone.
    assert tablet.produce({0: batch(11 * 60, 60, writer_id=5, sequence=11)})[0].base_offset == 11 * 60


def test_a_body_that_does_not_shrink_stays_as_it_is(tablet):
    fill(tablet, 40, rows=1)
    local = tablet.fetch({0: 0})[0][1]
    tablet.service.copy_to_remote()
    first = _manifest(tablet).segments[0]
    with SegmentFile(remote_folder(tablet), first.key) as file:
        assert local.startswith(file.block(0))


def test_blocks_are_whole_batches_and_found_by_offset_and_time(tablet, monkeypatch):
    monkeypatch.setattr(segment_copy, "BLOCK_BYTES", 1)
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    for segment in _manifest(tablet).segments:
        with SegmentFile(remote_folder(tablet), segment.key) as file:
            index = file.index
            assert len(index) > 1
            for at in range(len(index)):
                base, stop = index.offsets(at)
                assert all(index.at_offset(offset) == at for offset in range(base, stop))
                (header, _), *more = split_headers(file.block(at))
                assert (header.base_offset, header.next_offset, more) == (base, stop, [])
                assert index.block(at).timestamp_ms == header.timestamp_ms
                assert index.before_time(header.timestamp_ms + 1) == at
    place = place_of(tablet, 95)
    assert place.first_start_pos > 0
    path = SegmentFile(remote_folder(tablet), _manifest(tablet).segments[0].key).path
    header = next(split_headers(path.read_bytes()[place.first_start_pos :]))[0]
    assert header.base_offset <= 95 < header.next_offset


def test_an_index_survives_its_bytes(tablet):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    for path in remote_folder(tablet).glob("*/*.blocks"):
        data = path.read_bytes()
        assert BlockIndex.from_bytes(data, "here").to_bytes() == data


def test_a_manifest_survives_its_bytes_and_tells_whose_it_is(tmp_path):
    segments = tuple(RemoteSegment(f"id-{at}", at * 10, at * 10 + 10, 99, at, at + 1, 7) for at in range(3))
    made = RemoteManifest(TableBucket(1, 2, 3), 30, segments)
    remote_manifest.ManifestFile(tmp_path, BUCKET).save(made)
    assert remote_manifest.load(tmp_path, TableBucket(1, 2, 3)) == made
    with pytest.raises(CorruptDataError, match="expected the manifest of t1/b3"):
        remote_manifest.load(tmp_path, TableBucket(1, None, 3))
    assert [each.base_offset for each in made.from_offset(19)] == [10, 20]
    assert [each.base_offset for each in made.from_offset(20)] == [20]
    assert made.from_offset(30) == made.from_offset(-1) == ()


def _write_sealed(path, value):
    body = json.dumps(value).encode()
    path.write_bytes(b"%s\n%08x" % (body, google_crc32c.value(body)))


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"version": 2}, UnsupportedError, "newer version of fluss_lab"),
        (
            {"segments": [{}]},
            CorruptDataError,
            r"required field `segment_id` - at `\$.segments\[0\]`; restore the file",
        ),
        (
            {"copied_offset": None, "segments": None},
            CorruptDataError,
            r"got `null` - at `\$.copied_offset`; restore the file",
        ),
    ],
)
def test_a_manifest_of_another_kind_is_refused(tmp_path, change, kind, text):
    remote_manifest.ManifestFile(tmp_path, BUCKET).save(RemoteManifest(BUCKET))
    value = json.loads((tmp_path / "manifest").read_bytes().rpartition(b"\n")[0])
    _write_sealed(tmp_path / "manifest", {**value, **change})
    with pytest.raises(kind, match=text):
        remote_manifest.load(tmp_path, BUCKET)


def test_a_manifest_with_a_hole_is_refused(tmp_path):
    segments = (RemoteSegment("a", 0, 10, 9, 0, 0, 0), RemoteSegment("b", 10, 20, 9, 0, 0, 0))
    remote_manifest.ManifestFile(tmp_path, BUCKET).save(RemoteManifest(BUCKET, 20, segments))
    value = json.loads((tmp_path / "manifest").read_bytes().rpartition(b"\n")[0])
    value["segments"][1]["base_offset"] = 11
    _write_sealed(tmp_path / "manifest", value)
    with pytest.raises(CorruptDataError, match="a hole between offsets 10 and 11"):
        remote_manifest.load(tmp_path, BUCKET)


@pytest.mark.parametrize("cut", [True, False])
def test_a_manifest_cut_or_flipped_anywhere_is_refused_and_nothing_is_lost(tablet, cut):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    tablet.service.close()
    path = remote_folder(tablet) / "manifest"
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] if cut else data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :])
        with pytest.raises(CorruptDataError, match="manifest"):
            remote_manifest.load(remote_folder(tablet), BUCKET)
    folders = segment_folders(tablet)
    tablet = tablet.reopen()
    tablet.open(0)
    # Copies nothing, deletes nothing, and says what is wrong; what is here is served, what is there is refused.
    assert tablet.service.copy_to_remote() == 0
    assert segment_folders(tablet) == folders
    described = tablet.describe()[0]
    assert not described.HasField("start_offset")
    assert str(path) in described.start_error.error_message
    assert held_from(tablet, described.log_start_offset)
    for read in (lambda: held_from(tablet, 0), lambda: earliest(tablet)):
        with pytest.raises(CorruptDataError, match="checksum"):
            read()
    path.write_bytes(data)
    tablet = tablet.reopen()
    tablet.open(0)
    assert [record.id for record in held_from(tablet, 0)] == list(range(tablet.describe()[0].log_end_offset))


def test_a_damaged_local_segment_is_not_copied(tablet):
    fill(tablet, 12)
    path = tablet.folder / "data/t7/b0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 300] ^= 1
    path.write_bytes(data)
    assert tablet.service.copy_to_remote() == 0
    assert not remote_folder(tablet).exists() or segment_folders(tablet) == []
    assert local_bases(tablet)[0] == 0
    assert "not copied to remote storage" in tablet.describe()[0].warning


POINTS = ["remote.copy.before_data", "remote.copy.between_blocks", "remote.copy.after_data", "remote.manifest.before"]


@pytest.mark.parametrize("point", POINTS)
def test_a_full_disk_leaves_everything_here_and_is_tried_again(tablet, point):
    end = fill(tablet, 12)
    bases = local_bases(tablet)
    failpoints.arm(point, "enospc")
    assert tablet.service.copy_to_remote() == 0
    assert local_bases(tablet) == bases
    assert held_from(tablet, 0)[-1].offset == end - 1
    assert "No space left on device" in tablet.describe()[0].warning
    failpoints.disarm()
    assert tablet.service.copy_to_remote() == len(bases) - 1
    assert not tablet.describe()[0].warning
    assert len(segment_folders(tablet)) == len(bases) - 1  # nothing of the attempts is left
    assert [record.id for record in held_from(tablet, 0)] == list(range(end))


def test_a_manifest_that_may_have_been_replaced_is_replaced_again_before_anything_is_removed(tablet):
    end = fill(tablet, 12)
    failpoints.arm("remote.manifest.after", "eio")  # on the device, but nobody here knows
    assert tablet.service.copy_to_remote() == 0
    left = segment_folders(tablet)
    assert len(left) == 1
    failpoints.disarm()
    failpoints.arm("remote.copy.before_data", "eio")
    assert tablet.service.copy_to_remote() == 0
    failpoints.disarm()
    tablet = tablet.reopen(clean=False)  # killed: the manifest names what was copied
    tablet.open(0)
    assert earliest(tablet) == 0
    tablet.service.copy_to_remote()
    assert left[0] in segment_folders(tablet)
    assert [record.id for record in held_from(tablet, 0)] == list(range(end))


def test_what_a_crashed_copy_left_is_removed_later(tablet):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    named = segment_folders(tablet)
    orphan = remote_folder(tablet) / "00000000-0000-4000-8000-000000000000"
    shutil.copytree(named[0], orphan)
    draft = remote_folder(tablet) / ".manifest.abc"
    draft.write_bytes(b"x")
    foreign = remote_folder(tablet) / "notes.txt"
    foreign.write_text("mine")
    tablet = tablet.reopen()
    tablet.open(0)
    tablet.service.copy_to_remote()
    assert segment_folders(tablet) == named
    assert (draft.exists(), foreign.exists()) == (False, True)


def test_remote_storage_that_cannot_be_read_is_asked_again(tablet):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    tablet.service.close()
    folder = remote_folder(tablet)
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("not a folder")  # like a mount that fails
    tablet = tablet.reopen()
    tablet.open(0)
    for _ in range(2):
        with pytest.raises(StorageError, match="the remote log cannot be read"):
            held_from(tablet, 0)
    folder.unlink()
    aside.rename(folder)
    assert held_from(tablet, 0)[0].offset == 0


def test_a_remote_log_that_is_missing_as_a_whole_is_noticed(tablet):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    aside = remote_folder(tablet).with_name("aside")
    remote_folder(tablet).rename(aside)
    tablet = tablet.reopen()
    tablet.open(0)
    for read in (lambda: held_from(tablet, 0), lambda: earliest(tablet)):
        with pytest.raises(StorageError, match=r"expected the manifest of a remote log that reaches to offset"):
            read()
    assert tablet.service.copy_to_remote() == 0
    aside.rename(remote_folder(tablet))  # mounted again
    assert held_from(tablet, 0)[0].offset == 0


def test_a_manifest_that_ends_before_what_was_deleted_here_is_refused(tablet):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    path = remote_folder(tablet) / "manifest"
    older = path.read_bytes()
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    path.write_bytes(older)
    tablet = tablet.reopen()
    tablet.open(0)
    with pytest.raises(CorruptDataError, match="found one that ends at"):
        held_from(tablet, 0)


@pytest.fixture
def older(tablet):
    return with_older_folder(tablet)


def test_offsets_that_a_remote_log_has_are_not_given_to_other_records(older):
    # Once the log were longer than the remote one, the next start would take that for the first part of it.
    for _ in range(2):
        assert "older than remote.data.dir" in older.describe()[0].error_message
        assert "older than remote.data.dir" in older.produce({0: batch(240, 40)})[0].error_message
        assert older.service.copy_to_remote() == 0
        older.service.close()
        older = older.reopen()
        older.open(0)


def test_who_does_without_a_newer_remote_log_goes_on(older):
    folder = remote_folder(older)
    older.service.close()
    folder.rename(folder.with_name("aside"))
    older = older.reopen()
    older.open(0)
    assert fill(older, 12) == 720
    assert older.service.copy_to_remote() > 0


def test_stopping_the_bucket_deletes_its_remote_files_and_no_others(tablet):
    fill(tablet, 12)
    tablet.open(1)
    tablet.service.copy_to_remote()
    other = remote_folder(tablet).with_name("1")
    other.mkdir()
    tablet.stop(0, delete=False)
    assert remote_folder(tablet).exists()
    tablet.open(0)
    tablet.stop(0, delete=True)
    assert (remote_folder(tablet).exists(), other.exists()) == (False, True)
    tablet.stop(0, delete=True)
    tablet.open(0)
    assert (earliest(tablet), fill(tablet, 1)) == (0, 40)


def test_deleting_goes_on_where_a_crash_ended_it(tablet):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    folder = remote_folder(tablet)
    aside = folder.parent.with_name("aside")
    folder.parent.rename(aside)
    tablet.stop(0, delete=True)  # killed behind the local part
    aside.rename(folder.parent)
    tablet = tablet.reopen()
    tablet.stop(0, delete=True)  # the coordinator says it again
    assert not folder.parent.exists()


def test_several_buckets_take_turns(tmp_path):
    tablet = make_tablet(tmp_path)
    tablet.open(1)
    for first in range(12):
        tablet.produce({0: batch(first * 40, 40), 1: batch(first * 40, 40)})
    tablet.service.copy_to_remote()
    times = {
        number: [
            each.stat().st_mtime_ns
            for each in sorted((remote_folder(tablet).with_name(str(number))).glob("*/*.log"), key=lambda p: p.name)
        ]
        for number in (0, 1)
    }
    assert times[0][0] < times[1][0] < times[0][1] < times[1][1]


def test_packing_keeps_nulls_and_every_type(tmp_path):
    types = {
        "a": "int not null",
        "b": "decimal(22, 3)",
        "c": "array<string>",
        "d": "timestamp(6)",
        "e": "boolean",
        "f": "bytes",
    }
    tablet = make_tablet(tmp_path, open_it=False)
    tablet.open(0, types=types)
    import pyarrow as pa

    from fluss_lab.model import make_descriptor
    from fluss_lab.records.batch import decode_all, encode

    schema = make_descriptor(types).schema.arrow_schema
    chance = np.random.default_rng(7)
    rows = pa.record_batch(
        [
            pa.array(chance.integers(0, 9, 300).astype("int32")),
            pa.array([None if at % 3 else at for at in range(300)], pa.int64()).cast(pa.decimal128(22, 3)),
            pa.array([None if at % 5 == 0 else ["x" * (at % 4), None] for at in range(300)], schema.field("c").type),
            pa.array(range(300), pa.int64()).cast(schema.field("d").type),
            pa.array([None if at % 2 else at % 4 == 0 for at in range(300)]),
            pa.array([chance.bytes(3) for _ in range(300)]),
        ],
        schema=schema,
    )
    payload = b"".join(bytes(memoryview(part)) for part in encode(rows, schema_id=1))
    for _ in range(3):
        assert not tablet.produce({0: payload})[0].error_message
    tablet.service.copy_to_remote()
    first = _manifest(tablet).segments[0]
    with SegmentFile(remote_folder(tablet), first.key) as file:
        (found,) = decode_all(file.block(0), schema)
    assert found.rows.equals(rows)


def test_files_are_on_the_device_before_the_manifest_that_names_them(tablet, monkeypatch):
    from fluss_lab import files

    done = []
    for name in ("fsync_file", "fsync_folder", "write_atomic"):
        real = getattr(files, name)

        def noted(what, *rest, name=name, real=real, **named):
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)
            if "/remote/log/" in path:
                done.append((name, path))
            return real(what, *rest, **named)

        monkeypatch.setattr(files, name, noted)
    fill(tablet, 5)
    tablet.service.copy_to_remote()
    (folder,) = segment_folders(tablet)
    stem = folder / f"{0:020d}"
    expected = [
        ("fsync_file", f"{stem}.log"),
        ("fsync_file", f"{stem}.blocks"),
        ("fsync_folder", str(folder)),
        ("fsync_folder", str(folder.parent)),
        ("write_atomic", str(folder.parent / "manifest")),
    ]
    order = [done.index(each) for each in expected]
    assert order == sorted(order)


def test_nothing_above_the_durable_offset_is_copied(tablet):
    fill(tablet, 12)
    (bucket,) = tablet.service._store.all()
    rolled = bucket.log.segments.rolled
    schemas = bucket.table.schemas
    assert bucket.remote.copy_next(rolled, schemas, rolled[0].end_offset - 1, 7) is None
    copied = bucket.remote.copy_next(rolled, schemas, rolled[0].end_offset, 7)
    assert (copied.base_offset, copied.end_offset, copied.created_ms) == (0, rolled[0].end_offset, 7)
    assert bucket.remote.copy_next(rolled, schemas, rolled[0].end_offset, 7) is None
