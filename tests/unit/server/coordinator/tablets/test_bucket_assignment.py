"""Who holds which bucket: even within a table and over all, kept, and never fewer servers than hold something."""

import random
from collections import Counter

import pytest

from fluss_lab.errors import LabError
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION, BucketGroup
from fluss_lab.server.coordinator.tablets.bucket_assignment import leaders_for, server_count


def group(table_id: int, *leaders: int) -> BucketGroup:
    return BucketGroup(table_id, NO_PARTITION, tuple(leaders))


def load_of(groups):
    return Counter(leader for each in groups for leader in each.leaders)


def test_buckets_are_even_within_each_table_and_over_all_of_them(seed):
    rng = random.Random(seed)
    for servers in (1, 2, 3, 5):
        groups: list[BucketGroup] = []
        for table_id in range(200):
            leaders = leaders_for(range(servers), rng.randint(1, 9), load_of(groups))
            within = Counter(dict.fromkeys(range(servers), 0)) + Counter(leaders)
            counts = [within[server] for server in range(servers)]
            assert max(counts) - min(counts) <= 1
            groups.append(group(table_id, *leaders))
            load = [load_of(groups)[server] for server in range(servers)]
            assert max(load) - min(load) <= 1, (servers, table_id, load)


def test_many_tables_of_one_bucket_do_not_all_go_to_one_server():
    groups: list[BucketGroup] = []
    for table_id in range(10):
        groups.append(group(table_id, *leaders_for([0, 1], 1, load_of(groups))))
    assert load_of(groups) == {0: 5, 1: 5}


def test_a_server_that_joins_gets_what_is_left_over_until_it_has_as_much_but_not_whole_tables():
    load = Counter({0: 10, 1: 10})
    assert sorted(leaders_for([0, 1, 2], 4, load)) == [0, 1, 2, 2]
    assert leaders_for([0, 1, 2], 1, load) == (2,)


@pytest.mark.parametrize(
    ("asked", "last", "leaders", "expected"),
    [
        (None, None, [], 1),
        (None, 3, [], 3),
        (None, 2, [0, 1, 2], 3),
        (1, 3, [0, 0], 1),
        (2, 3, [0, 1], 2),
        (5, 2, [0, 1], 5),
        (None, None, [0], 1),
    ],
)
def test_there_are_as_many_servers_as_asked_for_or_as_there_were(asked, last, leaders, expected):
    assert server_count(asked, last, [group(1, *leaders)] if leaders else []) == expected


@pytest.mark.parametrize("asked", [1, 2])
def test_fewer_servers_than_hold_buckets_are_refused_naming_the_number(asked):
    with pytest.raises(LabError, match=rf"server.tablet-servers={asked}: .*servers 0, 2.*start with 3 or more"):
        server_count(asked, 3, [group(1, 0, 2)])
