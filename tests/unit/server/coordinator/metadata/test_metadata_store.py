"""The metadata file: versions, identity, durability of what was said, ids that never come twice."""

import sqlite3
import threading
from contextlib import closing, suppress

import pytest

from fluss_lab.errors import CorruptDataError, LabError, StorageError
from fluss_lab.server.coordinator.metadata.metadata_store import BLOCK_IDS, SCHEMA_VERSION, MetadataStore


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "metadata.db"
    MetadataStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(
        LabError, match=f"newer version of fluss_lab.*format {SCHEMA_VERSION + 1}.*up to {SCHEMA_VERSION}"
    ):
        MetadataStore(path)
    assert path.read_bytes() == before


def test_another_programs_file_is_refused(tmp_path):
    path = tmp_path / "metadata.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(CorruptDataError, match="another SQLite file"):
        MetadataStore(path)


def test_damaged_bytes_are_refused(tmp_path):
    path = tmp_path / "metadata.db"
    MetadataStore(path).close()
    path.write_bytes(b"not a database at all" * 500)
    with pytest.raises(CorruptDataError, match="restore"):
        MetadataStore(path)


def test_the_file_is_in_wal_mode_and_synchronous_full(tmp_path):
    store = MetadataStore(tmp_path / "metadata.db")
    with store.read() as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    store.close()


def test_ids_are_never_given_out_again_over_restarts(tmp_path):
    seen = []
    for _ in range(3):
        store = MetadataStore(tmp_path / "metadata.db")
        seen += [store.next_id("table", 1), store.next_id("table", 1), store.next_id("writer")]
        store.close()
    assert seen == [1, 2, 0, 3, 4, 1, 5, 6, 2]


def test_quick_ids_are_never_given_out_again_and_mostly_cost_no_transaction(tmp_path):
    seen = []
    for _ in range(2):
        store = MetadataStore(tmp_path / "metadata.db")
        for _ in range(BLOCK_IDS + 1):
            seen.append(store.next_quick_id("writer", 1))
            assert store.peek_id("writer") > seen[-1]
        seen += [store.next_id("writer", 1)]
        store.close()
    assert len(set(seen)) == len(seen)
    # A block is begun twice by each of two runs, beside two single ids.
    with closing(MetadataStore(tmp_path / "metadata.db")) as store:
        assert store.peek_id("writer") == 1 + 4 * BLOCK_IDS + 2


def test_quick_ids_within_a_transaction_that_is_taken_back_are_not_given_out_as_others(tmp_path):
    store = MetadataStore(tmp_path / "metadata.db")
    with suppress(RuntimeError), store.write():
        store.next_quick_id("writer", 1)
        raise RuntimeError
    assert store.next_quick_id("writer", 1) == 1
    store.close()
    with closing(MetadataStore(tmp_path / "metadata.db")) as again:
        assert again.next_quick_id("writer", 1) == 1 + BLOCK_IDS


def test_ids_are_unique_among_threads(tmp_path):
    store = MetadataStore(tmp_path / "metadata.db")
    found: list[int] = []

    def draw() -> None:
        found.extend(store.next_id("writer") for _ in range(20))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(80))
    store.close()


def test_a_transaction_that_raises_leaves_nothing_and_the_next_one_works(tmp_path):
    store = MetadataStore(tmp_path / "metadata.db")

    def fail() -> None:
        with store.write():
            store.set_meta("a", "1")
            with store.write():
                store.set_meta("b", "1")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fail()
    assert store.meta("a") is None
    assert store.meta("b") is None
    store.set_meta("a", "2")
    assert store.meta("a") == "2"
    store.close()


def test_what_the_disk_refuses_is_a_storage_error_and_changes_nothing(tmp_path):
    store = MetadataStore(tmp_path / "metadata.db")
    store.set_meta("a", "1")
    with store.read() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full"):
        store.set_meta("big", "x" * 100_000)
    assert store.meta("big") is None
    assert store.meta("a") == "1"
    store.close()


def test_rows_that_are_replaced_or_go_with_others_leave_the_sums_right(tmp_path):
    path = tmp_path / "metadata.db"
    with closing(MetadataStore(path)) as store, store.write() as db:
        db.execute("INSERT INTO databases VALUES ('d', 1)")
        for table_id in (1, 2):
            db.execute("INSERT INTO tables VALUES (?, 'd', ?, 1, 'x', 1, 1)", (table_id, f"t{table_id}"))
            for state in ("New", "Tiered"):
                db.execute("INSERT OR REPLACE INTO tiering VALUES (?, ?, 1, 1, NULL, 0, 0, NULL)", (table_id, state))
        db.execute("DELETE FROM tables WHERE table_id = 1")
    with closing(MetadataStore(path)) as store, store.read() as db:
        assert db.execute("SELECT table_id, state FROM tiering").fetchall() == [(2, "Tiered")]
