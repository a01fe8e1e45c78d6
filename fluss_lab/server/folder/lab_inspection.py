"""The inspection of a whole lab's files while no server runs: metadata, logs, key-value snapshots, remote segments.

Nothing is changed, except the access times of files.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from fluss_lab.errors import CorruptDataError, FlussError, LabError, StorageError, UnsupportedError
from fluss_lab.model.format_versions import newer_text
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_files import check_files
from fluss_lab.records.kv_manifest import read_manifest, snapshot_id_of
from fluss_lab.records.remote_segment import SegmentFile
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.coordinator.metadata.metadata_store import (
    APPLICATION_ID,
    DATABASE_FILE,
    SCHEMA_VERSION,
    MetadataStore,
)
from fluss_lab.server.folder.folder_lock import tablet_folders
from fluss_lab.server.folder.known_buckets import KnownBuckets, Range, read_known
from fluss_lab.server.folder.metadata_checks import check_folder_ids, check_metadata_is_there
from fluss_lab.server.folder.metadata_values import database_copy, metadata_values
from fluss_lab.server.folder.remote_storage import KV, LOG, OWNER_FILE, is_claimed, remote_root
from fluss_lab.server.process import server_process
from fluss_lab.server.server_options import default_lake_options, with_lake
from fluss_lab.server.tablet.buckets.bucket_folders import identity_problem
from fluss_lab.server.tablet.buckets.bucket_inspection import Finding, inspect_bucket
from fluss_lab.server.tablet.buckets.table_registry import kept_schemas
from fluss_lab.server.tablet.damage.damaged_ranges import DamagedRange, damaged_ranges, log_end
from fluss_lab.server.tablet.log.previous_offsets import MARKS_SUFFIX
from fluss_lab.server.tablet.remote import remote_manifest
from fluss_lab.server.tablet.remote.remote_manifest import DroppedMark, RemoteManifest
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_errors import StoreError
from fluss_lab.storage.store_location import store_of

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE: Final = re.compile(r"t(\d+)")
_PARTITION: Final = re.compile(r"p(\d+)")
_BUCKET: Final = re.compile(r"b(\d+)")
#: The id in a folder's name of remote storage; the part before it is for people.
_REMOTE_ID: Final = re.compile(r".*-p?(\d+)")
_COPY: Final = "Restore it from a copy if there is one"
#: Where the lake's catalog is.
_LAKE_KEY: Final = "datalake.iceberg.uri"
#: How many tables a finding names.
_NAMED_MAX: Final = 3


def inspect_lab(folder: Path) -> Iterator[Finding | str]:
    """Yield every finding, and after those of each part a line about the part.

    Args:
        folder: The lab's folder; no server may run on it: see `lock_out_servers`.

    Cost: reads every file.
    """
    yield from _metadata(folder / DATABASE_FILE)
    root = remote_root(server_process.read_options(folder), folder)
    yield from _owner(folder, root)
    logs = _remote_buckets(root / LOG)
    known, remote = _known_buckets(folder / DATABASE_FILE), _remote_manifests(logs)
    seen: set[TableBucket] = set()
    for tablet in tablet_folders(folder):
        yield from _tablet(tablet, known, remote, seen)
    if known is not None:
        yield from _lost_folders(folder, known, remote, seen)
        yield from _lake_catalog(folder, known)
    yield from _remote_logs(logs, known)
    yield from _snapshots(root / KV, known)


def _unreadable(path: Path, error: Exception) -> Finding:
    return Finding(
        path,
        None,
        f"cannot be read: {error}",
        "It was not checked",
        "Check the disk and the permissions",
        error_class=None,
    )


def _newer(path: Path, error: UnsupportedError, meaning: str) -> Finding:
    return Finding(path, None, str(error), meaning, "Use that version", error_class=UnsupportedError.__name__)


# -- metadata --------------------------------------------------------------------------------------------------------


def _metadata(path: Path) -> Iterator[Finding | str]:
    """Check a copy of the metadata: opening a SQLite file changes the files beside it."""
    if not path.exists():
        yield from _no_metadata(path)
        return
    problems: list[str] = []
    try:
        with database_copy(path) as copy:
            with closing(sqlite3.connect(copy)) as db:
                problems += [
                    f"a row of {row[0]} refers to a missing row" for row in db.execute("PRAGMA foreign_key_check")
                ]
                if (found := db.execute("PRAGMA application_id").fetchone()[0]) != APPLICATION_ID:
                    problems.append(f"application id {found:#x} is not fluss_lab's")
                if (version := db.execute("PRAGMA user_version").fetchone()[0]) > SCHEMA_VERSION:
                    problems.append(newer_text("metadata", version, SCHEMA_VERSION))
                if version == SCHEMA_VERSION and (problem := row_checksums.problem(db)) is not None:
                    problems.append(problem)
            if not problems:
                yield from _other_metadata(path, copy)
    except StorageError as error:
        yield _unreadable(path, error)
        return
    except (sqlite3.DatabaseError, UnicodeError, OSError) as error:
        problems.append(str(error))
    for problem in problems:
        yield Finding(
            path, None, problem, "The coordinator's metadata is damaged or of another version; the server may not start",
            "Restore the file from a backup, or use the fluss_lab that wrote it",
        )  # fmt: skip
    yield f"{path}: {len(problems)} problems"


def _other_metadata(path: Path, copy: Path) -> Iterator[Finding]:
    """Check that the metadata is the folder's, as a server does when it starts."""
    with closing(MetadataStore(copy)) as store:
        try:
            check_folder_ids(store, path.parent)
        except LabError as error:
            advice = f"Restore the {DATABASE_FILE} that belongs to the folder"
            yield Finding(path, None, str(error), "Servers do not start", advice, error_class=LabError.__name__)


