"""Faults of the catalog and the store in the middle of rounds: nothing lost, nothing twice, a clear error in time, and on it goes."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from fluss_lab.errors import FlussError, InternalError, TieringInProgressError
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.service.tiering_service import TieringService
from tests.beyond.proxied import ProxiedLake
from tests.unit.tiering.kit import FAST, TAKEOVER, Tables
from tools.beyond.faults import (
    ACCESS_DENIED,
    OUTCOME_UNKNOWN,
    SLOW_DOWN,
    STORE_FULL,
    UNAVAILABLE,
    Answer,
    CutAnswer,
    Delay,
    Hang,
    Hold,
    LoseAnswer,
    Reset,
    SwapAnswer,
)
from tools.beyond.minio_server import MinioServer
from tools.beyond.pinned_parts import PartUnavailableError

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

#: Waits that a test can wait for, in seconds, by catalog: a JVM on a busy machine may take more; tables that are due at once.
WAITS_S = {"rest": 2, "iceberg": 15, "nessie": 15}
SOON = {"table.datalake.freshness": "50ms", "iceberg.commit.status-check.min-wait-ms": "1"}
#: A round gives up after what its requests may take: some tens of times the two seconds above.
PATIENCE_S = 180.0
ROUND_S = 60.0
#: No round here has more requests of one kind.
REQUESTS_MAX = 60

ONCE = {
    "store resets": ("store", Reset(), None),
    "store resets after writing": ("store", LoseAnswer(), "PUT"),
    "store slows down": ("store", SLOW_DOWN, None),
    "store cuts an answer": ("store", CutAnswer(20), None),
    "store is full": ("store", STORE_FULL, "PUT"),
    "store refuses": ("store", ACCESS_DENIED, None),
    "catalog resets": ("catalog", Reset(), None),
    "catalog resets after a commit": ("catalog", LoseAnswer(), "POST"),
    "catalog does not know of a commit": ("catalog", OUTCOME_UNKNOWN, "POST"),
    "catalog fails after a commit": (
        "catalog",
        SwapAnswer(500, b'{"error":{"message":"?","type":"X","code":500}}'),
        "POST",
    ),
    "catalog is not available": ("catalog", UNAVAILABLE, None),
    "catalog answers no JSON": ("catalog", Answer(200, b"<html>"), None),
}


#: Those where it matters what the server is.
ONCE_OF_SERVERS = (
    "catalog resets",
    "catalog resets after a commit",
    "catalog does not know of a commit",
    "catalog is not available",
)


@pytest.fixture(scope="module", params=["rest"])
def lake(request, backends, tmp_path_factory):
    with ProxiedLake(backends, request.param, tmp_path_factory.mktemp("beyond")) as found:
        found.options |= short(WAITS_S[request.param])
        yield found


def short(wait_s):
    return {
        "datalake.iceberg.rest.client.socket-timeout-ms": str(wait_s * 1000),
        "datalake.iceberg.s3.request-timeout": str(wait_s),
        "datalake.iceberg.s3.connect-timeout": str(wait_s),
    }


@pytest.fixture(scope="module")
def tables(lake):
    with EmbeddedCluster(options={**TAKEOVER, **lake.options}) as cluster:
        yield Tables(cluster)


@pytest.fixture
def name(request):
    """A name of the test's own: the cluster is shared."""
    words = request.node.originalname.rpartition("_")[2] + "_" + request.node.callspec.id
    return "".join(each if each.isalnum() else "_" for each in words)


def tier(tables, info):
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return tables.tier(info, options=FAST)
        except TieringInProgressError:
            assert time.monotonic() < deadline_s


@pytest.mark.parametrize(
    ("lake", "fault"),
    [*(("rest", fault) for fault in ONCE), *(("nessie", fault) for fault in ONCE_OF_SERVERS)],
    indirect=["lake"],
)
def test_a_round_in_which_any_one_request_is_harmed(lake, tables, name, fault):
    side, harm, method = ONCE[fault]
    proxy = getattr(lake, side)
    info = tables.create(name, buckets=2, bucket_key=["id"], properties=SOON)
    tables.append(info, 8)
    tier(tables, info)
    for first in range(1, REQUESTS_MAX):
        tables.append(info, 8)
        armed = proxy.arm(harm, method=method, first=first)
        began_s, said = time.monotonic(), ""
        try:
            tier(tables, info)
        except FlussError as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            lake.heal()
        print(f"{fault} at request {first}: {said}")
        assert InternalError.__name__ not in said
        assert lake.secret not in said
        assert time.monotonic() - began_s < ROUND_S
        tier(tables, info)
        tables.check(info)
        if not armed.struck:
            return
    raise AssertionError(f"a round of more than {REQUESTS_MAX} requests")


@contextmanager
def harmed(proxy, fault, method=None):
    proxy.arm(fault, method=method, times=None)
    try:
        yield
    finally:
        proxy.disarm()


@contextmanager
def stopped(proxy):
    proxy.stop()
    try:
        yield
    finally:
        proxy.start()


@contextmanager
def revoked(minio):
    minio.revoke_credentials()
    try:
        yield
    finally:
        minio.restore_credentials()


