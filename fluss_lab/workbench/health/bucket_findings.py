"""The findings about a lab's buckets, in words: those that are not available, warnings, and what was given up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fluss_lab.client import BucketStatus, Connection, KnownBucket
from fluss_lab.model import TableInfo, TablePath

#: Most damaged buckets shown; the server's log has all.
TROUBLES_MAX: Final = 10


class BucketFindings(NamedTuple):
    """The problems of a lab's buckets.

    Attributes:
        troubles: Buckets that are not available, then warnings about others.
        given_up: Ranges of logs that were given up because they could not be read.
    """

    troubles: list[str]
    given_up: list[str]


def findings_of(statuses: Sequence[tuple[TableInfo, Sequence[BucketStatus]]]) -> BucketFindings:
    """Return the problems in the states of buckets."""
    return BucketFindings(troubles_of(statuses), given_up_of(statuses))


def table_statuses(connection: Connection) -> list[tuple[TableInfo, list[BucketStatus]]]:
    """Return every table with the state of each of its buckets, asked once: a server that does not answer is waited for no longer."""
    admin = connection.admin()
    infos = [admin.table_info(TablePath(db, name)) for db in admin.databases() for name in admin.tables(db)]
    return [(info, admin.buckets(info, patient=False)) for info in infos]


def troubles_of(statuses: Iterable[tuple[TableInfo, Iterable[BucketStatus]]]) -> list[str]:
    """Return a line for each bucket that is not available, then one for each warning."""
    errors, warnings = [], []
    for info, buckets in statuses:
        for each in buckets:
            if each.error is not None:
                errors.append(str(each.error))
            elif isinstance(each, KnownBucket) and each.warning is not None:
                where = "" if each.partition is None else f" of partition {each.partition!r}"
                warnings.append(f"table {info.path}, bucket {each.bucket.bucket}{where}: {each.warning}")
    return errors + warnings


def given_up_of(statuses: Iterable[tuple[TableInfo, Iterable[BucketStatus]]]) -> list[str]:
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
