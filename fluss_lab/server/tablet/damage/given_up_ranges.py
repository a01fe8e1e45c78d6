"""The offset ranges of a bucket's log that were given up, noted in the bucket's folder.

One small file, ``given-up``, replaced at once, with a checksum of its own and the identity of its bucket. While records are
being given up it also says how far that is to go: see `fluss_lab.server.tablet.damage.log_cut`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fluss_lab import files
from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.records.sealed import seal_content, unseal_content
from fluss_lab.server.tablet.buckets.bucket_identity import folder_identity

FILE_NAME: Final = "given-up"
VERSION: Final = 1
_REMEDY: Final = "restore it from a copy, or delete it: what was given up of the bucket is then not told any more"


@dataclass(frozen=True, slots=True)
class GivenUpRange:
    """Offsets ``[start, stop)`` that were given up.

    Attributes:
        start: First offset that could not be read.
        stop: Where the log could be read again.
        lost_start: Offsets ``[lost_start, stop)`` were held by nobody else, neither by the lake nor by remote storage;
            `stop` when there were none. It is below `start` where sound records before the damage were discarded too.
        time_ms: When that was done.
    """

    start: int
    stop: int
    lost_start: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A log that is to begin at an offset.

    Attributes:
        start: The offset.
        source: Name of the segment in which its batch is, at `position`; None: it begins a segment, or there is none yet.
        position: See there.
        noted: What is given up by it.
    """

    start: int
    source: str | None
    position: int
    noted: GivenUpRange


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What was given up of a bucket's log.

    Attributes:
        ranges: In the order in which they were given up.
        pending: What has begun, and is to be finished before the log is used; None: nothing.
    """

    ranges: tuple[GivenUpRange, ...] = ()
    pending: Cut | None = None


class _Noted(msgspec.Struct):
    """The file: what was given up, and of which bucket."""

    identity: str
    ranges: tuple[GivenUpRange, ...]
    pending: Cut | None


def save(folder: Path, given_up: GivenUp) -> None:
    """Replace what is noted in a bucket's folder, durably.

    Raises:
        OSError: The file system refused; what was noted stands.
    """
    noted = _Noted(folder_identity(folder), given_up.ranges, given_up.pending)
    files.write_atomic(folder / FILE_NAME, seal_content(encode(noted, version=VERSION, indent=0)))


def load(folder: Path) -> GivenUp:
    """Return what is noted in a bucket's folder; nothing where there is no file.

    Raises:
        CorruptDataError: The file is damaged, or another bucket's.
        UnsupportedError: A newer version wrote it.
        OSError: It cannot be read.
    """
    path = folder / FILE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return GivenUp()
    if (body := unseal_content(data)) is None:
        raise CorruptDataError(f"{path}: the checksum does not agree; {_REMEDY}")
    noted = decode(_Noted, body, path, version=VERSION, remedy=_REMEDY)
    if noted.identity != (identity := folder_identity(folder)):
        raise CorruptDataError(
            f"{path}: expected what was given up of bucket {identity!r}, found that of {noted.identity!r}; {_REMEDY}"
        )
    return GivenUp(noted.ranges, noted.pending)