def _no_metadata(path: Path) -> Iterator[Finding | str]:
    try:
        check_metadata_is_there(path.parent)
    except CorruptDataError as error:
        meaning = "The tables are not known; servers do not start"
        yield Finding(path, None, str(error), meaning, "Restore the file from a backup")
    yield f"{path}: missing"


def _known_buckets(path: Path) -> KnownBuckets | None:
    """Return what the metadata knows of buckets; None when it cannot be read, which `_metadata` reports."""
    if not path.exists():
        return None
    try:
        with database_copy(path) as copy:
            return read_known(copy)
    except (sqlite3.DatabaseError, UnicodeError, OSError, StorageError):
        return None


# -- logs ------------------------------------------------------------------------------------------------------------


#: The manifest of each bucket's remote log; None: it cannot be read, as `_remote_logs` reports.
_Manifests: TypeAlias = Mapping[TableBucket, RemoteManifest | None]


def _tablet(
    folder: Path, known: KnownBuckets | None, remote: _Manifests | None, seen: set[TableBucket]
) -> Iterator[Finding | str]:
    """Yield the findings of a tablet server's folder; its buckets go into `seen`. Without `remote` that store does not answer."""
    data = folder / "data"
    trash = data / "trash"
    if trash.is_dir() and any(trash.iterdir()):
        yield Finding(
            trash, None, "dropped buckets are not yet deleted", "The next start deletes them",
            "Nothing needs to be done", is_harmless=True,
        )  # fmt: skip
    for table in _numbered_files(data, _TABLE):
        try:
            schemas = kept_schemas(table)
        except UnsupportedError as error:
            yield _newer(table, error, "The table's buckets cannot be opened")
            continue
        for parent in (table, *_numbered_files(table, _PARTITION)):
            for bucket in _numbered_files(parent, _BUCKET):
                seen.add(_bucket_id(bucket))
                count = 0
                for finding in _bucket_findings(bucket, schemas, known, remote):
                    count += not finding.is_loss
                    yield finding
                yield f"{bucket}: {count} findings"


