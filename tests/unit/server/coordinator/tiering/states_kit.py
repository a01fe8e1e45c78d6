"""The states of tables on a bench: no server, a clock by hand."""

from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import TableCatalog
from fluss_lab.server.coordinator.tiering.table_tiering import TieringState
from fluss_lab.server.coordinator.tiering.tierer_leases import LeaseTimes
from fluss_lab.server.coordinator.tiering.tiering_manager import TieringManager
from fluss_lab.testing.mock_clock import MockClock

FRESHNESS_MS = 60_000
TIMEOUT_MS = 120_000
TAKEOVER_MS = 10_000
ROUNDS_KEPT = 5


def table(table_id: int, freshness_ms: int = FRESHNESS_MS, enabled: bool = True) -> TableInfo:
    properties = {"table.datalake.enabled": enabled, "table.datalake.freshness": f"{freshness_ms}ms"}
    return TableInfo(
        TablePath("d", f"t{table_id}"), table_id, 1, make_descriptor({"a": "int"}, properties=properties), 0, 0
    )


class Bench:
    """A coordinator's tiering with its file, which can be started again."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.clock = MockClock()
        self.epoch = 0
        self.store = MetadataStore(folder / "metadata.db")
        self.catalog = TableCatalog(self.store)
        if not self.catalog.has_database("d"):
            self.catalog.add_database("d", 0)
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.tiering = TieringManager(
            self.store, self.clock,
            coordinator_epoch=self.epoch, lease_times=LeaseTimes(TIMEOUT_MS, TAKEOVER_MS),
            rounds_kept=ROUNDS_KEPT,
        )  # fmt: skip
        for info in self.catalog.all_tables():
            if info.descriptor.lake_enabled:
                self.tiering.register(info, new=False)

    def restart(self) -> None:
        self.store.close()
        self.store = MetadataStore(self.folder / "metadata.db")
        self.catalog = TableCatalog(self.store)
        self.start()

    def add(self, table_id: int, freshness_ms: int = FRESHNESS_MS) -> None:
        info = table(table_id, freshness_ms)
        self.catalog.add_table(info, [0])
        self.tiering.register(info, new=True)

    def define(self, table_id: int, freshness_ms: int, *, enabled: bool) -> None:
        info = table(table_id, freshness_ms, enabled)
        was_enabled = self.catalog.table_by_id(table_id).descriptor.lake_enabled
        self.catalog.set_definition(info)
        if enabled:
            self.tiering.register(info, new=not was_enabled)
        else:
            self.tiering.remove(table_id)

    def state(self, table_id: int) -> tuple[TieringState, int]:
        found = next(each for each in self.tiering.states() if each.table_id == table_id)
        return found.state, found.epoch
