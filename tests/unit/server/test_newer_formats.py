"""Every file of a lab that has a format number: one of a newer version is refused with that word, never read."""

import json
import sqlite3

import pytest

from fluss_lab.errors import FlussError, LabError, UnsupportedError
from fluss_lab.model import Schema, TableDescriptor, TablePath, make_descriptor
from fluss_lab.records import kv_manifest
from fluss_lab.records.sealed import sealed, unsealed
from fluss_lab.server import discovery, process
from fluss_lab.server.coordinator.store import MetadataStore
from fluss_lab.server.tablet.tables import kept_schemas
from fluss_lab.testing import EmbeddedCluster, wait_until

NEWER = "written by a newer version of fluss_lab"
PATH = TablePath("d", "t")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A stopped lab with a primary-key table and a snapshot of it."""
    folder = tmp_path_factory.mktemp("newer") / "lab"
    with EmbeddedCluster(folder, lake=False) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("d")
        info = admin.create_table(PATH, make_descriptor({"id": "bigint"}, primary_key=["id"]))
        with cluster.connection.upsert_writer(PATH) as writer:
            writer.upsert([{"id": 1}]).result()
        (status,) = admin.buckets(info)
        cluster.tablet().snapshot_now(status.bucket)
    process.save_options(folder, {})
    return folder


def newer(data, *, seal=False):
    value = json.loads(unsealed(data) if seal else data)
    assert value["version"] == 1
    text = json.dumps({**value, "version": 99}).encode()
    return sealed(text) if seal else text


def test_options_of_the_server(lab, tmp_path):
    (tmp_path / process.OPTIONS_FILE).write_bytes(newer((lab / process.OPTIONS_FILE).read_bytes()))
    with pytest.raises(UnsupportedError, match=NEWER) as caught:
        process.read_options(tmp_path)
    assert "format 99, this one reads up to 1" in str(caught.value)
    assert process.OPTIONS_FILE in str(caught.value)


def test_where_servers_are(tmp_path):
    (tmp_path / "server.json").write_text(json.dumps({"version": 99, "servers": []}))
    with pytest.raises(LabError, match=NEWER):
        discovery.read(tmp_path)


def test_metadata(tmp_path):
    path = tmp_path / "metadata.db"
    MetadataStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LabError, match=NEWER):
        MetadataStore(path)


def test_definitions_and_schemas():
    descriptor = make_descriptor({"id": "bigint"}).to_json()
    for read, value in ((TableDescriptor.from_json, descriptor), (Schema.from_json, descriptor["schema"])):
        read(value)
        with pytest.raises(UnsupportedError, match=NEWER):
            read({**value, "version": 99})


def test_a_snapshot_of_rows(lab):
    (path,) = lab.rglob("*.manifest")
    with pytest.raises(UnsupportedError, match=NEWER):
        kv_manifest.parse_manifest(newer(path.read_bytes(), seal=True), path)


def test_a_schema_beside_the_logs_keeps_its_buckets_closed(lab):
    (path,) = lab.rglob("schema-1.json")
    before = path.read_bytes()
    path.write_bytes(newer(before))
    with pytest.raises(UnsupportedError, match=NEWER) as caught:
        kept_schemas(path.parent)
    assert str(path) in str(caught.value)
    with EmbeddedCluster(lab, lake=False) as cluster:
        admin = cluster.connection.admin()
        info = admin.table_info(PATH)

        def refusal():
            try:
                return str(admin.buckets(info, patient=False)[0].error)
            except FlussError as error:
                return str(error)

        wait_until(lambda: NEWER in refusal())
    path.write_bytes(before)