def _bucket_findings(
    folder: Path, schemas: Mapping[int, pa.Schema], known: KnownBuckets | None, remote: _Manifests | None
) -> Iterator[Finding]:
    """Yield the findings of a bucket's folder."""
    bucket = _bucket_id(folder)
    is_whole = True
    try:
        for finding in _foreign(folder, bucket, known, remote):
            yield _of_table(finding, bucket, known)
        for finding in inspect_bucket(folder, schemas, changelog=any(folder.glob(f"*{MARKS_SUFFIX}"))):
            is_whole = is_whole and finding.is_harmless
            yield _of_table(finding, bucket, known)
        durable = 0 if known is None else known.durable.get(bucket, 0)
        if not is_whole or durable > log_end(folder, schemas):
            ranges = damaged_ranges(folder, schemas, durable)
            yield from losses(bucket, ranges, known, _remote_range(remote, bucket))
    except UnsupportedError as error:
        yield _of_table(_newer(folder, error, "The bucket cannot be opened"), bucket, known)
    except OSError as error:
        yield _of_table(_unreadable(folder, error), bucket, known)


def _of_table(found: Finding, bucket: TableBucket, known: KnownBuckets | None) -> Finding:
    """Return a finding of a bucket with its table, where that is known."""
    return replace(found, table=None if known is None else known.tables.get(bucket.table_id))


def _foreign(
    folder: Path, bucket: TableBucket, known: KnownBuckets | None, remote: _Manifests | None
) -> Iterator[Finding]:
    """Yield a finding where a bucket's folder is not the one that metadata and remote storage know: it is not opened then."""
    identity = "" if known is None else known.identity(bucket)
    is_marked = known is not None and known.is_marked(bucket)
    if identity and (problem := identity_problem(folder, identity, adopt=not is_marked)) is not None:
        yield Finding(folder, None, problem, "The bucket cannot be opened", _COPY)
    if remote is None or (manifest := remote.get(bucket, RemoteManifest(bucket))) is None:
        return
    mark = DroppedMark(folder)
    try:
        dropped = mark.load()
    except FlussError:
        return  # `inspect_bucket` reports it
    if dropped > manifest.copied_offset:
        yield Finding(
            mark.path, None, f"expected a remote log that reaches to offset {dropped}, since segments below it were "
            f"deleted here, found one that reaches to {manifest.copied_offset}", "The records between cannot be read", _COPY,
        )  # fmt: skip


def _lost_folders(
    folder: Path, known: KnownBuckets, remote: _Manifests | None, seen: Container[TableBucket]
) -> Iterator[Finding]:
    """Yield the findings of buckets that had records, and have no folder."""
    for bucket, durable in known.durable.items():
        if durable > 0 and bucket not in seen:
            place = folder / "tablet" / "data" / str(bucket)
            meaning = "The bucket cannot be opened; no tablet server's folder has one"
            found = Finding(place, None, f"there is no folder of {known.title(bucket)}", meaning, _COPY)
            yield _of_table(found, bucket, known)
            yield from losses(bucket, [DamagedRange(place, 0, durable, 0)], known, _remote_range(remote, bucket))


def _bucket_id(folder: Path) -> TableBucket:
    """Return the bucket of a folder ``t<id>/[p<id>/]b<number>``."""
    ids = {part[0]: int(part[1:]) for part in folder.parts[-3:] if part[:1] in {"t", "p", "b"} and part[1:].isdigit()}
    return TableBucket(ids["t"], ids.get("p"), ids["b"])


