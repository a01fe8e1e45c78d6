"""The findings about a lab's buckets, in words: those that are not available, warnings, and what was given up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from fluss_lab.client import BucketStatus, Connection, KnownBucket
from fluss_lab.client.table_listing import look_at_tables
from fluss_lab.model import TableInfo, TablePath

#: Most damaged buckets shown; the server's log has all.
TROUBLES_MAX: Final = 10
_NO_LAKE_START: Final = (
    "where the lake's part begins is not known: the server is of an older version, which does not say it"
)


class BucketTrouble(NamedTuple):
    """What is wrong with one bucket.

    Attributes:
        table: Its table.
        text: What, where, and what to do.
        error_class: Name of the error's class, of a bucket that is not available; None: it is a warning about one that is.
    """

    table: TablePath
    text: str
    error_class: str | None


def table_statuses(connection: Connection) -> list[tuple[TableInfo, list[BucketStatus]]]:
    """Return every table with the state of each of its buckets, asked once: a server that does not answer is waited for no longer.

    A table that is dropped meanwhile is left out.
    """
    admin = connection.admin()
    return list(look_at_tables(admin, lambda info: (info, admin.buckets(info, patient=False))))


def bucket_troubles(statuses: Iterable[tuple[TableInfo, Iterable[BucketStatus]]]) -> list[BucketTrouble]:
    """Return what is wrong with buckets: first those that are not available, then warnings about others.

    That a server of an older version does not say where the lake's parts begin is said once, of all buckets.
    """
    errors, warnings = [], []
    unsaid: dict[TablePath, int] = {}
    for info, buckets in statuses:
        for each in buckets:
            if each.error is not None:
                errors.append(BucketTrouble(info.path, str(each.error), type(each.error).__name__))
            elif isinstance(each, KnownBucket) and each.warning is not None:
                where = "" if each.partition is None else f" of partition {each.partition!r}"
                text = f"table {info.path}, bucket {each.bucket.bucket}{where}: {each.warning}"
                warnings.append(BucketTrouble(info.path, text, None))
            if isinstance(each, KnownBucket) and each.has_unsaid_lake_start:
                unsaid[info.path] = unsaid.get(info.path, 0) + 1
    if unsaid:
        where = f"{sum(unsaid.values())} tiered buckets of {len(unsaid)} tables"
        warnings.append(BucketTrouble(next(iter(unsaid)), f"{where}: {_NO_LAKE_START}", None))
    return errors + warnings


def troubles_of(statuses: Iterable[tuple[TableInfo, Iterable[BucketStatus]]]) -> list[str]:
    """Return a line for each bucket that is not available, then one for each warning."""
    return [each.text for each in bucket_troubles(statuses)]


def given_up_lines(statuses: Iterable[tuple[TableInfo, Iterable[BucketStatus]]]) -> list[str]:
    """Return the ranges of logs that were given up, a line for each bucket, up to `TROUBLES_MAX`."""
    lines = []
    for info, buckets in statuses:
        for each in buckets:
            if isinstance(each, KnownBucket) and each.given_up:
                where = "" if each.partition is None else f" of partition {each.partition!r}"
                ranges = ", ".join(map(str, each.given_up))
                lines.append(f"table {info.path}, bucket {each.bucket.bucket}{where}: {ranges}")
    more = [f"and {len(lines) - TROUBLES_MAX} more"] if len(lines) > TROUBLES_MAX else []
    return lines[:TROUBLES_MAX] + more
