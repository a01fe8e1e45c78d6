"""Rounds whose tasks run on a real Spark."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_lab.errors import FlussError, InternalError, TieringCancelledError, UnavailableError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.spark.tiering.spark_executor import POOL, TASKS_PER_WORKER_MAX, SparkTieringExecutor, deal, one_line
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.tiering.round.round_options import TieringOptions
from tests.unit.tiering.kit import TAKEOVER, Tables

pytestmark = pytest.mark.spark

FINE = TieringOptions(split_bytes_min=1)


@pytest.fixture(scope="module")
def session(spark):
    return spark


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


@pytest.fixture
def tables(cluster):
    return Tables(cluster)


@pytest.fixture
def name(request):
    return "".join(each if each.isalnum() else "_" for each in request.node.name)[-80:]


@pytest.fixture
def armed(session):
    """Arm failpoints in Spark's workers: those of another environment are forked from a daemon of their own."""
    environment = session.sparkContext.environment

    def arm(text):
        environment["FLUSS_LAB_FAILPOINTS"] = text

    yield arm
    environment.pop("FLUSS_LAB_FAILPOINTS", None)


class Wide(SparkTieringExecutor):
    """Gives the planner more workers than there are, so that it cuts finer."""

    def __init__(self, session, parallelism):
        super().__init__(session)
        self._reported = parallelism

    @property
    def parallelism(self):
        return self._reported


class Packed(SparkTieringExecutor):
    """Has room for one Spark task only: all splits share it."""

    @property
    def parallelism(self):
        return 1


def test_rounds_on_spark_bring_every_record_into_the_lake_once(tables, session, name):
    info = tables.create(name, buckets=2, partitioned_by=["month"], bucket_key=["id"])
    news = []
    for month in "ab":
        tables.append(info, 2_000, month)
        report = tables.tier(info, executor=Wide(session, 6), options=FINE, progress=news.append)
        assert report.rows == 2_000
        assert report.splits >= 6
        tables.check(info)
    last = [each for each in news if each.stage == "write"][-1]
    assert (last.tasks_done, last.rows, last.size_bytes) == (report.splits, report.rows, report.bytes)
    assert [each.rows for each in last.buckets] == [each.end - each.start for each in report.buckets]


def test_the_callers_job_settings_are_left_alone(tables, session, name):
    context = session.sparkContext
    context.setJobGroup("mine", "my own jobs")
    context.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        info = tables.create(name)
        tables.append(info, 10)
        tables.tier(info, executor=SparkTieringExecutor(session))
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.scheduler.pool") == "mine" != POOL
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
            context.setLocalProperty(key, None)


def test_a_task_that_fails_every_time_is_one_line_and_leaves_no_file(tables, session, name, armed):
    info = tables.create(name, buckets=2)
    tables.append(info, 200)
    armed("tiering.write.after_task=error")
    with pytest.raises(InternalError, match="failpoint") as caught:
        tables.tier(info, executor=SparkTieringExecutor(session))
    assert "\n" not in str(caught.value)
    assert tables.files(info) == set()


def test_a_worker_that_dies_is_replaced(tables, session, name, armed):
    """Each worker dies in its second task: Spark runs that one again in another, and the records come once."""
    info = tables.create(name, buckets=1)
    tables.append(info, 300)
    armed("tiering.write.after_task=kill@2")
    report = tables.tier(info, executor=Wide(session, 3), options=FINE)
    assert (report.rows, report.splits) == (300, 3)
    tables.check(info)


def test_workers_that_all_die_fail_the_round_in_one_line(tables, session, name, armed):
    info = tables.create(name, buckets=1)
    tables.append(info, 100)
    armed("tiering.write.after_task=kill")
    with pytest.raises(UnavailableError, match="Spark job failed") as caught:
        tables.tier(info, executor=SparkTieringExecutor(session))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 700
    armed("")
    assert tables.lake_rows(info).num_rows == 0
    assert tables.tier(info, executor=SparkTieringExecutor(session)).rows == 100
    tables.check(info)


def test_a_round_can_be_cancelled(tables, session, name):
    info = tables.create(name, buckets=1)
    tables.append(info, 2_000)
    executor = Wide(session, 300)
    begun = threading.Event()

    def progress(state):
        if state.tasks_done:
            begun.set()

    def cancel():
        begun.wait(60)
        executor.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(UnavailableError, match="cancelled"):
        tables.tier(info, executor=executor, options=FINE, progress=progress)
    canceller.join()
    assert tables.tier(info, executor=SparkTieringExecutor(session)).rows == 2_000
    tables.check(info)


