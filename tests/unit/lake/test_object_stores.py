"""Stores behind S3's protocol, by Arrow's file access and by fsspec's, and a catalog of AWS: their errors become the house's.

Runs where moto (and for fsspec s3fs) is installed; the project itself needs neither.
"""

import urllib.request
import warnings

import pytest

from fluss_lab.errors import ServerUnavailableError
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.lab import Lab

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    moto = pytest.importorskip("moto.server", reason="needs a store to ask: pip install 'moto[server]'")

pytestmark = pytest.mark.filterwarnings("ignore")
LAKE = {"table.datalake.enabled": True}
ARROW: dict[str, str] = {}
FSSPEC = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
GLUE = {"type": "glue", "uri": ""}
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE")


class Store:
    """A server of S3 and Glue with one bucket, which can be switched off."""

    def __init__(self) -> None:
        self._server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/lake", method="PUT")).close()

    def stop(self) -> None:
        self._server.stop()

    def options(self, folder, **more: str) -> dict[str, str]:
        found = {
            "name": "test", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": "s3://lake/w",
            "s3.endpoint": self.url, "s3.access-key-id": "id", "s3.secret-access-key": "key", "s3.region": "us-east-1",
            "glue.endpoint": self.url, "glue.access-key-id": "id", "glue.secret-access-key": "key",
            "glue.region": "us-east-1", **more,
        }  # fmt: skip
        return {"datalake.format": "iceberg"} | {f"datalake.iceberg.{key}": each for key, each in found.items() if each}


@pytest.fixture
def store(monkeypatch):
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    made = Store()
    yield made
    made.stop()


def opened(folder, options) -> tuple[EmbeddedCluster, Lab]:
    cluster = EmbeddedCluster(folder / "lab", options, client={"client.request-timeout": "500ms"})
    cluster.start()
    lab = Lab(cluster.connection, folder=None, attachment=None, place={})
    return cluster, lab


def tiered(lab: Lab, table):
    lake = lab.lake_storage()
    return run_round(lab.connection, lake, LocalTieringExecutor(), table_id=table.info.table_id)


@pytest.mark.parametrize("access", [ARROW, FSSPEC, GLUE], ids=["arrow", "fsspec", "glue"])
def test_a_store_that_goes_away_is_an_error_to_try_again(store, tmp_path, access, monkeypatch):
    if access is GLUE:
        monkeypatch.setattr("pyiceberg.catalog.glue.MAX_RETRIES", 1)  # which takes no number from properties
    if access is FSSPEC:
        pytest.importorskip("s3fs", reason="fsspec reaches S3 by s3fs: pip install s3fs")
    cluster, lab = opened(tmp_path, store.options(tmp_path, **access))
    try:
        lab.create_database("d")
        table = lab.create_table("d.t", {"id": "bigint"}, properties=LAKE)
        for number in range(2):
            table.append([{"id": number}])
            tiered(lab, table)
        assert table.scan().count() == 2
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1]
        table.append([{"id": 2}])
        snapshot_id = table.snapshots()[-1]["snapshot_id"]
        store.stop()
        fresh = Lab(cluster.connection, folder=None, attachment=None, place={}).table("d.t")
        calls = {
            "tier": lambda: tiered(lab, table),
            "compact": lambda: maintain_by_hand(
                lab.connection, lab.lake_storage(), LocalTieringExecutor(), "compact", table.info.table_id
            ),
            "scan": lambda: fresh.scan(as_of=snapshot_id).to_arrow(),
            "orphans": lambda: fresh.remove_orphan_files(dry_run=True),
            "create": lambda: lab.create_table("d.u", {"id": "bigint"}, properties=LAKE),
        }
        for name, call in calls.items():
            with pytest.raises(ServerUnavailableError, match=r"(store|catalog) does not answer") as caught:
                call()
            assert caught.value.retriable, name
    finally:
        cluster.close()
