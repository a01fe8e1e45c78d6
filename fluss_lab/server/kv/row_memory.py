"""The memory of a server's rows: what is beyond a limit goes to mapped files, chunk by chunk.

A chunk's rows, offsets and timestamps never change, so they can lie in a file as well as in memory: the file is mapped, and the
system keeps of it what is used and there is room for. Live flags and indexes stay in memory.

The files are no store: a restart makes the rows from a snapshot and the log, as ever. So each file loses its name once it is
mapped. Nobody can cut or change it then, and the system frees it with the last use of its chunk, or with the process. What
a process left that was killed between the two is removed by the next.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from weakref import WeakSet

import pyarrow as pa

from fluss_lab import files
from fluss_lab.errors import CorruptDataError, StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.records.kv_files import ChunkRows, open_chunks, write_chunks
from fluss_lab.records.kv_manifest import ChunkFile, ChunkMark
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_chunks import Chunk, KvChunk

log = logging.getLogger(__name__)

#: What is smaller will soon be merged, and a process may only have so many mappings.
CHUNK_BYTES_MIN: Final = 256 << 10
#: Of the limit: once it is exceeded, so much is left in memory.
LEFT: Final = 0.75
#: Limits' worth of rows in memory from which on writers wait for the files.
CROWDED: Final = 2.0
#: Chunks written before it is looked again which ones there are.
_AT_ONCE: Final = 8
RETRY_S: Final = 10.0
#: A writer waits no longer, whatever the disk does.
WAIT_MAX_S: Final = 30.0
#: Of the limit: after so many rows it is looked after while rows are rebuilt.
PACE: Final = 0.25
#: In the server's folder of logs.
ROWS_FOLDER: Final = "rows"


class RowMemory:
    """The rows of all stores of a server. Safe for threads.

    Args:
        folder: For the files; of this server alone. What is in it is removed; it is made when it is needed.
        bytes_max: Rows that may be in memory.
        check_disk: Raises `StorageError` while nothing more may be written, given what will not be done.
        chunk_bytes_min: Smaller chunks stay in memory.
        retry_s: After the disk refused, the next attempt waits so long.
    """

    def __init__(
        self,
        folder: Path,
        bytes_max: int,
        check_disk: Callable[[str], None] = lambda _what: None,
        *,
        chunk_bytes_min: int = CHUNK_BYTES_MIN,
        retry_s: float = RETRY_S,
    ) -> None:
        self._folder, self._bytes_max, self._check_disk = folder, bytes_max, check_disk
        self._chunk_bytes_min, self._pause_s = chunk_bytes_min, retry_s
        self._lock = threading.Lock()
        self._working = threading.Lock()
        self._stores: WeakSet[KvStore] = WeakSet()
        self._room = threading.Event()
        self._room.set()
        self._number = 0
        self._retry_s = 0.0
        self._come_bytes = 0
        self._closed = False
        #: Why rows beyond the limit are in memory; empty when none are, or they are just on their way.
        self.problem = ""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Write no more; who waits goes on."""
        self._closed = True
        self._room.set()

    def watch(self, store: KvStore) -> KvStore:
        """Return the store; its rows count from now on, for as long as it is used."""
        with self._lock:
            self._stores.add(store)
        return store

    def wait(self) -> None:
        """Return when more rows may come: at once, unless they come much faster than the disk takes them."""
        if not self._room.is_set():
            self._room.wait(WAIT_MAX_S)

    def pace(self, size: int) -> None:
        """Look, if many rows came since the last look. A writer calls it, which may add rows faster than the periodic looks come.

        Args:
            size: Bytes of the rows that came just now.
        """
        self._come_bytes += size
        if self._come_bytes >= PACE * self._bytes_max:
            self.look()

    def look(self) -> int:
        """Write chunks to files if there is too much in memory; return how many bytes went there. Call it often.

        What the disk refuses stays in memory and is tried again later.
        """
        with self._working:
            self._come_bytes = 0
            held, chunks = self._held_chunks()
            if held <= self._bytes_max:
                self._settle("")
                return 0
            if self._closed or time.monotonic() < self._retry_s:
                return 0
            try:
                return self._reduce(held, chunks)
            except (OSError, StorageError, CorruptDataError, pa.ArrowException) as error:
                self._retry_s = time.monotonic() + self._pause_s
                self._settle(f"rows of {held} bytes are in memory, more than kv.rows-memory-max: {error}")
                return 0
            finally:
                self._room.set()

    def _held_chunks(self) -> tuple[int, list[Chunk]]:
        """Return the bytes of rows in memory, and the chunks worth a file, the largest last."""
        with self._lock:
            stores = list(self._stores)
        chunks = [chunk for store in stores for chunk in store.unmapped_chunks()]
        chosen = [chunk for chunk in chunks if chunk.data_bytes >= self._chunk_bytes_min]
        return sum(chunk.data_bytes for chunk in chunks), sorted(chosen, key=lambda chunk: chunk.data_bytes)

    def _reduce(self, held: int, chunks: list[Chunk]) -> int:
        self._check_disk("rows stay in memory")
        files.make_folder(self._folder)
        written, before = 0, held
        while held > LEFT * self._bytes_max and chunks and not self._closed:
            if held > CROWDED * self._bytes_max:
                self._room.clear()
            else:
                self._room.set()
            for chunk in chunks[: -_AT_ONCE - 1 : -1]:
                chunk.settle(self._map_chunk(chunk.data))
                written += chunk.data_bytes
                held -= chunk.data_bytes
                if held <= LEFT * self._bytes_max or self._closed:
                    break
            held, chunks = self._held_chunks()
        if written:
            log.info("event=rows_to_files bytes=%d before=%d left=%d", written, before, held)
        self._settle("")
        return written

    def _map_chunk(self, chunk: KvChunk) -> KvChunk:
        """Return the same rows over a file without a name, all of which is on the device."""
        self._number += 1
        path = self._folder / f"{os.getpid()}-{self._number}"
        failpoint("kv.rows.before_write")
        # On the device before the memory is given up: what is refused later would be noticed by nobody.
        mark = write_chunks(path, [ChunkRows(chunk.rows, chunk.offsets, chunk.timestamps_ms)])
        try:
            failpoint("kv.rows.written")
            ends = int(chunk.offsets[0]), int(chunk.offsets[-1])
            entry = ChunkMark(chunk.chunk_id, chunk.schema_id, len(chunk.offsets), *ends)
            (found,) = open_chunks(self._folder, ChunkFile(mark, (entry,)), {chunk.schema_id: chunk.rows.schema})
        finally:
            path.unlink()
        return KvChunk(chunk.chunk_id, chunk.schema_id, found.rows, found.offsets, found.timestamps_ms, is_mapped=True)

    def _settle(self, problem: str) -> None:
        if problem and not self.problem:
            log.error("event=rows_stay_in_memory folder=%s error=%s", self._folder, problem)
        self.problem = problem
