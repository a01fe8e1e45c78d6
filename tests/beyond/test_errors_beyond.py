"""What is said of a lake's store that refuses, is full or has lost the bucket, whoever asks: the class, endpoint, bucket and key."""

import random
from contextlib import closing, contextmanager

import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import AuthenticationError, FlussError, ServerUnavailableError, StorageError
from fluss_lab.lake import lake_storage
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.tiering.cluster_preflight import try_place
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from fluss_lab.tiering.repair.lake_repair import plan_repair
from fluss_lab.tiering.round.tiering_round import run_round
from tests.spark.keyed_tables import Flights
from tests.unit.read.kit import COLUMNS, LAKE, OPTIONS, ModelTable
from tools.beyond.fault_proxy import FaultProxy
from tools.beyond.faults import ACCESS_DENIED, STORE_FULL

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

MONTHS = ["2013-01", "2013-02"]
BUCKET = "errors"
LATER_MS = 30 * 86_400_000


class Scene:
    """Two tables in a lake behind a proxy, and all that is done with them."""

    def __init__(self, cluster, clock, lake, proxy, minio):
        self.cluster, self.lake, self.proxy, self.minio = cluster, lake, proxy, minio
        self.log = ModelTable(cluster, clock, "log")
        self.keyed = Flights(cluster, clock, "keyed")
        for number in range(2):
            self.log.append_random(random.Random(number), 60, MONTHS)
            self.keyed.write(random.Random(number), 60)
            self.round(self.log)
            self.round(self.keyed)
        self.log.expire()
        self.made = 0

    @property
    def storage(self):
        """The lake as one who knows nothing of it yet."""
        return lake_storage("iceberg", self.lake)

    def round(self, table):
        run_round(self.cluster.connection, self.storage, LocalTieringExecutor(), table_id=table.info.table_id)

    def create(self):
        self.made += 1
        descriptor = make_descriptor(COLUMNS, buckets=1, properties=LAKE)
        self.cluster.connection.admin().create_table(TablePath("db", f"new{self.made}"), descriptor)

    def read(self, table, rows):
        with closing(Connection(lambda: self.cluster.connection.address)) as connection:
            rows(TableReader(connection, table.path)).to_arrow()

    def tier_more(self, table):
        if table is self.log:
            table.append_random(random.Random(5), 10, MONTHS)
        else:
            table.write(random.Random(5), 10)
        self.round(table)

    def maintain(self, action, table):
        maintain_by_hand(
            self.cluster.connection,
            self.storage,
            LocalTieringExecutor(),
            action,
            table.info.table_id,
            ahead_ms=LATER_MS,
        )

    def preflight(self):
        storage = self.storage
        if (failed := try_place("iceberg", storage.store_place([]))) is not None:
            raise failed


ACTIONS = {
    "create": Scene.create,
    "read log": lambda scene: scene.read(scene.log, TableReader.scan),
    "read keyed": lambda scene: scene.read(scene.keyed, TableReader.scan),
    "changelog": lambda scene: scene.read(scene.log, TableReader.changelog),
    "round log": lambda scene: scene.tier_more(scene.log),
    "round keyed": lambda scene: scene.tier_more(scene.keyed),
    "expire": lambda scene: scene.maintain("expire", scene.log),
    "orphans": lambda scene: scene.maintain("orphans", scene.log),
    "compact": lambda scene: scene.maintain("compact", scene.keyed),
    "repair": lambda scene: plan_repair(scene.cluster.connection, scene.storage, scene.log.path),
    "preflight": Scene.preflight,
}
#: Those that write nothing, or can do without.
READING = {"read log", "read keyed", "changelog", "orphans", "repair"}


@pytest.fixture(scope="module")
def scene(minio, tmp_path_factory):
    folder, clock = tmp_path_factory.mktemp("errors"), MockClock()
    with FaultProxy(minio.port) as proxy:
        lake = {
            "name": "errors", "type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"{minio.make_bucket(BUCKET)}/deep",
            "s3.request-timeout": "2", "s3.connect-timeout": "2", **minio.lake_options(proxy.endpoint),
        }  # fmt: skip
        options = OPTIONS | {f"datalake.iceberg.{key}": value for key, value in lake.items()}
        with EmbeddedCluster(folder / "lab", options | {"lake.tiering.takeover": "300ms"}, clock=clock) as cluster:
            yield Scene(cluster, clock, lake, proxy, minio)


@contextmanager
def _harmed(scene, fault, method=None):
    scene.proxy.arm(fault, method=method, times=None)
    try:
        yield
    finally:
        scene.proxy.disarm()


@contextmanager
def _stopped(scene):
    scene.proxy.stop()
    try:
        yield
    finally:
        scene.proxy.start()


@contextmanager
def _revoked(scene):
    scene.minio.revoke_credentials()
    try:
        yield
    finally:
        scene.minio.restore_credentials()


@contextmanager
def _bucket_gone(scene):
    there = scene.minio.objects / BUCKET
    away = there.rename(scene.minio.objects / "elsewhere")
    try:
        yield
    finally:
        away.rename(there)


FAULTS = {
    "the bucket is gone": (_bucket_gone, StorageError, "no such bucket", set()),
    "keys are wrong": (_revoked, AuthenticationError, "refused access", set()),
    "keys may only read": (
        lambda scene: _harmed(scene, ACCESS_DENIED, "PUT"), AuthenticationError, "refused access", READING,
    ),
    "keys may only write": (
        lambda scene: _harmed(scene, ACCESS_DENIED, "GET"), AuthenticationError, "refused access", {"create"},
    ),
    "it is full": (lambda scene: _harmed(scene, STORE_FULL, "PUT"), StorageError, "is full", READING),
    "it is stopped": (_stopped, ServerUnavailableError, "does not answer", set()),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_who_asks_a_store_that_fails_learns_what_and_where(scene, fault):
    begin, kind, words, well = FAULTS[fault]
    wrong = []
    for table in (scene.log, scene.keyed) * 2:  # so that there is something to compact, and to expire
        scene.tier_more(table)
    with begin(scene):
        for name, action in ACTIONS.items():
            try:
                action(scene)
                said, found = "", None
            except FlussError as error:
                said, found = str(error), type(error)
            print(f"{fault}, {name}: {found and found.__name__}: {said}")
            if name in well:
                wrong += [f"{name}: {said}"] if found else []
            elif found is None or not issubclass(found, kind) or scene.minio.secret_key in said:
                wrong.append(f"{name}: {found}: {said}")
            elif not all(each in said for each in (words, scene.proxy.endpoint, f"s3://{BUCKET}/deep/")):
                wrong.append(f"{name}: {said}")
    assert not wrong, "\n".join(wrong)
    for name, action in ACTIONS.items():
        print(f"after {fault}: {name}")
        action(scene)
