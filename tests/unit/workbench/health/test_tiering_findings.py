"""What the doctor says of tiering: tables whose rounds fail, since when, and what to do."""

import pytest

from fluss_lab.client import TieringRoundRecord
from fluss_lab.errors import CorruptDataError, ForeignCommitError, LakeAheadError, StorageError, TieringCancelledError
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench.health.tiering_findings import failing_since_ms
from tests.unit.workbench.lab_kit import rows, tier

pytestmark = pytest.mark.slow


class Failing(LocalTieringExecutor):
    def __init__(self, error):
        super().__init__()
        self._error = error

    def run(self, tasks, progress=None):
        raise self._error


def fail(table, error):
    lab = table.lab
    with pytest.raises(type(error)):
        run_round(lab.connection, lab.lake_storage(), Failing(error), table_id=table.info.table_id)


def findings(lab):
    return [dict(row) for row in lab.doctor() if row["check"] == "tiering"]


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (ForeignCommitError("snapshot 7: not ours"), "fluss-lab repair {table} --adopt --folder {folder}"),
        (
            CorruptDataError("/lake table 1/0.log: offsets [4, 9) cannot be read"),
            "fluss-lab repair {table} --skip-corrupt --folder {folder}",
        ),
        # Seen: a repair of logs was proposed, which found nothing, and where a path has the words one of the lake.
        (CorruptDataError("/lake file 1/0.prev: the previous offsets are missing"), None),
        (CorruptDataError("lake file 1.avro: not an Avro file"), "fluss-lab repair {table} --adopt --folder {folder}"),
        (LakeAheadError("the cluster's folder is older"), None),
        (StorageError("no room"), "fluss-lab tier {table} --folder {folder}"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_a_table_whose_rounds_fail_is_a_problem_with_its_command(lab, table, error, command):
    table.append(rows(10))
    tier(table)
    assert findings(lab)[-1]["ok"]
    table.append(rows(10))
    fail(table, error)
    fail(table, error)
    since = table.rounds()[1]["start"]
    (found,) = findings(lab)
    assert (found["ok"], found["severity"], found["error_class"]) == (False, "problem", type(error).__name__)
    assert found["table"] == str(table.path)
    assert f"table {table.path}: 2 rounds failed since {since}: {error}. What to do: " in found["found"]
    folder = f"'{lab.folder}'"  # it has a space
    assert found["command"] == (command and command.format(table=table.path, folder=folder))
    assert lab.doctor()[0]["severity"] == "problem"
    tier(table)
    assert [each["ok"] for each in findings(lab)] == [True]


def test_a_cancelled_round_is_none(lab, table):
    table.append(rows(10))
    fail(table, TieringCancelledError("as wanted"))
    assert [each["ok"] for each in findings(lab)] == [True]


def test_since_when_rounds_fail():
    def record(epoch, **more):
        return TieringRoundRecord(epoch, epoch * 1_000, epoch * 1_000 + 1, **more)

    bad = [record(3, error="no"), record(4, error="no", error_class="TieringCancelledError"), record(5, error="no")]
    assert failing_since_ms([record(1), record(2, error="no"), record(2, is_limited=True), *bad]) == 3_000
    assert failing_since_ms([*bad, record(6)]) is None
    assert failing_since_ms([]) is None
    assert failing_since_ms([*bad, TieringRoundRecord(7, 7_000)]) == 3_000
