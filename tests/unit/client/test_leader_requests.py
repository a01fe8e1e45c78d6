"""Requests to leaders: what is repeated, what is not, and what one bucket's failure does to the others."""

from __future__ import annotations

import threading

import pytest

from fluss_lab.client.cluster.leader_requests import (
    Attempts,
    BucketRequest,
    LeaderCall,
    call_leader,
    call_leaders,
    call_leaders_once,
)
from fluss_lab.errors import (
    InvalidRequestError,
    NotLeaderError,
    PartitionNotFoundError,
    ServerUnavailableError,
)
from fluss_lab.model import TableBucket

BUCKETS = [TableBucket(1, None, number) for number in range(4)]


class Cluster:
    """A connection to two servers, the even buckets on server 0; `away` have no leader, `gone` no partition."""

    def __init__(self, away=(), gone=()):
        self.away, self.gone, self.looked_up = set(away), set(gone), []

    def attempts(self, what):
        return Attempts(what, 1000, threading.Event())

    def present_leaders(self, buckets, attempts):
        self.looked_up += buckets
        if found := [bucket for bucket in buckets if bucket in self.gone]:
            raise PartitionNotFoundError(f"{found[0]} was dropped")
        return {bucket: bucket.bucket % 2 for bucket in buckets if bucket not in self.away}

    def gateway(self, server_id):
        return server_id

    def refresh_leader(self, bucket, error, attempts):
        self.away.discard(bucket)
        if bucket in self.gone:
            raise PartitionNotFoundError(f"{bucket} was dropped")

    def forget_leaders(self):
        pass


def requests(buckets=BUCKETS):
    return [BucketRequest(bucket) for bucket in buckets]


def answered(sent):
    """A call whose answers are server and bucket; what is sent is noted."""

    def send(server, part):
        sent.append((server, [each.bucket.bucket for each in part]))
        return [(server, each.bucket.bucket) for each in part]

    return send


def test_one_call_goes_to_each_server_and_answers_keep_the_order_of_requests():
    sent = []
    cluster = Cluster()
    found = call_leaders(cluster, requests(), LeaderCall(answered(sent)), cluster.attempts("ask"))
    assert found == [(0, 0), (1, 1), (0, 2), (1, 3)]
    assert sent == [(0, [0, 2]), (1, [1, 3])]


def test_a_bucket_without_a_leader_is_repeated_alone():
    sent = []
    cluster = Cluster(away=[BUCKETS[1]])
    found = call_leaders(cluster, requests(), LeaderCall(answered(sent)), cluster.attempts("ask"))
    assert found == [(0, 0), (1, 1), (0, 2), (1, 3)]
    assert sent == [(0, [0, 2]), (1, [3]), (1, [1])]


def test_once_repeats_nothing_and_returns_each_error_in_its_place():
    cluster = Cluster(away=[BUCKETS[1]])

    def send(server, part):
        if server == 0:
            raise ServerUnavailableError("no answer")
        return [InvalidRequestError("refused") for _ in part]

    found = call_leaders_once(cluster, requests(), LeaderCall(send), cluster.attempts("ask"))
    assert [type(each) for each in found] == [
        ServerUnavailableError, NotLeaderError, ServerUnavailableError, InvalidRequestError,
    ]  # fmt: skip


def test_a_refusal_is_raised_and_a_passing_error_repeated_until_time_is_up():
    cluster = Cluster()
    with pytest.raises(InvalidRequestError, match="refused"):
        call_leader(cluster, BUCKETS[0], "ask", lambda _server: raising(InvalidRequestError("refused")))
    calls = []

    def away(_server):
        calls.append(1)
        raise ServerUnavailableError("no answer")

    with pytest.raises(ServerUnavailableError, match=r"ask: not done in .*server of bucket .*no answer"):
        call_leader(cluster, BUCKETS[0], "ask", away, Attempts("ask", 120, threading.Event()))
    assert len(calls) > 1


def raising(error):
    raise error


def test_a_dropped_bucket_is_an_error_or_has_its_own_answer():
    cluster = Cluster(gone=[BUCKETS[2]])
    with pytest.raises(PartitionNotFoundError, match="dropped"):
        call_leaders(cluster, requests(), LeaderCall(answered([])), cluster.attempts("ask"))
    call = LeaderCall(answered([]), on_gone=lambda request, error: (type(error).__name__, request.bucket.bucket))
    found = call_leaders(cluster, requests(), call, cluster.attempts("ask"))
    assert found == [(0, 0), (1, 1), ("PartitionNotFoundError", 2), (1, 3)]
