"""Every option of a lookup join with a table of a lab: its name, type, default, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fluss_lab.model.config.option_kinds import Option, duration, integer
from fluss_lab.model.config.options import check_options

#: How a task looks rows up; `FlussLookupSource` has the meaning of each.
AUTO, FULL, REMOTE = MODES = ("auto", "full", "remote")
CACHE_ROWS_MAX: Final = integer(
    "lookup.cache.max-rows",
    100_000,
    "rows that a task of remote lookups caches at most; a key without a row counts as one",
)
CACHE_EXPIRY: Final = duration(
    "lookup.cache.expire-after-write", "0s", "after which time a cached row is looked up again; 0s: it does not expire"
)
RETRIES_MAX: Final = integer(
    "lookup.max-retries",
    3,
    "how often remote lookups are repeated when no server answered within client.request-timeout",
)
PARTITIONS_MAX: Final = integer(
    "lookup.max-partitions", 100, "partitions that remote lookups without the partition columns ask at most", minimum=1
)
FULL_ROWS_MAX: Final = integer(
    "lookup.full.max-rows", 2_000_000, "rows of a task up to which mode 'auto' loads them instead of asking for each"
)
CHANGES_MAX: Final = integer(
    "lookup.remote.max-changes",
    1_000_000,
    "changes since the read point up to which mode 'auto' looks rows up remotely; of more keys than that a task does not",
)
#: How updates are treated that may find other rows than what they retract did: Flink's option. ``IGNORE`` or ``TRY_RESOLVE``.
UPDATE_STRATEGY: Final = "table.optimizer.non-deterministic-update.strategy"
LOOKUP_OPTIONS: Final[dict[str, Option[Any]]] = {
    option.key: option
    for option in (CACHE_ROWS_MAX, CACHE_EXPIRY, RETRIES_MAX, PARTITIONS_MAX, FULL_ROWS_MAX, CHANGES_MAX)
}


def lookup_options(given: Mapping[str, object] | None) -> dict[str, str]:
    """Return checked options of a lookup join, as text.

    Raises:
        InvalidPropertyError: An unknown or ill-typed option.
    """
    values = dict(given or {})
    check_options(values, LOOKUP_OPTIONS, "lookup option")
    return {key: str(value) for key, value in values.items()}
