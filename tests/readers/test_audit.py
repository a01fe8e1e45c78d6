"""The audit of lake tables is audited: each kind of damage turns it red."""

import copy
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.crash.scene import TAKEOVER, Scene
from tests.readers.audit import LakeAudit, check_within
from tests.readers.engines import QUICK
from tests.readers.lake_files import LakeFiles, tiered_ends


@pytest.fixture(scope="module")
def scene():
    """A primary-key table that was tiered, cut and compacted, and holds what it should."""
    with EmbeddedCluster(options=TAKEOVER) as cluster:
        made = Scene(cluster, "pk", 7, "audited")
        made.history.kind = replace(made.history.kind, nulls=0.0)
        for _ in range(3):
            made.write(3)
            made.tier()
        made.maintain("compact")
        made.write(3)
        made.tier()
        made.check(complete=True)
        yield made


class Lie:
    """A table with logs that differ from the true ones."""

    def __init__(self, scene: Scene) -> None:
        self.audit = LakeAudit(scene.history)
        self.table = self.audit.table()
        self.logs = copy.deepcopy(scene.history.read())
        self.ends = tiered_ends(self.table)
        self.place = next(iter(self.logs))

    def change(self, adds, **changes):
        events = self.logs[self.place].events
        offset = next(number for number, event in enumerate(events) if event.adds == adds)
        events[offset] = replace(events[offset], **changes)

    def check_events(self):
        self.audit.check_events(self.table, self.logs, self.ends)

    def check_state(self):
        self.audit.check_state(self.table, self.logs, self.ends, QUICK)


def test_the_truth_passes(scene):
    lie = Lie(scene)
    lie.check_events()
    lie.check_state()


@pytest.mark.parametrize(
    ("adds", "changes"),
    [
        (True, {"timestamp_ms": 1}),
        (True, {"row": {"id": 0, "name": "?", "x": 0.0}}),
        (True, {"change": "+?"}),
        (False, {"timestamp_ms": 1}),
        (False, {"row": {"id": 0, "name": "?", "x": 0.0}}),
        (False, {"change": "-?"}),
        (False, {"previous": 10**6}),
    ],
)
def test_an_event_that_differs(scene, adds, changes):
    lie = Lie(scene)
    lie.change(adds, **changes)
    with pytest.raises(AssertionError):
        lie.check_events()


def test_a_gap_at_the_end_and_in_the_lake(scene):
    lie = Lie(scene)
    lie.ends[lie.place] += 1
    lie.logs[lie.place].events.append(lie.logs[lie.place].events[-1])
    with pytest.raises(AssertionError, match="a gap"):
        lie.check_events()


def test_an_event_too_many(scene):
    lie = Lie(scene)
    lie.ends[lie.place] -= 1
    with pytest.raises(AssertionError, match="nobody wrote"):
        lie.check_events()


def test_a_row_that_should_live_and_one_that_should_not(scene):
    lie = Lie(scene)
    lie.ends[lie.place] = len(lie.logs[lie.place].events) // 2
    with pytest.raises(AssertionError, match="duckdb"):
        lie.check_state()


def test_rows_that_are_there_twice(scene):
    lie = Lie(scene)
    rows = lie.table.scan().to_arrow()
    engine = {"twice": lambda _table: pa.concat_tables([rows, rows.slice(0, 1)])}
    with pytest.raises(AssertionError, match="more than once"):
        lie.audit.check_state(lie.table, lie.logs, lie.ends, engine)


def test_files_that_hold_a_record_twice(scene):
    """A data file that somebody adds again under another name."""
    lie = Lie(scene)
    files = LakeFiles().of(lie.table, lie.table.current_snapshot())
    check_within(files)
    doubled = {**files, "another": next(iter(files.values()))}
    with pytest.raises(AssertionError, match="twice"):
        check_within(doubled)
