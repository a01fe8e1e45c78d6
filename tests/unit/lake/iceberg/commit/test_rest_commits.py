"""Commits to a REST catalog that fails after, before or while it does what it is asked for: once, or not at all."""

import pyarrow as pa
import pytest

from fluss_lab.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidRequestError
from fluss_lab.lake.iceberg.table import caching_rest_catalog
from tests.unit.lake.conftest import Lake, records, summary
from tests.unit.lake.rest_server import Fault, RestServer
from tests.unit.lake.rounds import KeyedLake, starts

pytestmark = pytest.mark.slow

QUICK = {"iceberg.commit.retry.min-wait-ms": "1", "iceberg.commit.status-check.min-wait-ms": "1"}
COLUMNS = {"id": "bigint"}


@pytest.fixture
def rest(tmp_path):
    with RestServer(tmp_path / "rest") as found:
        yield found


class RestLake(Lake):
    """A lake in a REST catalog, as one process has it."""

    def __init__(self, rest: RestServer, **more: str) -> None:
        super().__init__(rest.folder)
        self.storage = type(self.storage)(rest.client(**more))
        self.catalog = self.storage.create_lake_catalog()
        self.factory = self.storage.create_lake_tiering_factory()


def begun(rest: RestServer, **more: str):
    """A lake, its table with one round in it, and the next round planned and written."""
    lake = RestLake(rest, **more)
    info = lake.table(COLUMNS, properties=QUICK)
    rows = pa.record_batch({"id": [1, 2]})
    lake.append(info, rows)
    lake.rounds += 1
    committer = lake.committer(info)
    planned = committer.current_snapshot_id()
    result = lake.write(info, records(rows, 2))
    return lake, info, committer, planned, result


def commit(committer, planned, result, commit_id="mine") -> int:
    offsets = [(result.partition, result.bucket, result.end_offset, result.max_timestamp_ms)]
    return committer.commit(committer.to_committable([result]), planned, summary(commit_id, offsets))


def rows_of(lake: Lake, info) -> list[int]:
    newest = lake.load(info).metadata.current_snapshot_id
    return sorted(lake.rows(info, newest)["id"].to_pylist())


@pytest.mark.parametrize("status", [500, 502, 503, 504, 409, None])
def test_a_commit_that_is_done_and_reported_as_failed_is_found(rest, status):
    lake, info, committer, planned, result = begun(rest)
    rest.counts.clear()
    rest.faults = [Fault("commit", status, done=True)]
    mine = commit(committer, planned, result)
    assert rest.counts["commit"] == 1
    assert mine == lake.load(info).metadata.current_snapshot_id != planned
    assert rows_of(lake, info) == [1, 1, 2, 2]


@pytest.mark.parametrize("status", [500, 502, 503, 504, None])
def test_a_commit_of_unknown_outcome_is_never_sent_again_by_itself(rest, status):
    lake, info, committer, planned, result = begun(rest)
    rest.counts.clear()
    rest.faults = [Fault("commit", status)]
    with pytest.raises(CommitOutcomeUnknownError, match="fluss-commit-id=mine"):
        commit(committer, planned, result)
    assert rest.counts["commit"] == 1
    assert rows_of(lake, info) == [1, 2]
    # The same commit again, as the next round makes it: its files are still there.
    commit(committer, planned, result)
    assert rows_of(lake, info) == [1, 1, 2, 2]


def test_a_request_that_is_refused_was_not_done(rest):
    lake, info, committer, planned, result = begun(rest)
    rest.counts.clear()
    rest.faults = [Fault("commit", 400)]
    with pytest.raises(InvalidRequestError, match=r"refused the request.*nothing was committed"):
        commit(committer, planned, result)
    assert rest.counts == {"commit": 1}
    assert rows_of(lake, info) == [1, 2]


def test_a_conflict_that_was_none_is_sent_again(rest):
    lake, info, committer, planned, result = begun(rest)
    rest.counts.clear()
    rest.faults = [Fault("commit", 409)]
    commit(committer, planned, result)
    assert rest.counts["commit"] == 2
    assert rows_of(lake, info) == [1, 1, 2, 2]


def test_a_refused_token_while_committing_is_renewed_and_the_commit_done_once(rest):
    rest.credential = "me:right"
    lake, info, committer, planned, result = begun(rest)
    rest.expire_tokens()
    commit(committer, planned, result)
    assert rows_of(lake, info) == [1, 1, 2, 2]


def test_an_answer_that_does_not_come_is_an_unknown_outcome_too(rest):
    lake, info, committer, planned, result = begun(rest, **{"rest.client.socket-timeout-ms": "600"})
    rest.faults = [Fault("commit", 500, done=True, wait_s=1.2)]
    commit(committer, planned, result)
    assert rows_of(lake, info) == [1, 1, 2, 2]


def test_the_look_after_a_commit_goes_on_while_the_catalog_is_away(rest, monkeypatch):
    monkeypatch.setattr(caching_rest_catalog.RETRIES, "total", 0)
    lake, info, committer, planned, result = begun(rest)
    rest.faults = [Fault("commit", None, done=True), Fault("load table", 503), Fault("load table", None)]
    commit(committer, planned, result)
    assert rows_of(lake, info) == [1, 1, 2, 2]


def test_a_round_commits_on_top_of_the_table_that_it_was_planned_with(rest):
    """One load when it is planned, one when it has committed: and if the table moved on, it is found all the same."""
    lake, info, committer, planned, result = begun(rest)
    rest.counts.clear()
    mine = commit(committer, planned, result)
    assert rest.counts == {"load table": 1, "commit": 1}
    lake.rounds += 1
    late = lake.committer(info)
    assert late.current_snapshot_id() == mine
    again = lake.write(info, records(lake.rows(info, mine).to_batches()[0].slice(0, 1), 4))
    other = RestLake(rest)
    other.rounds = 50
    other.commit(info)
    with pytest.raises(CommitConflictError, match="plan it again"):
        commit(late, mine, again, "late")
    assert rows_of(lake, info) == [1, 1, 2, 2]


def test_files_of_the_planned_table_that_are_gone_are_looked_at_in_the_table_of_now(rest):
    """Another process expired the planned snapshot meanwhile: a conflict, not damage."""
    lake, info, committer, planned, result = begun(rest)
    lake.storage._entry_cache()._lists.clear()
    other = RestLake(rest)
    other.rounds = 50
    other.commit(info)
    listed = lake.load(info).metadata.snapshot_by_id(planned).manifest_list
    loaded = other.load(info)
    loaded.io.delete(listed)
    with pytest.raises(CommitConflictError, match="plan it again"):
        commit(committer, planned, result)


def test_properties_that_others_set_since_the_plan_are_not_lost(rest):
    """A REST catalog does not compare properties: those that a commit sets are made of the table's as it is then."""
    lake = RestLake(rest)
    table = KeyedLake(
        lake, lake.table({"id": "bigint", "name": "string"}, primary_key=["id"], buckets=1, properties=QUICK)
    )
    table.logs[0].upsert({"id": 1, "name": "x"})
    done = table.plan()
    other = RestLake(rest).load(table.info)
    other.transaction().set_properties({"fluss.replay-start": '[{"bucket":0,"offset":40}]'}).commit_transaction()
    table.commit(done, **{"fluss-replay-start": '[{"bucket":0,"offset":7}]'})
    assert starts(lake.load(table.info).properties["fluss.replay-start"]) == {(None, 0): 40}