def _numbered_files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    try:
        found = [(int(match[1]), path) for path in folder.iterdir() if (match := name.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(found)]


# -- the lake ----------------------------------------------------------------------------------------------------------


def _lake_catalog(folder: Path, known: KnownBuckets) -> Iterator[Finding | str]:
    """Yield a finding where the file of the lake's own catalog is gone or damaged: all that the lake holds hangs on it."""
    own = default_lake_options(folder)[_LAKE_KEY]
    if not known.lake or with_lake(server_process.read_options(folder), folder).get(_LAKE_KEY) != own:
        return  # nothing is tiered; or the catalog is elsewhere
    path = folder / "lake" / "catalog.db"
    try:
        problem = _catalog_problem(path)
    except StorageError as error:
        yield _unreadable(path, error)
        return
    if problem is not None:
        names = sorted({known.place(bucket) for bucket in known.lake})
        meaning = f"What the lake holds of {', '.join(names[:_NAMED_MAX])}{', ...' if names[_NAMED_MAX:] else ''} cannot be read or tiered to"
        yield Finding(
            path, None, problem, meaning, "Restore the file from a copy: the tables' own files are in the lake still"
        )
    yield f"{path}: {0 if problem is None else 1} problems"


def _catalog_problem(path: Path) -> str | None:
    if not path.exists():
        return "the catalog's file is missing"
    try:
        with database_copy(path) as copy, closing(sqlite3.connect(copy)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            db.execute("SELECT count(*) FROM iceberg_tables").fetchone()
    except (sqlite3.DatabaseError, UnicodeError, OSError) as error:
        return str(error)
    return None if found == "ok" else str(found)


# -- remote storage --------------------------------------------------------------------------------------------------


def _owner(folder: Path, root: Place) -> Iterator[Finding]:
    try:
        values = metadata_values(folder, is_served=False)
    except FlussError:
        return  # `_metadata` reports it
    try:
        is_claimed(root, values)
    except FlussError as error:
        meaning = "The remote.data.dir is not known to be this lab's; what needs it is refused"
        name = type(error).__name__
        yield Finding(root / OWNER_FILE, None, str(error), meaning, _COPY, error_class=name)


@dataclass(frozen=True, slots=True)
class _RemoteBuckets:
    """The folder of each bucket in remote storage, below ``<root>/<database>``.

    Attributes:
        found: In order.
        is_whole: Whether those are all: not where the store cannot be listed, as `_owner` reports.
    """

    found: list[tuple[Place, TableBucket]]
    is_whole: bool


def _remote_buckets(root: Place) -> _RemoteBuckets:
    names = store_of(root).names
    buckets: list[tuple[Place, TableBucket]] = []
    try:
        tables = [root / database / table for database in names(root) for table in names(root / database)]
        for table in tables:
            if (match := _REMOTE_ID.fullmatch(table.name)) is None:
                continue
            table_id = int(match[1])
            for name in names(table):
                if name.isdigit():
                    buckets.append((table / name, TableBucket(table_id, None, int(name))))
                elif (part := _REMOTE_ID.fullmatch(name)) is not None:
                    found = [each for each in names(table / name) if each.isdigit()]
                    buckets += [(table / name / each, TableBucket(table_id, int(part[1]), int(each))) for each in found]
    except StoreError:
        return _RemoteBuckets(buckets, is_whole=False)
    return _RemoteBuckets(buckets, is_whole=True)


def _remote_manifests(logs: _RemoteBuckets) -> dict[TableBucket, RemoteManifest | None] | None:
    """Return the manifests of all remote logs; None where they are not all known."""
    manifests: dict[TableBucket, RemoteManifest | None] = {}
    for folder, bucket in logs.found:
        try:
            if (found := remote_manifest.load(folder, bucket)) is not None:
                manifests[bucket] = found
        except (FlussError, OSError):
            manifests[bucket] = None
    return manifests if logs.is_whole else None


def _remote_range(remote: _Manifests | None, bucket: TableBucket) -> Range | None:
    """Return the offsets that remote storage holds of a bucket; None where that is not known."""
    found = None if remote is None else remote.get(bucket, RemoteManifest(bucket))
    return None if found is None else (found.start, found.end)


def _remote_logs(logs: _RemoteBuckets, known: KnownBuckets | None) -> Iterator[Finding | str]:
    for folder, bucket in logs.found:
        count = 0
        for finding in _remote_log(folder, bucket):
            count += 1
            yield _of_table(finding, bucket, known)
        yield f"{folder}: {count} findings"


def _remote_log(folder: Place, bucket: TableBucket) -> Iterator[Finding]:
    try:
        found = remote_manifest.load(folder, bucket)
    except (FlussError, OSError) as error:
        yield Finding(
            folder / remote_manifest.FILE_NAME, None, str(error), "The bucket's segments in remote storage are not known, and "
            "no more are copied", _COPY,
        )  # fmt: skip
        return
    for segment in () if found is None else found.segments:
        try:
            with SegmentFile(folder, segment.key) as file:
                for block in range(len(file.index)):
                    for _ in file.batches(block):
                        pass
                    if file.index.has_previous:
                        file.previous(block)
        except (CorruptDataError, UnsupportedError, OSError) as error:
            yield Finding(
                folder / segment.segment_id, None, str(error),
                f"Offsets [{segment.base_offset}, {segment.end_offset}) cannot all be read from remote storage", _COPY,
            )  # fmt: skip


def _snapshots(root: Place, known: KnownBuckets | None) -> Iterator[Finding | str]:
    buckets = _remote_buckets(root)
    lacking = dict(known.snapshots) if known is not None and buckets.is_whole else {}
    for folder, bucket in buckets.found:
        count = 0
        if any(snapshot_id_of(name) is not None for name in store_of(folder).names(folder)):
            lacking.pop(bucket, None)
        for finding in _snapshots_of(folder):
            count += 1
            yield _of_table(finding, bucket, known)
        yield f"{folder}: {count} findings"
    for bucket, offset in lacking.items():
        assert known is not None
        yield Finding(
            root, None, f"there is no key-value snapshot of {known.title(bucket)}, expected one of offset {offset}",
            "The whole changelog is replayed instead, if the log reaches back so far", _COPY,
        )  # fmt: skip


def _snapshots_of(folder: Place) -> Iterator[Finding]:
    names = [name for name in store_of(folder).names(folder) if snapshot_id_of(name) is not None]
    for path in [folder / name for name in names]:
        try:
            check_files(folder, read_manifest(path))
        except (FlussError, OSError) as error:
            others = "An older one is used instead" if len(names) > 1 else "The whole changelog is replayed instead"
            yield Finding(
                path, None, str(error), f"This key-value snapshot is not used. {others}, if the log reaches back so far",
                _COPY,
            )  # fmt: skip


NOTHING: Final[Range] = (0, 0)


def losses(
    bucket: TableBucket, ranges: Iterable[DamagedRange], known: KnownBuckets | None, remote: Range | None
) -> Iterator[Finding]:
    """Yield a finding for each damaged range of a bucket: its offsets, and where else they are held.

    Args:
        ranges: The damaged ranges of its log.
        known: What the metadata knows; None: it cannot be read.
        remote: The offsets that remote storage holds of the bucket; None: they cannot be read.
    """
    for path, start, stop, *_ in ranges:
        title = str(bucket) if known is None else known.title(bucket)
        meaning, advice = _loss_remedy((start, stop), bucket, known, remote)
        if known is not None and bucket.table_id in known.tables:
            advice += ". To continue without what cannot be read, see what that comes to"
        text = f"{title}: offsets [{start}, {stop}) cannot be read"
        yield _of_table(Finding(path, None, text, meaning, advice, is_loss=True), bucket, known)


def _loss_remedy(lost: Range, bucket: TableBucket, known: KnownBuckets | None, remote: Range | None) -> tuple[str, str]:
    """Return the consequence of a lost range, and the remedy."""
    lake = None if known is None else known.lake.get(bucket, NOTHING)
    clauses, left, unknown = [], [lost], []
    for who, has in (("the lake", lake), ("remote storage", remote)):
        if has is None:
            unknown.append(f"what {who} holds is not known")
        elif (both := (max(has[0], lost[0]), min(has[1], lost[1])))[0] < both[1]:
            clauses.append(f"{who} holds {_range_texts([both])}")
            left = [part for each in left for part in _without(each, both)]
    if left:
        where = "not known to be held elsewhere" if unknown else "held nowhere else"
        clauses += [f"{where}: {_range_texts(left)}", *unknown]
    if known is not None and (snapshot := known.snapshots.get(bucket)) is not None:
        needed = "the rows need them" if snapshot < lost[1] else "the rows do not need them, the changelog does"
        clauses.append(f"the newest key-value snapshot is of offset {snapshot}: {needed}")
    text = "; ".join(clauses)
    copy = "Restore the file from a copy if there is one"
    return text[0].upper() + text[1:], copy + ("; else these records are lost" if left and not unknown else "")


def _range_texts(ranges: Iterable[Range]) -> str:
    return ", ".join(f"[{start}, {stop})" for start, stop in ranges)


def _without(whole: Range, part: Range) -> list[Range]:
    """Return what is left of a range without another."""
    pieces = [(whole[0], min(whole[1], part[0])), (max(whole[0], part[1]), whole[1])]
    return [each for each in pieces if each[0] < each[1]]
