"""Parquet files of the lake opened, far ones together: the footer's seal and the pages' checksums compared, errors made the house's.

Pages have checksums when tiering wrote them, or another writer that asks for them; the footers of tiering's files have a seal
(see `file_seals`) where they were written on this machine's file systems. What has neither is read as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.errors import FlussError
from fluss_lab.lake.iceberg.files.file_faults import reading_fault
from fluss_lab.lake.iceberg.files.file_locations import local_path
from fluss_lab.lake.iceberg.files.file_seals import check_parquet
from fluss_lab.lake.iceberg.files.lake_errors import library_errors
from fluss_lab.work_pool import Work, WorkPool

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

T = TypeVar("T")
R = TypeVar("R")
#: Files of an object store that are read at a time.
TRIPS_AT_ONCE: Final = 8
#: Threads that work on what was read, beside Arrow's own.
_WORK_AT_ONCE: Final = 2


@contextmanager
def parquet_errors(io: FileIO | None, location: str, what: str) -> Iterator[None]:
    """Turn what Arrow raises for a file that is not what it should be into `CorruptDataError`; one that is gone stays so.

    A store that does not answer, refuses, or has not even the bucket, has errors of its own: see `file_faults`.

    Args:
        io: Access to the file; None: it lies on this machine's file systems.
        location: Where it is.
        what: What it should be, for messages.
    """
    try:
        yield
    except FlussError:
        raise
    except library_errors(
        pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError
    ) as error:
        # Out of memory is a length that was damaged; what memory there is, is asked for at once and in vain.
        if (found := reading_fault(io, location, what, error)) is error:
            raise
        raise found from error


def check_footer(location: str) -> None:
    """Check the seal of a local file's footer, if it has one.

    Raises:
        FileNotFoundError, OSError: The file cannot be read.
        ValueError: The footer is not what was written.
    """
    if (path := local_path(location)) is not None:
        check_parquet(path)


def check_file(location: str, size_bytes: int) -> None:
    """Check length and seal of a local file.

    Args:
        location: Where it is.
        size_bytes: Its length, as its manifest says.

    Raises:
        FileNotFoundError, OSError: The file cannot be read.
        ValueError: It is not the file that was written.
    """
    if (path := local_path(location)) is None:
        return
    if (found := path.stat().st_size) != size_bytes:
        raise ValueError(f"expected {size_bytes} bytes, as its manifest says, found {found}")
    check_parquet(path)


def file_stamp(location: str) -> tuple[int, ...] | None:
    """Return what tells a file of this machine from another under its name; None of one that is gone, empty elsewhere."""
    if (path := local_path(location)) is None:
        return ()
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def open_parquet(stream: Any, **options: Any) -> pq.ParquetFile:
    """Return a Parquet file that compares the checksums of its pages; errors are Arrow's."""
    return pq.ParquetFile(stream, page_checksum_verification=True, **options)


@contextmanager
def opened_parquet(io: FileIO, location: str, what: str) -> Iterator[pq.ParquetFile]:
    """Open a file; what reading it in the block ends in becomes the house's errors too.

    Args:
        io: Access to the file.
        location: Where it is.
        what: What it should be, for messages.

    Raises:
        FileNotFoundError: It is gone.
        CorruptDataError: It is no Parquet file, or not what was written.
    """
    with parquet_errors(io, location, what):
        check_footer(location)
        with io.new_input(location).open() as stream, open_parquet(stream, pre_buffer=True) as parquet:
            yield parquet


def side_by_side(location: Callable[[T], str], work: Callable[[T], R], what: Sequence[T]) -> list[R]:
    """Return the results of some work on each of several files.

    Where each is a round trip away, several are under way at a time. On this machine's file systems one follows another:
    there the processor is what is waited for.
    """
    if not what or local_path(location(what[0])) is not None:
        return [work(each) for each in what]
    pool = WorkPool(min(TRIPS_AT_ONCE, len(what)), "lake-trips")
    try:
        under_way = [pool.submit(partial(work, each)) for each in what]
        return [each.result() for each in under_way]
    finally:
        pool.close()


def in_order(work: Callable[[T], R], what: Iterable[T]) -> Iterator[R]:
    """Yield the results of some work on each of several things, a few of them under way while the one before is used.

    The first is done before the next is asked for: a reader that takes one costs no thread. Work releases the interpreter's
    lock for most of its time, or nothing is gained.
    """
    left = iter(what)
    for each in left:
        yield work(each)
        break
    under_way: deque[Work[R]] = deque()
    pool: WorkPool | None = None
    try:
        for each in left:
            pool = pool or WorkPool(_WORK_AT_ONCE, "lake-work")
            under_way.append(pool.submit(partial(work, each)))
            if len(under_way) > _WORK_AT_ONCE:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        if pool is not None:
            pool.close()