OUTAGES = {
    "store stopped": lambda lake, _: stopped(lake.store),
    "store hangs": lambda lake, _: harmed(lake.store, Hang()),
    "store slows down": lambda lake, _: harmed(lake.store, SLOW_DOWN),
    "store full": lambda lake, _: harmed(lake.store, STORE_FULL, "PUT"),
    "credentials revoked": lambda _, minio: revoked(minio),
    "catalog stopped": lambda lake, _: stopped(lake.catalog),
    "catalog hangs": lambda lake, _: harmed(lake.catalog, Hang()),
    "catalog unavailable": lambda lake, _: harmed(lake.catalog, UNAVAILABLE),
}


#: How long each request takes longer; of Nessie's tables those of the catalog, as it says itself where its store is.
LATENCY_S = 0.2


@pytest.mark.parametrize("lake", ["rest", "iceberg", "nessie"], indirect=True)
def test_latency_alone_fails_nothing_and_has_nothing_asked_twice(lake, tables, name):
    info = tables.create(name, buckets=2, bucket_key=["id"], properties=SOON)
    for _ in range(2):
        tables.append(info, 8)
        tier(tables, info)
    tables.append(info, 8)
    with lake.counted() as quick:
        tier(tables, info)
    for proxy in (lake.catalog, lake.store):
        proxy.arm(Delay(LATENCY_S), times=None)
    tables.append(info, 8)
    began_s = time.monotonic()
    try:
        with lake.counted() as slowed:
            tier(tables, info)
    finally:
        lake.heal()
    took_s, requests = time.monotonic() - began_s, slowed.catalog.total() + slowed.store.total()
    print(f"{requests} requests, {LATENCY_S} s later each: {took_s:.1f} s")
    assert slowed.catalog == quick.catalog
    assert slowed.store == quick.store
    assert took_s < ROUND_S
    tables.check(info)


#: Which request is under way, and which server is killed then. Nessie says itself where its store is: no proxy stands before that.
MIDWAY = {
    "nessie as it commits": ("catalog", "POST", "nessie"),
    "minio as nessie commits": ("catalog", "POST", "minio"),
    "minio as files are written": ("store", "PUT", "minio"),
}


@pytest.mark.parametrize(
    ("lake", "midway"),
    [("rest" if midway == "minio as files are written" else "nessie", midway) for midway in MIDWAY],
    indirect=["lake"],
)
def test_a_server_killed_in_the_middle_of_a_round_and_back(request, lake, tables, name, midway):
    side, method, killed = MIDWAY[midway]
    proxy, server = getattr(lake, side), request.getfixturevalue(killed).process
    info = tables.create(name, buckets=2, bucket_key=["id"], properties=SOON)
    tables.append(info, 8)
    tier(tables, info)
    tables.append(info, 8)
    under_way = proxy.arm(Hold(), method=method)
    with ThreadPoolExecutor(1) as pool:
        tiering = pool.submit(tier, tables, info)
        assert under_way.held.wait(ROUND_S)
        server.kill()
        try:
            lake.heal()
            error = tiering.exception(PATIENCE_S)
        finally:
            server.start()
    print(f"{midway}: {type(error).__name__}: {error}")
    assert isinstance(error, FlussError)
    assert not isinstance(error, InternalError)
    assert lake.secret not in str(error)
    tier(tables, info)
    tables.check(info)


@pytest.mark.parametrize("outage", OUTAGES)
def test_the_service_goes_on_by_itself_after_an_outage(lake, tables, minio, name, outage):
    info = tables.create(name, buckets=2, bucket_key=["id"], properties=SOON)
    with outlived(tables, info, OUTAGES[outage](lake, minio)) as said:
        print(f"{outage}: {said}")
    assert lake.secret not in said


@contextmanager
def outlived(tables, info, outage):
    """Have a service tier before, amid and after an outage; give what it says of the round that failed."""
    service = TieringService(
        tables.connection, tables.storage, LocalTieringExecutor, max_tables=1, poll_interval_s=0.05, options=FAST
    )

    def mine():
        return next((each for each in service.status(lag=False).tables if each.table == info.path), None)

    def is_tiered():
        status = mine()
        return status is not None and status.last_error is None and status.rows == tables.appended[info.path]

    with service:
        tables.append(info, 8)
        wait_until(is_tiered, PATIENCE_S)
        with outage:
            tables.append(info, 8)
            began_s = time.monotonic()
            wait_until(lambda: (status := mine()) is not None and status.last_error is not None, PATIENCE_S)
            said = f"after {time.monotonic() - began_s:.0f} s {mine().last_error}"
            assert InternalError.__name__ not in said
            yield said
        wait_until(is_tiered, PATIENCE_S)
    tables.check(info)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 48 MB; only root may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(place)]).returncode:
        pytest.skip("no small file system can be made here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_store_whose_disk_is_full_and_has_room_again(small_disk, tmp_path):
    try:
        server = MinioServer(small_disk)
    except PartUnavailableError as error:
        pytest.skip(str(error))
    with server:
        lake = {
            "uri": f"sqlite:///{tmp_path}/lake.db",
            "warehouse": server.make_bucket("lake"),
            **server.lake_options(),
        }
        options = {f"datalake.iceberg.{key}": value for key, value in lake.items()}
        with EmbeddedCluster(options={**TAKEOVER, **options}) as cluster:
            tables = Tables(cluster)
            info = tables.create("full", properties=SOON)
            with outlived(tables, info, filled(small_disk)) as said:
                print(f"a full disk: {said}")


@contextmanager
def filled(place):
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()
