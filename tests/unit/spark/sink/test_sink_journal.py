"""What a sink has written down, and what it refuses to go on from: other queries, tables, checkpoints, damaged notes."""

import resource
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    CorruptDataError,
    InvalidRequestError,
    StorageError,
    TableNotFoundError,
    UnavailableError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.model import TableBucket
from fluss_lab.spark.sink.sink_journal import SinkFolder, SinkState
from fluss_lab.testing import EmbeddedCluster
from tests.crash.kill_image import copy_as_killed
from tests.unit.spark.sink.sink_kit import (
    KINDS,
    Sink,
    complete,
    rows,
    six_tasks,
)

pytestmark = pytest.mark.slow

# -- whose folder it is -------------------------------------------------------------------------------------------------------


def test_another_query_is_refused(make):
    sink = make()
    sink.run(0, [[rows(0)]])
    sink.name("another")
    with pytest.raises(InvalidRequestError, match="another"):
        sink.run(0, [[rows(1)]])
    (sink.folder / "metadata").unlink()
    with pytest.raises(InvalidRequestError, match="metadata"):
        sink.run(0, [[rows(1)]])
    sink.name("q")
    sink.run(1, [[rows(1)]])
    complete(sink, 2)


def test_a_table_made_again_is_refused(make, cluster):
    sink = make()
    sink.run(0, [[rows(0)]])
    admin = cluster.connection.admin()
    admin.drop_table(sink.path)
    with pytest.raises(TableNotFoundError):
        sink.run(1, [[rows(1)]])
    admin.create_table(sink.path, sink.info.descriptor)
    with pytest.raises(TableNotFoundError, match="made again"):
        sink.run(1, [[rows(1)]])


def test_a_table_of_a_lab_that_was_made_anew_is_refused(make):
    """It has the same path and the same id; notes of a release that did not keep when it was made are gone on with."""
    sink = make()
    sink.run(0, [[rows(0)]])
    folder = SinkFolder(sink.folder / "_fluss_sink")
    state = folder.state()
    assert state.created_ms == sink.info.created_ms
    folder.write_state(replace(state, created_ms=state.created_ms - 1))
    with pytest.raises(TableNotFoundError, match=r"made at .* made at .*another lab"):
        sink.run(1, [[rows(1)]])
    folder.write_state(replace(state, created_ms=None))
    sink.run(1, [[rows(1)]])
    assert folder.state().created_ms == sink.info.created_ms
    complete(sink, 2)


@pytest.mark.parametrize("kind", ["log", "keyed"])
@pytest.mark.parametrize("step", ["sink.intent.after", "sink.done.before"])
def test_a_first_batch_under_way_is_of_the_table_that_it_was_written_down_for(make, cluster, kind, step):
    """No batch is noted as done yet: what of it was sent went to a table that is no more."""
    sink = make(**KINDS[kind])
    failpoints.arm(step, "error")
    with pytest.raises(FailpointError):
        sink.run(0, [[rows(*range(10))]])
    failpoints.disarm()
    folder = SinkFolder(sink.folder / "_fluss_sink")
    intent = folder.intent(sink.info.table_id)
    folder.write_intent(replace(intent, created_ms=intent.created_ms - 1))
    with pytest.raises(TableNotFoundError, match=r"made at .* made at .*another lab"):
        sink.run(0, [[rows(*range(10))]])
    folder.write_intent(intent)
    admin = cluster.connection.admin()
    admin.drop_table(sink.path)
    again = admin.create_table(sink.path, sink.info.descriptor)
    with pytest.raises(TableNotFoundError, match="made again"):
        sink.run(0, [[rows(*range(10))]])
    assert (intent.table_id, sink.rows()) == (again.table_id - 1, [])


def test_a_batch_that_an_older_release_wrote_down_is_gone_on_with(make):
    sink = make()
    failpoints.arm("sink.intent.after", "error")
    with pytest.raises(FailpointError):
        sink.run(0, [[rows(*range(10))]])
    failpoints.disarm()
    folder = SinkFolder(sink.folder / "_fluss_sink")
    folder.write_intent(replace(folder.intent(sink.info.table_id), table_id=None, created_ms=None))
    sink.run(0, [[rows(*range(10))]])
    complete(sink, 10)


def test_a_checkpoint_that_does_not_belong_to_the_folder_is_refused(make):
    sink = make()
    sink.run(0, [[rows(7)]])
    failpoints.arm("sink.intent.after", "error")
    with pytest.raises(FailpointError):
        sink.run(1, [[rows(0)]])
    failpoints.disarm()
    with pytest.raises(CorruptDataError, match="batch 1 is under way"):
        sink.run(2, [[rows(1)]])


