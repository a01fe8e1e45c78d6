"""Notifications of tablet servers: none is lost because the metadata could not be read or written for a moment."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from fluss_lab.errors import StorageError
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE
from fluss_lab.server.coordinator.tiering.tiering_manager import TieringManager
from fluss_lab.testing import wait_until
from tests.unit.server.coordinator.rig import Rig

WAIT_S = 20.0
#: Makes a row of a table unreadable, and readable again.
DAMAGES = {
    "stops": (
        "INSERT INTO pending_stops VALUES (99, -1, 'x')",
        "DELETE FROM pending_stops WHERE table_id = 99",
    ),
    "buckets": (
        "UPDATE assignments SET leaders = 'x' || leaders WHERE table_id = {table_id}",
        "UPDATE assignments SET leaders = substr(leaders, 2) WHERE table_id = {table_id}",
    ),
    "table": (
        "UPDATE tables SET descriptor = 'x' || descriptor WHERE table_id = {table_id}",
        "UPDATE tables SET descriptor = substr(descriptor, 2) WHERE table_id = {table_id}",
    ),
}


@contextmanager
def unreadable(rig: Rig, kind: str, table_id: int) -> Iterator[None]:
    """Have rows of the metadata be nothing that can be read, in the block."""
    broken, mended = (text.format(table_id=table_id) for text in DAMAGES[kind])
    with closing(sqlite3.connect(rig.cluster.folder / DATABASE_FILE, isolation_level=None)) as db:
        row_checksums.prepare(db)
        db.execute(broken)
        try:
            yield
        finally:
            db.execute(mended)


def test_a_drop_is_reported_though_the_metadata_could_not_be_read_then(rig):
    table_id = rig.create()
    folder = rig.cluster.folder / "tablet" / "data" / f"t{table_id}"
    assert folder.exists()
    with unreadable(rig, "stops", table_id):
        rig.drop()
        assert folder.exists()
    wait_until(lambda: not folder.exists(), WAIT_S)


def test_a_drop_is_reported_though_what_follows_it_fails(rig, monkeypatch):
    """With the next change, not only when the server registers again."""
    table_id = rig.create()
    folder = rig.cluster.folder / "tablet" / "data" / f"t{table_id}"

    def refused(*_):
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TieringManager, "drop", refused)
        with pytest.raises(StorageError):
            rig.drop()
    assert folder.exists()
    rig.create("another")
    wait_until(lambda: not folder.exists(), WAIT_S)


@pytest.mark.parametrize("kind", ["buckets", "table"])
def test_a_definition_is_reported_though_the_metadata_could_not_be_read_then(rig, kind):
    table_id = rig.create()
    tablets = rig.cluster.node._coordinator._tablets
    with unreadable(rig, kind, table_id):
        tablets.note_table(table_id)
        tablets.settle()
        assert tablets._pending
    wait_until(lambda: not tablets._pending, WAIT_S)
