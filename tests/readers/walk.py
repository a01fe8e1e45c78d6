"""A random walk of one lake table: whatever happens to it, it reads as the model says after every commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import cast

from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from tests.crash.scene import CUT, DAYS_AHEAD_MS, HOURS_AHEAD_MS, Scene
from tests.readers import foreign
from tests.readers.engines import QUICK, Engine
from tests.readers.lake_files import is_local, live_files, local_path

CHECKSUM = ".crc"
Step = Callable[[], None]


class Walk:
    """Steps at random, and checks after each.

    Args:
        scene: The table.
        engines: Who reads its state.
        more: Further steps by name, for instance what other people's maintenance does.
        without: Steps that are not taken.
    """

    def __init__(
        self,
        scene: Scene,
        engines: Mapping[str, Engine] = QUICK,
        more: Mapping[str, Step] | None = None,
        without: Collection[str] = (),
    ) -> None:
        self._scene = scene
        self._engines = engines
        self.taken: Counter[str] = Counter()
        self._steps: dict[str, tuple[Step, int]] = {
            "write": (lambda: scene.write(1), 8),
            "tier": (self._tier, 6),
            "tier cut": (lambda: self._tier(**CUT), 3),
            "compact": (lambda: scene.maintain("compact"), 2),
            "expire": (lambda: scene.maintain("expire", ahead_ms=HOURS_AHEAD_MS), 1),
            "expire tags": (lambda: scene.maintain("expire", ahead_ms=DAYS_AHEAD_MS), 1),
            "orphans": (self._remove_orphans, 1),
            "add column": (self._add_column, 1),
            "foreign compaction": (self._foreign_compaction, 2),
            **{name: (step, 2) for name, step in (more or {}).items()},
        }
        if scene.history.kind.partitioned_by:
            self._steps["drop partition"] = (lambda: self._drop_partition(lake=False), 1)
            self._steps["drop partition in lake"] = (lambda: self._drop_partition(lake=True), 1)
        self._steps = {name: step for name, step in self._steps.items() if name not in without}

    def run(self, steps: int) -> None:
        """Take so many steps, with a check after each; then tier what is left."""
        for _ in range(steps):
            self.step()
        self._scene.finish()
        self.check()

    def step(self) -> None:
        names = list(self._steps)
        name = self._scene.rng.choices(names, [weight for _, weight in self._steps.values()])[0]
        try:
            self._steps[name][0]()
            self.taken[name] += 1
            if name != "write":
                self.check()
        except Exception as error:
            error.add_note(f"in step {name}, after {dict(self.taken)}")
            raise

    def check(self) -> None:
        table = self._scene.audit.check(complete=False, engines=self._engines)
        unknown, missing = strays(table)
        assert not missing, f"files that snapshots refer to are gone: {sorted(missing)[:5]}"
        assert not unknown, f"files that nothing refers to: {sorted(unknown)[:5]}"

    def _tier(self, **options: int) -> None:
        self._scene.tier(**options)
        self._scene.audit.check(complete=True, engines={})

    def _remove_orphans(self) -> None:
        """Nobody died here, so there is nothing to remove, but for the checksum files of Hadoop's writers."""
        report = self._scene.maintain("orphans", ahead_ms=HOURS_AHEAD_MS)
        assert not [path for path in report.files if not path.endswith(CHECKSUM)], report

    def _foreign_compaction(self) -> None:
        """Rows stay at once; events are whole again with our next commit, which keeps what was retired."""
        scene = self._scene
        self._tier()
        table = scene.audit.table()
        if table.current_snapshot() is None:
            return
        foreign.compact(table, scene.rng)
        scene.audit.check_snapshot(scene.audit.table(), scene.history.read(), self._engines)
        scene.write(1)
        self._tier()

    def _add_column(self) -> None:
        if len(self._scene.history.added) < 4:
            self._scene.history.add_column()

    def _drop_partition(self, *, lake: bool) -> None:
        history = self._scene.history
        if lake or not history.frozen:
            history.drop_partition(lake=lake)


def strays(table: Table) -> tuple[set[str], set[str]]:
    """Return the files in a table's folder that nothing refers to, and those referred to that are not there.

    Checksum files, which Hadoop writes beside its own, do not count.
    """
    referred = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        referred.add(snapshot.manifest_list)
        referred |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
        referred |= {file.file_path for file in live_files(table, snapshot)}
    needed = {_path(each) for each in referred}
    system = cast(PyArrowFileIO, table.io).fs_by_scheme(*PyArrowFileIO.parse_location(table.location())[:2])
    chosen = FileSelector(_path(table.location()), recursive=True)
    held = {each.path for each in system.get_file_info(chosen) if each.is_file and not each.path.endswith(CHECKSUM)}
    return held - needed, needed - {each.path for each in system.get_file_info(sorted(needed)) if each.is_file}


def _path(location: str) -> str:
    """Return a location as a path of its file system."""
    return local_path(location) if is_local(location) else PyArrowFileIO.parse_location(location)[2]
