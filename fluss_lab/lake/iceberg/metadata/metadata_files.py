"""A lake table's metadata files opened: their bytes checked, and whatever is wrong with them turned into one error.

pyiceberg raises what the damage happens to run into, from ``UnicodeDecodeError`` to ``EOFError``; and of a manifest that was
cut off it returns the entries before the cut, as if these were all. So every manifest, list of manifests and table metadata
file is opened here. What is checked: the seal of files that tiering wrote (see `file_seals`); of all files that they can be taken
apart to their end; of manifests their length and the counts of files and rows, as the manifest list has them; of what tiering
wrote that it is the list, or the manifest, of the snapshot that names it.
"""

from __future__ import annotations

import io as streams
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile, read_manifest_list
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from fluss_lab.errors import CorruptDataError, FlussError, UnsupportedError
from fluss_lab.lake.iceberg.files.file_faults import reading_fault
from fluss_lab.lake.iceberg.files.file_seals import AVRO_KEY, check_json
from fluss_lab.lake.iceberg.files.lake_errors import REMEDY
from fluss_lab.lake.iceberg.metadata.avro_file import RawBlocks

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

#: Key in the header of manifest lists: the snapshot whose it is.
_SNAPSHOT_KEY: Final = "snapshot-id"


@contextmanager
def metadata_errors(io: FileIO, location: str, what: str) -> Iterator[None]:
    """Turn whatever a damaged metadata file leads to into `CorruptDataError`; one that is gone stays `FileNotFoundError`.

    Args:
        io: Access to the file.
        location: Of the file.
        what: What it should be.
    """
    try:
        yield
    except FlussError:
        raise
    except Exception as error:
        if (found := reading_fault(io, location, what, error)) is error:
            raise
        raise found from error


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Return a table's metadata.

    Raises:
        FileNotFoundError: The file is gone.
        CorruptDataError: It is not what was written.
    """
    with metadata_errors(io, location, "table metadata"):
        raw = streams.BytesIO(_bytes(io, location))
        with Compressor.get_compressor(location).stream_decompressor(raw) as stream:
            text = stream.read()
        check_json(text)
        return TableMetadataUtil.parse_raw(text.decode())


def read_list(io: FileIO, location: str, snapshot_id: int) -> tuple[ManifestFile, ...]:
    """Return the manifests of a manifest list, that of a snapshot.

    Raises:
        FileNotFoundError: The file is gone.
        CorruptDataError: It is not what was written.
    """
    with metadata_errors(io, location, "manifest list"):
        data = _bytes(io, location)
        held, blocks = _check_avro(data, f"lake file {location}")
        manifests = tuple(read_manifest_list(held))
        if blocks is not None and blocks.count != len(manifests):
            raise ValueError(f"expected {blocks.count} manifests, found {len(manifests)}")
        if _is_sealed(blocks) and (found := blocks.header.get(_SNAPSHOT_KEY)) != str(snapshot_id).encode():
            raise ValueError(f"expected the list of snapshot {snapshot_id}, found that of {(found or b'?').decode()}")
        return manifests


def read_manifest(io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    """Return the live entries of a manifest.

    Raises:
        FileNotFoundError: The file is gone.
        CorruptDataError: It is no manifest, or not the one that its list describes.
    """
    with metadata_errors(io, manifest.manifest_path, "manifest"):
        data = _bytes(io, manifest.manifest_path)
        if len(data) != manifest.manifest_length:
            raise ValueError(f"expected {manifest.manifest_length} bytes, as its list says, found {len(data)}")
        held, blocks = _check_avro(data, f"lake file {manifest.manifest_path}")
        entries = manifest.fetch_manifest_entry(held, discard_deleted=False)
        if blocks is not None and blocks.count != len(entries):
            raise ValueError(f"expected {blocks.count} entries, found {len(entries)}")
        if _is_sealed(blocks):
            _check_snapshot(manifest, entries)
        live = tuple(entry for entry in entries if entry.status != ManifestEntryStatus.DELETED)
        _check_counts(manifest, [entry.data_file.record_count for entry in live])
        return live


def _is_sealed(blocks: RawBlocks | None) -> TypeGuard[RawBlocks]:
    """Return whether tiering wrote a file: then it says whose it is, and another one in its place is found."""
    return blocks is not None and AVRO_KEY in blocks.header


def _check_snapshot(manifest: ManifestFile, entries: Sequence[ManifestEntry]) -> None:
    """Check that what a manifest of tiering's added came with the snapshot that its list names."""
    for entry in entries:
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id != manifest.added_snapshot_id:
            raise ValueError(
                f"expected the manifest of snapshot {manifest.added_snapshot_id}, found that of {entry.snapshot_id}"
            )


def _check_counts(manifest: ManifestFile, rows: Sequence[int]) -> None:
    """Check the rows of each live file of a manifest against the counts of its list.

    Raises:
        CorruptDataError: They differ.
    """
    counts = [
        (manifest.added_files_count, manifest.existing_files_count, len(rows), "live files"),
        (manifest.added_rows_count, manifest.existing_rows_count, sum(rows), "rows in them"),
    ]
    for added, existing, found, what in counts:
        if added is not None and existing is not None and added + existing != found:
            raise CorruptDataError(
                f"lake file {manifest.manifest_path}: not the manifest that its list describes: expected {added + existing} "
                f"{what}, found {found}; {REMEDY}"
            )


def _check_avro(data: bytes, what: str) -> tuple[Any, RawBlocks | None]:
    """Check that an Avro file can be taken apart to its end.

    Returns:
        What pyiceberg reads it from, whichever codecs pyiceberg has here; and what was taken apart, None: it cannot be here.
    """
    try:
        blocks = RawBlocks.parse(data, what)
    except UnsupportedError:
        # A codec that only pyiceberg may know.
        return HeldBytes(data), None
    return HeldBytes(blocks.to_plain_bytes()), blocks


def _bytes(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return bytes(stream.read())


class HeldBytes:
    """What pyiceberg opens a file by: one whose bytes are at hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def new_input(self, location: str) -> HeldBytes:
        """Return what opens the file."""
        del location
        return self

    def open(self, seekable: bool = True) -> streams.BytesIO:
        """Return its bytes as a stream."""
        del seekable
        return streams.BytesIO(self._data)
