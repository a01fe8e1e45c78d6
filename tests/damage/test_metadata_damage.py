"""The coordinator's metadata, damaged anywhere: the lab is as it was, or refused by a clear error; it is never another lab."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fluss_lab.errors import CorruptDataError, FlussError
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.process import discovery
from fluss_lab.server.process.server_node import ServerNode
from tests.damage.damages import DAMAGES, flip
from tests.unit.read.kit import until

#: Texts that no release wrote where JSON is expected, or any text.
TEXTS = (
    "",
    "{",
    "[]",
    "{}",
    "null",
    "7",
    '"x"',
    "[" * 3_000,
    '{"version": 1}',
    '[-1, "a"]',
    "[[1]]",
    "\x00",
    "-5",
    "x" * 5_000,
)
NUMBERS = (-(2**63), -7, 0, 2**31, 2**63 - 1)
#: A database file's header: every byte is of another field.
HEADER_BYTES = 100
WAL = f"{DATABASE_FILE}-wal"


def _content(path):
    """Return all rows of all tables, as a coordinator opens them."""
    with closing(MetadataStore(path)) as store, store.read() as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        return {table: sorted(map(repr, db.execute(f"SELECT * FROM {table}"))) for table in tables}


class Metadata:
    """The metadata of a lab, damaged again and again."""

    def __init__(self, source: Path, place: Path) -> None:
        self.path = place / DATABASE_FILE
        shutil.copyfile(source, self.path)
        self.content = _content(self.path)
        self.data = self.path.read_bytes()
        self.exact = self.refused = 0

    def look(self, data: bytes, what: str) -> None:
        """See that content is exact or refused, and that what is refused is left alone."""
        for left in self.path.parent.glob(f"{DATABASE_FILE}*"):
            left.unlink()
        self.path.write_bytes(data)
        found, error = self._found()
        if error is not None:
            assert str(self.path) in str(error), error
            assert self.path.read_bytes() == data, f"{what}: what was refused was changed"
            self.refused += 1
            return
        assert found == self.content, f"{what}: other content, without an error"
        self.exact += 1

    def _found(self):
        try:
            return _content(self.path), None
        except FlussError as error:
            return None, error


@pytest.fixture
def metadata(whole_lab, tmp_path):
    """The metadata of the lab with every kind of file."""
    return Metadata(whole_lab.kept / DATABASE_FILE, tmp_path)


def _flip_all(metadata, rng, places):
    for place in places:
        data = bytearray(metadata.data)
        data[place] ^= 1 << rng.randrange(8)
        metadata.look(bytes(data), f"byte {place}")


def _places(size, rng, per_page):
    yield from range(HEADER_BYTES)
    for page in range(0, size, 4096):
        yield from (page + rng.randrange(4096) for _ in range(per_page))


def test_a_flipped_byte_of_the_metadata_is_noticed_or_means_nothing(metadata, rng):
    _flip_all(metadata, rng, _places(len(metadata.data), rng, 3))
    assert metadata.refused > 50


def test_cut_metadata_is_refused(metadata, rng):
    pages = len(metadata.data) // 4096
    for size in [4096 * rng.randrange(1, pages) for _ in range(5)] + [
        rng.randrange(len(metadata.data)) for _ in range(5)
    ]:
        metadata.look(metadata.data[:size], f"cut to {size}")
    assert metadata.exact == 0


@pytest.mark.campaign
def test_every_part_of_the_metadata_flipped(metadata, rng):
    _flip_all(metadata, rng, _places(len(metadata.data), rng, 150))
    for size in range(0, len(metadata.data), 611):
        metadata.look(metadata.data[:size], f"cut to {size}")
    print(f"{metadata.exact} exact, {metadata.refused} refused")


@pytest.mark.parametrize("damage", ["deleted", "emptied"])
def test_a_lab_without_its_metadata_is_no_new_lab(tmp_path, damage, rng):
    folder = tmp_path / "lab"
    with ServerNode(folder) as node:
        assert node.address
    DAMAGES[damage](folder / DATABASE_FILE, rng)
    for _ in range(2):
        found = "the file is missing" if damage == "deleted" else "found an empty file"
        with pytest.raises(CorruptDataError, match=rf"(?s)metadata\.db: .*{found}.*estore"):
            ServerNode(folder).start()
    assert (folder / DATABASE_FILE).exists() == (damage == "emptied")


def test_what_was_merged_needs_no_log_beside_it_and_leaves_none_to_be_damaged(tmp_path):
    path, copy = tmp_path / DATABASE_FILE, tmp_path / "copy.db"
    with closing(MetadataStore(path)) as store:
        for number in range(20):
            store.set_meta("k", str(number))
            store.set_meta(f"k{number}", "x" * 900)
        assert (tmp_path / WAL).stat().st_size
        store.merge()
        # An older log that is read up to its damage would be an older truth.
        assert not (tmp_path / WAL).stat().st_size
        shutil.copyfile(path, copy)
        store.set_meta("later", "1")
        assert (tmp_path / WAL).stat().st_size
    found = _content(copy)["meta"]
    assert len(found) == 21
    assert "('k', '19')" in found


def test_a_server_merges_its_metadata_by_itself(tmp_path):
    with ServerNode(tmp_path / "lab"):
        until(lambda: not (tmp_path / "lab" / WAL).stat().st_size, "the metadata's log is merged")


# -- what the metadata says ------------------------------------------------------------------------------------------


def _cells(whole_lab):
    """Return every column of every table that has rows, and whether it is a text."""
    found = []
    with closing(sqlite3.connect(f"file:{whole_lab.kept / DATABASE_FILE}?mode=ro&immutable=1", uri=True)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(set(tables) - {"row_sums"}):
            if db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
                rows = db.execute(f"PRAGMA table_info({table})").fetchall()
                found += [(table, row[1], row[2] == "TEXT", bool(row[3])) for row in rows if not row[5]]
    return found


def _say(path, *, table, column, value, row):
    """Have a row say what no release wrote, its sums right: as a defect, or an older release, would leave it."""
    with closing(sqlite3.connect(path)) as db, db:
        row_checksums.prepare(db)
        keys = [each[1] for each in db.execute(f"PRAGMA table_info({table})") if each[5]]
        rows = db.execute(f"SELECT {', '.join(keys)} FROM {table} ORDER BY 1").fetchall()
        where = " AND ".join(f"{key} = ?" for key in keys)
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *rows[row % len(rows)]))


def _ask(whole_lab, case, wrong):
    table, column, value, row = case
    damage = partial(_say, table=table, column=column, value=value, row=row)
    found, errors = whole_lab.heard(damage, Path(DATABASE_FILE), again=False)
    # A number that could have been written is believed: of another end, readers give what is below it.
    reported = found if isinstance(value, str) else [each for each in found if " raw " in each]
    wrong += [f"{table}.{column} of row {row} = {value!r:.60}: {each}" for each in reported]
    return len(errors)


JSON = {"descriptor", "schema", "leaders", "completed"}


def test_what_the_metadata_cannot_say_is_refused(whole_lab, rng):
    texts = [(table, column) for table, column, is_text, _ in _cells(whole_lab) if is_text and column in JSON]
    assert {column for _, column in texts} == JSON
    wrong: list[str] = []
    for table, column in rng.sample(texts, 3):
        assert _ask(whole_lab, (table, column, rng.choice(TEXTS), rng.randrange(4)), wrong)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("tables", "descriptor", "{"),
        ("tables", "schema_id", -1),
        ("assignments", "leaders", '[-1, "a"]'),
        ("kv_snapshots", "completed", '{"version": 1}'),
        ("lake_tables", "state", "liwe"),
    ],
)
def test_rows_that_nobody_wrote_are_named_and_nothing_is_done_to_the_lake(whole_lab, table, column, value):
    damage = partial(_say, table=table, column=column, value=value, row=0)
    before = sorted((whole_lab.kept / "lake").rglob("*.parquet"))
    wrong, errors = whole_lab.heard(damage, Path(DATABASE_FILE), again=False)
    assert not wrong, "\n".join(wrong)
    assert any(
        isinstance(error, CorruptDataError) and f"{whole_lab.place / DATABASE_FILE}: " in str(error) for error in errors
    )
    assert len(before) > 4
    assert all((whole_lab.place / path.relative_to(whole_lab.kept)).exists() for path in before)


@pytest.mark.campaign
def test_whatever_the_metadata_says_nothing_raw_comes_of_it(whole_lab, rng):
    wrong, count = [], 0
    for table, column, is_text, _ in _cells(whole_lab):
        for value in TEXTS if is_text and column in JSON else rng.sample(TEXTS if is_text else NUMBERS, 3):
            count += 1
            _ask(whole_lab, (table, column, value, rng.randrange(4)), wrong)
    print(f"{count} cases")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_discovery_file_of_a_killed_server_leads_to_no_other_lab(whole_lab, damage, seed):
    def lay(file):
        entry = discovery.ServerEntry(2**22 + 1, "127.0.0.1", 1, str(file.parent / "token"), ("coordinator",), 0)
        discovery.write(file.parent, entry, ephemeral=False)
        DAMAGES[damage](file, random.Random(seed))

    wrong, _ = whole_lab.heard(lay, Path(discovery.DISCOVERY_FILE), again=False)
    assert not wrong, "\n".join(wrong)


def test_a_flip_is_one_bit(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\0")
    flip(path, random.Random(1))
    assert path.read_bytes()[0].bit_count() == 1
