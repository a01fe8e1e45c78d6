"""How far a round is, as it is told and as it is shown."""

import sys

from fluss_lab.model import TableBucket, TablePath
from fluss_lab.tiering.round.split_generator import TieringLogSplit
from fluss_lab.tiering.task.round_progress import BucketProgress, RoundMeter, RoundState
from fluss_lab.tiering.task.tiering_task import TaskNews
from fluss_lab.workbench.cards.round_progress_view import RoundProgress, progress_html

PATH = TablePath("db", "t")


def split(index, bucket, start, stop, partition=None):
    return TieringLogSplit(PATH, TableBucket(1, None, bucket), partition, 3, index, start, stop)


SPLITS = [split(0, 1, 0, 100), split(1, 0, 10, 60), split(2, 1, 100, 250)]


def test_rows_and_bytes_add_up_by_bucket():
    reported = []
    meter = RoundMeter(reported.append)
    meter.plan(SPLITS)
    assert reported[-1].buckets == (BucketProgress(None, 0, 50, 0, 0), BucketProgress(None, 1, 250, 0, 0))
    assert (reported[-1].stage, reported[-1].tasks_done, reported[-1].tasks, reported[-1].planned) == (
        "write",
        0,
        3,
        300,
    )
    meter.add_written(1, 3, [TaskNews(2, 150, 900)])
    assert reported[-1].buckets == (BucketProgress(None, 0, 50, 0, 0), BucketProgress(None, 1, 250, 150, 900))
    meter.add_written(3, 3, [TaskNews(0, 100, 600), TaskNews(1, 50, 300), TaskNews(2, 150, 900)])
    assert (reported[-1].rows, reported[-1].size_bytes, reported[-1].tasks_done) == (300, 1_800, 3)
    meter.enter("commit")
    assert (reported[-1].stage, reported[-1].tasks, reported[-1].rows) == ("commit", 0, 300)
    assert str(reported[-1]) == "commit: 300 of 300 rows, 0.0 MB"


def test_a_round_that_is_planned_again_begins_again():
    meter = RoundMeter()
    meter.plan(SPLITS)
    meter.add_written(3, 3, [TaskNews(0, 100, 600)])
    meter.plan(SPLITS[:1])
    assert (meter.state.rows, meter.state.planned, meter.state.tasks_done, meter.state.tasks) == (0, 100, 0, 1)
    # News of the first plan that come late belong to no split of the second.
    meter.add_written(1, 1, [TaskNews(2, 150, 900)])
    assert meter.state.rows == 0


def test_tasks_of_other_stages_count_no_rows():
    meter = RoundMeter()
    meter.plan(SPLITS)
    meter.enter("maintain", 2)
    meter.count_tasks(1, 2, [TaskNews(0, 5, 5)])
    assert (meter.state.stage, meter.state.tasks_done, meter.state.tasks, meter.state.rows) == ("maintain", 1, 2, 0)


def test_a_listener_that_fails_does_not_fail_the_round():
    def fail(_state):
        raise RuntimeError("no screen")

    meter = RoundMeter(fail)
    meter.plan(SPLITS)
    assert meter.state.tasks == 3


def test_partitions_are_distinguished():
    meter = RoundMeter()
    meter.plan([split(0, 0, 0, 5, "b"), split(1, 0, 0, 7, "a")])
    meter.add_written(1, 2, [TaskNews(0, 5, 1)])
    assert meter.state.buckets == (BucketProgress("a", 0, 7, 0, 0), BucketProgress("b", 0, 5, 5, 1))


def test_what_is_shown_in_a_notebook():
    buckets = (BucketProgress("<p>", 0, 100, 50, 2_000_000), BucketProgress(None, 1, 0, 7, 0))
    html = progress_html("db.t", RoundState("write", 1, 4, 100, 57, 2_000_000, 2.0, buckets))
    assert "db.t: write 1/4: 57 of 100 rows, 2.0 MB, 2.0 s, 28 rows/s" in html
    assert "█" * 10 + "░" * 10 in html
    assert "&lt;p&gt;" in html
    assert "<script" not in html


def test_nothing_is_shown_where_nobody_watches(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with RoundProgress("db.t") as progress:
        progress(RoundState("write", 1, 4, 100, 57))
    assert capsys.readouterr() == ("", "")