@pytest.mark.parametrize("step", ["sink.intent.after", "sink.done.after"])
def test_a_batch_that_spark_plans_anew_is_not_taken_for_the_one_that_was_written(make, step):
    """Its own notes of the batch are gone (offsets and commits removed, or not on the device): it may have other rows."""
    sink = make()
    for batch_id in range(2):
        sink.plan(batch_id, batch_id)
    sink.run(0, [[rows(0)]])
    failpoints.arm(step, "error")
    with pytest.raises(FailpointError):
        sink.run(1, [[rows(1)]])
    failpoints.disarm()
    written = sink.rows()
    sink.plan(1, 2)
    with pytest.raises(
        CorruptDataError, match=r"expected batch 1 as it was, found one that ends elsewhere.*a new checkpoint"
    ):
        sink.run(1, [[rows(1, 2)]])
    assert sink.rows() == written
    sink.plan(1, 1)
    for _ in range(2):
        sink.run(1, [[rows(1)]])
    sink.plan(0, 3)
    with pytest.raises(CorruptDataError, match="expected batch 1 or 2, found batch 0 again"):
        sink.run(0, [[rows(0, 1, 2)]])
    sink.run(2, [[rows(2)]])
    complete(sink, 3)


RESTORED = [(kind, later, same) for kind in ("log", "keyed") for later in (1, 3) for same in (False, True)]


@pytest.mark.parametrize(("kind", "later", "same"), RESTORED)
def test_a_checkpoint_that_was_restored_from_a_backup_is_refused(make, tmp_path, kind, later, same):
    """However many batches were written since (servers remember few), of other rows, or of the same and more."""
    sink = make(**KINDS[kind], buckets=1)
    sink.run(0, [[rows(*range(10))]])
    shutil.copytree(sink.folder, tmp_path / "backup")
    for batch_id in range(1, 1 + later):
        sink.run(batch_id, [[rows(batch_id * 10 + at)] for at in range(2)])
    written = sink.rows()
    sink.restore(tmp_path / "backup")
    tasks = [[rows(*((10, 11) if same else (50, 51)))], [rows(52)]]
    for _ in range(2):
        text = rf"db\.t, bucket .*batch 1 of the sink in {sink.folder}.*restored from a backup.*a new checkpoint"
        with pytest.raises(CorruptDataError, match=text):
            sink.run(1, tasks)
    assert sink.rows() == written


def test_a_checkpoint_from_before_the_first_rows_is_refused_when_there_are_some(make, tmp_path):
    """Its first batches had none, as where a filter leaves none: so it was written to no bucket yet."""
    sink = make(buckets=1)
    sink.run(0, [[rows()]])
    shutil.copytree(sink.folder, tmp_path / "backup")
    sink.run(1, [[rows(0)]])
    sink.restore(tmp_path / "backup")
    with pytest.raises(CorruptDataError, match=r"batch 1 of the sink .*restored from a backup"):
        sink.run(1, [[rows(0)]])
    complete(sink, 1)


def test_a_checkpoint_from_the_middle_of_a_batch_is_refused_when_later_ones_were_written(make, tmp_path):
    """So many that servers do not remember its numbers: the log has them, and those behind them."""
    sink = make(**KINDS["log by key"], buckets=1)
    sink.run(0, [[rows(0)]])
    failpoints.arm("sink.intent.after", "error")
    with pytest.raises(FailpointError):
        sink.run(1, [[rows(1)]])
    failpoints.disarm()
    shutil.copytree(sink.folder, tmp_path / "backup")
    for number in range(1, 8):
        sink.run(number, [[rows(number)]])
    sink.restore(tmp_path / "backup")
    with pytest.raises(
        CorruptDataError, match=r"batch 1 of the sink .*no later batch's number.*restored from a backup"
    ):
        sink.run(1, [[rows(1)]])
    complete(sink, 8)


