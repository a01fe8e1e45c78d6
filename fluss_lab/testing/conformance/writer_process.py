"""Writes and commits in a process of its own, to which everything travels as bytes, and which a failpoint may kill."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

import msgspec
import pyarrow as pa

from fluss_lab import failpoints
from fluss_lab.lake import CommitterInitContext, WriterInitContext, lake_storage
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.records import LogRecords
from fluss_lab.testing.conformance.kit import LakeKit
from fluss_lab.testing.tierers import PRELOAD

#: The first process imports for some seconds, the others are forked from it; a stalled machine takes its time.
TIMEOUT_S: Final = 120
_COLUMNS: Final = ("__offsets", "__timestamps", "__changes", "__previous")


def write_elsewhere(kit: LakeKit, context: WriterInitContext, runs: Sequence[LogRecords]) -> Any:
    """Write a split in another process and return its write result."""
    answer = _run(kit, context, runs, None, {})
    assert answer is not None
    return kit.factory.write_result_serializer().deserialize(answer.version, answer.result)


def commit_elsewhere(
    kit: LakeKit,
    context: WriterInitContext,
    runs: Sequence[LogRecords],
    properties: Mapping[str, str],
    armed: Mapping[str, str],
) -> bool:
    """Write a split and commit it in another process, on top of the newest snapshot.

    Args:
        context: Of the split.
        properties: Of the snapshot.
        armed: Failpoints of that process, name to action.

    Returns:
        Whether it lived to the end.
    """
    return _run(kit, context, runs, properties, armed) is not None


class _Job(msgspec.Struct):
    lake_format: str
    storage: Mapping[str, str]
    context: WriterInitContext
    runs: list[bytes]
    properties: Mapping[str, str] | None


class _Answer(msgspec.Struct):
    version: int
    result: bytes


def _run(
    kit: LakeKit,
    context: WriterInitContext,
    runs: Sequence[LogRecords],
    properties: Mapping[str, str] | None,
    armed: Mapping[str, str],
) -> _Answer | None:
    job = _Job(kit.format_name, kit.storage.properties, context, [_to_bytes(run) for run in runs], properties)
    context_of = multiprocessing.get_context("forkserver")
    context_of.set_forkserver_preload([*PRELOAD, __name__])
    ours, theirs = context_of.Pipe(duplex=False)
    process = context_of.Process(target=_main, args=(encode(job), dict(armed), theirs), daemon=True)
    process.start()
    theirs.close()
    process.join(TIMEOUT_S)
    if process.exitcode is None:
        process.kill()
        raise AssertionError(f"process {process.pid}: still running after {TIMEOUT_S} s")
    try:
        if process.exitcode < 0 and armed:
            return None
        answer = decode(_Answer, ours.recv_bytes(), "answer of a writer elsewhere")
    except EOFError:
        raise AssertionError(
            f"process {process.pid}: it ended with {process.exitcode}, and said why on stderr"
        ) from None
    finally:
        ours.close()
        process.close()
    return answer


def _main(text: bytes, armed: Mapping[str, str], pipe: Pipe) -> None:
    job = decode(_Job, text, "job of a writer elsewhere")
    for name, action in armed.items():
        failpoints.arm(name, action)
    storage = lake_storage(job.lake_format, job.storage)
    factory = storage.create_lake_tiering_factory()
    context = job.context
    writer = factory.create_lake_writer(context)
    for data in job.runs:
        writer.write(_from_bytes(data))
    result = writer.complete()
    serializer = factory.write_result_serializer()
    if job.properties is not None:
        with factory.create_lake_committer(CommitterInitContext(context.table, context.round_id)) as committer:
            committer.commit(committer.to_committable([result]), committer.current_snapshot_id(), job.properties)
    pipe.send_bytes(encode(_Answer(serializer.version, serializer.serialize(result))))
    pipe.close()
    # No exit handlers of the process that this one was forked from.
    os._exit(0)


def _to_bytes(run: LogRecords) -> bytes:
    """Return records as Arrow IPC, what is beside the rows as columns after them."""
    beside = (run.offsets, run.timestamps_ms, run.change_types, run.previous_offsets)
    rows = run.rows
    for name, column in zip(_COLUMNS, beside, strict=True):
        rows = rows if column is None else rows.append_column(name, column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def _from_bytes(data: bytes) -> LogRecords:
    rows = next(iter(pa.ipc.open_stream(data)))
    beside = [rows.column(name) if name in rows.schema.names else None for name in _COLUMNS]
    return LogRecords(rows.select([name for name in rows.schema.names if name not in _COLUMNS]), *beside)
