"""The assignment of buckets to tablet servers: which server leads each of a new table, and how many servers there must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluss_lab.errors import LabError
from fluss_lab.model.config.options import TABLET_SERVERS
from fluss_lab.server.coordinator.metadata.table_catalog import BucketGroup


def server_count(asked: int | None, last: int | None, groups: Iterable[BucketGroup]) -> int:
    """Return how many tablet servers a cluster has.

    Args:
        asked: The configured number; None: not configured.
        last: The number at the last run; None: this is the first.
        groups: All buckets.

    Raises:
        LabError: Buckets are assigned to more servers; the message has the number needed.
    """
    held = {leader for group in groups for leader in group.leaders}
    needed = max(held, default=-1) + 1
    if asked is None:
        return max(last or 1, needed)
    if asked < needed:
        raise LabError(
            f"{TABLET_SERVERS.key}={asked}: buckets are assigned to tablet servers {', '.join(map(str, sorted(held)))}, and "
            f"stay there: start with {needed} or more, or leave the option out for as many as there were"
        )
    return asked


def leaders_for(servers: Sequence[int], buckets: int, load: Mapping[int, int]) -> tuple[int, ...]:
    """Return a server for each bucket of a table or partition: spread evenly, the least loaded servers first.

    Args:
        servers: Ids of the servers; at least one.
        buckets: Number of buckets.
        load: Number of buckets that each server leads already, of all tables.
    """
    # The least loaded comes first, so that it gets what is left over after even rounds.
    ordered = sorted(servers, key=lambda server: (load.get(server, 0), server))
    return tuple(ordered[bucket % len(ordered)] for bucket in range(buckets))