def test_a_checkpoint_that_was_restored_from_a_backup_is_refused_behind_a_server_that_was_killed(tmp_path):
    """It reads its writers from the changelog, which does not say what rows they sent: none of other rows looks so."""
    with EmbeddedCluster(tmp_path / "lab", lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        sink = Sink(cluster, tmp_path / "checkpoint", **KINDS["keyed"], buckets=1)
        sink.run(0, [[rows(*range(10))]])
        shutil.copytree(sink.folder, tmp_path / "backup")
        sink.run(1, [[rows(20, 21)]])
        copy_as_killed(tmp_path / "lab", tmp_path / "killed")
    sink.restore(tmp_path / "backup")
    with EmbeddedCluster(tmp_path / "killed", lake=False) as sink.cluster:
        with pytest.raises(
            CorruptDataError, match=r"expected log offset 12 or a later one, found 10\).*restored from a backup"
        ):
            sink.run(1, [[rows(*range(20, 30))]])
        assert sorted(row[1] for row in sink.rows()) == [*range(10), 20, 21]


@pytest.mark.parametrize("kind", ["log", "log by key"])
def test_rows_that_were_sent_before_the_batch_was_written_down_are_a_contradiction(make, tmp_path, kind):
    """The very same rows under the same number: whether they are the same or come again is not known."""
    sink = make(**KINDS[kind], buckets=1)
    sink.run(0, [[rows(0)]])
    shutil.copytree(sink.folder, tmp_path / "backup")
    sink.run(1, [[rows(7)]])
    sink.restore(tmp_path / "backup")
    with pytest.raises(CorruptDataError, match=r"expected log offset 2 or a later one, found 1\)"):
        sink.run(1, [[rows(7)]])
    assert [row[1] for row in sink.rows()] == [0, 7]


def test_two_processes_do_not_write_at_once(make):
    sink = make()
    messages = sink.stage([[rows(0)]])
    sink.options["client.request-timeout"] = "100ms"
    folder = SinkFolder(sink.folder / "_fluss_sink")
    with folder.locked(5), pytest.raises(UnavailableError, match="another process"):
        sink.writer().commit(messages, 0)
    sink.options["client.request-timeout"] = "20s"
    sink.writer().commit(messages, 0)
    complete(sink, 1)


def test_progress_of_another_batch_is_not_taken(make):
    sink = make(buckets=1)
    progress = sink.folder / "_fluss_sink" / "progress.json"
    failpoints.arm("sink.done.before", "error")
    with pytest.raises(FailpointError):
        sink.run(0, six_tasks())
    failpoints.disarm()
    left = progress.read_bytes()
    sink.run(0, six_tasks())
    # As if the process had died between the removal of the one file and of the other.
    progress.write_bytes(left)
    sink.run(1, six_tasks(60))
    complete(sink, 120)


@pytest.mark.parametrize("name", ["sink.json", "intent.json", "progress.json"])
def test_notes_that_are_damaged_stop_the_sink(make, name):
    sink = make(buckets=1)
    sink.run(0, [[rows(0)]])
    failpoints.arm("sink.note.after", "error")
    with pytest.raises(FailpointError):
        sink.run(1, six_tasks(1))
    failpoints.disarm()
    path = sink.folder / "_fluss_sink" / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptDataError, match=name):
        sink.run(1, six_tasks(1))


def test_staged_rows_that_are_damaged_are_not_sent(make):
    sink = make()
    messages = sink.stage([[rows(*range(50))]])
    path = sink.folder / "_fluss_sink" / "staged" / sink.files()[0]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptDataError, match="staged rows"):
        sink.writer().commit(messages, 0)
    path.write_bytes(data)
    sink.writer().commit(messages, 0)
    complete(sink, 50)


# -- disks that refuse -----------------------------------------------------------------------------------------------


@contextmanager
def file_size_max(size):
    """Let the system refuse what makes a file larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_rows_that_the_disk_does_not_take_leave_nothing_and_it_is_said(make):
    sink = make()
    with file_size_max(1 << 20):
        with pytest.raises(StorageError, match=r"write to db\.t: rows cannot be staged in .*staged: .*File too large"):
            sink.stage([[rows(*range(300), text="v" * 10_000)]])
        assert sink.files() == []
    sink.run(0, [[rows(*range(50))]])
    complete(sink, 50)


def test_what_another_query_removes_while_it_is_staged_is_said_to_be_gone(make):
    """Of two drivers on one checkpoint, which it said to have no room."""
    sink = make()

    def removed_meanwhile():
        yield rows(*range(300))
        shutil.rmtree(sink.folder / "_fluss_sink" / "staged")

    with pytest.raises(
        StorageError, match=r"what was staged in .*staged is gone: a second query has the same checkpoint"
    ):
        sink.stage([removed_meanwhile()])


def test_a_note_that_the_disk_does_not_take_is_said_and_what_was_noted_stays(tmp_path):
    folder = SinkFolder(tmp_path)
    folder.make()
    folder.write_state(SinkState(1, "q", done=3))
    many = {TableBucket(1, None, number): (number, 0) for number in range(60_000)}
    with file_size_max(1 << 20), pytest.raises(StorageError, match=r"sink\.json: the note .*File too large"):
        folder.write_state(SinkState(1, "q", done=4, writers=many))
    assert folder.state() == SinkState(1, "q", done=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sink.json", "staged"]
