"""Stock Iceberg's maintenance between our rounds: every delete is placed right after it, state and events stay the model's."""

import os
import time
from pathlib import Path

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.crash.scene import TAKEOVER, Scene
from tests.readers.engines import QUICK
from tests.readers.lake_files import local_path
from tests.readers.stock_spark import StockSpark
from tests.readers.walk import Walk, strays

pytestmark = [pytest.mark.maven, pytest.mark.slow]

DAY_S = 86_400
REWRITE_ALL = {"rewrite-all": "true", "min-input-files": "1"}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


class Stock:
    """Stock procedures on a scene's table, each followed by a round, as their commits wait for one to be noticed."""

    def __init__(self, stock: StockSpark, scene: Scene) -> None:
        self._stock = stock
        self._scene = scene

    def call(self, procedure, **arguments):
        return self._stock.call(self._scene.storage.properties, procedure, str(self._scene.history.path), **arguments)

    def rewrite_data(self):
        self._scene.tier()
        self.call("rewrite_data_files", options=REWRITE_ALL)
        self._go_on()

    def rewrite_deletes(self):
        self._scene.tier()
        self.call("rewrite_position_delete_files", options=REWRITE_ALL)
        self._go_on()

    def rewrite_both(self):
        self._scene.tier()
        self.call("rewrite_data_files", options={"min-input-files": "2", "delete-file-threshold": "1"})
        self.call("rewrite_position_delete_files", options=REWRITE_ALL)
        self._go_on()

    def rewrite_manifests(self):
        self._scene.tier()
        self.call("rewrite_manifests")
        self._go_on()

    def check_orphans(self):
        """Nobody died: stock `remove_orphan_files` must find nothing. It refuses files younger than a day."""
        table = self._scene.audit.table()
        old_s = time.time() - 3 * DAY_S
        for path in Path(local_path(table.location())).rglob("*"):
            os.utime(path, (old_s, old_s))
        limit = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - 2 * DAY_S))
        found = self.call("remove_orphan_files", dry_run=True, older_than=limit)
        assert found == {}, found

    def _go_on(self):
        """The state is the same at once; events are whole again with our next commit, which keeps what was retired."""
        scene = self._scene
        table, logs = scene.audit.table(), scene.history.read()
        scene.audit.check_snapshot(table, logs)
        scene.write()
        scene.tier()
        scene.audit.check(complete=True)

    @property
    def steps(self):
        return {
            "stock rewrite_data_files": self.rewrite_data,
            "stock rewrite_position_delete_files": self.rewrite_deletes,
            "stock both rewrites": self.rewrite_both,
            "stock rewrite_manifests": self.rewrite_manifests,
            "stock remove_orphan_files": self.check_orphans,
        }


@pytest.mark.parametrize(
    "kind", ["log_parts", "pk", "pk_tricky", "pk_parts", "pk_by_date", "pk_by_timestamp_6", "pk_by_decimal_9_2"]
)
def test_stock_maintenance_between_rounds(cluster, stock, seed, kind):
    scene = Scene(cluster, kind, seed, f"{kind}_stock")
    steps = Stock(stock, scene).steps
    walk = Walk(scene, {**QUICK, "spark": lambda table: stock.rows(table.metadata_location)}, steps)
    for step in steps.values():
        scene.write()
        step()
    walk.run(12)


@pytest.mark.parametrize("kind", ["pk", "pk_parts"])
def test_equality_mode_as_spark_reads_it(cluster, stock, seed, kind):
    scene = Scene(cluster, kind, seed, f"{kind}_equality", {"table.datalake.delete-mode": "equality"})
    Walk(scene, {"spark": lambda table: stock.rows(table.metadata_location)}, without=["foreign compaction"]).run(20)


def test_stock_expiry_leaves_no_file_behind(cluster, stock, seed):
    scene = Scene(cluster, "pk", seed, "pk_stock_expiry")
    for _ in range(5):
        scene.write()
        scene.tier()
    Stock(stock, scene).call("expire_snapshots", retain_last=1, older_than="2099-01-01 00:00:00")
    unknown, missing = strays(scene.audit.table())
    assert not missing
    assert not {each for each in unknown if each.endswith((".parquet", ".avro"))}
    scene.write()
    scene.finish()
