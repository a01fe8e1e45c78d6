"""Every cut and every flipped byte of every file of a small snapshot: the right rows, or a refusal; never other rows."""

import random
from dataclasses import replace

import msgspec
import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.records.kv_files import check_files, read_chunks
from fluss_lab.records.kv_manifest import read_manifest
from tests.unit.server.kv.snapshot_kit import SCHEMAS, Puts, rows_of, store, write

FILES = ["0000000001.manifest", "0000000001.live", "0000000001-0.chunks", "0000000000-0.chunks"]


@pytest.fixture
def two(tmp_path):
    """Two snapshots that share a file; the rows of each by its id."""
    snapshots, puts, rows = store(tmp_path), Puts(), {None: None}
    puts.put(1, 2, 3)
    write(snapshots, puts.image(), writers=[[1, 2, [[0, 0, 3]]]])
    rows[0] = rows_of(puts.image())
    puts.put(3, 4)
    puts.delete(1)
    write(snapshots, puts.image(), writers=[[1, 2, [[1, 3, 5]]]])
    rows[1] = rows_of(puts.image())
    return tmp_path, rows


def versions(data, chance):
    """Every cut, every byte changed, and some bytes too many."""
    for size in range(len(data)):
        yield data[:size]
    for at, byte in enumerate(data):
        yield data[:at] + bytes([byte ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    yield data + b"\0"
    yield data + data


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused(two, name, seed):
    folder, _ = two
    path, whole = folder / name, (folder / name).read_bytes()
    cases = 0
    for data in versions(whole, random.Random(seed)):
        path.write_bytes(data)
        with pytest.raises(CorruptDataError):
            list(read_chunks(folder, read_manifest(folder / "0000000001.manifest"), SCHEMAS))
        if cases % 7 == 0:
            with pytest.raises(CorruptDataError):
                check_files(folder, read_manifest(folder / "0000000001.manifest"))
        cases += 1
    assert cases >= 2 * len(whole)
    path.write_bytes(whole)
    check_files(folder, read_manifest(folder / "0000000001.manifest"))
    assert len(list(read_chunks(folder, read_manifest(folder / "0000000001.manifest"), SCHEMAS))) == 2


@pytest.mark.parametrize("name", FILES)
def test_the_one_before_is_read_instead_where_it_is_whole(two, name, seed):
    folder, rows = two
    path, chance = folder / name, random.Random(seed)
    whole = {each.name: each.read_bytes() for each in folder.iterdir()}
    found = []
    damaged = list(versions(path.read_bytes(), chance))
    for data in chance.sample(damaged, min(60, len(damaged))):
        path.write_bytes(data)
        loaded = store(folder).load(SCHEMAS)
        found.append(None if loaded is None else loaded[0].snapshot_id)
        assert found[-1] is None or rows_of(loaded[1]) == rows[found[-1]]
        for each in folder.iterdir():
            each.unlink()
        for each, content in whole.items():
            (folder / each).write_bytes(content)
    assert set(found) == {None if name == "0000000000-0.chunks" else 0}


def test_the_halves_of_two_snapshots_make_none(two):
    """What a manifest names is what was written with it, not another file of that name."""
    folder, _ = two
    for one, other in [("0000000000.live", "0000000001.live"), ("0000000000-0.chunks", "0000000001-0.chunks")]:
        first, second = (folder / one).read_bytes(), (folder / other).read_bytes()
        (folder / one).write_bytes(second)
        (folder / other).write_bytes(first)
        with pytest.raises(CorruptDataError):
            list(read_chunks(folder, read_manifest(folder / "0000000001.manifest"), SCHEMAS))
        (folder / one).write_bytes(first)
        (folder / other).write_bytes(second)


def test_what_the_sums_cannot_see_is_still_checked(two):
    """Files that are whole, but not what the manifest says of their content."""
    folder, _ = two
    manifest = read_manifest(folder / "0000000001.manifest")
    for change in changes(manifest):
        with pytest.raises(CorruptDataError):
            list(read_chunks(folder, change, SCHEMAS))


def changes(manifest):
    yield replace(manifest, row_count=manifest.row_count + 1)
    yield replace(manifest, log_offset=4)
    yield replace(manifest, chunk_ids=manifest.chunk_ids[:1])
    for at, file in enumerate(manifest.files):
        for mark in (
            msgspec.structs.replace(file.chunks[0], row_count=file.chunks[0].row_count + 8),
            msgspec.structs.replace(file.chunks[0], row_count=file.chunks[0].row_count - 1),
            msgspec.structs.replace(file.chunks[0], first_offset=99),
            msgspec.structs.replace(file.chunks[0], last_offset=file.chunks[0].last_offset - 1),
            msgspec.structs.replace(file.chunks[0], schema_id=2),
        ):
            changed = replace(file, chunks=(mark, *file.chunks[1:]))
            yield replace(manifest, files=(*manifest.files[:at], changed, *manifest.files[at + 1 :]))
