"""Rounds whose commit has an outcome that is not known."""

import pytest

from fluss_lab.errors import (
    CommitOutcomeUnknownError,
)
from fluss_lab.lake import LakeCommitter
from fluss_lab.tiering.round.source_enumerator import (
    TieringAssignment,
)
from fluss_lab.tiering.round.tiering_committer import TieringCommitter
from tests.unit.tiering.round.test_tiering_conflicts import committer_of

pytestmark = pytest.mark.slow


def test_a_commit_of_unknown_outcome_that_happened_counts(tables, monkeypatch):
    """The catalog says no after the fact: the commit id is found in the lake, and nothing comes twice."""
    info = tables.create()
    tables.append(info, 10)
    break_commits(monkeypatch, after=True)
    assert tables.tier(info).rows == 10
    monkeypatch.undo()
    assert tables.tier(info).rows == 0
    tables.check(info)


def test_a_commit_of_unknown_outcome_that_did_not_happen_keeps_its_files(tables, monkeypatch):
    info = tables.create()
    tables.append(info, 10)
    break_commits(monkeypatch, after=False)
    with pytest.raises(CommitOutcomeUnknownError):
        tables.tier(info)
    assert len(tables.files(info)) == 1
    monkeypatch.undo()
    assert tables.tier(info).rows == 10
    tables.check(info)


class Forgetful(LakeCommitter):
    """A lake that commits, or does not, and cannot say which."""

    def __init__(self, lake, *, commits):
        self.lake, self.commits = lake, commits

    def commit(self, committable, planned_snapshot_id, properties):
        if self.commits:
            self.lake.commit(committable, planned_snapshot_id, properties)
        raise CommitOutcomeUnknownError("no answer")

    def to_committable(self, results):
        return self.lake.to_committable(results)

    def abort(self, results):
        raise AssertionError("files of a commit of unknown outcome are never removed")

    def current_snapshot_id(self):
        return self.lake.current_snapshot_id()

    def missing_lake_snapshot(self, known_snapshot_id):
        return self.lake.missing_lake_snapshot(known_snapshot_id)

    def newest_lake_snapshot(self):
        return self.lake.newest_lake_snapshot()


@pytest.mark.parametrize("commits", [True, False])
def test_the_commit_id_tells_whether_a_commit_of_unknown_outcome_happened(tables, commits):
    info = tables.create()
    with committer_of(tables, info) as lake:
        assignment = TieringAssignment(info.table_id, info.path, 1, 1, takeover=False)
        committer = TieringCommitter(Forgetful(lake, commits=commits), assignment, "this-commit")
        if commits:
            assert committer.commit([], {}, None, None) == tables.lake(info).current_snapshot().snapshot_id
        else:
            with pytest.raises(CommitOutcomeUnknownError):
                committer.commit([], {}, None, None)


def break_commits(monkeypatch, *, after):
    """Make the catalog's commits end in an error of the network, before or after they happened."""
    from pyiceberg.catalog.sql import SqlCatalog

    commit = SqlCatalog.commit_table

    def broken(self, *arguments, **options):
        if after:
            commit(self, *arguments, **options)
        raise ConnectionError("the answer got lost")

    monkeypatch.setattr(SqlCatalog, "commit_table", broken)
