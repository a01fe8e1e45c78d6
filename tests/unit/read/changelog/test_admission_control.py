"""How a limit of rows is shared by buckets: kept, used, and fair."""

import random

from fluss_lab.read.changelog.admission_control import admit


def test_a_limit_is_shared_evenly_as_far_as_buckets_have_it():
    assert admit([100, 100, 100], 30, 0) == [10, 10, 10]
    assert admit([100, 3, 100], 33, 0) == [15, 3, 15]
    assert admit([1, 2, 3], 100, 5) == [1, 2, 3]
    assert admit([0, 0, 50], 20, 1) == [0, 0, 20]
    assert admit([9, 9, 9, 9], 2, 3) == [1, 0, 0, 1]
    assert admit([], 5, 0) == []
    assert admit([5], 0, 0) == [0]


def test_shares_keep_the_limit_use_it_and_are_fair(seed):
    rng = random.Random(seed)
    for _ in range(2_000):
        backlogs = [rng.choice([0, 0, 1, 5, rng.randint(0, 1000)]) for _ in range(rng.randint(1, 8))]
        limit, turn = rng.choice([0, 1, 2, 7, 100, 5000]), rng.randint(0, 10**6)
        given = admit(backlogs, limit, turn)
        assert given == admit(backlogs, limit, turn)
        assert sum(given) == min(limit, sum(backlogs))
        assert all(0 <= each <= backlog for each, backlog in zip(given, backlogs, strict=True))
        # Who did not get all it has got no less than anybody, but for the one that does not divide.
        held_back = [each for each, backlog in zip(given, backlogs, strict=True) if each < backlog]
        assert not held_back or min(held_back) >= max(given) - 1


def test_every_bucket_gets_on_with_the_smallest_limit(seed):
    rng = random.Random(seed)
    for _ in range(200):
        count, limit = rng.randint(1, 9), rng.randint(1, 4)
        read = [rng.randint(0, 50) for _ in range(count)]
        backlogs = [rng.choice([0, 1000]) for _ in range(count)]
        before = list(read)
        for _ in range(count):
            given = admit(backlogs, limit, sum(read))
            read = [done + each for done, each in zip(read, given, strict=True)]
            backlogs = [left - each for left, each in zip(backlogs, given, strict=True)]
        assert all(now > was for now, was, left in zip(read, before, backlogs, strict=True) if left)