def test_a_round_is_cancelled_by_an_event_and_the_next_goes_on(tables, session, name):
    info = tables.create(name, buckets=1)
    tables.append(info, 2_000)
    event, states = threading.Event(), []

    def progress(state):
        states.append(state)
        if state.tasks_done:
            event.set()

    with pytest.raises(TieringCancelledError):
        tables.tier(info, executor=Wide(session, 300), options=FINE, progress=progress, cancel=event)
    wait_until(lambda: not session.sparkContext.statusTracker().getActiveJobsIds())
    assert states[-1].stage == "write"
    assert 0 < states[-1].tasks_done < states[-1].tasks
    assert tables.lake_rows(info).num_rows == 0
    assert tables.connection.admin().tiering_rounds(info.path)[-1].state == "cancelled"
    assert tables.tier(info, executor=SparkTieringExecutor(session), cancel=threading.Event()).rows == 2_000
    tables.check(info)


def test_rounds_of_several_tables_run_beside_each_other(tables, session, name):
    """Each in a pool of its own; one whose tasks fail again and again leaves the others alone."""
    infos = [tables.create(f"{name}_{number}", buckets=2) for number in range(3)]
    for info in infos:
        tables.append(info, 300)
    failures, over = [], threading.Event()

    def fail():
        executor = SparkTieringExecutor(session, pool=f"{POOL}-failing")
        while not over.is_set() or not failures:
            try:
                executor.run([b"{}"] * 4)
            except FlussError as error:
                failures.append(error)

    def tier(info):
        executor = Wide(session, 4)
        executor._pool = f"{POOL}-{info.path}"
        assert tables.tier(info, executor=executor, options=FINE).rows == 300

    failing = threading.Thread(target=fail)
    failing.start()
    try:
        with ThreadPoolExecutor(len(infos)) as threads:
            list(threads.map(tier, infos))
    finally:
        over.set()
        failing.join()
    for info in infos:
        tables.check(info)
        assert session.sparkContext._jsc.sc().getPoolForName(f"{POOL}-{info.path}").isDefined()
    assert all("tiering task: expected version" in str(error) for error in failures)


def test_what_collects_news_does_not_pile_up(tables, session, name):
    """pyspark keeps every accumulator for ever; a service makes one each round."""
    from pyspark.accumulators import _accumulatorRegistry

    info = tables.create(name)
    before = len(_accumulatorRegistry)
    for _ in range(3):
        tables.append(info, 10)
        tables.tier(info, executor=SparkTieringExecutor(session), progress=lambda _state: None)
    assert len(_accumulatorRegistry) == before


def test_tasks_that_are_none_say_so(session):
    with pytest.raises(FlussError, match="tiering task: expected version") as caught:
        SparkTieringExecutor(session).run([b"{}"])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("tasks", "hands"), [(1, 8), (8, 8), (9, 8), (100, 7)])
def test_tasks_are_dealt_out_evenly(tasks, hands):
    dealt = deal(range(tasks), hands)
    assert sorted(each for hand in dealt for each in hand) == list(range(tasks))
    assert len(dealt) == min(tasks, hands)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    assert [hand[0] for hand in dealt] == list(range(len(dealt)))


def test_many_splits_share_spark_tasks(tables, session, name):
    info = tables.create(name, buckets=1)
    tables.append(info, 200)
    options = TieringOptions(split_bytes_min=1, split_bytes_max=200)
    report = tables.tier(info, executor=Packed(session), options=options)
    assert report.rows == 200
    assert report.splits > TASKS_PER_WORKER_MAX
    tables.check(info)


def test_one_line_of_a_stack_of_two_languages():
    text = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted\n"
        'Traceback (most recent call last):\n  File "x.py", line 1\nfluss_lab.errors.CorruptDataError: bad bytes\n'
        "\n\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert one_line(RuntimeError(text)) == "fluss_lab.errors.CorruptDataError: bad bytes"
    assert one_line(RuntimeError("")) == "RuntimeError"


def test_an_interrupt_cancels_the_job_and_the_next_round_goes_on(tables, session, name):
    info = tables.create(name, buckets=4)
    tables.append(info, 400_000)
    tracker, main = session.sparkContext.statusTracker(), threading.main_thread().ident

    def interrupt():
        wait_until(lambda: len(tracker.getActiveJobsIds()) > 0)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tables.tier(info, executor=SparkTieringExecutor(session), options=FINE)
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join(60)
    wait_until(lambda: len(tracker.getActiveJobsIds()) == 0)
    described = tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    (state,) = [each for each in described.tiering_states if each.table_id == info.table_id]
    assert not state.last_error
    assert tables.connection.admin().tiering_rounds(info.path)[-1].state == "cancelled"
    assert tables.tier(info, executor=SparkTieringExecutor(session)).rows == 400_000
    tables.check(info)
