"""A process that dies while it writes or commits leaves all of the round or nothing, and nothing in the way of the next."""

from __future__ import annotations

import pytest

from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY
from fluss_lab.testing.conformance.elsewhere import commit_elsewhere
from fluss_lab.testing.conformance.keyed.histories import KeyedHistory
from fluss_lab.testing.conformance.keyed.keyed_checks import KeyedChecks
from fluss_lab.testing.conformance.kit import LakeKit, Written, records, summary


class KillConformance(KeyedChecks):
    """What durable and atomic mean: at each of the format's `kill_points` a process is killed."""

    def test_a_log_tables_round_that_dies(self, kit: LakeKit) -> None:
        """Killed at each point; the next round looks whether it happened, and goes on from there."""
        info = kit.table()
        end = 0
        for point in self.kill_points:
            known = kit.newest(info)
            offsets = summary(info, Written(None, None, 0, end + 4, 1), commit_id=f"at {point}")
            runs = [records(info, 4, end)]
            lived = commit_elsewhere(kit, kit.context(info), runs, offsets, {point: "kill"})
            assert not lived, f"nothing passes the failpoint {point!r}"
            found = kit.missing(info, known)
            if found is not None:
                assert found.properties[COMMIT_ID_KEY] == f"at {point}"
                end += 4
            snapshot = kit.append(info, 2, end)
            end += 2
            assert kit.offsets(info, snapshot) == {0: [*range(end)]}
            assert kit.rows(info, snapshot)["id"].to_pylist() == [*range(end)]

    def test_a_keyed_tables_round_that_dies(self, kit: LakeKit) -> None:
        """The same with changes of rows."""
        self.needs_keyed_tables()
        history = KeyedHistory(self.keyed_table(kit))
        info = history.info
        done = 0
        for number, point in enumerate(self.kill_points):
            known = kit.newest(info)
            for key in history.keys[:4]:
                history.upsert(key, x=float(number))
            history.delete(history.keys[number % 4])
            offsets = summary(info, Written(None, None, 0, history.end, 1))
            runs = history.records(done, history.end)
            assert not commit_elsewhere(kit, kit.context(info), runs, offsets, {point: "kill"}), point
            if kit.missing(info, known) is not None:
                done = history.end
            history.upsert(history.keys[5], name=point)
            kit.commit(info, kit.write(info, history.records(done, history.end)))
            done = history.end
            self.check_state(kit, [history])
        self.check_changes(kit, history)

    def test_every_kill_point_is_said(self) -> None:
        """A format that names none has not been killed: it should pass `fluss_lab.failpoints.failpoint` where it counts."""
        if not self.kill_points:
            pytest.skip(f"format {self.format_name!r} names no kill points")
        assert len(set(self.kill_points)) == len(self.kill_points)
