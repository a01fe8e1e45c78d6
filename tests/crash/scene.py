"""One lake table whose tierers are killed and stopped, and what must hold whatever happens to them."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from pyiceberg.table import Table

from fluss_lab.errors import TieringInProgressError
from fluss_lab.lake import LakeStorage
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor, TiererProcess, maintain_by_hand
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round
from tests.crash.history import History
from tests.crash.kinds import Kind
from tests.readers.audit import LakeAudit, load_table
from tests.readers.engines import FASTEST, QUICK, Engine

T = TypeVar("T")
KILLED: Final = -9
BY_HAND: Final = ("tiering.adopt_", "tiering.give_up.", "lake.relocate.")
#: Points that only rounds of primary-key tables pass.
KEYED_ONLY: Final = {"lake.place.after", "lake.write.after_delete_file", "maintenance.compact.after_deletes"}
ROOT: Final = Path(__file__).parents[2] / "fluss_lab"
#: A tierer that is silent for so long loses its table to one asked by hand; a dead process loses it at once.
TAKEOVER: Final = {"lake.tiering.takeover": "100ms", "lake.tiering.heartbeat-timeout": "30s"}
#: Many splits of a bucket, so that deletes are placed by the committer.
CUT: Final = {"split_bytes_min": 1, "split_bytes_max": 400}
#: Longer than the hour for which snapshots are kept whatever happens, and longer than a changelog is by default.
HOURS_AHEAD_MS: Final = 3 * 3_600_000
DAYS_AHEAD_MS: Final = 9 * 24 * 3_600_000
_RENEW: Final = {"renew_interval_s": 0.08}
PATIENCE_S: Final = 60.0


def points_of(kind: Kind) -> list[str]:
    """Return the names of all failpoints in the source that tiering and maintenance of such a table pass, in order.

    Those of repairs by hand are left out: a repair that was cut off is run again, and no round passes before.
    """
    names = {
        name
        for path in ROOT.rglob("*.py")
        for name in re.findall(
            r'\bfailpoint\(\s*"((?:tiering|lake|maintenance)[a-z_.]+)"', path.read_text(encoding="utf-8")
        )
    }
    return sorted(name for name in names if not name.startswith(BY_HAND) and (kind.is_keyed or name not in KEYED_ONLY))


class Scene:
    """A table, its history, and its tierers.

    Args:
        cluster: Where it is; made with `TAKEOVER`.
        kind: Of `tests.crash.kinds.KINDS`.
        seed: Of everything random.
        name: The table's name.
        properties: Of the table, beside the kind's and those of a lake-enabled one.
    """

    def __init__(
        self, cluster: EmbeddedCluster, kind: str, seed: int, name: str, properties: Mapping[str, Any] | None = None
    ) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.history = History(cluster.connection, kind, self.rng, name, more=properties)
        equality = self.history.info.descriptor.properties.get("table.datalake.delete-mode") == "equality"
        self.audit = LakeAudit(self.history, equality=equality)

    def write(self, times: int = 2) -> None:
        """Write at random, so that there is something to tier after it (where the merge engine lets rows change)."""
        before = self.history.changes
        for _ in range(times):
            self.history.write()
        while self.history.kind.engine == "default" and self.history.changes == before:
            self.history.write()

    def tier(self, **options: Any) -> TieringReport:
        """Tier in this process; a stopped predecessor loses the table after the takeover time."""
        connection, chosen = self.cluster.connection, TieringOptions(**{**_RENEW, **options})
        table_id = self.history.info.table_id
        report = self._patiently(
            lambda: run_round(connection, self.storage, LocalTieringExecutor(), table_id=table_id, options=chosen)
        )
        assert report is not None
        return report

    def maintain(self, action: str, ahead_ms: int = 0) -> Any:
        """Compact, expire or remove orphan files by hand, in this process; see `maintain_by_hand`."""
        connection, table_id = self.cluster.connection, self.history.info.table_id
        return self._patiently(
            lambda: maintain_by_hand(
                connection, self.storage, LocalTieringExecutor(), action, table_id, ahead_ms=ahead_ms
            )
        )

    @property
    def storage(self) -> LakeStorage:
        storage: LakeStorage | None = self.cluster.connection.lake_storage()
        assert storage is not None
        return storage

    def _patiently(self, action: Callable[[], T]) -> T:
        deadline_s, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while True:
            try:
                return action()
            except TieringInProgressError:
                assert time.monotonic() < deadline_s
                pause.wait(0.05)

    def tierer(
        self, armed: Mapping[str, str] | None = None, *, action: str = "round", ahead_ms: int = 0, **options: Any
    ) -> TiererProcess:
        return TiererProcess(
            self.cluster.address.to_json(),
            self.history.info.table_id,
            failpoints=armed,
            options={**_RENEW, **options},
            action=action,
            ahead_ms=ahead_ms,
        )

    def kill_at(self, point: str, **options: Any) -> bool:
        """Run a round (or what `action` says) in a process that dies at a failpoint; tell whether it passed there."""
        process = self.tierer({point: "kill"}, **options)
        try:
            code = process.wait()
            assert code in {KILLED, 0}, (point, code, process.report())
        finally:
            process.kill()
        return code == KILLED

    def stopped_at(self, point: str, **options: Any) -> TiererProcess | None:
        """Return a tierer that is stopped at a failpoint; None when it did not pass there."""
        process = self.tierer({point: "stop@1"}, **options)
        if process.stops():
            return process
        assert process.wait() == 0, process.report()
        return None

    def check(self, *, complete: bool = False, engines: Mapping[str, Engine] = FASTEST) -> Table:
        """Hold the lake against the logs; see `LakeAudit.check`."""
        return self.audit.check(complete=complete, engines=engines)

    def finish(self) -> None:
        """Tier what is left, twice: all must be there then, and the second round must have nothing to do."""
        self.tier()
        self.check(complete=True, engines=QUICK)
        assert self.tier().rows == 0


@dataclass(frozen=True)
class Setup:
    """A way to get a tierer to pass a failpoint.

    Attributes:
        action: As of `TiererProcess`.
        ahead_ms: As of `TiererProcess`.
        left: Where a predecessor dies first; None: there is none.
        tiered: Whether what is written is tiered before.
        rounds: So many rounds come before, after a compaction.
        options: Of the round.
    """

    action: str = "round"
    ahead_ms: int = 0
    left: str | None = None
    tiered: bool = False
    rounds: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def kill(self, scene: Scene, point: str) -> bool:
        """Kill a tierer there; tell whether it came that far."""
        self._prepare(scene)
        return scene.kill_at(point, action=self.action, ahead_ms=self.ahead_ms, **self.options)

    def stop(self, scene: Scene, point: str) -> TiererProcess | None:
        """Return a tierer that is stopped there; None when it did not come that far."""
        self._prepare(scene)
        return scene.stopped_at(point, action=self.action, ahead_ms=self.ahead_ms, **self.options)

    def _prepare(self, scene: Scene) -> None:
        if self.rounds:
            scene.tier()
            scene.maintain("compact")
        for _ in range(self.rounds):
            scene.write()
            scene.tier()
        scene.write()
        if self.tiered:
            scene.tier()
        if self.left is not None:
            assert scene.kill_at(self.left), self.left
            scene.write()


def reaches(point: str) -> tuple[Setup, ...]:
    """Return the ways to get a tierer to pass a failpoint, the likeliest first."""
    if point.startswith("maintenance.expire"):
        return (Setup("expire", DAYS_AHEAD_MS, tiered=True),)
    if point.startswith("maintenance.orphans"):
        # A dead round's files are what there is to remove.
        return (Setup("orphans", HOURS_AHEAD_MS, left="tiering.write.after"),)
    if point == "maintenance.compact.after_deletes":
        # Delete files are put together by themselves soon after a compaction, when there are more than twenty.
        return (Setup(rounds=20), *[Setup()] * 10)
    if point.startswith("maintenance"):
        # The round before may have compacted by itself, all there was.
        return (Setup("compact", tiered=True),) * 3
    if point == "tiering.register.after":
        return (Setup(left="tiering.lake_commit.after"),)
    if point == "tiering.fence.after":
        return (Setup(left="tiering.write.after"),)
    return (Setup(options=CUT), Setup()) * 3


class Watcher(threading.Thread):
    """Reads every version of a table's metadata that it gets hold of: each must show whole rounds.

    The table must not be written to while it watches: what its buckets' logs hold is read once.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(name="watcher")
        self._scene = scene
        self._logs = scene.history.read()
        self._ending = threading.Event()
        self.seen: set[str] = set()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._look()
        except BaseException as error:
            self.error = error

    def _look(self) -> None:
        history = self._scene.history
        table = load_table(history.connection, history.path)
        if table.metadata_location not in self.seen:
            self._scene.audit.check_snapshot(table, self._logs, FASTEST)
            self.seen.add(table.metadata_location)
        self._ending.wait(0.02)

    def __enter__(self) -> Watcher:
        self.start()
        wait_until(lambda: bool(self.seen) or self.error is not None)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(PATIENCE_S)
        if self.error is not None:
            raise self.error
